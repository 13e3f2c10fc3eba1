//! The cases of upstream's `allocator_testing.go` and `tracker_test.go` that are about taints.

use k8s_openapi::api::core::v1::Node;

use super::allocate::{Refused, allocate};
use super::*;
use crate::transform::parse;

const NONE: &str = "cannot allocate all claims";
const SOFT: &str = "{key: k, value: v, effect: NoSchedule}";
const HARD: &str = "{key: k, value: w, effect: NoExecute}";
const TOLERATES_SOFT: &str = "{operator: Exists, key: k, effect: NoSchedule}";
const TOLERATES_HARD: &str = "{operator: Equal, key: k, value: w, effect: NoExecute}";

fn changed<K>(key: &str, old: Option<K>, new: Option<K>) -> Change<K> {
    Change { key: key.into(), old: old.map(Arc::new), new: new.map(Arc::new), revision: 1 }
}

/// A slice of devices with these taints.
fn slice(name: &str, driver: &str, pool: &str, devices: &[(&str, &str)]) -> ResourceSlice {
    let of = |(name, taints): &(&str, &str)| format!("{{name: {name}, taints: [{taints}]}}");
    let devices = devices.iter().map(of).collect::<Vec<_>>().join(", ");
    parse(&format!(
        "{{metadata: {{name: {name}}}, spec: {{driver: {driver}, nodeName: one, pool: {{name: {pool}, generation: 1, \
         resourceSliceCount: 1}}, devices: [{devices}]}}}}"
    ))
}

fn world(taints: Taints, slices: Vec<ResourceSlice>) -> Devices {
    let mut devices = Devices { taints, ..Devices::default() };
    for (name, driver) in [("a", "driver-a"), ("b", "driver-b")] {
        let class = format!(
            "{{metadata: {{name: {name}}}, spec: {{selectors: [{{cel: {{expression: \"device.driver == '{driver}'\"}}}}]}}}}"
        );
        devices.classes_changed(vec![changed(name, None, Some(parse(&class)))]);
    }
    let named = slices.into_iter().map(|slice| {
        let name = slice.metadata.name.clone().unwrap_or_default();
        changed(&name, None, Some(slice))
    });
    devices.slices_changed(named.collect());
    devices
}

fn heeded() -> Taints {
    Taints::Heeded(BTreeMap::new())
}

/// `request=device`, and how many tolerations the allocation has.
fn given(devices: &Devices, taken: &[&str], request: &str) -> String {
    let claim: ResourceClaim = parse(&format!(
        "{{metadata: {{name: c, namespace: d}}, spec: {{devices: {{requests: [{{name: r, {request}}}]}}}}}}"
    ));
    let taken = taken.iter().map(|device| DeviceId {
        driver: "driver-a".into(),
        pool: "p".into(),
        device: (*device).into(),
    });
    let node: Node = parse("{metadata: {name: one}}");
    match allocate(devices, &taken.collect(), &[Arc::new(claim)], &node) {
        Err(Refused::Here(why)) => why,
        Err(Refused::Everywhere(error)) => error.to_string(),
        Ok(allocations) => {
            let of_claim = allocations.into_iter().filter_map(|allocation| allocation.devices?.results);
            let shown = of_claim.flatten().map(|one| {
                let tolerations = one.tolerations.map_or(0, |all| all.len());
                format!("{}={} +{tolerations}", one.request, one.device)
            });
            shown.collect::<Vec<_>>().join(" ")
        }
    }
}

fn exactly(more: &str, tolerations: &str) -> String {
    format!("exactly: {{deviceClassName: a, {more} tolerations: [{tolerations}]}}")
}

#[test]
fn a_device_goes_to_who_tolerates_its_taints() {
    let both = format!("{SOFT}, {HARD}");
    let all = format!("{TOLERATES_SOFT}, {TOLERATES_HARD}");
    let sub = |name: &str, class: &str, tolerations: &str| {
        format!("{{name: {name}, deviceClassName: {class}, tolerations: [{tolerations}]}}")
    };
    let either = |one: String, other: String| format!("firstAvailable: [{one}, {other}]");
    let (two, one_soft) = ([("d1", SOFT), ("d2", HARD)], [("d1", SOFT)]);
    let (any, every) = (exactly("", ""), exactly("allocationMode: All,", ""));
    let admin = exactly("adminAccess: true,", "");
    let list = either(sub("s0", "b", ""), sub("s1", "a", ""));
    for (case, devices, taken, request, expect, ignored) in [
        ("tainted-two-devices", &two[..], &[][..], &any, NONE, "r=d1 +0"),
        ("tainted-one-device-two-taints", &[("d1", &both)], &[], &any, NONE, "r=d1 +0"),
        ("tainted-two-devices-tolerated", &two, &[], &exactly("", TOLERATES_HARD), "r=d2 +1", "r=d1 +0"),
        (
            "tainted-two-devices-prioritized-list-tolerated",
            &two,
            &[],
            &either(sub("s0", "a", ""), sub("s1", "a", TOLERATES_HARD)),
            "r/s1=d2 +1",
            "r/s0=d1 +0",
        ),
        ("tainted-no-effect", &[("d1", "{key: k, value: v, effect: None}")], &[], &any, "r=d1 +0", "r=d1 +0"),
        (
            "an effect that nobody knows",
            &[("d1", "{key: k, effect: Other}")],
            &[],
            &any,
            "r=d1 +0",
            "r=d1 +0",
        ),
        (
            "tainted-one-device-two-taints-both-tolerated",
            &[("d1", &both)],
            &[],
            &exactly("", &all),
            "r=d1 +2",
            "r=d1 +0",
        ),
        ("one of two tolerated", &[("d1", &both)], &[], &exactly("", TOLERATES_HARD), NONE, "r=d1 +0"),
        ("tainted-prioritized-list", &one_soft, &[], &list, NONE, "r/s1=d1 +0"),
        ("tainted-admin-access", &one_soft, &["d1", "d2"], &admin, NONE, "r=d1 +0"),
        ("tainted-all-devices-single", &one_soft, &[], &every, NONE, "r=d1 +0"),
        ("one of all is tainted", &[("d1", ""), ("d2", SOFT)], &[], &every, NONE, "r=d1 +0 r=d2 +0"),
    ] {
        let slices = || vec![slice("s", "driver-a", "p", devices)];
        assert_eq!(given(&world(heeded(), slices()), taken, request), expect, "{case}");
        assert_eq!(given(&world(Taints::Ignored, slices()), taken, request), ignored, "{case}, ignored");
    }
}

