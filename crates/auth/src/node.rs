//! The Node authorizer: a kubelet may touch what the Pods bound to its node need, and its own objects.
//!
//! Kept up to date Pod by Pod. An object is reachable from a node through a Pod there; a PersistentVolume through
//! the claim it is bound to. Source: `plugin/pkg/auth/authorizer/node`, KEP-4601.

mod objects;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::api::rbac::v1::PolicyRule;
use machinery::features::Feature;
use serde_json::Value;

use crate::rbac::allows;
use crate::refusal::{Refusal, refuse, require};
use crate::{Attributes, Decision, UserInfo};
use objects::Container;
pub use objects::{ForNode, PersistentVolume, Pod};

/// Something that a Pod needs: a resource, and its key (`namespace/name`, or `name`).
type Thing = (&'static str, String);

/// A graph of what each node needs.
#[derive(Clone, Debug, Default)]
pub struct NodeGraph {
    /// Pod key to its node and what it needs, itself included.
    pods: BTreeMap<String, (String, BTreeSet<Thing>)>,
    /// What is needed, by which nodes, by how many Pods there.
    needed: HashMap<Thing, BTreeMap<String, usize>>,
    /// Volume name to the key of its claim and what it needs.
    volumes: BTreeMap<String, (String, BTreeSet<Thing>)>,
    /// Things that volumes need, by volume name.
    of_volumes: HashMap<Thing, BTreeSet<String>>,
    /// Attachment name to node.
    attachments: BTreeMap<String, String>,
    /// Name of a slice of devices to its node.
    slices: BTreeMap<String, String>,
    /// Key of a PodCertificateRequest to its node.
    certificate_requests: BTreeMap<String, String>,
    rules: NodeRules,
}

#[derive(Clone, Debug)]
struct NodeRules(Vec<PolicyRule>);

impl Default for NodeRules {
    fn default() -> Self {
        Self(crate::bootstrap::node_rules())
    }
}

impl NodeGraph {
    /// Adds a Pod, or replaces what was known of it.
    pub fn insert_pod(&mut self, pod: &Pod) {
        self.remove_pod(&pod.metadata.namespace, &pod.metadata.name);
        let node = pod.spec.node_name.clone();
        if node.is_empty() {
            return;
        }
        let key = pod.metadata.key();
        let mut things = needs(pod);
        things.insert(("pods", key.clone()));
        for thing in &things {
            *self.needed.entry(thing.clone()).or_default().entry(node.clone()).or_default() += 1;
        }
        self.pods.insert(key, (node, things));
    }

    /// Forgets a Pod.
    pub fn remove_pod(&mut self, namespace: &str, name: &str) {
        let Some((node, things)) = self.pods.remove(&format!("{namespace}/{name}")) else { return };
        for thing in things {
            let Some(nodes) = self.needed.get_mut(&thing) else { continue };
            if let Some(count) = nodes.get_mut(&node) {
                *count -= 1;
                if *count == 0 {
                    nodes.remove(&node);
                }
            }
            if nodes.is_empty() {
                self.needed.remove(&thing);
            }
        }
    }

    /// Adds a volume, or replaces what was known of it.
    pub fn insert_volume(&mut self, volume: &PersistentVolume) {
        let name = volume.metadata.name.clone();
        self.remove_volume(&name);
        let Some(claim) = volume.spec.get("claimRef").filter(|claim| claim.is_object()) else { return };
        let namespace = text(claim, "/namespace");
        let key = format!("{namespace}/{}", text(claim, "/name"));
        let mut things = BTreeSet::new();
        collect_secret_refs(&volume.spec, namespace, &mut things);
        for thing in &things {
            self.of_volumes.entry(thing.clone()).or_default().insert(name.clone());
        }
        self.volumes.insert(name, (key, things));
    }

    /// Forgets a volume.
    pub fn remove_volume(&mut self, name: &str) {
        let Some((_, things)) = self.volumes.remove(name) else { return };
        for thing in things {
            if let Some(names) = self.of_volumes.get_mut(&thing) {
                names.remove(name);
                if names.is_empty() {
                    self.of_volumes.remove(&thing);
                }
            }
        }
    }

    /// Adds an attachment, or replaces what was known of it.
    pub fn insert_attachment(&mut self, attachment: &ForNode) {
        let node = attachment.spec.node_name.clone().unwrap_or_default();
        self.attachments.insert(attachment.metadata.name.clone(), node);
    }

    /// Forgets an attachment.
    pub fn remove_attachment(&mut self, name: &str) {
        self.attachments.remove(name);
    }

    /// Adds a slice of devices, or replaces what was known of it; only those of one node are a node's.
    pub fn insert_slice(&mut self, slice: &ForNode) {
        let name = slice.metadata.name.clone();
        match slice.spec.node_name.clone().filter(|node| !node.is_empty()) {
            Some(node) => drop(self.slices.insert(name, node)),
            None => self.remove_slice(&name),
        }
    }

    /// Forgets a slice of devices.
    pub fn remove_slice(&mut self, name: &str) {
        self.slices.remove(name);
    }

    /// Adds a request for a Pod's certificate; what it says never changes.
    pub fn insert_certificate_request(&mut self, request: &ForNode) {
        let node = request.spec.node_name.clone().unwrap_or_default();
        self.certificate_requests.insert(request.metadata.key(), node);
    }

    /// Forgets a request for a Pod's certificate.
    pub fn remove_certificate_request(&mut self, namespace: &str, name: &str) {
        self.certificate_requests.remove(&format!("{namespace}/{name}"));
    }

    /// Whether `node` has something to do with the object.
    fn reaches(&self, node: &str, resource: &'static str, key: &str) -> bool {
        if resource == "volumeattachments" {
            return self.attachments.get(key).is_some_and(|own| own == node);
        }
        if resource == "resourceslices" {
            return self.slices.get(key).is_some_and(|own| own == node);
        }
        if resource == "podcertificaterequests" {
            return self.certificate_requests.get(key).is_some_and(|own| own == node);
        }
        let is_needed = |thing: &Thing| self.needed.get(thing).is_some_and(|nodes| nodes.contains_key(node));
        let through = |volume: &str| {
            let claim = self.volumes.get(volume).map(|(claim, _)| claim.clone());
            claim.is_some_and(|claim| is_needed(&("persistentvolumeclaims", claim)))
        };
        if resource == "persistentvolumes" {
            return through(key);
        }
        let thing = (resource, key.to_owned());
        is_needed(&thing) || self.of_volumes.get(&thing).into_iter().flatten().any(|volume| through(volume))
    }

    /// Decides for kubelets, and for what serves Ingresses on Nodes; has no opinion about anybody else, and never denies.
    pub fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        if user.name == crate::INGRESS_USER {
            return certificates_of_ingresses(attributes);
        }
        let Some(node) = user.node() else {
            let reason = format!("unknown node for user {:?}", user.name);
            return Decision::NoOpinion(if user.is_nameless_node() { reason } else { String::new() });
        };
        let answer = match (attributes.is_resource, attributes.group.as_str(), attributes.resource.as_str()) {
            (true, "", "secrets") => self.read(node, "secrets", attributes),
            (true, "", "configmaps") => self.read(node, "configmaps", attributes),
            (true, "", "persistentvolumeclaims") if attributes.subresource == "status" => {
                self.update_status(node, attributes)
            }
            (true, "", "persistentvolumeclaims") => self.get(node, "persistentvolumeclaims", attributes),
            (true, "", "persistentvolumes") => self.get(node, "persistentvolumes", attributes),
            (true, "resource.k8s.io", "resourceclaims") => self.get(node, "resourceclaims", attributes),
            (true, "resource.k8s.io", "resourceslices") => self.slice(node, attributes),
            (true, "storage.k8s.io", "volumeattachments") => self.get(node, "volumeattachments", attributes),
            (true, "", "serviceaccounts") => self.account(node, attributes),
            (true, "certificates.k8s.io", "podcertificaterequests")
                if Feature::PodCertificateRequest.is_on() =>
            {
                self.certificate_request(node, attributes)
            }
            (true, "coordination.k8s.io", "leases") => lease(node, attributes),
            (true, "storage.k8s.io", "csinodes") => csi_node(node, attributes),
            (true, "", "nodes") => own_node(node, attributes),
            (true, "", "pods") => self.pod(node, attributes),
            _ => self.by_rules(attributes),
        };
        match answer {
            Ok(()) => Decision::Allow(String::new()),
            Err(refusal) => Decision::NoOpinion(refusal.to_string()),
        }
    }

    fn by_rules(&self, attributes: &Attributes) -> Result<(), Refusal> {
        match self.rules.0.iter().any(|rule| allows(rule, attributes)) {
            true => Ok(()),
            false => Err(Refusal::default()),
        }
    }

    fn related(&self, node: &str, resource: &'static str, attributes: &Attributes) -> Result<(), Refusal> {
        if attributes.name.is_empty() {
            return refuse("No Object name found");
        }
        let key = match attributes.namespace.as_str() {
            "" => attributes.name.clone(),
            namespace => format!("{namespace}/{}", attributes.name),
        };
        match self.reaches(node, resource, &key) {
            true => Ok(()),
            false => refuse(format!("no relationship found between node '{node}' and this object")),
        }
    }

    fn read(&self, node: &str, resource: &'static str, attributes: &Attributes) -> Result<(), Refusal> {
        require(is_read(attributes), "can only read resources of this type")?;
        require(attributes.subresource.is_empty(), "cannot read subresource")?;
        require(!attributes.namespace.is_empty(), "can only read namespaced object of this type")?;
        self.related(node, resource, attributes)
    }

    fn get(&self, node: &str, resource: &'static str, attributes: &Attributes) -> Result<(), Refusal> {
        require(attributes.verb == "get", "can only get individual resources of this type")?;
        require(attributes.subresource.is_empty(), "cannot get subresource")?;
        self.related(node, resource, attributes)
    }

    /// What a new slice says is looked at by admission. Source: `authorizeResourceSlice`, KEP-4381.
    fn slice(&self, node: &str, attributes: &Attributes) -> Result<(), Refusal> {
        require(attributes.subresource.is_empty(), "cannot authorize ResourceSlice subresources")?;
        match attributes.verb.as_str() {
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => self.related(node, "resourceslices", attributes),
            "list" | "watch" | "deletecollection" => {
                let is_own = selects(&attributes.field_selector, "spec.nodeName", node);
                require(
                    is_own,
                    "can only list/watch/deletecollection resourceslices with nodeName field selector",
                )
            }
            _ => refuse(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
            ),
        }
    }

    fn update_status(&self, node: &str, attributes: &Attributes) -> Result<(), Refusal> {
        let is_update = matches!(attributes.verb.as_str(), "update" | "patch");
        require(is_update, "can only get/update/patch this type")?;
        self.related(node, "persistentvolumeclaims", attributes)
    }

    /// What a new request says is looked at by admission. Source: `authorizePodCertificateRequest`, KEP-4317.
    fn certificate_request(&self, node: &str, attributes: &Attributes) -> Result<(), Refusal> {
        let is_whole = attributes.subresource.is_empty();
        require(is_whole, "nodes may not access the status subresource of PodCertificateRequests")?;
        match attributes.verb.as_str() {
            "create" => Ok(()),
            "get" => self.related(node, "podcertificaterequests", attributes),
            "list" | "watch" => {
                let is_own = selects(&attributes.field_selector, "spec.nodeName", node);
                require(is_own, "can only list/watch podcertificaterequests with nodeName field selector")
            }
            verb => refuse(format!("nodes may not {verb} podcertificaterequests")),
        }
    }

    /// Credentials for a Pod's images may depend on its account's annotations, and a Pod's certificate is for its account
    /// too. Source: `authorizeServiceAccount`, KEP-4412, KEP-4317.
    fn account(&self, node: &str, attributes: &Attributes) -> Result<(), Refusal> {
        if attributes.verb == "get" && attributes.subresource.is_empty() {
            return self.read(node, "serviceaccounts", attributes);
        }
        self.token(node, attributes)
    }

    fn token(&self, node: &str, attributes: &Attributes) -> Result<(), Refusal> {
        let is_one = attributes.verb == "create" && !attributes.name.is_empty();
        require(is_one, "can only create tokens for individual service accounts")?;
        let is_token = attributes.subresource == "token";
        require(is_token, "can only create token subresource of serviceaccount")?;
        self.related(node, "serviceaccounts", attributes)
    }

    fn pod(&self, node: &str, attributes: &Attributes) -> Result<(), Refusal> {
        match (attributes.subresource.as_str(), attributes.verb.as_str()) {
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
            ("", "get") => self.related(node, "pods", attributes),
            ("", "list" | "watch") => {
                let is_own = selects(&attributes.field_selector, "spec.nodeName", node);
                if !is_own && !attributes.name.is_empty() {
                    return self.related(node, "pods", attributes);
                }
                require(is_own, "can only list/watch pods with spec.nodeName field selector")
            }
            _ => Err(Refusal::default()),
        }
    }
}

