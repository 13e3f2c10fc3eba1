use super::*;

#[test]
fn a_file_that_a_container_has_made_larger_is_not_read_to_its_end() {
    let line = "10.42.0.7\tweb\n";
    assert!(says(line.as_bytes(), line));
    assert!(!says(&line.as_bytes()[1..], line) && !says(&[][..], line));
    assert!(!says(line.as_bytes().chain(std::io::repeat(b'x')), line));
}

/// Source: `TestMakeMounts` of upstream's `pkg/kubelet`.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn mounts_are_made_as_upstream_makes_them() {
    let dir = tempfile::tempdir().unwrap();
    let volumes = "[{name: host, hostPath: {path: /mnt/host}}, {name: scratch, emptyDir: {}}, {name: conf, configMap: {name: c}},
        {name: img, image: {reference: 'r.example/i:1'}}]";
    let own =
        |plugin: &str, name: &str| format!("{}/volumes/kubernetes.io~{plugin}/{name}", dir.path().display());
    let (scratch, conf) = (own("empty-dir", "scratch"), own("configmap", "conf"));
    for (name, mount, expect) in [
        ("plain", "{name: host, mountPath: /a}", "/mnt/host on /a"),
        ("read-only", "{name: host, mountPath: /a, readOnly: true}", "/mnt/host on /a, read-only"),
        ("a path from the root", "{name: host, mountPath: a/b}", "/mnt/host on /a/b"),
        (
            "what the host mounts",
            "{name: host, mountPath: /a, mountPropagation: HostToContainer}",
            "/mnt/host on /a, PropagationHostToContainer",
        ),
        (
            "both ways",
            "{name: host, mountPath: /a, mountPropagation: Bidirectional}",
            "/mnt/host on /a, PropagationBidirectional",
        ),
        ("none", "{name: host, mountPath: /a, mountPropagation: None}", "/mnt/host on /a"),
        ("a folder of the Pod's", "{name: scratch, mountPath: /a}", &*format!("{scratch} on /a")),
        ("what the kubelet writes", "{name: conf, mountPath: /a}", &*format!("{conf} on /a, read-only")),
        ("an image", "{name: img, mountPath: /a}", " on /a, read-only, of r.example/i:1"),
        (
            "a part of an image",
            "{name: img, mountPath: /a, subPath: b}",
            " on /a, read-only, of r.example/i:1/b",
        ),
        (
            "all the way down",
            "{name: host, mountPath: /a, readOnly: true, recursiveReadOnly: Enabled}",
            "/mnt/host on /a, read-only, recursive",
        ),
        ("no volume", "{name: none, mountPath: /a}", "volume \"none\" of the mount is not there"),
        (
            "no part",
            "{name: host, mountPath: /a, subPath: /b}",
            "error SubPath `/b` must not be an absolute path",
        ),
        (
            "a part that leads up",
            "{name: host, mountPath: /a, subPath: no/backsteps/../allowed}",
            "unable to provision SubPath `no/backsteps/../allowed`: must not contain '..'",
        ),
    ] {
        let text =
            format!("{{spec: {{volumes: {volumes}, containers: [{{name: c, volumeMounts: [{mount}]}}]}}}}");
        let pod: Pod = serde_saphyr::from_str(&text).unwrap();
        let input = MountInput {
            pod: &pod,
            pod_dir: dir.path(),
            env: &[],
            hosts: "",
            attempt: 0,
            can_be_recursive: true,
        };
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let shown = |mount: &v1::Mount| {
            let propagation = match mount.propagation() {
                v1::MountPropagation::PropagationPrivate => String::new(),
                other => format!(", {other:?}"),
            };
            let image =
                mount.image.as_ref().map(|image| format!(", of {}/{}", image.image, mount.image_sub_path));
            let read_only = if mount.readonly { ", read-only" } else { "" };
            let recursive = if mount.recursive_read_only { ", recursive" } else { "" };
            let text =
                format!("{} on {}{read_only}{recursive}{propagation}", mount.host_path, mount.container_path);
            format!("{text}{}", image.unwrap_or_default()).trim_end_matches('/').to_owned()
        };
        let found = make(&input, container).map(|mounts| shown(&mounts[0]));
        assert_eq!(found.unwrap_or_else(|error| error.to_string()), expect, "{name}");
    }
}

