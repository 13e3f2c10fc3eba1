//! The volumes that Pods use, under which labels and how they get these, and who gets in whose way.
//!
//! A volume is here as long as a Pod uses it. Source: `selinuxwarning/cache` of upstream.

use std::collections::{BTreeMap, BTreeSet};

use controller::pod::Interned;
use controller::resource_ref::split_key;

use super::label;
use super::pod::ChangePolicy;

/// The volumes of all Pods.
#[derive(Debug, Default)]
pub struct VolumeCache {
    /// By unique name.
    volumes: BTreeMap<String, UsedVolume>,
    /// By key.
    pods: BTreeMap<String, KnownPod>,
}

#[derive(Debug, Default)]
struct UsedVolume {
    /// Empty if it has none.
    driver: String,
    /// By key.
    pods: BTreeMap<String, Usage>,
}

#[derive(Debug, Default)]
struct KnownPod {
    uid: String,
    volumes: BTreeSet<String>,
}

/// The way in which a Pod uses a volume.
#[derive(Clone, Debug, PartialEq)]
pub struct Usage {
    /// The label that the volume gets when it is mounted; empty if it gets none.
    pub label: Interned<str>,
    /// How it gets its label.
    pub change_policy: ChangePolicy,
}

/// A conflict of two Pods that use one volume, as one of them sees it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// The difference.
    pub property: Property,
    /// Whom to tell.
    pub pod: String,
    /// The value there.
    pub value: String,
    /// The other one.
    pub other_pod: String,
    /// The value there.
    pub other_value: String,
}

/// A property in which Pods can differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Property {
    /// How a volume gets its label.
    ChangePolicy,
    /// The label that it gets.
    Label,
}

impl Property {
    /// As metrics and messages name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ChangePolicy => "SELinuxChangePolicy",
            Self::Label => "SELinuxLabel",
        }
    }

    /// The reason of events about it.
    pub fn reason(self) -> &'static str {
        match self {
            Self::ChangePolicy => "SELinuxChangePolicyConflict",
            Self::Label => "SELinuxLabelConflict",
        }
    }
}

impl Conflict {
    /// The event's message: of a Pod in another namespace it says neither name nor value. Its words, and the blank that is not
    /// there, are upstream's.
    pub fn message(&self) -> String {
        let (name, value) = (self.property.name(), &self.value);
        let (namespace, _) = split_key(&self.pod);
        let told = match split_key(&self.other_pod) {
            (other, pod) if other == namespace => format!(
                "{name} \"{value}\" conflicts with pod {pod} that uses the same volume as this pod with {name} \"{}\"",
                self.other_value
            ),
            _ => format!(
                "{name}\"{value}\" conflicts with another pod that uses the same volume as this pod with a different {name}"
            ),
        };
        format!("{told}. If both pods land on the same node, only one of them may access the volume.")
    }

    fn reversed(&self) -> Self {
        Self {
            property: self.property,
            pod: self.other_pod.clone(),
            value: self.other_value.clone(),
            other_pod: self.pod.clone(),
            other_value: self.value.clone(),
        }
    }
}

impl VolumeCache {
    /// Begins with a Pod: what a namesake before it used is forgotten.
    pub fn begin(&mut self, pod: &str, uid: &str) {
        if self.pods.get(pod).is_some_and(|known| known.uid != uid) {
            self.remove_pod(pod);
        }
        self.pods.entry(pod.to_owned()).or_default().uid = uid.to_owned();
    }

    /// Notes how a Pod uses a volume of this driver. Returns the conflicts of that Pod, for both sides, if that is news.
    pub fn add(&mut self, volume: &str, driver: &str, pod: &str, usage: Usage) -> Vec<Conflict> {
        self.pods.entry(pod.to_owned()).or_default().volumes.insert(volume.to_owned());
        let used = self.volumes.entry(volume.to_owned()).or_default();
        driver.clone_into(&mut used.driver);
        if used.pods.get(pod) == Some(&usage) {
            return Vec::new();
        }
        used.pods.insert(pod.to_owned(), usage);
        let mine = used.conflicts_of(pod);
        mine.flat_map(|conflict| [conflict.clone(), conflict.reversed()]).collect()
    }

    /// Forgets a Pod, and the volumes that nobody else uses.
    pub fn remove_pod(&mut self, pod: &str) {
        for volume in self.pods.remove(pod).unwrap_or_default().volumes {
            let Some(used) = self.volumes.get_mut(&volume) else { continue };
            used.pods.remove(pod);
            if used.pods.is_empty() {
                self.volumes.remove(&volume);
            }
        }
    }

    /// The keys of the Pods that use volumes of a driver.
    pub fn pods_of_driver(&self, driver: &str) -> Vec<String> {
        let of_driver = self.volumes.values().filter(|used| used.driver == driver);
        let keys: BTreeSet<&String> = of_driver.flat_map(|used| used.pods.keys()).collect();
        keys.into_iter().cloned().collect()
    }

    /// Every conflict that there is, for both sides; those of two Pods over several volumes are one.
    pub fn conflicts(&self) -> BTreeSet<Conflict> {
        let of_volume = |used: &UsedVolume| -> Vec<Conflict> {
            used.pods.keys().flat_map(|pod| used.conflicts_of(pod)).collect()
        };
        self.volumes.values().flat_map(of_volume).collect()
    }
}

impl UsedVolume {
    /// The conflicts of a Pod with others, as it sees them.
    fn conflicts_of(&self, pod: &str) -> impl Iterator<Item = Conflict> {
        let mine = self.pods.get(pod);
        let pairs = self.pods.iter().filter_map(move |other| Some((mine?, other)));
        pairs.flat_map(move |(mine, (other_pod, other))| {
            let differ = |property: Property, value: &str, other_value: &str| Conflict {
                property,
                pod: pod.to_owned(),
                value: value.to_owned(),
                other_pod: other_pod.clone(),
                other_value: other_value.to_owned(),
            };
            let (policy, other_policy) = (mine.change_policy, other.change_policy);
            let by_policy = (policy != other_policy)
                .then(|| differ(Property::ChangePolicy, policy.as_str(), other_policy.as_str()));
            let by_label = label::conflicts(&mine.label, &other.label)
                .then(|| differ(Property::Label, &mine.label, &other.label));
            by_policy.into_iter().chain(by_label)
        })
    }
}

#[cfg(test)]
mod tests;
