//! RBAC: an index of roles and bindings, and what it allows.
//!
//! Kept up to date object by object; a request costs a look-up per name and group of the user, not a walk over all
//! bindings. Source: `plugin/pkg/auth/authorizer/rbac`, rbac/v1.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use crate::{Attributes, Decision, SERVICE_ACCOUNT_PREFIX, UserInfo};

/// The API group of the RBAC kinds.
pub const GROUP: &str = "rbac.authorization.k8s.io";

/// The reason why nobody knows the rules of a role that a binding names. The words are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoleError {
    /// It is of no kind that has rules.
    #[error("unsupported role reference kind: {0:?}")]
    Kind(String),
    /// It is not there; of this resource.
    #[error("{0}.{GROUP} {1:?} not found")]
    NotFound(&'static str, String),
}

/// A user or group as bindings are found by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Who {
    User(String),
    Group(String),
}

#[derive(Clone, Debug)]
struct Binding {
    role: RoleRef,
    /// Whom it is for, with the words that a decision uses for each.
    subjects: Vec<(Who, String)>,
}

/// Bindings of one namespace, or of the cluster.
#[derive(Clone, Debug, Default)]
struct Bindings {
    by_name: BTreeMap<String, Binding>,
    by_subject: HashMap<Who, BTreeSet<String>>,
}

impl Bindings {
    fn insert(&mut self, name: &str, binding: Binding) {
        self.remove(name);
        for (who, _) in &binding.subjects {
            self.by_subject.entry(who.clone()).or_default().insert(name.to_owned());
        }
        self.by_name.insert(name.to_owned(), binding);
    }

    fn remove(&mut self, name: &str) {
        let Some(binding) = self.by_name.remove(name) else { return };
        for (who, _) in binding.subjects {
            if let Some(names) = self.by_subject.get_mut(&who) {
                names.remove(name);
                if names.is_empty() {
                    self.by_subject.remove(&who);
                }
            }
        }
    }

    /// The bindings for `user`, by name, each with the subject that matched.
    fn of<'a>(&'a self, user: &UserInfo) -> BTreeMap<&'a str, (&'a Binding, &'a str)> {
        let mut found = BTreeMap::new();
        let groups = user.groups.iter().map(|group| Who::Group(group.clone()));
        for who in std::iter::once(Who::User(user.name.clone())).chain(groups) {
            for name in self.by_subject.get(&who).into_iter().flatten() {
                let Some(binding) = self.by_name.get(name) else { continue };
                let Some((_, words)) = binding.subjects.iter().find(|(own, _)| *own == who) else { continue };
                found.entry(name.as_str()).or_insert((binding, words.as_str()));
            }
        }
        found
    }
}

/// Roles and bindings. Cheap to clone parts of; the owner swaps it as a whole or guards it.
#[derive(Clone, Debug, Default)]
pub struct Rbac {
    cluster_roles: BTreeMap<String, Arc<[PolicyRule]>>,
    roles: BTreeMap<(String, String), Arc<[PolicyRule]>>,
    cluster_bindings: Bindings,
    bindings: BTreeMap<String, Bindings>,
}

/// The rules of a user, and the roles that should have given more but are not there.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// With duplicates left in, in the order of the bindings.
    pub rules: Vec<PolicyRule>,
    /// For example `clusterroles.rbac.authorization.k8s.io "x" not found`.
    pub errors: Vec<String>,
}

impl Rbac {
    /// An empty index: nobody may do anything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces.
    pub fn insert_cluster_role(&mut self, role: &ClusterRole) {
        let rules = role.rules.clone().unwrap_or_default().into();
        self.cluster_roles.insert(name_of(&role.metadata), rules);
    }

    /// Takes away.
    pub fn remove_cluster_role(&mut self, name: &str) {
        self.cluster_roles.remove(name);
    }

    /// Adds or replaces.
    pub fn insert_role(&mut self, role: &Role) {
        let rules = role.rules.clone().unwrap_or_default().into();
        self.roles.insert((namespace_of(&role.metadata), name_of(&role.metadata)), rules);
    }

