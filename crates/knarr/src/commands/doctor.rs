//! `knarr doctor`: looks at everything that a cluster needs of this host, and says what to do about what is missing.

use std::io::Write;

use anyhow::{Result, bail};
use cli::args::{DoctorArgs, Output};
use serde_json::json;

use crate::commands::down;
use crate::components::Settings;
use crate::host;
use crate::layout::Layout;
use crate::preflight::checks::{self, Finding, Subject};
use crate::preflight::cis::{self, Facts, Row, Verdict};

/// Prints a line per finding; fails if one of them keeps a cluster from running.
pub(crate) fn run(args: &DoctorArgs) -> Result<()> {
    cli::validate::server(&args.server)?;
    checks::root()?;
    let layout = Layout::new(&args.server.data_dir)?;
    let is_running = down::running_pid(&layout)?.is_some();
    let is_made = layout.config().exists();
    let earlier = if is_made { Settings::load(&layout).ok() } else { None };
    if args.cis {
        let as_started = earlier.as_ref().map_or(&args.server, |earlier| &earlier.args);
        return benchmark(&cis::judge(&Facts::of(as_started, &layout)), args.output);
    }
    let families = || args.server.cluster_cidr.iter().map(|cidr| cidr.family());
    let node_ips = match (args.server.node_ip.as_slice(), &earlier) {
        ([], Some(earlier)) => earlier.node_ips(),
        ([], None) => host::node_ips(families()).unwrap_or_default(),
        (given, _) => given.to_vec(),
    };
    let found = checks::all(&Subject { args: &args.server, layout: &layout, node_ips, is_running });
    let mut out = std::io::stdout();
    match args.output {
        Output::Text => {
            for (name, finding) in &found {
                writeln!(out, "{}", line(name, finding))?;
            }
        }
        Output::Json => {
            writeln!(out, "{}", serde_json::to_string_pretty(&json!({ "checks": rows(&found) }))?)?
        }
    }
    let failures = found.iter().filter(|(_, finding)| matches!(finding, Finding::Failure { .. })).count();
    if failures > 0 {
        bail!(
            "{failures} of {} checks failed: a cluster cannot run here; do what the lines say",
            found.len()
        );
    }
    Ok(())
}

/// Prints a line per check of the benchmark; fails if one of them does.
fn benchmark(judged: &[(&'static Row, Verdict)], output: Output) -> Result<()> {
    let said = |verdict: &Verdict| match verdict {
        Verdict::Pass(why) => ("pass", why.clone()),
        Verdict::Built(why) => ("pass", format!("by construction: {why}")),
        Verdict::Warn(why) => ("warn", why.clone()),
        Verdict::Fail(why) => ("FAIL", why.clone()),
        Verdict::NotApplicable(why) => ("n.a.", why.clone()),
    };
    let mut out = std::io::stdout();
    match output {
        Output::Text => {
            for (row, verdict) in judged {
                let (result, why) = said(verdict);
                writeln!(out, "{result}  {:<9}  {}: {why}", row.id, row.title)?;
            }
        }
        Output::Json => {
            let rows = judged.iter().map(|(row, verdict)| {
                let (result, why) = said(verdict);
                json!({ "check": row.id, "title": row.title, "result": result.to_lowercase(), "reason": why })
            });
            let rows: Vec<_> = rows.collect();
            writeln!(out, "{}", serde_json::to_string_pretty(&json!({ "checks": rows }))?)?;
        }
    }
    let failures = judged.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Fail(_))).count();
    if failures > 0 {
        bail!(
            "{failures} of {} checks of the CIS benchmark failed; docs/security.md says what to do",
            judged.len()
        );
    }
    Ok(())
}

fn line(name: &str, finding: &Finding) -> String {
    match finding {
        Finding::Fine(what) => format!("ok    {name:<18} {what}"),
        Finding::Warning { what, fix } => format!("WARN  {name:<18} {what}; {fix}"),
        Finding::Failure { what, fix } => format!("FAIL  {name:<18} {what}; {fix}"),
    }
}

fn rows(found: &[(&'static str, Finding)]) -> Vec<serde_json::Value> {
    let row = |(name, finding): &(&'static str, Finding)| match finding {
        Finding::Fine(what) => json!({ "check": name, "result": "ok", "found": what }),
        Finding::Warning { what, fix } => {
            json!({ "check": name, "result": "warning", "found": what, "fix": fix })
        }
        Finding::Failure { what, fix } => {
            json!({ "check": name, "result": "failure", "found": what, "fix": fix })
        }
    };
    found.iter().map(row).collect()
}
