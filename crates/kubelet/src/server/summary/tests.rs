//! What is shown of the node and its Pods.

use sys::usage::Traffic;

use super::*;
use crate::server::resource_metrics::tests::look;

#[test]
fn the_summary_has_upstreams_fields() {
    let tree = Size { bytes: 512, inodes: 1 };
    let pod = PodDisk {
        logs: [("main".to_owned(), tree)].into(),
        volumes: [("scratch".to_owned(), tree)].into(),
        ..PodDisk::default()
    };
    let disks = Disks {
        node: FileSystem { capacity: 1000, available: 600, used: 400, inodes: 10, inodes_free: 4 },
        pods: [("u".to_owned(), pod)].into(),
        claims: Arc::new(vec![VolumeStats {
            pod_uid: "u".to_owned(),
            name: "data".to_owned(),
            claim: Some(("shop".to_owned(), "data-0".to_owned())),
            capacity: Some(7),
            ..VolumeStats::default()
        }]),
        processes: Some(80),
        layers: [("abc".to_owned(), Size { bytes: 64, inodes: 2 })].into(),
        links: vec![Link {
            name: "eth0".into(),
            rx: Traffic { bytes: 5, ..Traffic::default() },
            ..Link::default()
        }],
        ..Disks::default()
    };
    let mut look = look();
    let stall = Stall { averages: [1.5, 0.5, 0.0], total_us: 7 };
    look.node.pressure = Some([Pressure { some: stall, full: Stall::default() }; 3]);
    look.pods[0].containers[0].usage.swap_limit_bytes = 9;
    let value = render(&look, Some(&disks), "n1", Timestamp::UNIX_EPOCH);
    assert_eq!(value["node"]["nodeName"], "n1");
    assert_eq!(value["node"]["rlimit"]["curproc"], 80);
    let some = json!({"total": 7, "avg10": 1.5, "avg60": 0.5, "avg300": 0.0});
    assert_eq!(value["node"]["cpu"]["psi"]["some"], some);
    assert_eq!(
        (&value["node"]["io"]["psi"]["some"], &value["node"]["memory"]["psi"]["some"]),
        (&some, &some)
    );
    assert_eq!(value["node"]["systemContainers"][0]["name"], "pods");
    assert_eq!(value["node"]["network"]["interfaces"][0]["rxBytes"], 5);
    let container = &value["pods"][0]["containers"][0];
    assert_eq!(
        (&container["swap"]["swapAvailableBytes"], &container["rootfs"]["usedBytes"]),
        (&json!(9), &json!(64))
    );
    assert!(value["pods"][0].get("io").is_none(), "the kernel does not tell");
    assert_eq!(value["node"]["fs"]["inodesUsed"], 6);
    let pod = &value["pods"][0];
    assert_eq!(pod["podRef"]["namespace"], "shop");
    assert_eq!(pod["containers"][0]["cpu"]["usageNanoCores"], 250_000_000);
    assert_eq!(pod["containers"][0]["logs"]["usedBytes"], 512);
    assert_eq!(pod["volume"][0]["name"], "scratch");
    assert_eq!(pod["volume"][1]["pvcRef"], json!({"name": "data-0", "namespace": "shop"}));
    assert_eq!(pod["volume"][1]["capacityBytes"], 7);
    assert!(pod["volume"][1].get("inodes").is_none());
    assert_eq!(pod["ephemeral-storage"]["usedBytes"], 1024 + 64);
    let value = render(&look, None, "n1", Timestamp::UNIX_EPOCH);
    assert!(value["node"].get("fs").is_none() && value["pods"][0].get("volume").is_none());
}

fn number(value: u64) -> Option<v1::UInt64Value> {
    Some(v1::UInt64Value { value })
}

fn interface(name: &str, rx: u64) -> v1::NetworkInterfaceUsage {
    v1::NetworkInterfaceUsage {
        name: name.into(),
        rx_bytes: number(rx),
        rx_errors: number(1),
        tx_bytes: number(2),
        ..v1::NetworkInterfaceUsage::default()
    }
}

