//! The token controller: Secrets of type `kubernetes.io/service-account-token` hold a token of their ServiceAccount,
//! and go when it goes.
//!
//! Nobody gets a Secret that they did not make. Source: `pkg/controller/serviceaccount/tokens_controller.go`.

use std::collections::BTreeMap;
use std::sync::Arc;

use auth::token::{Reference, TokenError, Tokens};
use controller::metadata::{annotation, is_deleting, key, name, namespace, uid};
use controller::{Action, Controller, Plan, Propagation, ResourceRef, Scope, Source};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};

use crate::root_ca::Bundle;

const TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

/// The controller's row. Keys are Secrets. What signs, and what is published with the token, are the settings
/// [`Tokens`] and [`Bundle`]; without the former nothing is done.
pub const CONTROLLER: Controller = Controller {
    name: "serviceaccount-token-controller",
    queue: "serviceaccount_tokens_secret",
    sources: |_| {
        vec![
            Source::scoped::<Secret>(scope(), |change, _| vec![change.key.to_string()]),
            Source::of::<ServiceAccount>(|change, informers| {
                let Some(account) = change.object() else { return Vec::new() };
                let secrets = informers.scoped::<Secret>(scope()).list();
                let of_account = |secret: &&Arc<Secret>| {
                    namespace(&secret.metadata) == namespace(&account.metadata)
                        && annotation(&secret.metadata, ACCOUNT_NAME) == account.metadata.name.as_deref()
                };
                secrets.iter().filter(of_account).map(|secret| key(&secret.metadata)).collect()
            }),
        ]
    },
    reconcile: |informers, key, now| {
        let secret = informers.scoped::<Secret>(scope()).get(key);
        let (Some(secret), Some(tokens)) = (secret, informers.setting::<Tokens>()) else {
            return Plan::nothing();
        };
        let account = annotation(&secret.metadata, ACCOUNT_NAME).unwrap_or_default();
        let account = format!("{}/{account}", namespace(&secret.metadata));
        let account = informers.informer::<ServiceAccount>().get(&account);
        let bundle = informers.setting::<Bundle>().map(|bundle| bundle.0.clone()).unwrap_or_default();
        plan(&Snapshot { secret, account, bundle }, now, |secret, account| {
            tokens.issue_legacy(namespace(&secret.metadata), name(&secret.metadata), account)
        })
    },
};

/// Only the Secrets of that type: a cluster has many others.
fn scope() -> Scope {
    Scope { field_selector: Some(format!("type={TYPE}")), ..Scope::default() }
}

/// The input of a decision about one Secret.
pub struct Snapshot {
    /// The Secret, of the right type.
    pub secret: Arc<Secret>,
    /// The ServiceAccount of the name that it says.
    pub account: Option<Arc<ServiceAccount>>,
    /// PEM certificates; empty if none are published.
    pub bundle: String,
}

/// Decides whether to fill the Secret, with a token that `issue` makes, or to delete it.
pub fn plan(
    snapshot: &Snapshot,
    _: Timestamp,
    issue: impl FnOnce(&Secret, &Reference) -> Result<String, TokenError>,
) -> Plan {
    let mut plan = Plan::nothing();
    let meta = &snapshot.secret.metadata;
    let wanted = annotation(meta, ACCOUNT_NAME).unwrap_or_default();
    if wanted.is_empty() || is_deleting(meta) {
        return plan;
    }
    let wanted_uid = annotation(meta, ACCOUNT_UID).unwrap_or_default();
    let is_it =
        |account: &&Arc<ServiceAccount>| wanted_uid.is_empty() || wanted_uid == uid(&account.metadata);
    let Some(account) = snapshot.account.as_ref().filter(is_it) else {
        // Both may be made at the same moment; only the server knows whether the account is not there.
        let accounts = ResourceRef::of::<ServiceAccount>();
        plan.push(Action::require_absent(accounts, namespace(meta), wanted, wanted_uid));
        let background = Propagation::Background;
        plan.push(Action::delete::<Secret>(namespace(meta), name(meta), Some(uid(meta)), background, None));
        return plan;
    };
    let account =
        Reference { name: name(&account.metadata).to_owned(), uid: uid(&account.metadata).to_owned() };
    match filled(snapshot, &account, issue) {
        Ok(Some(secret)) => plan.push(Action::update(&secret)),
        Ok(None) => {}
        Err(error) => {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(secret = key(meta), error, "could not sign a token");
        }
    }
    plan
}

