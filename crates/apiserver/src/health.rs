//! `/livez`, `/readyz`, `/healthz`, `/version`.

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

const CHECKS: &[Check] = &[
    Check { name: "ping", passes: |_| true },
    Check { name: "log", passes: |_| true },
    Check { name: "etcd", passes: |api| api.cache.is_loaded() },
    Check { name: "informer-sync", passes: |api| api.cache.is_loaded() },
    Check { name: "poststarthook/rbac/bootstrap-roles", passes: |api| api.is_bootstrapped() },
    Check { name: "shutdown", passes: |api| !api.tasks.is_stopping() },
];

/// Answers a health path; `endpoint` is `livez`, `readyz` or `healthz`, `rest` may name one check.
pub fn health(api: &Api, info: &RequestInfo, endpoint: &str, rest: &str) -> Response<Body> {
    let is_live_only = endpoint == "livez";
    let excluded: Vec<&str> = info.query.all("exclude").collect();
    let mut lines = String::new();
    let mut is_well = true;
    for check in CHECKS {
        if (is_live_only && check.name == "shutdown") || (!rest.is_empty() && rest != check.name) {
            continue;
        }
        if excluded.contains(&check.name) {
            lines.push_str(&format!("[+]{} excluded: ok\n", check.name));
        } else if (check.passes)(api) {
            lines.push_str(&format!("[+]{} ok\n", check.name));
        } else {
            is_well = false;
            lines.push_str(&format!("[-]{} failed: reason withheld\n", check.name));
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
