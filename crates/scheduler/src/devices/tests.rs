//! Who gets which devices, as tables: slices, classes and claims in, allocations out.

use expect_test::{Expect, expect};
use k8s_openapi::api::core::v1::Node;

use super::allocate::{Refused, allocate};
use super::*;
use crate::transform::parse;

fn added<K>(key: &str, object: K) -> Change<K> {
    Change { key: key.into(), old: None, new: Some(Arc::new(object)), revision: 1 }
}

/// A slice of `node` with these devices; more fields of its pool may stand in `pool`.
fn slice(name: &str, node: &str, pool: &str, devices: &str) -> String {
    format!(
        "{{metadata: {{name: {name}}}, spec: {{driver: gpu.example.com, nodeName: {node}, \
         pool: {{name: {node}, {pool}}}, devices: [{devices}]}}}}"
    )
}

const WHOLE: &str = "generation: 1, resourceSliceCount: 1";
const CLASS: &str = "{metadata: {name: gpu}, spec: {selectors: [{cel: {expression: \"device.driver == 'gpu.example.com'\"}}], \
    config: [{opaque: {driver: gpu.example.com, parameters: {mode: fast}}}]}}";

fn world(slices: &[String]) -> Devices {
    let mut devices = Devices::default();
    devices.classes_changed(vec![added("gpu", parse(CLASS))]);
    let slices = slices.iter().enumerate().map(|(index, text)| added(&index.to_string(), parse(text)));
    devices.slices_changed(slices.collect());
    devices
}

/// A claim of these `devices`.
fn claim(name: &str, devices: &str) -> Arc<ResourceClaim> {
    Arc::new(parse(&format!(
        "{{metadata: {{name: {name}, namespace: d, uid: {name}}}, spec: {{devices: {{{devices}}}}}}}"
    )))
}

fn shown(answer: &Result<Vec<AllocationResult>, Refused>) -> String {
    match answer {
        Err(Refused::Here(why)) => why.clone(),
        Err(Refused::Everywhere(error)) => format!("error: {error}"),
        Ok(allocations) => {
            let one = |allocation: &AllocationResult| {
                let results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
                results.map(|r| format!("{}={}", r.request, r.device)).collect::<Vec<_>>().join(" ")
            };
            allocations.iter().map(one).collect::<Vec<_>>().join("; ")
        }
    }
}

/// `claims` on Node `one`, whose labels are `zone: a`.
fn check(slices: &[String], taken: &[&str], claims: &[&str], expect: Expect) {
    let devices = world(slices);
    let taken = taken.iter().map(|name| DeviceId {
        driver: "gpu.example.com".into(),
        pool: "one".into(),
        device: (*name).into(),
    });
    let claims: Vec<_> = claims.iter().enumerate().map(|(i, text)| claim(&format!("c{i}"), text)).collect();
    let node: Node = parse("{metadata: {name: one, labels: {zone: a}}}");
    expect.assert_eq(&shown(&allocate(&devices, &taken.collect(), &claims, &node)));
}

const ONE: &str = "requests: [{name: r, exactly: {deviceClassName: gpu}}]";

fn two() -> Vec<String> {
    let devices = "{name: g0, attributes: {model: {string: big}, numa: {int: 0}}}, \
        {name: g1, attributes: {model: {string: small}, numa: {int: 1}}}";
    vec![slice("s", "one", WHOLE, devices)]
}

#[test]
fn a_device_is_given_once() {
    check(&two(), &[], &[ONE], expect!["r=g0"]);
    check(&two(), &["g0"], &[ONE], expect!["r=g1"]);
    check(&two(), &[], &[ONE, ONE], expect!["r=g0; r=g1"]);
    check(&two(), &["g0"], &[ONE, ONE], expect!["cannot allocate all claims"]);
    check(&[slice("s", "two", WHOLE, "{name: g0}")], &[], &[ONE], expect!["cannot allocate all claims"]);
}

#[test]
fn selectors_of_class_and_request_both_decide() {
    let of = |expression: &str| {
        format!(
            "requests: [{{name: r, exactly: {{deviceClassName: gpu, selectors: [{{cel: {{expression: \"{expression}\"}}}}]}}}}]"
        )
    };
    let small = of("device.attributes['gpu.example.com'].model == 'small'");
    check(&two(), &[], &[&small], expect!["r=g1"]);
    check(&two(), &["g1"], &[&small], expect!["cannot allocate all claims"]);
    check(
        &two(),
        &[],
        &[&of("device.attributes['gpu.example.com'].nothing")],
        expect![
            "error: claim d/c0: selector #0 on device gpu.example.com/one/g0: CEL runtime error: no such key: nothing"
        ],
    );
    let devices = "requests: [{name: r, exactly: {deviceClassName: nothing}}]";
    check(
        &two(),
        &[],
        &[devices],
        expect![[
            r#"error: claim d/c0, request r: could not retrieve device class nothing: deviceclass.resource.k8s.io "nothing" not found"#
        ]],
    );
}

