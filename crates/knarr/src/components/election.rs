//! Who does the work, of several processes that could.

use std::future::Future;

use anyhow::Result;
use controller::Informers;
use controller::lease::{self, Election};

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
            Some(election) => {
                let name = election.name;
                informers.metrics().leads(name, false);
                let held = lease::acquire(election, &informers).await;
                informers.metrics().leads(name, true);
                Some(held)
            }
            None => None,
        };
        if let Err(error) = work(informers).await {
            tracing::error!(error = format!("{error:#}"), "the work could not begin");
            return tasks.stop();
        }
        if let Some(held) = held {
            held.lost().await;
            tasks.stop();
        }
    });
}

/// The Lease that upstream's component of this name uses.
pub(super) fn election(name: &'static str, identity: &str, timing: lease::Timing) -> Election {
    Election { namespace: "kube-system".to_owned(), name, identity: identity.to_owned(), timing }
}