fn own_node(node: &str, attributes: &Attributes) -> Result<(), Refusal> {
    match (attributes.subresource.as_str(), attributes.verb.as_str()) {
        ("", "create") | ("" | "status", "update" | "patch") => Ok(()),
        ("", "get") if attributes.name == node => Ok(()),
        ("", "get") => {
            refuse(format!("node '{node}' cannot read '{}', only its own Node object", attributes.name))
        }
        ("", "list" | "watch") => {
            let is_own =
                attributes.name == node || selects(&attributes.field_selector, "metadata.name", node);
            match is_own {
                true => Ok(()),
                false => refuse(format!("node '{node}' cannot read all nodes, only its own Node object")),
            }
        }
        _ => Err(Refusal::default()),
    }
}

fn lease(node: &str, attributes: &Attributes) -> Result<(), Refusal> {
    require(is_own_write(attributes), "can only get, create, update, patch, or delete a node lease")?;
    let is_there = attributes.namespace == "kube-node-lease";
    require(is_there, "can only access leases in the \"kube-node-lease\" system namespace")?;
    let is_own = attributes.verb == "create" || attributes.name == node;
    require(is_own, "can only access node lease with the same name as the requesting node")
}

fn csi_node(node: &str, attributes: &Attributes) -> Result<(), Refusal> {
    require(is_own_write(attributes), "can only get, create, update, patch, or delete a CSINode")?;
    require(attributes.subresource.is_empty(), "cannot authorize CSINode subresources")?;
    let is_own = attributes.verb == "create" || attributes.name == node;
    require(is_own, "can only access CSINode with the same name as the requesting node")
}

