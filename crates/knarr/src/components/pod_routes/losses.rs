//! Routes to Pods of other Nodes that somebody has taken: who manages the host's network and begins anew, or the link that
//! they go by, when it went down.

use std::time::Duration;

use anyhow::Result;
use base::{Backoff, Random, ResettingBackoff};
use controller::EventType;
use controller::record::{self, Recorder};
use sys::netlink::{Route, RouteEntry, RouteWatch};
use tokio::time::Instant;

use super::PodRoute;
use crate::layout::Layout;

/// How soon they are made again: what takes them goes on for a moment. And how late at last, if they are taken each time.
const AGAIN_FIRST: Duration = Duration::from_millis(50);
const AGAIN_MAX: Duration = Duration::from_secs(30);
/// After so long nobody fights over routes any more.
const RESET_AFTER: Duration = Duration::from_secs(60);

/// Tells of losses.
pub(super) struct Losses {
    watch: Option<RouteWatch>,
    backoff: ResettingBackoff,
    /// Something has changed that was not looked at.
    is_open: bool,
}

impl Losses {
    /// A kernel that does not tell of routes is logged, and nothing is heard then.
    pub(super) fn new() -> Self {
        let watch = RouteWatch::new();
        let watch = watch.inspect_err(
            |error| tracing::warn!(%error, "routes to Pods that somebody takes are not made again by themselves"),
        );
        let backoff = ResettingBackoff::new(Backoff::new(AGAIN_FIRST, AGAIN_MAX, 0.2), RESET_AFTER);
        Self { watch: watch.ok(), backoff, is_open: false }
    }

    /// Waits until a route that was made is not there any more. Nothing is lost if this is not waited for to the end.
    pub(super) async fn next(&mut self, layout: &Layout, random: &Random) {
        loop {
            if !std::mem::replace(&mut self.is_open, true) {
                self.changed().await;
            }
            // Links of Pods come and go: looked at is what there is after a moment, and that costs a list of routes.
            tokio::time::sleep(AGAIN_FIRST).await;
            self.is_open = false;
            let layout = layout.clone();
            let looked = tokio::task::spawn_blocking(move || is_any_missing(&layout)).await;
            match looked {
                Ok(Ok(false)) => continue,
                Ok(Ok(true)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(error = %format!("{error:#}"), "cannot look at routes to Pods")
                }
                Err(error) => tracing::warn!(%error, "cannot look at routes to Pods"),
            }
            self.is_open = true;
            tokio::time::sleep(self.backoff.next(Instant::now(), random)).await;
            self.is_open = false;
            return;
        }
    }

    async fn changed(&mut self) {
        self.is_open = false;
        let Some(watch) = &mut self.watch else { return std::future::pending().await };
        if let Err(error) = watch.changed().await {
            tracing::error!(%error, "routes to Pods that somebody takes are not made again any more");
            self.watch = None;
        }
        self.is_open = true;
    }
}

fn is_any_missing(layout: &Layout) -> Result<bool> {
    Ok(!missing(&super::read(layout)?, &Route::open()?.routes()?).is_empty())
}

/// The routes of these that a host does not have.
pub(crate) fn missing(wanted: &[PodRoute], has: &[RouteEntry]) -> Vec<PodRoute> {
    let is_there = |route: &PodRoute| {
        let mut found = has.iter().filter(|entry| entry.destination == Some(route.destination));
        found.any(|entry| entry.gateway == Some(route.gateway))
    };
    wanted.iter().filter(|route| !is_there(route)).copied().collect()
}

pub(super) fn tell_of_loss(recorder: &Recorder, node: &str) {
    tracing::warn!("somebody has taken routes to the Pods of other Nodes; they were made again");
    let message = "Somebody on this host, or a link that went down, has taken routes to the Pods of other Nodes; they were \
                   made again";
    recorder.event(record::node(node), EventType::Warning, "FlushedRoutes", message.to_owned());
}
