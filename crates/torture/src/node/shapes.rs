//! The Pods: a row for each shape, with what a Pod of it is for.

use serde_json::{Value, json};

use super::BUSYBOX;

const HELLO: &str = "knarr.local/hello";

/// The goal of a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// `Ready`.
    Ready,
    /// `Succeeded`, or `Failed` if the process that keeps its exit code was killed.
    Done,
    /// Started anew at least once.
    Restarted,
}

/// A shape.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// For names.
    pub name: &'static str,
    /// Its goal.
    pub goal: Goal,
    /// The object, by its name.
    pub pod: fn(&str) -> Value,
    /// `true` if it needs a claim.
    pub claim: bool,
    /// The visit to one that runs.
    pub visit: Visit,
}

/// The visit to a Pod that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit {
    /// Nothing.
    None,
    /// A command runs in it until its end.
    Exec,
    /// It gets an ephemeral container.
    Debug,
}

/// The beginning of the names of Pods whose containers end by themselves.
pub const CRASHING: &str = "crash-";

const fn shape(name: &'static str, pod: fn(&str) -> Value) -> Shape {
    Shape { name, goal: Goal::Ready, pod, claim: false, visit: Visit::None }
}

/// Pods that are there from the beginning to the end.
pub const STEADY: &[Shape] = &[
    shape("plain", |name| pod(name, json!({ "containers": [hello()] }))),
    shape("volumes", volumes),
    shape("probes", probes),
    shape("host-port", |name| host_port(name, 8099)),
    shape("users", |name| pod(name, json!({ "hostUsers": false, "containers": [sleeper("main")] }))),
    shape("shared", shared),
    shape("sidecar", sidecar),
];

/// Pods that come and go.
pub const MOVING: &[Shape] = &[
    shape("plain", |name| pod(name, json!({ "containers": [hello()] }))),
    shape("sidecar", sidecar),
    shape("probes", probes),
    shape("host-port", |name| limited(host_port(name, port_of(name)))),
    shape("volumes", volumes),
    Shape { claim: true, ..shape("claim", claim) },
    shape("hooks", hooks),
    shape("users", |name| {
        pod(name, json!({ "hostUsers": false, "containers": [hello(), sleeper("second")] }))
    }),
    shape("shared", shared),
    shape("host", |name| pod(name, json!({ "hostNetwork": true, "containers": [sleeper("main")] }))),
    Shape { goal: Goal::Done, ..shape("job", job) },
    Shape { goal: Goal::Restarted, ..shape("crash", crash) },
    Shape { visit: Visit::Debug, ..shape("debug", |name| pod(name, json!({ "containers": [hello()] }))) },
    Shape {
        visit: Visit::Exec,
        ..shape("exec", |name| pod(name, json!({ "containers": [sleeper("main")] })))
    },
];

fn pod(name: &str, mut spec: Value) -> Value {
    spec["terminationGracePeriodSeconds"] = json!(1);
    json!({ "metadata": { "name": name, "labels": { "shape": name } }, "spec": spec })
}

/// Its packets are led through queues and a link of their own.
fn limited(mut pod: Value) -> Value {
    let rates = json!({ "kubernetes.io/ingress-bandwidth": "1G", "kubernetes.io/egress-bandwidth": "1G" });
    pod["metadata"]["annotations"] = rates;
    pod
}

fn hello() -> Value {
    json!({ "name": "hello", "image": HELLO, "imagePullPolicy": "IfNotPresent" })
}

/// A container that runs a script.
fn script(name: &str, text: &str) -> Value {
    json!({
        "name": name,
        "image": BUSYBOX,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", text],
    })
}

/// It ends at once when it is asked to.
fn sleeper(name: &str) -> Value {
    script(name, "trap 'exit 0' TERM; sleep 100000 & wait")
}

fn with(mut container: Value, field: &str, value: Value) -> Value {
    container[field] = value;
    container
}

fn sidecar(name: &str) -> Value {
    let helper = with(sleeper("helper"), "restartPolicy", json!("Always"));
    let first = script("first", "echo one > /made/one");
    let second = script("second", "test -f /made/one");
    let mount = json!([{ "name": "work", "mountPath": "/made" }]);
    let init: Vec<Value> =
        [first, helper, second].into_iter().map(|it| with(it, "volumeMounts", mount.clone())).collect();
    let main = with(script("main", "test -f /made/one && exec sleep 100000"), "volumeMounts", mount);
    pod(
        name,
        json!({
            "initContainers": init, "containers": [main], "volumes": [{ "name": "work", "emptyDir": {} }],
        }),
    )
}

