//! Deletes bootstrap tokens when they are over.

use controller::metadata::{is_deleting, name, namespace, uid};
use controller::{Action, Controller, Plan, Propagation, Source};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;

use super::{Left, left, tokens};

/// The controller's row. Keys are Secrets.
pub const CONTROLLER: Controller = Controller {
    name: "token-cleaner-controller",
    queue: "token_cleaner",
    sources: |_| vec![Source::scoped::<Secret>(tokens(), |change, _| vec![change.key.to_string()])],
    reconcile: |informers, key, now| {
        let secret = informers.scoped::<Secret>(tokens()).get(key);
        secret.map_or_else(Plan::nothing, |secret| plan(&secret, now))
    },
};

/// Decides whether the token is to go, or when to look again.
pub fn plan(secret: &Secret, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let meta = &secret.metadata;
    match left(secret, now) {
        Left::For(left) => plan.requeue(left),
        Left::Over if !is_deleting(meta) => plan.push(Action::delete::<Secret>(
            namespace(meta),
            name(meta),
            Some(uid(meta)),
            Propagation::Background,
            None,
        )),
        Left::Forever | Left::Over => {}
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{noon, parse, render};

    fn check(end: &str, expect: &str) {
        let mut secret: Secret = parse(
            "{metadata: {name: bootstrap-token-abcdef, namespace: kube-system, uid: u}, data: {expiration: ''}}",
        );
        for field in secret.data.iter_mut().flat_map(|data| data.values_mut()) {
            field.0 = end.into();
        }
        assert_eq!(render(&plan(&secret, noon())), expect, "{end}");
    }

    #[test]
    fn tokens_that_are_over_go() {
        let goes = "step\n  delete secrets bootstrap-token-abcdef\n";
        check("", "");
        check("2026-01-01T12:01:00Z", "again after 60s\n");
        check("2026-01-01T14:01:00+02:00", "again after 60s\n");
        check("2026-01-01T12:00:00Z", goes);
        check("2025-01-01T00:00:00Z", goes);
        check("tomorrow", goes);
        check("2026-01-01", goes);
    }
}
