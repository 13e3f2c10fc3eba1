//! Why a Pod is not running: is it being deleted, has it a Node, is that Node well, and what are its containers at.

use serde_json::Value;

use super::{
    Found, Reason, Snapshot, condition, list, newest, node_troubles, number, placement, reference, text,
    warnings,
};

/// Why, and in which state it is.
pub(super) fn explain(snapshot: &Snapshot, pod: &Value) -> Found {
    let is_ready = condition(pod, "Ready").is_some_and(|ready| text(ready, "/status") == "True");
    let phase = text(pod, "/status/phase");
    let is_deleted = !text(pod, "/metadata/deletionTimestamp").is_empty();
    if is_ready && !is_deleted {
        return (true, "is running and ready".into(), decided(snapshot, pod).into_iter().collect());
    }
    if phase == "Succeeded" && !is_deleted {
        return (true, "has ended well".into(), Vec::new());
    }
    let mut reasons = Vec::new();
    if is_deleted {
        reasons.extend(deletion(pod));
    }
    reasons.extend(failure(pod));
    let node = text(pod, "/spec/nodeName");
    if node.is_empty() {
        reasons.extend(unscheduled(snapshot, pod));
        let message = condition(pod, "PodScheduled").map(|found| text(found, "/message"));
        reasons.extend(placement::details(snapshot, pod, message.unwrap_or_default()));
        reasons.extend(decided(snapshot, pod));
    } else {
        reasons.extend(of_node(snapshot, pod, node));
        reasons.extend(containers(pod));
        reasons.extend(gates(pod));
        reasons.extend(told_by_events(snapshot, pod, &reasons));
    }
    if reasons.is_empty() && has_failed(pod) {
        reasons
            .push(Reason::new(&reference(pod), format!("the kubelet of node {node} has not said of what")));
    } else if reasons.is_empty() {
        reasons.push(being_made(snapshot, pod, node));
    }
    let summary = match phase {
        _ if is_deleted => "is being deleted",
        "Failed" => "has failed",
        "Running" => "runs, but is not ready",
        _ => "is not running",
    };
    (false, summary.into(), reasons)
}

/// What its scheduler found out when it last looked at it: by plugin and Node.
fn decided(snapshot: &Snapshot, pod: &Value) -> Option<Reason> {
    let is_it = text(&snapshot.subject, "/metadata/uid") == text(pod, "/metadata/uid");
    let decision = snapshot.decision.as_ref().filter(|decision| is_it && !decision.text.is_empty())?;
    let node = text(pod, "/spec/nodeName");
    let what = match node {
        "" if decision.waits => "had it wait".to_owned(),
        "" => "found no node for it".to_owned(),
        node => format!("chose node {node}"),
    };
    let what = format!("the scheduler {what} {}: {}", decision.age(), decision.text);
    Some(Reason::new(&reference(pod), what))
}

/// Nothing is wrong with it so far.
fn being_made(snapshot: &Snapshot, pod: &Value, node: &str) -> Reason {
    let object = reference(pod);
    if let Some(event) = newest(snapshot, pod).filter(|event| text(event, "/reason") == "Pulling") {
        let image = text(event, "/message").trim_start_matches("Pulling image ");
        return Reason::new(&object, format!("the image {image} is being pulled"));
    }
    if list(pod, "/status/containerStatuses").is_empty() {
        let what = format!("the kubelet of node {node} has not said anything of it yet");
        return Reason::new(&object, what).fix(format!("see `knarr why node/{node}`"));
    }
    Reason::new(&object, format!("the kubelet of node {node} is making its containers"))
}

fn deletion(pod: &Value) -> Option<Reason> {
    let finalizers: Vec<&str> = list(pod, "/metadata/finalizers").iter().filter_map(Value::as_str).collect();
    if finalizers.is_empty() {
        let seconds = number(pod, "/metadata/deletionGracePeriodSeconds").unwrap_or(0);
        return Some(Reason::new(&reference(pod), format!("its containers have {seconds} s to end")));
    }
    let what = format!("finalizers keep it: {}", finalizers.join(", "));
    Some(Reason::new(&reference(pod), what).fix("whoever set them must remove them when its work is done"))
}

/// A Pod as a whole may fail: evicted, its deadline, its node.
fn failure(pod: &Value) -> Option<Reason> {
    let reason = text(pod, "/status/reason");
    let what = format!("{reason}: {}", text(pod, "/status/message"));
    (!reason.is_empty()).then(|| Reason::new(&reference(pod), what))
}

