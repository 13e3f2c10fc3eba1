//! Watches what a table is made of, and has the data plane serve it.
//!
//! Needs no right but to read: of Secrets those of the type for TLS, which is all that it asks for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use controller::informer::Transform;
use controller::{Informer, Informers, Scope};
use k8s_openapi::api::core::v1::{Namespace, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::certificates::Checked;
use crate::gateway::{Gateway, GatewayInformers, GrpcRoute, HttpRoute};
use crate::matching::Patterns;
use crate::plan::{GatewayObjects, Ports, SECRET_TYPE, Snapshot, by_key, by_service, plan};
use crate::scheme::Scheme;
use crate::serve::Plane;

/// How long Ingresses wait for it to be known what else there is. Source: the garbage collector's `initialSyncTimeout`.
const SETTLED_MAX: Duration = Duration::from_secs(30);
/// Between a table and the next one at most; as long as the last one took, if that was less.
const PAUSE_MAX: Duration = Duration::from_secs(1);

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
    namespaces: Informer<Namespace>,
    gateways: GatewayInformers,
    ports: Ports,
    checked: Checked,
    patterns: Patterns,
}

impl Sources {
    fn of(informers: &Informers, ports: Ports) -> Self {
        // What is told of them is the control plane's.
        informers.set_transform::<Gateway>(Transform::without([("", "status")]));
        informers.set_transform::<HttpRoute>(Transform::without([("", "status")]));
        informers.set_transform::<GrpcRoute>(Transform::without([("", "status")]));
        Self {
            ingresses: informers.informer(),
            classes: informers.informer(),
            services: informers.informer(),
            slices: informers.informer(),
            secrets: informers.scoped(certificates_scope()),
            namespaces: informers.informer(),
            gateways: GatewayInformers::of(informers),
            ports,
            checked: Checked::default(),
            patterns: Patterns::default(),
        }
    }

    async fn synced(&self) {
        tokio::join!(
            self.ingresses.synced(),
            self.classes.synced(),
            self.services.synced(),
            self.slices.synced(),
            self.secrets.synced(),
            self.namespaces.synced(),
        );
        // Whoever starts anew does not forget Gateways for a moment.
        if tokio::time::timeout(SETTLED_MAX, self.gateways.settled()).await.is_err() {
            tracing::warn!("Ingresses are served before it is known whether there are Gateways");
        }
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            ingresses: self.ingresses.list(),
            classes: self.classes.list(),
            services: by_key(self.services.list(), |service| &service.metadata),
            slices: by_service(self.slices.list()),
            secrets: by_key(self.secrets.list(), |secret| &secret.metadata),
            gateways: GatewayObjects::of(&self.gateways, self.namespaces.list()),
            ports: self.ports.clone(),
            checked: self.checked.clone(),
            patterns: self.patterns.clone(),
        }
    }
}

/// Serves what a snapshot says. Returns the ports that Gateways ask for.
fn put_to_use(snapshot: &Snapshot, plane: &Plane) -> BTreeMap<u16, Scheme> {
    let planned = plan(snapshot);
    // A host is redirected to its certificate, not before it.
    plane.show(&planned.certificates);
    plane.replace(&planned.table);
    planned.table.ports
}

/// The news of tables.
#[derive(Clone, Debug)]
pub struct Tables {
    /// The number of tables that were put to use: 1 and more is ready.
    pub count: watch::Receiver<u64>,
    /// The ports on which Gateways listen beside those of Ingresses.
    pub ports: watch::Receiver<BTreeMap<u16, Scheme>>,
}

/// Starts to keep the plane's table up to date.
pub fn run(informers: &Informers, plane: Arc<Plane>, ports: Ports) -> Tables {
    let ((tables, count), (wanted, of_gateways)) = (watch::channel(0), watch::channel(BTreeMap::new()));
    let sources = Sources::of(informers, ports);
    informers.tasks().spawn("ingress table", async move {
        sources.synced().await;
        let mut ingresses = sources.ingresses.subscribe();
        let mut classes = sources.classes.subscribe();
        let mut services = sources.services.subscribe();
        let mut slices = sources.slices.subscribe();
        let mut secrets = sources.secrets.subscribe();
        let mut namespaces = sources.namespaces.subscribe();
        let mut gateway_classes = sources.gateways.classes.informer().subscribe();
        let mut gateways = sources.gateways.gateways.informer().subscribe();
        let mut http_routes = sources.gateways.http_routes.informer().subscribe();
        let mut grpc_routes = sources.gateways.grpc_routes.informer().subscribe();
        let mut grants = sources.gateways.grants.informer().subscribe();
        loop {
            // What changes meanwhile is in the next round.
            let (snapshot, plane, began) = (sources.snapshot(), Arc::clone(&plane), Instant::now());
            let Ok(new) = tokio::task::spawn_blocking(move || put_to_use(&snapshot, &plane)).await else {
                return;
            };
            wanted.send_if_modified(|ports| {
                let is_new = *ports != new;
                *ports = new;
                is_new
            });
            tables.send_modify(|count| *count += 1);
            // However much changes, there is time for requests.
            tokio::time::sleep(began.elapsed().min(PAUSE_MAX)).await;
            tokio::select! {
                _ = ingresses.next() => {}
                _ = classes.next() => {}
                _ = services.next() => {}
                _ = slices.next() => {}
                _ = secrets.next() => {}
                _ = namespaces.next() => {}
                _ = gateway_classes.next() => {}
                _ = gateways.next() => {}
                _ = http_routes.next() => {}
                _ = grpc_routes.next() => {}
                _ = grants.next() => {}
            }
        }
    });
    Tables { count, ports: of_gateways }
}
