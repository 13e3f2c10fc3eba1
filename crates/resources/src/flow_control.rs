//! The FlowSchemas and PriorityLevelConfigurations that every cluster has.
//!
//! The mandatory ones can be deleted but come back, and their spec can be no other; the suggested ones are kept up to
//! date as long as their annotation says so.
//! Source: `k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap`.

use std::sync::LazyLock;

use serde_json::{Value, json};

/// Objects with this annotation set to `true` follow the version of the API server.
pub const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

/// A priority level: name, shares, lendable percent, and its queues and hand size, if it has queues.
type Level = (&'static str, i64, i64, Option<(i64, i64)>);

const LIMITED: &[Level] = &[
    ("catch-all", 5, 0, None),
    ("system", 30, 33, Some((64, 6))),
    ("node-high", 40, 25, Some((64, 6))),
    ("leader-election", 10, 0, Some((16, 4))),
    ("workload-high", 40, 50, Some((128, 6))),
    ("workload-low", 100, 90, Some((128, 6))),
    ("global-default", 20, 50, Some((128, 6))),
];
const QUEUE_LENGTH_MAX: i64 = 50;
const MANDATORY: &[&str] = &["exempt", "catch-all"];

static LEVELS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let exempt = json!({
        "metadata": metadata("exempt"),
        "spec": {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}},
    });
    std::iter::once(exempt).chain(LIMITED.iter().map(limited)).collect()
});

static SCHEMAS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let everybody = || groups(&["system:unauthenticated", "system:authenticated"]);
    let nodes = || groups(&["system:nodes"]);
    let kube_system =
        json!({"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "kube-system"}});
    let user = |name: &str| json!({"kind": "User", "user": {"name": name}});
    let leaders =
        vec![user("system:kube-controller-manager"), user("system:kube-scheduler"), kube_system.clone()];
    let probes = json!([{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}]);
    let leases = |verbs: Value| resources(verbs, "coordination.k8s.io", json!(["leases"]), false);
    let node_rules =
        json!([resources(json!(["*"]), "", json!(["nodes", "nodes/status"]), true), leases(json!(["*"]))]);
    let namespace = Some("ByNamespace");
    let by_user = Some("ByUser");
    vec![
        schema("exempt", "exempt", 1, None, anything(groups(&["system:masters"]))),
        schema("catch-all", "catch-all", 10_000, by_user, anything(everybody())),
        schema("system-nodes", "system", 500, by_user, anything(nodes())),
        schema(
            "system-node-high",
            "node-high",
            400,
            by_user,
            json!({"subjects": nodes(), "resourceRules": node_rules}),
        ),
        schema("probes", "exempt", 2, None, json!({"subjects": everybody(), "nonResourceRules": probes})),
        schema(
            "system-leader-election",
            "leader-election",
            100,
            by_user,
            json!({"subjects": leaders, "resourceRules": [leases(json!(["get", "create", "update"]))]}),
        ),
        schema(
            "kube-controller-manager",
            "workload-high",
            800,
            namespace,
            anything(json!([user("system:kube-controller-manager")])),
        ),
        schema(
            "kube-scheduler",
            "workload-high",
            800,
            namespace,
            anything(json!([user("system:kube-scheduler")])),
        ),
        schema(
            "kube-system-service-accounts",
            "workload-high",
            900,
            namespace,
            anything(json!([kube_system])),
        ),
        schema(
            "service-accounts",
            "workload-low",
            9000,
            by_user,
            anything(groups(&["system:serviceaccounts"])),
        ),
        schema("global-default", "global-default", 9900, by_user, anything(everybody())),
    ]
});

/// Every PriorityLevelConfiguration of a new cluster.
pub fn priority_levels() -> &'static [Value] {
    &LEVELS
}

/// Every FlowSchema of a new cluster.
pub fn flow_schemas() -> &'static [Value] {
    &SCHEMAS
}

/// The object of `kind` with this name, if it is one whose spec is fixed.
pub fn mandatory(kind: &str, name: &str) -> Option<&'static Value> {
    if !MANDATORY.contains(&name) {
        return None;
    }
    let all = match kind {
        "FlowSchema" => flow_schemas(),
        "PriorityLevelConfiguration" => priority_levels(),
        _ => return None,
    };
    all.iter().find(|object| object["metadata"]["name"] == name)
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "annotations": {AUTO_UPDATE: "true"}})
}

fn limited((name, shares, lendable, queues): &Level) -> Value {
    let response = match queues {
        None => json!({"type": "Reject"}),
        Some((queues, hand)) => {
            let queuing = json!({"queues": queues, "handSize": hand, "queueLengthLimit": QUEUE_LENGTH_MAX});
            json!({"type": "Queue", "queuing": queuing})
        }
    };
    let limited =
        json!({"nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": response});
    json!({"metadata": metadata(name), "spec": {"type": "Limited", "limited": limited}})
}

fn schema(name: &str, level: &str, precedence: i64, by: Option<&str>, rule: Value) -> Value {
    let mut spec = json!({
        "priorityLevelConfiguration": {"name": level},
        "matchingPrecedence": precedence,
        "rules": [rule],
    });
    if let Some(by) = by {
        spec["distinguisherMethod"] = json!({"type": by});
    }
    json!({"metadata": metadata(name), "spec": spec})
}

fn groups(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"kind": "Group", "group": {"name": name}})).collect()
}

fn resources(verbs: Value, group: &str, resources: Value, is_cluster: bool) -> Value {
    let mut rule = json!({"verbs": verbs, "apiGroups": [group], "resources": resources, "namespaces": ["*"]});
    if is_cluster {
        rule["clusterScope"] = true.into();
    }
    rule
}

/// A rule about all that these subjects ask for.
fn anything(subjects: Value) -> Value {
    json!({
        "subjects": subjects,
        "resourceRules": [resources(json!(["*"]), "*", json!(["*"]), true)],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    })
}