/// Source: `TestMakeMountsEtcHostsFile` of upstream's `pkg/kubelet`.
#[test]
fn hosts_and_last_words_are_mounted_unless_something_else_is_there() {
    let dir = tempfile::tempdir().unwrap();
    for (fields, expect) in [
        ("tty: true", "/etc/hosts=etc-hosts /dev/termination-log=containers/c/3.msg"),
        ("terminationMessagePath: /last", "/etc/hosts=etc-hosts /last=containers/c/3.msg"),
        ("terminationMessagePath: ''", "/etc/hosts=etc-hosts"),
        (
            "volumeMounts: [{name: v, mountPath: /etc/hosts}]",
            "/etc/hosts=/mnt/host /dev/termination-log=containers/c/3.msg",
        ),
    ] {
        let text = format!(
            "{{spec: {{volumes: [{{name: v, hostPath: {{path: /mnt/host}}}}], containers: [{{name: c, {fields}}}]}}}}"
        );
        let pod: Pod = serde_saphyr::from_str(&text).unwrap();
        let input = MountInput {
            pod: &pod,
            pod_dir: dir.path(),
            env: &[],
            hosts: "1.2.3.4\tweb\n",
            attempt: 3,
            can_be_recursive: false,
        };
        let mounts = make(&input, &pod.spec.as_ref().unwrap().containers[0]).unwrap();
        let below = |path: &str| path.replace(&format!("{}/", dir.path().display()), "");
        let shown: Vec<_> = mounts
            .iter()
            .map(|mount| format!("{}={}", mount.container_path, below(&mount.host_path)))
            .collect();
        assert_eq!(shown.join(" "), expect, "{fields}");
        assert!(mounts.iter().all(|mount| !mount.readonly), "{fields}");
    }
    assert_eq!(fs::read_to_string(dir.path().join("etc-hosts")).unwrap(), "1.2.3.4\tweb\n");
}

#[test]
fn a_part_is_named_by_variables_that_are_set() {
    let env = [("NAME", "web"), ("UP", "a/../.."), ("ROOT", "/etc"), ("EMPTY", "")];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
    for (text, expect) in [
        ("mountPath: /v", Ok(None)),
        ("subPath: $(NAME)", Ok(Some("$(NAME)"))),
        ("subPathExpr: of/$(NAME)/$$(NAME)", Ok(Some("of/web/$(NAME)"))),
        ("subPathExpr: $(NONE)/$(EMPTY)/$(NAME)/$(NONE)", Err("missing value for EMPTY, NONE")),
        ("subPathExpr: $(UP)", Err("unable to provision SubPath `a/../..`: must not contain '..'")),
        ("subPathExpr: $(ROOT)", Err("error SubPath `/etc` must not be an absolute path")),
    ] {
        let mount: VolumeMount = serde_saphyr::from_str(&format!("{{name: v, {text}}}")).unwrap();
        let expect = expect.map(|sub| sub.map(str::to_owned)).map_err(str::to_owned);
        let found = sub_path_of(&mount, &env).map_err(|error| error.to_string());
        assert_eq!(found, expect, "{text}");
    }
}

#[test]
fn read_only_mounts_are_recursive_where_they_are_to_be_and_can_be() {
    let check = |text: &str, is_possible: bool, expect: Result<bool, &str>| {
        let mount: VolumeMount =
            serde_saphyr::from_str(&format!("{{name: v, mountPath: /v, {text}}}")).unwrap();
        let found = is_recursive(&mount, is_possible).map_err(|error| error.to_string());
        assert_eq!(found, expect.map_err(str::to_owned), "{text}");
    };
    check("readOnly: true", true, Ok(false));
    check("readOnly: true, recursiveReadOnly: Disabled", true, Ok(false));
    check("readOnly: true, recursiveReadOnly: IfPossible", true, Ok(true));
    check("readOnly: true, recursiveReadOnly: IfPossible", false, Ok(false));
    check("readOnly: true, recursiveReadOnly: Enabled", true, Ok(true));
    let refused = "volume \"v\" requested recursive read-only mode, but it is not supported by the runtime";
    check("readOnly: true, recursiveReadOnly: Enabled", false, Err(refused));
    let refused = "volume \"v\" requested recursive read-only mode, but it is not read-only";
    check("recursiveReadOnly: Enabled", true, Err(refused));
    let refused = "volume \"v\" requested recursive read-only mode, but it is not compatible with propagation \"HostToContainer\"";
    check(
        "readOnly: true, recursiveReadOnly: Enabled, mountPropagation: HostToContainer",
        true,
        Err(refused),
    );
}
