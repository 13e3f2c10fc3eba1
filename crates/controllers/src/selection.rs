//! The controllers that run: `--controllers`, by upstream's names, new and old.
//!
//! Of several entries about one controller the first counts; `*` stands for all that are on by default.
//! Source: `cmd/kube-controller-manager/app`, `genericcontrollermanager.IsControllerEnabled`.

use std::collections::BTreeSet;

use controller::Controller;

use crate::{known, off_by_default};

/// What upstream called controllers before, by what it calls them now.
const ALIASES: [(&str, &str); 42] = [
    ("attachdetach", "persistentvolume-attach-detach-controller"),
    ("bootstrapsigner", "bootstrap-signer-controller"),
    ("cloud-node-lifecycle", "cloud-node-lifecycle-controller"),
    ("clusterrole-aggregation", "clusterrole-aggregation-controller"),
    ("cronjob", "cronjob-controller"),
    ("csrapproving", "certificatesigningrequest-approving-controller"),
    ("csrcleaner", "certificatesigningrequest-cleaner-controller"),
    ("csrsigning", "certificatesigningrequest-signing-controller"),
    ("daemonset", "daemonset-controller"),
    ("deployment", "deployment-controller"),
    ("disruption", "disruption-controller"),
    ("endpoint", "endpoints-controller"),
    ("endpointslice", "endpointslice-controller"),
    ("endpointslicemirroring", "endpointslice-mirroring-controller"),
    ("ephemeral-volume", "ephemeral-volume-controller"),
    ("garbagecollector", "garbage-collector-controller"),
    ("horizontalpodautoscaling", "horizontal-pod-autoscaler-controller"),
    ("job", "job-controller"),
    ("legacy-service-account-token-cleaner", "legacy-serviceaccount-token-cleaner-controller"),
    ("namespace", "namespace-controller"),
    ("nodeipam", "node-ipam-controller"),
    ("nodelifecycle", "node-lifecycle-controller"),
    ("persistentvolume-binder", "persistentvolume-binder-controller"),
    ("persistentvolume-expander", "persistentvolume-expander-controller"),
    ("podgc", "pod-garbage-collector-controller"),
    ("pv-protection", "persistentvolume-protection-controller"),
    ("pvc-protection", "persistentvolumeclaim-protection-controller"),
    ("replicaset", "replicaset-controller"),
    ("replicationcontroller", "replicationcontroller-controller"),
    ("resource-claim-controller", "resourceclaim-controller"),
    ("resourcequota", "resourcequota-controller"),
    ("root-ca-cert-publisher", "root-ca-certificate-publisher-controller"),
    ("route", "node-route-controller"),
    ("service", "service-lb-controller"),
    ("serviceaccount", "serviceaccount-controller"),
    ("serviceaccount-token", "serviceaccount-token-controller"),
    ("statefulset", "statefulset-controller"),
    ("storage-version-gc", "storageversion-garbage-collector-controller"),
    ("svm", "storage-version-migrator-controller"),
    ("tokencleaner", "token-cleaner-controller"),
    ("ttl", "ttl-controller"),
    ("ttl-after-finished", "ttl-after-finished-controller"),
];
const NO_CLOUD: &str = "clouds bring a controller manager of their own";
/// Upstream's names for which nothing runs here, and why: those of cloud providers, which do nothing there either, those whose
/// work somebody else does, and those of features that nothing here has.
const IDLE: [(&str, &str); 4] = [
    ("cloud-node-lifecycle-controller", NO_CLOUD),
    ("node-route-controller", NO_CLOUD),
    ("service-lb-controller", NO_CLOUD),
    (
        "validatingadmissionpolicy-status-controller",
        "the API server writes the status of its policies itself",
    ),
];
/// Ours that events and roles call otherwise than upstream's flag does.
const OWN_NAMES: [(&str, &str); 2] = [
    ("daemonset-controller", "daemon-set-controller"),
    ("resourceclaim-controller", "resource-claim-controller"),
];
const ALL: &str = "*";

/// Entries that name controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection(Vec<Entry>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    All,
    On(String),
    Off(String),
}

/// An entry that names no controller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not in the list of known controllers")]
pub struct UnknownController(String);

