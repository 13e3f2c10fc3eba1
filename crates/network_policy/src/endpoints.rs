//! Who has which address: the sandboxes of this Node by what its network gave them, Pods of other Nodes by their status.
//!
//! A sandbox has the labels of its Pod as the API knows it; until it is seen there, and when it is gone from there before
//! its containers, those that it was made with or had last. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use controller::selector::Labels;

use crate::pod::{NamedPort, Pod};

/// A Pod of this Node with a network namespace of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sandbox {
    /// The Pod's namespace.
    pub namespace: String,
    /// The Pod's name.
    pub name: String,
    /// The Pod's uid.
    pub uid: String,
    /// The labels that the Pod had.
    pub labels: Labels,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// Somebody with addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// The Pod's namespace.
    pub namespace: String,
    /// The Pod's labels.
    pub labels: Labels,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Its ports with names.
    pub ports: Vec<NamedPort>,
    /// The Node that it is on, as seen from this one.
    pub locality: Locality,
    /// Its state, as policies see it.
    pub state: State,
}

/// The Node of an endpoint, as seen from this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Locality {
    /// Rules of this Node are about it.
    Here,
    /// Rules of another Node are.
    #[default]
    Elsewhere,
}

/// The state of an endpoint, as policies see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Selectors of peers find it.
    #[default]
    Running,
    /// They do not: its Pod has ended.
    Over,
}

/// Endpoints that have changed, by an id; `None` if they are gone.
pub type Changed = Vec<(String, Option<Endpoint>)>;

/// The endpoints of Pods and sandboxes that are known.
#[derive(Debug, Default)]
pub struct Endpoints {
    node_name: String,
    pods: BTreeMap<String, Arc<Pod>>,
    sandboxes: BTreeMap<String, Sandbox>,
    /// Ids of sandboxes by the key of their Pod.
    by_pod: BTreeMap<String, Vec<String>>,
}

impl Endpoints {
    /// Nobody yet, seen from this Node.
    pub fn new(node_name: impl Into<String>) -> Self {
        Self { node_name: node_name.into(), ..Self::default() }
    }

    /// A Pod has changed, or is gone.
    pub fn pod(&mut self, key: &str, pod: Option<Arc<Pod>>) -> Changed {
        let mut changed: Changed = Vec::new();
        let elsewhere = pod.as_ref().and_then(|pod| self.elsewhere(pod));
        changed.push((format!("pod/{key}"), elsewhere));
        match pod {
            Some(pod) => self.pods.insert(key.to_owned(), pod),
            None => self.pods.remove(key),
        };
        for id in self.by_pod.get(key).cloned().unwrap_or_default() {
            changed.extend(self.of_sandbox(&id));
        }
        changed
    }

    /// All the sandboxes that there are now.
    pub fn sandboxes(&mut self, now: &BTreeMap<String, Sandbox>) -> Changed {
        let gone: Vec<String> = self.sandboxes.keys().filter(|id| !now.contains_key(*id)).cloned().collect();
        let mut changed: Changed = Vec::new();
        for id in gone {
            self.sandboxes.remove(&id);
            self.by_pod.values_mut().for_each(|ids| ids.retain(|other| *other != id));
            self.by_pod.retain(|_, ids| !ids.is_empty());
            changed.push((sandbox_id(&id), None));
        }
        for (id, sandbox) in now {
            let is_known = self.sandboxes.get(id).is_some_and(|known| is_same(known, sandbox));
            if is_known {
                continue;
            }
            let of_pod = self.by_pod.entry(format!("{}/{}", sandbox.namespace, sandbox.name)).or_default();
            if !of_pod.contains(id) {
                of_pod.push(id.clone());
            }
            self.sandboxes.insert(id.clone(), sandbox.clone());
            changed.extend(self.of_sandbox(id));
        }
        changed
    }

    /// Remembers the labels of its Pod, if that is known.
    fn of_sandbox(&mut self, id: &str) -> Option<(String, Option<Endpoint>)> {
        let sandbox = self.sandboxes.get_mut(id)?;
        let pod = self.pods.get(&format!("{}/{}", sandbox.namespace, sandbox.name));
        let pod = pod.filter(|pod| pod.uid() == sandbox.uid);
        if let Some(pod) = pod {
            sandbox.labels = pod.labels();
        }
        let endpoint = Endpoint {
            namespace: sandbox.namespace.clone(),
            labels: sandbox.labels.clone(),
            addresses: sandbox.addresses.clone(),
            ports: pod.map(|pod| pod.ports()).unwrap_or_default(),
            locality: Locality::Here,
            state: if pod.is_some_and(|pod| pod.is_over()) { State::Over } else { State::Running },
        };
        Some((sandbox_id(id), Some(endpoint)))
    }

    /// `None` for a Pod of this Node, whose sandboxes are known, and for one without addresses.
    fn elsewhere(&self, pod: &Pod) -> Option<Endpoint> {
        let addresses = pod.addresses();
        let is_elsewhere = pod.node_name().is_some_and(|node| node != self.node_name);
        (is_elsewhere && !pod.is_over() && !addresses.is_empty()).then(|| Endpoint {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            labels: pod.labels(),
            addresses,
            ports: pod.ports(),
            locality: Locality::Elsewhere,
            state: State::Running,
        })
    }
}

fn sandbox_id(id: &str) -> String {
    format!("sandbox/{id}")
}

/// Whether both are one sandbox in one state: labels follow the Pod.
fn is_same(known: &Sandbox, now: &Sandbox) -> bool {
    (&known.namespace, &known.name, &known.uid, &known.addresses)
        == (&now.namespace, &now.name, &now.uid, &now.addresses)
}

#[cfg(test)]
mod tests;
