//! What is known of policies and Pods, and the kernel's tables that are kept equal to it: each commit is what is different.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use machinery::net::Family;

use crate::endpoints::{Endpoints, Sandbox};
use crate::pod::Pod;
use crate::policy::Policy;
use crate::rules::Rules;

/// The facts about cluster and Node that policies need.
#[derive(Clone, Debug)]
pub struct Config {
    /// The cluster's short id: tables are named after it.
    pub cluster_id: String,
    /// The node's name: rules are about Pods on it.
    pub node_name: String,
    /// The families of Pods' addresses.
    pub families: Vec<Family>,
}

/// An object by its key (`namespace/name` or `name`) as it is now; `None` if it is gone.
pub type News<K> = (String, Option<Arc<K>>);

/// The changes since the last commit, and all sandboxes that there are.
#[derive(Debug, Default)]
pub struct Batch {
    /// Policies.
    pub policies: Vec<News<NetworkPolicy>>,
    /// Namespaces.
    pub namespaces: Vec<News<Namespace>>,
    /// Pods of all Nodes.
    pub pods: Vec<News<Pod>>,
    /// The sandboxes of this Node, by id: all of them, each time.
    pub sandboxes: BTreeMap<String, Sandbox>,
}

/// The duration of a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Took {
    /// Until it was known what is different.
    pub deciding: Duration,
    /// Until the kernel had done it.
    pub all: Duration,
}

/// What the kernel has of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InKernel {
    /// Whatever an earlier process has left.
    Unknown,
    /// What was committed.
    Table,
    /// Nothing.
    Nothing,
}

/// The engine of policies; it works in the calling thread's network namespace.
#[derive(Debug)]
pub struct Engine {
    endpoints: Endpoints,
    rules: Vec<(Rules, InKernel)>,
}

impl Engine {
    /// One that knows of nothing, and has not looked at the kernel.
    pub fn new(config: &Config) -> Self {
        let table = crate::table_name(&config.cluster_id);
        let rules = config.families.iter().map(|family| {
            let mut rules = Rules::new(&table, *family);
            if let Err(error) = rules.draft().own() {
                tracing::warn!(error = %base::error_chain(&error), "others can flush the rules of network policies");
            }
            (rules, InKernel::Unknown)
        });
        Self { rules: rules.collect(), endpoints: Endpoints::new(&config.node_name) }
    }

    /// Somebody has taken something of what the kernel had: all of it is made again. Says whether it had anything.
    pub(crate) fn forget(&mut self) -> bool {
        let mut had_any = false;
        for (_, in_kernel) in &mut self.rules {
            had_any |= *in_kernel == InKernel::Table;
            *in_kernel = InKernel::Unknown;
        }
        had_any
    }

    /// Takes changes in and brings the kernel up to date. What it refuses is sent whole the next time.
    ///
    /// # Errors
    /// The kernel refuses. The changes are known, and come with the next.
    pub fn program(&mut self, batch: Batch) -> sys::Result<Took> {
        let start = Instant::now();
        self.take(batch);
        let deciding = start.elapsed();
        self.commit()?;
        Ok(Took { deciding, all: start.elapsed() })
    }

    fn take(&mut self, batch: Batch) {
        for (key, namespace) in batch.namespaces {
            let labels = namespace.map(|namespace| namespace.metadata.labels.clone().unwrap_or_default());
            self.rules.iter_mut().for_each(|(rules, _)| rules.namespace(&key, labels.clone()));
        }
        let mut changed = Vec::new();
        for (key, pod) in batch.pods {
            changed.extend(self.endpoints.pod(&key, pod));
        }
        changed.extend(self.endpoints.sandboxes(&batch.sandboxes));
        for (id, endpoint) in changed {
            self.rules.iter_mut().for_each(|(rules, _)| rules.endpoint(&id, endpoint.clone()));
        }
        for (key, policy) in batch.policies {
            let policy = policy.as_deref().map(Policy::of).map(Arc::new);
            for problem in policy.iter().flat_map(|policy| &policy.problems) {
                tracing::warn!(policy = key, problem, "a part of a network policy allows nothing");
            }
            self.rules.iter_mut().for_each(|(rules, _)| rules.policy(&key, policy.clone()));
        }
    }

    fn commit(&mut self) -> sys::Result<()> {
        for (rules, in_kernel) in &mut self.rules {
            if !rules.is_idle() {
                // Unknown until it is done: what the kernel refuses is sent whole the next time.
                if *in_kernel != InKernel::Table {
                    rules.draft().forget_commit();
                }
                *in_kernel = InKernel::Unknown;
                rules.draft().commit()?;
                *in_kernel = InKernel::Table;
            } else if *in_kernel != InKernel::Nothing {
                rules.draft().withdraw()?;
                *in_kernel = InKernel::Nothing;
            }
        }
        Ok(())
    }
}
