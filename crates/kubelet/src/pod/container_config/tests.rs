use super::*;

fn pod(spec: &str) -> Pod {
    serde_saphyr::from_str(&format!(
        "{{metadata: {{name: web, namespace: shop, uid: u1, labels: {{app: web}}}}, spec: {spec}}}"
    ))
    .unwrap()
}

fn container(spec: &str, input: ContainerInput) -> Result<v1::ContainerConfig, RunsAsRoot> {
    let pod = pod(spec);
    let first = pod.spec.clone().unwrap().containers[0].clone();
    container_config(&Config::default(), &pod, &first, input)
}

#[test]
fn a_sandbox_is_named_labelled_and_put_into_its_cgroup() {
    let pod = pod("{containers: [{name: c, ports: [{containerPort: 80, hostPort: 8080}]}]}");
    let sandbox = sandbox_config(&Config::default(), &pod, 2, "nameserver 1.1.1.1\n");
    let linux = sandbox.linux.unwrap();
    assert_eq!(linux.cgroup_parent, "/kubepods/besteffort/podu1");
    assert_eq!(sandbox.hostname, "web");
    assert_eq!(sandbox.log_directory, "/var/log/pods/shop_web_u1");
    assert_eq!(sandbox.labels[labels::POD_UID], "u1");
    assert_eq!(sandbox.port_mappings[0].host_port, 8080);
    assert_eq!(sandbox.metadata.unwrap().attempt, 2);
}

#[test]
fn commands_are_expanded_from_the_environment() {
    let input =
        ContainerInput { env: vec![("A".into(), "b".into())], attempt: 3, ..ContainerInput::default() };
    let config =
        container("{containers: [{name: c, image: i, command: [echo, '$(A)', '$(B)']}]}", input).unwrap();
    assert_eq!(config.command, ["echo", "b", "$(B)"]);
    assert_eq!(config.log_path, "c/3.log");
    assert_eq!(config.annotations[labels::RESTART_COUNT], "3");
}

#[test]
fn the_security_context_of_a_container_wins() {
    let spec = "{securityContext: {runAsUser: 1000, fsGroup: 5}, containers: [{name: c, securityContext:
        {runAsUser: 2000, allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}}]}";
    let config = container(spec, ContainerInput::default()).unwrap();
    let security = config.linux.unwrap().security_context.unwrap();
    assert_eq!(security.run_as_user.unwrap().value, 2000);
    assert!(security.no_new_privs && security.readonly_rootfs);
    assert_eq!(security.supplemental_groups, [5]);
    assert_eq!(security.capabilities.unwrap().drop_capabilities, ["ALL"]);
    assert_eq!(security.seccomp.unwrap().profile_type, 0);
}

#[test]
fn root_is_refused_where_the_spec_refuses_it() {
    let spec = "{securityContext: {runAsNonRoot: true}, containers: [{name: c}]}";
    for (user, is_ok) in
        [(ImageUser::Uid(0), false), (ImageUser::Uid(7), true), (ImageUser::Name("x".into()), false)]
    {
        let input = ContainerInput { image_user: Some(user.clone()), ..ContainerInput::default() };
        assert_eq!(container(spec, input).is_ok(), is_ok, "{user:?}");
    }
}

