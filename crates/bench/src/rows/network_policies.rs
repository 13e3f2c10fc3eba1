//! NetworkPolicies alone, in this process and a network namespace of its own: no API, and no packets.
//!
//! All Pods are on the Node that is measured, each is selected by ten policies, and each policy is about peers of its own: no
//! set of addresses is shared.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use machinery::net::Family;
use network_policy::{Batch, Config, Engine, News, Pod, Sandbox, Took};
use serde::de::DeserializeOwned;
use serde_json::{Value, from_value, json};
use sys::netns::NetNs;

use crate::bench::Bench;
use crate::processes;

const NAMESPACES: u32 = 10;
/// In each namespace.
const APPS: u32 = 10;

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    let many = u32::try_from(bench.extent.of(1_000, 100))?;
    let changes = u32::try_from(bench.extent.of(200, 20))?;
    let namespace = NetNs::anonymous().context("make a network namespace: run this as root")?;
    let outcome = namespace.run(|| run(many, changes))?;
    let report = &mut bench.report;
    let what = format!("{many} NetworkPolicies over {many} Pods: first programming");
    report.value(&what, "ms", None, outcome.first.as_secs_f64() * 1e3);
    report.value("  memory of it, objects included", "MiB", None, outcome.mebibytes);
    for (what, took) in [
        ("a Pod's labels change", outcome.labelled),
        ("a Pod goes", outcome.gone),
        ("a Pod comes", outcome.come),
    ] {
        let (deciding, all): (Vec<_>, Vec<_>) = took.iter().map(|took| (took.deciding, took.all)).unzip();
        report.durations(&format!("  {what}, decided"), None, &deciding);
        report.durations(&format!("  {what}, with the kernel's commit"), Some("10"), &all);
    }
    Ok(())
}

#[derive(Default)]
struct Outcome {
    first: Duration,
    mebibytes: f64,
    labelled: Vec<Took>,
    gone: Vec<Took>,
    come: Vec<Took>,
}

fn run(many: u32, changes: u32) -> sys::Result<Outcome> {
    let memory = || processes::rss_bytes(std::process::id() as i32).map_or(0.0, processes::mebibytes);
    let before = memory();
    let config =
        Config { cluster_id: "bench".to_owned(), node_name: "own".to_owned(), families: vec![Family::V4] };
    let mut engine = Engine::new(&config);
    let mut sandboxes: BTreeMap<String, Sandbox> =
        (0..many).map(|it| (it.to_string(), sandbox(it))).collect();
    let batch = Batch {
        policies: (0..many).map(policy).collect::<sys::Result<_>>()?,
        namespaces: (0..NAMESPACES).map(namespace).collect::<sys::Result<_>>()?,
        pods: (0..many).map(|number| pod(number, number)).collect::<sys::Result<_>>()?,
        sandboxes: sandboxes.clone(),
    };
    let began = Instant::now();
    engine.program(batch)?;
    let mut outcome = Outcome { first: began.elapsed(), mebibytes: memory() - before, ..Outcome::default() };
    for change in 0..changes {
        let number = change * 7 % many;
        for of in [number + NAMESPACES, number] {
            let pods = vec![pod(number, of)?];
            let batch = Batch { pods, sandboxes: sandboxes.clone(), ..Batch::default() };
            outcome.labelled.push(engine.program(batch)?);
        }
        // Its sandbox is there before anybody hears of its address, and goes first.
        let own = sandboxes.remove(&number.to_string());
        let gone = vec![(pod(number, number)?.0, None)];
        let batch = Batch { pods: gone, sandboxes: sandboxes.clone(), ..Batch::default() };
        outcome.gone.push(engine.program(batch)?);
        sandboxes.extend(own.map(|own| (number.to_string(), own)));
        let pods = vec![pod(number, number)?];
        outcome.come.push(engine.program(Batch {
            pods,
            sandboxes: sandboxes.clone(),
            ..Batch::default()
        })?);
    }
    Ok(outcome)
}

fn namespace_of(number: u32) -> String {
    format!("team-{}", number % NAMESPACES)
}

fn named<T: DeserializeOwned>(key: String, object: Value) -> sys::Result<News<T>> {
    let read =
        from_value(object).map_err(|error| sys::Error::new("make objects", std::io::Error::other(error)));
    Ok((key, Some(Arc::new(read?))))
}

fn namespace(number: u32) -> sys::Result<News<k8s_openapi::api::core::v1::Namespace>> {
    let name = namespace_of(number);
    named(name.clone(), json!({"metadata": {"name": name, "labels": {"team": name}}}))
}

/// It lets peers of its own in from its namespace, and others from another.
fn policy(number: u32) -> sys::Result<News<k8s_openapi::api::networking::v1::NetworkPolicy>> {
    let (namespace, name) = (namespace_of(number), format!("policy-{number}"));
    let peers = json!({"matchLabels": {format!("client-of-{number}"): "yes"}});
    let other = json!({"matchLabels": {"team": namespace_of(number + 1)}});
    named(
        format!("{namespace}/{name}"),
        json!({"metadata": {"namespace": namespace, "name": name}, "spec": {
            "podSelector": {"matchLabels": {"app": app(number)}},
            "policyTypes": ["Ingress"],
            "ingress": [{
                "from": [{"podSelector": peers}, {"namespaceSelector": other, "podSelector": peers}],
                "ports": [{"port": 80}, {"port": "http"}],
            }],
        }}),
    )
}

/// Pods of the same application have numbers with the same digit before the last.
fn app(number: u32) -> String {
    format!("app-{}", number / NAMESPACES % APPS)
}

fn name_of(number: u32) -> String {
    format!("pod-{number}")
}

/// The Pod with this number, of the application of a Pod with that.
fn pod(number: u32, of: u32) -> sys::Result<News<Pod>> {
    let (namespace, name) = (namespace_of(number), name_of(number));
    named(
        format!("{namespace}/{name}"),
        json!({"metadata": {"namespace": namespace, "name": name, "uid": name, "labels":
                {"app": app(of), format!("client-of-{number}"): "yes"}},
            "spec": {"nodeName": "own", "containers": [{"ports": [{"name": "http", "containerPort": 8080}]}]},
            "status": {"podIP": ip(number)}}),
    )
}

fn ip(number: u32) -> std::net::Ipv4Addr {
    std::net::Ipv4Addr::from_bits(std::net::Ipv4Addr::new(10, 42, 0, 2).to_bits() + number)
}

fn sandbox(number: u32) -> Sandbox {
    Sandbox {
        namespace: namespace_of(number),
        name: name_of(number),
        uid: name_of(number),
        addresses: vec![ip(number).into()],
        ..Sandbox::default()
    }
}
