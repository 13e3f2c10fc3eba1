//! Who does the work, of several processes that could.

use std::future::Future;
use std::time::Duration;

use anyhow::Result;
use base::Tasks;
use controller::Informers;
use controller::lease::{self, Election, Held};

/// Before work that failed is begun again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How long a process that stops tries to give up the lead.
const RELEASE_MAX: Duration = Duration::from_secs(2);

/// Does `work` when this process leads; stops the process's tasks when it does no longer, or when the work fails.
/// Without an election it leads at once.
pub(super) fn lead<F, W>(election: Option<Election>, informers: &Informers, work: F)
where
    F: FnOnce(Informers) -> W + Send + 'static,
    W: Future<Output = Result<()>> + Send + 'static,
{
    let informers = informers.clone();
    let tasks = informers.tasks().clone();
    informers.tasks().clone().spawn("leader election", async move {
        let held = match election {
            Some(election) => Some(acquire(election, &informers).await),
            None => None,
        };
        let lost = async {
            match held {
                Some(mut held) => held.lost().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = begun(work(informers)) => {}
            () = lost => {}
        }
        tasks.stop();
    });
}

/// Ends only if the work cannot begin. To be waited for beside the lead: beginning may take longer than that lasts.
async fn begun(work: impl Future<Output = Result<()>>) {
    match work.await {
        Ok(()) => std::future::pending().await,
        Err(error) => tracing::error!(error = format!("{error:#}"), "the work could not begin"),
    }
}

/// Does `work` whenever this process leads, each time with informers of their own, made by `informers`: what runs in
/// their tasks ends with the lead, and nothing else does. A process that stops gives the lead up.
pub(super) fn lead_in_turns<M, F, W>(election: Election, tasks: &Tasks, informers: M, work: F)
where
    M: Fn(Tasks) -> Informers + Send + Sync + 'static,
    F: Fn(Informers) -> W + Send + Sync + 'static,
    W: Future<Output = Result<()>> + Send + 'static,
{
    let all = tasks.clone();
    tasks.spawn_to_end("leader election", async move {
        while !all.is_stopping() {
            let turn = all.child();
            let informers = informers(turn.clone());
            tokio::select! {
                held = acquire(election.clone(), &informers) => {
                    take_turn(held, &informers, &work, &all).await;
                    informers.metrics().leads(election.name, false);
                }
                () = all.stopping() => {}
            }
            turn.stop();
        }
    });
}

async fn acquire(election: Election, informers: &Informers) -> Held {
    let name = election.name;
    informers.metrics().leads(name, false);
    let held = lease::acquire(election, informers).await;
    informers.metrics().leads(name, true);
    held
}

/// Ends when the lead is lost, the work cannot begin, or the process stops.
async fn take_turn<F, W>(mut held: Held, informers: &Informers, work: &F, all: &Tasks)
where
    F: Fn(Informers) -> W,
    W: Future<Output = Result<()>>,
{
    tokio::select! {
        () = begun(work(informers.clone())) => return tokio::time::sleep(RETRY_AFTER).await,
        () = held.lost() => return,
        () = all.stopping() => {}
    }
    match tokio::time::timeout(RELEASE_MAX, held.release()).await {
        Ok(Ok(())) => tracing::info!("the lead is given up"),
        Ok(Err(error)) => tracing::info!(%error, "the lead lasts to its end"),
        Err(_) => tracing::info!("the lead lasts to its end: the API server does not answer"),
    }
}

/// The Lease that upstream's component of this name uses.
pub(super) fn election(name: &'static str, identity: &str, timing: lease::Timing) -> Election {
    Election { namespace: "kube-system".to_owned(), name, identity: identity.to_owned(), timing }
}
