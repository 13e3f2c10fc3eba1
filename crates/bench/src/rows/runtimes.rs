//! The built-in runtime beside containerd with runc: the same kubelet, image and Deployments.
//!
//! What the runtimes do is told by the kubelet's own spans, those of `knarr trace`. Memory is that of all processes that
//! are there because of a Pod, its containers too, and what the kubelet and the runtime have grown by.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use machinery::trace::{Chain, Span};
use serde_json::json;
use testkit::{Cluster, Containerd, containerd};

use super::pods::{Deployments, create_and_delete};
use crate::bench::Bench;
use crate::load::{Call, Door, as_f64};
use crate::processes;

const MANY: usize = 100;

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    let built_in = |cluster: &mut Cluster| {
        cluster.import_busybox(containerd::IMAGE)?;
        cluster.up()
    };
    bench.with_cluster_that(built_in, async |bench, cluster| {
        pods(bench, cluster, "built-in runtime", &cluster.processes("")).await
    })?;
    let paths = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&paths).any(|folder| folder.join("containerd").is_file()) {
        eprintln!("bench:   containerd is not installed (Debian: containerd); left out");
        return Ok(());
    }
    let runtime = AtomicI32::new(0);
    let on_containerd = |cluster: &mut Cluster| {
        let containerd = Containerd::start(cluster, containerd::DEBIAN_PLUGINS, containerd::PTP)?;
        runtime.store(containerd.process()?, Ordering::Relaxed);
        cluster.up_with(&["--container-runtime-endpoint", &containerd.endpoint()])?;
        Ok(containerd)
    };
    bench.with_cluster_that(on_containerd, async |bench, cluster| {
        let roots = [cluster.processes(""), vec![runtime.load(Ordering::Relaxed)]].concat();
        pods(bench, cluster, "containerd with runc", &roots).await
    })
}

/// One Pod after the other, then many at once. `roots` are the processes that all others come from.
async fn pods(bench: &mut Bench, cluster: &Cluster, runtime: &str, roots: &[i32]) -> Result<()> {
    let container = json!({ "image": containerd::IMAGE, "command": ["sleep", "1000000"] });
    let deployments = Deployments::new(&cluster.kubeconfig(), container).await?;
    let door = Door::new(&cluster.kubeconfig()).await?;
    let (mut ready, mut sandboxes, mut containers) = (Vec::new(), Vec::new(), Vec::new());
    let runs = bench.extent.of(20, 5);
    for run in 1..=runs {
        eprintln!("bench:   {runtime}: 1 Pod, {run} of {runs}");
        let name = format!("one-{run}");
        let look = async || {
            let path = format!("/debug/knarr/trace?resource=deployments&namespace=default&name={name}");
            let chain: Chain = serde_json::from_slice(&door.call(Call::get(path)).await?)?;
            sandboxes.push(took(&chain, "sandbox started")?);
            containers.push(took(&chain, "container started")?);
            Ok(())
        };
        ready.push(create_and_delete(&deployments, &name, 1, look).await?);
    }
    let before = memory(roots)?;
    let (mut after, count) = (0, bench.extent.of(MANY, MANY / 10));
    eprintln!("bench:   {runtime}: {count} Pods");
    let look = async || {
        after = memory(roots)?;
        Ok(())
    };
    let many = create_and_delete(&deployments, "many", count, look).await?;
    let report = &mut bench.report;
    report.durations(&format!("{runtime}: sandbox started"), None, &sandboxes);
    report.durations("  container created and started", None, &containers);
    report.durations("  Deployment POST to Pod Ready", None, &ready);
    report.durations(&format!("  {count}-Pod Deployment POST to all Ready"), None, &[many]);
    let each = processes::mebibytes(after.saturating_sub(before)) / as_f64(count);
    report.value("  PSS of all processes, per Pod", "MiB", None, each);
    Ok(())
}

/// How long the first step of this name took.
fn took(chain: &Chain, name: &str) -> Result<Duration> {
    let span = chain.spans.iter().find(|span: &&Span| span.name == name);
    let span = span.with_context(|| format!("the trace has no \"{name}\""))?;
    Ok(Duration::from_micros(u64::try_from(span.end_us - span.start_us)?))
}

/// Of these processes and all below them.
fn memory(roots: &[i32]) -> Result<u64> {
    processes::pss_bytes(&below(roots, &processes::parents()?))
}

/// The processes and all that come from them, by each one's parent.
fn below(roots: &[i32], parents: &HashMap<i32, i32>) -> Vec<i32> {
    let mut found = roots.to_vec();
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        let children = parents.iter().filter(|(_, of)| **of == parent).map(|(child, _)| *child);
        let new: Vec<i32> = children.filter(|child| !found.contains(child)).collect();
        found.extend(new);
        next += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_are_found_through_all_generations_and_once() {
        let parents = HashMap::from([(2, 1), (3, 2), (4, 3), (5, 1), (7, 6)]);
        let mut found = below(&[2, 3], &parents);
        found.sort_unstable();
        assert_eq!(found, [2, 3, 4]);
        assert_eq!(below(&[9], &parents), [9]);
    }
}
