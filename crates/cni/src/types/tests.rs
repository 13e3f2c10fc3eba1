use serde_json::json;

use super::*;

/// Source: `ValidateNetworkName`, `ValidateContainerID` of libcni's `utils`.
#[test]
fn names_begin_with_a_letter_or_digit_and_lead_nowhere() {
    for (name, expect) in [
        ("a", true),
        ("0", true),
        ("net-1_b.conf", true),
        ("9f8e7d", true),
        ("", false),
        ("-a", false),
        (".a", false),
        ("..", false),
        ("_a", false),
        ("a/b", false),
        ("a b", false),
        ("a\n", false),
        ("a\0", false),
        ("ä", false),
        ("a;b", false),
    ] {
        assert_eq!(is_name(name), expect, "{name:?}");
    }
}

#[test]
fn versions_are_compared_by_their_numbers() {
    for (version, than, expect) in [
        ("0.3.1", (0, 4), false),
        ("0.4.0", (0, 4), true),
        ("0.10.0", (0, 4), true),
        ("1.0.0", (0, 4), true),
        ("1.0.0", (1, 1), false),
        ("1.1.0", (1, 1), true),
        ("10.0", (1, 1), true),
        ("2", (1, 1), true),
        ("1", (1, 1), false),
        ("", (0, 1), false),
        ("v1.1.0", (1, 1), false),
        ("1.x", (1, 1), false),
    ] {
        assert_eq!(is_at_least(version, than), expect, "{version} {than:?}");
    }
}

/// Everything that a result of 1.1 can say.
fn newest() -> CniResult {
    let result = json!({
        "cniVersion": "1.1.0",
        "interfaces": [
            { "name": "b0", "mac": "02:00:00:00:00:01", "mtu": 1500 },
            { "name": "eth0", "mac": "02:00:00:00:00:02", "mtu": 1450, "sandbox": "/run/netns/a",
              "socketPath": "/run/vhost", "pciID": "0000:00:1f.6" },
        ],
        "ips": [
            { "address": "10.7.0.2/24", "gateway": "10.7.0.1", "interface": 1 },
            { "address": "fd42::2/64", "interface": 1 },
        ],
        "routes": [{ "dst": "0.0.0.0/0", "gw": "10.7.0.1", "mtu": 1400, "advmss": 1360, "priority": 100, "table": 50, "scope": 253 }],
        "dns": { "nameservers": ["10.7.0.1"] },
    });
    serde_json::from_value(result).unwrap()
}

/// Source: CNI specification, "result", of each version; `types/040` and `types/100` of libcni, which convert.
#[test]
fn a_result_says_in_each_version_what_that_has() {
    let interfaces = |is_newest: bool| match is_newest {
        true => json!(newest().interfaces),
        false => json!([
            { "name": "b0", "mac": "02:00:00:00:00:01" },
            { "name": "eth0", "mac": "02:00:00:00:00:02", "sandbox": "/run/netns/a" },
        ]),
    };
    for (version, says_kind, is_newest) in [
        ("0.3.0", true, false),
        ("0.3.1", true, false),
        ("0.4.0", true, false),
        ("1.0.0", false, false),
        ("1.1.0", false, true),
    ] {
        let found = json!(newest().converted(version));
        assert_eq!(found["cniVersion"], version);
        assert_eq!(found["interfaces"], interfaces(is_newest), "{version}");
        let kinds: Vec<Option<&str>> =
            found["ips"].as_array().unwrap().iter().map(|ip| ip.get("version")?.as_str()).collect();
        assert_eq!(kinds, if says_kind { [Some("4"), Some("6")] } else { [None, None] }, "{version}");
        let route = json!({ "dst": "0.0.0.0/0", "gw": "10.7.0.1" });
        assert_eq!(
            found["routes"][0],
            if is_newest { json!(newest().routes[0]) } else { route },
            "{version}"
        );
        assert_eq!(found["dns"], json!({ "nameservers": ["10.7.0.1"] }), "{version}");
        let back = serde_json::from_value::<CniResult>(found).unwrap().converted(version);
        assert_eq!(back, newest().converted(version), "{version}");
    }
    assert_eq!(newest().converted("1.1.0"), newest());
}

