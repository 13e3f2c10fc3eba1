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