/// Source: `TestListPodStatsStrictlyFromCRI`, `criInterfaceToSummary` of upstream's `pkg/kubelet/stats`.
#[test]
fn a_pods_network_is_its_default_interface_with_all_beside() {
    for (name, default, others, expect, names) in [
        ("nothing", None, vec![], None, ""),
        ("one", Some(interface("eth0", 7)), vec![], Some(("eth0", 7)), "eth0"),
        ("two", Some(interface("eth0", 7)), vec![interface("net1", 8)], Some(("eth0", 7)), "eth0 net1"),
        ("none that is the default", None, vec![interface("net1", 8)], None, "net1"),
    ] {
        let usage = v1::NetworkUsage {
            default_interface: default,
            interfaces: others,
            ..v1::NetworkUsage::default()
        };
        let shown = network(&look(), &usage);
        let of_default = shown.get("name").and_then(Value::as_str).zip(shown["rxBytes"].as_u64());
        assert_eq!(of_default, expect, "{name}");
        let all = shown["interfaces"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str());
        assert_eq!(all.collect::<Vec<_>>().join(" "), names, "{name}");
        assert!(shown["time"].is_string(), "{name}");
        if expect.is_some() {
            assert_eq!(
                (&shown["rxErrors"], &shown["txBytes"], &shown["txErrors"]),
                (&json!(1), &json!(2), &json!(0))
            );
        }
    }
}

#[test]
fn the_hosts_network_is_the_first_of_its_name() {
    let link = |name: &str, bytes: u64| Link {
        name: name.into(),
        rx: Traffic { bytes, ..Traffic::default() },
        ..Link::default()
    };
    for (links, expect) in [
        (vec![], json!("")),
        (vec![link("lo", 1), link("eth0", 2)], json!("eth0")),
        (vec![link("ens3", 1)], json!("")),
    ] {
        let shown = host_network(&look(), &links);
        assert_eq!((&shown["name"], shown["interfaces"].as_array().unwrap().len()), (&expect, links.len()));
        assert_eq!(shown.get("rxBytes").is_some(), expect == "eth0", "nothing of what is not there");
    }
}

#[test]
fn what_is_left_is_told_where_there_is_a_limit() {
    let usage = |working_set_bytes: u64, swap_bytes: u64, swap_limit_bytes: u64| Usage {
        working_set_bytes,
        swap_bytes,
        swap_limit_bytes,
        ..Usage::default()
    };
    for (capacity, used, expect) in
        [(0, 5, None), (10, 5, Some(5)), (10, 10, Some(0)), (10, 20, Some(0)), (u64::MAX, 0, Some(u64::MAX))]
    {
        let shown = memory(&look(), &usage(used, 0, 0), capacity);
        assert_eq!(shown.get("availableBytes").and_then(Value::as_u64), expect, "{used} of {capacity}");
        assert_eq!(shown["workingSetBytes"], used);
        let shown = swap(&look(), &usage(0, used, capacity));
        assert_eq!(shown.get("swapAvailableBytes").and_then(Value::as_u64), expect, "{used} of {capacity}");
        assert_eq!(shown["swapUsageBytes"], used);
    }
    let fs = FileSystem { capacity: 10, available: 2, used: 8, inodes: 5, inodes_free: 9 };
    let shown = file_system(&look(), fs);
    assert_eq!(
        (&shown["inodesUsed"], &shown["availableBytes"]),
        (&json!(0), &json!(2)),
        "never less than nothing"
    );
    let part = part_of(&look(), fs, Size { bytes: 3, inodes: 1 });
    assert_eq!(
        (&part["usedBytes"], &part["inodesUsed"], &part["capacityBytes"]),
        (&json!(3), &json!(1), &json!(10))
    );
}

/// Source: `volume_stat_calculator_test.go` of upstream's `pkg/kubelet/server/stats`.
#[test]
fn a_volume_tells_what_its_driver_says_and_no_more() {
    let nothing = VolumeStats { name: "data".into(), ..VolumeStats::default() };
    let shown = of_volume(&look(), &nothing);
    assert_eq!(shown.as_object().unwrap().keys().collect::<Vec<_>>(), ["name", "time"]);
    let all = VolumeStats {
        name: "data".into(),
        claim: Some(("shop".into(), "claim".into())),
        available: Some(1),
        capacity: Some(2),
        used: Some(3),
        inodes_free: Some(4),
        inodes: Some(5),
        inodes_used: Some(6),
        is_abnormal: Some(true),
        ..VolumeStats::default()
    };
    let mut shown = of_volume(&look(), &all);
    shown.as_object_mut().unwrap().remove("time");
    let expect = json!({
        "name": "data", "availableBytes": 1, "capacityBytes": 2, "usedBytes": 3, "inodesFree": 4, "inodes": 5,
        "inodesUsed": 6, "pvcRef": {"name": "claim", "namespace": "shop"}, "volumeHealthStats": {"abnormal": true},
    });
    assert_eq!(shown, expect);
}
