//! `/livez`, `/readyz`, `/healthz`, `/version`.
//!
//! Reasons of failures are withheld, as upstream withholds them, but for those that the store gives: an alarm or a full
//! disk is nobody's secret, and it is what the operator has to do something about.

use http::{Response, StatusCode};
use serde_json::json;

use crate::api::Api;
use crate::request_info::RequestInfo;
use crate::respond::{Body, json, text};

/// What `/version` says; the API level that is served.
pub const GIT_VERSION: &str = "v1.35.0";

struct Check {
    name: &'static str,
    passes: fn(&Api) -> bool,
}

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
    let excluded: Vec<&str> = info.query.all("exclude").collect();
    let mut lines = String::new();
    let mut is_well = true;
    for check in CHECKS {
        if !is_asked(check.name) || (!rest.is_empty() && rest != check.name) {
            continue;
        }
        if excluded.contains(&check.name) {
            lines.push_str(&format!("[+]{} excluded: ok\n", check.name));
            continue;
        }
        let faults = if check.name == STORE { api.cache.faults().await } else { Vec::new() };
        if (check.passes)(api) && faults.is_empty() {
            lines.push_str(&format!("[+]{} ok\n", check.name));
            continue;
        }
        is_well = false;
        let reason = if faults.is_empty() { "reason withheld".to_owned() } else { faults.join("; ") };
        lines.push_str(&format!("[-]{} failed: {reason}\n", check.name));
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
    let value = json!({
        "major": "1",
        "minor": "35",
        "gitVersion": format!("{GIT_VERSION}+knarr"),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("linux/{}", arch()),
    });
    json(StatusCode::OK, &value)
}

fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
