//! The upkeep of bootstrap tokens: `cluster-info` is signed with each that may sign, and those that are over go.
//!
//! Both controllers are off until somebody names them, as upstream's are.
//! Source: `pkg/controller/bootstrap`, `k8s.io/cluster-bootstrap`.

pub mod signer;
pub mod token_cleaner;

use std::time::Duration;

use controller::Scope;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;

use crate::pod::since_until;

const TYPE: &str = "bootstrap.kubernetes.io/token";
/// Where tokens are good.
const NAMESPACE: &str = "kube-system";

/// Only the Secrets that are tokens.
fn tokens() -> Scope {
    Scope {
        namespace: Some(NAMESPACE.to_owned()),
        field_selector: Some(format!("type={TYPE}")),
        ..Scope::default()
    }
}

/// The text under `key`, empty if there is none.
fn field(secret: &Secret, key: &str) -> String {
    let bytes = secret.data.as_ref().and_then(|data| data.get(key));
    bytes.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()).unwrap_or_default()
}

/// How much longer a token is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Forever,
    For(Duration),
    /// Also where the end cannot be read.
    Over,
}

fn left(secret: &Secret, now: Timestamp) -> Left {
    let end = field(secret, "expiration");
    if end.is_empty() {
        return Left::Forever;
    }
    match end.parse::<Timestamp>() {
        Ok(end) if end > now => Left::For(since_until(now, end)),
        _ => Left::Over,
    }
}
