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

/// Source: `TestMapping` of upstream's `third_party/forked/golang/expansion`.
#[test]
fn only_whole_references_to_what_is_known_are_expanded() {
    let lookup = |name: &str| {
        let known = [("A", "a"), ("B", "b"), ("REF", "$(A)"), ("EMPTY", "")];
        known.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    };
    for (text, expect) in [
        ("$(A)", "a"),
        ("$(A)-$(A)", "a-a"),
        ("$(A)-1", "a-1"),
        ("___$(B)___", "___b___"),
        ("$(A)_$(B)", "a_b"),
        ("$$(B)_$(A)", "$(B)_a"),
        ("$$(A)_$$(B)", "$(A)_$(B)"),
        ("f000-$$A", "f000-$A"),
        (r"foo\$(B)bar", r"foo\bbar"),
        (r"foo\\$(B)bar", r"foo\\bbar"),
        ("$(A$(B))", "$(A$(B))"),
        ("$(A$(B)", "$(A$(B)"),
        ("$(REF)", "$(A)"),
        ("%%$(REF)--$(REF)%%", "%%$(A)--$(A)%%"),
        ("foo$(EMPTY)bar", "foobar"),
        ("foo$(Awhoops!", "foo$(Awhoops!"),
        ("f00__(A)__", "f00__(A)__"),
        ("$?_boo_$!", "$?_boo_$!"),
        ("$A", "$A"),
        ("$(NONE)", "$(NONE)"),
        ("$$$$$$(NONE)", "$$$(NONE)"),
        ("$$$$$$(A)", "$$$(A)"),
        ("$$$$$$$(NONE)", "$$$$(NONE)"),
        ("$$$$$$$(A)", "$$$a"),
        ("$A)", "$A)"),
        ("${A}", "${A}"),
        ("$(B)_______$(A", "b_______$(A"),
        ("$(B)_______$(", "b_______$("),
        ("$(A)foobarzab$", "afoobarzab$"),
        ("--$($($($($--", "--$($($($($--"),
        ("$($($($($--foo$(", "$($($($($--foo$("),
        ("$(foo$$var)", "$(foo$$var)"),
        ("$()", "$()"),
        ("\n", "\n"),
        ("$£FOO", "$£FOO"),
        ("prefix-$€-suffix", "prefix-$€-suffix"),
        ("$中文$(A)", "$中文a"),
    ] {
        assert_eq!(expand::expand(text, &lookup), expect, "{text}");
    }
}

/// Source: `TestExtractFieldPathAsString`, `TestSplitMaybeSubscriptedPath` and `TestFormatMap` of upstream's
/// `pkg/fieldpath`.
#[test]
fn fields_are_read_by_their_paths() {
    let pod = "{metadata: {name: web, namespace: shop, uid: u1, labels: {key: value, a: \"1\"},
        annotations: {'Www.k8s.io/test': w, data: '{\"V\":1}', \"a[b']c\": x, tabs: \"a\\tb\\e\"}},
        spec: {nodeName: n1, serviceAccountName: robot, containers: []}}";
    let sources = EnvSources {
        pod: Arc::new(yaml(pod)),
        pod_ips: vec!["1.2.3.4".into(), "fd00::6".into()],
        host_ips: vec!["10.0.0.1".into(), "fd00::1".into()],
        ..EnvSources::default()
    };
    let annotations = "Www.k8s.io/test=\"w\"\na[b']c=\"x\"\ndata=\"{\\\"V\\\":1}\"\ntabs=\"a\\tb\\x1b\"";
    for (path, expect) in [
        ("metadata.name", Some("web")),
        ("metadata.namespace", Some("shop")),
        ("metadata.uid", Some("u1")),
        ("metadata.labels", Some("a=\"1\"\nkey=\"value\"")),
        ("metadata.annotations", Some(annotations)),
        ("metadata.labels['key']", Some("value")),
        ("metadata.labels['none']", Some("")),
        ("metadata.annotations['Www.k8s.io/test']", Some("w")),
        ("metadata.annotations['a[b']c']", Some("x")),
        ("spec.nodeName", Some("n1")),
        ("spec.serviceAccountName", Some("robot")),
        ("status.hostIP", Some("10.0.0.1")),
        ("status.hostIPs", Some("10.0.0.1,fd00::1")),
        ("status.podIP", Some("1.2.3.4")),
        ("status.podIPs", Some("1.2.3.4,fd00::6")),
        ("metadata.whoops", None),
        ("metadata.notexisting['something']", None),
        ("metadata.labels[ 'key' ]", None),
        ("metadata.labels[]", None),
        ("metadata.labels[']", None),
        ("metadata.labels['key']foo", None),
        ("['key']", None),
        ("", None),
    ] {
        assert_eq!(fields::pod_field(&sources, path).ok().as_deref(), expect, "{path}");
    }
}