fn is_read(attributes: &Attributes) -> bool {
    matches!(attributes.verb.as_str(), "get" | "list" | "watch")
}

fn is_own_write(attributes: &Attributes) -> bool {
    matches!(attributes.verb.as_str(), "get" | "create" | "update" | "patch" | "delete")
}

/// Of all Secrets only those with certificates for servers, all together: no rule of RBAC can say that.
fn certificates_of_ingresses(attributes: &Attributes) -> Decision {
    let is_secrets =
        attributes.is_resource && attributes.group.is_empty() && attributes.resource == "secrets";
    let is_list = matches!(attributes.verb.as_str(), "list" | "watch") && attributes.subresource.is_empty();
    let is_tls = selects(&attributes.field_selector, "type", "kubernetes.io/tls");
    if is_secrets && is_list && attributes.name.is_empty() && is_tls {
        return Decision::Allow(String::new());
    }
    let reason = "can only list/watch secrets with type=kubernetes.io/tls field selector";
    Decision::NoOpinion(if is_secrets { reason.to_owned() } else { String::new() })
}

/// Whether a field selector allows only objects whose `field` is `value`.
fn selects(selector: &str, field: &str, value: &str) -> bool {
    selector.split(',').any(|term| {
        let (key, wanted) = term.split_once("==").or_else(|| term.split_once('=')).unwrap_or_default();
        key.trim() == field && wanted.trim() == value
    })
}

