//! The ServiceCIDR controller: says that a range is ready, and holds one back that is deleted while its addresses are
//! in use.
//!
//! Source: `pkg/controller/servicecidrs`, KEP-1880.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use controller::event::EventType;
use controller::metadata::{is_deleting, label, name, time, uid};
use controller::{Action, Change, Controller, Informers, Patch, Plan, Source};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use machinery::net::{Cidr, Family};
use serde_json::json;

/// Keeps a range until no address depends on it.
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
const ALLOCATOR: &str = "ipallocator.k8s.io";
/// How long every API server has to learn that a range gives out no more addresses.
const DELETION_GRACE: SignedDuration = SignedDuration::from_secs(10);
const READY: &str = "Kubernetes Service CIDR is ready";
const IN_USE: &str =
    "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";

/// The controller's row. Keys are ServiceCIDRs.
pub const CONTROLLER: Controller = Controller {
    name: "service-cidr-controller",
    queue: "ipaddresses",
    sources: |_| vec![Source::of::<ServiceCIDR>(of_range), Source::of::<IPAddress>(of_address)],
    reconcile: |informers, key, now| {
        let ranges = informers.informer::<ServiceCIDR>();
        let Some(range) = ranges.get(key) else { return Plan::nothing() };
        let addresses =
            if is_deleting(&range.metadata) { informers.informer::<IPAddress>().list() } else { Vec::new() };
        plan(&Snapshot { range, all: ranges.list(), addresses }, now)
    },
};

/// The input of a decision about one range.
pub struct Snapshot {
    /// The range.
    pub range: Arc<ServiceCIDR>,
    /// All ranges.
    pub all: Vec<Arc<ServiceCIDR>>,
    /// All addresses; only looked at when the range is deleted.
    pub addresses: Vec<Arc<IPAddress>>,
}

fn networks(range: &ServiceCIDR) -> impl Iterator<Item = Cidr> {
    let texts = range.spec.iter().flat_map(|spec| spec.cidrs.iter().flatten());
    texts.filter_map(|text| text.parse().ok())
}

fn overlap(a: &ServiceCIDR, b: &ServiceCIDR) -> bool {
    networks(a).any(|a| networks(b).any(|b| a.overlaps(b)))
}

/// Whether an address is of the range.
pub(crate) fn contains(range: &ServiceCIDR, address: IpAddr) -> bool {
    networks(range).any(|network| network.contains(address))
}

/// Whether the range has addresses of a family.
pub(crate) fn has_family(range: &ServiceCIDR, family: Family) -> bool {
    networks(range).any(|network| network.family() == family)
}

/// A range that comes or goes matters to those that overlap it.
fn of_range(change: &Change<ServiceCIDR>, informers: &Informers) -> Vec<String> {
    let Some(range) = change.new.as_ref().or(change.old.as_ref()) else { return Vec::new() };
    let all = informers.informer::<ServiceCIDR>().list();
    let others =
        all.iter().filter(|other| overlap(other, range)).map(|other| name(&other.metadata).to_owned());
    let mut keys: Vec<String> = others.filter(|key| **key != *change.key).collect();
    keys.push(change.key.to_string());
    keys
}

/// An address matters to the ranges that are being deleted and have it.
fn of_address(change: &Change<IPAddress>, informers: &Informers) -> Vec<String> {
    if change.old.is_some() == change.new.is_some() {
        return Vec::new();
    }
    let Ok(address) = change.key.parse::<IpAddr>() else { return Vec::new() };
    let ranges = informers.informer::<ServiceCIDR>().list();
    let deleted = ranges.iter().filter(|range| is_deleting(&range.metadata) && contains(range, address));
    deleted.map(|range| name(&range.metadata).to_owned()).collect()
}

/// Decides what has to be done about the range.
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let range = &*snapshot.range;
    let meta = &range.metadata;
    let holds = meta.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER);
    let Some(deleted) = &meta.deletion_timestamp else {
        if !holds {
            let patch = json!({"metadata": {"uid": uid(meta), "finalizers": [FINALIZER]}});
            plan.push(Action::patch::<ServiceCIDR>("", name(meta), Patch::Strategic(patch)));
        }
        set_ready(range, "True", "", READY, now, &mut plan);
        plan.on_failure = vec![Action::event(
            range,
            EventType::Warning,
            "KubernetesServiceCIDRError",
            "The ServiceCIDR Status can not be set to Ready=True",
        )];
        return plan;
    };
    if !holds {
        return plan;
    }
    if is_needed(snapshot) {
        set_ready(range, "False", "Terminating", IN_USE, now, &mut plan);
        return plan;
    }
    match Duration::try_from((deleted.0 + DELETION_GRACE).duration_since(now)) {
        Ok(wait) if !wait.is_zero() => plan.requeue(wait),
        _ => {
            let patch = json!({"metadata": {
                "uid": uid(meta),
                "$deleteFromPrimitiveList/finalizers": [FINALIZER],
            }});
            plan.push(Action::patch::<ServiceCIDR>("", name(meta), Patch::Strategic(patch)));
        }
    }
    plan
}