/// Source: `TestMakeEnvironmentVariables` of upstream's `pkg/kubelet` and `envvars_test.go`.
#[test]
fn services_of_the_namespace_and_of_the_api_are_variables() {
    let services = [
        "{metadata: {name: kubernetes, namespace: default}, spec: {clusterIP: 1.2.3.1, ports: [{port: 8081}]}}",
        "{metadata: {name: other, namespace: else}, spec: {clusterIP: 1.2.3.2, ports: [{port: 8082}]}}",
        "{metadata: {name: kubernetes, namespace: headless}, spec: {clusterIP: None, ports: [{port: 8083}]}}",
        "{metadata: {name: bare, namespace: headless}, spec: {ports: [{port: 8084}]}}",
        "{metadata: {name: kubernetes, namespace: own}, spec: {clusterIP: 1.2.3.5, ports: [{port: 8085}]}}",
        "{metadata: {name: foo-bar, namespace: own}, spec: {clusterIP: '2001:db8::1', ports: [
            {name: u-d-p, port: 8086, protocol: UDP}, {name: t, port: 8087}, {port: 8088}]}}",
    ];
    let services: Vec<Arc<Service>> = services.iter().map(|text| Arc::new(yaml(text))).collect();
    let of = |namespace: &str, links: bool| {
        let pod: Pod = yaml(&format!(
            "{{metadata: {{namespace: {namespace}}}, spec: {{enableServiceLinks: {links}, containers: []}}}}"
        ));
        let all = service_variables(&pod, &services);
        all.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
    };
    let host = |namespace: &str, links: bool| {
        let hosts: Vec<String> =
            of(namespace, links).into_iter().filter(|variable| variable.contains("_SERVICE_HOST")).collect();
        hosts.join(" ")
    };
    let api = "KUBERNETES_SERVICE_HOST=1.2.3.1";
    for (namespace, links, expect) in [
        ("default", true, api),
        ("default", false, api),
        ("else", true, "OTHER_SERVICE_HOST=1.2.3.2 KUBERNETES_SERVICE_HOST=1.2.3.1"),
        ("else", false, api),
        ("headless", true, api),
        ("own", true, "KUBERNETES_SERVICE_HOST=1.2.3.5 FOO_BAR_SERVICE_HOST=2001:db8::1"),
        ("own", false, api),
    ] {
        assert_eq!(host(namespace, links), expect, "{namespace} {links}");
    }
    let expect = [
        "FOO_BAR_SERVICE_HOST=2001:db8::1",
        "FOO_BAR_SERVICE_PORT=8086",
        "FOO_BAR_SERVICE_PORT_U_D_P=8086",
        "FOO_BAR_SERVICE_PORT_T=8087",
        "FOO_BAR_PORT=udp://[2001:db8::1]:8086",
        "FOO_BAR_PORT_8086_UDP=udp://[2001:db8::1]:8086",
        "FOO_BAR_PORT_8086_UDP_PROTO=udp",
        "FOO_BAR_PORT_8086_UDP_PORT=8086",
        "FOO_BAR_PORT_8086_UDP_ADDR=2001:db8::1",
        "FOO_BAR_PORT_8087_TCP=tcp://[2001:db8::1]:8087",
        "FOO_BAR_PORT_8087_TCP_PROTO=tcp",
        "FOO_BAR_PORT_8087_TCP_PORT=8087",
        "FOO_BAR_PORT_8087_TCP_ADDR=2001:db8::1",
        "FOO_BAR_PORT_8088_TCP=tcp://[2001:db8::1]:8088",
        "FOO_BAR_PORT_8088_TCP_PROTO=tcp",
        "FOO_BAR_PORT_8088_TCP_PORT=8088",
        "FOO_BAR_PORT_8088_TCP_ADDR=2001:db8::1",
    ];
    let mut found = of("own", true);
    found.retain(|variable| variable.starts_with("FOO"));
    assert_eq!(found, expect);
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