/// Source: `TestVerifyRunAsNonRoot` of upstream's `pkg/kubelet/kuberuntime`.
#[test]
fn who_may_be_root_is_as_upstream_says() {
    let (root, any, big, negative) = (0, 1000, 2_147_483_648, -1000);
    for (name, context, user, expect) in [
        ("nobody says anything", "", ImageUser::Uid(root), ""),
        ("another by the spec", "runAsNonRoot: true, runAsUser: 1000", ImageUser::Uid(root), ""),
        ("root by the spec", "runAsUser: 0", ImageUser::Uid(root), ""),
        ("it may be", "runAsNonRoot: false", ImageUser::Uid(root), ""),
        ("it may be, by the spec", "runAsNonRoot: false, runAsUser: 0", ImageUser::Uid(root), ""),
        (
            "it must not be, by the spec",
            "runAsNonRoot: true, runAsUser: 0",
            ImageUser::Uid(any),
            "container's runAsUser breaks non-root policy",
        ),
        (
            "nor by the image",
            "runAsNonRoot: true",
            ImageUser::Uid(root),
            "container has runAsNonRoot and image will run as root",
        ),
        (
            "a name says nothing",
            "runAsNonRoot: true",
            ImageUser::Name("test".into()),
            "container has runAsNonRoot and image has non-numeric user (test), cannot verify user is non-root",
        ),
        ("but the spec does", "runAsNonRoot: true, runAsUser: 5", ImageUser::Name("test".into()), ""),
        ("another by the image", "runAsNonRoot: true", ImageUser::Uid(any), ""),
        ("the last one", "runAsNonRoot: true", ImageUser::Uid(i32::MAX.into()), ""),
        (
            "no user at all",
            "runAsNonRoot: true",
            ImageUser::Uid(big),
            "container has runAsNonRoot and image has an invalid user id (2147483648). (Must be 1-(2147483647)): must be between 0 and 2147483647, inclusive",
        ),
        (
            "nor this one",
            "runAsNonRoot: true",
            ImageUser::Uid(negative),
            "container has runAsNonRoot and image has an invalid user id (-1000). (Must be 1-(2147483647)): must be between 0 and 2147483647, inclusive",
        ),
    ] {
        let spec = format!("{{containers: [{{name: c, securityContext: {{{context}}}}}]}}");
        let input = ContainerInput { image_user: Some(user), ..ContainerInput::default() };
        let found = container(&spec, input).err().map(|error| error.to_string()).unwrap_or_default();
        let of = " (pod: \"web_shop(u1)\", container: c)";
        assert_eq!(found, if expect.is_empty() { String::new() } else { format!("{expect}{of}") }, "{name}");
    }
}

/// The security contexts of the container and of its sandbox.
fn contexts(
    pod_fields: &str,
    own: &str,
) -> (v1::LinuxContainerSecurityContext, v1::LinuxSandboxSecurityContext) {
    let spec = format!("{{{pod_fields}, containers: [{{name: c, securityContext: {{{own}}}}}]}}");
    let config = container(&spec, ContainerInput::default()).unwrap();
    let sandbox = sandbox_config(&Config::default(), &pod(&spec), 0, "").linux.unwrap();
    (config.linux.unwrap().security_context.unwrap(), sandbox.security_context.unwrap())
}

/// Source: `TestGetSeccompProfile`, `TestGetSeccompProfileDefaultSeccomp` and `TestGetAppArmorProfile` of upstream's
/// `pkg/kubelet/kuberuntime`.
#[test]
fn profiles_are_the_containers_the_pods_or_the_default() {
    let shown = |profile: Option<v1::SecurityProfile>| match profile {
        None => "none".to_owned(),
        Some(profile) => {
            format!("{:?} {}", profile.profile_type(), profile.localhost_ref).trim_end().to_owned()
        }
    };
    const DEFAULT: &str = "type: RuntimeDefault";
    const NONE: &str = "type: Unconfined";
    const FILE: &str = "type: Localhost, localhostProfile: own.json";
    for (name, pod, own, seccomp, apparmor) in [
        ("nothing", "", "", "RuntimeDefault", "none"),
        ("the Pod's", NONE, "", "Unconfined", "Unconfined"),
        ("the container's", "", NONE, "Unconfined", "Unconfined"),
        ("the default", DEFAULT, "", "RuntimeDefault", "RuntimeDefault"),
        ("a file", FILE, "", "Localhost /var/lib/kubelet/seccomp/own.json", "Localhost own.json"),
        ("the container's before the Pod's", NONE, DEFAULT, "RuntimeDefault", "RuntimeDefault"),
        (
            "also a file",
            "type: Localhost, localhostProfile: pod.json",
            FILE,
            "Localhost /var/lib/kubelet/seccomp/own.json",
            "Localhost own.json",
        ),
    ] {
        let of = |text: &str| match text {
            "" => "privileged: false".to_owned(),
            text => format!("seccompProfile: {{{text}}}, appArmorProfile: {{{text}}}"),
        };
        let (container, sandbox) = contexts(&format!("securityContext: {{{}}}", of(pod)), &of(own));
        assert_eq!(shown(container.seccomp), seccomp, "{name}");
        assert_eq!(shown(container.apparmor), apparmor, "{name}");
        assert_eq!(shown(sandbox.seccomp), "RuntimeDefault", "{name}: whatever its containers are");
    }
    let (spec, privileged) =
        (pod("{containers: [{name: c}]}"), "{securityContext: {privileged: true}, name: c}");
    let profile = |container: &str, has_default| {
        let container = serde_saphyr::from_str(container).unwrap();
        shown(security::container(spec.spec.as_ref().unwrap(), &container, has_default).seccomp)
    };
    assert_eq!(profile("{name: c}", false), "Unconfined", "no default is wanted");
    assert_eq!(profile(privileged, true), "Unconfined");
}

