//! Drivers and what containers have by claims: `manager_test.go` of upstream's `pkg/kubelet/cm/dra`.

use super::*;

#[test]
fn monitoring_is_told_of_the_claims_of_each_container() {
    let folder = tempfile::tempdir().unwrap();
    let dra = Dra::open(folder.path(), Arc::new(KubeletMetrics::new("n1")));
    let driver = "gpu.example.com".to_owned();
    let info = ClaimInfo {
        namespace: "shop".into(),
        name: "gpu-1".into(),
        uid: "c".into(),
        drivers: [(driver.clone(), Vec::new())].into(),
        ..ClaimInfo::default()
    };
    assert!(dra.claims.lock().add(info.clone(), "u").unwrap());
    let cdi_devices = vec!["gpu.example.com/gpu=g0".to_owned()];
    let device = Prepared { pool: "pool".into(), device: "g0".into(), requests: Vec::new(), cdi_devices };
    let prepared = BTreeMap::from([(driver.clone(), vec![device])]);
    dra.claims.lock().prepared([(info.key(), prepared)].into()).unwrap();
    let pod: Pod = serde_saphyr::from_str(
        "{metadata: {namespace: shop, name: web, uid: u}, spec: {resourceClaims: [{name: gpu, resourceClaimName: gpu-1}], \
          containers: [{name: a, resources: {claims: [{name: gpu}]}}, {name: b}]}}",
    )
    .unwrap();
    let containers = &pod.spec.as_ref().unwrap().containers;
    let [shown] = dra.resources(&pod, &containers[0]).try_into().unwrap();
    let of_device = &shown.claim_resources[0];
    assert_eq!((shown.claim_namespace.as_str(), shown.claim_name.as_str()), ("shop", "gpu-1"));
    assert_eq!((of_device.pool_name.as_str(), of_device.device_name.as_str()), ("pool", "g0"));
    assert_eq!(
        (&of_device.driver_name, &*of_device.cdi_devices[0].name),
        (&driver, "gpu.example.com/gpu=g0")
    );
    assert_eq!(dra.resources(&pod, &containers[1]), []);
    assert_eq!(dra.in_use(), (1, [(driver, 1)].into()));
}

fn dra(folder: &Path) -> Dra {
    Dra::open(folder, Arc::new(KubeletMetrics::new("n1")))
}

fn pod(spec: &str) -> Pod {
    serde_saphyr::from_str(&format!("{{metadata: {{namespace: shop, name: web, uid: u}}, spec: {{{spec}}}}}"))
        .unwrap()
}

/// A claim whose devices are `request=cdi`; a request may be one alternative of another.
fn prepare(dra: &Dra, name: &str, devices: &[&str]) {
    let info =
        ClaimInfo { namespace: "shop".into(), name: name.into(), uid: name.into(), ..ClaimInfo::default() };
    dra.claims.lock().add(info.clone(), "u").unwrap();
    let prepared = devices.iter().map(|text| {
        let (request, cdi) = text.split_once('=').unwrap();
        let requests = Some(request.to_owned()).filter(|name| !name.is_empty()).into_iter().collect();
        Prepared { requests, cdi_devices: vec![cdi.to_owned()], ..Prepared::default() }
    });
    let drivers = BTreeMap::from([("gpu.example.com".to_owned(), prepared.collect())]);
    dra.claims.lock().prepared([(info.key(), drivers)].into()).unwrap();
}

/// Source: `TestGetResources`.
#[test]
fn a_container_has_the_devices_of_the_claims_and_requests_that_it_names() {
    let folder = tempfile::tempdir().unwrap();
    let dra = dra(folder.path());
    prepare(&dra, "one", &["a=x", "a=y", "b=z", "c/first=w"]);
    prepare(&dra, "two", &["=all", "b=x"]);
    let claims =
        "resourceClaims: [{name: first, resourceClaimName: one}, {name: second, resourceClaimName: two}]";
    for (uses, expect) in [
        ("", ""),
        ("{name: first}", "x y z w"),
        ("{name: first, request: a}", "x y"),
        ("{name: first, request: b}", "z"),
        ("{name: first, request: c}", "w"),
        ("{name: first, request: c/first}", ""),
        ("{name: first, request: none}", ""),
        ("{name: first, request: ''}", "x y z w"),
        ("{name: first, request: a}, {name: first, request: b}", "x y z"),
        ("{name: second}", "all x"),
        ("{name: second, request: a}", "all"),
        ("{name: second, request: b}, {name: first, request: a}", "x y all"),
        ("{name: third}", ""),
    ] {
        let pod = pod(&format!("{claims}, containers: [{{name: a, resources: {{claims: [{uses}]}}}}]"));
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let found = dra.devices(&pod, container).unwrap();
        let found: Vec<&str> = found.iter().map(|device| device.name.as_str()).collect();
        assert_eq!(found.join(" "), expect, "{uses}");
    }
}

