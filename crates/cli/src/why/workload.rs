//! Why what owns or selects Pods is not running: its own conditions, then those of its Pods that are not ready.

use serde_json::Value;

use super::{Found, Reason, Snapshot, condition, job, list, number, pod, reference, text, warnings};

/// Deployments, ReplicaSets, StatefulSets, DaemonSets.
pub(super) fn explain(snapshot: &Snapshot, subject: &Value) -> Found {
    let mut reasons = own(snapshot, subject);
    let pods = pods_below(snapshot, subject, &mut reasons);
    let (ready, wanted) = counts(subject, &pods);
    for pod in &pods {
        reasons.extend(pod::explain(snapshot, pod).2);
    }
    if let Some(wanted) = wanted
        && i64::try_from(pods.len()).is_ok_and(|made| made < wanted)
        && reasons.is_empty()
    {
        let what = format!("{} of {wanted} Pods have been made", pods.len());
        reasons
            .push(Reason::new(&reference(subject), what).fix("see that the controllers run: `knarr status`"));
    }
    let is_running = wanted.is_none_or(|wanted| ready >= wanted) && reasons.is_empty();
    if text(subject, "/kind") == "DaemonSet" && wanted == Some(0) && reasons.is_empty() {
        reasons.extend(matches_no_node(snapshot, subject));
        return (reasons.is_empty(), "wants no Pods".into(), reasons);
    }
    let summary = match wanted {
        Some(0) => "wants no Pods".to_owned(),
        Some(wanted) => format!("has {ready} of {wanted} Pods ready"),
        None => if is_running { "is well" } else { "is not well" }.to_owned(),
    };
    (is_running, summary, reasons)
}

/// Why a DaemonSet that was looked at wants no Pods: its Pods are for other Nodes than there are.
fn matches_no_node(snapshot: &Snapshot, set: &Value) -> Option<Reason> {
    let nodes = snapshot.others.iter().filter(|object| text(object, "/kind") == "Node").count();
    if nodes == 0 {
        return Some(Reason::new(&reference(set), "there is no Node").fix("see `kubectl get nodes`"));
    }
    let selector = set.pointer("/spec/template/spec/nodeSelector").and_then(Value::as_object);
    let labels = selector
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    let labels = labels.collect::<Vec<_>>().join(",");
    let what = match labels.is_empty() {
        true => "no Node is one that its affinity and tolerations allow".to_owned(),
        false => format!("no Node that it tolerates has the labels {labels} of its nodeSelector"),
    };
    let fix =
        "label a node (`kubectl label nodes NODE KEY=VALUE`), tolerate its taints, or change the selector";
    Some(Reason::new(&reference(set), what).fix(fix))
}

/// How many Pods are ready, and how many should be.
fn counts(subject: &Value, pods: &[&Value]) -> (i64, Option<i64>) {
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    let wanted = match text(subject, "/kind") {
        "DaemonSet" => number(subject, "/status/desiredNumberScheduled"),
        _ => number(subject, "/spec/replicas"),
    };
    (i64::try_from(ready).unwrap_or(i64::MAX), wanted)
}

fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready").is_some_and(|ready| text(ready, "/status") == "True")
}

/// What the object says of itself.
pub(super) fn own(snapshot: &Snapshot, subject: &Value) -> Vec<Reason> {
    let object = reference(subject);
    let kind = text(subject, "/kind").to_lowercase();
    let name = text(subject, "/metadata/name");
    let mut reasons = Vec::new();
    if !text(subject, "/metadata/deletionTimestamp").is_empty() {
        let finalizers: Vec<&str> =
            list(subject, "/metadata/finalizers").iter().filter_map(Value::as_str).collect();
        reasons
            .push(Reason::new(&object, format!("is being deleted; it waits for {}", finalizers.join(", "))));
    }
    if subject.pointer("/spec/paused") == Some(&Value::Bool(true)) {
        reasons
            .push(Reason::new(&object, "is paused").fix(format!("`kubectl rollout resume {kind} {name}`")));
    }
    if subject.pointer("/spec/suspend") == Some(&Value::Bool(true)) {
        let fix = format!("`kubectl patch {kind} {name} -p '{{\"spec\":{{\"suspend\":false}}}}'`");
        reasons.push(Reason::new(&object, "is suspended").fix(fix));
    }
    if text(subject, "/kind") == "Job" {
        reasons.extend(job::troubles(subject));
    }
    for (kind, status) in [("ReplicaFailure", "True"), ("Progressing", "False")] {
        if let Some(found) = condition(subject, kind).filter(|found| text(found, "/status") == status) {
            reasons.push(Reason::new(
                &object,
                format!("{}: {}", text(found, "/reason"), text(found, "/message")),
            ));
        }
    }
    if reasons.is_empty() {
        let (generation, observed) =
            (number(subject, "/metadata/generation"), number(subject, "/status/observedGeneration"));
        let has_status = !matches!(text(subject, "/kind"), "Job" | "CronJob");
        if has_status && generation > observed {
            let what = "its controller has not looked at it since it was changed";
            reasons.push(Reason::new(&object, what).fix("see that the controllers run: `knarr status`"));
        }
        reasons.extend(warnings(snapshot, subject).into_iter().map(|warning| Reason::new(&object, warning)));
    }
    reasons
}

