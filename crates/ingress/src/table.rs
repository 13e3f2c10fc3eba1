//! The routing table as data: what a plan makes, and what is served.
//!
//! A row says nothing of the object that it was made of but its name. HTTPRoutes can become rows as Ingresses do.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::host::Host;
use crate::path::PathMatch;

/// All rows, the ones that win only, in order of host and path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// At most one for each host and path.
    pub rows: Vec<Row>,
}

/// Where requests for a host and a path lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Of the requests.
    pub host: Host,
    /// Of the requests.
    pub path: PathMatch,
    /// Where they lead.
    pub route: Arc<Route>,
}

/// What is done with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The object that says so: `namespace/name`.
    pub of: String,
    /// What becomes of requests without TLS.
    pub plain: Plain,
    /// How long a backend may take to begin an answer, once nothing more comes from the client.
    pub response_timeout: Duration,
    /// Who answers.
    pub backend: Backend,
}

/// What becomes of requests without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {
    /// They are answered as others are.
    Served,
    /// They are sent to the same place with TLS.
    Redirected,
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// `namespace/name:port`.
    pub service: String,
    /// Where it is answered, in a fixed order; nobody, if empty.
    pub targets: Vec<Target>,
}

/// An endpoint, and how it is spoken to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// Of the endpoint.
    pub address: SocketAddr,
    /// Of the Service's port.
    pub protocol: Protocol,
}

/// What a Service's port speaks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// HTTP/1.1 without TLS.
    Http1,
    /// HTTP/2 without TLS and without an upgrade. Source: `kubernetes.io/h2c`, KEP-3726.
    H2c,
    /// TLS; the server chooses the version of HTTP.
    Tls {
        /// What it is asked for by, and what its certificate is to be for.
        name: String,
        /// Whose certificates are believed, in PEM; every certificate is, if there is none.
        authority: Option<Arc<[u8]>>,
    },
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http1 => "http",
            Self::H2c => "h2c",
            Self::Tls { authority: None, .. } => "https",
            Self::Tls { authority: Some(_), .. } => "https, verified",
        })
    }
}

impl fmt::Display for Table {
    /// A line for each row, for people and for tests.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Row { host, path, route } in &self.rows {
            let Route { of, plain, backend, .. } = &**route;
            let redirected = if *plain == Plain::Redirected { " to https" } else { "" };
            let targets: Vec<String> = backend
                .targets
                .iter()
                .map(|target| format!("{} ({})", target.address, target.protocol))
                .collect();
            let targets = if targets.is_empty() { "nobody".to_owned() } else { targets.join(", ") };
            writeln!(f, "{host} {path} [{of}]{redirected} {} -> {targets}", backend.service)?;
        }
        Ok(())
    }
}
