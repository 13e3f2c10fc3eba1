//! The metrics of the controllers, in upstream's names: gauges of what there is, and counters of what was done.
//!
//! Rows here need nothing of the controllers; what only a controller itself knows, it counts itself. Source: the packages
//! `metrics` below `pkg/controller` of v1.35, `k8s.io/endpointslice/metrics`.

use std::collections::BTreeMap;
use std::time::Duration;

use controller::Informers;
use controller::counter::{Buckets, CounterRow, Increment, Labels, SecondsRow};
use controller::informer::GaugeRow;
use controller::metadata::{annotation, label, name, namespace};
use controller::request::{ApiRequest, Verb};
use controller::request_metrics::RequestMetric;
use controller::volume::claim_class;
use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::resource::v1::ResourceClaim;

use crate::node_lifecycle::zones::zone_of;

/// The gauges of a controller, of objects that it follows.
pub fn gauges(controller: &str) -> &'static [GaugeRow] {
    let rows = GAUGES.iter().find(|(name, _)| *name == controller);
    rows.map_or(&[], |(_, rows)| rows)
}

const GAUGES: &[(&str, &[GaugeRow])] = &[
    (
        "horizontal-pod-autoscaler-controller",
        &[
            GaugeRow {
                name: "horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers",
                help: "Current number of controlled HPA objects",
                values: |informers| of_all(informers.informer::<HorizontalPodAutoscaler>().list().len()),
            },
            GaugeRow {
                name: "horizontal_pod_autoscaler_controller_desired_replicas",
                help: "Current desired replica count for HPA objects",
                values: desired_replicas,
            },
        ],
    ),
    (
        "endpointslice-controller",
        &[
            GaugeRow {
                name: "endpoint_slice_controller_num_endpoint_slices",
                help: "Number of EndpointSlices",
                values: |informers| of_all(slices(informers, SLICES).count()),
            },
            GaugeRow {
                name: "endpoint_slice_controller_endpoints_desired",
                help: "Number of endpoints desired",
                values: |informers| of_all(slices(informers, SLICES).sum()),
            },
        ],
    ),
    (
        "endpointslice-mirroring-controller",
        &[GaugeRow {
            name: "endpoint_slice_mirroring_controller_num_endpoint_slices",
            help: "Number of EndpointSlices",
            values: |informers| of_all(slices(informers, MIRRORED).count()),
        }],
    ),
    (
        "node-lifecycle-controller",
        &[
            GaugeRow {
                name: "node_collector_zone_size",
                help: "Gauge measuring number of registered Nodes per zones.",
                values: |informers| of_zones(informers, |zone| zone.all as f64),
            },
            GaugeRow {
                name: "node_collector_unhealthy_nodes_in_zone",
                help: "Gauge measuring number of not Ready Nodes per zones.",
                values: |informers| of_zones(informers, |zone| (zone.all - zone.ready) as f64),
            },
            GaugeRow {
                name: "node_collector_zone_health",
                help: "Gauge measuring percentage of healthy nodes per zone.",
                values: |informers| of_zones(informers, |zone| 100.0 * zone.ready as f64 / zone.all as f64),
            },
        ],
    ),
    (
        "persistentvolume-binder-controller",
        &[
            GaugeRow {
                name: "pv_collector_bound_pv_count",
                help: "Gauge measuring number of persistent volume currently bound",
                values: |informers| volumes(informers, true),
            },
            GaugeRow {
                name: "pv_collector_unbound_pv_count",
                help: "Gauge measuring number of persistent volume currently unbound",
                values: |informers| volumes(informers, false),
            },
            GaugeRow {
                name: "pv_collector_bound_pvc_count",
                help: "Gauge measuring number of persistent volume claim currently bound",
                values: |informers| claims(informers, true),
            },
            GaugeRow {
                name: "pv_collector_unbound_pvc_count",
                help: "Gauge measuring number of persistent volume claim currently unbound",
                values: |informers| claims(informers, false),
            },
        ],
    ),
    (
        "resource-claim-controller",
        &[GaugeRow {
            name: "resourceclaim_controller_resource_claims",
            help: "Number of ResourceClaims, categorized by allocation status, admin access, and source.",
            values: resource_claims,
        }],
    ),
    (
        "selinux-warning-controller",
        &[GaugeRow {
            name: "selinux_warning_controller_selinux_volume_conflict",
            help: "Conflict between two Pods using the same volume",
            values: crate::volume::selinux_warning::conflicts,
        }],
    ),
];

