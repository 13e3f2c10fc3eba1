use super::*;
use crate::fixture::{list, parse};

/// Endpoints by their zones, as `a`, `!a` if it is not ready, `-` if it has none; behind `>` the zone it is hinted for.
fn slice(text: &str) -> Vec<Endpoint> {
    let read = |word: &str| {
        let (word, hint) = word.split_once('>').map_or((word, None), |(word, hint)| (word, Some(hint)));
        let (zone, is_ready) = word.strip_prefix('!').map_or((word, true), |zone| (zone, false));
        Endpoint {
            conditions: Some(parse(&format!("{{ready: {is_ready}}}"))),
            node_name: Some(format!("node-{zone}")),
            zone: (zone != "-").then(|| zone.to_owned()),
            hints: hint.and_then(for_zone),
            ..Endpoint::default()
        }
    };
    text.split_whitespace().map(read).collect()
}

/// `old` are the slices that are there, `new` those that become of them, in order.
fn wanted(old: &[&str], new: &[&str]) -> Vec<Wanted> {
    let make = |(number, text): (usize, &&str)| {
        let known = old.get(number).map(|text| {
            let mut known: k8s_openapi::api::discovery::v1::EndpointSlice =
                parse("{addressType: IPv4, endpoints: []}");
            known.endpoints = slice(text);
            Arc::new(known)
        });
        Wanted { slice: known, ports: Vec::new(), endpoints: slice(text) }
    };
    new.iter().enumerate().map(make).collect()
}

/// For whom the endpoints of each slice are.
fn shown(wanted: &[Wanted]) -> String {
    let one = |endpoint: &Endpoint| {
        let hints = endpoint.hints.clone().unwrap_or_default();
        let zones = hints.for_zones.into_iter().flatten().map(|zone| zone.name);
        let nodes = hints.for_nodes.into_iter().flatten().map(|node| node.name);
        let all: Vec<String> = zones.chain(nodes).collect();
        if all.is_empty() { "-".to_owned() } else { all.join("+") }
    };
    let slice = |wanted: &Wanted| wanted.endpoints.iter().map(one).collect::<Vec<_>>().join(" ");
    wanted.iter().map(slice).collect::<Vec<_>>().join(" | ")
}

fn service(more: &str) -> Service {
    parse(&format!("{{metadata: {{name: web{more}}}"))
}

fn of_mode(mode: &str) -> Service {
    service(&format!(", annotations: {{service.kubernetes.io/topology-mode: {mode}}}}}"))
}

/// Shares as `a=1 b=2`.
fn check(what: &str, given: &str, old: &[&str], new: &[&str], expect: &str) {
    let given = given.split_whitespace().map(|one| one.split_once('=').unwrap());
    let given: BTreeMap<String, i128> =
        given.map(|(zone, cpu)| (zone.to_owned(), cpu.parse().unwrap())).collect();
    let mut wanted = wanted(old, new);
    let (is_on, told) = hint(&of_mode("Auto"), &Some(given), true, "IPv4", &mut wanted);
    let found = match told {
        Some((_, reason, message)) => {
            assert_eq!((is_on, reason), (false, "TopologyAwareHintsDisabled"), "{what}");
            assert!(endpoints(&mut wanted).all(|endpoint| endpoint.hints.is_none()), "{what}");
            message
        }
        None => shown(&wanted),
    };
    assert_eq!(found, expect, "{what}");
}

#[test]
fn zones_have_their_shares_of_the_endpoints() {
    let even = "a=1000 b=1000 c=1000";
    check("as they are", even, &[], &["a b c"], "a b c");
    check("two for one", even, &[], &["a a a b b c c c c"], "a a a b b b c c c");
    check("none of its own", even, &[], &["a a a b b b"], "c a a c b b");
    check("by their size", "a=4000 b=2000", &[], &["a a a b b b"], "a a a a b b");
    check("a zone without nodes", "a=1000 b=1000", &[], &["a a b b z z"], "a a b b z z");
    check("one that is not ready", even, &[], &["a !a b c"], "a - b c");
    check("several slices", even, &[], &["a a a", "b b b"], "c a a | c b b");
}

#[test]
fn a_slice_that_does_not_change_stays_while_its_hints_are_good() {
    let even = "a=1000 b=1000";
    check("good", even, &["a>b b>a"], &["a b"], "b a");
    check("without", even, &["a>b b"], &["a b"], "a b");
    check("for a zone that is no more", even, &["a>a b>z"], &["a b"], "a b");
    check("for too few zones", even, &["a>a b>a"], &["a b"], "a b");
    check("beside another", even, &["a>a a>a", "b>b"], &["a a", "b b"], "a a | b b");
    check("of one that is not ready", even, &["!a>a a>a b>b"], &["!a a b"], "- a b");
}

