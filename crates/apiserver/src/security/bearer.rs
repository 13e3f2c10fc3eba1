//! Tokens that live in Secrets: those of service accounts, without an end, and those that let nodes in.

use auth::token::Legacy;
use auth::{UserInfo, bootstrap_token};
use jiff::Timestamp;
use machinery::metadata::Metadata;
use serde_json::Value;

use super::token_uses::{INVALID_SINCE, LAST_USED};
use crate::kinds::Kinds;
use crate::tree::text;

fn stored(kinds: &Kinds, resource: &str, namespace: &str, name: &str) -> Option<Value> {
    let kind = kinds.find("", "v1", resource)?;
    kind.cache().get(&kind.key(namespace, name)).map(|object| kind.value(&object))
}

/// What the Secret and the account of a token say of it.
pub(super) struct Lasting {
    /// Whom it stands for.
    pub(super) user: UserInfo,
    /// Whether the account names the Secret, as it did those that were made for it in the past.
    pub(super) is_generated: bool,
    /// On which day it was last used, as far as that is written.
    pub(super) last_used: String,
    /// Since when it is good for nothing; empty if it is good.
    pub(super) invalid_since: String,
}

/// The service account of a Secret's token, while both are there. Source: `pkg/serviceaccount/legacy.go`.
/// `claims` are the token's, which our key has signed.
pub(super) fn legacy(kinds: &Kinds, claims: &Legacy, token: &str) -> Option<Lasting> {
    let secret = stored(kinds, "secrets", &claims.namespace, &claims.secret)?;
    let held =
        base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text(&secret, "/data/token"))
            .ok()?;
    if Metadata::of(&secret).is_terminating() || held != token.as_bytes() {
        return None;
    }
    let account = stored(kinds, "serviceaccounts", &claims.namespace, &claims.account)?;
    let metadata = Metadata::of(&account);
    if metadata.is_terminating() || metadata.uid() != claims.uid {
        return None;
    }
    let label = |key: &str| {
        let labels = secret.pointer("/metadata/labels");
        labels.and_then(|labels| labels.get(key)?.as_str()).unwrap_or_default().to_owned()
    };
    let named = account.get("secrets").and_then(Value::as_array).into_iter().flatten();
    Some(Lasting {
        user: UserInfo::service_account(&claims.namespace, &claims.account, &claims.uid),
        is_generated: named.into_iter().any(|named| text(named, "/name") == claims.secret),
        last_used: label(LAST_USED),
        invalid_since: label(INVALID_SINCE),
    })
}

/// The node-to-be behind a bootstrap token.
pub(super) fn bootstrap(kinds: &Kinds, token: &str, now: Timestamp) -> Option<UserInfo> {
    let (id, given) = bootstrap_token::split(token)?;
    let secret = stored(kinds, "secrets", "kube-system", &bootstrap_token::secret_name(id))?;
    bootstrap_token::user_of(&secret, id, given, now)
}
