//! The ClusterRole aggregation controller: a role with an aggregation rule has the rules of all roles that it selects.

use std::sync::Arc;

use controller::metadata::{name, uid};
use controller::{Action, Change, Controller, Informers, Patch, Plan, Source};
use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use serde_json::json;

use controller::selector::selects;

/// The controller's row. Keys are ClusterRoles.
pub const CONTROLLER: Controller = Controller {
    name: "clusterrole-aggregation-controller",
    queue: "ClusterRoleAggregator",
    sources: |_| vec![Source::of::<ClusterRole>(aggregating)],
    reconcile: |informers, key, now| {
        let roles = informers.informer::<ClusterRole>();
        roles.get(key).map_or_else(Plan::nothing, |role| plan(&Snapshot { role, all: roles.list() }, now))
    },
};

/// The input of a decision about one role.
pub struct Snapshot {
    /// The role.
    pub role: Arc<ClusterRole>,
    /// All roles, in order of their names.
    pub all: Vec<Arc<ClusterRole>>,
}

/// Any change of labels or rules may matter to every role that aggregates.
fn aggregating(change: &Change<ClusterRole>, informers: &Informers) -> Vec<String> {
    let facts = |role: &Option<Arc<ClusterRole>>| {
        role.as_ref()
            .map(|role| (role.metadata.labels.clone(), role.rules.clone(), role.aggregation_rule.clone()))
    };
    if facts(&change.old) == facts(&change.new) {
        return Vec::new();
    }
    let all = informers.informer::<ClusterRole>().list();
    all.iter()
        .filter(|role| role.aggregation_rule.is_some())
        .map(|role| name(&role.metadata).to_owned())
        .collect()
}

/// Decides whether the role's rules have to change.
pub fn plan(snapshot: &Snapshot, _: Timestamp) -> Plan {
    let role = &*snapshot.role;
    let mut plan = Plan::nothing();
    let Some(aggregation) = &role.aggregation_rule else { return plan };
    let mut rules: Vec<&PolicyRule> = Vec::new();
    for selector in aggregation.cluster_role_selectors.iter().flatten() {
        let others = snapshot.all.iter().filter(|other| other.metadata.name != role.metadata.name);
        for other in others.filter(|other| selects(selector, other.metadata.labels.as_ref())) {
            for rule in other.rules.iter().flatten() {
                if !rules.contains(&rule) {
                    rules.push(rule);
                }
            }
        }
    }
    if role.rules.iter().flatten().eq(rules.iter().copied()) {
        return plan;
    }
    let patch = json!({"metadata": {"uid": uid(&role.metadata)}, "rules": rules});
    plan.push(Action::patch::<ClusterRole>("", name(&role.metadata), Patch::Merge(patch)));
    plan
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::fixture::{list, noon, parse, render};

    fn check(rules: &str, expect: &Expect) {
        let role = format!(
            "{{metadata: {{name: view, uid: u, labels: {{to: view}}}}, rules: {rules}, \
             aggregationRule: {{clusterRoleSelectors: [{{matchLabels: {{to: view}}}}]}}}}"
        );
        let all = "[{metadata: {name: a, labels: {to: view}}, rules: [{verbs: [get], resources: [pods]}]}, \
                   {metadata: {name: b, labels: {to: view}}, rules: [{verbs: [get], resources: [pods]}, {verbs: [list]}]}, \
                   {metadata: {name: c}, rules: [{verbs: ['*']}]}]";
        let snapshot = Snapshot { role: Arc::new(parse(&role)), all: list(all) };
        expect.assert_eq(&render(&plan(&snapshot, noon())));
    }

    #[test]
    fn a_role_gathers_the_rules_of_those_it_selects() {
        check(
            "[]",
            &expect![[r#"
            step
              patch clusterroles view {"metadata":{"uid":"u"},"rules":[{"resources":["pods"],"verbs":["get"]},{"verbs":["list"]}]}
        "#]],
        );
        check("[{verbs: [get], resources: [pods]}, {verbs: [list]}]", &expect![[""]]);
    }
}