#[test]
fn what_would_overload_a_zone_is_left_alone() {
    let few = "Insufficient number of endpoints (2 endpoints, 3 zones), addressType: IPv4";
    check("too few", "a=1 b=1 c=1", &[], &["a b !c"], few);
    let overloaded = "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold \
                      (3 endpoints, 2 zones), addressType: IPv4";
    check("uneven", "a=1000 b=1000", &[], &["a a b"], overloaded);
    let nowhere = "One or more endpoints do not have a zone specified, addressType: IPv4";
    check("no zone", "a=1 b=1", &["a>a b>b"], &["a -"], nowhere);
    check("huge", &format!("a={max} b={max}", max = i64::MAX), &[], &["a b"], "a b");
}

#[test]
fn what_is_told_is_told_once() {
    let known = Some(BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 1)]));
    let on = "Normal TopologyAwareHintsEnabled: Topology Aware Hints has been enabled, addressType: IPv6";
    let off = "Warning TopologyAwareHintsDisabled: Topology Aware Hints has been disabled, addressType: IPv6";
    let unknown = "Warning TopologyAwareHintsDisabled: Insufficient Node information: allocatable CPU or zone not \
                   specified on one or more nodes, addressType: IPv6";
    for (what, service, shares, had, expect) in [
        ("turned on", of_mode("Auto"), &known, false, (true, on)),
        ("as it was", of_mode("auto"), &known, true, (true, "")),
        ("turned off", of_mode("Disabled"), &known, true, (false, off)),
        ("never on", of_mode("AUTO"), &known, false, (false, "")),
        ("unknown", of_mode("Auto"), &None, false, (false, unknown)),
    ] {
        let (has, told) = hint(&service, shares, had, "IPv6", &mut wanted(&[], &["a b"]));
        let told = told.map(|(kind, reason, message)| format!("{} {reason}: {message}", kind.as_str()));
        assert_eq!((has, told.unwrap_or_default().as_str()), expect, "{what}");
    }
    let both = ", annotations: {service.kubernetes.io/topology-mode: Auto, service.kubernetes.io/topology-aware-hints: 'off'}}";
    assert!(!wants_shares(&service(both)), "the older one counts");
}

#[test]
fn traffic_stays_as_close_as_it_is_asked_to() {
    for (how, expect) in [
        ("PreferClose", "a - -"),
        ("PreferSameZone", "a - -"),
        ("PreferSameNode", "a+node-a - node--"),
        ("Else", "- - -"),
    ] {
        let service = service(&format!("}}, spec: {{trafficDistribution: {how}}}"));
        let mut wanted = wanted(&["a>z !a>a ->a"], &["a !a -"]);
        assert_eq!(hint(&service, &None, false, "IPv4", &mut wanted), (false, None), "{how}");
        assert_eq!(shown(&wanted), expect, "{how}");
    }
}

#[test]
fn shares_are_known_of_all_nodes_or_not_at_all() {
    let node = |zone: &str, cpu: &str, more: &str| {
        format!(
            "{{metadata: {{labels: {{topology.kubernetes.io/zone: '{zone}'{more}}}}}, status: {{allocatable: {{cpu: '{cpu}'}}, \
             conditions: [{{type: Ready, status: 'True'}}]}}}}"
        )
    };
    let unready = node("", "0", "").replace("True", "Unknown");
    let control_plane = node("c", "64", ", node-role.kubernetes.io/control-plane: ''");
    let (a, b) = (node("a", "1500m", ""), node("b", "2", ""));
    let known = [("a".to_owned(), 3000), ("b".to_owned(), 2000)];
    for (what, nodes, expect) in [
        ("known", vec![&a, &a, &b, &unready, &control_plane], Some(BTreeMap::from(known))),
        ("one zone", vec![&a, &a], None),
        ("no zone", vec![&a, &b, &node("", "1", "")], None),
        ("no cpu", vec![&a, &b, &node("a", "0", "")], None),
        ("less than none", vec![&a, &b, &node("a", "-1", "")], None),
        ("none", vec![], None),
    ] {
        let nodes = nodes.into_iter().cloned().collect::<Vec<_>>().join(", ");
        assert_eq!(shares(&list(&format!("[{nodes}]"))), expect, "{what}");
    }
}