/// Whether an address would be in no range any more without this one.
fn is_needed(snapshot: &Snapshot) -> bool {
    let this = &snapshot.range.metadata;
    let others = || snapshot.all.iter().filter(|other| other.metadata.name != this.name);
    let has_parent = |network: Cidr| others().any(|other| networks(other).any(|one| one.covers(network)));
    if networks(&snapshot.range).all(has_parent) {
        return false;
    }
    snapshot.addresses.iter().any(|address| {
        let is_managed = label(&address.metadata, MANAGED_BY) == Some(ALLOCATOR);
        let Ok(ip) = name(&address.metadata).parse::<IpAddr>() else { return false };
        is_managed && contains(&snapshot.range, ip) && !others().any(|other| contains(other, ip))
    })
}

fn set_ready(
    range: &ServiceCIDR,
    status: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
    plan: &mut Plan,
) {
    let conditions = range.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
    // The first range is said to be ready by the API server, in other words.
    if ready.is_some_and(|ready| ready.status == status && ready.reason == reason) {
        return;
    }
    let condition = json!({
        "type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": time(now),
    });
    let patch = json!({"status": {"conditions": [condition]}});
    plan.push(Action::patch_status::<ServiceCIDR>("", name(&range.metadata), Patch::Strategic(patch)));
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::fixture::{list, noon, parse, render};

    const ADDRESSES: &str = "[{metadata: {name: 10.1.0.7, labels: {ipaddress.kubernetes.io/managed-by: ipallocator.k8s.io}}}, \
                              {metadata: {name: 10.1.0.8}}]";

    fn check(range: &str, others: &str, addresses: &str, expect: &Expect) {
        let range: Arc<ServiceCIDR> = Arc::new(parse(range));
        let mut all = list::<ServiceCIDR>(others);
        all.push(Arc::clone(&range));
        let snapshot = Snapshot { range, all, addresses: list(addresses) };
        expect.assert_eq(&render(&plan(&snapshot, noon())));
    }

    #[test]
    fn a_new_range_is_held_and_ready() {
        check(
            "{metadata: {name: more, uid: u}, spec: {cidrs: [10.1.0.0/24]}}",
            "[]",
            "[]",
            &expect![[r#"
                step
                  patch servicecidrs more {"metadata":{"finalizers":["networking.k8s.io/service-cidr-finalizer"],"uid":"u"}}
                step
                  patch servicecidrs/status more {"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"Kubernetes Service CIDR is ready","reason":"","status":"True","type":"Ready"}]}}
            "#]],
        );
        check(
            "{metadata: {name: more, finalizers: [networking.k8s.io/service-cidr-finalizer]}, spec: {cidrs: [10.1.0.0/24]}, \
             status: {conditions: [{type: Ready, status: 'True', reason: '', message: m, lastTransitionTime: '2026-01-01T00:00:00Z'}]}}",
            "[]",
            "[]",
            &expect![[""]],
        );
    }

    fn deleted(seconds_ago: &str) -> String {
        format!(
            "{{metadata: {{name: more, uid: u, deletionTimestamp: '2026-01-01T11:59:{seconds_ago}Z', \
             finalizers: [networking.k8s.io/service-cidr-finalizer]}}, spec: {{cidrs: [10.1.0.0/24]}}}}"
        )
    }

    #[test]
    fn a_range_stays_while_an_address_of_services_depends_on_it() {
        check(
            &deleted("00"),
            "[{metadata: {name: kubernetes}, spec: {cidrs: [10.43.0.0/16]}}]",
            ADDRESSES,
            &expect![[r#"
                step
                  patch servicecidrs/status more {"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR","reason":"Terminating","status":"False","type":"Ready"}]}}
            "#]],
        );
    }

    #[test]
    fn a_range_goes_when_another_has_its_addresses_or_nobody_uses_them() {
        let gone = expect![[r#"
            step
              patch servicecidrs more {"metadata":{"$deleteFromPrimitiveList/finalizers":["networking.k8s.io/service-cidr-finalizer"],"uid":"u"}}
        "#]];
        check(&deleted("00"), "[{metadata: {name: large}, spec: {cidrs: [10.1.0.0/16]}}]", ADDRESSES, &gone);
        check(&deleted("00"), "[]", "[]", &gone);
        check(
            &deleted("58"),
            "[]",
            "[]",
            &expect![[r#"
            again after 8s
        "#]],
        );
    }
}