/// The Secret with everything that it lacks; `None` if it lacks nothing.
fn filled(
    snapshot: &Snapshot,
    account: &Reference,
    issue: impl FnOnce(&Secret, &Reference) -> Result<String, TokenError>,
) -> Result<Option<Secret>, TokenError> {
    let (secret, bundle) = (&snapshot.secret, snapshot.bundle.as_bytes());
    let empty = BTreeMap::new();
    let data = secret.data.as_ref().unwrap_or(&empty);
    let lacks = |name: &str| data.get(name).is_none_or(|value| value.0.is_empty());
    let lacks_bundle = !bundle.is_empty() && data.get("ca.crt").is_none_or(|known| known.0 != bundle);
    let (lacks_token, lacks_namespace) = (lacks("token"), lacks("namespace"));
    if !lacks_token && !lacks_namespace && !lacks_bundle {
        return Ok(None);
    }
    let mut new = Secret::clone(secret);
    let data = new.data.get_or_insert_default();
    let mut put = |name: &str, value: &[u8]| data.insert(name.to_owned(), ByteString(value.to_vec()));
    if lacks_bundle {
        put("ca.crt", bundle);
    }
    if lacks_namespace {
        put("namespace", namespace(&secret.metadata).as_bytes());
    }
    if lacks_token {
        put("token", issue(secret, account)?.as_bytes());
    }
    let annotations = new.metadata.annotations.get_or_insert_default();
    annotations.insert(ACCOUNT_NAME.to_owned(), account.name.clone());
    annotations.insert(ACCOUNT_UID.to_owned(), account.uid.clone());
    Ok(Some(new))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{noon, parse, render};

    const ACCOUNT: &str = "{metadata: {name: robot, namespace: team, uid: a1}}";

    fn check(secret: &str, account: Option<&str>, expect: &str) {
        let account = account.map(|yaml| Arc::new(parse(yaml)));
        let snapshot = Snapshot { secret: Arc::new(parse(secret)), account, bundle: "PEM".into() };
        let issued = |secret: &Secret, account: &Reference| {
            Ok(format!("{} of {}/{}", name(&secret.metadata), account.name, account.uid))
        };
        assert_eq!(render(&plan(&snapshot, noon(), issued)), expect);
    }

    fn secret(more: &str, data: &str) -> String {
        format!(
            "{{metadata: {{name: s, namespace: team, uid: s1, annotations: {{kubernetes.io/service-account.name: robot{more}}}}}, \
             type: {TYPE}, data: {{{data}}}}}"
        )
    }

    #[test]
    fn an_empty_secret_is_filled() {
        let plan = "step\n  update secrets s {\"apiVersion\":\"v1\",\"data\":{\"ca.crt\":\"UEVN\",\"namespace\":\"dGVhbQ==\",\
                    \"token\":\"cyBvZiByb2JvdC9hMQ==\"},\"kind\":\"Secret\",\"metadata\":{\"annotations\":{\
                    \"kubernetes.io/service-account.name\":\"robot\",\"kubernetes.io/service-account.uid\":\"a1\"},\
                    \"name\":\"s\",\"namespace\":\"team\",\"uid\":\"s1\"},\"type\":\"kubernetes.io/service-account-token\"}\n";
        check(&secret("", ""), Some(ACCOUNT), plan);
        let whole = "token: eA==, namespace: dGVhbQ==, ca.crt: UEVN";
        check(&secret(", kubernetes.io/service-account.uid: a1", whole), Some(ACCOUNT), "");
    }

    #[test]
    fn a_secret_goes_with_its_account() {
        let gone = "step\n  require no serviceaccounts robot\nstep\n  delete secrets s\n";
        check(&secret("", ""), None, gone);
        check(&secret(", kubernetes.io/service-account.uid: other", ""), Some(ACCOUNT), gone);
    }
}
