//! Clusters and Pods of the shapes that upstream measures its scheduler with, and decisions about them in this process.
//!
//! Source: `test/integration/scheduler_perf` of Kubernetes: workloads and templates.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use nix::time::{ClockId, clock_gettime};
use scheduler::Pod;
use scheduler::diagnosis::Diagnosis;
use scheduler::preemption::{Preemption, preempt};
use scheduler::{Decision, Snapshot, decide};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// One of upstream's workloads.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) nodes: usize,
    /// Pods that are there before.
    pub(crate) placed: usize,
    /// Pods that are decided about.
    pub(crate) pods: usize,
    /// The spec of those that are there before, and of the others; with labels and priority.
    shapes: [fn() -> Shape; 2],
    /// Whether the Pods are those of a Service.
    is_served: bool,
    /// Decisions a second.
    pub(crate) goal: &'static str,
}

/// What Pods of one template have in common.
struct Shape {
    labels: Value,
    spec: Value,
}

/// All of them, at the size at which goals are set.
pub(crate) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "SchedulingBasic",
        nodes: 5_000,
        placed: 1_000,
        pods: 2_000,
        shapes: [plain, plain],
        is_served: false,
        goal: "20000",
    },
    Workload {
        name: "SchedulingBasic of one Service",
        nodes: 5_000,
        placed: 1_000,
        pods: 2_000,
        shapes: [plain, plain],
        is_served: true,
        goal: "3000",
    },
    Workload {
        name: "SchedulingPodAntiAffinity",
        nodes: 5_000,
        placed: 1_000,
        pods: 2_000,
        shapes: [apart, apart],
        is_served: false,
        goal: "3000",
    },
    Workload {
        name: "TopologySpreading",
        nodes: 5_000,
        placed: 5_000,
        pods: 2_000,
        shapes: [plain, spread],
        is_served: false,
        goal: "3000",
    },
    Workload {
        name: "PreemptionBasic",
        nodes: 500,
        placed: 2_000,
        pods: 500,
        shapes: [low, high],
        is_served: false,
        goal: "500",
    },
];

fn requests(cpu: &str) -> Value {
    json!([{
        "name": "pause",
        "image": "registry.k8s.io/pause:3.10",
        "ports": [{ "containerPort": 80 }],
        "resources": { "requests": { "cpu": cpu, "memory": "500Mi" } },
    }])
}

fn plain() -> Shape {
    Shape { labels: json!({ "type": "plain" }), spec: json!({ "containers": requests("100m") }) }
}

fn apart() -> Shape {
    let term = json!({
        "labelSelector": { "matchLabels": { "color": "green" } },
        "topologyKey": "kubernetes.io/hostname",
        "namespaces": ["sched-1", "sched-0"],
    });
    let affinity = json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term] } });
    Shape {
        labels: json!({ "color": "green", "name": "test" }),
        spec: json!({ "containers": requests("100m"), "affinity": affinity }),
    }
}

fn spread() -> Shape {
    let constraint = json!({
        "maxSkew": 5,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": { "color": "blue" } },
    });
    Shape {
        labels: json!({ "color": "blue" }),
        spec: json!({ "containers": requests("100m"), "topologySpreadConstraints": [constraint] }),
    }
}

fn low() -> Shape {
    Shape { labels: json!({}), spec: json!({ "priority": 0, "containers": requests("900m") }) }
}

fn high() -> Shape {
    Shape { labels: json!({}), spec: json!({ "priority": 10, "containers": requests("3000m") }) }
}

fn parse<T: DeserializeOwned>(value: Value) -> Result<Arc<T>> {
    Ok(Arc::new(serde_json::from_value(value)?))
}

fn node_name(number: usize) -> String {
    format!("scheduler-perf-{number}")
}

fn node(number: usize) -> Value {
    let name = node_name(number);
    let zone = format!("moon-{}", number % 3 + 1);
    let allocatable = json!({ "pods": "110", "cpu": "4", "memory": "32Gi" });
    json!({
        "metadata": {
            "name": name,
            "labels": { "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone },
        },
        "status": { "capacity": allocatable, "allocatable": allocatable },
    })
}

fn pods(count: usize, group: &str, Shape { labels, spec }: &Shape) -> Result<Vec<Arc<Pod>>> {
    let pod = |number: usize| {
        let name = format!("{group}-{number}");
        let metadata = json!({ "name": name, "uid": name, "namespace": "sched-0", "labels": labels });
        parse(json!({ "metadata": metadata, "spec": spec }))
    };
    (0..count).map(pod).collect()
}

/// What this thread has used.
fn cpu() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}

/// What came of a workload.
pub(crate) struct Outcome {
    pub(crate) snapshot: Snapshot,
    /// How many Pods went for others.
    pub(crate) victims: usize,
    /// For each decision, with what it means for the next.
    pub(crate) took: Vec<Duration>,
    /// CPU time of all decisions: others on the machine do not count.
    pub(crate) cpu: Duration,
}

impl Workload {
    /// Decides about all Pods, one after the other; `part` is by how much everything is smaller.
    pub(crate) fn run(&self, part: usize) -> Result<Outcome> {
        let mut snapshot = Snapshot::default();
        let nodes = self.nodes / part;
        for number in 0..nodes {
            snapshot.set_node(parse(node(number))?);
        }
        let [before, measured] = self.shapes;
        for (number, pod) in pods(self.placed / part, "before", &before())?.iter().enumerate() {
            snapshot.place(pod, &node_name(number % nodes));
        }
        let shape = measured();
        let selector = self.is_served.then(|| json!({ "matchLabels": shape.labels }));
        let selector: Option<LabelSelector> = selector.map(serde_json::from_value).transpose()?;
        let pods = pods(self.pods / part, "measured", &shape)?;
        let mut outcome =
            Outcome { snapshot, victims: 0, took: Vec::with_capacity(pods.len()), cpu: Duration::ZERO };
        let before = cpu()?;
        for (pod, chance) in pods.iter().zip(0..) {
            let started = Instant::now();
            // Neighbours in numbers are far from each other in chance.
            outcome.schedule(pod, selector.as_ref(), u64::wrapping_mul(chance, 0x9E37_79B9_7F4A_7C15))?;
            outcome.took.push(started.elapsed());
        }
        outcome.cpu = cpu()? - before;
        Ok(outcome)
    }
}

impl Outcome {
    fn schedule(&mut self, pod: &Arc<Pod>, selector: Option<&LabelSelector>, chance: u64) -> Result<()> {
        let choose = |snapshot: &Snapshot| decide(pod, selector, snapshot, chance, &mut Diagnosis::default());
        let mut decision = choose(&self.snapshot);
        if matches!(decision, Decision::Unschedulable(_))
            && let Preemption::Possible(candidate) = preempt(pod, &mut self.snapshot, &[], chance)
        {
            for victim in &candidate.victims {
                self.snapshot.remove(victim.metadata.uid.as_deref().context("a victim without uid")?);
                self.victims += 1;
            }
            decision = choose(&self.snapshot);
        }
        let Decision::Bind(choice) = decision else { bail!("a Pod has found no Node: {decision:?}") };
        self.snapshot.place(pod, &choice.node);
        Ok(())
    }
}