#[test]
fn a_container_whose_claim_is_not_prepared_is_not_started() {
    let folder = tempfile::tempdir().unwrap();
    let dra = dra(folder.path());
    let pod = pod("resourceClaims: [{name: first, resourceClaimName: one}], \
        containers: [{name: a, resources: {claims: [{name: first}]}}, {name: b}]");
    let containers = &pod.spec.as_ref().unwrap().containers;
    let told = dra.devices(&pod, &containers[0]).unwrap_err().to_string();
    assert_eq!(told, "internal error: unable to get claim info for ResourceClaim one in namespace shop");
    assert_eq!(dra.devices(&pod, &containers[1]).unwrap(), [], "who uses none needs none");
    assert_eq!(dra.resources(&pod, &containers[0]), [], "monitoring is told of none");
}

/// Source: `dra_plugin_manager_test.go`, `registration_test.go`.
#[tokio::test]
async fn a_driver_is_the_last_one_of_its_name_that_speaks_what_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let dra = dra(folder.path());
    let endpoint = Path::new("/plugins/dra.sock");
    let prefix = "invalid supported gRPC versions of DRA driver plugin gpu at endpoint /plugins/dra.sock: ";
    for (services, expect) in [
        (&[][..], "empty list of supported gRPC services (aka supported versions)".to_owned()),
        (&["v1.DRAPlugin2"], "none of services supported by the plugin ([\"v1.DRAPlugin2\"])".to_owned()),
        (&["1.0.0", ""], "none of services supported by the plugin ([\"1.0.0\", \"\"])".to_owned()),
    ] {
        let services: Vec<String> = services.iter().map(|service| (*service).to_owned()).collect();
        let told = dra.insert("gpu", endpoint, &services).unwrap_err().to_string();
        assert!(told.starts_with(&format!("{prefix}{expect}")), "{told}");
    }
    let missing = dra.driver("gpu").err().map(|error| error.to_string());
    assert_eq!(missing.as_deref(), Some("DRA driver gpu is not registered"));
    let known =
        |service: &str| dra.insert("gpu", endpoint, &["other".to_owned(), service.to_owned()]).unwrap();
    let (first, second) = (known("v1beta1.DRAPlugin"), known("v1.DRAPlugin"));
    assert!(!dra.remove("gpu", first), "another one has come in its place");
    assert!(dra.driver("gpu").is_ok());
    assert!(dra.remove("gpu", second) && !dra.remove("gpu", second));
    assert!(dra.driver("gpu").is_err() && !dra.remove("nic", 0));
}

/// Source: `TestPrepareResources`, `TestUnprepareResources`: what drivers answer.
#[test]
fn a_driver_answers_for_every_claim_and_for_no_other() {
    let uid = "u-1".to_owned();
    for (unfinished, unknown, expect) in [
        (0, None, None),
        (2, None, Some("NodePrepareResources skipped 2 ResourceClaims")),
        (0, Some(&uid), Some("NodePrepareResources returned result for unknown claim UID u-1")),
        (1, Some(&uid), Some("NodePrepareResources returned result for unknown claim UID u-1")),
    ] {
        let found =
            complete("NodePrepareResources", unfinished, unknown).err().map(|error| error.to_string());
        assert_eq!(found.as_deref(), expect);
    }
}

#[test]
fn drivers_are_asked_for_all_of_their_claims_at_once() {
    let info = |name: &str, drivers: &[&str]| ClaimInfo {
        name: name.into(),
        uid: format!("u-{name}"),
        drivers: drivers.iter().map(|driver| ((*driver).to_owned(), Vec::new())).collect(),
        ..ClaimInfo::default()
    };
    let claims = [info("a", &["gpu", "nic"]), info("b", &["gpu"]), info("c", &[])];
    let all = by_driver(&claims);
    let shown = all.iter().map(|(driver, claims)| {
        let uids: Vec<String> = request(claims).claims.into_iter().map(|claim| claim.uid).collect();
        format!("{driver}={}", uids.join(","))
    });
    assert_eq!(shown.collect::<Vec<_>>().join(" "), "gpu=u-a,u-b nic=u-a");
}