/// The Secrets that a Pod names, by their keys.
pub fn secrets_of(pod: &Pod) -> BTreeSet<String> {
    let all = needs(pod);
    all.into_iter().filter(|(resource, _)| *resource == "secrets").map(|(_, key)| key).collect()
}

/// What a Pod needs. Mirror Pods need nothing: the node made them.
fn needs(pod: &Pod) -> BTreeSet<Thing> {
    let mut things = BTreeSet::new();
    let Pod { metadata, spec, status } = pod;
    if metadata.annotations.contains_key(MIRROR_ANNOTATION) {
        return things;
    }
    let namespace = &metadata.namespace;
    let mut add = |resource: &'static str, name: &str| {
        if !name.is_empty() {
            things.insert((resource, format!("{namespace}/{name}")));
        }
    };
    add("serviceaccounts", &spec.service_account_name);
    for secret in &spec.image_pull_secrets {
        add("secrets", &secret.name);
    }
    for container in spec.init_containers.iter().chain(&spec.containers).chain(&spec.ephemeral_containers) {
        container_needs(container, &mut add);
    }
    for claim in status.resource_claim_statuses.iter().chain(&spec.resource_claims) {
        add("resourceclaims", claim.resource_claim_name.as_deref().unwrap_or_default());
    }
    for volume in &spec.volumes {
        if volume.get("ephemeral").is_some_and(|source| !source.is_null()) {
            add("persistentvolumeclaims", &format!("{}-{}", metadata.name, text(volume, "/name")));
        }
        add("persistentvolumeclaims", text(volume, "/persistentVolumeClaim/claimName"));
        add("secrets", text(volume, "/secret/secretName"));
        add("configmaps", text(volume, "/configMap/name"));
        let sources = volume.pointer("/projected/sources").and_then(Value::as_array);
        for source in sources.into_iter().flatten() {
            add("secrets", text(source, "/secret/name"));
            add("configmaps", text(source, "/configMap/name"));
        }
    }
    for volume in &spec.volumes {
        collect_secret_refs(volume, namespace, &mut things);
    }
    things
}

