//! A `PodSpec` as its rules see it: with the object around it, and its containers in one row.

use std::collections::BTreeSet;

use super::At;
use super::selector::Values;

/// The annotation of a Pod that a kubelet made from a file.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";

/// Whose spec it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A Pod's own.
    Pod,
    /// A template's.
    Template,
}

/// A `PodSpec` with what its rules need to know about the object around it.
#[derive(Clone, Debug)]
pub(super) struct PodView<'a> {
    /// The spec.
    pub spec: At<'a>,
    /// The owner.
    pub owner: Owner,
    /// The Pod's name; empty in a template.
    pub name: &'a str,
    /// `true` if a kubelet made the Pod from a file; the API only mirrors it.
    pub is_mirror: bool,
    /// The values that its rules about nodes may have.
    pub node_values: Values,
}

impl<'a> PodView<'a> {
    /// The spec of a Pod that was `old` before.
    pub(super) fn of_pod(pod: &At<'a>, old: Option<&At<'_>>) -> Self {
        let name = pod.get("metadata").get("name").text();
        let is_mirror = pod.annotations().get(MIRROR).is_set();
        let node_values = old.map_or(Values::Labels, |old| Values::after_pod(&old.get("spec")));
        Self { spec: pod.get("spec"), owner: Owner::Pod, name, is_mirror, node_values }
    }

    /// The spec of a template.
    pub(super) fn of_template(template: &At<'a>) -> Self {
        let spec = template.get("spec");
        Self { spec, owner: Owner::Template, name: "", is_mirror: false, node_values: Values::Labels }
    }

    /// Whether it is a Pod's own.
    pub(super) fn is_pod(&self) -> bool {
        self.owner == Owner::Pod
    }

    /// The names in `resourceClaims`.
    pub(super) fn claim_names(&self) -> BTreeSet<&'a str> {
        let claims = self.spec.get("resourceClaims");
        claims.items().map(|claim| claim.get("name").text()).filter(|name| !name.is_empty()).collect()
    }
}

/// Containers of every sort.
pub(super) fn containers<'a>(spec: &At<'a>) -> impl Iterator<Item = At<'a>> + use<'a> {
    let lists = ["initContainers", "containers", "ephemeralContainers"].map(|list| spec.get(list));
    lists.into_iter().flat_map(|list| list.items())
}
