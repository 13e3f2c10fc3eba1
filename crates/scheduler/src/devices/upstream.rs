//! The cases of upstream's `allocator_testing.go`, for the features that are on by default.

use k8s_openapi::api::core::v1::Node;

use super::allocate::{Refused, allocate};
use super::*;
use crate::transform::parse;

const A: &str = "driver-a";
const B: &str = "driver-b";
const NODE: &str = "nodeName: one";
const NONE: &str = "cannot allocate all claims";

fn added<K>(key: String, object: K) -> Change<K> {
    Change { key: key.into(), old: None, new: Some(Arc::new(object)), revision: 1 }
}

/// A slice: where, of which pool, generation and number of slices, driver, and its devices.
type Slice<'a> = (&'a str, &'a str, (i64, i64), &'a str, String);

/// Devices of these names.
fn named(names: &str) -> String {
    names.split_whitespace().map(|name| format!("{{name: {name}}}, ")).collect()
}

/// Devices with some memory, or with attributes.
fn with(devices: &[(&str, &str)]) -> String {
    let device = |(name, more): &(&str, &str)| match more.strip_suffix("Gi") {
        Some(size) => format!("{{name: {name}, capacity: {{memory: {{value: {size}Gi}}}}}}, "),
        None => format!("{{name: {name}, attributes: {{{more}}}}}, "),
    };
    devices.iter().map(device).collect()
}

fn many(count: usize) -> String {
    (0..count).map(|number| format!("{{name: m{number:02}}}, ")).collect()
}

