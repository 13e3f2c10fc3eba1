//! Values by host, found by the most specific one; and hosts of Gateways, as a set.

use std::collections::{BTreeSet, HashMap};

use crate::host::{Host, below_wildcard};

/// A value for each host that has one.
#[derive(Clone, Debug)]
pub struct Hosts<T> {
    exact: HashMap<String, T>,
    wildcard: HashMap<String, T>,
    below: HashMap<String, T>,
    any: Option<T>,
}

impl<T> Default for Hosts<T> {
    fn default() -> Self {
        Self { exact: HashMap::new(), wildcard: HashMap::new(), below: HashMap::new(), any: None }
    }
}

impl<T> Hosts<T> {
    /// The value of a host.
    pub fn get(&self, host: &Host) -> Option<&T> {
        match host {
            Host::Exact(host) => self.exact.get(host),
            Host::Wildcard(rest) => self.wildcard.get(rest),
            Host::Below(rest) => self.below.get(rest),
            Host::Any => self.any.as_ref(),
        }
    }

    /// The value of a host, which is made if there is none.
    pub fn get_or_insert_with(&mut self, host: &Host, make: impl FnOnce() -> T) -> &mut T {
        match host {
            Host::Exact(host) => self.exact.entry(host.clone()).or_insert_with(make),
            Host::Wildcard(rest) => self.wildcard.entry(rest.clone()).or_insert_with(make),
            Host::Below(rest) => self.below.entry(rest.clone()).or_insert_with(make),
            Host::Any => self.any.get_or_insert_with(make),
        }
    }

    /// The entries for a name, the most specific first: itself, then wildcards from the longest on, then all.
    pub fn matching<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = &'a T> + use<'a, 'n, T> {
        let nearest = below_wildcard(name).and_then(|rest| self.wildcard.get(rest));
        let above = std::iter::successors(below_wildcard(name), |rest| below_wildcard(rest));
        let above = above.take_while(|_| !self.below.is_empty()).filter_map(|rest| self.below.get(rest));
        self.exact.get(name).into_iter().chain(nearest).chain(above).chain(&self.any)
    }
}

/// Hosts of Gateways, of which it is asked whether some name is for one of them and for another host, too. Names are kept from
/// their end, so that those below one stand together.
#[derive(Clone, Debug, Default)]
pub struct HostSet(BTreeSet<String>);

/// What no name has.
const WILDCARD: char = '*';

fn reversed(name: &str) -> String {
    name.chars().rev().collect()
}

fn wildcard(rest: &str) -> String {
    format!("{}.{WILDCARD}", reversed(rest))
}

impl HostSet {
    /// Adds a host.
    pub fn insert(&mut self, host: &Host) {
        self.0.insert(match host {
            Host::Exact(name) => reversed(name),
            Host::Wildcard(rest) | Host::Below(rest) => wildcard(rest),
            Host::Any => WILDCARD.to_string(),
        });
    }

    /// `true` if it has something in common with a host.
    pub fn meets(&self, host: &Host) -> bool {
        let (name, is_there) = match host {
            Host::Any => return !self.0.is_empty(),
            Host::Exact(name) => (name, self.0.contains(&reversed(name))),
            Host::Wildcard(rest) | Host::Below(rest) => {
                let below = format!("{}.", reversed(rest));
                let first = self.0.range(below.clone()..).next();
                (rest, first.is_some_and(|first| first.starts_with(&below)))
            }
        };
        let mut above = std::iter::successors(below_wildcard(name), |rest| below_wildcard(rest));
        is_there
            || self.0.contains(&WILDCARD.to_string())
            || above.any(|rest| self.0.contains(&wildcard(rest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_meets_what_one_of_its_hosts_does() {
        let all = [
            "",
            "example",
            "a.example",
            "b.a.example",
            "xa.example",
            "*.example",
            "*.a.example",
            "*.b.a.example",
        ];
        for one in all.map(Host::of_gateway) {
            let mut set = HostSet::default();
            assert!(!set.meets(&one));
            set.insert(&one);
            for other in all.map(Host::of_gateway) {
                assert_eq!(set.meets(&other), one.both(&other).is_some(), "{one} {other}");
            }
        }
    }

    #[test]
    fn the_most_specific_host_comes_first() {
        let all = [
            Host::Any,
            Host::Below("example".to_owned()),
            Host::Below("b.example".to_owned()),
            Host::Wildcard("b.example".to_owned()),
            Host::Exact("a.b.example".to_owned()),
        ];
        let mut hosts = Hosts::default();
        for host in &all {
            hosts.get_or_insert_with(host, || host.to_string());
        }
        let rows: [(&str, &[&str]); 5] = [
            ("a.b.example", &["a.b.example", "*.b.example", "**.b.example", "**.example", "*"]),
            ("x.y.b.example", &["**.b.example", "**.example", "*"]),
            ("b.example", &["**.example", "*"]),
            ("example", &["*"]),
            ("", &["*"]),
        ];
        for (name, expected) in rows {
            assert_eq!(hosts.matching(name).collect::<Vec<_>>(), expected, "{name}");
        }
        assert!(all.iter().all(|host| hosts.get(host).is_some()));
        let deep = "a.".repeat(120) + "example";
        assert_eq!(hosts.matching(&deep).count(), 2);
    }
}
