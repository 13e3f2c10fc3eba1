//! The roles and bindings that every cluster has, as rows, and how they are kept complete.
//!
//! Source: upstream's bootstrap policy at v1.35 with default feature gates, and with the gates that can be turned
//! on. `tables` has the rows.

mod controllers;
mod tables;

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::{
    AggregationRule, ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use machinery::features::Feature;

use crate::escalation::uncovered;
use crate::rbac::{GROUP, aggregated_rules};

/// The label of what the bootstrap made.
pub const BOOTSTRAPPING_LABEL: (&str, &str) = ("kubernetes.io/bootstrapping", "rbac-defaults");
/// `false` here keeps the bootstrap's hands off an object.
pub const AUTOUPDATE_ANNOTATION: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// How deep the default roles unite each other.
const AGGREGATION_DEPTH: usize = 3;

/// A rule in short: words are separated by spaces; `core` is the group without a name.
struct Rule {
    verbs: &'static str,
    groups: &'static str,
    resources: &'static str,
    names: &'static str,
}

/// `(verbs, groups, resources)`
const fn rule(verbs: &'static str, groups: &'static str, resources: &'static str) -> Rule {
    Rule { verbs, groups, resources, names: "" }
}

/// `(verbs, groups, resources, names)`
const fn named(
    verbs: &'static str,
    groups: &'static str,
    resources: &'static str,
    names: &'static str,
) -> Rule {
    Rule { verbs, groups, resources, names }
}

/// `(verbs, paths)`
const fn paths(verbs: &'static str, paths: &'static str) -> Rule {
    Rule { verbs, groups: "", resources: paths, names: "" }
}

const READ: &str = "get list watch";
const WRITE: &str = "create delete deletecollection patch update";
/// Everything but what only administrators do.
const ALL: &str = "create delete deletecollection get list patch update watch";
const EVENTS: Rule = rule("create patch update", "core events.k8s.io", "events");

/// A role and its rules.
struct RoleRow {
    name: &'static str,
    rules: &'static [Rule],
    /// Labels beside the bootstrap's, as `key=value`.
    labels: &'static [&'static str],
    /// The label of the roles that it unites.
    aggregates: &'static str,
}

const fn role(name: &'static str, rules: &'static [Rule]) -> RoleRow {
    RoleRow { name, rules, labels: &[], aggregates: "" }
}

/// A binding: its name, its role, and its subjects as `user:x`, `group:x` or `account:x` (in `kube-system`).
struct BindingRow {
    name: &'static str,
    role: &'static str,
    subjects: &'static [&'static str],
}

impl Rule {
    fn build(&self) -> PolicyRule {
        let list = |words: &str| {
            let words: Vec<String> = words
                .split_whitespace()
                .map(|word| if word == "core" { String::new() } else { word.to_owned() })
                .collect();
            (!words.is_empty()).then_some(words)
        };
        let verbs = list(self.verbs).unwrap_or_default();
        match self.groups {
            "" => PolicyRule { verbs, non_resource_urls: list(self.resources), ..PolicyRule::default() },
            groups => PolicyRule {
                verbs,
                api_groups: list(groups),
                resources: list(self.resources),
                resource_names: list(self.names),
                ..PolicyRule::default()
            },
        }
    }
}

fn rules(rows: &[Rule]) -> Vec<PolicyRule> {
    rows.iter().map(Rule::build).collect()
}

fn metadata(name: &str, namespace: Option<&str>, labels: &[&str]) -> ObjectMeta {
    let (key, value) = BOOTSTRAPPING_LABEL;
    let mut all = BTreeMap::from([(key.to_owned(), value.to_owned())]);
    all.extend(
        labels.iter().filter_map(|label| label.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())),
    );
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        labels: Some(all),
        annotations: Some(BTreeMap::from([(AUTOUPDATE_ANNOTATION.to_owned(), "true".to_owned())])),
        ..ObjectMeta::default()
    }
}

