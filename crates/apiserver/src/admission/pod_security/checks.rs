//! The rules of the Pod Security Standards, a row per rule and version. Pure.
//!
//! A rule is in force from its row's minor version on, until a later row of the same name takes over; a restricted
//! rule may stand in for a baseline one. Source: `k8s.io/pod-security-admission/policy` at v1.35.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::policy::{Level, LevelVersion, Version};

/// The newest minor version whose rules are known.
const NEWEST_MINOR: u32 = 35;

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule, in a word or two.
    pub reason: &'static str,
    /// By what.
    pub detail: String,
}

impl Violation {
    fn new(reason: &'static str, detail: String) -> Option<Self> {
        Some(Self { reason, detail })
    }
}

/// Rules joined as they are shown for one Pod.
pub fn detail(violations: &[Violation]) -> String {
    let shown = violations.iter().map(|violation| format!("{} ({})", violation.reason, violation.detail));
    shown.collect::<Vec<_>>().join(", ")
}

/// Rules joined as they are shown for many Pods.
pub fn reason(violations: &[Violation]) -> String {
    violations.iter().map(|violation| violation.reason).collect::<Vec<_>>().join(", ")
}

/// The rules that a Pod or a template breaks at a level.
pub fn evaluate(at: LevelVersion, pod: &Pod<'_>) -> Vec<Violation> {
    let minor = match at.version {
        Version::Minor(minor) => minor.min(NEWEST_MINOR),
        Version::Latest => NEWEST_MINOR,
    };
    if at.level == Level::Privileged {
        return Vec::new();
    }
    let wanted = |rule: &&Rule| at.level == Level::Restricted || rule.level == Level::Baseline;
    let in_force: Vec<&Rule> = RULES
        .iter()
        .filter(wanted)
        .filter(|rule| rule.since <= minor)
        .filter(|rule| !RULES.iter().any(|next| replaces(next, rule) && next.since <= minor))
        .collect();
    let stood_in = |rule: &Rule| in_force.iter().any(|other| other.stands_in_for == rule.name);
    in_force.iter().filter(|rule| !stood_in(rule)).filter_map(|rule| (rule.check)(pod)).collect()
}

fn replaces(next: &Rule, rule: &Rule) -> bool {
    next.name == rule.name && next.since > rule.since
}

/// The parts of a Pod that rules look at.
#[derive(Clone, Copy, Debug)]
pub struct Pod<'a> {
    /// `metadata.annotations`
    pub annotations: Option<&'a Map<String, Value>>,
    /// `spec`
    pub spec: &'a Value,
}

impl<'a> Pod<'a> {
    fn containers(&self) -> impl Iterator<Item = &'a Value> {
        let spec = self.spec;
        let list = move |name: &str| spec.get(name).and_then(Value::as_array).into_iter().flatten();
        list("initContainers").chain(list("containers")).chain(list("ephemeralContainers"))
    }

    /// The names of the containers that break a rule.
    fn bad(&self, mut is_bad: impl FnMut(&'a Value) -> bool) -> Vec<&'a str> {
        self.containers().filter(|container| is_bad(container)).map(name).collect()
    }

    fn has_user_namespace(&self) -> bool {
        self.spec.get("hostUsers") == Some(&Value::Bool(false))
    }

    fn is_windows(&self) -> bool {
        text(self.spec, "/os/name") == "windows"
    }

    fn pod_security(&self, field: &str) -> Option<&'a Value> {
        security(self.spec, field)
    }
}

struct Rule {
    name: &'static str,
    level: Level,
    /// The first minor version with it.
    since: u32,
    /// The baseline rule that it makes superfluous.
    stands_in_for: &'static str,
    check: fn(&Pod<'_>) -> Option<Violation>,
}

const fn baseline(name: &'static str, since: u32, check: fn(&Pod<'_>) -> Option<Violation>) -> Rule {
    Rule { name, level: Level::Baseline, since, stands_in_for: "-", check }
}