const SLICES: &str = "endpointslice-controller.k8s.io";
const MIRRORED: &str = "endpointslicemirroring-controller.k8s.io";

fn of_all(number: usize) -> Vec<(Labels, f64)> {
    vec![(Vec::new(), number as f64)]
}

/// How many there are under each set of labels.
fn counted(all: impl Iterator<Item = Labels>) -> Vec<(Labels, f64)> {
    let mut counts: BTreeMap<Labels, f64> = BTreeMap::new();
    all.for_each(|labels| *counts.entry(labels).or_default() += 1.0);
    counts.into_iter().collect()
}

fn desired_replicas(informers: &Informers) -> Vec<(Labels, f64)> {
    let all = informers.informer::<HorizontalPodAutoscaler>().list();
    let of_one = |one: &HorizontalPodAutoscaler| {
        let labels = vec![
            ("namespace", namespace(&one.metadata).to_owned()),
            ("hpa_name", name(&one.metadata).to_owned()),
        ];
        Some((labels, f64::from(one.status.as_ref()?.desired_replicas)))
    };
    all.iter().filter_map(|one| of_one(one)).collect()
}

/// How many endpoints each slice has that `manager` keeps.
fn slices(informers: &Informers, manager: &'static str) -> impl Iterator<Item = usize> {
    let all = informers.informer::<EndpointSlice>().list().into_iter();
    let own = all
        .filter(move |one| label(&one.metadata, "endpointslice.kubernetes.io/managed-by") == Some(manager));
    own.map(|slice| slice.endpoints.len())
}

#[derive(Default)]
struct Zone {
    all: usize,
    ready: usize,
}

fn of_zones(informers: &Informers, value: fn(&Zone) -> f64) -> Vec<(Labels, f64)> {
    let mut zones: BTreeMap<String, Zone> = BTreeMap::new();
    for node in informers.informer::<Node>().list() {
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let is_ready = conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True");
        let zone = zones.entry(zone_key(&node)).or_default();
        zone.all += 1;
        zone.ready += usize::from(is_ready);
    }
    zones.into_iter().map(|(key, zone)| (vec![("zone", key)], value(&zone))).collect()
}

/// Empty for a Node of no zone. Source: `k8s.io/component-helpers/node/topology`, `GetZoneKey`.
fn zone_key(node: &Node) -> String {
    match zone_of(node) {
        ("", "") => String::new(),
        (region, zone) => format!("{region}:\0:{zone}"),
    }
}

fn volumes(informers: &Informers, is_bound: bool) -> Vec<(Labels, f64)> {
    let all = informers.informer::<PersistentVolume>().list();
    let phase = |one: &PersistentVolume| one.status.as_ref().and_then(|status| status.phase.clone());
    let asked = all.iter().filter(|one| (phase(one).as_deref() == Some("Bound")) == is_bound);
    let class = |one: &PersistentVolume| one.spec.as_ref().and_then(|spec| spec.storage_class_name.clone());
    counted(asked.map(|one| vec![("storage_class", class(one).unwrap_or_default())]))
}

fn claims(informers: &Informers, is_bound: bool) -> Vec<(Labels, f64)> {
    let all = informers.informer::<PersistentVolumeClaim>().list();
    let phase = |one: &PersistentVolumeClaim| one.status.as_ref().and_then(|status| status.phase.clone());
    let asked = all.iter().filter(|one| (phase(one).as_deref() == Some("Bound")) == is_bound);
    counted(asked.map(|one| {
        let attributes = one.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.clone());
        vec![
            ("namespace", namespace(&one.metadata).to_owned()),
            ("storage_class", claim_class(one).unwrap_or_default().to_owned()),
            ("volume_attributes_class", attributes.unwrap_or_default()),
        ]
    }))
}

fn resource_claims(informers: &Informers) -> Vec<(Labels, f64)> {
    let all = informers.informer::<ResourceClaim>().list();
    counted(all.iter().map(|one| {
        let is_allocated = one.status.as_ref().is_some_and(|status| status.allocation.is_some());
        let source = match annotation(&one.metadata, "resource.kubernetes.io/pod-claim-name") {
            Some(_) => "resource_claim_template",
            None => "",
        };
        vec![
            ("allocated", is_allocated.to_string()),
            (
                "admin_access",
                is_admins(&serde_json::json!(one.spec.devices.as_ref().map(|all| &all.requests))).to_string(),
            ),
            ("source", source.to_owned()),
        ]
    }))
}

