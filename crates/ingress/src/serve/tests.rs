//! The data plane over loopback: backends of the tests' own, clients that write what they like.

mod backends;
mod client;
mod hostile;
mod usual;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base::connections::{Connections, Limits as Places, Share};
use base::{Random, Tasks};
use tokio::net::TcpListener;

use super::{AccessLog, Limits, Options, Plane, Port, Scheme, listen};
use crate::certificates::{Certificates, certified};
use crate::host::Host;
use crate::metrics::Metrics;
use crate::path::PathMatch;
use crate::table::{Backend, Plain, Protocol, Route, Row, Table, Target};

/// A data plane that listens.
struct Running {
    plane: Arc<Plane>,
    registry: base::Metrics,
    http: SocketAddr,
    https: SocketAddr,
    tasks: Tasks,
}

/// Short enough for tests that wait for them.
fn quick() -> Limits {
    let short = Duration::from_millis(300);
    Limits {
        handshake: short,
        head: short,
        idle: short,
        upload: short,
        download: short,
        drain: short,
        ..Limits::default()
    }
}

const PLACES: Places = Places {
    strangers: Share { all: 64, of_source: 64 },
    known: Share { all: 64, of_source: 64 },
    own: Share { all: 0, of_source: 0 },
    is_loopback_own: false,
};

async fn start(limits: Limits) -> Running {
    start_with(limits, PLACES).await
}

async fn start_with(limits: Limits, places: Places) -> Running {
    let made = rcgen::generate_simple_self_signed(["default.test".to_owned()]).unwrap();
    let own = certified(made.cert.pem().as_bytes(), made.signing_key.serialize_pem().as_bytes()).unwrap();
    let (tasks, registry) = (Tasks::new(), base::Metrics::new());
    let options = Options { access_log: AccessLog::On, https_port: 443, limits };
    let certificates = Arc::new(Certificates::new(own));
    let plane = Plane::new(options, certificates, Metrics::new(&registry), tasks.clone());
    let connections = Connections::new(places);
    let mut addresses = Vec::new();
    for scheme in [Scheme::Http, Scheme::Https] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        addresses.push(listener.local_addr().unwrap());
        let port = Port { listener, scheme, connections: Arc::clone(&connections) };
        listen(&plane, port, Random::seeded(1)).unwrap();
    }
    Running { plane, registry, http: addresses[0], https: addresses[1], tasks }
}

/// A row for all paths of a host.
fn row(host: &str, protocol: &Protocol, endpoints: &[SocketAddr]) -> Row {
    let targets = endpoints.iter().map(|address| Target { address: *address, protocol: protocol.clone() });
    let route = Route {
        of: format!("test/{host}"),
        plain: Plain::Served,
        response_timeout: Duration::from_secs(20),
        backend: Backend { service: format!("test/{host}:80"), targets: targets.collect() },
    };
    Row { host: Host::of_rule(host), path: PathMatch::all(), route: Arc::new(route) }
}

fn changed(row: &Row, change: impl FnOnce(&mut Route)) -> Row {
    let mut route = Route::clone(&row.route);
    change(&mut route);
    Row { route: Arc::new(route), ..row.clone() }
}

impl Running {
    fn serve(&self, rows: &[Row]) {
        self.plane.replace(&Table { rows: rows.to_vec() });
    }

    fn show(&self, host: &str, secret: k8s_openapi::api::core::v1::Secret) {
        self.plane.show(&BTreeMap::from([(Host::of_rule(host), Arc::new(secret))]));
    }
}