/// Source: `TestExtractResourceValue` of upstream's `pkg/api/v1/resource`, with amounts beyond what is counted.
#[test]
fn resources_are_counted_in_their_divisor_and_rounded_up() {
    let mut sources = sources();
    for (own, resource, divisor, expect) in [
        ("limits: {cpu: '9'}", "limits.cpu", "0", "9"),
        ("", "requests.cpu", "0", "0"),
        ("requests: {cpu: '8'}", "requests.cpu", "0", "8"),
        ("requests: {cpu: 100m}", "requests.cpu", "0", "1"),
        ("requests: {cpu: 1200m}", "requests.cpu", "100m", "12"),
        ("requests: {cpu: 1201m}", "requests.cpu", "1", "2"),
        ("requests: {cpu: 1u}", "requests.cpu", "1m", "1"),
        ("requests: {memory: 100Mi}", "requests.memory", "0", "104857600"),
        ("requests: {memory: 100Mi}, limits: {memory: 1Gi}", "requests.memory", "1Mi", "100"),
        ("requests: {memory: 10Mi}, limits: {memory: 100Mi}", "limits.memory", "1", "104857600"),
        ("limits: {memory: '1500'}", "limits.memory", "1k", "2"),
        ("limits: {memory: '1'}", "limits.memory", "1Ei", "1"),
        ("limits: {memory: 2Ei}", "limits.memory", "1Ei", "2"),
        ("limits: {memory: 2E}", "limits.memory", "1E", "2"),
        ("limits: {memory: '9223372036854775807'}", "limits.memory", "1k", "9223372036854776"),
        ("limits: {memory: '9223372036854775807'}", "limits.memory", "1", "9223372036854775807"),
        ("limits: {memory: 100E}", "limits.memory", "1E", "10"),
        ("requests: {memory: 1500m}", "requests.memory", "0", "2"),
        ("requests: {ephemeral-storage: 1Gi}", "requests.ephemeral-storage", "1Mi", "1024"),
        ("requests: {hugepages-1Gi: 2Gi}", "requests.hugepages-1Gi", "1Gi", "2"),
    ] {
        let pod = |kind: &str| format!("{{spec: {{{kind}: [{{name: c, resources: {{{own}}}}}]}}}}");
        let selector = yaml(&format!("{{resource: {resource}, divisor: '{divisor}'}}"));
        for pod in [pod("containers"), pod("containers: [], initContainers")] {
            sources.pod = Arc::new(yaml(&pod));
            let found = fields::resource_field(&sources, "c", &selector).map_err(|error| error.to_string());
            assert_eq!(found.as_deref(), Ok(expect), "{resource} of {pod} in {divisor}");
        }
    }
}

