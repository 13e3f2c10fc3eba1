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
/// Whether what is read from has been filled; for `/readyz` only.
const SYNC: &str = "informer-sync";
/// Whether the server stays; for `/readyz` only: who is about to go lives until then.
const SHUTDOWN: &str = "shutdown";

/// By upstream's names, in its order. What it starts after it serves and is done here by the first load or the bootstrap
/// passes with that; hooks of servers that there are not, for custom resources and aggregation, are left out.
const CHECKS: &[Check] = &[
    Check { name: "ping", passes: |_| true },
    Check { name: "log", passes: |_| true },
    Check { name: "etcd", passes: is_loaded },
    Check { name: STORE, passes: |_| true },
    Check { name: SYNC, passes: is_loaded },
    Check { name: "poststarthook/start-apiserver-admission-initializer", passes: is_loaded },
    Check { name: "poststarthook/generic-apiserver-start-informers", passes: is_loaded },
    Check { name: "poststarthook/priority-and-fairness-config-consumer", passes: is_loaded },
    Check { name: "poststarthook/priority-and-fairness-filter", passes: is_loaded },
    Check { name: "poststarthook/storage-object-count-tracker-hook", passes: is_loaded },
    Check { name: "poststarthook/start-system-namespaces-controller", passes: is_bootstrapped },
    Check { name: "poststarthook/start-cluster-authentication-info-controller", passes: is_bootstrapped },
    Check { name: "poststarthook/start-kube-apiserver-identity-lease-controller", passes: is_bootstrapped },
    Check { name: "poststarthook/start-service-ip-repair-controllers", passes: is_bootstrapped },
    Check { name: "poststarthook/rbac/bootstrap-roles", passes: is_bootstrapped },
    Check { name: "poststarthook/scheduling/bootstrap-system-priority-classes", passes: is_bootstrapped },
    Check { name: "poststarthook/priority-and-fairness-config-producer", passes: is_bootstrapped },
    Check { name: "poststarthook/bootstrap-controller", passes: is_bootstrapped },
    Check { name: "poststarthook/start-kubernetes-service-cidr-controller", passes: is_bootstrapped },
    Check { name: SHUTDOWN, passes: |api| !api.tasks.is_stopping() },
];

fn is_loaded(api: &Api) -> bool {
    api.cache.is_loaded()
}

fn is_bootstrapped(api: &Api) -> bool {
    api.is_bootstrapped()
}

/// Answers a health path; `endpoint` is `livez`, `readyz` or `healthz`, `rest` may name one check.
pub async fn health(api: &Api, info: &RequestInfo, endpoint: &str, rest: &str) -> Response<Body> {
    let is_asked = |name: &str| match name {
        STORE | SYNC | SHUTDOWN => endpoint == "readyz",
        _ => true,
    };
    let named = ["livez", "readyz"].into_iter().find(|known| *known == endpoint).unwrap_or("healthz");
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
        let passes = passes && faults.is_empty();
        api.metrics.slis().note(named, name, passes);
        if passes {
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
