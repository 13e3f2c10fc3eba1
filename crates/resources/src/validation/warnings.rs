//! Warnings for clients about an object that is accepted all the same.
//!
//! A warning is a path and a sentence. Whether to warn is never whether to refuse: these functions see objects that
//! were prepared but not yet checked, and must not depend on their rules being kept.
//! Source: `pkg/api/{pod,service,job,node}/warnings.go`, `WarningsOn*` of `pkg/registry/*/strategy.go`.

mod overlap;
mod pod;

use machinery::names;
use serde_json::Value;

use super::{At, ip};

const COMPLETIONS_SOFT_MAX: i64 = 100_000;
const PARALLELISM_SOFT_MAX: i64 = 10_000;
const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const SLICE_CONTROLLERS: &[&str] =
    &["endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"];
const MOUNTABLE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";

/// Labels of Nodes that nobody should select by any more, and what to do instead.
const OLD_NODE_LABELS: &[(&str, &str)] = &[
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
];

fn old_node_label(label: &str) -> Option<&'static str> {
    OLD_NODE_LABELS.iter().find(|(old, _)| *old == label).map(|(_, advice)| *advice)
}

impl At<'_> {
    fn warning(&self, text: &str) -> String {
        format!("{}: {text}", self.path)
    }
}

/// A new Pod. Updates of Pods are frequent, and not made by people: they get none.
pub(crate) fn pod(object: &Value) -> Vec<String> {
    let root = At::root(object);
    let mut warnings = name(&root, "the Pod's hostname");
    pod::check(&root, true, &mut warnings);
    warnings
}

/// A new object with a template of Pods.
pub(crate) fn templated(object: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    pod::check(&At::root(object).get("spec").get("template"), false, &mut warnings);
    warnings
}

/// A new object with a template of Pods whose names begin with its own.
pub(crate) fn named_and_templated(object: &Value) -> Vec<String> {
    let mut warnings = name(&At::root(object), "Pod names and hostnames");
    warnings.extend(templated(object));
    warnings
}

/// An update of an object with a template of Pods.
pub(crate) fn templated_update(new: &Value, old: &Value) -> Vec<String> {
    if_changed(new, old, templated)
}

/// A PodTemplate.
pub(crate) fn pod_template(object: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    pod::check(&At::root(object).get("template"), false, &mut warnings);
    warnings
}

/// An update of a PodTemplate.
pub(crate) fn pod_template_update(new: &Value, old: &Value) -> Vec<String> {
    if_changed(new, old, pod_template)
}

/// A new StatefulSet, or one with another spec.
pub(crate) fn stateful_set(object: &Value) -> Vec<String> {
    let mut warnings = templated(object);
    let spec = At::root(object).get("spec");
    for claim in spec.get("volumeClaimTemplates").items() {
        let storage = claim.get("spec").get("resources").get("requests").get("storage");
        let path = claim.path.child("resources").child("requests").key("storage");
        fractional(&At { path, ..storage }, &mut warnings);
    }
    let history = spec.get("revisionHistoryLimit");
    if history.number().is_some_and(|limit| limit < 0) {
        warnings.push(
            history.warning("a negative value retains all historical revisions; a value >= 0 is recommended"),
        );
    }
    warnings
}

/// An update of a StatefulSet.
pub(crate) fn stateful_set_update(new: &Value, old: &Value) -> Vec<String> {
    if_changed(new, old, stateful_set)
}

/// A new Job.
pub(crate) fn job(object: &Value) -> Vec<String> {
    let mut warnings = name(&At::root(object), "Pod names and hostnames");
    job_spec(&At::root(object).get("spec"), &mut warnings);
    warnings
}

/// An update of a Job.
pub(crate) fn job_update(new: &Value, old: &Value) -> Vec<String> {
    if_changed(new, old, |object| {
        let mut warnings = Vec::new();
        job_spec(&At::root(object).get("spec"), &mut warnings);
        warnings
    })
}

