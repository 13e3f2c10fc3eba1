//! The legacy service account token cleaner: Secrets with tokens that were made for ServiceAccounts in the past, and that
//! nobody has used for a year, are marked invalid; a year after that they go.
//!
//! The API server writes down since when it looks, and on which day each token was last used. What people have made for
//! themselves, which no ServiceAccount names, stays. Source:
//! `pkg/controller/serviceaccount/legacy_serviceaccount_token_cleaner.go`, KEP-2799.

use std::sync::Arc;
use std::time::Duration;

use controller::metadata::{annotation, created, is_deleting, key, label, name, namespace, uid};
use controller::pod::Pod;
use controller::{Action, Change, Controller, Informers, Patch, Plan, Propagation, Scope, Source};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use serde_json::json;

use crate::options::{Options, signed};
use crate::pod::since_until;

/// How often a token is looked at. Source: `DefaultCleanerSyncInterval`.
const SYNC_PERIOD: Duration = Duration::from_hours(24);
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// Since when the API server writes down what is used.
const TRACKING: &str = "kube-system/kube-apiserver-legacy-service-account-token-tracking";

/// The controller's row. Keys are Secrets.
pub const CONTROLLER: Controller = Controller {
    name: "legacy-serviceaccount-token-cleaner-controller",
    queue: "legacy_service_account_token_cleaner",
    sources: |_| {
        vec![
            Source::scoped::<Secret>(tokens(), |change, _| vec![change.key.to_string()]),
            Source::of::<ServiceAccount>(secrets_of),
            Source::scoped::<ConfigMap>(tracking(), |_, informers| {
                informers
                    .scoped::<Secret>(tokens())
                    .list()
                    .iter()
                    .map(|secret| key(&secret.metadata))
                    .collect()
            }),
            // What uses a token keeps it; nothing is due when it comes or goes.
            Source::of::<Pod>(|_, _| Vec::new()),
        ]
    },
    reconcile: |informers, key, now| {
        gather(informers, key).map_or_else(Plan::nothing, |seen| plan(&seen, now))
    },
};

fn tokens() -> Scope {
    let of_accounts = "type=kubernetes.io/service-account-token";
    Scope { field_selector: Some(of_accounts.to_owned()), ..Scope::default() }
}

fn tracking() -> Scope {
    let (namespace, name) = TRACKING.split_once('/').unwrap_or_default();
    Scope {
        namespace: Some(namespace.to_owned()),
        field_selector: Some(format!("metadata.name={name}")),
        ..Scope::default()
    }
}

/// The Secrets that an account names, or did.
fn secrets_of(change: &Change<ServiceAccount>, informers: &Informers) -> Vec<String> {
    let versions = [&change.old, &change.new].into_iter().flatten();
    let known = informers.scoped::<Secret>(tokens());
    let mut keys: Vec<String> = versions
        .flat_map(|account| {
            let named = account.secrets.iter().flatten().filter_map(|secret| secret.name.as_deref());
            named.map(|secret| format!("{}/{secret}", namespace(&account.metadata)))
        })
        .filter(|key| known.get(key).is_some())
        .collect();
    keys.sort();
    keys.dedup();
    keys
}

/// The input of a decision about one Secret.
pub struct Snapshot {
    /// The Secret, of the right type.
    pub secret: Arc<Secret>,
    /// The ServiceAccount of the name that it says.
    pub account: Option<Arc<ServiceAccount>>,
    /// The ConfigMap in which the API server says since when it records the use of tokens.
    pub tracking: Option<Arc<ConfigMap>>,
    /// `true` if a Pod names the Secret.
    pub is_mounted: bool,
    /// The time for which a token is not used before it is marked, and marked before it goes. Source:
    /// `--legacy-service-account-token-clean-up-period`.
    pub unused: SignedDuration,
}

