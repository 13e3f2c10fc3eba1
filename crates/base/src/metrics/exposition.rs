//! OpenMetrics, as the library writes it, as the text format that upstream's components answer. Pure.
//!
//! The two differ in the names of counters (a family has its samples' name), in how whole numbers are written (`le` is
//! part of a series' name), in the sign of infinity and in the last line. Source: exposition formats 0.0.4 and OpenMetrics 1.0.

use std::borrow::Cow;
use std::collections::BTreeSet;

/// How the library begins a bucket's labels.
const BUCKET: &str = "_bucket{le=\"";

/// `plain` are counters whose samples have no `_total`.
pub(super) fn plain_text(open_metrics: &str, plain: &BTreeSet<String>) -> String {
    let mut out = String::with_capacity(open_metrics.len());
    // The help's line comes before the kind's, and needs to know it.
    let mut help = None;
    let mut bare: Option<&str> = None;
    for line in open_metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map(|(_, text)| text);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            bare = plain.contains(name).then_some(name);
            let total = if kind == "counter" && bare.is_none() { "_total" } else { "" };
            let help = help.take().unwrap_or_default();
            out.extend(["# HELP ", name, total, " ", help, "\n# TYPE ", name, total, " ", kind, "\n"]);
        } else if !line.starts_with('#') {
            let rest = bare.and_then(|name| line.strip_prefix(name)?.strip_prefix("_total"));
            match (bare, rest) {
                (Some(name), Some(rest)) => out.extend([name, &whole(rest)]),
                _ => out.push_str(&whole(line)),
            }
            out.push('\n');
        }
    }
    out
}

/// Whole numbers without `.0`: the value's, and the bound's of a bucket; infinity as Go writes it.
fn whole(sample: &str) -> Cow<'_, str> {
    if let Some(series) = sample.strip_suffix(" inf") {
        return format!("{series} +Inf").into();
    }
    let sample = sample.strip_suffix(".0").unwrap_or(sample);
    let Some((before, after)) = sample.split_once(BUCKET) else { return sample.into() };
    match after.split_once(".0\"") {
        Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{before}{BUCKET}{number}\"{rest}").into()
        }
        _ => sample.into(),
    }
}

#[cfg(test)]
mod tests;
