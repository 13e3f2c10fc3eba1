//! The data plane over loopback: backends of the tests' own, clients that write what they like.

mod backends;
mod client;
mod gateways;
mod hostile;
mod usual;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base::Tasks;
use base::connections::{Connections, Limits as Places, Share};
use tokio::net::TcpListener;

use http::StatusCode;

use super::{AccessLog, Limits, Options, Plane, Port, Scheme, listen};
use crate::certificates::{Certificates, Shown, certified};
use crate::filters::Edits;
use crate::host::Host;
use crate::matching::When;
use crate::metrics::Metrics;
use crate::path::PathMatch;
use crate::table::{
    Action, Backend, Entrance, Forward, Listener, Plain, Protocol, Route, Row, Table, Target, Timeouts,
    Weighted,
};

/// A data plane that listens.
struct Running {
    plane: Arc<Plane>,
    registry: base::Metrics,
    http: SocketAddr,
    https: SocketAddr,
    tasks: Tasks,
    connections: Arc<Connections>,
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
    for (scheme, entrance) in [(Scheme::Http, Entrance::Http), (Scheme::Https, Entrance::Https)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        addresses.push(listener.local_addr().unwrap());
        let (connections, tasks) = (Arc::clone(&connections), tasks.clone());
        listen(&plane, Port { listener, scheme, entrance, tasks, connections }).unwrap();
    }
    Running { plane, registry, http: addresses[0], https: addresses[1], tasks, connections }
}

/// A Service of these endpoints.
fn service(host: &str, protocol: &Protocol, endpoints: &[SocketAddr]) -> Backend {
    let targets = endpoints.iter().map(|address| Target { address: *address, protocol: protocol.clone() });
    let absent = StatusCode::SERVICE_UNAVAILABLE;
    Backend { service: format!("test/{host}:80"), targets: targets.collect(), absent }
}

/// A row for all paths of a host.
fn row(host: &str, protocol: &Protocol, endpoints: &[SocketAddr]) -> Row {
    let backend = service(host, protocol, endpoints);
    let backends = vec![Weighted { weight: 1, edits: Edits::default(), backend }];
    let route = Route {
        of: format!("test/{host}"),
        plain: Plain::Served,
        timeouts: Timeouts { response: Some(Duration::from_secs(20)), ..Timeouts::default() },
        edits: Edits::default(),
        action: Action::Forward(Forward { backends, ..Forward::default() }),
    };
    let (host, path, when) = (Host::of_rule(host), PathMatch::all(), When::default());
    Row { listener: None, host, path, when, route: Arc::new(route) }
}

fn changed(row: &Row, change: impl FnOnce(&mut Route)) -> Row {
    let mut route = Route::clone(&row.route);
    change(&mut route);
    Row { route: Arc::new(route), ..row.clone() }
}

impl Running {
    fn serve(&self, rows: &[Row]) {
        self.plane.replace(&Table { rows: rows.to_vec(), ..Table::default() });
    }

    fn show(&self, host: &str, secret: k8s_openapi::api::core::v1::Secret) {
        let at = Listener { entrance: Entrance::Https, host: Host::Any };
        self.plane.show(&Shown::from([((at, Host::of_rule(host)), vec![Arc::new(secret)])]));
    }
}