    /// Takes away.
    pub fn remove_role(&mut self, namespace: &str, name: &str) {
        self.roles.remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// Adds or replaces.
    pub fn insert_cluster_role_binding(&mut self, binding: &ClusterRoleBinding) {
        let subjects = subjects(binding.subjects.as_deref().unwrap_or_default(), "");
        let role = binding.role_ref.clone();
        self.cluster_bindings.insert(&name_of(&binding.metadata), Binding { role, subjects });
    }

    /// Takes away.
    pub fn remove_cluster_role_binding(&mut self, name: &str) {
        self.cluster_bindings.remove(name);
    }

    /// Adds or replaces.
    pub fn insert_role_binding(&mut self, binding: &RoleBinding) {
        let namespace = namespace_of(&binding.metadata);
        let subjects = subjects(binding.subjects.as_deref().unwrap_or_default(), &namespace);
        let role = binding.role_ref.clone();
        let bindings = self.bindings.entry(namespace).or_default();
        bindings.insert(&name_of(&binding.metadata), Binding { role, subjects });
    }

    /// Takes away.
    pub fn remove_role_binding(&mut self, namespace: &str, name: &str) {
        if let Some(bindings) = self.bindings.get_mut(namespace) {
            bindings.remove(name);
            if bindings.by_name.is_empty() {
                self.bindings.remove(namespace);
            }
        }
    }

    /// The decision: allowed if a rule allows it; never denied.
    pub fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        let mut errors = Vec::new();
        let mut reason = None;
        self.visit(user, &attributes.namespace, &mut |by, rules| {
            match rules {
                Ok(rules) if rules.iter().any(|rule| allows(rule, attributes)) => {
                    reason = Some(format!("RBAC: allowed by {by}"));
                }
                Ok(_) => {}
                Err(error) => errors.push(error.to_string()),
            }
            reason.is_some()
        });
        match reason {
            Some(reason) => Decision::Allow(reason),
            None => Decision::NoOpinion(aggregate(&errors).map(|e| format!("RBAC: {e}")).unwrap_or_default()),
        }
    }

    /// All rules of `user` in `namespace` (empty: at cluster scope).
    pub fn rules_for(&self, user: &UserInfo, namespace: &str) -> Rules {
        let mut found = Rules::default();
        self.visit(user, namespace, &mut |_, rules| {
            match rules {
                Ok(rules) => found.rules.extend(rules.iter().cloned()),
                Err(error) => found.errors.push(error.to_string()),
            }
            false
        });
        found
    }

    /// The rules that `role` stands for, seen from `namespace`.
    ///
    /// # Errors
    /// If there is no such role.
    pub fn rules_of(&self, role: &RoleRef, namespace: &str) -> Result<Arc<[PolicyRule]>, RoleError> {
        let (found, plural) = match role.kind.as_str() {
            "ClusterRole" => (self.cluster_roles.get(&role.name), "clusterroles"),
            "Role" => (self.roles.get(&(namespace.to_owned(), role.name.clone())), "roles"),
            kind => return Err(RoleError::Kind(kind.to_owned())),
        };
        found.cloned().ok_or_else(|| RoleError::NotFound(plural, role.name.clone()))
    }

    /// Calls `take` for each binding of `user` until it returns true.
    fn visit(
        &self,
        user: &UserInfo,
        namespace: &str,
        take: &mut dyn FnMut(String, Result<Arc<[PolicyRule]>, RoleError>) -> bool,
    ) {
        for (name, (binding, subject)) in self.cluster_bindings.of(user) {
            let RoleRef { kind, name: role, .. } = &binding.role;
            let by = format!("ClusterRoleBinding {name:?} of {kind} {role:?} to {subject}");
            if take(by, self.rules_of(&binding.role, "")) {
                return;
            }
        }
        let Some(bindings) = self.bindings.get(namespace).filter(|_| !namespace.is_empty()) else { return };
        for (name, (binding, subject)) in bindings.of(user) {
            let RoleRef { kind, name: role, .. } = &binding.role;
            let by = format!("RoleBinding \"{name}/{namespace}\" of {kind} {role:?} to {subject}");
            if take(by, self.rules_of(&binding.role, namespace)) {
                return;
            }
        }
    }
}

