//! The scheduler's decisions alone, in this process: no API, no store, no waiting.

mod workload;

use anyhow::Result;

use crate::bench::Bench;
use crate::load::as_f64;
use workload::WORKLOADS;

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    let part = bench.extent.of(1, 10);
    for workload in WORKLOADS {
        let outcome = workload.run(part)?;
        let what = format!(
            "{}: {} Pods, {} Nodes with {}",
            workload.name,
            workload.pods / part,
            workload.nodes / part,
            workload.placed / part
        );
        let rate = as_f64(outcome.took.len()) / outcome.cpu.as_secs_f64();
        bench.report.value(&what, "1/s of CPU", Some(workload.goal), rate);
        bench.report.durations("  each decision", None, &outcome.took);
        if outcome.victims > 0 {
            bench.report.value("  Pods that went for others", "", None, as_f64(outcome.victims));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use scheduler::NodeInfo;

    use super::*;

    /// How many Pods that are decided about are on one Node.
    fn measured(node: &NodeInfo) -> usize {
        node.pods()
            .filter(|pod| pod.metadata.uid.as_deref().is_some_and(|uid| uid.starts_with("measured")))
            .count()
    }

    #[test]
    fn every_pod_finds_a_node_as_its_workload_asks() {
        const PART: usize = 50;
        for workload in WORKLOADS {
            let outcome = workload.run(PART).expect("every Pod finds a Node");
            let nodes = || outcome.snapshot.nodes();
            let sum: usize = nodes().map(measured).sum();
            assert_eq!(sum, workload.pods / PART, "{}", workload.name);
            match workload.name {
                "SchedulingPodAntiAffinity" => assert!(nodes().all(|node| node.pods().len() <= 1)),
                "TopologySpreading" => {
                    let zones = ["moon-1", "moon-2", "moon-3"].map(|zone| {
                        let here =
                            nodes().filter(|node| node.label("topology.kubernetes.io/zone") == Some(zone));
                        here.map(measured).sum::<usize>()
                    });
                    let [few, .., many] = sorted(zones);
                    assert!(many - few <= 5, "{zones:?}");
                }
                "PreemptionBasic" => assert_eq!(outcome.victims, 3 * sum, "as few as possible"),
                _ => assert_eq!(outcome.victims, 0),
            }
        }
    }

    fn sorted<const N: usize>(mut numbers: [usize; N]) -> [usize; N] {
        numbers.sort_unstable();
        numbers
    }
}