fn gather(informers: &Informers, key: &str) -> Option<Snapshot> {
    let secret = informers.scoped::<Secret>(tokens()).get(key)?;
    let place = namespace(&secret.metadata);
    let account = annotation(&secret.metadata, "kubernetes.io/service-account.name").unwrap_or_default();
    let account = informers.informer::<ServiceAccount>().get(&format!("{place}/{account}"));
    let tracking = informers.scoped::<ConfigMap>(tracking()).get(TRACKING);
    let pods = informers.informer::<Pod>().in_namespace(place);
    // What a Pod names that cannot be read may be anything.
    let names = |pod: &Pod| named_by(pod).is_none_or(|pod| auth::node::secrets_of(&pod).contains(key));
    let is_mounted = pods.iter().any(|pod| names(pod));
    let unused = signed(Options::of(informers).legacy_service_account_token_clean_up_period);
    Some(Snapshot { secret, account, tracking, is_mounted, unused })
}

/// What the Pod names, as the Node authorizer reads it.
fn named_by(pod: &Pod) -> Option<auth::node::Pod> {
    let meta = &pod.metadata;
    let annotations = meta.annotations.clone().unwrap_or_default();
    let meta = json!({"name": name(meta), "namespace": namespace(meta), "annotations": annotations});
    let spec = pod.spec.clone().unwrap_or_default();
    serde_json::from_value(json!({"metadata": meta, "spec": spec})).ok()
}

/// Decides whether the token is marked, or goes.
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let secret = &*snapshot.secret;
    let meta = &secret.metadata;
    if is_deleting(meta) || !is_generated(snapshot) {
        return plan;
    }
    let known = tracked_since(snapshot).map(|tracked| tracked.max(created(meta)));
    let Some(ripe) = known.and_then(|known| known.checked_add(snapshot.unused).ok()) else { return plan };
    if now < ripe {
        plan.requeue(since_until(now, ripe));
        return plan;
    }
    plan.requeue(SYNC_PERIOD);
    let keep_from = day(now.checked_sub(snapshot.unused).unwrap_or(Timestamp::MIN));
    let is_used = match label(meta, LAST_USED).map(date) {
        // What cannot be read may mean anything.
        Some(None) => true,
        Some(Some(last_used)) => last_used >= keep_from,
        None => false,
    };
    if is_used || snapshot.is_mounted {
        return plan;
    }
    match label(meta, INVALID_SINCE).and_then(date) {
        None => {
            let labels = json!({INVALID_SINCE: day(now).to_string()});
            let patch = Patch::Merge(json!({"metadata": {"uid": uid(meta), "labels": labels}}));
            plan.push(Action::patch::<Secret>(namespace(meta), name(meta), patch));
        }
        Some(since) if since < keep_from => {
            plan.push(Action::delete_version(secret, Propagation::Background));
        }
        Some(_) => {}
    }
    plan
}

/// Whether the account of the Secret names it: then nobody has asked for it.
fn is_generated(snapshot: &Snapshot) -> bool {
    let Some(account) = &snapshot.account else { return false };
    let meta = &snapshot.secret.metadata;
    let wanted = annotation(meta, "kubernetes.io/service-account.uid").unwrap_or_default();
    let is_same = wanted.is_empty() || wanted == uid(&account.metadata);
    is_same && account.secrets.iter().flatten().any(|secret| secret.name.as_deref() == Some(name(meta)))
}

/// The beginning of the first day of which everything is written down.
fn tracked_since(snapshot: &Snapshot) -> Option<Timestamp> {
    let since = date(snapshot.tracking.as_ref()?.data.as_ref()?.get("since")?)?;
    let next = since.tomorrow().ok()?;
    next.to_zoned(TimeZone::UTC).ok().map(|start| start.timestamp())
}

fn day(time: Timestamp) -> Date {
    time.to_zoned(TimeZone::UTC).date()
}