fn one_slice(driver: &'static str, devices: &str) -> Vec<Slice<'static>> {
    vec![(NODE, "p1", (1, 1), driver, devices.to_owned())]
}

fn world(slices: &[Slice<'_>]) -> Devices {
    let mut devices = Devices::default();
    for (name, driver) in [("a", A), ("b", B)] {
        let class = format!(
            "{{metadata: {{name: {name}}}, spec: {{selectors: [{{cel: {{expression: \"device.driver == '{driver}'\"}}}}], \
             config: [{{opaque: {{driver: {driver}, parameters: {{of: {name}}}}}}}]}}}}"
        );
        devices.classes_changed(vec![added(name.to_owned(), parse(&class))]);
    }
    let made = slices.iter().enumerate().map(|(number, (place, pool, (generation, count), driver, list))| {
        let slice = format!(
            "{{metadata: {{name: s{number}}}, spec: {{driver: {driver}, {place}, pool: {{name: {pool}, \
             generation: {generation}, resourceSliceCount: {count}}}, devices: [{list}]}}}}"
        );
        added(number.to_string(), parse(&slice))
    });
    devices.slices_changed(made.collect());
    devices
}

/// A request of a class; `more` is what else is asked.
fn exactly(name: &str, class: &str, more: &str) -> String {
    format!("{{name: {name}, exactly: {{deviceClassName: '{class}', {more}}}}}")
}

fn first(name: &str, alternatives: &[String]) -> String {
    format!("{{name: {name}, firstAvailable: [{}]}}", alternatives.join(", "))
}

fn alternative(name: &str, class: &str, more: &str) -> String {
    format!("{{name: {name}, deviceClassName: {class}, {more}}}")
}

/// At least so much memory.
fn memory(size: u32) -> String {
    cel(&format!("device.capacity['{A}'].memory.compareTo(quantity('{size}Gi')) >= 0"))
}

fn cel(expression: &str) -> String {
    format!("selectors: [{{cel: {{expression: \"{expression}\"}}}}]")
}

fn claim_of(requests: &[String]) -> String {
    format!("requests: [{}]", requests.join(", "))
}

fn claim_with(requests: &[String], more: &str) -> String {
    format!("{}, {more}", claim_of(requests))
}

/// All devices of these have the same value.
fn same(attribute: &str, requests: &str) -> String {
    format!("{{matchAttribute: {A}/{attribute}, requests: [{requests}]}}")
}

const ALL: &str = "allocationMode: All";
const ADMIN: &str = "adminAccess: true";
const ALL_ADMIN: &str = "allocationMode: All, adminAccess: true";

fn allocated(
    slices: &[Slice<'_>],
    taken: &[(&str, &str, &str)],
    claims: &[String],
) -> Result<Vec<AllocationResult>, Refused> {
    let id = |(driver, pool, device): &(&str, &str, &str)| DeviceId {
        driver: (*driver).to_owned(),
        pool: (*pool).to_owned(),
        device: (*device).to_owned(),
    };
    let claim = |(number, devices): (usize, &String)| {
        let claim =
            format!("{{metadata: {{name: c{number}, namespace: d}}, spec: {{devices: {{{devices}}}}}}}");
        Arc::new(parse::<ResourceClaim>(&claim))
    };
    let claims: Vec<_> = claims.iter().enumerate().map(claim).collect();
    let node: Node = parse("{metadata: {name: one, labels: {region: west, planet: earth}}}");
    allocate(&world(slices), &taken.iter().map(id).collect(), &claims, &node)
}

/// `request=pool/device`, the driver's letter before it; `!` for those that are only administered.
fn check(case: &str, slices: &[Slice<'_>], taken: &[(&str, &str, &str)], claims: &[String], expect: &str) {
    let text = match allocated(slices, taken, claims) {
        Err(Refused::Here(why)) => why,
        Err(Refused::Everywhere(error)) => format!("error: {error}"),
        Ok(allocations) => {
            let one = |allocation: &AllocationResult| {
                let results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
                let text = results.map(|given| {
                    let admin = if given.admin_access == Some(true) { "!" } else { "" };
                    let driver = given.driver.trim_start_matches("driver-");
                    format!("{admin}{}={driver}/{}/{}", given.request, given.pool, given.device)
                });
                text.collect::<Vec<_>>().join(" ")
            };
            allocations.iter().map(one).collect::<Vec<_>>().join("; ")
        }
    };
    let is_as_expected = text == expect || expect.strip_prefix('*').is_some_and(|part| text.contains(part));
    assert!(is_as_expected, "{case}: {text}, not {expect}");
}

#[test]
fn requests_get_devices_and_earlier_choices_are_taken_back() {
    let (small, large) = (exactly("r0", "a", &memory(1)), exactly("r1", "a", &memory(2)));
    let both = claim_of(&[small.clone(), large.clone()]);
    let apart = [claim_of(&[small]), claim_of(&[large])];
    let (sorted, reversed) = (with(&[("d1", "1Gi"), ("d2", "2Gi")]), with(&[("d2", "2Gi"), ("d1", "1Gi")]));
    check(
        "small and large",
        &one_slice(A, &sorted),
        &[],
        std::slice::from_ref(&both),
        "r0=a/p1/d1 r1=a/p1/d2",
    );
    check("large and small", &one_slice(A, &reversed), &[], &[both], "r0=a/p1/d1 r1=a/p1/d2");
    check("of two claims", &one_slice(A, &reversed), &[], &apart, "r0=a/p1/d1; r1=a/p1/d2");
    let one = || claim_of(&[exactly("r0", "a", "")]);
    let of_b = || claim_of(&[exactly("r0", "b", "")]);
    let two = claim_of(&[exactly("r0", "a", "count: 2")]);
    let d1 = || named("d1");
    let pools = [(NODE, "p1", (1, 1), A, d1()), (NODE, "p2", (1, 1), A, d1())];
    check("of two pools", &pools, &[], &[two], "r0=a/p1/d1 r0=a/p2/d1");
    check("not enough", &one_slice(A, "{name: d1}"), &[], &[one(), one()], NONE);
    check("no slices", &[], &[], &[one()], NONE);
    check("no claims", &one_slice(A, "{name: d1}"), &[], &[], "");
    check("all in use", &one_slice(A, "{name: d1}"), &[(A, "p1", "d1")], &[one()], NONE);
    check("another pool's in use", &one_slice(A, "{name: d1}"), &[(A, "p2", "d1")], &[one()], "r0=a/p1/d1");
    let drivers = [(NODE, "p1", (1, 1), A, named("d1 d2")), (NODE, "p1", (1, 1), B, d1())];
    check("of two drivers", &drivers, &[], &[one(), of_b()], "r0=a/p1/d1; r0=b/p1/d1");
    let most = claim_of(&[exactly("r0", "a", "count: 32")]);
    check("as many as there may be", &one_slice(A, ""), &[], &[most], NONE);
    let total = claim_of(&[exactly("r0", "a", "count: 32"), exactly("r1", "a", "")]);
    check("one more", &one_slice(A, &many(33)), &[], &[total], "*exceeds the claim limit");
}

#[test]
fn pools_are_whole_over_all_nodes_and_of_one_generation() {
    let one = claim_of(&[exactly("r0", "a", "")]);
    let all = claim_of(&[exactly("r0", "a", ALL)]);
    let (here, there) = (NODE, "nodeName: two");
    let row =
        |place: &'static str, pool: &'static str, counts: (i64, i64), devices: &str| -> Slice<'static> {
            (place, pool, counts, A, named(devices))
        };
    let old = [row(here, "p1", (1, 2), "d1"), row(here, "p1", (1, 2), "d2")];
    let new = [row(there, "p1", (2, 2), "d1"), row(there, "p1", (2, 2), "d2")];
    let twice = [row(here, "p1", (1, 2), "d1"), row(here, "p1", (1, 2), "d1")];
    let beside = [twice[0].clone(), twice[1].clone(), row(here, "p2", (1, 1), "d2")];
    let invalid = "invalid resource pools were encountered";
    let moved = [new[0].clone(), new[1].clone()].map(|slice| (here, slice.1, slice.2, slice.3, slice.4));
    let was = [old[0].clone(), old[1].clone()].map(|slice| (there, slice.1, slice.2, slice.3, slice.4));
    for (case, slices, wanted, expect) in [
        (
            "a slice of another Node",
            vec![row(there, "p1", (1, 2), "d1"), row(here, "p1", (1, 2), "d2")],
            &one,
            "r0=a/p1/d2",
        ),
        (
            "all devices here",
            vec![row(here, "p1", (1, 2), "d1"), row(there, "p1", (1, 2), "d2")],
            &all,
            "r0=a/p1/d1",
        ),
        ("a slice is missing", vec![row(here, "p1", (1, 2), "d1")], &one, NONE),
        (
            "all of a pool that misses one",
            vec![row(here, "p1", (1, 2), "d1")],
            &all,
            "*asks for all devices, but resource pool driver-a/p1 is currently being updated",
        ),
        ("an older slice", vec![row(here, "p1", (1, 2), "d1"), row(here, "p1", (2, 2), "d2")], &one, NONE),
        (
            "a newer one of another Node",
            vec![row(here, "p1", (1, 2), "d1"), row(there, "p1", (2, 2), "d2")],
            &one,
            NONE,
        ),
        (
            "all of a pool that is replaced",
            vec![row(here, "p1", (1, 2), "d1"), row(there, "p1", (2, 2), "d2")],
            &all,
            NONE,
        ),
        // What is whole is not looked at more closely.
        ("moved to another Node", [&old[..], &new].concat(), &one, "r0=a/p1/d1"),
        ("moved here", [&was[..], &moved].concat(), &one, "r0=a/p1/d1"),
        ("being moved to another Node", [&old[..], &new[..1]].concat(), &one, "r0=a/p1/d1"),
        ("being moved here", [&was[..], &moved[..1]].concat(), &one, NONE),
        ("twice the same", twice.to_vec(), &one, invalid),
        ("twice the same, and another pool", beside.to_vec(), &one, "r0=a/p2/d2"),
        (
            "all of twice the same",
            twice.to_vec(),
            &all,
            "*asks for all devices, but resource pool driver-a/p1 is currently invalid",
        ),
    ] {
        check(case, &slices, &[], std::slice::from_ref(wanted), expect);
    }
    check("that one is in use", &beside, &[(A, "p2", "d2")], &[one], invalid);
}

#[test]
fn all_devices_are_all_or_none() {
    let all = || claim_of(&[exactly("r0", "a", ALL)]);
    let one_b = || claim_of(&[exactly("r0", "b", "count: 1")]);
    let one_a = || claim_of(&[exactly("r0", "a", "count: 1")]);
    let d1 = || named("d1");
    let two = || one_slice(A, &named("d1 d2"));
    let with_b = [two().remove(0), (NODE, "p1", (1, 1), B, d1())];
    let pools = [(NODE, "p1", (1, 1), A, d1()), (NODE, "p2", (1, 1), A, d1())];
    let used = [(A, "p1", "d1")];
    check("one", &one_slice(A, &d1()), &[], &[all()], "r0=a/p1/d1");
    check("of two pools", &pools, &[], &[all()], "r0=a/p1/d1 r0=a/p2/d1");
    check("and another", &with_b, &[], &[all(), one_b()], "r0=a/p1/d1 r0=a/p1/d2; r0=b/p1/d1");
    check("after another", &with_b, &[], &[one_b(), all()], "r0=b/p1/d1; r0=a/p1/d1 r0=a/p1/d2");
    check("after one of them", &one_slice(A, &d1()), &[], &[one_a(), all()], NONE);
    check("before one of them", &one_slice(A, &d1()), &[], &[all(), one_a()], NONE);
    check("none in the slice", &one_slice(A, ""), &[], &[all()], NONE);
    check("no slice", &[], &[], &[all()], NONE);
    check("one in use", &two(), &used, &[all()], NONE);
    let or_b =
        |more: &str| claim_of(&[first("r0", &[alternative("s0", "a", more), alternative("s1", "b", "")])]);
    let b2 = (NODE, "p2", (1, 1), B, d1());
    check(
        "or another, none there",
        &[one_slice(A, "").remove(0), b2.clone()],
        &[],
        &[or_b(ALL)],
        "r0/s1=b/p2/d1",
    );
    check("or another, no slice", std::slice::from_ref(&b2), &[], &[or_b(ALL)], "r0/s1=b/p2/d1");
    check("or another, one in use", &[two().remove(0), b2], &used, &[or_b(ALL)], "r0/s1=b/p2/d1");
    let or_a = claim_of(&[first("r0", &[alternative("s0", "a", ALL), alternative("s1", "a", "")])]);
    check("or one of them", &two(), &used, std::slice::from_ref(&or_a), "r0/s1=a/p1/d2");
    let before = claim_of(&[
        exactly("r0", "a", ""),
        first("r1", &[alternative("s0", "a", ALL), alternative("s1", "a", "")]),
    ]);
    check("or what is left", &two(), &[], &[before], "r0=a/p1/d1 r1/s1=a/p1/d2");
    let most = claim_of(&[
        first("r0", &[alternative("s0", "a", ALL), alternative("s1", "a", "count: 2")]),
        exactly("r1", "b", "count: 2"),
    ]);
    let slices = [(NODE, "p1", (1, 1), A, many(31)), (NODE, "p2", (1, 1), B, named("d1 d2"))];
    check(
        "or what there may be",
        &slices,
        &[],
        &[most],
        "r0/s1=a/p1/m00 r0/s1=a/p1/m01 r1=b/p2/d1 r1=b/p2/d2",
    );
}

#[test]
fn an_administrator_shares_but_not_with_itself() {
    let two = one_slice(A, &named("d1 d2"));
    let used = [(A, "p1", "d1")];
    let of = |more: &str| claim_of(&[exactly("r0", "a", more)]);
    let both = claim_of(&[exactly("r0", "a", ADMIN), exactly("r1", "a", ALL_ADMIN)]);
    check("all, one in use", &two, &used, &[of(ALL_ADMIN)], "!r0=a/p1/d1 !r0=a/p1/d2");
    check("one, and all", &two, &[], &[both], NONE);
    check("two, one in use", &two, &used, &[of("adminAccess: true, count: 2")], "!r0=a/p1/d1 !r0=a/p1/d2");
    check("of two claims", &two, &[], &[of(ADMIN), of(ADMIN)], "!r0=a/p1/d1; !r0=a/p1/d1");
    check("what another claim gets", &two, &[], &[of(""), of(ADMIN)], "r0=a/p1/d1; !r0=a/p1/d1");
    check("in use", &one_slice(A, "{name: d1}"), &used, &[of(ADMIN)], "!r0=a/p1/d1");
}

#[test]
fn devices_that_belong_together_have_the_same_values() {
    let pair = || [exactly("r0", "a", ""), exactly("r1", "a", "")];
    let constrained = |requests: &[String], all: &[String]| {
        claim_with(requests, &format!("constraints: [{}]", all.join(", ")))
    };
    let attributes = "version: {version: 1.0.0}, numa: {int: 1}, text: {string: x}, flag: {bool: true}";
    let alike = one_slice(A, &with(&[("d1", attributes), ("d2", attributes)]));
    let each = ["numa", "version", "text", "flag"].map(|name| same(name, ""));
    check("all four", &alike, &[], &[constrained(&pair(), &each)], "r0=a/p1/d1 r1=a/p1/d2");
    check("no such attribute", &alike, &[], &[constrained(&pair()[..1], &[same("none", "")])], NONE);
    for (attribute, one, other) in [
        ("numa", "numa: {int: 1}", "numa: {int: 2}"),
        ("text", "text: {string: x}", "text: {string: y}"),
        ("flag", "flag: {bool: true}", "flag: {bool: false}"),
        ("version", "version: {version: 1.0.0}", "version: {version: 2.0.0}"),
    ] {
        let differ = one_slice(A, &with(&[("d1", one), ("d2", other)]));
        let two = constrained(&[exactly("r0", "a", "count: 2")], &[same(attribute, "")]);
        check(attribute, &differ, &[], &[two], NONE);
        let only = constrained(&pair(), &[same(attribute, "r0")]);
        check(attribute, &differ, &[], &[only], "r0=a/p1/d1 r1=a/p1/d2");
        let all = constrained(&[exactly("r0", "a", ALL)], &[same(attribute, "")]);
        let why =
            "*request r0: cannot add device driver-a/p1/d2 because a claim constraint would not be satisfied";
        check(attribute, &differ, &[], &[all], why);
    }
    let three = one_slice(
        A,
        &with(&[
            ("d1", "version: {version: 1.0.0}, text: {string: a}"),
            ("d2", "version: {version: 2.0.0}, text: {string: b}"),
            ("d3", "version: {version: 3.0.0}, text: {string: b}"),
        ]),
    );
    let retried = constrained(&pair(), &[same("version", "r0"), same("text", "")]);
    check("tried again", &three, &[], &[retried], "r0=a/p1/d2 r1=a/p1/d3");
}

#[test]
fn alternatives_are_tried_in_their_order() {
    let a_then_b =
        |one: &str, other: &str| first("r0", &[alternative("s0", "b", one), alternative("s1", "a", other)]);
    let d1 = || named("d1");
    let both = [(NODE, "p1", (1, 1), A, d1()), (NODE, "p2", (1, 1), B, d1())];
    check(
        "the first is not there",
        &one_slice(A, &d1()),
        &[],
        &[claim_of(&[a_then_b("", "")])],
        "r0/s1=a/p1/d1",
    );
    check("too few of both", &both, &[], &[claim_of(&[a_then_b("count: 2", "count: 2")])], NONE);
    check(
        "too many of the first",
        &one_slice(A, &d1()),
        &[],
        &[claim_of(&[a_then_b("count: 500", "")])],
        "r0/s1=a/p1/d1",
    );
    let sizes = one_slice(A, &with(&[("d1", "2Gi"), ("d2", "2Gi"), ("d3", "1Gi")]));
    let two_large = or("r1", &memory(4), &format!("{}, count: 2", memory(2)));
    let wanted = claim_of(&[exactly("r0", "a", &memory(1)), two_large]);
    check("expressions", &sizes, &[], &[wanted], "r0=a/p1/d3 r1/s1=a/p1/d1 r1/s1=a/p1/d2");
    let eight = || exactly("r1", "a", &memory(8));
    let apart =
        [(NODE, "p1", (1, 1), A, with(&[("d1", "8Gi")])), (NODE, "p2", (1, 1), A, with(&[("d2", "4Gi")]))];
    let either = || or("r0", &memory(8), &memory(4));
    check("after another", &apart, &[], &[claim_of(&[eight(), either()])], "r1=a/p1/d1 r0/s1=a/p2/d2");
    check("taken back", &apart, &[], &[claim_of(&[either(), eight()])], "r0/s1=a/p2/d2 r1=a/p1/d1");
    let half = |name: &str| or(name, "count: 32", "count: 1");
    let found = "r0/s1=a/p1/m00 r1/s1=a/p1/m01";
    let both_halves = claim_of(&[half("r0"), half("r1")]);
    check("no more than there may be", &one_slice(A, &many(64)), &[], &[both_halves], found);
}

/// One of class `a` with this, or else one with that.
fn or(name: &str, more: &str, other: &str) -> String {
    first(name, &[alternative("s0", "a", more), alternative("s1", "a", other)])
}

#[test]
fn constraints_are_about_requests_or_about_alternatives() {
    let versions = |devices: &[(&str, u32, &str)]| -> String {
        let device = |(name, size, version): &(&str, u32, &str)| {
            format!(
                "{{name: {name}, capacity: {{memory: {{value: {size}Gi}}}}, attributes: {{version: {{version: {version}}}}}}}, "
            )
        };
        devices.iter().map(device).collect()
    };
    let pools = |second: &[(&str, u32, &str)]| -> Vec<Slice<'static>> {
        vec![
            (NODE, "p1", (1, 1), A, versions(&[("d1", 8, "1.0.0")])),
            (NODE, "p2", (1, 1), A, versions(second)),
        ]
    };
    let constrained = |requests: &str| {
        let wanted = [exactly("r0", "a", &memory(8)), or("r1", &memory(2), &memory(1))];
        claim_with(&wanted, &format!("constraints: [{}]", same("version", requests)))
    };
    let differ = [("d2", 2, "2.0.0"), ("d3", 1, "1.0.0")];
    check(
        "constrained as one request",
        &pools(&differ),
        &[],
        &[constrained("r0, r1")],
        "r0=a/p1/d1 r1/s1=a/p2/d3",
    );
    check(
        "constrained for one of them",
        &pools(&differ[..1]),
        &[],
        &[constrained("r0, r1/s0")],
        "r0=a/p1/d1 r1/s1=a/p2/d2",
    );
}

#[test]
fn allocations_are_where_their_devices_are() {
    let in_place = |key: &str, value: &str| {
        format!(
            "nodeSelector: {{nodeSelectorTerms: [{{matchExpressions: [{{key: {key}, operator: In, values: [{value}]}}]}}]}}"
        )
    };
    let (west, east, earth) =
        (in_place("region", "west"), in_place("region", "east"), in_place("planet", "earth"));
    let selector = |slices: &[&str], count: usize| {
        let slices: Vec<Slice<'_>> = slices
            .iter()
            .zip(["p1", "p2", "p3"])
            .map(|(place, pool)| (*place, pool, (1, 1), A, named("d1")))
            .collect();
        let wanted = claim_of(&[exactly("r0", "a", &format!("count: {count}"))]);
        let found = allocated(&slices, &[], &[wanted]).ok()?;
        Some(serde_json::to_value(found.first()?.node_selector.as_ref()).expect("JSON").to_string())
    };
    let terms = |text: &str| Some(format!("{{\"nodeSelectorTerms\":[{{{text}}}]}}"));
    let requirement = |key: &str, value: &str| {
        format!("{{\"key\":\"{key}\",\"operator\":\"In\",\"values\":[\"{value}\"]}}")
    };
    let region = requirement("region", "west");
    assert_eq!(selector(&[&west], 1), terms(&format!("\"matchExpressions\":[{region}]")));
    assert_eq!(selector(&[&east], 1), None);
    let planet = requirement("planet", "earth");
    let union = format!("\"matchExpressions\":[{region},{planet}]");
    assert_eq!(selector(&[&west, "allNodes: true", &earth], 3), terms(&union));
    let here = requirement("metadata.name", "one");
    assert_eq!(selector(&[&west, NODE], 2), terms(&format!("\"matchFields\":[{here}]")));
    assert_eq!(selector(&["allNodes: true"], 1), Some("null".to_owned()));
}

#[test]
fn drivers_are_told_what_classes_and_claims_say_of_what_was_chosen() {
    let told = |slices: &[Slice<'_>], wanted: String| {
        let found = allocated(slices, &[], &[wanted]).expect("devices");
        let devices = found.first().and_then(|one| one.devices.as_ref());
        let text = devices.iter().flat_map(|devices| devices.config.iter().flatten()).map(|config| {
            let parameters = config.opaque.as_ref().map(|opaque| opaque.parameters.0.to_string());
            let requests = config.requests.as_ref().map_or_else(|| "all".to_owned(), |all| all.join(","));
            format!("{} {requests} {}", config.source, parameters.unwrap_or_default())
        });
        text.collect::<Vec<_>>()
    };
    let of = |requests: &str, driver: &str, value: &str| {
        format!("{{requests: [{requests}], opaque: {{driver: {driver}, parameters: {{x: {value}}}}}}}")
    };
    let with_b = [(NODE, "p1", (1, 1), A, named("d1 d2")), (NODE, "p1", (1, 1), B, named("d1 d2"))];
    let three = [exactly("r0", "a", ""), exactly("r1", "a", ""), exactly("r2", "b", "")];
    assert_eq!(told(&with_b, claim_of(&three[..1])), [r#"FromClass r0 {"of":"a"}"#]);
    assert_eq!(
        told(&with_b, claim_of(&three)),
        [r#"FromClass r0,r1 {"of":"a"}"#, r#"FromClass r2 {"of":"b"}"#]
    );
    let configured = claim_with(&three[..1], &format!("config: [{}]", of("r0", A, "1")));
    assert_eq!(told(&with_b, configured), [r#"FromClass r0 {"of":"a"}"#, r#"FromClaim r0 {"x":1}"#]);
    let either = [first("r0", &[alternative("s0", "a", "count: 3"), alternative("s1", "b", "count: 2")])];
    let configs = format!("config: [{}, {}]", of("r0/s0", A, "1"), of("r0/s1", B, "2"));
    assert_eq!(
        told(&with_b, claim_with(&either, &configs)),
        [r#"FromClass r0/s1 {"of":"b"}"#, r#"FromClaim r0/s1 {"x":2}"#]
    );
}

#[test]
fn what_is_wrong_with_a_claim_is_wrong_everywhere() {
    let slices = one_slice(A, "{name: d1}");
    let one = |more: &str| claim_of(&[exactly("r0", "a", more)]);
    let unknown_constraint = claim_with(&[exactly("r0", "a", "")], "constraints: [{}]");
    for (case, wanted, expect) in [
        (
            "class",
            claim_of(&[exactly("r0", "none", "")]),
            "*error: claim d/c0, request r0: could not retrieve device class none",
        ),
        (
            "no class",
            claim_of(&[exactly("r0", "", "")]),
            "error: claim d/c0, request r0: missing device class name (unsupported request type?)",
        ),
        ("selector", one("selectors: [{}]"), "*CEL expression empty (unsupported selector type?)"),
        ("mode", one("allocationMode: future-mode"), "*unsupported count mode future-mode"),
        ("constraint", unknown_constraint, "*empty constraint (unsupported constraint type?)"),
        ("expression", one(&cel("noSuchVar")), "*undeclared reference"),
        ("expression about all", one(&format!("{ALL}, {}", cel("noSuchVar"))), "*undeclared reference"),
        ("count", one("count: 500"), "*exceeds the claim limit"),
    ] {
        check(case, &slices, &[], &[wanted], expect);
    }
}
