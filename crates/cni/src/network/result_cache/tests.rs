use serde_json::json;

use super::*;

/// As libcni writes it. Source: `cacheAdd` of its `api.go`.
fn of_libcni() -> Value {
    let conflist = json!({ "cniVersion": "1.0.0", "name": "n", "plugins": [{ "type": "bridge" }] });
    json!({
        "kind": "cniCacheV1",
        "containerId": "c1",
        "config": STANDARD.encode(conflist.to_string()),
        "ifName": "eth0",
        "networkName": "n",
        "netns": "/run/netns/a",
        "cniArgs": [["K8S_POD_NAME", "web"], ["K8S_POD_NAMESPACE", "ns"]],
        "capabilityArgs": { "portMappings": [{ "hostPort": 80, "containerPort": 8080 }], "bandwidth": { "ingressRate": 8 } },
        "result": { "cniVersion": "1.0.0", "ips": [{ "address": "10.7.0.2/24" }] },
    })
}

fn cache(folder: &tempfile::TempDir) -> ResultCache {
    ResultCache::open(folder.path().join("results")).unwrap()
}

#[test]
fn a_result_that_libcni_has_kept_is_ours() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(&folder);
    fs::write(cache.0.join("n-c1-eth0"), of_libcni().to_string()).unwrap();
    let kept = cache.find("c1", "eth0").unwrap().unwrap();
    assert_eq!((kept.network.as_str(), kept.conflist.unwrap().plugins.len()), ("n", 1));
    let Attachment { pod_name, pod_namespace, port_mappings, capabilities, netns_path, .. } = kept.attachment;
    assert_eq!((pod_namespace.as_str(), pod_name.as_str(), port_mappings.len()), ("ns", "web", 1));
    assert_eq!(json!(capabilities), json!({ "bandwidth": { "ingressRate": 8 } }));
    assert_eq!(netns_path, Path::new("/run/netns/a"));
    assert_eq!(kept.result.pod_ips("eth0").len(), 1);
    assert!(cache.find("c1", "eth1").unwrap().is_none() && cache.find("1", "eth0").unwrap().is_none());
    cache.forget("c1", "eth0").unwrap();
    cache.forget("c1", "eth0").unwrap();
    assert!(cache.all().unwrap().is_empty());
}

#[test]
fn what_is_cut_off_or_turned_over_is_left_out_and_stands_in_nobodys_way() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(&folder);
    let (text, file) = (of_libcni().to_string().into_bytes(), cache.0.join("n-c1-eth0"));
    for length in 0..text.len() {
        fs::write(&file, &text[..length]).unwrap();
        assert!(cache.find("c1", "eth0").unwrap().is_none(), "{length} bytes");
    }
    for at in (0..text.len()).step_by(3) {
        let mut flipped = text.clone();
        flipped[at] ^= 0x80;
        fs::write(&file, &flipped).unwrap();
        // It is no text any more, wherever that is.
        assert!(cache.find("c1", "eth0").unwrap().is_none(), "at {at}");
    }
    for (field, value) in [
        ("config", json!("%%%")),
        ("config", json!(STANDARD.encode("[]"))),
        ("result", json!("10.7.0.2")),
        ("containerId", json!(7)),
    ] {
        let mut odd = of_libcni();
        odd[field] = value;
        fs::write(&file, odd.to_string()).unwrap();
        assert!(cache.find("c1", "eth0").unwrap().is_none(), "{field}");
        assert!(cache.all().unwrap().is_empty());
    }
    let keeps = |ids: &[&str]| {
        cache.remove_broken(&ids.iter().map(|id| (*id).to_owned()).collect()).unwrap();
        file.exists()
    };
    assert!(keeps(&["c1"]), "its container is there");
    assert!(!keeps(&["c2"]));
}

#[test]
fn what_is_half_written_is_nobodys_and_goes() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(&folder);
    let half = cache.0.join("n-c1-eth0.new");
    fs::write(&half, "{").unwrap();
    assert!(cache.all().unwrap().is_empty() && cache.find("c1", "eth0").unwrap().is_none());
    cache.remove_broken(&BTreeSet::new()).unwrap();
    assert!(half.exists(), "somebody may be writing it");
    cache.remove_unfinished().unwrap();
    assert!(!half.exists());
}