/// `2006-01-02`, and nothing else.
fn date(text: &str) -> Option<Date> {
    text.parse::<Date>().ok().filter(|date| date.to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{noon, parse, render};

    /// At noon of the first day of 2026, of which a year earlier is the first day of 2025.
    struct Case {
        created: &'static str,
        labels: &'static str,
        account: &'static str,
        since: &'static str,
        is_mounted: bool,
    }

    const UNUSED_FOR_YEARS: Case = Case {
        created: "2020-01-01T00:00:00Z",
        labels: "",
        account: "{metadata: {name: web, uid: a}, secrets: [{name: web-token}]}",
        since: "2023-01-01",
        is_mounted: false,
    };
    const MARKED: &str = "step\n  patch secrets web-token {\"metadata\":{\"labels\":{\"kubernetes.io/legacy-token-invalid-since\":\
                          \"2026-01-01\"},\"uid\":\"s\"}}\nagain after 86400s\n";
    const GOES: &str = "step\n  delete secrets web-token\nagain after 86400s\n";
    const STAYS: &str = "again after 86400s\n";
    const NOTHING: &str = "";

    fn check(what: &str, case: &Case, expect: &str) {
        let secret = format!(
            "{{metadata: {{name: web-token, namespace: shop, uid: s, resourceVersion: '4', creationTimestamp: '{}', labels: \
             {{{}}}, annotations: {{kubernetes.io/service-account.name: web, kubernetes.io/service-account.uid: a}}}}}}",
            case.created, case.labels
        );
        let tracking = format!("{{metadata: {{name: t}}, data: {{since: '{}'}}}}", case.since);
        let snapshot = Snapshot {
            secret: Arc::new(parse(&secret)),
            account: (!case.account.is_empty()).then(|| Arc::new(parse(case.account))),
            tracking: Some(Arc::new(parse(&tracking))),
            is_mounted: case.is_mounted,
            unused: signed(Options::default().legacy_service_account_token_clean_up_period),
        };
        assert_eq!(render(&plan(&snapshot, noon())), expect, "{what}");
    }

    #[test]
    fn tokens_that_nobody_uses_are_marked_and_go_a_year_later() {
        let labels = |labels| Case { labels, ..UNUSED_FOR_YEARS };
        check("never used", &UNUSED_FOR_YEARS, MARKED);
        check("used long ago", &labels("kubernetes.io/legacy-token-last-used: '2024-12-31'"), MARKED);
        check("used", &labels("kubernetes.io/legacy-token-last-used: '2025-01-01'"), STAYS);
        check("marked", &labels("kubernetes.io/legacy-token-invalid-since: '2025-01-01'"), STAYS);
        check("marked long ago", &labels("kubernetes.io/legacy-token-invalid-since: '2024-12-31'"), GOES);
        check("marked by nobody", &labels("kubernetes.io/legacy-token-invalid-since: always"), MARKED);
        check("mounted", &Case { is_mounted: true, ..UNUSED_FOR_YEARS }, STAYS);
        check("young", &Case { created: "2025-01-01T13:00:00Z", ..UNUSED_FOR_YEARS }, "again after 3600s\n");
        let tracked = |since| Case { since, ..UNUSED_FOR_YEARS };
        check("not looked at for a year", &tracked("2024-12-31"), MARKED);
        check("not looked at for a year", &tracked("2025-01-01"), "again after 43200s\n");
    }

    #[test]
    fn what_is_not_certain_stays() {
        let labels = |labels| Case { labels, ..UNUSED_FOR_YEARS };
        for text in ["yesterday", "2020-1-1", "20200101", "2020-01-01T00", "2020-02-30"] {
            let labels = format!("kubernetes.io/legacy-token-last-used: '{text}'");
            check(text, &Case { labels: labels.leak(), ..UNUSED_FOR_YEARS }, STAYS);
        }
        check("no date", &labels("kubernetes.io/legacy-token-last-used: ''"), STAYS);
        let account = |account| Case { account, ..UNUSED_FOR_YEARS };
        check("no account", &account(""), NOTHING);
        check("made by hand", &account("{metadata: {name: web, uid: a}}"), NOTHING);
        check(
            "another account",
            &account("{metadata: {name: web, uid: b}, secrets: [{name: web-token}]}"),
            NOTHING,
        );
        check("no time", &Case { since: "soon", ..UNUSED_FOR_YEARS }, NOTHING);
        check("the end of time", &Case { since: "9999-12-30", ..UNUSED_FOR_YEARS }, NOTHING);
        check("no time", &Case { since: "9999-12-31", ..UNUSED_FOR_YEARS }, NOTHING);
    }
}