const fn restricted(
    name: &'static str,
    since: u32,
    stands_in_for: &'static str,
    check: fn(&Pod<'_>) -> Option<Violation>,
) -> Rule {
    Rule { name, level: Level::Restricted, since, stands_in_for, check }
}

/// In the order in which violations are shown.
const RULES: &[Rule] = &[
    baseline("appArmorProfile", 0, app_armor),
    baseline("capabilities_baseline", 0, default_capabilities),
    baseline("hostNamespaces", 0, host_namespaces),
    baseline("hostPathVolumes", 0, host_path_volumes),
    baseline("hostPorts", 0, host_ports),
    baseline("hostProbesAndHostLifecycle", 34, probe_hosts),
    baseline("privileged", 0, privileged),
    baseline("procMount", 0, proc_mount),
    baseline("procMount", 35, |pod| if pod.has_user_namespace() { None } else { proc_mount(pod) }),
    baseline("seLinuxOptions", 0, |pod| se_linux(pod, &SE_LINUX_TYPES[..4])),
    baseline("seLinuxOptions", 31, |pod| se_linux(pod, &SE_LINUX_TYPES)),
    baseline("seccompProfile_baseline", 0, seccomp_annotations),
    baseline("seccompProfile_baseline", 19, |pod| seccomp(pod, false)),
    baseline("sysctls", 0, |pod| sysctls(pod, 5)),
    baseline("sysctls", 27, |pod| sysctls(pod, 6)),
    baseline("sysctls", 29, |pod| sysctls(pod, 10)),
    baseline("sysctls", 32, |pod| sysctls(pod, 12)),
    baseline("windowsHostProcess", 0, windows_host_process),
    restricted("allowPrivilegeEscalation", 8, "-", privilege_escalation),
    restricted("allowPrivilegeEscalation", 25, "-", |pod| unless_windows(pod, privilege_escalation)),
    restricted("capabilities_restricted", 22, "capabilities_baseline", capabilities),
    restricted("capabilities_restricted", 25, "capabilities_baseline", |pod| {
        unless_windows(pod, capabilities)
    }),
    restricted("procMount_restricted", 35, "procMount", proc_mount),
    restricted("restrictedVolumes", 0, "hostPathVolumes", volume_types),
    restricted("runAsNonRoot", 0, "-", run_as_non_root),
    restricted(
        "runAsNonRoot",
        35,
        "-",
        |pod| if pod.has_user_namespace() { None } else { run_as_non_root(pod) },
    ),
    restricted("runAsUser", 23, "-", run_as_user),
    restricted("runAsUser", 35, "-", |pod| if pod.has_user_namespace() { None } else { run_as_user(pod) }),
    restricted("seccompProfile_restricted", 19, "seccompProfile_baseline", |pod| seccomp(pod, true)),
    restricted("seccompProfile_restricted", 25, "seccompProfile_baseline", |pod| {
        seccomp(pod, !pod.is_windows())
    }),
];

const SE_LINUX_TYPES: [&str; 5] =
    ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

const DEFAULT_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

const ALLOWED_VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn name(object: &Value) -> &str {
    text(object, "/name")
}

/// A field of `securityContext`, if it is set.
fn security<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    object.get("securityContext")?.get(field).filter(|value| !value.is_null())
}

fn words(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

fn quoted<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    let quoted = items.into_iter().map(|item| format!("\"{}\"", item.as_ref()));
    quoted.collect::<Vec<_>>().join(", ")
}

fn plural(one: &'static str, many: &'static str, count: usize) -> &'static str {
    if count == 1 { one } else { many }
}

/// `container "a"` or `containers "a", "b"`.
fn containers(names: &[&str]) -> String {
    format!("{} {}", plural("container", "containers", names.len()), quoted(names))
}

/// `pod and container "a"`, or `None` if nobody set it.
fn setters(by_pod: bool, names: &[&str]) -> Option<String> {
    let pod = by_pod.then(|| "pod".to_owned());
    let all: Vec<String> = pod.into_iter().chain((!names.is_empty()).then(|| containers(names))).collect();
    (!all.is_empty()).then(|| all.join(" and "))
}

fn unless_windows(pod: &Pod<'_>, check: fn(&Pod<'_>) -> Option<Violation>) -> Option<Violation> {
    if pod.is_windows() { None } else { check(pod) }
}

