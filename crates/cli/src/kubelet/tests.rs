use super::*;

#[test]
fn flags_become_fields() {
    let pairs = [
        "max-pods=20",
        "--eviction-hard=memory.available<1Gi,nodefs.available<5%",
        "kube-reserved=cpu=200m,memory=500Mi",
        "config=/etc/kubelet.yaml",
        "root-dir=/var/lib/kubelet",
        "seccomp-default=false",
        "node-labels=disk=ssd,zone=a",
        "node-labels=node.kubernetes.io/rack=1",
        "port=10260",
        "cloud-provider=external",
        "provider-id=example://zone-a/i-1",
        "allowed-unsafe-sysctls=kernel.msg*,net.core.somaxconn",
    ];
    let args = ConfigurationArgs::from_pairs(&pairs.map(str::to_owned)).unwrap();
    assert_eq!(args.config, Some("/etc/kubelet.yaml".into()));
    assert_eq!(args.root_dir, Some("/var/lib/kubelet".into()));
    assert_eq!(args.node_labels.len(), 3);
    assert_eq!(args.port, Some(10_260));
    assert_eq!(args.cloud_provider, CloudProvider::External);
    assert_eq!(
        args.fields,
        json!({
            "providerID": "example://zone-a/i-1",
            "maxPods": 20,
            "evictionHard": {"memory.available": "1Gi", "nodefs.available": "5%"},
            "kubeReserved": {"cpu": "200m", "memory": "500Mi"},
            "seccompDefault": false,
            "allowedUnsafeSysctls": ["kernel.msg*", "net.core.somaxconn"],
        })
    );
}

#[test]
fn what_cannot_be_is_told() {
    for (argument, expect) in [
        ("max-pods", "must be NAME=VALUE"),
        ("max-pots=1", "the kubelet has no such flag"),
        ("max-pods=many", "is no whole number"),
        ("kube-reserved=cpu", "must be NAME=VALUE"),
        ("node-labels=disk", "must be KEY=VALUE"),
        ("node-labels==ssd", "has no key"),
        ("node-labels=node-role.kubernetes.io/control-plane=", "may not give itself"),
        ("cloud-provider=aws", "\"aws\" must be \"\" or \"external\""),
        ("cloud-provider=External", "must be \"\" or \"external\""),
        ("port=0", "between 1 and 65535"),
        ("port=70000", "between 1 and 65535"),
    ] {
        let error = ConfigurationArgs::from_pairs(&[argument.to_owned()]).unwrap_err().to_string();
        assert!(error.contains(argument) && error.contains(expect), "{error}");
    }
}

/// Source: `TestValidateKubeletFlags` of upstream's `cmd/kubelet/app/options`, and `IsKubeletLabel`.
#[test]
fn a_node_gives_itself_the_labels_that_upstream_lets_it() {
    for (label, expect) in [
        ("cloud.google.com/metadata-proxy-ready=true", ""),
        ("disk=ssd", ""),
        ("disk=", ""),
        (" disk = ssd ", ""),
        ("", ""),
        (",", ""),
        ("kubernetes.io/hostname=a", ""),
        ("kubernetes.io/os=linux", ""),
        ("kubernetes.io/arch=amd64", ""),
        ("topology.kubernetes.io/zone=a", ""),
        ("topology.kubernetes.io/region=b", ""),
        ("failure-domain.beta.kubernetes.io/zone=a", ""),
        ("node.kubernetes.io/instance-type=m1", ""),
        ("node.kubernetes.io/anything=x", ""),
        ("sub.node.kubernetes.io/anything=x", ""),
        ("kubelet.kubernetes.io/anything=x", ""),
        ("notkubernetes.io/anything=x", ""),
        ("notk8s.io/anything=x", ""),
        ("beta.kubernetes.io/metadata-proxy-ready=true", "may not give itself"),
        ("kubernetes.io/anything=x", "may not give itself"),
        ("k8s.io/anything=x", "may not give itself"),
        ("sub.k8s.io/anything=x", "may not give itself"),
        ("topology.kubernetes.io/rack=x", "may not give itself"),
        ("notnode.kubernetes.io/anything=x", "may not give itself"),
        ("node-role.kubernetes.io/worker=", "may not give itself"),
        ("node-restriction.kubernetes.io/x=y", "may not give itself"),
        ("cloud.google.com/repository=kubernetes/kubernetes", "must be a sound label"),
        ("a/b/c=d", "must be a sound label"),
        ("-a=b", "must be a sound label"),
        ("a b=c", "must be a sound label"),
        ("a=b=c", "must be a sound label"),
        ("UPPER.example/a=b", "must be a sound label"),
        ("=ssd", "has no key"),
        ("disk", "must be KEY=VALUE"),
    ] {
        let found = labels(label).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(found.contains(expect) && found.is_empty() == expect.is_empty(), "{label}: {found}");
    }
    let long = "a".repeat(64);
    assert!(labels(&format!("{long}=x")).is_err() && labels(&format!("x={long}")).is_err());
}