#[test]
fn counts_and_all_are_met_in_full_or_not_at_all() {
    let count =
        |count: usize| format!("requests: [{{name: r, exactly: {{deviceClassName: gpu, count: {count}}}}}]");
    check(&two(), &[], &[&count(2)], expect!["r=g0 r=g1"]);
    check(&two(), &[], &[&count(3)], expect!["cannot allocate all claims"]);
    check(
        &two(),
        &[],
        &[&count(33)],
        expect!["error: claim d/c0: number of requested devices 33 exceeds the claim limit of 32"],
    );
    let all = "requests: [{name: r, exactly: {deviceClassName: gpu, allocationMode: All}}]";
    check(&two(), &[], &[all], expect!["r=g0 r=g1"]);
    check(&two(), &["g1"], &[all], expect!["cannot allocate all claims"]);
    check(&[], &[], &[all], expect!["cannot allocate all claims"]);
}

#[test]
fn an_administrator_has_devices_that_others_use() {
    let admin =
        "requests: [{name: r, exactly: {deviceClassName: gpu, allocationMode: All, adminAccess: true}}]";
    check(&two(), &["g0", "g1"], &[admin], expect!["r=g0 r=g1"]);
    check(&two(), &[], &[admin, ONE], expect!["r=g0 r=g1; r=g0"]);
}

#[test]
fn the_first_alternative_that_works_is_taken() {
    let list = |first: &str| {
        format!(
            "requests: [{{name: r, firstAvailable: [{{name: big, deviceClassName: gpu, {first}}}, {{name: any, deviceClassName: gpu}}]}}]"
        )
    };
    check(&two(), &[], &[&list("count: 2")], expect!["r/big=g0 r/big=g1"]);
    check(&two(), &["g0"], &[&list("count: 2")], expect!["r/any=g1"]);
    check(&two(), &[], &[&list("count: 40")], expect!["r/any=g0"]);
    check(&two(), &[], &[&list("count: 2"), ONE], expect!["r/any=g0; r=g1"]);
}

#[test]
fn constraints_hold_over_devices_and_earlier_choices_are_taken_back() {
    let devices = "{name: g0, attributes: {numa: {int: 0}}}, {name: g1, attributes: {numa: {int: 1}}}, \
        {name: g2}, {name: g3, attributes: {numa: {int: 1}}}";
    let slices = [slice("s", "one", WHOLE, devices)];
    let pair = |requests: &str| {
        format!(
            "requests: [{{name: a, exactly: {{deviceClassName: gpu}}}}, {{name: b, exactly: {{deviceClassName: gpu}}}}], \
             constraints: [{{matchAttribute: gpu.example.com/numa, requests: [{requests}]}}]"
        )
    };
    check(&slices, &[], &[&pair("")], expect!["a=g1 b=g3"]);
    check(&slices, &["g3"], &[&pair("")], expect!["cannot allocate all claims"]);
    check(&slices, &[], &[&pair("a")], expect!["a=g0 b=g1"]);
    let all = "requests: [{name: a, exactly: {deviceClassName: gpu, allocationMode: All}}], constraints: [{matchAttribute: gpu.example.com/numa}]";
    check(
        &slices,
        &[],
        &[all],
        expect![
            "error: claim d/c0, request a: cannot add device gpu.example.com/one/g1 because a claim constraint would not be satisfied"
        ],
    );
}

#[test]
fn pools_count_when_they_are_whole_and_only_in_their_newest_generation() {
    let half = "generation: 2, resourceSliceCount: 2";
    let old = slice("old", "one", WHOLE, "{name: g0}");
    check(
        &[old.clone(), slice("new", "one", half, "{name: g1}")],
        &[],
        &[ONE],
        expect!["cannot allocate all claims"],
    );
    let whole = [old, slice("a", "one", half, "{name: g1}"), slice("b", "one", half, "{name: g2}")];
    check(&whole, &[], &[ONE], expect!["r=g1"]);
    let twice = [slice("a", "one", half, "{name: g1}"), slice("b", "one", half, "{name: g1}")];
    check(&twice, &[], &[ONE], expect!["invalid resource pools were encountered"]);
    let all = "requests: [{name: r, exactly: {deviceClassName: gpu, allocationMode: All}}]";
    check(
        &whole[..2],
        &[],
        &[all],
        expect![
            "error: claim d/c0, request r: asks for all devices, but resource pool gpu.example.com/one is currently being updated"
        ],
    );
}