fn app_armor(pod: &Pod<'_>) -> Option<Violation> {
    const PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
    let mut values = BTreeSet::new();
    let mut is_bad = |object: &Value| {
        let Some(profile) = security(object, "appArmorProfile") else { return false };
        let given = text(profile, "/type");
        let is_bad = !matches!(given, "RuntimeDefault" | "Localhost");
        if is_bad {
            values.insert(given.to_owned());
        }
        is_bad
    };
    let by_pod = is_bad(pod.spec);
    let names = pod.bad(&mut is_bad);
    let mut annotations: Vec<String> = Vec::new();
    for (key, value) in pod.annotations.into_iter().flatten().filter(|(key, _)| key.starts_with(PREFIX)) {
        let value = value.as_str().unwrap_or_default();
        if !(value.is_empty() || value == "runtime/default" || value.starts_with("localhost/")) {
            annotations.push(format!("{key}={value:?}"));
        }
    }
    let by_annotation =
        (!annotations.is_empty()).then(|| plural("annotation", "annotations", annotations.len()).to_owned());
    let who: Vec<String> = setters(by_pod, &names).into_iter().chain(by_annotation).collect();
    if who.is_empty() {
        return None;
    }
    annotations.sort();
    let values: Vec<String> = values.into_iter().chain(annotations).collect();
    let reason = plural("forbidden AppArmor profile", "forbidden AppArmor profiles", values.len());
    let who = who.join(" and ");
    Violation::new(reason, format!("{who} must not set AppArmor profile type to {}", quoted(values)))
}

fn default_capabilities(pod: &Pod<'_>) -> Option<Violation> {
    let mut added = BTreeSet::new();
    let names = pod.bad(|container| {
        let add = security(container, "capabilities").and_then(|capabilities| capabilities.get("add"));
        let bad: Vec<&str> = words(add).filter(|one| !DEFAULT_CAPABILITIES.contains(one)).collect();
        added.extend(bad.iter().copied());
        !bad.is_empty()
    });
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} must not include {} in securityContext.capabilities.add",
        containers(&names),
        quoted(added)
    );
    Violation::new("non-default capabilities", detail)
}

fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    let lists = |container: &'_ Value, list: &str| -> Vec<String> {
        let capabilities = security(container, "capabilities");
        words(capabilities.and_then(|all| all.get(list))).map(str::to_owned).collect()
    };
    let keeping = pod.bad(|container| !lists(container, "drop").iter().any(|one| one == "ALL"));
    let mut added = BTreeSet::new();
    let adding = pod.bad(|container| {
        let bad: Vec<String> =
            lists(container, "add").into_iter().filter(|one| one != "NET_BIND_SERVICE").collect();
        let is_bad = !bad.is_empty();
        added.extend(bad);
        is_bad
    });
    let mut details = Vec::new();
    if !keeping.is_empty() {
        details
            .push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", containers(&keeping)));
    }
    if !adding.is_empty() {
        details.push(format!(
            "{} must not include {} in securityContext.capabilities.add",
            containers(&adding),
            quoted(added)
        ));
    }
    if details.is_empty() { None } else { Violation::new("unrestricted capabilities", details.join("; ")) }
}

fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let shared: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|field| pod.spec.get(*field) == Some(&Value::Bool(true)))
        .map(|field| format!("{field}=true"))
        .collect();
    if shared.is_empty() { None } else { Violation::new("host namespaces", shared.join(", ")) }
}

fn volumes<'a>(pod: &Pod<'a>) -> impl Iterator<Item = &'a Value> {
    pod.spec.get("volumes").and_then(Value::as_array).into_iter().flatten()
}

fn host_path_volumes(pod: &Pod<'_>) -> Option<Violation> {
    let is_host_path = |volume: &&Value| volume.get("hostPath").is_some_and(|path| !path.is_null());
    let names: Vec<&str> = volumes(pod).filter(is_host_path).map(name).collect();
    if names.is_empty() {
        return None;
    }
    let detail = format!("{} {}", plural("volume", "volumes", names.len()), quoted(&names));
    Violation::new("hostPath volumes", detail)
}

fn volume_types(pod: &Pod<'_>) -> Option<Violation> {
    let (mut names, mut types) = (Vec::new(), BTreeSet::new());
    for volume in volumes(pod) {
        let sources = volume.as_object().into_iter().flatten();
        let source =
            sources.filter(|(field, value)| *field != "name" && !value.is_null()).map(|(field, _)| field);
        let source: Vec<&str> = source.map(String::as_str).collect();
        if !source.iter().any(|source| ALLOWED_VOLUMES.contains(source)) {
            names.push(name(volume));
            types.insert(source.first().copied().unwrap_or("unknown"));
        }
    }
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} {} {} {} {}",
        plural("volume", "volumes", names.len()),
        quoted(&names),
        plural("uses", "use", names.len()),
        plural("restricted volume type", "restricted volume types", types.len()),
        quoted(&types),
    );
    Violation::new("restricted volume types", detail)
}

fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    let mut ports = BTreeSet::new();
    let names = pod.bad(|container| {
        let all = container.get("ports").and_then(Value::as_array).into_iter().flatten();
        let bad: Vec<i64> =
            all.filter_map(|port| port.get("hostPort")?.as_i64()).filter(|p| *p != 0).collect();
        ports.extend(bad.iter().map(ToString::to_string));
        !bad.is_empty()
    });
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} {} {} {}",
        containers(&names),
        plural("uses", "use", names.len()),
        plural("hostPort", "hostPorts", ports.len()),
        ports.into_iter().collect::<Vec<_>>().join(", "),
    );
    Violation::new("hostPort", detail)
}

fn probe_hosts(pod: &Pod<'_>) -> Option<Violation> {
    const HANDLERS: [&str; 5] =
        ["/livenessProbe", "/readinessProbe", "/startupProbe", "/lifecycle/postStart", "/lifecycle/preStop"];
    let mut hosts = BTreeSet::new();
    let names: BTreeSet<&str> = pod
        .bad(|container| {
            let handlers = HANDLERS.iter().filter_map(|pointer| container.pointer(pointer));
            let of =
                |handler: &Value| ["/httpGet/host", "/tcpSocket/host"].map(|p| text(handler, p).to_owned());
            let bad: Vec<String> = handlers.flat_map(of).filter(|host| !host.is_empty()).collect();
            let is_bad = !bad.is_empty();
            hosts.extend(bad);
            is_bad
        })
        .into_iter()
        .collect();
    if names.is_empty() {
        return None;
    }
    let names: Vec<&str> = names.into_iter().collect();
    let detail = format!(
        "{} {} {} {}",
        containers(&names),
        plural("uses", "use", names.len()),
        plural("probe or lifecycle host", "probe or lifecycle hosts", hosts.len()),
        quoted(&hosts),
    );
    Violation::new("probe or lifecycle host", detail)
}

fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let names = pod.bad(|container| security(container, "privileged") == Some(&Value::Bool(true)));
    if names.is_empty() {
        return None;
    }
    Violation::new(
        "privileged",
        format!("{} must not set securityContext.privileged=true", containers(&names)),
    )
}

fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let names = pod.bad(|container| {
        let given = security(container, "procMount").and_then(Value::as_str);
        let bad = given.filter(|mount| *mount != "Default");
        types.extend(bad);
        bad.is_some()
    });
    if names.is_empty() {
        return None;
    }
    let detail =
        format!("{} must not set securityContext.procMount to {}", containers(&names), quoted(&types));
    Violation::new("procMount", detail)
}

fn se_linux(pod: &Pod<'_>, allowed: &[&str]) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let (mut sets_user, mut sets_role) = (false, false);
    let mut is_bad = |object: &Value| {
        let Some(options) = security(object, "seLinuxOptions") else { return false };
        let (kind, user, role) = (text(options, "/type"), text(options, "/user"), text(options, "/role"));
        let is_bad_type = !allowed.contains(&kind);
        if is_bad_type {
            types.insert(kind.to_owned());
        }
        sets_user |= !user.is_empty();
        sets_role |= !role.is_empty();
        is_bad_type || !user.is_empty() || !role.is_empty()
    };
    let by_pod = is_bad(pod.spec);
    let names = pod.bad(&mut is_bad);
    let who = setters(by_pod, &names)?;
    let mut what = Vec::new();
    if !types.is_empty() {
        what.push(format!("{} {}", plural("type", "types", types.len()), quoted(&types)));
    }
    what.extend(sets_user.then(|| "user may not be set".to_owned()));
    what.extend(sets_role.then(|| "role may not be set".to_owned()));
    let detail = format!("{who} set forbidden securityContext.seLinuxOptions: {}", what.join("; "));
    Violation::new("seLinuxOptions", detail)
}

