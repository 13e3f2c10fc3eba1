//! Prometheus' text format, written family by family. Source: exposition format 0.0.4.

use std::fmt::Write;

/// The media type.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What has been written.
#[derive(Default)]
pub(super) struct Exposition(String);

/// Names and values.
pub(super) type Labels<'a> = [(&'a str, &'a str)];

impl Exposition {
    /// Begins a family: `counter` or `gauge`.
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}").ok();
    }

    /// One value; `at` in milliseconds since the epoch.
    pub(super) fn sample(&mut self, name: &str, labels: &Labels<'_>, value: f64, at: Option<i64>) {
        self.0.push_str(name);
        let mut between = '{';
        for (label, text) in labels {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            write!(self.0, "{between}{label}=\"{text}\"").ok();
            between = ',';
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        write!(self.0, " {value}").ok();
        if let Some(at) = at {
            write!(self.0, " {at}").ok();
        }
        self.0.push('\n');
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

/// Nanoseconds as seconds.
#[expect(clippy::cast_precision_loss, reason = "as Prometheus' numbers are")]
pub(super) fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

#[expect(clippy::cast_precision_loss, reason = "as Prometheus' numbers are")]
pub(super) fn number(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut out = Exposition::default();
        out.family("a", "gauge", "Help.");
        out.sample("a", &[("x", "1\"2\\"), ("y", "")], 1.5, Some(7));
        out.sample("a", &[], 3.0, None);
        assert_eq!(out.finish(), "# HELP a Help.\n# TYPE a gauge\na{x=\"1\\\"2\\\\\",y=\"\"} 1.5 7\na 3\n");
    }
}