fn unscheduled(snapshot: &Snapshot, pod: &Value) -> Option<Reason> {
    let object = reference(pod);
    if let Some(condition) = condition(pod, "PodScheduled").filter(|found| text(found, "/status") == "False")
    {
        if text(condition, "/reason") == "SchedulingGated" {
            let gates: Vec<&str> =
                list(pod, "/spec/schedulingGates").iter().map(|gate| text(gate, "/name")).collect();
            let what = format!("scheduling gates hold it back: {}", gates.join(", "));
            return Some(Reason::new(&object, what).fix("whoever set them must remove them"));
        }
        let message = text(condition, "/message");
        // What of it is about Pods that could make way is for who asks about them.
        let said = message.split(" no new claims to deallocate").next().unwrap_or_default();
        let said = said.split(" preemption: ").next().unwrap_or_default();
        return Some(Reason::new(&object, format!("no node fits: {said}")).fix(fit(message)));
    }
    let scheduler =
        Some(text(pod, "/spec/schedulerName")).filter(|name| !name.is_empty()).unwrap_or("default-scheduler");
    let seen = warnings(snapshot, pod);
    if let Some(warning) = seen.first() {
        return Some(Reason::new(&object, warning.clone()));
    }
    if snapshot.decision.as_ref().is_some_and(|decision| decision.waits) {
        return None;
    }
    let what = format!("no scheduler has looked at it yet; it waits for {scheduler}");
    Some(Reason::new(&object, what).fix("see that a scheduler of that name runs"))
}

/// What to do about the scheduler's message. Source: the plugins' reasons.
fn fit(message: &str) -> String {
    let advice: &[(&str, &str)] = &[
        ("Insufficient", "lower the requests of its containers, remove other Pods, or add a node"),
        ("untolerated taint", "add a toleration, or take the taint off (`kubectl taint nodes NODE KEY-`)"),
        ("node affinity/selector", "label a node as its nodeSelector and affinity say, or change them"),
        ("were unschedulable", "`kubectl uncordon` the node"),
        ("free ports", "its hostPort is taken: choose another, or run fewer of it than there are nodes"),
        ("Too many pods", "remove other Pods, or add a node"),
        ("unbound immediate PersistentVolumeClaims", "see to its claims first"),
        ("persistentvolumeclaim", "make the claim that it names, or see `knarr why pvc/NAME`"),
        ("no nodes available", "no Node has joined the cluster: see `kubectl get nodes`"),
    ];
    let found: Vec<&str> =
        advice.iter().filter(|(part, _)| message.contains(part)).map(|(_, advice)| *advice).collect();
    if found.is_empty() { "see `kubectl describe nodes`".into() } else { found.join("; ") }
}

fn of_node(snapshot: &Snapshot, pod: &Value, name: &str) -> Vec<Reason> {
    let object = reference(pod);
    let is_it = |other: &&Value| text(other, "/kind") == "Node" && text(other, "/metadata/name") == name;
    let Some(node) = snapshot.others.iter().find(is_it) else {
        let what = format!("its node {name} does not exist");
        return vec![Reason::new(&object, what).fix("delete the Pod, or let the node join")];
    };
    let ready = condition(node, "Ready").is_some_and(|ready| text(ready, "/status") == "True");
    if ready {
        return Vec::new();
    }
    let troubles = node_troubles("", node).into_iter().map(|reason| reason.what);
    let troubles = troubles.collect::<Vec<_>>().join("; ");
    vec![
        Reason::new(&object, format!("its node {name} is not ready: {troubles}"))
            .fix(format!("see `knarr why node/{name}`")),
    ]
}

fn containers(pod: &Value) -> Vec<Reason> {
    let object = reference(pod);
    let mut reasons = Vec::new();
    for (path, what) in
        [("/status/initContainerStatuses", "init container"), ("/status/containerStatuses", "container")]
    {
        let of_kind = list(pod, path).iter();
        reasons.extend(of_kind.filter_map(|status| container(&object, what, status, pod)));
    }
    reasons
}