fn seccomp_annotations(pod: &Pod<'_>) -> Option<Violation> {
    let is_bad = |value: &str| {
        !(matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/"))
    };
    let keys = pod
        .containers()
        .map(|container| format!("container.seccomp.security.alpha.kubernetes.io/{}", name(container)));
    let keys = std::iter::once("seccomp.security.alpha.kubernetes.io/pod".to_owned()).chain(keys);
    let forbidden: BTreeSet<String> = keys
        .filter_map(|key| Some((pod.annotations?.get(&key)?.as_str()?, key)))
        .filter(|(value, _)| is_bad(value))
        .map(|(value, key)| format!("{key}={value:?}"))
        .collect();
    if forbidden.is_empty() {
        return None;
    }
    let what = plural("annotation", "annotations", forbidden.len());
    let shown = forbidden.into_iter().collect::<Vec<_>>().join(", ");
    Violation::new("seccompProfile", format!("forbidden {what} {shown}"))
}

/// A profile must be a good one, and if `is_required` there must be one.
fn seccomp(pod: &Pod<'_>, is_required: bool) -> Option<Violation> {
    let given = |object: &Value| -> Option<String> {
        security(object, "seccompProfile").map(|profile| text(profile, "/type").to_owned())
    };
    let mut values = BTreeSet::new();
    let mut is_bad = |object: &Value| {
        let bad = given(object).filter(|kind| !matches!(kind.as_str(), "Localhost" | "RuntimeDefault"));
        let is_bad = bad.is_some();
        values.extend(bad);
        is_bad
    };
    let by_pod = is_bad(pod.spec);
    let names = pod.bad(&mut is_bad);
    if let Some(who) = setters(by_pod, &names) {
        let detail = format!("{who} must not set securityContext.seccompProfile.type to {}", quoted(&values));
        return Violation::new("seccompProfile", detail);
    }
    if !is_required || given(pod.spec).is_some() {
        return None;
    }
    let names = pod.bad(|container| given(container).is_none());
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
        containers(&names)
    );
    Violation::new("seccompProfile", detail)
}

fn sysctls(pod: &Pod<'_>, allowed: usize) -> Option<Violation> {
    let set = pod.pod_security("sysctls").and_then(Value::as_array).into_iter().flatten().map(name);
    let forbidden: Vec<&str> =
        set.filter(|name| !resources::sysctls::SAFE.iter().take(allowed).any(|one| one == name)).collect();
    if forbidden.is_empty() { None } else { Violation::new("forbidden sysctls", forbidden.join(", ")) }
}

fn windows_host_process(pod: &Pod<'_>) -> Option<Violation> {
    let is_bad = |object: &Value| {
        security(object, "windowsOptions").and_then(|options| options.get("hostProcess"))
            == Some(&Value::Bool(true))
    };
    let who = setters(is_bad(pod.spec), &pod.bad(is_bad))?;
    Violation::new(
        "hostProcess",
        format!("{who} must not set securityContext.windowsOptions.hostProcess=true"),
    )
}

fn privilege_escalation(pod: &Pod<'_>) -> Option<Violation> {
    let names =
        pod.bad(|container| security(container, "allowPrivilegeEscalation") != Some(&Value::Bool(false)));
    if names.is_empty() {
        return None;
    }
    let detail = format!("{} must set securityContext.allowPrivilegeEscalation=false", containers(&names));
    Violation::new("allowPrivilegeEscalation != false", detail)
}

fn run_as_non_root(pod: &Pod<'_>) -> Option<Violation> {
    let given = |object: &Value| security(object, "runAsNonRoot").and_then(Value::as_bool);
    let reason = "runAsNonRoot != true";
    let of_pod = given(pod.spec);
    let explicit = pod.bad(|container| given(container) == Some(false));
    if let Some(who) = setters(of_pod == Some(false), &explicit) {
        return Violation::new(reason, format!("{who} must not set securityContext.runAsNonRoot=false"));
    }
    let implicit = pod.bad(|container| of_pod.is_none() && given(container).is_none());
    if implicit.is_empty() {
        return None;
    }
    Violation::new(
        reason,
        format!("pod or {} must set securityContext.runAsNonRoot=true", containers(&implicit)),
    )
}

fn run_as_user(pod: &Pod<'_>) -> Option<Violation> {
    let is_root = |object: &Value| security(object, "runAsUser").and_then(Value::as_i64) == Some(0);
    let who = setters(is_root(pod.spec), &pod.bad(is_root))?;
    Violation::new("runAsUser=0", format!("{who} must not set runAsUser=0"))
}

#[cfg(test)]
mod tests;
