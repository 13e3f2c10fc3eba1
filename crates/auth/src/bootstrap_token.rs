//! Bootstrap tokens: a Secret in `kube-system` lets a new node in.
//!
//! Source: `plugin/pkg/auth/authenticator/token/bootstrap`, `k8s.io/cluster-bootstrap/token`.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Value, json};

use crate::UserInfo;

const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
const GROUP: &str = "system:bootstrappers";
const ID_LEN: usize = 6;
const SECRET_LEN: usize = 16;

/// Id and secret of a text that has the form of a bootstrap token.
pub fn split(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let fits = is_id(id) && secret.len() == SECRET_LEN && is_plain(secret);
    fits.then_some((id, secret))
}

/// `true` if the text has the form of a token's id.
pub fn is_id(text: &str) -> bool {
    text.len() == ID_LEN && is_plain(text)
}

fn is_plain(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase())
}

/// A token's signature of `content`: a JWS without its content. Source: RFC 7515, appendix F; `token/jws`.
pub fn sign(content: &str, id: &str, secret: &str) -> String {
    let head = URL_SAFE_NO_PAD.encode(json!({"alg": "HS256", "kid": id}).to_string());
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signed = hmac::sign(&key, format!("{head}.{}", URL_SAFE_NO_PAD.encode(content)).as_bytes());
    format!("{head}..{}", URL_SAFE_NO_PAD.encode(signed))
}

/// A new token: its id and its secret.
///
/// # Errors
/// If the operating system gives no randomness.
pub fn new() -> Result<(String, String), ring::error::Unspecified> {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut bytes = [0; ID_LEN + SECRET_LEN];
    SystemRandom::new().fill(&mut bytes)?;
    let text: String = bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect();
    let (id, secret) = text.split_at(ID_LEN);
    Ok((id.to_owned(), secret.to_owned()))
}

/// The name of the Secret behind a token's id.
pub fn secret_name(id: &str) -> String {
    format!("bootstrap-token-{id}")
}

/// The user that the token stands for, if the Secret says so.
pub fn user_of(secret: &Value, id: &str, given: &str, now: Timestamp) -> Option<UserInfo> {
    let data = |field: &str| -> Option<String> {
        let encoded = secret.pointer(&format!("/data/{field}"))?.as_str()?;
        String::from_utf8(STANDARD.decode(encoded).ok()?).ok()
    };
    let is_type = secret.get("type").is_some_and(|kind| kind == SECRET_TYPE);
    let is_going = secret.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null());
    if !is_type || is_going || data("token-id")? != id {
        return None;
    }
    let wanted = data("token-secret")?;
    if !is_same(wanted.as_bytes(), given.as_bytes()) {
        return None;
    }
    let is_over = match data("expiration").filter(|text| !text.is_empty()) {
        Some(text) => text.parse::<Timestamp>().map_or(true, |end| end <= now),
        None => false,
    };
    if is_over || data("usage-bootstrap-authentication").as_deref() != Some("true") {
        return None;
    }
    let extra = data("auth-extra-groups").unwrap_or_default();
    let extra: Vec<&str> = if extra.is_empty() { Vec::new() } else { extra.split(',').collect() };
    if !extra.iter().all(|group| is_group(group)) {
        return None;
    }
    let mut groups = vec![GROUP.to_owned()];
    groups.extend(extra.into_iter().map(str::to_owned));
    groups.sort();
    groups.dedup();
    Some(UserInfo { name: format!("system:bootstrap:{id}"), groups, ..UserInfo::default() })
}

/// Compares without telling by its time where the first difference is.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |acc, (a, b)| acc | (a ^ b)) == 0
}

/// `system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]`
fn is_group(group: &str) -> bool {
    let Some(rest) = group.strip_prefix("system:bootstrappers:") else { return false };
    let is_plain = |b: u8| b.is_ascii_digit() || b.is_ascii_lowercase();
    rest.len() <= 256
        && rest.bytes().all(|b| is_plain(b) || matches!(b, b':' | b'-'))
        && rest.bytes().last().is_some_and(is_plain)
}

#[cfg(test)]
mod tests;
