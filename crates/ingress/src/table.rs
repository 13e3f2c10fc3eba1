//! The routing table as data: what a plan makes, and what is served.
//!
//! A row says nothing of the object that it was made of but its name: those of Ingresses and of HTTPRoutes are the same.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use crate::filters::{Edits, Redirect, Rewrite};
use crate::host::Host;
use crate::matching::When;
use crate::path::PathMatch;
use crate::scheme::Scheme;

/// All rows, the ones that win only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The listeners of Gateways, each once, also where no row leads on from there.
    pub listeners: Vec<Listener>,
    /// Of rows for the same listener, host and path the first that a request meets is meant.
    pub rows: Vec<Row>,
    /// The ports on which Gateways listen beside those of Ingresses.
    pub ports: BTreeMap<u16, Scheme>,
}

/// The entrance of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Entrance {
    /// The port of Ingresses without TLS, whichever it is.
    Http,
    /// The port of Ingresses with TLS, whichever it is.
    Https,
    /// Another port, of Gateways alone.
    Port(u16),
}

impl Entrance {
    /// The entrances of Ingresses.
    pub const OF_INGRESSES: [Self; 2] = [Self::Http, Self::Https];
}

impl fmt::Display for Entrance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http => f.write_str("http"),
            Self::Https => f.write_str("https"),
            Self::Port(port) => write!(f, "{port}"),
        }
    }
}

/// Requests that come in at one place for some hosts: those of a name are its most specific listener's, and no other's.
/// Ingresses have one for all hosts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Listener {
    /// The entrance.
    pub entrance: Entrance,
    /// For whom.
    pub host: Host,
}

/// The target of requests for a host and a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The listener whose requests are meant; those of the ones for all hosts where Ingresses are served, if none.
    pub listener: Option<Listener>,
    /// Of the requests.
    pub host: Host,
    /// Of the requests.
    pub path: PathMatch,
    /// Other conditions on them.
    pub when: When,
    /// Their target.
    pub route: Arc<Route>,
}

/// The treatment of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The object that says so: `namespace/name` of an Ingress; of others the kind stands before it.
    pub of: String,
    /// The treatment of requests without TLS.
    pub plain: Plain,
    /// The time-outs.
    pub timeouts: Timeouts,
    /// The changes of requests and answers.
    pub edits: Edits,
    /// The action.
    pub action: Action,
}

/// The time that a request may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// To begin an answer, once nothing more comes from the client.
    pub response: Option<Duration>,
    /// To begin an answer, from the request's own beginning on.
    pub request: Option<Duration>,
    /// `true` if the next piece of the client's body may take as long as it likes.
    pub is_stream: bool,
}

/// The treatment of requests without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {
    /// They are answered as others are.
    Served,
    /// They are sent to the same place with TLS.
    Redirected,
}

/// The action for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Somebody answers it.
    Forward(Forward),
    /// Its client is sent elsewhere.
    Redirect(Redirect),
    /// It is answered with this status: what it is for cannot be done.
    Refuse(StatusCode),
}

/// The backends that answer a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forward {
    /// Another target.
    pub rewrite: Rewrite,
    /// One of these.
    pub backends: Vec<Weighted>,
    /// These get the request, too, and are not listened to.
    pub mirrors: Vec<Mirror>,
}

/// A backend with its part of the requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weighted {
    /// In proportion to those of the others.
    pub weight: u32,
    /// The changes of requests to it and of its answers, beside those of the row.
    pub edits: Edits,
    /// The backend.
    pub backend: Backend,
}

/// A backend that sees some of the requests beside whoever answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The share of requests, as so many of ...
    pub numerator: u32,
    /// ... so many; more than 0.
    pub denominator: u32,
    /// The backend.
    pub backend: Backend,
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// `namespace/name:port`.
    pub service: String,
    /// The endpoints that answer, in a fixed order; none, if empty.
    pub targets: Vec<Target>,
    /// The status if there is no endpoint.
    pub absent: StatusCode,
}

/// An endpoint, and how it is spoken to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// Of the endpoint.
    pub address: SocketAddr,
    /// Of the Service's port.
    pub protocol: Protocol,
}

/// The protocol of a Service's port.
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

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |target: &Target| format!("{} ({})", target.address, target.protocol);
        let targets: Vec<String> = self.targets.iter().map(text).collect();
        let targets = if targets.is_empty() { "nobody".to_owned() } else { targets.join(", ") };
        write!(f, "{} -> {targets}", self.service)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refuse(status) => write!(f, "{}", status.as_u16()),
            Self::Redirect(redirect) => write!(f, "{} elsewhere", redirect.status.as_u16()),
            Self::Forward(Forward { backends, mirrors, .. }) => {
                for (number, Weighted { weight, backend, .. }) in backends.iter().enumerate() {
                    let before = if number == 0 { "" } else { "; " };
                    let weight = if backends.len() == 1 { String::new() } else { format!("{weight} ") };
                    write!(f, "{before}{weight}{backend}")?;
                }
                mirrors.iter().try_for_each(|mirror| write!(f, "; mirrored by {}", mirror.backend.service))
            }
        }
    }
}

impl fmt::Display for Table {
    /// A line for each row, for people and for tests.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Row { listener, host, path, when, route } in &self.rows {
            let Route { of, plain, action, .. } = &**route;
            if let Some(Listener { entrance, host }) = listener {
                write!(f, "{entrance} {host}: ")?;
            }
            let redirected = if *plain == Plain::Redirected { " to https" } else { "" };
            writeln!(f, "{host} {path}{when} [{of}]{redirected} {action}")?;
        }
        Ok(())
    }
}
