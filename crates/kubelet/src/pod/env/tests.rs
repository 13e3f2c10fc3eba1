use super::*;

fn yaml<T: serde::de::DeserializeOwned>(text: &str) -> T {
    serde_saphyr::from_str(text).unwrap()
}

fn sources() -> EnvSources {
    EnvSources {
        pod: Arc::new(yaml(
            "{metadata: {name: web, namespace: shop, labels: {app: web}}, spec: {enableServiceLinks: true, containers: [{name: c, resources: {limits: {cpu: 1500m}}}]}}",
        )),
        pod_ips: vec!["10.42.0.5".into()],
        config_maps: [("conf".to_owned(), Arc::new(yaml("{data: {color: red}}")))].into(),
        services: vec![Arc::new(yaml(
            "{metadata: {name: kubernetes, namespace: default}, spec: {clusterIP: 10.43.0.1, ports: [{name: https, port: 443, protocol: TCP}]}}",
        ))],
        ..EnvSources::default()
    }
}

fn check(container: &str, expect: Result<&[(&str, &str)], &str>) {
    let container: Container = yaml(container);
    let result = environment(&container, &sources()).map_err(|error| error.to_string());
    let without_services = result
        .map(|all| all.into_iter().filter(|(name, _)| !name.starts_with("KUBERNETES_")).collect::<Vec<_>>());
    let expect = expect
        .map(|all| all.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect::<Vec<_>>())
        .map_err(str::to_owned);
    assert_eq!(without_services, expect);
}

#[test]
fn references_are_expanded_and_dollars_escaped() {
    check(
        "{name: c, env: [{name: A, value: x}, {name: B, value: '$(A)-$$(A)-$(NOPE)'}]}",
        Ok(&[("A", "x"), ("B", "x-$(A)-$(NOPE)")]),
    );
}

#[test]
fn fields_resources_and_maps_are_sources() {
    check(
        "{name: c, envFrom: [{prefix: P_, configMapRef: {name: conf}}], env: [
          {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}},
          {name: APP, valueFrom: {fieldRef: {fieldPath: \"metadata.labels['app']\"}}},
          {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu}}},
          {name: MCPU, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}},
          {name: NONE, valueFrom: {secretKeyRef: {name: s, key: k, optional: true}}}]}",
        Ok(&[("P_color", "red"), ("IP", "10.42.0.5"), ("APP", "web"), ("CPU", "2"), ("MCPU", "1500")]),
    );
}

#[test]
fn resources_without_a_limit_have_the_pods_or_the_nodes() {
    let mut sources = sources();
    sources.pod = Arc::new(yaml(
        "{spec: {resources: {limits: {memory: 1Gi}}, containers: [{name: c, resources: {
          limits: {cpu: '0', hugepages-2Mi: 4Mi}, requests: {hugepages-2Mi: 4Mi}}}]}}",
    ));
    let node =
        [("cpu", 8000), ("memory", 16 << 30), ("ephemeral-storage", 100 << 20), ("hugepages-1Gi", 1 << 30)];
    sources.allocatable = node.map(|(name, amount)| (name.to_owned(), amount)).into();
    for (resource, divisor, expect) in [
        ("limits.cpu", "0", Ok("8")),
        ("requests.cpu", "1m", Ok("0")),
        ("limits.memory", "1Mi", Ok("1024")),
        ("limits.ephemeral-storage", "1Mi", Ok("100")),
        ("requests.ephemeral-storage", "0", Ok("0")),
        ("limits.hugepages-2Mi", "1Mi", Ok("4")),
        ("requests.hugepages-2Mi", "0", Ok("4194304")),
        ("limits.hugepages-1Gi", "0", Ok("0")),
        ("limits.pods", "0", Err("unsupported container resource : limits.pods")),
        ("cpu", "0", Err("unsupported container resource : cpu")),
    ] {
        let selector = yaml(&format!("{{resource: {resource}, divisor: '{divisor}'}}"));
        let found = fields::resource_field(&sources, "c", &selector).map_err(|error| error.to_string());
        assert_eq!(found, expect.map(str::to_owned).map_err(str::to_owned), "{resource}");
    }
}

#[test]
fn what_is_missing_is_named() {
    check("{name: c, envFrom: [{secretRef: {name: s}}]}", Err("secret \"s\" not found"));
    check(
        "{name: c, env: [{name: A, valueFrom: {configMapKeyRef: {name: conf, key: size}}}]}",
        Err("couldn't find key size in ConfigMap shop/conf"),
    );
}

#[test]
fn the_api_service_is_always_there() {
    let all = environment(&yaml("{name: c}"), &sources()).unwrap();
    assert!(all.contains(&("KUBERNETES_SERVICE_HOST".into(), "10.43.0.1".into())));
    assert!(all.contains(&("KUBERNETES_PORT_443_TCP_PROTO".into(), "tcp".into())));
}