/// A new CronJob.
pub(crate) fn cron_job(object: &Value) -> Vec<String> {
    let mut warnings = name(&At::root(object), "Pod names and hostnames");
    job_spec(&At::root(object).get("spec").get("jobTemplate").get("spec"), &mut warnings);
    warnings
}

/// An update of a CronJob. One of old may name a zone in its schedule; the field is upstream's, which names `spec` twice.
pub(crate) fn cron_job_update(new: &Value, old: &Value) -> Vec<String> {
    let mut warnings = if_changed(new, old, |object| {
        let mut warnings = Vec::new();
        job_spec(&At::root(object).get("spec").get("jobTemplate").get("spec"), &mut warnings);
        warnings
    });
    if At::root(new).get("spec").get("schedule").text().contains("TZ") {
        warnings.push(
            "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see \
             https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
                .to_owned(),
        );
    }
    warnings
}

fn job_spec(spec: &At<'_>, warnings: &mut Vec<String>) {
    let is_huge = spec.get("completionMode").text() == "Indexed"
        && spec.get("completions").is_over(COMPLETIONS_SOFT_MAX)
        && spec.get("parallelism").is_over(PARALLELISM_SOFT_MAX);
    if is_huge {
        warnings.push(spec.warning(
            "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail",
        ));
    }
    pod::check(&spec.get("template"), false, warnings);
}