/// A rule of this name, with a selector.
fn rule(selector: &str, taint: &str) -> DeviceTaintRule {
    parse(&format!("{{metadata: {{name: rule}}, spec: {{deviceSelector: {selector}, taint: {taint}}}}}"))
}

#[test]
fn rules_taint_the_devices_that_they_select() {
    let slices = || {
        vec![
            slice("s1", "driver-a", "p", &[("d1", "")]),
            slice("s2", "driver-a", "q", &[("d1", ""), ("d2", "")]),
        ]
    };
    for (case, selector, taint, tolerations, expect) in [
        ("add-slices-no-patches", "null", SOFT, "", "r=d1 +0 r=d1 +0 r=d2 +0"),
        ("patch-all-slices", "{}", SOFT, "", NONE),
        ("add-taint-for-driver", "{driver: driver-a}", HARD, "", NONE),
        ("another driver", "{driver: driver-b}", HARD, "", "r=d1 +0 r=d1 +0 r=d2 +0"),
        ("add-taint-for-pool", "{pool: p}", SOFT, "", NONE),
        ("add-taint-for-device", "{device: d2}", SOFT, "", NONE),
        (
            "filter-all-criteria",
            "{driver: driver-a, pool: p, device: d2}",
            SOFT,
            "",
            "r=d1 +0 r=d1 +0 r=d2 +0",
        ),
        ("tolerated", "{}", HARD, TOLERATES_HARD, "r=d1 +1 r=d1 +1 r=d2 +1"),
        ("without effect", "{}", "{key: k, effect: None}", "", "r=d1 +0 r=d1 +0 r=d2 +0"),
    ] {
        let mut devices = world(heeded(), slices());
        devices.rules_changed(&[changed("rule", None, Some(rule(selector, taint)))]);
        assert_eq!(given(&devices, &[], &exactly("count: 3,", tolerations)), expect, "{case}");
    }
    let mut devices = world(heeded(), vec![slice("s", "driver-a", "p", &[("d1", HARD)])]);
    devices.rules_changed(&[changed("rule", None, Some(rule("{}", SOFT)))]);
    assert_eq!(given(&devices, &[], &exactly("", TOLERATES_HARD)), NONE, "merge-taints");
    devices.rules_changed(&[changed("rule", Some(rule("{}", SOFT)), None)]);
    assert_eq!(given(&devices, &[], &exactly("", TOLERATES_HARD)), "r=d1 +1", "the rule is gone");
}

#[test]
fn a_change_of_a_rule_is_one_of_a_slice_whose_devices_it_taints() {
    let slices =
        || vec![slice("s1", "driver-a", "p", &[("d1", "")]), slice("s2", "driver-a", "q", &[("d2", "")])];
    let with_status = |mut rule: DeviceTaintRule| {
        rule.status = Some(parse("{conditions: []}"));
        rule
    };
    let (of_p, of_q) = (rule("{pool: p}", SOFT), rule("{pool: q}", SOFT));
    for (case, old, new, expect) in [
        ("comes", None, Some(of_q.clone()), Some("s2")),
        ("goes", Some(of_q.clone()), None, Some("s2")),
        ("moves", Some(of_q.clone()), Some(of_p.clone()), Some("s1")),
        ("tells of itself", Some(of_q.clone()), Some(with_status(of_q)), None),
        ("is about nothing", None, Some(rule("{pool: r}", SOFT)), None),
        ("selects nothing", None, Some(rule("null", SOFT)), None),
    ] {
        let mut devices = world(heeded(), slices());
        let found = devices.rules_changed(&[changed("rule", old, new)]);
        let name = found.as_ref().and_then(|slice| slice.metadata.name.as_deref());
        assert_eq!(name, expect, "{case}");
    }
}