const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

fn container_needs(container: &Container, add: &mut impl FnMut(&'static str, &str)) {
    for source in &container.env_from {
        add("secrets", source.secret_ref.as_ref().map_or("", |secret| &secret.name));
        add("configmaps", source.config_map_ref.as_ref().map_or("", |map| &map.name));
    }
    for source in container.env.iter().filter_map(|env| env.value_from.as_ref()) {
        add("secrets", source.secret_key_ref.as_ref().map_or("", |secret| &secret.name));
        add("configmaps", source.config_map_key_ref.as_ref().map_or("", |map| &map.name));
    }
}

/// The text at a JSON pointer; empty if there is none.
fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Fields of a volume's source by which the kubelet is told a Secret. Those of a driver's controller are none of its business.
const KUBELET_SECRETS: [&str; 4] =
    ["secretRef", "nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"];

/// Secrets that volume plugins name; what a driver is told besides, such as its attributes and options, names none.
///
/// Source: `VisitPVSecretNames`, `VisitPodSecretNames`.
fn collect_secret_refs(volume: &Value, namespace: &str, things: &mut BTreeSet<Thing>) {
    let mut add = |name: &str, own: &str| {
        if !name.is_empty() {
            let namespace = if own.is_empty() { namespace } else { own };
            things.insert(("secrets", format!("{namespace}/{name}")));
        }
    };
    for (plugin, source) in volume.as_object().into_iter().flatten() {
        if plugin == "azureFile" {
            add(text(source, "/secretName"), text(source, "/secretNamespace"));
        }
        for reference in KUBELET_SECRETS.iter().filter_map(|field| source.get(field)) {
            add(text(reference, "/name"), text(reference, "/namespace"));
        }
    }
}

#[cfg(test)]
#[path = "node/tests.rs"]
mod tests;
