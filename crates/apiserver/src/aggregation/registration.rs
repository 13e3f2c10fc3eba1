//! What an APIService says, and in which order groups and versions are discovered. Pure.
//!
//! Source: `apiregistration.k8s.io/v1`, `k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper`.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery::metadata::Metadata;
use serde_json::Value;

use crate::service_reference::ServiceReference;
use crate::tree::text;

/// The group of APIServices themselves: nobody else serves it, and it is discovered first.
pub const OWN_GROUP: &str = "apiregistration.k8s.io";
/// What kinds of CustomResourceDefinitions have. Source: `pkg/controlplane/controller/crdregistration`.
pub const DEFINED: (i64, i64) = (1000, 100);
/// What [`OWN_GROUP`] has: above all that an APIService can say. Source: `APIRegistrationGroupPriority`.
const OWN_PRIORITY: i64 = 20_001;
/// What a group-version has that a part of this process serves and no APIService names.
const UNREGISTERED: (i64, i64) = (100, 100);

/// An APIService.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// `VERSION.GROUP`.
    pub name: String,
    /// The group; empty for core.
    pub group: String,
    /// The version.
    pub version: String,
    /// `spec.groupPriorityMinimum`.
    pub group_priority: i64,
    /// `spec.versionPriority`.
    pub version_priority: i64,
    /// Who serves it, if not this server.
    pub target: Option<Target>,
    /// Whether the condition `Available` is true.
    pub is_available: bool,
}

/// Who serves a group-version elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The Service in front of them.
    pub service: ServiceReference,
    /// Whose certificates are believed.
    pub trust: Trust,
}

/// Whose certificates are believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Those of these authorities, PEM.
    Authorities(Vec<u8>),
    /// Those of the host's authorities.
    Host,
    /// Any: `insecureSkipTLSVerify`.
    Anybody,
}

impl Registration {
    /// What an APIService says.
    ///
    /// `None` for what validation would have refused.
    pub fn of(object: &Value) -> Option<Self> {
        let name = Metadata::of(object).name();
        let (group, version) = (text(object, "/spec/group"), text(object, "/spec/version"));
        if name != format!("{version}.{group}") || version.is_empty() {
            return None;
        }
        let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
        let service = object.pointer("/spec/service").filter(|service| !service.is_null());
        let target = match service.filter(|_| group != OWN_GROUP) {
            None => None,
            Some(service) => Some(Target { service: ServiceReference::of(service)?, trust: trust(object) }),
        };
        Some(Self {
            name: name.to_owned(),
            group: group.to_owned(),
            version: version.to_owned(),
            group_priority: number("/spec/groupPriorityMinimum"),
            version_priority: number("/spec/versionPriority"),
            target,
            is_available: condition(object).is_some_and(|condition| text(condition, "/status") == "True"),
        })
    }
}

impl Registration {
    /// Where the group-version is.
    pub fn path(&self) -> String {
        match self.group.as_str() {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        }
    }
}

/// The condition `Available` of an APIService.
pub fn condition(object: &Value) -> Option<&Value> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().find(|condition| text(condition, "/type") == "Available")
}

fn trust(object: &Value) -> Trust {
    let bundle = text(object, "/spec/caBundle");
    if object.pointer("/spec/insecureSkipTLSVerify") == Some(&Value::Bool(true)) {
        return Trust::Anybody;
    }
    match bundle.is_empty() {
        true => Trust::Host,
        // What is no base64 is no certificate either: then nobody is believed.
        false => Trust::Authorities(STANDARD.decode(bundle).unwrap_or_default()),
    }
}

/// In which order groups and versions are discovered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Priorities {
    /// The highest of a group, and by which APIService.
    groups: BTreeMap<String, (i64, String)>,
    versions: BTreeMap<(String, String), i64>,
}

impl Priorities {
    /// As APIServices say.
    pub fn of(registrations: &[Registration]) -> Self {
        let mut all = Self::default();
        for one in registrations {
            let candidate = (one.group_priority, one.name.clone());
            all.versions.insert((one.group.clone(), one.version.clone()), one.version_priority);
            let known = all.groups.get(&one.group);
            if known.is_none_or(|known| rank(&candidate).cmp(&rank(known)).is_lt()) {
                all.groups.insert(one.group.clone(), candidate);
            }
        }
        all
    }

    /// Puts group-versions in order: groups by priority and then by name, each with its versions, best first.
    pub fn sorted<'a>(
        &self,
        served: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Vec<(&'a str, Vec<&'a str>)> {
        let mut by_group: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (group, version) in served {
            let versions = by_group.entry(group).or_default();
            if !versions.contains(&version) {
                versions.push(version);
            }
        }
        let mut groups: Vec<(&str, Vec<&str>)> = by_group.into_iter().collect();
        for (group, versions) in &mut groups {
            versions.sort_by(|left, right| {
                let priority = |version: &str| self.version(group, version);
                priority(right).cmp(&priority(left)).then_with(|| compare(right, left))
            });
        }
        groups.sort_by_cached_key(|(group, versions)| {
            let (priority, name) = self.group(group, versions);
            (Reverse(priority), name)
        });
        groups
    }

    fn group(&self, group: &str, versions: &[&str]) -> (i64, String) {
        if group == OWN_GROUP {
            return (OWN_PRIORITY, String::new());
        }
        self.groups.get(group).cloned().unwrap_or_else(|| {
            let first = versions.iter().min().copied().unwrap_or_default();
            (implicit(group, first).0, format!("{first}.{group}"))
        })
    }

    fn version(&self, group: &str, version: &str) -> i64 {
        let known = self.versions.get(&(group.to_owned(), version.to_owned()));
        known.copied().unwrap_or_else(|| implicit(group, version).1)
    }
}