/// Source: `TestMakeEnvironmentVariables` of upstream's `pkg/kubelet`.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn variables_are_made_as_upstream_makes_them() {
    let mut sources = sources();
    let map = |text: &str| Arc::new(yaml(&format!("{{data: {text}}}")));
    sources.config_maps.insert("conf".into(), map("{'1234': abc, REPLACE_ME: x, ok: conf, 3key: c}"));
    // `alice`, `y` and `s`.
    let secret: Secret = yaml("{data: {user: YWxpY2U=, REPLACE_ME: eQ==, '1key': cw==}}");
    sources.secrets.insert("cred".into(), Arc::new(secret));
    let of = |text: &str| {
        let made = environment(&yaml(&format!("{{name: c, {text}}}")), &sources);
        let shown = |(name, value): (String, String)| format!("{name}={value}");
        let own = |variable: &String| !variable.starts_with("KUBERNETES_");
        made.map(|all| all.into_iter().map(shown).filter(own).collect::<Vec<_>>().join(" "))
            .map_err(|error| error.to_string())
    };
    for (name, container, expect) in [
        ("nothing", "env: []", Ok("")),
        ("a reference forwards", "env: [{name: A, value: $(B)}, {name: B, value: b}]", Ok("A=$(B) B=b")),
        ("an empty one", "env: [{name: A}, {name: B, value: 'b-$(A)'}]", Ok("A= B=b-")),
        (
            "one through another",
            "env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: B, value: b-$(A)}, {name: C, value: $(B)-c}]",
            Ok("A=web B=b-web C=b-web-c"),
        ),
        (
            "of a service",
            "env: [{name: A, value: 'to $(KUBERNETES_PORT_443_TCP_ADDR)'}]",
            Ok("A=to 10.43.0.1"),
        ),
        (
            "said twice",
            "env: [{name: A, value: a}, {name: B, value: $(A)}, {name: A, value: $(A)2}]",
            Ok("A=a2 B=a"),
        ),
        ("a map", "envFrom: [{configMapRef: {name: conf}}]", Ok("1234=abc 3key=c REPLACE_ME=x ok=conf")),
        (
            "a map with a prefix",
            "envFrom: [{prefix: '1_', configMapRef: {name: conf}}]",
            Ok("1_1234=abc 1_3key=c 1_REPLACE_ME=x 1_ok=conf"),
        ),
        ("a secret", "envFrom: [{secretRef: {name: cred}}]", Ok("1key=s REPLACE_ME=y user=alice")),
        (
            "the later source wins, and a variable before all",
            "envFrom: [{configMapRef: {name: conf}}, {prefix: '', secretRef: {name: cred}}], env: [{name: ok, value: no}, {name: E, value: '$(REPLACE_ME)'}]",
            Ok("1234=abc 3key=c REPLACE_ME=y ok=no 1key=s user=alice E=y"),
        ),
        (
            "a map that is not there",
            "envFrom: [{configMapRef: {name: none}}]",
            Err("configmap \"none\" not found"),
        ),
        ("and need not be", "envFrom: [{configMapRef: {name: none, optional: true}}]", Ok("")),
        (
            "a secret that is not there",
            "envFrom: [{secretRef: {name: none}}]",
            Err("secret \"none\" not found"),
        ),
        ("and need not be", "envFrom: [{secretRef: {name: none, optional: true}}]", Ok("")),
        ("a key", "env: [{name: A, valueFrom: {configMapKeyRef: {name: conf, key: ok}}}]", Ok("A=conf")),
        (
            "a key of a secret",
            "env: [{name: A, valueFrom: {secretKeyRef: {name: cred, key: user}}}]",
            Ok("A=alice"),
        ),
        (
            "its map is not there",
            "env: [{name: A, valueFrom: {configMapKeyRef: {name: none, key: k}}}]",
            Err("configmap \"none\" not found"),
        ),
        (
            "and need not be",
            "env: [{name: A, valueFrom: {configMapKeyRef: {name: none, key: k, optional: true}}}]",
            Ok(""),
        ),
        (
            "the key is not there",
            "env: [{name: A, valueFrom: {configMapKeyRef: {name: conf, key: k}}}]",
            Err("couldn't find key k in ConfigMap shop/conf"),
        ),
        (
            "and need not be",
            "env: [{name: A, valueFrom: {configMapKeyRef: {name: conf, key: k, optional: true}}}]",
            Ok(""),
        ),
        (
            "its secret is not there",
            "env: [{name: A, valueFrom: {secretKeyRef: {name: none, key: k}}}]",
            Err("secret \"none\" not found"),
        ),
        (
            "and need not be",
            "env: [{name: A, valueFrom: {secretKeyRef: {name: none, key: k, optional: true}}}]",
            Ok(""),
        ),
        (
            "the secret's key is not there",
            "env: [{name: A, valueFrom: {secretKeyRef: {name: cred, key: k}}}]",
            Err("couldn't find key k in Secret shop/cred"),
        ),
        (
            "and need not be",
            "env: [{name: A, valueFrom: {secretKeyRef: {name: cred, key: k, optional: true}}}]",
            Ok(""),
        ),
        (
            "what is not there leaves what was",
            "env: [{name: A, value: a}, {name: A, valueFrom: {secretKeyRef: {name: cred, key: k, optional: true}}}]",
            Ok("A=a"),
        ),
        (
            "a field that is none",
            "env: [{name: A, valueFrom: {fieldRef: {fieldPath: status.phase}}}]",
            Err("unsupported fieldPath: status.phase"),
        ),
        (
            "a container that is none",
            "env: [{name: A, valueFrom: {resourceFieldRef: {containerName: x, resource: limits.cpu}}}]",
            Err("container x not found"),
        ),
    ] {
        assert_eq!(of(container).as_deref().map_err(String::as_str), expect, "{name}");
    }
}

#[test]
fn the_api_service_is_always_there() {
    let all = environment(&yaml("{name: c}"), &sources()).unwrap();
    assert!(all.contains(&("KUBERNETES_SERVICE_HOST".into(), "10.43.0.1".into())));
    assert!(all.contains(&("KUBERNETES_PORT_443_TCP_PROTO".into(), "tcp".into())));
}