/// `true` if `rule` allows the request.
pub fn allows(rule: &PolicyRule, attributes: &Attributes) -> bool {
    let has =
        |list: &Option<Vec<String>>, value: &str| list.iter().flatten().any(|one| one == "*" || one == value);
    if !rule.verbs.iter().any(|verb| verb == "*" || *verb == attributes.verb) {
        return false;
    }
    if !attributes.is_resource {
        return rule.non_resource_urls.iter().flatten().any(|url| path_matches(url, &attributes.path));
    }
    has(&rule.api_groups, &attributes.group)
        && rule
            .resources
            .iter()
            .flatten()
            .any(|resource| resource_matches(resource, &attributes.resource, &attributes.subresource))
        && match &rule.resource_names {
            Some(names) if !names.is_empty() => names.contains(&attributes.name),
            _ => true,
        }
}

fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    match rule.split_once('/') {
        None => rule == "*" || (subresource.is_empty() && rule == resource),
        Some(("*", wanted)) => !subresource.is_empty() && wanted == subresource,
        Some((wanted, sub)) => wanted == resource && sub == subresource && !subresource.is_empty(),
    }
}

/// Stars count at the end only, and several are as good as one.
pub(crate) fn path_matches(rule: &str, path: &str) -> bool {
    rule == path || rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*'))
}

/// The rules of a ClusterRole that aggregates others: the union over all ClusterRoles that its selectors match, of one
/// selector after the other, in name order, each rule once. `None` if it aggregates nothing.
///
/// Source: the ClusterRole aggregation controller.
pub fn aggregated_rules<'a>(
    role: &ClusterRole,
    all: impl IntoIterator<Item = &'a ClusterRole>,
) -> Option<Vec<PolicyRule>> {
    let selectors = role.aggregation_rule.as_ref()?.cluster_role_selectors.as_ref()?;
    let own = name_of(&role.metadata);
    let mut others: Vec<&ClusterRole> =
        all.into_iter().filter(|other| name_of(&other.metadata) != own).collect();
    others.sort_by_key(|other| name_of(&other.metadata));
    let of = |selector| others.iter().filter(move |other| selects(selector, &other.metadata));
    let mut rules: Vec<PolicyRule> = Vec::new();
    for rule in selectors.iter().flat_map(of).flat_map(|other| other.rules.iter().flatten()) {
        if !rules.contains(rule) {
            rules.push(rule.clone());
        }
    }
    Some(rules)
}

fn selects(selector: &LabelSelector, metadata: &ObjectMeta) -> bool {
    let label = |key: &str| metadata.labels.as_ref().and_then(|labels| labels.get(key));
    let equal = selector.match_labels.iter().flatten().all(|(key, value)| label(key) == Some(value));
    equal
        && selector.match_expressions.iter().flatten().all(|expression| {
            let value = label(&expression.key);
            let is_listed = value.is_some_and(|v| expression.values.iter().flatten().any(|one| one == v));
            match expression.operator.as_str() {
                "In" => is_listed,
                "NotIn" => !is_listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

fn subjects(subjects: &[Subject], binding_namespace: &str) -> Vec<(Who, String)> {
    let mut out = Vec::with_capacity(subjects.len());
    for subject in subjects {
        let name = &subject.name;
        let words = format!("{} {name:?}", subject.kind);
        match subject.kind.as_str() {
            "User" => out.push((Who::User(name.clone()), words)),
            "Group" => out.push((Who::Group(name.clone()), words)),
            "ServiceAccount" => {
                let own = subject.namespace.as_deref().filter(|namespace| !namespace.is_empty());
                let namespace = own.unwrap_or(binding_namespace);
                if !namespace.is_empty() {
                    let user = format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}");
                    out.push((Who::User(user), format!("{} \"{name}/{namespace}\"", subject.kind)));
                }
            }
            _ => {}
        }
    }
    out
}

/// Go's way to write several errors as one.
pub(crate) fn aggregate(errors: &[String]) -> Option<String> {
    match errors {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}

fn name_of(metadata: &ObjectMeta) -> String {
    metadata.name.clone().unwrap_or_default()
}

fn namespace_of(metadata: &ObjectMeta) -> String {
    metadata.namespace.clone().unwrap_or_default()
}

#[cfg(test)]
#[path = "rbac/tests.rs"]
mod tests;
