//! Follows policies, namespaces, Pods and sandboxes, and keeps the kernel's tables equal to what they say.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::{Backoff, Tasks};
use controller::trace::Reporter;
use controller::{Change, Changes, FlushedRules, Informers, Recorder};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use machinery::net::Family;
use sys::nftables::Flushes;
use tokio::sync::watch;

use crate::endpoints::{Endpoints, Sandbox};
use crate::pod::Pod;
use crate::policy::Policy;
use crate::rules::Rules;
use crate::sandboxes::Sandboxes;

const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// Changed policies named in the trace of one commit; the others of a larger batch are not.
const SPANS_PER_COMMIT_MAX: usize = 64;

/// What policies must know of their cluster and node.
#[derive(Clone, Debug)]
pub struct Config {
    /// The cluster's short id: tables are named after it.
    pub cluster_id: String,
    /// The node's name: rules are about Pods on it.
    pub node_name: String,
    /// The families of Pods' addresses.
    pub families: Vec<Family>,
}

/// Starts to enforce policies on the Node's sandboxes, all of which are known by now. The receiver tells how many commits
/// there were: 1 and more is ready.
pub fn run(
    informers: &Informers,
    config: Config,
    sandboxes: Sandboxes,
    reporter: Reporter,
    tasks: &Tasks,
) -> watch::Receiver<u64> {
    let (commits, ready) = watch::channel(0);
    let informers = informers.clone();
    tasks.spawn("network policies", async move {
        let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY, 0.1);
        let recorder = Recorder::start_on(&informers, "network-policy", &config.node_name);
        let flushed = FlushedRules::new(&informers, recorder, &config.node_name, "of NetworkPolicies");
        let mut flushes = Flushes::of_table(crate::table_name(&config.cluster_id));
        loop {
            let follower = Follower {
                informers: &informers,
                sandboxes: &sandboxes,
                reporter: &reporter,
                commits: &commits,
                flushes: &mut flushes,
                flushed: &flushed,
                engine: Some(Box::new(Engine::new(&config))),
            };
            // Ends when the engine was lost: everything is made anew, while the kernel keeps what it has.
            follower.follow(&mut backoff).await;
            tokio::time::sleep(backoff.next(informers.random())).await;
        }
    });
    ready
}

/// Peers of policies; nobody is watched before there is a policy.
struct Watched {
    pods: Changes<Pod>,
    namespaces: Changes<Namespace>,
}

impl Watched {
    async fn start(informers: &Informers) -> Self {
        let (pods, namespaces) = (informers.informer::<Pod>(), informers.informer::<Namespace>());
        pods.synced().await;
        namespaces.synced().await;
        Self { pods: pods.subscribe(), namespaces: namespaces.subscribe() }
    }

    /// Waits for what it returns.
    async fn next(this: Option<&mut Self>, batch: &mut Batch) {
        let Some(this) = this else { return std::future::pending().await };
        tokio::select! {
            pods = this.pods.next() => batch.pods.extend(pods),
            namespaces = this.namespaces.next() => batch.namespaces.extend(namespaces),
        }
    }
}

/// What has changed.
#[derive(Default)]
struct Batch {
    policies: Vec<Change<NetworkPolicy>>,
    namespaces: Vec<Change<Namespace>>,
    pods: Vec<Change<Pod>>,
    sandboxes: BTreeMap<String, Sandbox>,
}

struct Follower<'a> {
    informers: &'a Informers,
    sandboxes: &'a Sandboxes,
    reporter: &'a Reporter,
    commits: &'a watch::Sender<u64>,
    flushes: &'a mut Flushes,
    flushed: &'a FlushedRules,
    engine: Option<Box<Engine>>,
}