/// A Service, new or updated.
pub(crate) fn service(object: &Value) -> Vec<String> {
    let root = At::root(object);
    let spec = root.get("spec");
    let mut warnings = Vec::new();
    if root.get("metadata").get("annotations").get(TOPOLOGY_HINTS).is_set() {
        warnings
            .push(format!("annotation {TOPOLOGY_HINTS} is deprecated, please use {TOPOLOGY_MODE} instead"));
    }
    let kind = spec.get("type").text();
    let is_headless = kind == "ClusterIP" && spec.get("clusterIP").text() == "None";
    if !matches!(spec.get("clusterIP").text(), "" | "None") {
        spec.get("clusterIPs").items().for_each(|at| warnings.extend(ip::ip_warning(&at)));
    }
    if is_headless {
        for (field, shown) in [("loadBalancerIP", "loadBalancerIP"), ("externalIPs", "externalIPs")] {
            if !spec.get(field).is_empty() {
                warnings.push(format!("spec.{shown} is ignored for headless services"));
            }
        }
        if spec.get("sessionAffinity").text() != "None" {
            warnings.push("spec.SessionAffinity is ignored for headless services".to_owned());
        }
    }
    spec.get("externalIPs").items().for_each(|at| warnings.extend(ip::ip_warning(&at)));
    if !spec.get("loadBalancerIP").is_empty() {
        warnings.extend(ip::ip_warning(&spec.get("loadBalancerIP")));
    }
    spec.get("loadBalancerSourceRanges").items().for_each(|at| warnings.extend(ip::cidr_warnings(&at)));
    let is_external = kind == "ExternalName";
    if is_external && !spec.get("externalIPs").is_empty() {
        warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if !is_external && !spec.get("externalName").is_empty() {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if spec.get("trafficDistribution").text() == "PreferClose" {
        warnings.push(
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned(),
        );
    }
    warnings
}

/// The status of a Pod.
pub(crate) fn pod_status(object: &Value) -> Vec<String> {
    let status = At::root(object).get("status");
    let addresses = ["podIPs", "hostIPs"].map(|list| status.get(list));
    addresses.iter().flat_map(At::items).filter_map(|address| ip::ip_warning(&address.get("ip"))).collect()
}

/// The status of what has a load balancer: a Service, an Ingress.
pub(crate) fn load_balancer(object: &Value) -> Vec<String> {
    let points = At::root(object).get("status").get("loadBalancer").get("ingress");
    points.items().filter_map(|point| ip::ip_warning(&point.get("ip"))).collect()
}

/// Endpoints, new or updated. Those that a controller keeps are written often: they get none.
pub(crate) fn endpoints(object: &Value) -> Vec<String> {
    let root = At::root(object);
    if root.get("metadata").get("labels").get(MANAGED_BY).text() == "endpoint-controller" {
        return Vec::new();
    }
    let subsets = root.get("subsets").items();
    let addresses = subsets.flat_map(|subset| {
        ["addresses", "notReadyAddresses"].map(|list| subset.get(list)).into_iter().flat_map(|l| l.items())
    });
    addresses.flat_map(|address| ip::ip_warning(&address.get("ip"))).collect()
}

/// A new EndpointSlice.
pub(crate) fn endpoint_slice(object: &Value) -> Vec<String> {
    let is_named = At::root(object).get("addressType").text() == "FQDN";
    let mut warnings: Vec<_> =
        is_named.then(|| "spec.addressType: FQDN endpoints are deprecated".to_owned()).into_iter().collect();
    warnings.extend(endpoint_slice_update(object));
    warnings
}

/// An updated EndpointSlice. Those that controllers keep are written often: they get none.
pub(crate) fn endpoint_slice_update(object: &Value) -> Vec<String> {
    let root = At::root(object);
    if SLICE_CONTROLLERS.contains(&root.get("metadata").get("labels").get(SLICE_MANAGED_BY).text()) {
        return Vec::new();
    }
    let endpoints = root.get("endpoints");
    let addresses = endpoints.items().map(|endpoint| endpoint.get("addresses"));
    addresses.flat_map(|list| list.items().filter_map(|at| ip::ip_warning(&at)).collect::<Vec<_>>()).collect()
}

/// A ServiceAccount, new, or newly with the annotation.
pub(crate) fn service_account(new: &Value, old: &Value) -> Vec<String> {
    let has = |object| At::root(object).get("metadata").get("annotations").get(MOUNTABLE_SECRETS).is_set();
    if !has(new) || has(old) {
        return Vec::new();
    }
    vec![format!(
        "metadata.annotations[{MOUNTABLE_SECRETS}]: deprecated in v1.32+; prefer separate namespaces to isolate \
         access to mounted secrets"
    )]
}

/// A Node, new or updated.
pub(crate) fn node(object: &Value) -> Vec<String> {
    let spec = At::root(object).get("spec");
    let mut warnings = Vec::new();
    if spec.get("configSource").is_set() {
        warnings.push("spec.configSource: the feature is no longer supported".to_owned());
    }
    if !spec.get("externalID").is_empty() {
        warnings.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
    }
    spec.get("podCIDRs").items().for_each(|at| warnings.extend(ip::cidr_warnings(&at)));
    warnings
}

/// A RuntimeClass, new or updated.
pub(crate) fn runtime_class(object: &Value) -> Vec<String> {
    let selector = At::root(object).get("scheduling").get("nodeSelector");
    let keys = selector.entries().filter_map(|(key, _)| old_node_label(key));
    keys.map(|advice| selector.warning(advice)).collect()
}

/// The warnings of an updated object, where the update is one of the spec.
fn if_changed(new: &Value, old: &Value, warnings: impl Fn(&Value) -> Vec<String>) -> Vec<String> {
    let generation = |object| At::root(object).get("metadata").get("generation").number();
    if generation(new) == generation(old) { Vec::new() } else { warnings(new) }
}

/// A name that becomes part of a host name should be a label.
fn name(root: &At<'_>, user: &str) -> Vec<String> {
    let name = root.get("metadata").get("name");
    let rules = names::dns1123_label(name.text());
    let advice = || {
        format!(
            "this is used in {user}, which can result in surprising behavior; a DNS label is recommended: [{}]",
            rules.join(" ")
        )
    };
    (!rules.is_empty()).then(|| name.warning(&advice())).into_iter().collect()
}

/// Nobody can give a part of a byte.
fn fractional(quantity: &At<'_>, warnings: &mut Vec<String>) {
    let is_fractional = super::quantities::amount(quantity).is_some_and(|quantity| !quantity.is_whole());
    if is_fractional {
        warnings.push(
            quantity.warning(&format!(
                "fractional byte value {:?} is invalid, must be an integer",
                quantity.text()
            )),
        );
    }
}
