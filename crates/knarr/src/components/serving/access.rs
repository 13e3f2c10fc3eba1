//! Who may read a part's port.

use std::path::Path;

use anyhow::{Context, Result};
use base::{Clock, Random, Tasks};
use cli::args::ServingArgs;
use controller::access::{Access, Asked, Lives, User};
use controller::{Informer, Informers, Scope};
use http::{HeaderMap, Method, StatusCode, header};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;

use crate::kube_client;

/// Where the API server says who signs clients' certificates. Source: `DelegatingAuthenticationOptions`.
const LOOKUP: (&str, &str) = ("kube-system", "extension-apiserver-authentication");
const CLIENT_CA: &str = "client-ca-file";
/// Whoever has no name.
const ANONYMOUS: (&str, &str) = ("system:anonymous", "system:unauthenticated");
/// Who may everything, without anybody being asked.
const MASTERS: &str = "system:masters";

/// Why somebody may not.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// A token that is nobody's.
    #[error("Unauthorized")]
    Unauthorized,
    /// Somebody who may not.
    #[error("forbidden: User {user:?} cannot {verb} path {path:?}")]
    Forbidden { user: String, verb: &'static str, path: String },
    /// The API server does not say.
    #[error("Internal error occurred: {0}")]
    Unknown(String),
}

impl Refusal {
    pub(super) fn code_and_reason(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "Unauthorized"),
            Self::Forbidden { .. } => (StatusCode::FORBIDDEN, "Forbidden"),
            Self::Unknown(_) => (StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
        }
    }
}

/// Somebody with a certificate of the authority of clients.
pub(super) struct Certified {
    user: User,
    valid: std::ops::RangeInclusive<i64>,
}

impl Certified {
    pub(super) fn of(certificate: &[u8]) -> Option<Self> {
        let user = auth::x509::user_of(certificate)?;
        let user = User { name: user.name, groups: user.groups, uid: user.uid };
        Some(Self { user, valid: auth::x509::validity_of(certificate)? })
    }

    pub(super) fn is_valid(&self, now: Timestamp) -> bool {
        self.valid.contains(&now.as_second())
    }
}

/// Who is asked, and what needs no asking.
pub(super) struct PortAccess {
    access: Access,
    authentication: Option<kube::Client>,
    authorization: Option<kube::Client>,
    open_paths: Vec<String>,
    client_ca: ClientAuthority,
}

enum ClientAuthority {
    Given(Option<String>),
    LookedUp(Informer<ConfigMap>),
}

impl PortAccess {
    /// # Errors
    /// If a file cannot be read.
    pub(super) async fn new(args: &ServingArgs, tasks: &Tasks) -> Result<Self> {
        let authentication = client(args.authentication_kubeconfig.as_deref()).await?;
        let authorization = client(args.authorization_kubeconfig.as_deref()).await?;
        let client_ca = match (&args.client_ca_file, &authentication) {
            (Some(path), _) => {
                let pem = std::fs::read_to_string(path);
                ClientAuthority::Given(Some(
                    pem.with_context(|| format!("--client-ca-file: read {}", path.display()))?,
                ))
            }
            (None, Some(client)) if !args.authentication_skip_lookup => {
                let (clock, random) = (Clock::system(), Random::from_system());
                let informers = Informers::new(client.clone(), tasks.clone(), clock, random);
                ClientAuthority::LookedUp(informers.scoped(Scope {
                    namespace: Some(LOOKUP.0.to_owned()),
                    field_selector: Some(format!("metadata.name={}", LOOKUP.1)),
                    label_selector: None,
                }))
            }
            _ => ClientAuthority::Given(None),
        };
        let lives = Lives {
            known: args.authentication_token_webhook_cache_ttl,
            allowed: args.authorization_webhook_cache_authorized_ttl,
            refused: args.authorization_webhook_cache_unauthorized_ttl,
        };
        let open_paths = args.authorization_always_allow_paths.clone();
        Ok(Self { access: Access::new(lives), authentication, authorization, open_paths, client_ca })
    }

    /// Who signs the certificates of clients, PEM.
    pub(super) fn client_authority(&self) -> Option<String> {
        match &self.client_ca {
            ClientAuthority::Given(pem) => pem.clone(),
            ClientAuthority::LookedUp(maps) => {
                maps.get(&format!("{}/{}", LOOKUP.0, LOOKUP.1))?.data.as_ref()?.get(CLIENT_CA).cloned()
            }
        }
    }

    /// Lets a request pass; whether somebody has proved who they are.
    ///
    /// # Errors
    /// Why it may not.
    pub(super) async fn pass(
        &self,
        certified: Option<&Certified>,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<bool, Refusal> {
        let unknown = |error: kube::Error| Refusal::Unknown(error.to_string());
        let token = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = token.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim);
        let user = match (certified, token, &self.authentication) {
            (Some(certified), ..) => Some(certified.user.clone()),
            (None, Some(_), None) => return Err(Refusal::Unauthorized),
            (None, Some(token), Some(client)) => {
                let user = self.access.of_token(client, token).await.map_err(unknown)?;
                Some(user.ok_or(Refusal::Unauthorized)?)
            }
            (None, None, _) => None,
        };
        let is_known = user.is_some();
        let user = user.unwrap_or_else(|| User {
            name: ANONYMOUS.0.to_owned(),
            groups: vec![ANONYMOUS.1.to_owned()],
            uid: String::new(),
        });
        if is_open(&self.open_paths, path) || user.groups.iter().any(|group| group == MASTERS) {
            return Ok(is_known);
        }
        let verb = verb(method);
        let asked = Asked::Path { verb, path: path.to_owned() };
        let may = match &self.authorization {
            Some(client) => self.access.may(client, &user, asked).await.map_err(unknown)?,
            None => false,
        };
        if may {
            Ok(is_known)
        } else {
            Err(Refusal::Forbidden { user: user.name, verb, path: path.to_owned() })
        }
    }
}

async fn client(kubeconfig: Option<&Path>) -> Result<Option<kube::Client>> {
    let Some(path) = kubeconfig else { return Ok(None) };
    Ok(Some(kube::Client::try_from(kube_client::config(path, "kube-controller-manager").await?)?))
}

fn verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::HEAD => "head",
        Method::OPTIONS => "options",
        _ => "get",
    }
}

/// Whether everybody may; `/*` at the end stands for everything below. Source: `k8s.io/apiserver/pkg/authorization/path`.
fn is_open(open: &[String], path: &str) -> bool {
    let path = path.trim_start_matches('/');
    open.iter().map(|open| open.trim_start_matches('/')).any(|open| match open.strip_suffix("/*") {
        Some(above) => path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/')),
        None => path == open,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_open_as_they_are_written() {
        let open = ["/healthz", "readyz/*"].map(str::to_owned);
        for (path, expect) in [
            ("/healthz", true),
            ("/healthz/ping", false),
            ("/healthzz", false),
            ("/readyz", false),
            ("/readyz/ping", true),
            ("/readyzz/ping", false),
            ("/metrics", false),
            ("/healthz/../metrics", false),
            ("//healthz", true),
            ("", false),
        ] {
            assert_eq!(is_open(&open, path), expect, "{path}");
        }
    }
}
