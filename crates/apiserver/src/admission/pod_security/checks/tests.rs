use super::*;

fn check(name: &str, at: (Level, Version), pod: &str, expect: &str) {
    let pod: Value = serde_json::to_value(serde_saphyr::from_str::<Value>(pod).unwrap()).unwrap();
    let seen = Pod { annotations: pod.pointer("/annotations").and_then(Value::as_object), spec: &pod };
    let found = evaluate(LevelVersion { level: at.0, version: at.1 }, &seen);
    assert_eq!(detail(&found), expect, "{name}");
}

const RESTRICTED: (Level, Version) = (Level::Restricted, Version::Latest);
const BASELINE: (Level, Version) = (Level::Baseline, Version::Latest);

#[test]
fn a_plain_pod_is_good_enough_for_baseline_only() {
    let plain = "{containers: [{name: x}]}";
    check("privileged", (Level::Privileged, Version::Latest), "{hostNetwork: true}", "");
    check("baseline", BASELINE, plain, "");
    check(
        "restricted",
        RESTRICTED,
        plain,
        "allowPrivilegeEscalation != false (container \"x\" must set \
         securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"x\" must set \
         securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \"x\" must set \
         securityContext.runAsNonRoot=true), seccompProfile (pod or container \"x\" must set \
         securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")",
    );
    check(
        "hardened",
        RESTRICTED,
        "{securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}, containers: [{name: x, \
         securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}}}], \
         volumes: [{name: v, emptyDir: {}}]}",
        "",
    );
}

#[test]
fn each_baseline_rule_names_who_breaks_it() {
    let rows = [
        ("{hostNetwork: true, hostPID: true}", "host namespaces (hostNetwork=true, hostPID=true)"),
        (
            "{containers: [{name: a, securityContext: {privileged: true}}, {name: b, securityContext: {privileged: true}}]}",
            "privileged (containers \"a\", \"b\" must not set securityContext.privileged=true)",
        ),
        (
            "{containers: [{name: a, securityContext: {capabilities: {add: [NET_RAW, CHOWN, SYS_ADMIN]}}}]}",
            "non-default capabilities (container \"a\" must not include \"NET_RAW\", \"SYS_ADMIN\" in \
             securityContext.capabilities.add)",
        ),
        ("{volumes: [{name: v, hostPath: {path: /}}]}", "hostPath volumes (volume \"v\")"),
        (
            "{initContainers: [{name: i, ports: [{hostPort: 80}, {hostPort: 8080}]}], containers: []}",
            "hostPort (container \"i\" uses hostPorts 80, 8080)",
        ),
        (
            "{securityContext: {seLinuxOptions: {type: spc_t, user: u}}, containers: [{name: a, securityContext: \
             {seLinuxOptions: {role: r}}}]}",
            "seLinuxOptions (pod and container \"a\" set forbidden securityContext.seLinuxOptions: type \"spc_t\"; \
             user may not be set; role may not be set)",
        ),
        (
            "{securityContext: {seccompProfile: {type: Unconfined}, sysctls: [{name: kernel.msgmax}, {name: net.ipv4.tcp_rmem}]}}",
            "seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\"), forbidden \
             sysctls (kernel.msgmax)",
        ),
        (
            "{annotations: {container.apparmor.security.beta.kubernetes.io/a: unconfined}, containers: [{name: a}]}",
            "forbidden AppArmor profile (annotation must not set AppArmor profile type to \
             \"container.apparmor.security.beta.kubernetes.io/a=\"unconfined\"\")",
        ),
        (
            "{containers: [{name: a, securityContext: {procMount: Unmasked}, livenessProbe: {httpGet: {host: h}}}]}",
            "probe or lifecycle host (container \"a\" uses probe or lifecycle host \"h\"), procMount (container \"a\" \
             must not set securityContext.procMount to \"Unmasked\")",
        ),
        (
            "{securityContext: {windowsOptions: {hostProcess: true}}}",
            "hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)",
        ),
    ];
    for (pod, expect) in rows {
        check(pod, BASELINE, pod, expect);
    }
}

#[test]
fn restricted_rules_stand_in_for_baseline_ones() {
    let hardened = "securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}";
    check(
        "volumes",
        RESTRICTED,
        &format!("{{{hardened}, volumes: [{{name: v, hostPath: {{path: /}}}}, {{name: o, nfs: {{}}}}]}}"),
        "restricted volume types (volumes \"v\", \"o\" use restricted volume types \"hostPath\", \"nfs\")",
    );
    check(
        "root",
        RESTRICTED,
        "{securityContext: {runAsNonRoot: false, runAsUser: 0, seccompProfile: {type: Localhost}}}",
        "runAsNonRoot != true (pod must not set securityContext.runAsNonRoot=false), runAsUser=0 (pod must not set \
         runAsUser=0)",
    );
}

#[test]
fn a_version_has_the_rules_of_its_time() {
    let root =
        "{securityContext: {runAsNonRoot: true, runAsUser: 0}, os: {name: windows}, containers: [{name: a}]}";
    check("before runAsUser", (Level::Restricted, Version::Minor(7)), root, "");
    check(
        "windows is let off from 1.25 on",
        (Level::Restricted, Version::Minor(25)),
        root,
        "runAsUser=0 (pod must not set runAsUser=0)",
    );
    check(
        "user namespaces relax from 1.35 on",
        RESTRICTED,
        "{hostUsers: false, securityContext: {runAsUser: 0, seccompProfile: {type: RuntimeDefault}}}",
        "",
    );
    check(
        "the future is like the newest",
        (Level::Baseline, Version::Minor(99)),
        "{hostIPC: true}",
        "host namespaces (hostIPC=true)",
    );
}