/// Source: `TestNamespacesForPod` of upstream's `pkg/kubelet/kuberuntime/util`.
#[test]
fn namespaces_are_the_pods_the_containers_or_the_hosts() {
    for (fields, expect) in [
        ("tty: 1", "Pod Container Pod"),
        ("hostNetwork: true, hostPID: true, hostIPC: true", "Node Node Node"),
        ("hostNetwork: false, hostPID: false, hostIPC: false", "Pod Container Pod"),
        ("shareProcessNamespace: true", "Pod Pod Pod"),
        ("shareProcessNamespace: false", "Pod Container Pod"),
        ("hostPID: true, shareProcessNamespace: true", "Pod Node Pod"),
        ("hostIPC: true", "Pod Container Node"),
        ("hostNetwork: true", "Node Container Pod"),
    ] {
        let (container, sandbox) = contexts(fields, "");
        for options in [container.namespace_options, sandbox.namespace_options] {
            let options = options.unwrap();
            let found = format!("{:?} {:?} {:?}", options.network(), options.pid(), options.ipc());
            assert_eq!(found, expect, "{fields}");
        }
    }
    let input = ContainerInput { target_id: Some("main".into()), ..ContainerInput::default() };
    let config = container("{containers: [{name: c}]}", input).unwrap();
    let options = config.linux.unwrap().security_context.unwrap().namespace_options.unwrap();
    assert_eq!((options.pid(), options.target_id.as_str()), (v1::NamespaceMode::Target, "main"));
}

/// Source: `convertToRuntimeSecurityContext` of upstream's `kuberuntime`.
#[test]
fn the_groups_of_volumes_come_after_the_pods_own() {
    for (pod, extra, expect) in [
        ("{}", &[][..], &[][..]),
        ("{}", &[777], &[777]),
        ("{fsGroup: 3, supplementalGroups: [4, 5]}", &[777, 778], &[3, 4, 5, 777, 778]),
    ] {
        let input = ContainerInput { extra_groups: extra.to_vec(), ..ContainerInput::default() };
        let spec = format!("{{securityContext: {pod}, containers: [{{name: c}}]}}");
        let context = container(&spec, input).unwrap().linux.unwrap().security_context.unwrap();
        assert_eq!(context.supplemental_groups, expect, "{pod}");
    }
}

