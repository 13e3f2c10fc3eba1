//! `/livez`, `/readyz`, `/healthz`, `/version`.
//!
//! Reasons of failures are withheld, as upstream withholds them, but for those that the store gives: an alarm or a full
//! disk is nobody's secret, and it is what the operator has to do something about; and for those that the other parts of
//! the process give of their own checks, which `/livez` does not ask: a server does not get better by a restart because a
//! part beside it is not well.

use base::health::Checks;
use http::{Response, StatusCode};
use serde_json::Value;

use crate::api::Api;
use crate::request_info::RequestInfo;
use crate::respond::{Body, json, text};

struct Check {
    name: &'static str,
    passes: fn(&Api) -> bool,
}

/// The check of all KMS plugins. Source: `kmsReloadHealthCheckName`.
const KMS: &str = "kms-providers";
/// The check that the store does what it should; for `/readyz` only. Source: upstream's `etcd-readiness`.
const STORE: &str = "etcd-readiness";

const CHECKS: &[Check] = &[
    Check { name: "ping", passes: |_| true },
    Check { name: "log", passes: |_| true },
    Check { name: "etcd", passes: |api| api.cache.is_loaded() },
    Check { name: STORE, passes: |_| true },
    Check { name: "informer-sync", passes: |api| api.cache.is_loaded() },
    Check { name: "poststarthook/rbac/bootstrap-roles", passes: |api| api.is_bootstrapped() },
    Check { name: "shutdown", passes: |api| !api.tasks.is_stopping() },
];

/// Answers a health path; `endpoint` is `livez`, `readyz` or `healthz`, `rest` may name one check.
pub async fn health(api: &Api, info: &RequestInfo, endpoint: &str, rest: &str) -> Response<Body> {
    let is_asked = |name: &str| match name {
        "shutdown" => endpoint != "livez",
        STORE => endpoint == "readyz",
        _ => true,
    };
    // Asked for by whoever asks us, as upstream does.
    let kms = api.at_rest.health().await;
    let excluded: Vec<&str> = info.query.all("exclude").collect();
    let mut lines = String::new();
    let mut is_well = true;
    let checks = CHECKS.iter().map(|check| (check.name, (check.passes)(api)));
    for (name, passes) in checks.chain(kms.map(|is_well| (KMS, is_well))) {
        if !is_asked(name) || (!rest.is_empty() && rest != name) {
            continue;
        }
        if excluded.contains(&name) {
            lines.push_str(&format!("[+]{name} excluded: ok\n"));
            continue;
        }
        let faults = if name == STORE { api.cache.faults().await } else { Vec::new() };
        if passes && faults.is_empty() {
            lines.push_str(&format!("[+]{name} ok\n"));
            continue;
        }
        is_well = false;
        let reason = if faults.is_empty() { "reason withheld".to_owned() } else { faults.join("; ") };
        lines.push_str(&format!("[-]{name} failed: {reason}\n"));
    }
    let parts = if endpoint == "livez" { Vec::new() } else { Checks::of(api.metrics.registry()).all() };
    for (name, found) in parts {
        if !rest.is_empty() && rest != name {
            continue;
        }
        match found {
            _ if excluded.contains(&name.as_str()) => lines.push_str(&format!("[+]{name} excluded: ok\n")),
            Ok(()) => lines.push_str(&format!("[+]{name} ok\n")),
            Err(reason) => {
                is_well = false;
                lines.push_str(&format!("[-]{name} failed: {reason}\n"));
            }
        }
    }
    let code = if is_well { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    let plain = "text/plain; charset=utf-8";
    match (is_well, info.query.has("verbose")) {
        (true, false) => text(code, plain, "ok"),
        (true, true) => text(code, plain, format!("{lines}{endpoint} check passed\n")),
        (false, _) => text(code, plain, format!("{lines}{endpoint} check failed\n")),
    }
}

/// `/version`.
pub fn version() -> Response<Body> {
    let facts = machinery::version::facts().into_iter();
    let value = facts.map(|(name, _, value)| (name.to_owned(), value.into())).collect();
    json(StatusCode::OK, &Value::Object(value))
}