/// Rows of features that may be off.
type Gated<T> = &'static [(Feature, &'static [T])];

/// Rows that there always are, and those of the features that are on.
fn with<T>(always: &'static [T], gated: Gated<T>) -> impl Iterator<Item = &'static T> {
    let on = gated.iter().filter(|(feature, _)| feature.is_on());
    always.iter().chain(on.flat_map(|(_, rows)| *rows))
}

/// The rules of a kubelet, as the Node authorizer gives them.
pub fn node_rules() -> Vec<PolicyRule> {
    with(tables::NODE_RULES, tables::GATED_NODE_RULES).map(Rule::build).collect()
}

/// The default ClusterRoles, those of the controllers included. Those that unite others have their rules already,
/// so that they are right before a controller has seen them.
pub fn cluster_roles() -> Vec<ClusterRole> {
    let others =
        with(tables::CLUSTER_ROLES, tables::GATED_CLUSTER_ROLES).map(|row| cluster_role(row.name, row));
    let controllers = with(controllers::CONTROLLERS, controllers::GATED_CONTROLLERS)
        .map(|row| cluster_role(&format!("system:controller:{}", row.name), row));
    let mut roles: Vec<ClusterRole> = others.chain(controllers).collect();
    // admin unites edit, which unites view: as many rounds as they are deep.
    for _ in 0..AGGREGATION_DEPTH {
        let before = roles.clone();
        for role in &mut roles {
            if let Some(rules) = aggregated_rules(role, &before) {
                role.rules = Some(rules);
            }
        }
    }
    roles
}

fn cluster_role(name: &str, row: &RoleRow) -> ClusterRole {
    let label = (row.aggregates.to_owned(), "true".to_owned());
    let selector = LabelSelector { match_labels: Some(BTreeMap::from([label])), ..LabelSelector::default() };
    let aggregation = AggregationRule { cluster_role_selectors: Some(vec![selector]) };
    ClusterRole {
        metadata: metadata(name, None, row.labels),
        aggregation_rule: (!row.aggregates.is_empty()).then_some(aggregation),
        rules: Some(rules_of(row)).filter(|rules| !rules.is_empty()),
    }
}

fn rules_of(row: &RoleRow) -> Vec<PolicyRule> {
    let gated = tables::GATED_RULES.iter().filter(|(feature, role, _)| feature.is_on() && *role == row.name);
    row.rules.iter().chain(gated.flat_map(|(_, _, rules)| *rules)).map(Rule::build).collect()
}

/// The default ClusterRoleBindings, those of the controllers included.
pub fn cluster_role_bindings() -> Vec<ClusterRoleBinding> {
    let binding = |name: &str, role: &str, subjects: Option<Vec<Subject>>| ClusterRoleBinding {
        metadata: metadata(name, None, &[]),
        role_ref: role_ref("ClusterRole", role),
        subjects,
    };
    let others = with(tables::CLUSTER_ROLE_BINDINGS, tables::GATED_CLUSTER_ROLE_BINDINGS)
        .map(|row| binding(row.name, row.role, subjects(row.subjects)));
    let controllers = with(controllers::CONTROLLERS, controllers::GATED_CONTROLLERS);
    let controllers = controllers.map(|row| {
        let name = format!("system:controller:{}", row.name);
        binding(&name, &name, Some(vec![account(row.name)]))
    });
    others.chain(controllers).collect()
}

/// The default Roles of `kube-system` and `kube-public`.
pub fn roles() -> Vec<Role> {
    let build = |(namespace, row): &(&str, RoleRow)| Role {
        metadata: metadata(row.name, Some(namespace), row.labels),
        rules: Some(rules(row.rules)),
    };
    tables::ROLES.iter().map(build).collect()
}

/// The default RoleBindings of `kube-system` and `kube-public`.
pub fn role_bindings() -> Vec<RoleBinding> {
    let build = |(namespace, row): &(&str, BindingRow)| RoleBinding {
        metadata: metadata(row.name, Some(namespace), &[]),
        role_ref: role_ref("Role", row.role),
        subjects: subjects(row.subjects),
    };
    tables::ROLE_BINDINGS.iter().map(build).collect()
}

fn role_ref(kind: &str, name: &str) -> RoleRef {
    RoleRef { api_group: GROUP.to_owned(), kind: kind.to_owned(), name: name.to_owned() }
}

fn account(name: &str) -> Subject {
    Subject {
        api_group: None,
        kind: "ServiceAccount".to_owned(),
        name: name.to_owned(),
        namespace: Some("kube-system".to_owned()),
    }
}

fn subjects(words: &[&str]) -> Option<Vec<Subject>> {
    let subject = |word: &&str| {
        let (kind, name) = word.split_once(':')?;
        let of_kind = |kind: &str| Subject {
            api_group: Some(GROUP.to_owned()),
            kind: kind.to_owned(),
            name: name.to_owned(),
            namespace: None,
        };
        match kind {
            "user" => Some(of_kind("User")),
            "group" => Some(of_kind("Group")),
            _ => Some(account(name)),
        }
    };
    (!words.is_empty()).then(|| words.iter().filter_map(subject).collect())
}

/// The object to write so that the stored `existing` has all that `wanted` has; `None` if it has, or wants no updates.
///
/// Nothing is taken away: administrators may add rules. Only knarr's own roles are what this build needs and no more.
/// Source: the RBAC post-start hook's reconciliation.
pub fn reconcile_role(
    existing: (&ObjectMeta, &[PolicyRule]),
    wanted: (&ObjectMeta, &[PolicyRule]),
) -> Option<(ObjectMeta, Vec<PolicyRule>)> {
    if is_hands_off(existing.0) {
        return None;
    }
    let merged = merged_metadata(existing.0, wanted.0);
    if wanted.0.name.as_deref().is_some_and(|name| name.starts_with("knarr:")) {
        let is_same = merged == *existing.0 && existing.1 == wanted.1;
        return (!is_same).then(|| (merged, wanted.1.to_vec()));
    }
    let missing = uncovered(existing.1, wanted.1);
    if missing.is_empty() && merged == *existing.0 {
        return None;
    }
    let mut rules = existing.1.to_vec();
    rules.extend(missing);
    Some((merged, rules))
}

/// The same for the subjects of a binding.
pub fn reconcile_subjects(
    existing: (&ObjectMeta, &[Subject]),
    wanted: (&ObjectMeta, &[Subject]),
) -> Option<(ObjectMeta, Vec<Subject>)> {
    if is_hands_off(existing.0) {
        return None;
    }
    let missing: Vec<Subject> = wanted.1.iter().filter(|one| !existing.1.contains(one)).cloned().collect();
    let merged = merged_metadata(existing.0, wanted.0);
    if missing.is_empty() && merged == *existing.0 {
        return None;
    }
    let mut subjects = existing.1.to_vec();
    subjects.extend(missing);
    Some((merged, subjects))
}

fn is_hands_off(metadata: &ObjectMeta) -> bool {
    let annotation = metadata.annotations.as_ref().and_then(|all| all.get(AUTOUPDATE_ANNOTATION));
    annotation.is_some_and(|value| value == "false")
}

/// Wanted labels and annotations are added where the key is absent.
fn merged_metadata(existing: &ObjectMeta, wanted: &ObjectMeta) -> ObjectMeta {
    let mut merged = existing.clone();
    let merge = |into: &mut Option<BTreeMap<String, String>>, from: &Option<BTreeMap<String, String>>| {
        for (key, value) in from.iter().flatten() {
            into.get_or_insert_default().entry(key.clone()).or_insert_with(|| value.clone());
        }
    };
    merge(&mut merged.labels, &wanted.labels);
    merge(&mut merged.annotations, &wanted.annotations);
    merged
}

#[cfg(test)]
#[path = "bootstrap/tests.rs"]
mod tests;
