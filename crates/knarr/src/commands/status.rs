//! `knarr status`: whether a cluster runs, and what its API server says of itself.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use http::Request;
use http_body_util::BodyExt;

use crate::commands::{down, trace};
use crate::components::Settings;
use crate::layout::Layout;

/// Prints the state; fails if the cluster does not run or is not ready.
pub(crate) fn run(data_dir: &Path) -> Result<()> {
    let layout = Layout::new(data_dir)?;
    let settings = Settings::load(&layout)?;
    let Some(pid) = down::running_pid(&layout)? else {
        bail!("no cluster runs in {}; `knarr up` starts it", layout.root().display());
    };
    let mut out = std::io::stdout();
    writeln!(out, "cluster   {} (process {pid})", layout.root().display())?;
    writeln!(out, "node      {} ({})", settings.node_name, settings.node_ip)?;
    writeln!(out, "config    export KUBECONFIG={}", layout.admin_kubeconfig().display())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (ready, text) = runtime.block_on(readiness(&layout))?;
    writeln!(out, "{}", text.trim_end())?;
    if !ready {
        bail!("the API server is not ready");
    }
    Ok(())
}

async fn readiness(layout: &Layout) -> Result<(bool, String)> {
    let client = trace::client(&layout.admin_kubeconfig(), "knarr").await?;
    let request = Request::get("/readyz?verbose").body(kube::client::Body::empty())?;
    let response = client.send(request).await.context("ask the API server")?;
    let ready = response.status().is_success();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((ready, String::from_utf8_lossy(&body).into_owned()))
}
