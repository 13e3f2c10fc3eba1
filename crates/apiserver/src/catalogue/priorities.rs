//! In which order groups and versions are discovered: as APIServices say, and as upstream's say where there is none. Pure.
//!
//! Source: `k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper`.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

/// The group of APIServices themselves: nobody else serves it, and it is discovered first.
pub const OWN_GROUP: &str = "apiregistration.k8s.io";
/// The priorities of kinds of CustomResourceDefinitions. Source: `pkg/controlplane/controller/crdregistration`.
pub const DEFINED: (i64, i64) = (1000, 100);
/// What [`OWN_GROUP`] has: above all that an APIService can say. Source: `APIRegistrationGroupPriority`.
const OWN_PRIORITY: i64 = 20_001;
/// What a part of this process serves and no APIService names, and what it has then.
const MEASURES: &str = "metrics.k8s.io";
const UNREGISTERED: (i64, i64) = (100, 100);

/// The priorities of groups, and of their versions, in the search for an unqualified name: upstream's numbers.
pub const PRIORITIES: &[(&str, &str, i64, i64)] = &[
    ("", "v1", 18_000, 1),
    ("apps", "v1", 17_800, 15),
    ("events.k8s.io", "v1", 17_750, 5),
    ("authentication.k8s.io", "v1", 17_700, 15),
    ("authorization.k8s.io", "v1", 17_600, 15),
    ("autoscaling", "v1", 17_500, 15),
    ("autoscaling", "v2", 17_500, 30),
    ("batch", "v1", 17_400, 15),
    ("certificates.k8s.io", "v1", 17_300, 15),
    ("networking.k8s.io", "v1", 17_200, 15),
    ("policy", "v1", 17_100, 15),
    ("rbac.authorization.k8s.io", "v1", 17_000, 15),
    ("storage.k8s.io", "v1", 16_800, 15),
    ("apiextensions.k8s.io", "v1", 16_700, 15),
    ("admissionregistration.k8s.io", "v1", 16_700, 15),
    ("scheduling.k8s.io", "v1", 16_600, 15),
    ("coordination.k8s.io", "v1", 16_500, 15),
    ("node.k8s.io", "v1", 16_300, 15),
    ("discovery.k8s.io", "v1", 16_200, 12),
    ("flowcontrol.apiserver.k8s.io", "v1", 16_100, 21),
    ("resource.k8s.io", "v1", 15_900, 15),
];

/// The order in which groups and versions are discovered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Priorities {
    /// The highest of a group, and by which APIService.
    groups: BTreeMap<String, (i64, String)>,
    versions: BTreeMap<(String, String), i64>,
}

impl Priorities {
    /// As APIServices say: the group-version of each, and the priorities of the group and the version.
    pub fn of<'a>(registered: impl IntoIterator<Item = ((&'a str, &'a str), (i64, i64))>) -> Self {
        let mut all = Self::default();
        for ((group, version), (of_group, of_version)) in registered {
            let candidate = (of_group, format!("{version}.{group}"));
            all.versions.insert((group.to_owned(), version.to_owned()), of_version);
            let known = all.groups.get(group);
            if known.is_none_or(|known| rank(&candidate).cmp(&rank(known)).is_lt()) {
                all.groups.insert(group.to_owned(), candidate);
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
    let builtin = PRIORITIES.iter().filter(|row| row.0 == group);
    let rows: Vec<_> = builtin.collect();
    let exact = rows.iter().find(|row| row.1 == version).or(rows.first());
    match exact {
        Some((_, _, group_priority, version_priority)) => (*group_priority, *version_priority),
        None if group == MEASURES => UNREGISTERED,
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
    use super::*;

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
            (("apps", "v1"), (17_800, 15)),
            (("b.example.com", "v1"), (200, 10)),
            (("a.example.com", "v1"), (200, 10)),
            (("a.example.com", "v1beta1"), (100, 20)),
            (("c.example.com", "v1alpha1"), (19_000, 10)),
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
        let found = Priorities::of(registrations).sorted(served);
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
}