/// Source: `TestDetermineEffectiveRunAsUser`, `TestAddNoNewPrivileges`, `TestConvertToRuntime*Paths` of upstream's
/// `pkg/securitycontext`, `TestHasPrivilegedContainer` of its `pkg/kubelet/container`, and
/// `TestGeneratePodSandboxConfigWithLinuxSecurityContext`, `Test*SupplementalGroupsPolicy` of its `kuberuntime`.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn users_groups_and_rights_are_as_upstream_makes_them() {
    let ids = |user: &Option<v1::Int64Value>, group: &Option<v1::Int64Value>| {
        let text =
            |id: &Option<v1::Int64Value>| id.as_ref().map_or("-".to_owned(), |id| id.value.to_string());
        format!("{}:{}", text(user), text(group))
    };
    for (pod, own, of_container, of_sandbox, groups) in [
        ("", "", "-:-", "-:-", &[][..]),
        ("runAsUser: 0, runAsGroup: 5", "", "0:5", "0:5", &[]),
        ("", "runAsUser: 7, runAsGroup: 8", "7:8", "-:-", &[]),
        ("runAsUser: 1, runAsGroup: 2", "runAsUser: 7", "7:2", "1:2", &[]),
        ("runAsUser: 1", "runAsUser: 0", "0:-", "1:-", &[]),
        ("runAsUser: 1, fsGroup: 3, supplementalGroups: [4, 5]", "", "1:-", "1:-", &[3, 4, 5]),
    ] {
        let (container, sandbox) = contexts(&format!("securityContext: {{{pod}}}"), own);
        assert_eq!(ids(&container.run_as_user, &container.run_as_group), of_container, "{pod} {own}");
        assert_eq!(ids(&sandbox.run_as_user, &sandbox.run_as_group), of_sandbox, "{pod} {own}");
        assert_eq!(
            (container.supplemental_groups, sandbox.supplemental_groups),
            (groups.to_vec(), groups.to_vec())
        );
    }
    for (policy, expect) in [
        ("tty: 1", "Merge"),
        ("supplementalGroupsPolicy: Merge", "Merge"),
        ("supplementalGroupsPolicy: Strict", "Strict"),
    ] {
        let (container, sandbox) = contexts(&format!("securityContext: {{{policy}}}"), "");
        let found = (container.supplemental_groups_policy(), sandbox.supplemental_groups_policy());
        assert_eq!(format!("{:?} {:?}", found.0, found.1), format!("{expect} {expect}"));
    }
    for (own, expect) in
        [("", false), ("allowPrivilegeEscalation: false", true), ("allowPrivilegeEscalation: true", false)]
    {
        assert_eq!(contexts("tty: 1", own).0.no_new_privs, expect, "{own}");
    }
    for (own, is_masked) in [
        ("", true),
        ("procMount: Default", true),
        ("procMount: Unmasked", false),
        ("privileged: true", false),
    ] {
        let (container, _) = contexts("tty: 1", own);
        let has = |list: &[String], path: &str| list.iter().any(|one| one == path);
        assert_eq!(has(&container.masked_paths, "/proc/kcore"), is_masked, "{own}");
        assert_eq!(has(&container.readonly_paths, "/proc/sys"), is_masked, "{own}");
        assert_eq!(
            container.masked_paths.is_empty() && container.readonly_paths.is_empty(),
            !is_masked,
            "{own}"
        );
        assert!(
            container
                .masked_paths
                .iter()
                .filter(|path| path.contains("thermal"))
                .all(|path| Path::new(path).exists())
        );
    }
    const LABEL: &str = "seLinuxOptions: {user: u, role: r, type: t, level: 's0:c1'}";
    let shown = |label: Option<v1::SeLinuxOption>| {
        label.map(|one| format!("{}:{}:{}:{}", one.user, one.role, one.r#type, one.level))
    };
    let (container, sandbox) = contexts(&format!("securityContext: {{{LABEL}}}"), "");
    assert_eq!(
        (shown(container.selinux_options), shown(sandbox.selinux_options)),
        (Some("u:r:t:s0:c1".into()), Some("u:r:t:s0:c1".into()))
    );
    let (container, sandbox) = contexts("tty: 1", LABEL);
    assert_eq!(
        (shown(container.selinux_options), shown(sandbox.selinux_options)),
        (Some("u:r:t:s0:c1".into()), None)
    );
    for (containers, expect) in [
        ("containers: [{name: a}]", false),
        ("containers: [{name: a, securityContext: {privileged: false}}]", false),
        ("containers: [{name: a}, {name: b, securityContext: {privileged: true}}]", true),
        ("containers: [{name: a}], initContainers: [{name: b, securityContext: {privileged: true}}]", true),
        (
            "containers: [{name: a}], ephemeralContainers: [{name: b, securityContext: {privileged: true}}]",
            true,
        ),
    ] {
        let sandbox = sandbox_config(&Config::default(), &pod(&format!("{{{containers}}}")), 0, "");
        assert_eq!(sandbox.linux.unwrap().security_context.unwrap().privileged, expect, "{containers}");
    }
}

/// Source: `labels_test.go` of upstream's `pkg/kubelet/kuberuntime`.
#[test]
fn labels_and_annotations_say_whose_they_are() {
    let text = "{metadata: {name: web, namespace: shop, uid: u1, labels: {app: web, io.kubernetes.pod.name: other}, annotations: {note: kept}},
        spec: {terminationGracePeriodSeconds: 10, containers: [{name: c, image: img, terminationMessagePath: /somepath, terminationMessagePolicy: FallbackToLogsOnError}, {name: d}]}}";
    let mut pod: Pod = serde_saphyr::from_str(text).unwrap();
    let sorted = |map: HashMap<String, String>| {
        let mut list: Vec<_> = map.into_iter().filter(|(key, _)| key != labels::CONTAINER_HASH).collect();
        list.sort();
        list.into_iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>()
    };
    let sandbox = sandbox_config(&Config::default(), &pod, 0, "");
    let own = ["io.kubernetes.pod.name=web", "io.kubernetes.pod.namespace=shop", "io.kubernetes.pod.uid=u1"];
    assert_eq!(sorted(sandbox.labels), [&["app=web"][..], &own].concat());
    assert_eq!(sorted(sandbox.annotations), ["note=kept"]);
    let of = |pod: &Pod, index: usize| {
        let spec = pod.spec.clone().unwrap().containers[index].clone();
        container_config(&Config::default(), pod, &spec, ContainerInput { attempt: 5, ..Default::default() })
            .unwrap()
    };
    let first = of(&pod, 0);
    assert_eq!(sorted(first.labels), [&["io.kubernetes.container.name=c"][..], &own].concat());
    let ours = |one: &String| one.starts_with("io.kubernetes.");
    let told: Vec<_> = sorted(first.annotations).into_iter().filter(ours).collect();
    let expect = [
        "io.kubernetes.container.restartCount=5",
        "io.kubernetes.container.terminationMessagePath=/somepath",
        "io.kubernetes.container.terminationMessagePolicy=FallbackToLogsOnError",
        "io.kubernetes.pod.terminationGracePeriod=10",
    ];
    assert_eq!(told, expect);
    pod.spec.as_mut().unwrap().termination_grace_period_seconds = None;
    let told: Vec<_> = sorted(of(&pod, 1).annotations).into_iter().filter(ours).collect();
    let expect = [
        "io.kubernetes.container.restartCount=5",
        "io.kubernetes.container.terminationMessagePath=/dev/termination-log",
        "io.kubernetes.container.terminationMessagePolicy=File",
    ];
    assert_eq!(told, expect);
}

