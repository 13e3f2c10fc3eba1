//! Which claims are here, for whom, and as which devices: `claiminfo_test.go` of upstream's `pkg/kubelet/cm/dra`.

use super::*;

fn info(uid: &str) -> ClaimInfo {
    let claim: ResourceClaim = serde_saphyr::from_str(&format!(
        "{{metadata: {{name: c, namespace: d, uid: {uid}}}, spec: {{}}, status: {{allocation: {{devices: {{results: [\
         {{request: a, driver: gpu, pool: p, device: g0}}, {{request: b/x, driver: nic, pool: p, device: n0}}]}}}}}}}}"
    ))
    .unwrap();
    ClaimInfo::of(&claim).unwrap()
}

fn prepared(request: &str, cdi: &str) -> Vec<Prepared> {
    let requests = Some(request.to_owned()).filter(|name| !name.is_empty()).into_iter().collect();
    vec![Prepared { requests, cdi_devices: vec![cdi.into()], ..Prepared::default() }]
}

#[test]
fn a_claim_is_prepared_once_and_taken_back_with_its_last_pod() {
    let folder = tempfile::tempdir().unwrap();
    let mut claims = Claims::open(folder.path());
    assert!(claims.add(info("u"), "one").unwrap());
    let devices =
        [("gpu".to_owned(), prepared("a", "gpu=g0")), ("nic".to_owned(), prepared("b/x", "nic=n0"))];
    claims.prepared([("d/c".to_owned(), devices.into())].into()).unwrap();
    // The kubelet starts anew.
    let mut claims = Claims::open(folder.path());
    assert!(!claims.add(info("u"), "two").unwrap(), "it is prepared already");
    assert!(claims.add(info("v"), "two").unwrap_err().to_string().contains("different UID u still exists"));
    assert_eq!(claims.leave("one").unwrap(), []);
    assert!(!claims.has("one") && claims.has("two"));
    let last = Claims::open(folder.path()).leave("two").unwrap();
    assert_eq!(last.iter().map(ClaimInfo::key).collect::<Vec<_>>(), ["d/c"]);
    claims.forget(&last).unwrap();
    assert_eq!(Claims::open(folder.path()).pods(), BTreeSet::new());
}

#[test]
fn a_container_gets_the_devices_of_the_requests_that_it_names() {
    let mut info = info("u");
    info.drivers = [
        ("gpu".to_owned(), prepared("a", "gpu=g0")),
        ("nic".to_owned(), prepared("b/x", "nic=n0")),
        ("all".to_owned(), prepared("", "all=0")),
    ]
    .into();
    let names = |request| info.cdi_devices(request).cloned().collect::<Vec<_>>();
    assert_eq!(names(None), ["all=0", "gpu=g0", "nic=n0"]);
    assert_eq!(names(Some("a")), ["all=0", "gpu=g0"]);
    assert_eq!(names(Some("b")), ["all=0", "nic=n0"]);
}

#[test]
fn monitoring_is_told_of_every_device_with_its_driver() {
    let mut one = info("a");
    one.drivers.insert("d.example".into(), prepared("r", "vendor/class=x"));
    let shown = one.shown();
    let found: Vec<_> = shown
        .claim_resources
        .iter()
        .filter(|resource| resource.driver_name == "d.example")
        .flat_map(|resource| resource.cdi_devices.iter().map(|device| device.name.as_str()))
        .collect();
    assert_eq!((shown.claim_name, found), (one.name, vec!["vendor/class=x"]));
}

fn claim(text: &str) -> ResourceClaim {
    serde_saphyr::from_str(&format!("{{metadata: {{name: c, namespace: d, uid: u}}, spec: {{}}{text}}}"))
        .unwrap()
}

