//! `knarr status`: whether a cluster runs, and what its API server says of itself.

use std::io::Write;

use anyhow::{Context, Result, bail};
use cli::args::{Output, StatusArgs};
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::commands::{down, trace};
use crate::components::Settings;
use crate::layout::Layout;

/// Prints the state; fails if the cluster does not run or is not ready.
pub(crate) fn run(args: &StatusArgs) -> Result<()> {
    let layout = Layout::new(&args.data.data_dir)?;
    let settings = Settings::load(&layout)?;
    let Some(pid) = down::running_pid(&layout)? else {
        if args.output == Output::Json {
            print_json(&json!({ "dataDir": layout.root(), "running": false }))?;
        }
        bail!("no cluster runs in {}; `knarr up` starts it", layout.root().display());
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(readiness(&layout));
    match args.output {
        Output::Json => {
            let (ready, text) = answer.as_ref().map_or((false, ""), |(ready, text)| (*ready, text.as_str()));
            print_json(&json!({
                "dataDir": layout.root(),
                "running": true,
                "pid": pid,
                "node": { "name": settings.node_name, "ip": settings.node_ip },
                "kubeconfig": layout.admin_kubeconfig(),
                "ready": ready,
                "checks": checks(text),
            }))?;
        }
        Output::Text => {
            let mut out = std::io::stdout();
            writeln!(out, "cluster   {} (process {pid})", layout.root().display())?;
            writeln!(out, "node      {} ({})", settings.node_name, settings.node_ip)?;
            writeln!(out, "config    export KUBECONFIG={}", layout.admin_kubeconfig().display())?;
            if let Ok((_, text)) = &answer {
                writeln!(out, "{}", text.trim_end())?;
            }
        }
    }
    if !answer?.0 {
        bail!("the API server is not ready; its log is {}", layout.log().display());
    }
    Ok(())
}

fn print_json(value: &Value) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{}", serde_json::to_string_pretty(value)?)?)
}

/// The lines of `/readyz?verbose`: `[+]ping ok`.
fn checks(text: &str) -> Vec<Value> {
    let line = |line: &str| {
        let (name, _) = line.get(3..)?.split_once(' ')?;
        let ok = match line.get(..3)? {
            "[+]" => true,
            "[-]" => false,
            _ => return None,
        };
        Some(json!({ "name": name, "ok": ok }))
    };
    text.lines().filter_map(line).collect()
}

async fn readiness(layout: &Layout) -> Result<(bool, String)> {
    let client = trace::client(&layout.admin_kubeconfig()).await?;
    let request = Request::get("/readyz?verbose").body(kube::client::Body::empty())?;
    let response = client.send(request).await.context("ask the API server")?;
    let ready = response.status().is_success();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((ready, String::from_utf8_lossy(&body).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_read_from_the_verbose_answer() {
        let text = "[+]ping ok\n[-]informer-sync failed: reason withheld\nreadyz check failed\n";
        let expected = json!([{ "name": "ping", "ok": true }, { "name": "informer-sync", "ok": false }]);
        assert_eq!(Value::from(checks(text)), expected);
    }
}
