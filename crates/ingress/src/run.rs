//! Watches what a table is made of, and has the data plane serve it.
//!
//! Needs no right but to read: of Secrets those of the type for TLS, which is all that it asks for.

use std::sync::Arc;

use controller::{Informer, Informers, Scope};
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use tokio::sync::watch;

use crate::plan::{SECRET_TYPE, Snapshot, by_key, by_service, plan};
use crate::serve::Plane;

/// The Secrets that are read.
pub(crate) fn certificates_scope() -> Scope {
    Scope { field_selector: Some(format!("type={SECRET_TYPE}")), ..Scope::default() }
}

/// Where a snapshot comes from.
struct Sources {
    ingresses: Informer<Ingress>,
    classes: Informer<IngressClass>,
    services: Informer<Service>,
    slices: Informer<EndpointSlice>,
    secrets: Informer<Secret>,
}

impl Sources {
    fn of(informers: &Informers) -> Self {
        Self {
            ingresses: informers.informer(),
            classes: informers.informer(),
            services: informers.informer(),
            slices: informers.informer(),
            secrets: informers.scoped(certificates_scope()),
        }
    }

    async fn synced(&self) {
        tokio::join!(
            self.ingresses.synced(),
            self.classes.synced(),
            self.services.synced(),
            self.slices.synced(),
            self.secrets.synced(),
        );
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            ingresses: self.ingresses.list(),
            classes: self.classes.list(),
            services: by_key(self.services.list(), |service| &service.metadata),
            slices: by_service(self.slices.list()),
            secrets: by_key(self.secrets.list(), |secret| &secret.metadata),
        }
    }
}

/// Starts to keep the plane's table up to date. The receiver tells how many tables were put to use: 1 and more is ready.
pub fn run(informers: &Informers, plane: Arc<Plane>) -> watch::Receiver<u64> {
    let (tables, ready) = watch::channel(0);
    let sources = Sources::of(informers);
    informers.tasks().spawn("ingress table", async move {
        sources.synced().await;
        let mut ingresses = sources.ingresses.subscribe();
        let mut classes = sources.classes.subscribe();
        let mut services = sources.services.subscribe();
        let mut slices = sources.slices.subscribe();
        let mut secrets = sources.secrets.subscribe();
        loop {
            // What changes meanwhile is in the next round.
            let planned = plan(&sources.snapshot());
            // A host is redirected to its certificate, not before it.
            plane.show(&planned.certificates);
            plane.replace(&planned.table);
            tables.send_modify(|count| *count += 1);
            tokio::select! {
                _ = ingresses.next() => {}
                _ = classes.next() => {}
                _ = services.next() => {}
                _ = slices.next() => {}
                _ = secrets.next() => {}
            }
        }
    });
    ready
}