/// Source: `TestMakePortMappings` and `TestToRuntimeProtocol` of upstream's `pkg/kubelet`.
#[test]
fn ports_of_the_host_lead_to_those_of_containers() {
    let ports = "[{containerPort: 80, hostPort: 8080, hostIP: 127.0.0.1}, {containerPort: 443, hostPort: 4343, protocol: TCP},
        {name: u, containerPort: 555, hostPort: 5555, protocol: UDP}, {containerPort: 80, hostPort: 8080, hostIP: '::'},
        {containerPort: 7, protocol: SCTP}]";
    let pod = pod(&format!(
        "{{containers: [{{name: a, ports: {ports}}}, {{name: b}}], initContainers: [\
         {{name: i, ports: [{{containerPort: 1, hostPort: 1}}]}}, {{name: s, restartPolicy: Always, ports: [{{containerPort: 2, hostPort: 2}}]}}]}}"
    ));
    let found = sandbox_config(&Config::default(), &pod, 0, "").port_mappings;
    let shown = |port: &v1::PortMapping| {
        format!("{:?} {}:{}->{}", port.protocol(), port.host_ip, port.host_port, port.container_port)
    };
    let expect = [
        "Tcp 127.0.0.1:8080->80",
        "Tcp :4343->443",
        "Udp :5555->555",
        "Tcp :::8080->80",
        "Sctp :0->7",
        "Tcp :2->2",
    ];
    assert_eq!(found.iter().map(shown).collect::<Vec<_>>(), expect);
}

/// Source: `TestExpandCommandAndArgs` of upstream's `pkg/kubelet/container`.
#[test]
fn commands_and_arguments_are_expanded_alike() {
    let env =
        [("VAR_TEST", "foo"), ("VAR_TEST2", "bar")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    for (command, args, expect) in [
        ("[]", "[]", " | "),
        ("[foo]", "[bar, baz]", "foo | bar baz"),
        ("['$(VAR_TEST)']", "['$(VAR_TEST)', '$(VAR_TEST2)']", "foo | foo bar"),
        ("['$(VAR_TEST)-$(VAR_TEST2)']", "['$$(VAR_TEST)']", "foo-bar | $(VAR_TEST)"),
        ("['$(NONE)']", "['$(VAR_TEST', '$VAR_TEST']", "$(NONE) | $(VAR_TEST $VAR_TEST"),
    ] {
        let spec = format!("{{containers: [{{name: c, command: {command}, args: {args}}}]}}");
        let input = ContainerInput { env: env.to_vec(), ..ContainerInput::default() };
        let config = container(&spec, input).unwrap();
        assert_eq!(
            format!("{} | {}", config.command.join(" "), config.args.join(" ")),
            expect,
            "{command} {args}"
        );
    }
}