impl Follower<'_> {
    async fn follow(mut self, backoff: &mut Backoff) {
        let policies = self.informers.informer::<NetworkPolicy>();
        policies.synced().await;
        let mut policy_changes = policies.subscribe();
        let mut sandbox_changes = self.sandboxes.changes();
        let mut watched: Option<Watched> = None;
        let mut batch = Batch::default();
        let mut spans: Vec<(u64, String)> = Vec::new();
        let mut was_flushed = false;
        loop {
            if watched.is_none() && !policies.is_empty() {
                watched = Some(Watched::start(self.informers).await);
            }
            sandbox_changes.mark_unchanged();
            let (version, sandboxes) = self.sandboxes.now();
            batch.sandboxes = sandboxes;
            batch.policies.extend(policy_changes.take());
            if let Some(watched) = &watched {
                batch.pods.extend(watched.pods.take());
                batch.namespaces.extend(watched.namespaces.take());
            }
            spans
                .extend(batch.policies.iter().map(|it| (it.revision, format!("networkpolicies/{}", it.key))));
            let start = self.informers.clock().now();
            match self.commit(std::mem::take(&mut batch)).await {
                Ok(()) => backoff.reset(),
                Err(Failure::Lost) => return,
                Err(Failure::Refused(error)) => {
                    let delay = backoff.next(self.informers.random());
                    tracing::error!(error = %describe(&error), ?delay, "cannot program network policies, will try again");
                    tokio::time::sleep(delay).await;
                    continue;
                }
            }
            self.sandboxes.stand(version);
            self.commits.send_modify(|count| *count += 1);
            let times = (start, self.informers.clock().now());
            for (revision, object) in spans.drain(..).take(SPANS_PER_COMMIT_MAX) {
                self.reporter.span(revision, ("network-policy", "rules programmed"), &object, times, "");
            }
            if std::mem::take(&mut was_flushed) {
                self.flushed.tell();
            }
            tokio::select! {
                changes = policy_changes.next() => batch.policies.extend(changes),
                () = Watched::next(watched.as_mut(), &mut batch) => {}
                _ = sandbox_changes.changed() => {}
                () = self.flushes.next(self.informers.random()) => {
                    // Without a policy there is nothing that could be taken.
                    was_flushed = self.engine.as_mut().is_some_and(|engine| engine.forget());
                }
            }
        }
    }

    /// Decides and acts in a task that may block.
    async fn commit(&mut self, batch: Batch) -> Result<(), Failure> {
        let mut engine = self.engine.take().ok_or(Failure::Lost)?;
        let work = tokio::task::spawn_blocking(move || {
            engine.take(batch);
            let done = engine.commit();
            (engine, done)
        });
        let (engine, done) = work.await.map_err(|error| {
            tracing::error!(%error, "the network policies are decided anew");
            Failure::Lost
        })?;
        self.engine = Some(engine);
        done.map_err(Failure::Refused)
    }
}

/// Why there was no commit.
enum Failure {
    /// The kernel refuses.
    Refused(sys::Error),
    /// What is known is gone.
    Lost,
}

fn describe(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
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

struct Engine {
    endpoints: Endpoints,
    rules: Vec<(Rules, InKernel)>,
}

impl Engine {
    fn new(config: &Config) -> Self {
        let table = crate::table_name(&config.cluster_id);
        let rules = config.families.iter().map(|family| {
            let mut rules = Rules::new(&table, *family);
            if let Err(error) = rules.draft().own() {
                tracing::warn!(error = %describe(&error), "others can flush the rules of network policies");
            }
            (rules, InKernel::Unknown)
        });
        Self { rules: rules.collect(), endpoints: Endpoints::new(&config.node_name) }
    }

    /// Somebody has taken something of what the kernel had: all of it is made again. Says whether it had anything.
    fn forget(&mut self) -> bool {
        let mut had_any = false;
        for (_, in_kernel) in &mut self.rules {
            had_any |= *in_kernel == InKernel::Table;
            *in_kernel = InKernel::Unknown;
        }
        had_any
    }

    fn take(&mut self, batch: Batch) {
        for change in batch.namespaces {
            let labels = change.new.map(|namespace| namespace.metadata.labels.clone().unwrap_or_default());
            self.rules.iter_mut().for_each(|(rules, _)| rules.namespace(&change.key, labels.clone()));
        }
        let mut changed = Vec::new();
        for change in batch.pods {
            changed.extend(self.endpoints.pod(&change.key, change.new));
        }
        changed.extend(self.endpoints.sandboxes(&batch.sandboxes));
        for (id, endpoint) in changed {
            self.rules.iter_mut().for_each(|(rules, _)| rules.endpoint(&id, endpoint.clone()));
        }
        for change in batch.policies {
            let policy = change.new.as_deref().map(Policy::of).map(Arc::new);
            for problem in policy.iter().flat_map(|policy| &policy.problems) {
                tracing::warn!(policy = change.key, problem, "a part of a network policy allows nothing");
            }
            self.rules.iter_mut().for_each(|(rules, _)| rules.policy(&change.key, policy.clone()));
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