/// Whether any request asks for an administrator's access.
fn is_admins(requests: &serde_json::Value) -> bool {
    let asks = |request: &serde_json::Value| request.pointer("/exactly/adminAccess") == Some(&true.into());
    requests.as_array().into_iter().flatten().any(asks)
}

/// A request of a controller that is counted.
struct Counted {
    controller: &'static str,
    plural: &'static str,
    verbs: &'static [Verb],
    when: When,
    counter: CounterRow,
    labels: fn(&ApiRequest, bool) -> Labels,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Asked,
    Done,
    Refused,
}

/// The metrics of a request of `controller` that has been done or refused.
pub fn request_metrics(
    controller: &'static str,
    request: &ApiRequest,
    is_done: bool,
    now: Timestamp,
) -> Vec<RequestMetric> {
    let counts = |row: &&Counted| {
        row.controller == controller
            && row.plural == request.resource.plural
            && request.subresource.is_empty()
            && row.verbs.contains(&request.verb)
            && (row.when == When::Asked || is_done == (row.when == When::Done))
    };
    let count = |row: &'static Counted| {
        RequestMetric::Count(Increment {
            counter: &row.counter,
            labels: (row.labels)(request, is_done),
            by: 1,
        })
    };
    COUNTED.iter().filter(counts).map(count).chain(skew(controller, request, is_done, now)).collect()
}

/// Source: `pkg/controller/cronjob/metrics`.
static SKEW: SecondsRow = SecondsRow {
    name: "cronjob_controller_job_creation_skew_duration_seconds",
    help: "Time between when a cronjob is scheduled to be run, and when the corresponding job is created",
    buckets: Buckets::Exponential(1.0, 2.0, 10),
};

/// How late a Job of a CronJob is.
fn skew(controller: &str, request: &ApiRequest, is_done: bool, now: Timestamp) -> Option<RequestMetric> {
    let is_job = controller == "cronjob-controller" && request.verb == Verb::Create && is_done;
    let annotations = request.body.pointer("/metadata/annotations").filter(|_| is_job)?;
    let at: Timestamp = annotations.get(crate::cron_job::SCHEDULED)?.as_str()?.parse().ok()?;
    Some(RequestMetric::Seconds(&SKEW, Duration::try_from(now.duration_since(at)).unwrap_or_default()))
}

static COUNTED: &[Counted] = &[
    Counted {
        controller: "endpointslice-controller",
        plural: "endpointslices",
        verbs: &[Verb::Create, Verb::Update, Verb::Delete],
        when: When::Done,
        counter: CounterRow {
            name: "endpoint_slice_controller_changes",
            help: "Number of EndpointSlice changes",
        },
        labels: operation,
    },
    Counted {
        controller: "endpointslice-mirroring-controller",
        plural: "endpointslices",
        verbs: &[Verb::Create, Verb::Update, Verb::Delete],
        when: When::Done,
        counter: CounterRow {
            name: "endpoint_slice_mirroring_controller_changes",
            help: "Number of EndpointSlice changes",
        },
        labels: operation,
    },
    Counted {
        controller: "taint-eviction-controller",
        plural: "pods",
        verbs: &[Verb::Delete],
        when: When::Done,
        counter: CounterRow {
            name: "taint_eviction_controller_pod_deletions",
            help: "Total number of Pods deleted by TaintEvictionController since its start.",
        },
        labels: |_, _| Vec::new(),
    },
    Counted {
        controller: "device-taint-eviction-controller",
        plural: "pods",
        verbs: &[Verb::Delete],
        when: When::Done,
        counter: CounterRow {
            name: "device_taint_eviction_controller_pod_deletions",
            help: "Total number of Pods deleted by DeviceTaintEvictionController since its start.",
        },
        labels: |_, _| Vec::new(),
    },
    Counted {
        controller: "ephemeral-volume-controller",
        plural: "persistentvolumeclaims",
        verbs: &[Verb::Create],
        when: When::Asked,
        counter: CounterRow {
            name: "ephemeral_volume_controller_create",
            help: "Number of PersistentVolumeClaim creation requests",
        },
        labels: |_, _| Vec::new(),
    },
    Counted {
        controller: "ephemeral-volume-controller",
        plural: "persistentvolumeclaims",
        verbs: &[Verb::Create],
        when: When::Refused,
        counter: CounterRow {
            name: "ephemeral_volume_controller_create_failures",
            help: "Number of PersistentVolumeClaim creation request failures",
        },
        labels: |_, _| Vec::new(),
    },
    Counted {
        controller: "resource-claim-controller",
        plural: "resourceclaims",
        verbs: &[Verb::Create],
        when: When::Asked,
        counter: CounterRow {
            name: "resourceclaim_controller_creates",
            help: "Number of ResourceClaims creation requests, categorized by creation status and admin access",
        },
        labels: |request, is_done| {
            let is_admins = request.body.pointer("/spec/devices/requests").is_some_and(is_admins);
            let status = if is_done { "success" } else { "failure" };
            vec![("status", status.to_owned()), ("admin_access", is_admins.to_string())]
        },
    },
];

