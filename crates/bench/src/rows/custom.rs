//! Kinds of CustomResourceDefinitions: what 500 of them cost in memory and at a start, how soon one more is served, and
//! objects of one beside ConfigMaps of the same size.
//!
//! A definition has about 30 kB, the mean of a large project's: 200 fields, each with a few words about it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use testkit::Cluster;

use crate::bench::{Bench, Series};
use crate::load::{Call, Connection, Door, Job};
use crate::rows::watchers::{self, Watched};
use crate::{objects, processes};

const KINDS: usize = 500;
const GROUPS: usize = 20;
const FIELDS_PER_GROUP: usize = 10;
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// What was made comes to rest before memory is looked at.
const SETTLE: Duration = Duration::from_secs(5);

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    bench.with_cluster(async |bench, cluster| {
        let door = Door::new(&cluster.kubeconfig()).await?;
        door.call(objects::namespace()).await?;
        let (memory, start) = (memory(cluster).await?, start(bench, cluster)?);
        let kinds = bench.extent.of(KINDS, KINDS / 10);
        let job = Arc::new(|number| Call::post(DEFINITIONS.to_owned(), definition(number)));
        door.fill(0..kinds, job).await?;
        let (memory_then, start_then) = (self::memory(cluster).await?, self::start(bench, cluster)?);
        let report = &mut bench.report;
        report.value(&format!("{kinds} definitions: PSS more"), "MiB", Some("60"), memory_then - memory);
        let more = start_then.as_secs_f64() - start.as_secs_f64();
        report.value(&format!("{kinds} definitions: `knarr up` longer"), "ms", Some("500"), more * 1e3);
        let mut took = Vec::new();
        for number in kinds..kinds + bench.extent.of(20, 5) {
            took.push(first_object(&mut door.connect().await?, number).await?);
        }
        let what = format!("POST of a definition to its first object, beside {kinds}");
        bench.report.durations(&what, Some("50"), &took);
        objects_of(bench, cluster, &door).await
    })
}

/// PSS of all processes, in MiB.
async fn memory(cluster: &Cluster) -> Result<f64> {
    tokio::time::sleep(SETTLE).await;
    Ok(processes::mebibytes(processes::pss_bytes(&cluster.processes(""))?))
}

/// The median time of `knarr up` on what is stored.
fn start(bench: &Bench, cluster: &mut Cluster) -> Result<Duration> {
    let mut took = Vec::new();
    for _ in 0..bench.extent.of(5, 1) {
        cluster.knarr(&["down"])?;
        let started = Instant::now();
        cluster.up()?;
        took.push(started.elapsed());
    }
    took.sort_unstable();
    took.get(took.len() / 2).copied().context("nothing was measured")
}

/// How long it takes until an object of a kind that does not exist yet is stored.
async fn first_object(client: &mut Connection, number: usize) -> Result<Duration> {
    let started = Instant::now();
    client.call(Call::post(DEFINITIONS.to_owned(), definition(number))).await?;
    client.call(Call::post(collection(number), object(number, 0))).await?;
    Ok(started.elapsed())
}

/// Creates, GETs and LISTs of both kinds, one after the other.
async fn objects_of(bench: &mut Bench, cluster: &Cluster, door: &Door) -> Result<()> {
    let count = bench.extent.of(5_000, 500);
    let series = [
        ("create of a ConfigMap, 1 kB", objects::create_config_maps()),
        (
            "create of a custom object, 1 kB",
            Arc::new(|number| Call::post(collection(0), object(0, number))) as Job,
        ),
        ("GET of a ConfigMap", Arc::new(move |number| Call::get(objects::config_map_path(number % count)))),
        (
            "GET of a custom object",
            Arc::new(move |number| Call::get(format!("{}/load-{}", collection(0), number % count))),
        ),
    ];
    for (what, job) in series {
        bench.series(cluster, door, 8, 0..count, &Series { what, goal: None, job }).await?;
    }
    let lists = [("ConfigMaps", objects::collection("configmaps")), ("custom objects", collection(0))];
    for (what, path) in lists {
        let mut client = door.connect().await?;
        let mut took = Vec::new();
        for _ in 0..bench.extent.of(20, 5) {
            let started = Instant::now();
            client.call(Call::get(path.clone())).await?;
            took.push(started.elapsed());
        }
        bench.report.durations(&format!("LIST of {count} {what}"), None, &took);
    }
    let custom: Job = Arc::new(|number| Call::post(collection(0), object(0, number)));
    let watched = [
        (" of ConfigMaps", objects::collection("configmaps"), objects::create_config_maps()),
        (" of custom objects", collection(0), custom),
    ];
    for (what, collection, job) in watched {
        let (watchers, events) = (bench.extent.of(500, 50), bench.extent.of(500, 100));
        let watched = Watched { what, collection, job, first: count, events, watchers };
        watchers::deliveries(bench, cluster, door, &watched).await?;
    }
    Ok(())
}

fn group(number: usize) -> String {
    format!("bench{number}.example.com")
}

/// The path of the objects of a kind in the namespace.
fn collection(number: usize) -> String {
    format!("/apis/{}/v1/namespaces/{}/loads", group(number), objects::NAMESPACE)
}

fn definition(number: usize) -> String {
    let field = |about: String| {
        json!({
            "type": "string",
            "maxLength": 2_000,
            "description": format!("{about} It is a text like many others, with a sentence or two that say what it is for."),
        })
    };
    let fields = |of: usize| {
        let named = |at: usize| (format!("field{at}"), field(format!("Field {at} of part {of}.")));
        Value::Object((0..FIELDS_PER_GROUP).map(named).collect::<Map<_, _>>())
    };
    let parts =
        (0..GROUPS).map(|of| (format!("part{of}"), json!({"type": "object", "properties": fields(of)})));
    let group = group(number);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("loads.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "loads", "singular": "load", "kind": "Load"},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": parts.collect::<Map<_, _>>()},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }}},
            }],
        },
    })
    .to_string()
}

fn object(kind: usize, number: usize) -> String {
    json!({
        "apiVersion": format!("{}/v1", group(kind)),
        "kind": "Load",
        "metadata": {"name": format!("load-{number}"), "namespace": objects::NAMESPACE},
        "spec": {"part0": {"field0": format!("{number:0>1000}")}},
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_has_about_30_kb() {
        assert!((25_000..40_000).contains(&definition(1).len()), "{}", definition(1).len());
    }
}
