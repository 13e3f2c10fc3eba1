//! Pods, their templates, containers, probes and volumes.

use serde_json::{Map, Value, json};

use crate::pod_resources::{Half, of_containers};

use super::{Row, absent, fill_resources, object, objects, quantities, quantity, text, unset};

/// The rows of this file.
pub(super) const ROWS: &[Row] = &[
    ("io.k8s.api.core.v1.Pod", pod),
    ("io.k8s.api.core.v1.PodSpec", pod_spec),
    ("io.k8s.api.core.v1.Container", container),
    ("io.k8s.api.core.v1.EphemeralContainer", container),
    ("io.k8s.api.core.v1.ContainerStatus", |m| quantities(m, "allocatedResources")),
    ("io.k8s.api.core.v1.ContainerPort", |m| unset(m, "protocol", "TCP")),
    ("io.k8s.api.core.v1.ResourceRequirements", resource_requirements),
    ("io.k8s.api.core.v1.VolumeResourceRequirements", resource_requirements),
    ("io.k8s.api.core.v1.Probe", probe),
    ("io.k8s.api.core.v1.HTTPGetAction", http_get),
    ("io.k8s.api.core.v1.GRPCAction", |m| absent(m, "service", "")),
    ("io.k8s.api.core.v1.ObjectFieldSelector", |m| unset(m, "apiVersion", "v1")),
    ("io.k8s.api.core.v1.ResourceFieldSelector", resource_field_selector),
    ("io.k8s.api.core.v1.FileKeySelector", |m| absent(m, "optional", false)),
    ("io.k8s.api.core.v1.Volume", volume),
    ("io.k8s.api.core.v1.EmptyDirVolumeSource", |m| quantity(m, "sizeLimit")),
    ("io.k8s.api.core.v1.SecretVolumeSource", default_mode),
    ("io.k8s.api.core.v1.ConfigMapVolumeSource", default_mode),
    ("io.k8s.api.core.v1.DownwardAPIVolumeSource", default_mode),
    ("io.k8s.api.core.v1.ProjectedVolumeSource", default_mode),
    ("io.k8s.api.core.v1.ServiceAccountTokenProjection", |m| absent(m, "expirationSeconds", 3600)),
    ("io.k8s.api.core.v1.HostPathVolumeSource", |m| absent(m, "type", "")),
    ("io.k8s.api.core.v1.ISCSIVolumeSource", |m| unset(m, "iscsiInterface", "default")),
    ("io.k8s.api.core.v1.ISCSIPersistentVolumeSource", |m| unset(m, "iscsiInterface", "default")),
    ("io.k8s.api.core.v1.RBDVolumeSource", rbd),
    ("io.k8s.api.core.v1.RBDPersistentVolumeSource", rbd),
    ("io.k8s.api.core.v1.ScaleIOVolumeSource", scale_io),
    ("io.k8s.api.core.v1.ScaleIOPersistentVolumeSource", scale_io),
    ("io.k8s.api.core.v1.AzureDiskVolumeSource", azure_disk),
];

/// What holds for Pods but not for templates.
fn pod(pod: &mut Map<String, Value>) {
    let Some(spec) = object(pod, "spec") else { return };
    for list in ["containers", "initContainers"] {
        for container in objects(spec, list) {
            if let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) {
                fill_resources(resources, "limits", "requests");
            }
        }
    }
    pod_level_requests(spec);
    absent(spec, "enableServiceLinks", true);
    if spec.get("hostNetwork").and_then(Value::as_bool) == Some(true) {
        for list in ["containers", "initContainers"] {
            for container in objects(spec, list) {
                for port in objects(container, "ports") {
                    let number = port.get("containerPort").cloned().unwrap_or_default();
                    unset(port, "hostPort", number);
                }
            }
        }
    }
}