fn operation(request: &ApiRequest, _: bool) -> Labels {
    let operation = match request.verb {
        Verb::Create => "create",
        Verb::Delete => "delete",
        _ => "update",
    };
    vec![("operation", operation.to_owned())]
}

#[cfg(test)]
mod tests {
    use controller::pod::Pod;
    use controller::{Action, Propagation};
    use k8s_openapi::api::batch::v1::Job;
    use serde_json::json;

    use super::*;
    use crate::fixture::{noon, parse};

    fn check(controller: &'static str, action: Action, is_done: bool, expect: &str) {
        let Action::Request(request) = action else { panic!("no request") };
        let told = request_metrics(controller, &request, is_done, noon());
        let told: Vec<String> = told
            .iter()
            .map(|noted| match noted {
                RequestMetric::Count(one) => format!("{} {:?}", one.counter.name, one.labels),
                RequestMetric::Seconds(row, took) => format!("{} {took:?}", row.name),
            })
            .collect();
        assert_eq!(told.join("; "), expect);
    }

    #[test]
    fn what_was_done_is_counted_as_upstream_does() {
        let slice = Action::update(&parse::<EndpointSlice>(
            "{metadata: {name: a}, addressType: IPv4, endpoints: []}",
        ));
        let changes = r#"endpoint_slice_controller_changes [("operation", "update")]"#;
        check("endpointslice-controller", slice.clone(), true, changes);
        check("endpointslice-controller", slice.clone(), false, "");
        check("job-controller", slice, true, "");
        let gone = Action::delete::<Pod>("d", "a", None, Propagation::Background, None);
        let deletions = "device_taint_eviction_controller_pod_deletions []";
        check("device-taint-eviction-controller", gone.clone(), true, deletions);
        check("device-taint-eviction-controller", gone, false, "");
        let claim = parse::<PersistentVolumeClaim>("{metadata: {name: a}}");
        let (asked, failed) =
            ("ephemeral_volume_controller_create []", "ephemeral_volume_controller_create_failures []");
        check("ephemeral-volume-controller", Action::create(&claim), true, asked);
        check("ephemeral-volume-controller", Action::create(&claim), false, &format!("{asked}; {failed}"));
        let job = parse::<Job>(
            "{metadata: {name: a, annotations: {batch.kubernetes.io/cronjob-scheduled-timestamp: '2026-01-01T13:59:57+02:00'}}}",
        );
        let late = "cronjob_controller_job_creation_skew_duration_seconds 3s";
        check("cronjob-controller", Action::create(&job), true, late);
        check("cronjob-controller", Action::create(&job), false, "");
        check("job-controller", Action::create(&job), true, "");
        let gone = Action::delete::<Pod>("ns", "a", None, Propagation::Background, None);
        check("taint-eviction-controller", gone, true, "taint_eviction_controller_pod_deletions []");
        let claim = parse::<ResourceClaim>(
            "{metadata: {name: a}, spec: {devices: {requests: [{name: r, exactly: {deviceClassName: c, adminAccess: true}}]}}}",
        );
        let created = r#"resourceclaim_controller_creates [("status", "failure"), ("admin_access", "true")]"#;
        check("resource-claim-controller", Action::create(&claim), false, created);
    }

    #[test]
    fn zones_are_named_as_upstream_names_them() {
        for (labels, expect) in [
            ("{}", ""),
            ("{topology.kubernetes.io/zone: a}", ":\0:a"),
            ("{topology.kubernetes.io/zone: a, topology.kubernetes.io/region: r}", "r:\0:a"),
        ] {
            let node: Node = parse(&format!("{{metadata: {{name: one, labels: {labels}}}}}"));
            assert_eq!(zone_key(&node), expect);
        }
        assert!(!is_admins(&json!([{"name": "a", "exactly": {"adminAccess": false}}])));
    }

    #[test]
    fn rows_are_of_controllers_that_there_are() {
        let has = |name: &str| crate::every().any(|row| row.name == name);
        assert!(GAUGES.iter().all(|(controller, _)| has(controller)));
        assert!(COUNTED.iter().all(|row| has(row.controller)));
    }
}