/// Source: `TestNewClaimInfoFromClaim`.
#[test]
fn a_claim_is_known_by_its_drivers_once_it_is_allocated() {
    let result =
        |driver: &str, device: &str| format!("{{request: r, driver: {driver}, pool: p, device: {device}}}");
    let with = |results: &[String]| {
        format!(", status: {{allocation: {{devices: {{results: [{}]}}}}}}", results.join(", "))
    };
    for (name, text, expect) in [
        ("one driver", with(&[result("a", "1")]), Some(&["a"][..])),
        ("two devices of one driver", with(&[result("a", "1"), result("a", "2")]), Some(&["a"])),
        ("two drivers", with(&[result("b", "1"), result("a", "1")]), Some(&["a", "b"])),
        ("no device at all", with(&[]), Some(&[])),
        ("allocated without devices", ", status: {allocation: {}}".to_owned(), Some(&[])),
        ("not allocated", ", status: {}".to_owned(), None),
        ("not looked at", String::new(), None),
    ] {
        let found = ClaimInfo::of(&claim(&text));
        let Some(expect) = expect else {
            let told = found.unwrap_err().to_string();
            assert_eq!(told, "ResourceClaim c: claim d/c not allocated", "{name}");
            continue;
        };
        let found = found.unwrap();
        assert_eq!(found.drivers.keys().collect::<Vec<_>>(), expect, "{name}");
        assert!(
            found.drivers.values().all(Vec::is_empty) && found.pods.is_empty() && !found.is_prepared,
            "{name}"
        );
        assert_eq!((found.key().as_str(), found.message().uid.as_str()), ("d/c", "u"), "{name}");
    }
}

/// Source: `TestAddPodReference`, `TestHasPodReference`, `TestDeletePodReference`.
#[test]
fn claims_know_the_pods_that_use_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut claims = Claims::open(folder.path());
    let info = |name: &str, driver: &str| ClaimInfo {
        namespace: "d".into(),
        name: name.into(),
        uid: format!("u-{name}"),
        drivers: [(driver.to_owned(), Vec::new())].into(),
        ..ClaimInfo::default()
    };
    for (name, driver, pod, is_new) in [
        ("c", "gpu", "one", true),
        ("c", "gpu", "one", true),
        ("c", "gpu", "two", true),
        ("e", "gpu", "two", true),
        ("f", "nic", "two", true),
    ] {
        assert_eq!(
            claims.add(info(name, driver), pod).unwrap(),
            is_new,
            "{name} {pod}: nothing is prepared yet"
        );
    }
    assert_eq!(claims.in_use(), (3, [("gpu".to_owned(), 2), ("nic".to_owned(), 1)].into()));
    assert_eq!(claims.pods(), ["one".to_owned(), "two".to_owned()].into());
    assert!(claims.get("d/c").is_some_and(|info| info.pods.len() == 2) && claims.get("d/none").is_none());
    let keys = |infos: &[ClaimInfo]| infos.iter().map(ClaimInfo::key).collect::<Vec<_>>().join(" ");
    assert_eq!(keys(&claims.leave("nobody").unwrap()), "");
    assert_eq!(keys(&claims.leave("two").unwrap()), "d/e d/f", "the other one's stays");
    assert!(claims.has("two"), "what only it uses is its until that is taken back");
    let last = claims.leave("two").unwrap();
    claims.forget(&last).unwrap();
    assert!(!claims.has("two") && claims.has("one"));
    assert_eq!(Claims::open(folder.path()).in_use(), (1, [("gpu".to_owned(), 1)].into()));
}

#[test]
fn what_is_written_of_claims_is_read_again_or_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(CHECKPOINT);
    for (text, expect) in [
        ("[]", 0),
        ("", 0),
        ("{}", 0),
        ("[{\"namespace\":\"d\"", 0),
        (
            "[{\"namespace\":\"d\",\"name\":\"c\",\"uid\":\"u\",\"pods\":[\"p\"],\"drivers\":{},\"isPrepared\":true}]",
            1,
        ),
    ] {
        std::fs::write(&path, text).unwrap();
        assert_eq!(Claims::open(folder.path()).in_use().0, expect, "{text}");
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            text,
            "nothing is written before something changes"
        );
    }
    let mut claims = Claims::open(folder.path());
    let again =
        ClaimInfo { namespace: "d".into(), name: "c".into(), uid: "u".into(), ..ClaimInfo::default() };
    assert!(!claims.add(again.clone(), "q").unwrap(), "it is prepared");
    let younger = ClaimInfo { uid: "v".into(), ..again };
    let told = claims.add(younger, "q").unwrap_err().to_string();
    assert_eq!(
        told,
        "old ResourceClaim with same name c and different UID u still exists (previous pod force-deleted?!)"
    );
}