/// A Pod that names limits of its own asks for what its containers do together, or else for as much as its limits;
/// huge pages cannot be overcommitted, so that their limits are the containers' together.
///
/// Source: `defaultPodRequests`, `defaultHugePagePodLimits`, KEP-2837.
fn pod_level_requests(spec: &mut Map<String, Value>) {
    let is_set = |half: &str| spec.get("resources").and_then(|r| r.get(half)?.as_object()).is_some();
    if !is_set("limits") && !is_set("requests") {
        return;
    }
    let pod = json!({"spec": spec});
    let of = |half| of_containers(&pod, half);
    let (requests, limits) = (of(Half::Requests), of(Half::Limits));
    let Some(resources) = spec.get_mut("resources").and_then(Value::as_object_mut) else { return };
    let huge = limits.into_iter().filter(|(name, _)| name.starts_with("hugepages-"));
    fill(resources, "limits", huge.map(|(name, amount)| (name, amount.to_string().into())));
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    let asked = requests.into_iter().filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory"));
    fill(resources, "requests", asked.map(|(name, amount)| (name, amount.to_string().into())));
    let is_of_pods = |name: &str| matches!(name, "cpu" | "memory") || name.starts_with("hugepages-");
    fill(resources, "requests", limits.into_iter().filter(|(name, _)| is_of_pods(name)));
}

/// Adds what is missing.
fn fill(resources: &mut Map<String, Value>, half: &str, amounts: impl Iterator<Item = (String, Value)>) {
    let mut amounts = amounts.peekable();
    if amounts.peek().is_none() {
        return;
    }
    let Some(list) = object(resources, half) else { return };
    for (name, amount) in amounts {
        list.entry(name).or_insert(amount);
    }
}

fn pod_spec(spec: &mut Map<String, Value>) {
    unset(spec, "dnsPolicy", "ClusterFirst");
    unset(spec, "restartPolicy", "Always");
    absent(spec, "securityContext", Map::new());
    absent(spec, "terminationGracePeriodSeconds", 30);
    unset(spec, "schedulerName", "default-scheduler");
    // The deprecated name mirrors the new one, both ways.
    match (text(spec, "serviceAccountName"), text(spec, "serviceAccount")) {
        ("", "") => {}
        ("", old) => {
            let old = old.to_owned();
            spec.insert("serviceAccountName".to_owned(), old.into());
        }
        (name, _) => {
            let name = name.to_owned();
            spec.insert("serviceAccount".to_owned(), name.into());
        }
    }
    quantities(spec, "overhead");
}

fn container(container: &mut Map<String, Value>) {
    let policy = pull_policy(text(container, "image"));
    unset(container, "imagePullPolicy", policy);
    unset(container, "terminationMessagePath", "/dev/termination-log");
    unset(container, "terminationMessagePolicy", "File");
    absent(container, "resources", Map::new());
}

/// `Always` for the tag `latest`, written or implied; `IfNotPresent` otherwise, also for a digest.
fn pull_policy(image: &str) -> &'static str {
    if image.is_empty() || image.contains('@') {
        return "IfNotPresent";
    }
    let name = image.rsplit('/').next().unwrap_or(image);
    match name.split_once(':') {
        None | Some((_, "latest")) => "Always",
        Some(_) => "IfNotPresent",
    }
}

fn resource_requirements(resources: &mut Map<String, Value>) {
    quantities(resources, "limits");
    quantities(resources, "requests");
}

fn resource_field_selector(selector: &mut Map<String, Value>) {
    absent(selector, "divisor", "0");
    quantity(selector, "divisor");
}

fn probe(probe: &mut Map<String, Value>) {
    unset(probe, "timeoutSeconds", 1);
    unset(probe, "periodSeconds", 10);
    unset(probe, "successThreshold", 1);
    unset(probe, "failureThreshold", 3);
}

fn http_get(action: &mut Map<String, Value>) {
    unset(action, "path", "/");
    unset(action, "scheme", "HTTP");
}

fn volume(volume: &mut Map<String, Value>) {
    if !volume.iter().any(|(name, source)| name != "name" && !source.is_null()) {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
    if let Some(image) = volume.get_mut("image").and_then(Value::as_object_mut) {
        let policy = pull_policy(text(image, "reference"));
        unset(image, "pullPolicy", policy);
    }
}

fn default_mode(source: &mut Map<String, Value>) {
    absent(source, "defaultMode", 0o644);
}

fn rbd(source: &mut Map<String, Value>) {
    unset(source, "pool", "rbd");
    unset(source, "user", "admin");
    unset(source, "keyring", "/etc/ceph/keyring");
}

fn scale_io(source: &mut Map<String, Value>) {
    unset(source, "storageMode", "ThinProvisioned");
    unset(source, "fsType", "xfs");
}

fn azure_disk(source: &mut Map<String, Value>) {
    absent(source, "cachingMode", "ReadWrite");
    absent(source, "kind", "Shared");
    absent(source, "fsType", "ext4");
    absent(source, "readOnly", false);
}