impl Selection {
    /// Reads what a flag says: `*`, `NAME`, `-NAME`.
    ///
    /// # Errors
    /// If a name is no controller's.
    pub fn new(entries: &[String]) -> Result<Self, UnknownController> {
        let names = names();
        let read = |entry: &String| {
            if entry == ALL {
                return Ok(Entry::All);
            }
            let (name, is_off) = entry.strip_prefix('-').map_or((entry.as_str(), false), |name| (name, true));
            let name = canonical(name);
            match (names.contains(name) || idle(name).is_some(), is_off) {
                (true, true) => Ok(Entry::Off(name.to_owned())),
                (true, false) => Ok(Entry::On(name.to_owned())),
                (false, _) => Err(UnknownController(entry.clone())),
            }
        };
        entries.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Those that run, in the order of the chain.
    pub fn controllers(&self) -> impl Iterator<Item = &'static Controller> {
        known().filter(|one| self.has(one))
    }

    /// Those that are named and run nowhere here, and why.
    pub fn idle(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.0.iter().filter_map(|entry| match entry {
            Entry::On(name) => idle(name),
            Entry::All | Entry::Off(_) => None,
        })
    }

    fn has(&self, controller: &Controller) -> bool {
        let named = self.0.iter().find_map(|entry| match entry {
            Entry::On(name) if name == controller.name => Some(true),
            Entry::Off(name) if name == controller.name => Some(false),
            Entry::All | Entry::On(_) | Entry::Off(_) => None,
        });
        let is_default = || self.0.contains(&Entry::All) && !off_by_default(controller);
        named.unwrap_or_else(is_default)
    }
}

/// The name of one of ours, by any of its names.
fn canonical(name: &str) -> &str {
    let find = |table: &[(&'static str, &'static str)], name: &str| {
        table.iter().find(|(other, _)| *other == name).map(|(_, name)| *name)
    };
    let name = match known().any(|one| one.name == name) {
        true => name,
        false => find(&ALIASES, name).unwrap_or(name),
    };
    find(&OWN_NAMES, name).unwrap_or(name)
}

fn idle(name: &str) -> Option<(&'static str, &'static str)> {
    IDLE.into_iter().find(|(idle, _)| *idle == name)
}

/// Those of all that could run, whichever features are on.
fn names() -> BTreeSet<&'static str> {
    crate::every().map(|one| one.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(flag: &str, expect: &[(&str, bool)]) {
        let entries: Vec<String> = flag.split(',').map(str::to_owned).collect();
        let selection = Selection::new(&entries).unwrap();
        let running: Vec<&str> = selection.controllers().map(|one| one.name).collect();
        for (name, is_on) in expect {
            assert_eq!(running.contains(name), *is_on, "{name} of {flag}");
        }
    }

    #[test]
    fn the_first_entry_about_a_controller_counts() {
        let (signer, cleaner, job) =
            ("bootstrap-signer-controller", "token-cleaner-controller", "job-controller");
        let warner = "selinux-warning-controller";
        check("*", &[(signer, false), (cleaner, false), (warner, false), (job, true)]);
        check("*,bootstrapsigner,tokencleaner", &[(signer, true), (cleaner, true), (job, true)]);
        check("*,selinux-warning-controller", &[(warner, true), (signer, false), (job, true)]);
        check("*,storage-version-gc", &[("storageversion-garbage-collector-controller", false), (job, true)]);
        check("*,-job", &[(job, false), ("cronjob-controller", true)]);
        check("-job,*,job", &[(job, false)]);
        check("job,-job", &[(job, true), ("cronjob-controller", false)]);
        check("*,-service,-route,-cloud-node-lifecycle", &[(job, true)]);
        check("-daemonset-controller,*", &[("daemon-set-controller", false)]);
        check("-resourceclaim-controller,*", &[("resource-claim-controller", false)]);
        check("-storage-version-migrator-controller,*", &[(job, true)]);
        check("*,device-taint-eviction-controller", &[("device-taint-eviction-controller", false)]);
    }

    #[test]
    fn who_is_named_and_does_nothing_is_told() {
        let told = |flag: &str| {
            let entries: Vec<String> = flag.split(',').map(str::to_owned).collect();
            Selection::new(&entries).unwrap().idle().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(told("*,-service,job"), [""; 0]);
        assert_eq!(
            told("*,device-taint-eviction-controller,selinux-warning-controller,route"),
            ["node-route-controller"]
        );
    }

    #[test]
    fn who_is_nobody_is_told() {
        for name in ["jobs", "-", "", "--job", "-*", "JOB", " job"] {
            let why = format!("{name:?} is not in the list of known controllers");
            assert_eq!(Selection::new(&[name.to_owned()]).unwrap_err().to_string(), why);
        }
    }

    #[test]
    fn every_name_is_somebodys() {
        let names = names();
        for (alias, name) in ALIASES {
            assert!(names.contains(canonical(name)) || idle(name).is_some(), "{alias}: {name}");
        }
        assert!(IDLE.iter().all(|(name, _)| !names.contains(name)));
    }
}