#[test]
fn allocations_say_where_their_devices_are_and_what_drivers_are_told() {
    let node: Node = parse("{metadata: {name: one, labels: {zone: a}}}");
    let given = |place: &str, devices: &str| {
        let slice = format!(
            "{{metadata: {{name: s}}, spec: {{driver: gpu.example.com, {place}, pool: {{name: p, {WHOLE}}}, devices: [{{name: g0}}, {{name: g1}}]}}}}"
        );
        let answer = allocate(&world(&[slice]), &BTreeSet::new(), &[claim("c", devices)], &node);
        serde_json::to_value(answer.expect("an allocation")).expect("JSON")[0].clone()
    };
    let selector = |place: &str| given(place, ONE)["nodeSelector"].to_string();
    expect![[r#"{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["one"]}]}]}"#]]
        .assert_eq(&selector("nodeName: one"));
    expect![[
        r#"{"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","operator":"In","values":["a"]}]}]}"#
    ]]
    .assert_eq(&selector(
        "nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [a]}]}]}",
    ));
    expect!["null"].assert_eq(&selector("allNodes: true"));
    let config = "config: [{requests: [a], opaque: {driver: gpu.example.com, parameters: {x: 1}}}]";
    let both = format!(
        "requests: [{{name: a, exactly: {{deviceClassName: gpu}}}}, {{name: b, exactly: {{deviceClassName: gpu}}}}], {config}"
    );
    let told = given("allNodes: true", &both)["devices"]["config"].to_string();
    expect![[r#"[{"opaque":{"driver":"gpu.example.com","parameters":{"mode":"fast"}},"requests":["a","b"],"source":"FromClass"},{"opaque":{"driver":"gpu.example.com","parameters":{"x":1}},"requests":["a"],"source":"FromClaim"}]"#]]
        .assert_eq(&told);
}

#[test]
fn a_search_that_takes_too_long_ends() {
    let devices: Vec<String> =
        (0..32).map(|i| format!("{{name: g{i}, attributes: {{i: {{int: {i}}}}}}}")).collect();
    let slices = [slice("s", "one", WHOLE, &devices.join(","))];
    let requests: Vec<String> =
        (0..16).map(|i| format!("{{name: r{i}, exactly: {{deviceClassName: gpu, count: 2}}}}")).collect();
    let last = "{name: x, exactly: {deviceClassName: gpu, selectors: [{cel: {expression: 'false'}}]}}";
    let devices = format!("requests: [{}, {last}]", requests[..10].join(","));
    check(&slices, &[], &[&devices], expect!["timed out trying to allocate devices"]);
}

#[test]
fn what_is_promised_or_written_is_taken_before_the_informer_tells() {
    let mut devices = world(&two());
    let allocated = |revision: &str, device: &str| -> ResourceClaim {
        parse(&format!(
            "{{metadata: {{name: c, namespace: d, uid: c, resourceVersion: '{revision}'}}, spec: {{}}, status: {{allocation: \
             {{devices: {{results: [{{request: r, driver: gpu.example.com, pool: one, device: {device}}}]}}}}}}}}"
        ))
    };
    let free: ResourceClaim =
        parse("{metadata: {name: c, namespace: d, uid: c, resourceVersion: '5'}, spec: {}, status: {}}");
    let names = |devices: &Devices| devices.taken().into_iter().map(|id| id.device).collect::<Vec<_>>();
    assert!(devices.claims_changed(vec![added("d/c", free.clone())]));
    let allocation = allocated("7", "g0").status.and_then(|status| status.allocation);
    devices.assume("pod", PodClaims { claims: vec![(Arc::new(free.clone()), allocation)] });
    assert!(devices.is_being_allocated(&free));
    assert_eq!(names(&devices), ["g0"]);
    devices.assume_written(Arc::new(allocated("7", "g0")));
    devices.settle("pod");
    assert!(!devices.is_being_allocated(&free));
    assert_eq!(names(&devices), ["g0"], "it is written");
    let finalizer =
        parse("{metadata: {name: c, namespace: d, uid: c, resourceVersion: '6'}, spec: {}, status: {}}");
    assert!(!devices.claims_changed(vec![added("d/c", finalizer)]), "an echo of an earlier write");
    assert_eq!(names(&devices), ["g0"]);
    let gone = Change { key: "d/c".into(), old: None, new: None, revision: 9 };
    assert!(devices.claims_changed(vec![gone]));
    assert_eq!(names(&devices), [""; 0]);
}
