//! What is decided of Nodes, and what answers come to.

use expect_test::{Expect, expect};

use super::*;
use crate::RefusalKind;
use crate::fixture::{change, noon, parse, render, render_outcome};

const TAINTED: &str = "{metadata: {name: a, uid: u, labels: {mine: kept}},
    spec: {taints: [{key: other, effect: NoExecute},
                    {key: node.cloudprovider.kubernetes.io/uninitialized, value: 'true', effect: NoSchedule}]},
    status: {addresses: [{type: Hostname, address: a}]}}";

fn address(kind: &str, address: &str) -> v1::NodeAddress {
    v1::NodeAddress { r#type: kind.to_owned(), address: address.to_owned() }
}

fn answer() -> v1::InstanceMetadataResponse {
    v1::InstanceMetadataResponse {
        provider_id: "example://z/i-1".to_owned(),
        instance_type: "m1.small".to_owned(),
        zone: "z".to_owned(),
        region: "r".to_owned(),
        addresses: vec![address("InternalIP", "192.0.2.1"), address("ExternalIP", "198.51.100.1")],
        additional_labels: BTreeMap::new(),
    }
}

fn read(answer: v1::InstanceMetadataResponse) -> Result<Metadata, Refusal> {
    Metadata::read(answer)
}

fn check(node: &str, answer: v1::InstanceMetadataResponse, expect: &Expect) {
    expect.assert_eq(&render_outcome(&initialized(&parse(node), read(answer))));
}

#[test]
fn a_node_is_described_before_its_taint_goes() {
    check(
        TAINTED,
        answer(),
        &expect![[r#"
            - Patch("application/strategic-merge-patch+json") nodes/status a {"metadata":{"uid":"u"},"status":{"addresses":[{"$patch":"replace"},{"address":"192.0.2.1","type":"InternalIP"},{"address":"198.51.100.1","type":"ExternalIP"},{"address":"a","type":"Hostname"}]}}
            - Patch("application/strategic-merge-patch+json") nodes a {"metadata":{"labels":{"beta.kubernetes.io/instance-type":"m1.small","failure-domain.beta.kubernetes.io/region":"r","failure-domain.beta.kubernetes.io/zone":"z","node.kubernetes.io/instance-type":"m1.small","topology.kubernetes.io/region":"r","topology.kubernetes.io/zone":"z"},"uid":"u"},"spec":{"providerID":"example://z/i-1"}}
            - Patch("application/json-patch+json") nodes a [{"op":"test","path":"/metadata/uid","value":"u"},{"op":"test","path":"/spec/taints/1/key","value":"node.cloudprovider.kubernetes.io/uninitialized"},{"op":"remove","path":"/spec/taints/1"}]
            - Normal Synced: Node synced successfully
        "#]],
    );
}

#[test]
fn what_a_node_has_already_stays() {
    let node = "{metadata: {name: a, uid: u, labels: {team: x}}, spec: {providerID: 'example://known',
        taints: [{key: node.cloudprovider.kubernetes.io/uninitialized, effect: NoSchedule}]}}";
    let labels = [
        ("team", "y"),
        ("rack", "7"),
        ("evil.kubernetes.io/x", "1"),
        ("k8s.io/x", "1"),
        ("notk8s.io/x", "1"),
    ];
    let additional_labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let bare = v1::InstanceMetadataResponse { additional_labels, ..v1::InstanceMetadataResponse::default() };
    check(
        node,
        bare,
        &expect![[r#"
            - Patch("application/strategic-merge-patch+json") nodes a {"metadata":{"labels":{"notk8s.io/x":"1","rack":"7"},"uid":"u"}}
            - Patch("application/json-patch+json") nodes a [{"op":"test","path":"/metadata/uid","value":"u"},{"op":"test","path":"/spec/taints/0/key","value":"node.cloudprovider.kubernetes.io/uninitialized"},{"op":"remove","path":"/spec/taints/0"}]
            - Normal Synced: Node synced successfully
        "#]],
    );
}

#[test]
fn a_node_keeps_its_taint_while_its_cloud_says_what_cannot_be() {
    let change = |change: fn(&mut v1::InstanceMetadataResponse)| {
        let mut answer = answer();
        change(&mut answer);
        answer
    };
    for (wrong, expect) in [
        (change(|it| it.provider_id.clear()), "cloud provider does not set node provider ID for node a"),
        (change(|it| it.provider_id = "x\ny".into()), "the provider ID must have at most"),
        (change(|it| it.provider_id = "x".repeat(2000)), "the provider ID must have at most"),
        (change(|it| it.zone = "a zone".into()), "the zone \"a zone\" must be a label's value"),
        (change(|it| it.region = "x".repeat(64)), "the region"),
        (change(|it| it.instance_type = "-".into()), "the instance type \"-\" must be a label's value"),
        (
            change(|it| it.addresses[0].address = "300.1.1.1".into()),
            "the InternalIP \"300.1.1.1\" must be an IP address",
        ),
        (
            change(|it| it.addresses[0].r#type = "internalip".into()),
            "an address of the type \"internalip\" must be",
        ),
        (
            change(|it| it.addresses.push(address("Hostname", ""))),
            "the Hostname must have between 1 and 253 bytes",
        ),
        (change(|it| it.addresses = vec![address("InternalIP", "192.0.2.1"); 65]), "at most 64 addresses"),
        (
            change(|it| drop(it.additional_labels.insert("a b".into(), "x".into()))),
            "the additional label \"a b\"",
        ),
        (
            change(|it| drop(it.additional_labels.insert("a".into(), "x y".into()))),
            "the a \"x y\" must be a label's value",
        ),
    ] {
        let outcome = initialized(&parse(TAINTED), read(wrong));
        let told = render_outcome(&outcome);
        assert!(told.starts_with("- Warning SyncNodeFailed: Error syncing node with its cloud: "), "{told}");
        assert!(
            told.contains(expect) && outcome.failure.is_some() && outcome.plan.steps.len() == 1,
            "{expect}: {told}"
        );
    }
}

#[test]
fn a_refusal_is_told_and_tried_again() {
    let refusal = Refusal {
        kind: RefusalKind::NotFound,
        message: "no such instance".to_owned(),
        retry_after: Some(Duration::from_secs(7)),
    };
    let told = render_outcome(&initialized(&parse(TAINTED), Err(refusal.clone())));
    expect![[r#"
        - Warning SyncNodeFailed: Error syncing node with its cloud: no such instance
        failed: no such instance
        tried again after 7s
    "#]]
    .assert_eq(&told);
    assert_eq!(render_outcome(&moved(&parse(TAINTED), Err(refusal))), "", "it was right once");
}

#[test]
fn an_address_that_was_given_comes_first_and_is_the_only_one_of_its_type() {
    let wanted = |given: &str, all: &[(&str, &str)]| {
        let node: Arc<Node> = parse(&format!(
            "{{metadata: {{name: a, annotations: {{alpha.kubernetes.io/provided-node-ip: '{given}'}}}},
               status: {{addresses: [{{type: Hostname, address: a}}]}}}}"
        ));
        let all: Vec<_> = all.iter().map(|(kind, text)| address(kind, text)).collect();
        let patch = address::patch(&node, &all)?;
        Ok::<_, Refusal>(patch.map(|action| {
            let mut plan = Plan::nothing();
            plan.push(action);
            let told = render(&plan);
            told.split_once("replace\"},").unwrap().1.trim_end().trim_end_matches("]}}").replace('"', "")
        }))
    };
    let (first, second, third) =
        (("InternalIP", "192.0.2.1"), ("InternalIP", "192.0.2.2"), ("ExternalIP", "198.51.100.1"));
    let six = ("InternalIP", "2001:db8::1");
    assert_eq!(
        wanted("192.0.2.2", &[first, second, third]).unwrap().unwrap(),
        "{address:192.0.2.2,type:InternalIP},{address:198.51.100.1,type:ExternalIP},{address:a,type:Hostname}"
    );
    assert_eq!(
        wanted("192.0.2.1,2001:db8::1", &[six, second, first, ("Hostname", "b")]).unwrap().unwrap(),
        "{address:192.0.2.1,type:InternalIP},{address:2001:db8::1,type:InternalIP},{address:b,type:Hostname}"
    );
    for (given, expect) in [
        ("192.0.2.9", "failed to get node address from cloud provider that matches ip: 192.0.2.9"),
        ("192.0.2.1,192.0.2.2", "failed to parse node IP"),
        ("192.0.2.1,", "failed to parse node IP"),
        ("", "failed to parse node IP"),
        ("everywhere", "failed to parse node IP"),
    ] {
        assert!(
            wanted(given, &[first, second]).is_err_and(|refusal| refusal.message.contains(expect)),
            "{given}"
        );
    }
    assert!(wanted("192.0.2.1", &[]).is_err(), "the cloud does not know it");
}

#[test]
fn addresses_are_asked_for_from_time_to_time_and_written_if_they_differ() {
    let node = parse(
        "{metadata: {name: a, uid: u}, status: {addresses: [{type: InternalIP, address: 192.0.2.1},
        {type: Hostname, address: a}]}}",
    );
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let ago = |minutes: i64| noon().checked_sub(SignedDuration::from_mins(minutes)).unwrap();
    for (asked, expect) in [
        (None, "- ask InstanceMetadata a\nagain after 300s\n"),
        (Some(ago(5)), "- ask InstanceMetadata a\nagain after 300s\n"),
        (Some(ago(2)), "again after 180s\n"),
        // A clock that was put back.
        (Some(ago(-60)), "- ask InstanceMetadata a\nagain after 300s\n"),
    ] {
        assert_eq!(render(&plan(&node, asked, minutes(5), noon())), expect, "{asked:?}");
    }
    assert_eq!(
        render(&plan(&parse(TAINTED), Some(noon()), minutes(5), noon())),
        "- ask InstanceMetadata a\n"
    );
    let told = |addresses: &[(&str, &str)]| {
        let addresses = addresses.iter().map(|(kind, text)| address(kind, text)).collect();
        render_outcome(&moved(&node, read(v1::InstanceMetadataResponse { addresses, ..Default::default() })))
    };
    assert_eq!(told(&[("InternalIP", "192.0.2.1")]), "");
    assert_eq!(told(&[]), "", "a cloud that says nothing changes nothing");
    assert!(told(&[("InternalIP", "192.0.2.7")]).contains("192.0.2.7"));
}

#[test]
fn labels_of_old_count_for_those_of_new() {
    let told = |labels: &str| {
        let node = parse(&format!("{{metadata: {{name: a, uid: u, labels: {{{labels}}}}}}}"));
        render(&plan(&node, Some(noon()), Duration::from_secs(60), noon())).replace("again after 60s\n", "")
    };
    let (old, new) = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone");
    assert_eq!(told(&format!("{old}: a, {new}: a")), "");
    assert_eq!(told(&format!("{new}: a")), "");
    for labels in [format!("{old}: a"), format!("{old}: a, {new}: b")] {
        assert!(
            told(&labels).contains(&format!("{{\"labels\":{{\"{new}\":\"a\"}},\"uid\":\"u\"}}")),
            "{labels}"
        );
    }
}

/// Source: `TestGetNodeAddressesFromNodeIP` of upstream's `cloud-provider/node/helpers`. `i` is an InternalIP, `e` an
/// ExternalIP, `I` and `E` are names, `h` is the host's.
const GIVEN: [(&str, &str, &str, Option<&str>); 14] = [
    ("one", "10.1.1.1", "i=10.1.1.1 h=a", Some("i=10.1.1.1 h=a")),
    ("external", "55.55.55.55", "i=10.1.1.1 e=55.55.55.55 h=a", Some("e=55.55.55.55 i=10.1.1.1 h=a")),
    (
        "inside and outside the same",
        "55.55.55.55",
        "i=44.44.44.44 e=44.44.44.44 i=55.55.55.55 e=55.55.55.55 h=a",
        Some("i=55.55.55.55 e=55.55.55.55 h=a"),
    ),
    (
        "names",
        "10.1.1.1",
        "i=10.1.1.1 e=55.55.55.55 I=ip-10-1-1-1.internal E=ec2.example.com h=a",
        Some("i=10.1.1.1 e=55.55.55.55 I=ip-10-1-1-1.internal E=ec2.example.com h=a"),
    ),
    (
        "several inside",
        "10.1.1.1",
        "i=10.1.1.1 i=10.2.2.2 i=10.3.3.3 e=55.55.55.55 h=a",
        Some("i=10.1.1.1 e=55.55.55.55 h=a"),
    ),
    ("unknown", "10.2.2.2", "i=10.1.1.1 e=55.55.55.55 h=a", None),
    (
        "written otherwise",
        "2600:1f14:1d4:d101::ba3d",
        "i=10.1.1.1 i=2600:1f14:1d4:d101:0:0:0:ba3d h=a",
        Some("i=2600:1f14:1d4:d101:0:0:0:ba3d h=a"),
    ),
    ("two, of which the cloud has one", "10.1.1.1,fc01:1234::5678", "i=10.1.1.1 h=a", None),
    (
        "two",
        "10.1.1.1,fc01:1234::5678",
        "i=10.1.1.1 i=fc01:1234::5678 h=a",
        Some("i=10.1.1.1 i=fc01:1234::5678 h=a"),
    ),
    (
        "two, in the order that was given",
        "10.1.1.1,fc01:1234::5678",
        "i=fc01:1234::5678 i=10.1.1.1 h=a",
        Some("i=10.1.1.1 i=fc01:1234::5678 h=a"),
    ),
    (
        "two of several",
        "10.1.1.1,fc01:1234::5678",
        "i=10.1.1.1 i=10.1.1.2 i=fc01:1234::1234 i=fc01:1234::5678 h=a",
        Some("i=10.1.1.1 i=fc01:1234::5678 h=a"),
    ),
    (
        "two, and one outside",
        "10.1.1.1,fc01:1234::5678",
        "i=10.1.1.1 e=55.55.55.55 i=fc01:1234::1234 i=fc01:1234::5678 h=a",
        Some("i=10.1.1.1 i=fc01:1234::5678 e=55.55.55.55 h=a"),
    ),
    (
        "two, and two outside",
        "fc01:1234::5678,10.1.1.1",
        "i=10.1.1.1 e=55.55.55.55 i=fc01:1234::5678 e=2001:db1::1 h=a",
        Some("i=fc01:1234::5678 i=10.1.1.1 e=55.55.55.55 e=2001:db1::1 h=a"),
    ),
    (
        "one outside and one inside",
        "55.55.55.55,fc01:1234::5678",
        "i=10.1.1.1 e=55.55.55.55 i=fc01:1234::5678 e=2001:db1::1 h=a",
        Some("e=55.55.55.55 i=fc01:1234::5678 h=a"),
    ),
];

#[test]
fn addresses_that_were_given_are_chosen_as_upstreams_rows_have_it() {
    let read = |text: &str| -> Vec<(String, String)> {
        let kind = |letter: &str| match letter {
            "i" => "InternalIP",
            "e" => "ExternalIP",
            "I" => "InternalDNS",
            "E" => "ExternalDNS",
            _ => "Hostname",
        };
        let all = text.split_whitespace().map(|word| word.split_once('=').unwrap());
        all.map(|(letter, address)| (kind(letter).to_owned(), address.to_owned())).collect()
    };
    for (name, given, cloud, expect) in GIVEN {
        let node: Arc<Node> = parse(&format!(
            "{{metadata: {{name: a, annotations: {{alpha.kubernetes.io/provided-node-ip: '{given}'}}}}}}"
        ));
        let cloud: Vec<_> = read(cloud).iter().map(|(kind, text)| address(kind, text)).collect();
        let patch = address::patch(&node, &cloud).ok().flatten();
        let found = patch.map(|action| {
            let Action::Request(request) = action else { panic!("{name}") };
            let list = request.body["status"]["addresses"].as_array().unwrap().clone();
            let text = |one: &Value, key: &str| one[key].as_str().unwrap().to_owned();
            list[1..].iter().map(|one| (text(one, "type"), text(one, "address"))).collect::<Vec<_>>()
        });
        assert_eq!(found, expect.map(read), "{name}");
    }
}

#[test]
fn heartbeats_wake_nobody() {
    let usual = "{metadata: {name: a, uid: u, labels: {x: y}}, spec: {providerID: p, taints: [{key: t, effect: NoExecute}]}}";
    for (new, expect) in [
        (usual.to_owned(), false),
        (usual.replace("name: a", "name: a, resourceVersion: '8', annotations: {x: y}"), false),
        (usual.replace("spec:", "status: {conditions: [{type: Ready, status: 'False'}]}, spec:"), false),
        (usual.replace("providerID: p", "providerID: p, podCIDR: 10.0.0.0/24, unschedulable: true"), false),
        (usual.replace("uid: u", "uid: v"), true),
        (usual.replace("x: y", "x: z"), true),
        (usual.replace("providerID: p", "providerID: q"), true),
        (usual.replace("NoExecute", "NoSchedule"), true),
        (
            usual
                .replace("uid: u", "uid: u, annotations: {alpha.kubernetes.io/provided-node-ip: '10.0.0.1'}"),
            true,
        ),
        (String::new(), true),
    ] {
        assert_eq!(is_news(&change(usual, &new)), expect, "{new}");
        assert_eq!(is_news(&change(&new, usual)), expect, "back from {new}");
    }
}