/// Source: what plugins in Go print, where lists and addresses may be `null` or empty.
#[test]
fn results_are_read_as_plugins_write_them_or_not_at_all() {
    for (result, expect) in [
        (json!({}), Ok("")),
        (json!({ "interfaces": null, "ips": null, "routes": null, "dns": null }), Ok("")),
        (json!({ "ips": [{ "address": "10.7.0.2/24", "gateway": "" }] }), Ok("10.7.0.2")),
        (
            json!({ "ips": [{ "address": "10.7.0.2/24", "gateway": null, "interface": null }] }),
            Ok("10.7.0.2"),
        ),
        (json!({ "ips": [{ "address": "10.7.0.2/24", "version": "4", "more": [] }] }), Ok("10.7.0.2")),
        (
            json!({ "ips": [{ "address": "fd42::2/64" }, { "address": "10.7.0.2/24" }] }),
            Ok("fd42::2 10.7.0.2"),
        ),
        (json!({ "ips": [{ "address": "10.7.0.2" }] }), Ok("10.7.0.2")),
        (json!({ "ips": [{ "address": "nowhere/24" }] }), Ok("")),
        (json!({ "ips": [{ "address": "10.7.0.2/24", "interface": 9 }] }), Ok("")),
        (
            json!({ "interfaces": [{ "name": "eth0" }, { "name": "net1" }],
                "ips": [{ "address": "10.7.0.2/24", "interface": 1 }, { "address": "10.7.0.3/24", "interface": 0 }] }),
            Ok("10.7.0.3"),
        ),
        (
            json!({ "ips": [{ "address": "10.7.0.2/24", "interface": -1 }] }),
            Err("invalid value: integer `-1`"),
        ),
        (
            json!({ "ips": [{ "address": "10.7.0.2/24", "gateway": "host" }] }),
            Err("invalid IP address syntax"),
        ),
        (json!({ "ips": [{ "gateway": "10.7.0.1" }] }), Err("missing field `address`")),
        (json!({ "ips": "10.7.0.2" }), Err("invalid type: string")),
        (json!({ "interfaces": [{ "mac": "02:00:00:00:00:01" }] }), Err("missing field `name`")),
        (json!({ "routes": [{ "gw": "10.7.0.1" }] }), Err("missing field `dst`")),
        (json!("10.7.0.2"), Err("invalid type: string")),
    ] {
        let found = serde_json::from_value::<CniResult>(result.clone()).map(|result| {
            let ips = result.pod_ips("eth0");
            ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        });
        match (found.map_err(|error| error.to_string()), expect) {
            (Err(found), Err(expect)) => assert!(found.starts_with(expect), "{result}: {found}"),
            (found, expect) => {
                assert_eq!(found, expect.map(str::to_owned).map_err(str::to_owned), "{result}")
            }
        }
    }
}

/// Source: `readFlag` of libcni's `NetworkConfFromBytes`.
#[test]
fn flags_of_a_list_are_truths_or_texts_of_them() {
    for (flag, expect) in [
        (json!(true), Some(true)),
        (json!(false), Some(false)),
        (json!("TRUE"), Some(true)),
        (json!("False"), Some(false)),
        (json!("yes"), None),
        (json!(""), None),
        (json!(1), None),
        (json!(null), None),
    ] {
        for name in ["disableCheck", "disableGC", "loadOnlyInlinedPlugins"] {
            let list = json!({ "name": "n", name: flag });
            let list = serde_json::from_value::<NetworkConfigList>(list).ok();
            let found =
                list.map(|list| [list.disable_check, list.disable_gc, list.load_only_inlined_plugins]);
            assert_eq!(found.map(|flags| flags.contains(&true)), expect, "{name} {flag}");
        }
    }
}

#[test]
fn ports_of_the_host_are_numbers_of_ports() {
    for (mapping, expect) in [
        (json!({ "hostPort": 80, "containerPort": 8080 }), Some("80 8080 tcp ")),
        (json!({ "hostPort": 0, "containerPort": 65535, "protocol": "udp" }), Some("0 65535 udp ")),
        (json!({ "hostPort": 80, "containerPort": 80, "hostIP": "::" }), Some("80 80 tcp ::")),
        (json!({ "hostPort": 65536, "containerPort": 80 }), None),
        (json!({ "hostPort": -1, "containerPort": 80 }), None),
        (json!({ "hostPort": "80", "containerPort": 80 }), None),
        (json!({ "hostPort": 80 }), None),
    ] {
        let found = serde_json::from_value::<PortMapping>(mapping.clone()).ok();
        let found =
            found.map(|it| format!("{} {} {} {}", it.host_port, it.container_port, it.protocol, it.host_ip));
        assert_eq!(found.as_deref(), expect, "{mapping}");
    }
}

/// Source: libcni's `Error.Error`, and how its callers name what they did.
#[test]
fn failures_are_told_in_libcnis_words() {
    let plugin = |command, details: &str| {
        let body = ErrorBody { code: 11, msg: "later".into(), details: details.into() };
        CniError::Plugin { plugin: "bridge".into(), network: "n".into(), command, body }.to_string()
    };
    assert_eq!(plugin("ADD", ""), r#"plugin type="bridge" name="n" failed (add): later"#);
    assert_eq!(plugin("DEL", "soon"), r#"plugin type="bridge" name="n" failed (delete): later; soon"#);
    let missing = CniError::PluginMissing { plugin: "x".into(), searched: vec!["/a".into(), "/b".into()] };
    assert_eq!(missing.to_string(), r#"failed to find plugin "x" in path ["/a", "/b"]"#);
    let again = CniError::Before(Arc::new(CniError::state("/f")(std::io::Error::other("full"))));
    assert_eq!(again.to_string(), "cannot use /f: full");
}