fn probes(name: &str) -> Value {
    // What a probe runs may be killed, again and again.
    let probe = |how: &str, what: Value| json!({ how: what, "periodSeconds": 1, "timeoutSeconds": 30, "failureThreshold": 30 });
    let exec = probe("exec", json!({ "command": ["sh", "-c", "true"] }));
    let http = probe("httpGet", json!({ "path": "/", "port": 8080 }));
    let first = with(with(sleeper("exec"), "readinessProbe", exec.clone()), "startupProbe", exec);
    let second = with(with(hello(), "readinessProbe", http.clone()), "livenessProbe", http);
    pod(name, json!({ "containers": [first, second] }))
}

/// A port for each name: whoever was removed by force may hold its own for a moment longer, and nobody else may come then.
fn port_of(name: &str) -> u16 {
    8100 + name.bytes().fold(0_u16, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % 1000
}

fn host_port(name: &str, port: u16) -> Value {
    let ports = json!([{ "containerPort": 8080, "hostPort": port }]);
    pod(name, json!({ "containers": [with(hello(), "ports", ports)] }))
}

fn volumes(name: &str) -> Value {
    // What is not there in its first moment is a container that fails.
    let look = "cat /config/a /config/b /secret/c /all/a /all/token /all/name /deep/a >/dev/null && exec sleep 100000";
    let mounts = json!([
        { "name": "config", "mountPath": "/config" },
        { "name": "secret", "mountPath": "/secret" },
        { "name": "all", "mountPath": "/all" },
        { "name": "memory", "mountPath": "/memory" },
        { "name": "scratch", "mountPath": "/scratch", "subPath": "below" },
        { "name": "config", "mountPath": "/deep/a", "subPath": "a" },
    ]);
    pod(
        name,
        json!({
            "containers": [with(script("main", look), "volumeMounts", mounts)],
            "securityContext": { "fsGroup": 2000 },
            "volumes": [
                { "name": "config", "configMap": { "name": "config" } },
                { "name": "secret", "secret": { "secretName": "secret" } },
                { "name": "memory", "emptyDir": { "medium": "Memory" } },
                { "name": "scratch", "emptyDir": {} },
                { "name": "all", "projected": { "sources": [
                    { "configMap": { "name": "config" } },
                    { "serviceAccountToken": { "path": "token" } },
                    { "downwardAPI": { "items": [{ "path": "name", "fieldRef": { "fieldPath": "metadata.name" } }] } },
                ] } },
            ],
        }),
    )
}

/// A claim on the default StorageClass.
#[must_use]
pub fn volume_claim(name: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Mi" } } },
    })
}

fn claim(name: &str) -> Value {
    let mounts = json!([{ "name": "data", "mountPath": "/data" }]);
    pod(
        name,
        json!({
            "containers": [with(script("main", "echo x > /data/x && exec sleep 100000"), "volumeMounts", mounts)],
            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": name } }],
        }),
    )
}

fn hooks(name: &str) -> Value {
    let exec = |command: &str| json!({ "exec": { "command": ["sh", "-c", command] } });
    let lifecycle =
        json!({ "postStart": exec("echo started > /tmp/started"), "preStop": exec("echo stopping") });
    pod(name, json!({ "containers": [with(sleeper("main"), "lifecycle", lifecycle), sleeper("second")] }))
}

fn shared(name: &str) -> Value {
    pod(name, json!({ "shareProcessNamespace": true, "containers": [sleeper("main"), sleeper("second")] }))
}

fn job(name: &str) -> Value {
    pod(name, json!({ "restartPolicy": "Never", "containers": [script("main", "echo done")] }))
}

fn crash(name: &str) -> Value {
    pod(name, json!({ "containers": [script("main", "exit 3"), sleeper("second")] }))
}

/// The ephemeral container that is added to a Pod to look into it.
#[must_use]
pub fn ephemeral() -> Value {
    json!({ "spec": { "ephemeralContainers": [sleeper("debugger")] } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_shapes_are_of_their_name() {
        for shapes in [STEADY, MOVING] {
            for (at, shape) in shapes.iter().enumerate() {
                assert!(shapes[..at].iter().all(|before| before.name != shape.name), "{} twice", shape.name);
                let pod = (shape.pod)("x-1");
                assert_eq!(pod["metadata"]["name"], "x-1");
                assert!(pod["spec"]["containers"].as_array().is_some_and(|all| !all.is_empty()));
            }
        }
    }
}
