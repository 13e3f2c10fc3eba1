//! The ports of Gateways beside those of Ingresses: they need no right, so that they come and go while this process runs.
//!
//! A port that somebody else has is told once, and taken when it is free.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use base::connections::Connections;
use base::{Backoff, Random, Tasks};
use ingress::serve::{Plane, Port, Scheme, listen};
use ingress::table::Entrance;
use tokio::sync::watch;

use super::{TAKEN_FIRST, TAKEN_MAX, async_listener, ports};

/// What listens now.
pub(super) struct Listeners {
    plane: Arc<Plane>,
    connections: Arc<Connections>,
    random: Random,
    open: BTreeMap<u16, (Scheme, Tasks)>,
    /// Told, and somebody else's.
    missing: Vec<u16>,
}

impl Listeners {
    pub(super) fn new(plane: Arc<Plane>, connections: Arc<Connections>, random: Random) -> Self {
        Self { plane, connections, random, open: BTreeMap::new(), missing: Vec::new() }
    }

    /// Listens where Gateways ask for it, for ever.
    pub(super) async fn follow(mut self, mut wanted: watch::Receiver<BTreeMap<u16, Scheme>>) {
        loop {
            let now = wanted.borrow_and_update().clone();
            self.meet(&now);
            let backoff = Backoff::new(TAKEN_FIRST, TAKEN_MAX, 0.2);
            tokio::select! {
                changed = wanted.changed() => if changed.is_err() { return },
                () = ports::one_is_free(&self.missing, backoff, &self.random) => {}
            }
        }
    }

    fn meet(&mut self, wanted: &BTreeMap<u16, Scheme>) {
        self.open.retain(|port, (scheme, tasks)| {
            let stays = wanted.get(port) == Some(scheme);
            if !stays {
                tasks.stop();
                tracing::info!(port, "no Gateway is served on this port any more");
            }
            stays
        });
        let mut missing = Vec::new();
        for (port, scheme) in wanted {
            if self.open.contains_key(port) {
                continue;
            }
            match self.listen(*port, *scheme) {
                Ok(tasks) => {
                    self.open.insert(*port, (*scheme, tasks));
                    tracing::info!(port, "Gateways are served on this port");
                }
                Err(error) => {
                    if !self.missing.contains(port) {
                        let error = format!("{error:#}");
                        tracing::warn!(
                            port,
                            error,
                            "Gateways are not served on this port, which is tried again: end who has it (`ss -ltnp`), or \
                             have the Gateway listen elsewhere"
                        );
                    }
                    missing.push(*port);
                }
            }
        }
        self.missing = missing;
    }

    fn listen(&self, port: u16, scheme: Scheme) -> anyhow::Result<Tasks> {
        let listener = async_listener(base::listen::blocking((Ipv4Addr::UNSPECIFIED, port).into())?)?;
        let tasks = self.plane.child_tasks();
        let (entrance, connections) = (Entrance::Port(port), Arc::clone(&self.connections));
        listen(&self.plane, Port { listener, scheme, entrance, tasks: tasks.clone(), connections })?;
        Ok(tasks)
    }
}