fn container(object: &str, what: &str, status: &Value, pod: &Value) -> Option<Reason> {
    let name = text(status, "/name");
    let pod_name = text(pod, "/metadata/name");
    if let Some(waiting) = status.pointer("/state/waiting") {
        let reason = text(waiting, "/reason");
        if matches!(reason, "" | "ContainerCreating" | "PodInitializing") {
            return None;
        }
        let message = text(waiting, "/message");
        let last = status
            .pointer("/lastState/terminated")
            .map(|last| format!("; it {}", ended(last)))
            .unwrap_or_default();
        let told = Reason::new(object, format!("{what} {name} waits, {reason}: {message}{last}"));
        if is_no_program(&told.what) {
            return Some(told.fix("the image has no such program: correct the container's command"));
        }
        return Some(match waiting_advice(reason, name, pod_name) {
            Some(advice) => told.fix(advice),
            None => told,
        });
    }
    if let Some(terminated) = status.pointer("/state/terminated") {
        let ended_well = number(terminated, "/exitCode") == Some(0);
        let is_meant = ended_well && (what == "init container" || has_failed(pod));
        let told = Reason::new(object, format!("{what} {name} {}", ended(terminated)));
        return (!is_meant && !is_ended_sidecar(pod, name))
            .then(|| told.fix(format!("see `kubectl logs {pod_name} -c {name}`")));
    }
    let is_ready = status.pointer("/ready") == Some(&Value::Bool(true));
    let is_started = status.pointer("/started") != Some(&Value::Bool(false));
    match (is_ready, is_started) {
        (true, _) => None,
        (false, false) => {
            Some(Reason::new(object, format!("{what} {name} runs, but its startup probe has not passed")))
        }
        (false, true) if what == "init container" => {
            Some(Reason::new(object, format!("{what} {name} has not ended yet")))
        }
        (false, true) => {
            Some(Reason::new(object, format!("{what} {name} runs, but its readiness probe does not pass")))
        }
    }
}

fn has_failed(pod: &Value) -> bool {
    text(pod, "/status/phase") == "Failed"
}

/// A sidecar is ended when the Pod has failed; it fails none.
fn is_ended_sidecar(pod: &Value, container: &str) -> bool {
    let mut init = list(pod, "/spec/initContainers").iter().filter(|init| text(init, "/name") == container);
    has_failed(pod) && init.any(|init| text(init, "/restartPolicy") == "Always")
}

/// There are no logs of what could not be started. Source: the messages of OCI runtimes.
fn is_no_program(message: &str) -> bool {
    let words = ["executable file not found", "no such file or directory", "not found in $PATH"];
    let is_start =
        ["StartError", "RunContainerError", "ContainerCannotRun", "CreateContainerError", "exit code 12"];
    words.iter().any(|word| message.to_lowercase().contains(word))
        && is_start.iter().any(|word| message.contains(word))
}

/// `ended with exit code 1 (Error), 3 times so far`
fn ended(terminated: &Value) -> String {
    let reason = text(terminated, "/reason");
    let message = text(terminated, "/message").trim();
    let code = number(terminated, "/exitCode").unwrap_or(0);
    let said = if message.is_empty() { String::new() } else { format!(": {message}") };
    match reason {
        "OOMKilled" => format!("was killed because it used more memory than its limit{said}"),
        "" => format!("ended with exit code {code}{said}"),
        reason => format!("ended with exit code {code} ({reason}){said}"),
    }
}

/// Source: the kubelet's reasons of waiting containers.
fn waiting_advice(reason: &str, container: &str, pod: &str) -> Option<String> {
    Some(match reason {
        "CrashLoopBackOff" => format!("see `kubectl logs {pod} -c {container} --previous`"),
        "ErrImagePull" | "ImagePullBackOff" | "RegistryUnavailable" => {
            "check the image's name and the Pod's imagePullSecrets, or bring it to the node with `knarr image import`"
                .into()
        }
        "ErrImageNeverPull" => {
            "bring the image to the node with `knarr image import`, or change imagePullPolicy".into()
        }
        "InvalidImageName" => "correct the image's name".into(),
        "CreateContainerConfigError" => "make the ConfigMap, Secret or key that the message names".into(),
        "CreateContainerError" | "RunContainerError" | "StartError" => {
            "check the container's command, mounts and security context".into()
        }
        _ => return None,
    })
}

fn gates(pod: &Value) -> Vec<Reason> {
    let missing = list(pod, "/spec/readinessGates")
        .iter()
        .map(|gate| text(gate, "/conditionType"))
        .filter(|gate| condition(pod, gate).is_none_or(|condition| text(condition, "/status") != "True"));
    missing
        .map(|gate| {
            Reason::new(&reference(pod), format!("its readiness gate {gate} is not True"))
                .fix("whoever sets that condition has not done so")
        })
        .collect()
}

/// What no state says: mounts and sandboxes that fail, probes' answers.
fn told_by_events(snapshot: &Snapshot, pod: &Value, known: &[Reason]) -> Vec<Reason> {
    let repeats = ["BackOff:", "Failed:", "FailedScheduling:"];
    let is_new = |warning: &String| {
        let explained = !known.is_empty() && repeats.iter().any(|reason| warning.starts_with(reason));
        let is_told = |(reason, message): (&str, &str)| {
            known.iter().any(|known| known.what.contains(reason) && known.what.contains(message.trim()))
        };
        !explained && !warning.split_once(": ").is_some_and(is_told)
    };
    let new = warnings(snapshot, pod).into_iter().filter(is_new);
    new.map(|warning| Reason::new(&reference(pod), warning)).collect()
}
