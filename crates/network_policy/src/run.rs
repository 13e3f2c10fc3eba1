//! Follows policies, namespaces, Pods and sandboxes, and keeps the kernel's tables equal to what they say.

use std::time::Duration;

use base::{Backoff, Tasks};
use controller::trace::{Reporter, Span};
use controller::{Change, Changes, FlushedRules, Informers};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use sys::nftables::Flushes;
use tokio::sync::watch;

use crate::engine::{Batch, Config, Engine, News};
use crate::pod::Pod;
use crate::sandboxes::Sandboxes;

const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// Changed policies named in the trace of one commit; the others of a larger batch are not.
const SPANS_PER_COMMIT_MAX: usize = 64;

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
        let recorder = informers.recorder_on("network-policy", &config.node_name);
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
    async fn next(this: Option<&mut Self>, pending: &mut Pending) {
        let Some(this) = this else { return std::future::pending().await };
        tokio::select! {
            pods = this.pods.next() => pending.pods(pods),
            namespaces = this.namespaces.next() => pending.namespaces(namespaces),
        }
    }
}

/// What has changed since the last commit.
#[derive(Default)]
struct Pending {
    batch: Batch,
    /// Policies, for the trace.
    spans: Vec<(u64, String)>,
}

impl Pending {
    fn policies(&mut self, changes: Vec<Change<NetworkPolicy>>) {
        let room = SPANS_PER_COMMIT_MAX.saturating_sub(self.spans.len());
        let named = changes.iter().take(room).map(|it| (it.revision, format!("networkpolicies/{}", it.key)));
        self.spans.extend(named);
        self.batch.policies.extend(news(changes));
    }

    fn pods(&mut self, changes: Vec<Change<Pod>>) {
        self.batch.pods.extend(news(changes));
    }

    fn namespaces(&mut self, changes: Vec<Change<Namespace>>) {
        self.batch.namespaces.extend(news(changes));
    }
}

fn news<K>(changes: Vec<Change<K>>) -> impl Iterator<Item = News<K>> {
    changes.into_iter().map(|change| (change.key.to_string(), change.new))
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
        let mut pending = Pending::default();
        let mut was_flushed = false;
        loop {
            if watched.is_none() && !policies.is_empty() {
                watched = Some(Watched::start(self.informers).await);
            }
            sandbox_changes.mark_unchanged();
            let (version, sandboxes) = self.sandboxes.now();
            pending.batch.sandboxes = sandboxes;
            pending.policies(policy_changes.take());
            if let Some(watched) = &watched {
                pending.pods(watched.pods.take());
                pending.namespaces(watched.namespaces.take());
            }
            let start = self.informers.clock().now();
            match self.commit(std::mem::take(&mut pending.batch)).await {
                Ok(()) => backoff.reset(),
                Err(Failure::Lost) => return,
                Err(Failure::Refused(error)) => {
                    let delay = backoff.next(self.informers.random());
                    tracing::error!(error = %base::error_chain(&error), ?delay, "cannot program network policies, will try again");
                    tokio::time::sleep(delay).await;
                    continue;
                }
            }
            self.sandboxes.stand(version);
            self.commits.send_modify(|count| *count += 1);
            let end = self.informers.clock().now();
            for (revision, object) in pending.spans.drain(..) {
                self.reporter.span(Span {
                    cause: revision,
                    component: "network-policy".to_owned(),
                    name: "rules programmed".to_owned(),
                    object,
                    start_us: start.as_microsecond(),
                    end_us: end.as_microsecond(),
                    detail: String::new(),
                });
            }
            if std::mem::take(&mut was_flushed) {
                self.flushed.tell();
            }
            tokio::select! {
                changes = policy_changes.next() => pending.policies(changes),
                () = Watched::next(watched.as_mut(), &mut pending) => {}
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
            let done = engine.program(batch).map(drop);
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
