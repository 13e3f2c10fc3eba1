//! Calls in each version, and hostile ones. Source: CNI specification 1.1.0, section 2; libcni's `pkg/skel` tests.

use super::*;

const POD: [(&str, &str); 3] =
    [("CNI_CONTAINERID", "c1"), ("CNI_NETNS", "/run/netns/none-such"), ("CNI_IFNAME", "eth0")];

/// A call with the usual variables but for these; an empty one is as good as none.
fn read(command: &str, changes: &[(&str, &str)], conf: Value) -> Result<Call, ErrorBody> {
    let env = |name: &str| {
        let all = [("CNI_COMMAND", command)].into_iter().chain(POD).rev().collect::<Vec<_>>();
        let found = changes.iter().chain(&all).find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    Call::read(env, conf)
}

fn conf(version: &str) -> Value {
    json!({ "cniVersion": version, "name": "n", "cni.dev/valid-attachments": [] })
}

/// The error's code and text, or nothing.
fn refused(call: Result<Call, ErrorBody>) -> String {
    call.map_or_else(|error| format!("{} {}", error.code, error), |_| String::new())
}

#[test]
fn each_verb_is_there_from_its_version_on() {
    for (command, since) in
        [("ADD", "0.3.0"), ("DEL", "0.3.0"), ("CHECK", "0.4.0"), ("GC", "1.1.0"), ("STATUS", "1.1.0")]
    {
        for version in VERSIONS {
            let expect = match version < since {
                true => format!("1 config version does not allow {command}; config is {version:?}"),
                false => String::new(),
            };
            assert_eq!(refused(read(command, &[], conf(version))), expect, "{command} {version}");
        }
        for version in ["", "0.1.0", "0.2.0", "1.2.0", "2.0.0", "1.1", "latest"] {
            let found = refused(read(command, &[], conf(version)));
            assert!(
                found.starts_with("1 incompatible CNI versions; config is"),
                "{command} {version}: {found}"
            );
        }
        let found = refused(read(command, &[], json!({ "name": "n" })));
        assert!(found.contains(r#"config is "0.1.0""#), "one that says none is old: {found}");
    }
    assert_eq!(read("VERSION", &[], json!({})).unwrap().verb, Verb::Version);
    assert_eq!(read("VERSION", &[], json!({ "cniVersion": "9.0.0" })).unwrap().verb, Verb::Version);
}

#[test]
fn each_verb_needs_its_variables_and_no_others() {
    let all = ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"];
    for (command, needed) in [
        ("ADD", &all[..]),
        ("CHECK", &all),
        ("DEL", &["CNI_CONTAINERID", "CNI_IFNAME"]),
        ("GC", &[]),
        ("STATUS", &[]),
        ("VERSION", &[]),
    ] {
        for absent in all {
            let expect = match needed.contains(&absent) {
                true => format!("4 required env variables [{absent}] missing"),
                false => String::new(),
            };
            assert_eq!(refused(read(command, &[(absent, "")], conf("1.1.0"))), expect, "{command} {absent}");
        }
        let none = all.map(|name| (name, ""));
        let expect = format!("4 required env variables [{}] missing", needed.join(","));
        let expect = if needed.is_empty() { String::new() } else { expect };
        assert_eq!(refused(read(command, &none, conf("1.1.0"))), expect, "{command}");
    }
    for command in ["add", "ADD ", "UPDATE", "ADD\0"] {
        let expect = format!("4 unknown CNI_COMMAND: {command}");
        assert_eq!(refused(read(command, &[], conf("1.1.0"))), expect);
    }
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let ifname = "4 interface name must be a name of at most 15 bytes without / : and spaces; ";
    let (id, network) =
        ("4 invalid characters in containerID; ", "7 invalid characters found in network name; ");
    for (name, value, expect) in [
        ("CNI_CONTAINERID", "../../etc", id),
        ("CNI_CONTAINERID", "a b", id),
        ("CNI_CONTAINERID", "-a", id),
        ("CNI_IFNAME", ".", ifname),
        ("CNI_IFNAME", "..", ifname),
        ("CNI_IFNAME", "eth0/x", ifname),
        ("CNI_IFNAME", "eth0:1", ifname),
        ("CNI_IFNAME", "eth 0", ifname),
        ("CNI_IFNAME", "sixteen-bytes-xx", ifname),
    ] {
        let found = refused(read("ADD", &[(name, value)], conf("1.0.0")));
        assert_eq!(found, format!("{expect}{value}"), "{name}={value:?}");
    }
    assert_eq!(refused(read("ADD", &[("CNI_IFNAME", "fifteen-bytes-x")], conf("1.0.0"))), "");
    for name in ["../n", "a/b", "-n", "a b"] {
        let conf = json!({ "cniVersion": "1.0.0", "name": name });
        assert_eq!(refused(read("ADD", &[], conf)), format!("{network}{name}"));
    }
    for name in [json!(""), json!(null), json!(7), json!(["n"])] {
        let conf = json!({ "cniVersion": "1.0.0", "name": name });
        assert_eq!(refused(read("DEL", &[], conf)), "7 missing network name", "{name}");
    }
}

#[test]
fn arguments_are_pairs_of_which_the_first_counts() {
    for (arguments, expect) in [
        ("IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web;K8S_POD_UID=u", "ns web u"),
        ("K8S_POD_NAME=a;K8S_POD_NAME=b", " a "),
        ("K8S_POD_NAME=a=b", " a=b "),
        ("K8S_POD_NAME", "  "),
        (";;=;K8S_POD_NAME=;", "  "),
        ("k8s_pod_name=a", "  "),
        ("", "  "),
    ] {
        let call = read("ADD", &[("CNI_ARGS", arguments)], conf("1.0.0")).unwrap().attachment;
        let found = format!("{} {} {}", call.pod_namespace, call.pod_name, call.pod_uid);
        assert_eq!(found, expect, "{arguments}");
    }
}

#[test]
fn what_the_runtime_tells_is_read_in_any_case_and_comes_first() {
    let ask = |told: Value, arguments: &str| {
        let mut conf = conf("1.0.0");
        conf["args"] = json!({ "cni": { "mac": "02:00:00:00:00:02" } });
        conf["runtimeConfig"] = told;
        read("ADD", &[("CNI_ARGS", arguments)], conf).map(|call| call.attachment)
    };
    let all = json!({
        "portMappings": [{ "HOSTPORT": 80, "ContainerPort": 8080, "hostip": "192.0.2.1", "Protocol": "udp" }],
        "bandwidth": { "IngressRate": 1000, "egressburst": 8, "other": 1 },
        "ips": ["10.7.0.5"],
        "dns": { "servers": [] },
    });
    let attachment = ask(all, "IP=10.7.0.6;MAC=02:00:00:00:00:03").unwrap();
    let port = PortMapping {
        host_port: 80,
        container_port: 8080,
        protocol: "udp".into(),
        host_ip: "192.0.2.1".into(),
    };
    assert_eq!(attachment.port_mappings, [port]);
    let capabilities = json!({
        "bandwidth": { "ingressRate": 1000, "egressBurst": 8, "other": 1 },
        "ips": ["10.7.0.5"],
        "mac": "02:00:00:00:00:02",
    });
    assert_eq!(json!(attachment.capabilities), capabilities, "the runtime, the configuration, the arguments");
    let nothing = ask(json!(null), "IP=10.7.0.6;MAC=02:00:00:00:00:03").unwrap();
    assert_eq!(json!(nothing.capabilities), json!({ "ips": ["10.7.0.6"], "mac": "02:00:00:00:00:02" }));
    assert!(nothing.port_mappings.is_empty());
    for (ports, is_read) in [
        (json!(null), true),
        (json!([]), true),
        (json!({}), false),
        (json!([null]), false),
        (json!([{ "hostPort": 70000, "containerPort": 1 }]), false),
        (json!("80"), false),
    ] {
        let found = ask(json!({ "portMappings": ports }), "");
        assert_eq!(found.is_ok(), is_read, "{ports}");
        assert!(found.map_or_else(|error| error.code == 7, |found| found.port_mappings.is_empty()));
    }
}

/// An entry that cannot be read must not free what it is about.
#[test]
fn what_is_attached_is_told_whole_or_nothing_is_freed() {
    let pair = |id: &str, ifname: &str| json!({ "containerID": id, "ifname": ifname });
    for (attachments, expect) in [
        (json!([]), Some(0)),
        (json!([pair("a", "eth0"), pair("a", "eth1"), pair("b", "eth0"), pair("a", "eth0")]), Some(3)),
        (json!(null), None),
        (json!({}), None),
        (json!([pair("a", "eth0"), {}]), None),
        (json!([{ "containerID": "a" }]), None),
        (json!([{ "containerID": 7, "ifname": "eth0" }]), None),
        (json!(["a"]), None),
    ] {
        let conf = json!({ "cniVersion": "1.1.0", "name": "n", "cni.dev/valid-attachments": attachments });
        let found = read("GC", &[], conf.clone()).ok().map(|call| call.attached.interfaces.len());
        assert_eq!(found, expect, "{attachments}");
        assert!(read("STATUS", &[], conf).is_ok(), "nobody else minds");
    }
}

#[test]
fn the_result_of_the_plugin_before_is_read_or_refused() {
    for (previous, expect) in [
        (json!(null), Ok(false)),
        (json!({}), Ok(true)),
        (json!({ "cniVersion": "0.3.1", "ips": [{ "version": "4", "address": "10.7.0.2/24" }] }), Ok(true)),
        (json!("result"), Err("prevResult: invalid type: string")),
        (json!({ "ips": [{}] }), Err("prevResult: missing field `address`")),
    ] {
        let mut conf = conf("1.0.0");
        conf["prevResult"] = previous.clone();
        let found = read("ADD", &[], conf).unwrap().previous();
        match (found.map(|found| found.is_some()).map_err(|error| error.to_string()), expect) {
            (Err(found), Err(expect)) => assert!(found.contains(expect), "{previous}: {found}"),
            (found, expect) => assert_eq!(found, expect.map_err(str::to_owned), "{previous}"),
        }
    }
}
