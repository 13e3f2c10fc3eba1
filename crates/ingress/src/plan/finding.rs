//! The defects of an Ingress, in words for its owner.

use std::fmt;

use crate::host::Host;
use crate::path::PathMatch;

/// Something that an Ingress asks for and does not get.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// Another Ingress has the host and path already.
    Conflict {
        /// Which one.
        host: Host,
        /// Which one.
        path: PathMatch,
        /// Its name; `None` if it is in another namespace, of whose Ingresses nothing is told here.
        winner: Option<String>,
    },
    /// A Gateway's route had the host on all ports of Ingresses before.
    HostTaken {
        /// Which one.
        host: Host,
    },
    /// There is no such Service.
    ServiceMissing {
        /// Its name.
        name: String,
    },
    /// The Service leads out of the cluster.
    ServiceExternal {
        /// Its name.
        name: String,
    },
    /// The Service has no such port.
    PortMissing {
        /// The Service's name.
        service: String,
        /// Name or number.
        port: String,
    },
    /// A backend is no Service.
    ResourceBackend {
        /// What it is, `kind name`.
        what: String,
    },
    /// There is no Secret of this name of the type for TLS.
    SecretMissing {
        /// Its name.
        name: String,
    },
    /// What is in the Secret is no certificate with its key.
    SecretUnusable {
        /// Its name.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// A Service's own annotation names a Secret that has no authority.
    AuthorityMissing {
        /// The Service's name.
        service: String,
        /// The Secret's name.
        secret: String,
    },
    /// An annotation of ours says nothing.
    BadAnnotation {
        /// Its name.
        name: String,
        /// What it must be.
        why: &'static str,
    },
}

impl Finding {
    /// The reason of the event.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Conflict { .. } | Self::HostTaken { .. } => "RuleConflict",
            Self::ServiceMissing { .. } => "ServiceNotFound",
            Self::ServiceExternal { .. } | Self::ResourceBackend { .. } => "BackendNotSupported",
            Self::PortMissing { .. } => "ServicePortNotFound",
            Self::SecretMissing { .. } => "SecretNotFound",
            Self::SecretUnusable { .. } | Self::AuthorityMissing { .. } => "SecretNotUsable",
            Self::BadAnnotation { .. } => "BadAnnotation",
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict { host, path, winner: Some(winner) } => {
                write!(f, "host {host} with path {path} belongs to Ingress {winner}, which is older")
            }
            Self::Conflict { host, path, winner: None } => {
                write!(f, "host {host} with path {path} belongs to an older Ingress of another namespace")
            }
            Self::HostTaken { host } => {
                write!(f, "host {host} belongs to a Gateway, by a route that is older")
            }
            Self::ServiceMissing { name } => {
                write!(f, "there is no Service {name}: its requests are answered with 503")
            }
            Self::ServiceExternal { name } => write!(
                f,
                "Service {name} is of type ExternalName, which Ingresses of this class do not lead to: its requests are \
                 answered with 503"
            ),
            Self::PortMissing { service, port } => {
                write!(f, "Service {service} has no port {port}: its requests are answered with 503")
            }
            Self::ResourceBackend { what } => {
                write!(f, "{what} cannot be a backend of this class: its requests are answered with 503")
            }
            Self::SecretMissing { name } => write!(
                f,
                "there is no Secret {name} of type kubernetes.io/tls: the certificate that knarr has made itself is shown"
            ),
            Self::SecretUnusable { name, why } => write!(
                f,
                "Secret {name} is not usable ({why}): the certificate that knarr has made itself is shown"
            ),
            Self::AuthorityMissing { service, secret } => write!(
                f,
                "Service {service} is to be verified by ca.crt of Secret {secret} of type kubernetes.io/tls, which is not \
                 there: its requests are answered with 503"
            ),
            Self::BadAnnotation { name, why } => write!(f, "annotation {name} {why}: it is passed over"),
        }
    }
}
