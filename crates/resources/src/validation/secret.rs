//! Secrets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use serde_json::Value;

use super::{At, config};

const BYTES_MAX: usize = 1024 * 1024;
const HIDDEN: &str = "<secret contents redacted>";

/// A Secret.
pub(crate) fn check(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let secret = At::root(object);
    let data = secret.get("data");
    let mut bytes = 0;
    for (key, value) in data.entries() {
        errors.extend(names::config_map_key(key).iter().map(|e| FieldError::invalid(&value.path, key, e)));
        bytes += config::decoded_len(value.text());
    }
    if bytes > BYTES_MAX {
        errors.push(FieldError::too_long(&data.path, BYTES_MAX));
    }
    typed(&secret, &data, &mut errors);
    errors
}

/// What the Secret's type asks for.
fn typed(secret: &At<'_>, data: &At<'_>, errors: &mut FieldErrors) {
    let has = |key: &str| data.value.get(key).is_some_and(|v| !v.is_null());
    let key_path = |key: &str| data.path.key(key);
    match secret.get("type").text() {
        "kubernetes.io/service-account-token" => {
            const ACCOUNT: &str = "kubernetes.io/service-account.name";
            let annotations = secret.get("metadata").get("annotations");
            if annotations.get(ACCOUNT).text().is_empty() {
                errors.push(FieldError::required(&annotations.path.key(ACCOUNT), ""));
            }
        }
        "kubernetes.io/dockercfg" => json(data, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => json(data, ".dockerconfigjson", errors),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            errors.push(FieldError::required(&key_path("username"), ""));
            errors.push(FieldError::required(&key_path("password"), ""));
        }
        "kubernetes.io/ssh-auth" if data.value.get("ssh-privatekey").is_none_or(|v| v == "") => {
            errors.push(FieldError::required(&key_path("ssh-privatekey"), ""));
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"] {
                if !has(key) {
                    errors.push(FieldError::required(&key_path(key), ""));
                }
            }
        }
        _ => {}
    }
}

fn json(data: &At<'_>, key: &str, errors: &mut FieldErrors) {
    let path = data.path.key(key);
    let Some(text) = data.value.get(key).and_then(Value::as_str) else {
        errors.push(FieldError::required(&path, ""));
        return;
    };
    let parsed = STANDARD.decode(text).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    if parsed.is_none() {
        errors.push(FieldError::invalid(&path, HIDDEN, "invalid JSON document"));
    }
}

/// An update of a Secret.
pub(crate) fn update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    At::root(new).get("type").immutable(&At::root(old).get("type"), &mut errors);
    errors.extend(config::immutable(new, old, &["data"]));
    errors.extend(check(new));
    errors
}