#[test]
fn values_are_read_as_gos_flags_read_them() {
    let field = |argument: &str| {
        let args = ConfigurationArgs::from_pairs(&[argument.to_owned()]);
        args.map(|args| args.fields.as_object().unwrap().values().next().cloned())
            .map_err(|error| error.to_string())
    };
    for (argument, expect) in [
        ("seccomp-default=1", json!(true)),
        ("seccomp-default=F", json!(false)),
        ("max-pods=-1", json!(-1)),
        ("max-pods=+7", json!(7)),
        ("kube-reserved= cpu = 200m , memory=1Gi,", json!({"cpu": "200m", "memory": "1Gi"})),
        ("kube-reserved=", json!({})),
        ("eviction-hard=memory.available < 1Gi", json!({"memory.available": "1Gi"})),
        ("eviction-hard=", json!({})),
        ("enforce-node-allocatable=", json!([])),
        ("enforce-node-allocatable=pods,kube-reserved", json!(["pods", "kube-reserved"])),
        ("register-with-taints=a=b:NoSchedule,c:NoExecute", json!(["a=b:NoSchedule", "c:NoExecute"])),
        ("resolv-conf=", json!("")),
        ("reserved-cpus=0-1,3", json!("0-1,3")),
    ] {
        assert_eq!(field(argument), Ok(Some(expect)), "{argument}");
    }
    for (argument, expect) in [
        ("seccomp-default=", "must be true or false"),
        ("seccomp-default=yes", "must be true or false"),
        ("max-pods=", "is no whole number"),
        ("max-pods=1.5", "is no whole number"),
        ("max-pods=99999999999999999999", "is no whole number"),
        ("eviction-hard=memory.available=1Gi", "must be NAME<VALUE"),
        ("register-with-taints=a=b", "must be KEY=VALUE:EFFECT"),
        ("register-with-taints=a:NoSchedule,a=b:NoSchedule", "twice"),
        ("register-with-taints=a=b c:NoSchedule", "must have a sound key and value"),
    ] {
        assert!(field(argument).is_err_and(|error| error.contains(expect)), "{argument}");
    }
    // Of a flag that is said twice the last one counts; labels add up.
    let twice = ["max-pods=1", "max-pods=2", "node-labels=a=1,b=1", "node-labels=b=2"].map(str::to_owned);
    let args = ConfigurationArgs::from_pairs(&twice).unwrap();
    assert_eq!(args.fields, json!({"maxPods": 2}));
    let labels: Vec<(&str, &str)> =
        args.node_labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(labels, [("a", "1"), ("b", "2")]);
}

#[test]
fn each_row_is_one_flag_and_one_field() {
    let (mut flags, mut fields) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
    for (flag, field, _, help) in FLAGS {
        assert!(flags.insert(flag) && fields.insert(field), "{flag} {field}");
        assert!(!help.is_empty() && !help.ends_with('.'), "{flag}");
        assert!(flag.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{flag}");
    }
}