fn rank((priority, name): &(i64, String)) -> (Reverse<i64>, &str) {
    (Reverse(*priority), name)
}

/// The priorities of what is served before its APIService is there, or without one.
fn implicit(group: &str, version: &str) -> (i64, i64) {
    let builtin = crate::bootstrap::platform::PRIORITIES.iter().filter(|row| row.0 == group);
    let rows: Vec<_> = builtin.collect();
    let exact = rows.iter().find(|row| row.1 == version).or(rows.first());
    match exact {
        Some((_, _, group_priority, version_priority)) => (*group_priority, *version_priority),
        None if group == crate::resource_metrics::GROUP => UNREGISTERED,
        None => DEFINED,
    }
}

/// Of two versions the better is the greater: stable ones before beta before alpha, and newer ones before older; what is
/// no version of Kubernetes' kind is least, and then the first of the alphabet is best.
///
/// Source: `CompareKubeAwareVersionStrings` of `k8s.io/apimachinery/pkg/version`.
pub fn compare(left: &str, right: &str) -> Ordering {
    match (parsed(left), parsed(right)) {
        (Some(one), Some(other)) => one.cmp(&other),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        (None, None) => right.cmp(left),
    }
}

/// Stability, major and minor of `v1`, `v2beta3`; nothing for other forms.
fn parsed(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let number = |text: &str| -> Option<u64> {
        let is_number = text.starts_with(|c: char| matches!(c, '1'..='9'));
        text.parse().ok().filter(|_| is_number && text.bytes().all(|byte| byte.is_ascii_digit()))
    };
    for (word, stability) in [("alpha", 0), ("beta", 1)] {
        if let Some((major, minor)) = rest.split_once(word) {
            return Some((stability, number(major)?, number(minor)?));
        }
    }
    Some((2, number(rest)?, 0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn registration(group: &str, version: &str, priorities: (i64, i64)) -> Registration {
        Registration {
            name: format!("{version}.{group}"),
            group: group.to_owned(),
            version: version.to_owned(),
            group_priority: priorities.0,
            version_priority: priorities.1,
            target: None,
            is_available: true,
        }
    }

    #[test]
    fn versions_are_compared_as_upstream_compares_them() {
        let sorted = [
            "v10",
            "v2",
            "v1",
            "v11beta2",
            "v10beta3",
            "v3beta1",
            "v12alpha1",
            "v11alpha2",
            "foo1",
            "foo10",
            "v01",
            "v1.2",
            "v1beta",
        ];
        let mut found = sorted.to_vec();
        found.reverse();
        found.sort_by(|left, right| compare(right, left));
        assert_eq!(found, sorted);
    }

    #[test]
    fn groups_and_versions_come_by_their_priorities() {
        let registrations = [
            registration("apps", "v1", (17_800, 15)),
            registration("b.example.com", "v1", (200, 10)),
            registration("a.example.com", "v1", (200, 10)),
            registration("a.example.com", "v1beta1", (100, 20)),
            registration("c.example.com", "v1alpha1", (19_000, 10)),
        ];
        let served = [
            ("apps", "v1"),
            ("apiregistration.k8s.io", "v1"),
            ("defined.example.com", "v1beta1"),
            ("defined.example.com", "v1"),
            ("metrics.k8s.io", "v1beta1"),
            ("a.example.com", "v1"),
            ("a.example.com", "v1beta1"),
            ("b.example.com", "v1"),
            ("c.example.com", "v1alpha1"),
            ("c.example.com", "v1alpha1"),
        ];
        let found = Priorities::of(&registrations).sorted(served);
        let shown: Vec<String> =
            found.iter().map(|(group, versions)| format!("{group} {}", versions.join(","))).collect();
        assert_eq!(
            shown,
            [
                "apiregistration.k8s.io v1",
                "c.example.com v1alpha1",
                "apps v1",
                "defined.example.com v1,v1beta1",
                "a.example.com v1beta1,v1",
                "b.example.com v1",
                "metrics.k8s.io v1beta1",
            ]
        );
    }

    #[test]
    fn an_api_service_says_who_serves_and_whom_to_believe() {
        let check = |spec: Value, expect: Option<Option<Trust>>| {
            let mut object = json!({"metadata": {"name": "v1.example.com"}, "spec": {"group": "example.com", "version": "v1"}});
            object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
            let found = Registration::of(&object).map(|one| one.target.map(|target| target.trust));
            assert_eq!(found, expect, "{spec}");
        };
        let service = json!({"namespace": "a", "name": "b"});
        check(json!({}), Some(None));
        check(json!({"service": null}), Some(None));
        check(json!({"service": service}), Some(Some(Trust::Host)));
        check(json!({"service": service, "insecureSkipTLSVerify": true}), Some(Some(Trust::Anybody)));
        let authorities = Some(Some(Trust::Authorities(b"pem".to_vec())));
        check(json!({"service": service, "caBundle": "cGVt"}), authorities);
        check(json!({"service": service, "caBundle": "!"}), Some(Some(Trust::Authorities(Vec::new()))));
        check(json!({"service": {"name": "b"}}), None);
        check(json!({"version": "v2"}), None);
        check(json!({"group": "../x"}), None);
    }

    #[test]
    fn nobody_else_serves_registrations() {
        let object = json!({
            "metadata": {"name": "v1.apiregistration.k8s.io"},
            "spec": {"group": OWN_GROUP, "version": "v1", "service": {"namespace": "a", "name": "b"}},
        });
        assert_eq!(Registration::of(&object).unwrap().target, None);
    }
}