/// The Pods below an object, down the owner references; what the objects between say of themselves goes to `reasons`.
pub(super) fn pods_below<'a>(
    snapshot: &'a Snapshot,
    owner: &Value,
    reasons: &mut Vec<Reason>,
) -> Vec<&'a Value> {
    let mut pods = Vec::new();
    collect(snapshot, owner, &mut pods, reasons);
    pods
}

fn collect<'a>(snapshot: &'a Snapshot, owner: &Value, pods: &mut Vec<&'a Value>, reasons: &mut Vec<Reason>) {
    let uid = text(owner, "/metadata/uid");
    let is_owned = |object: &&Value| {
        let owners = list(object, "/metadata/ownerReferences").iter();
        !uid.is_empty() && owners.into_iter().any(|reference| text(reference, "/uid") == uid)
    };
    for child in
        snapshot.others.iter().filter(is_owned).filter(|child| job::is_of_today(snapshot, owner, child))
    {
        if text(child, "/kind") == "Pod" {
            pods.push(child);
            continue;
        }
        // A Deployment's older ReplicaSets want no Pods and say nothing of today.
        if number(child, "/spec/replicas") != Some(0) {
            reasons.extend(own(snapshot, child));
        }
        collect(snapshot, child, pods, reasons);
    }
}

/// A Service answers if a Pod that it selects is ready.
pub(super) fn service(snapshot: &Snapshot, service: &Value) -> Found {
    let object = reference(service);
    let selector =
        service.pointer("/spec/selector").and_then(Value::as_object).filter(|labels| !labels.is_empty());
    let Some(selector) = selector else {
        let what = "has no selector: its EndpointSlices are made by hand, or it is an external name";
        return (true, "selects no Pods".into(), vec![Reason::new(&object, what)]);
    };
    let matches = |object: &&Value| {
        let labels = object.pointer("/metadata/labels");
        text(object, "/kind") == "Pod"
            && selector.iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
    };
    let pods: Vec<&Value> = snapshot.others.iter().filter(matches).collect();
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    let mut reasons = Vec::new();
    if pods.is_empty() {
        let labels: Vec<String> = selector
            .iter()
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
            .collect();
        let labels = labels.join(",");
        let fix =
            format!("compare with `kubectl get pods --show-labels`; `kubectl get pods -l {labels}` is empty");
        reasons.push(Reason::new(&object, format!("no Pod has the labels {labels}")).fix(fix));
    }
    for pod in &pods {
        reasons.extend(missing_ports(&object, service, pod));
        reasons.extend(pod::explain(snapshot, pod).2);
    }
    if text(service, "/spec/type") == "LoadBalancer"
        && list(service, "/status/loadBalancer/ingress").is_empty()
    {
        let port = list(service, "/spec/ports").iter().find_map(|port| number(port, "/nodePort"));
        let door = port.map(|port| format!("use port {port} of a node, or ")).unwrap_or_default();
        let what = "no load balancer has given it an address";
        let fix = format!("{door}install what gives Services addresses, such as MetalLB");
        reasons.push(Reason::new(&object, what).fix(fix));
    }
    let summary = format!("has {ready} of {} Pods ready", pods.len());
    (ready > 0 && reasons.is_empty(), summary, reasons)
}

/// A target port that is a name must be a port of the Pod.
fn missing_ports(object: &str, service: &Value, pod: &Value) -> Vec<Reason> {
    let has = |name: &str| {
        let containers = list(pod, "/spec/containers").iter();
        containers.flat_map(|container| list(container, "/ports")).any(|port| text(port, "/name") == name)
    };
    let names = list(service, "/spec/ports").iter().map(|port| text(port, "/targetPort"));
    let missing = names.filter(|name| !name.is_empty() && !has(name));
    missing
        .map(|name| Reason::new(object, format!("its Pods have no port with the name {name}")))
        .take(1)
        .collect()
}
