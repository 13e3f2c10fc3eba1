//! The measurements, in the order in which they are made: a row each.

mod churn;
mod creates;
mod custom;
mod decisions;
mod deployment;
mod etcd;
mod get;
mod idle;
mod jobs;
mod kill;
mod list;
mod network_policies;
mod packets;
mod parts;
mod patch;
mod pods;
mod policy;
mod proxy;
mod runtimes;
mod scheduler;
mod start;
mod store;
mod watchers;
mod webhook;

use anyhow::Result;

use crate::bench::Bench;

/// One measurement.
pub(crate) struct Row {
    /// For `--only`.
    pub(crate) name: &'static str,
    /// For people.
    pub(crate) about: &'static str,
    /// Measures, and adds to the report.
    pub(crate) measure: fn(&mut Bench) -> Result<()>,
}

/// All of them.
pub(crate) const ROWS: &[Row] = &[
    Row { name: "start", about: "exec of `knarr up` to a Ready Node with DNS", measure: start::measure },
    Row {
        name: "nodes",
        about: "exec of `knarr up --nodes 3` to three Ready Nodes",
        measure: start::of_three,
    },
    Row { name: "idle", about: "CPU, memory and disk writes with nothing to do", measure: idle::measure },
    Row { name: "pods", about: "POST of a Deployment to its Pods Ready", measure: pods::measure },
    Row { name: "churn", about: "1,000 Pods that come and go, and what they leave", measure: churn::measure },
    Row {
        name: "runtimes",
        about: "the built-in runtime beside containerd with runc",
        measure: runtimes::measure,
    },
    Row { name: "creates", about: "durable creates of 1 kB", measure: creates::measure },
    Row { name: "get", about: "GET of one object", measure: get::measure },
    Row { name: "patch", about: "merge patch and server-side apply of one object", measure: patch::measure },
    Row { name: "list", about: "LIST of 10,000 objects, in JSON and protobuf", measure: list::measure },
    Row { name: "watchers", about: "1,000 watchers, 100 events a second", measure: watchers::measure },
    Row {
        name: "custom",
        about: "500 CustomResourceDefinitions, and objects of one",
        measure: custom::measure,
    },
    Row { name: "policy", about: "rules in CEL, of policies and of custom kinds", measure: policy::measure },
    Row {
        name: "webhook",
        about: "what a validating and a mutating webhook add to a create",
        measure: webhook::measure,
    },
    Row {
        name: "kill",
        about: "kill -9 of the control plane to ready, 10,000 objects",
        measure: kill::measure,
    },
    Row {
        name: "deployment",
        about: "2,000 Pods of one Deployment, on no Node",
        measure: deployment::measure,
    },
    Row {
        name: "jobs",
        about: "one Job with 1,000 Pods, and 10,000 Jobs with one, on no Node",
        measure: jobs::measure,
    },
    Row { name: "scheduler", about: "5,000 Pods onto 1,000 Nodes", measure: scheduler::measure },
    Row {
        name: "parts",
        about: "what controllers and scheduler keep in memory of 5,000 Pods",
        measure: parts::measure,
    },
    Row {
        name: "decisions",
        about: "the scheduler's decisions alone, after upstream's workloads",
        measure: decisions::measure,
    },
    Row {
        name: "proxy",
        about: "10,000 Services with 100,000 endpoints into the kernel, and changes of one",
        measure: proxy::measure,
    },
    Row {
        name: "packets",
        about: "connections and throughput between Pods, straight and through a Service in each mode",
        measure: packets::measure,
    },
    Row {
        name: "network-policies",
        about: "1,000 NetworkPolicies over 1,000 Pods into the kernel, and changes of one Pod",
        measure: network_policies::measure,
    },
    Row {
        name: "updates",
        about: "the bare store: 1,000,000 updates of 10,000 objects: disk, memory, bytes per write",
        measure: store::updates,
    },
    Row {
        name: "recovery",
        about: "the bare store: opening 10,000 and 1,000,000 keys after a crash",
        measure: store::recovery,
    },
    Row { name: "etcd", about: "the same creates by etcd, where it is installed", measure: etcd::measure },
];
