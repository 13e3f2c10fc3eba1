//! The availability of a server elsewhere: the condition `Available` of its APIService.
//!
//! Looked at when the APIService, its Service or EndpointSlices change, and every half minute; what is not well is looked
//! at again sooner. The status is written only when it says something else than before.
//!
//! Source: `k8s.io/kube-aggregator/pkg/controllers/status/remote`.

use std::sync::Arc;
use std::time::Duration;

use base::Backoff;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use machinery::metadata::{self, Metadata};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use serde_json::{Value, json};
use tracing::warn;

use super::Aggregation;
use super::registration::{Registration, condition};
use super::remote;
use super::served::Served;
use crate::api::Api;
use crate::cache::Watcher;
use crate::cache::watcher_index::IndexKey;
use crate::catalogue::priorities::OWN_GROUP;
use crate::connection_error::ConnectionError;
use crate::kinds::{GroupVersionResource, Part};
use crate::request;
use crate::request_info::Verb;
use crate::service_reference::{self, ServiceReference};
use crate::status::{Error, Result};
use crate::tree::text;
use crate::write::Decoded;
use crate::write::change::change;

/// How often a server is asked. Source: the resync period of upstream's controller.
const EVERY: Duration = Duration::from_secs(30);
/// After a failed look. Source: `NewTypedItemExponentialFailureRateLimiter` there.
const RETRY_FIRST: Duration = Duration::from_millis(5);
/// How many requests a look is: one good answer is enough.
const ATTEMPTS: usize = 5;
/// How long each may take.
const ATTEMPT_MAX: Duration = Duration::from_secs(5);
/// An answer's size, of which only the code counts.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// What is counted by name.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Name {
    name: String,
}

/// What is counted by name and reason.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Reason {
    name: String,
    reason: &'static str,
}

/// The metrics of availability.
pub struct Metrics {
    unavailable: Family<Name, Gauge>,
    became: Family<Reason, Counter>,
}

impl Metrics {
    /// In a process's registry.
    pub fn new(registry: &base::Metrics) -> Self {
        let (unavailable, became) = (Family::default(), Family::default());
        let name = "aggregator_unavailable_apiservice";
        let help = "Gauge of APIServices which are marked as unavailable broken down by APIService name.";
        registry.register(name, help, &unavailable);
        let help = "Counter of APIServices which are marked as unavailable broken down by APIService name and reason.";
        registry.register(name, help, &became);
        Self { unavailable, became }
    }

    pub(super) fn forget(&self, name: &str) {
        self.unavailable.remove(&Name { name: name.to_owned() });
    }

    fn found(&self, name: &str, verdict: &Verdict, was_available: bool) {
        let name = name.to_owned();
        self.unavailable.get_or_create(&Name { name: name.clone() }).set(i64::from(!verdict.is_available));
        if was_available && !verdict.is_available {
            self.became.get_or_create(&Reason { name, reason: verdict.reason }).inc();
        }
    }
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Verdict {
    is_available: bool,
    reason: &'static str,
    message: String,
}

impl Verdict {
    fn unavailable(reason: &'static str, message: String) -> Self {
        Self { is_available: false, reason, message }
    }
}

/// What wakes somebody who looks.
struct Wakers {
    registration: Watcher,
    service: Watcher,
    slices: Watcher,
}

impl Wakers {
    fn new(api: &Api, name: &str, reference: &ServiceReference) -> Option<Self> {
        let revision = api.cache.revision();
        let (registrations, services) = (super::kind(api)?, api.kind("", "v1", "services")?);
        let slices = service_reference::endpoint_slices(api).ok()?;
        let key = |key: String| IndexKey::Key(key);
        let service = key(services.key(&reference.namespace, &reference.name));
        let of_namespace = IndexKey::Namespace(slices.collection(&reference.namespace));
        Some(Self {
            registration: registrations.cache().watch(revision, key(registrations.key("", name))),
            service: services.cache().watch(revision, service),
            slices: slices.cache().watch(revision, of_namespace),
        })
    }

    /// Ends when something changed after `written`, or when too much did.
    async fn changed(&mut self, written: u64) {
        self.registration.skip_to(written);
        tokio::select! {
            _ = self.registration.next() => {}
            _ = self.service.next() => {}
            _ = self.slices.next() => {}
        }
    }
}

/// Keeps the condition true to what is, for ever.
pub(super) async fn keep(api: &Api, aggregation: &Aggregation, served: &Served) {
    let name = &served.registration.name;
    let mut backoff = Backoff::new(RETRY_FIRST, EVERY, 0.0);
    let mut before = None;
    loop {
        let Some(mut wakers) = Wakers::new(api, name, &served.link.target().service) else { return };
        let verdict = look(api, aggregation, served).await;
        if before.replace(verdict.is_available).is_some_and(|before| before != verdict.is_available) {
            served.turned.notify_one();
        }
        let written = write(api, aggregation, &served.registration, &verdict).await;
        let is_well = written.is_ok() && (verdict.is_available || verdict.reason != "FailedDiscoveryCheck");
        let wait = match is_well {
            true => {
                backoff.reset();
                EVERY
            }
            false => backoff.next(&api.random),
        };
        let revision = match written {
            Ok(revision) => revision,
            Err(failure) => {
                warn!(api = name, %failure, "whether an aggregated API is available was not written");
                0
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = wakers.changed(revision) => {}
        }
    }
}

/// Says of an APIService that this server is who serves, if it says something else.
///
/// Source: `k8s.io/kube-aggregator/pkg/controllers/status/local`.
pub(super) async fn is_local(api: &Api, aggregation: &Aggregation, registration: &Registration) {
    if registration.target.is_some() || registration.is_said_local {
        return;
    }
    let message = "Local APIServices are always available".to_owned();
    let verdict = Verdict { is_available: true, reason: "Local", message };
    if let Err(failure) = write(api, aggregation, registration, &verdict).await {
        warn!(api = registration.name, %failure, "that an API is local was not written");
    }
}

async fn look(api: &Api, aggregation: &Aggregation, served: &Served) -> Verdict {
    match endpoints(api, &served.link.target().service) {
        Ok(()) => {}
        Err(verdict) => return verdict,
    }
    let message = match asked(api, aggregation, served).await {
        Ok(()) => {
            let message = "all checks passed".to_owned();
            return Verdict { is_available: true, reason: "Passed", message };
        }
        Err(stopping @ ConnectionError::Stopping) => stopping.to_string(),
        Err(failure) => format!("failing or missing response from {}: {failure}", url(served)),
    };
    Verdict::unavailable("FailedDiscoveryCheck", message)
}

/// What is asked for, by its name and not by the endpoint's address: the message is the same for all of them.
fn url(served: &Served) -> String {
    let service = &served.link.target().service;
    format!("https://{}:{}{}", service.server_name(), service.port, served.registration.path())
}

/// Whether there is anybody to ask.
fn endpoints(api: &Api, reference: &ServiceReference) -> std::result::Result<(), Verdict> {
    let ServiceReference { namespace, name, port } = reference;
    let Ok(service) = reference.service(api) else {
        let message = format!("service/{name} in {namespace:?} is not present");
        return Err(Verdict::unavailable("ServiceNotFound", message));
    };
    if !matches!(text(&service, "/spec/type"), "" | "ClusterIP") {
        return Ok(());
    }
    let Some(port_name) = reference.port_name(&service) else {
        let message = format!("service/{name} in {namespace:?} is not listening on port {port}");
        return Err(Verdict::unavailable("ServicePortError", message));
    };
    let slices = reference.slices(api).unwrap_or_default();
    if slices.is_empty() {
        let message = format!("cannot find endpointslices for service/{name} in {namespace:?}");
        return Err(Verdict::unavailable("EndpointsNotFound", message));
    }
    if slices.iter().all(|slice| service_reference::endpoints(slice, port_name).is_empty()) {
        let message = format!(
            "endpointslices for service/{name} in {namespace:?} have no addresses with port name {port_name:?}"
        );
        return Err(Verdict::unavailable("MissingEndpoints", message));
    }
    Ok(())
}

/// Asks for the group-version several times at once.
async fn asked(
    api: &Api,
    aggregation: &Aggregation,
    served: &Served,
) -> std::result::Result<(), ConnectionError> {
    let _permit = aggregation.looking.acquire().await.map_err(|_| ConnectionError::Stopping)?;
    let mut attempts: FuturesUnordered<_> = (0..ATTEMPTS).map(|_| attempt(api, served)).collect();
    let mut last = Ok(());
    while let Some(result) = attempts.next().await {
        if result.is_ok() {
            return Ok(());
        }
        last = result;
    }
    last
}

async fn attempt(api: &Api, served: &Served) -> std::result::Result<(), ConnectionError> {
    if let Some(fault) = served.link.fault() {
        return Err(Arc::clone(fault).into());
    }
    let request =
        remote::own_request(&served.registration.path(), "application/json", &remote::aggregator())?;
    let asked = remote::ask(api, &served.link, request, ANSWER_BYTES_MAX);
    let answer = tokio::time::timeout(ATTEMPT_MAX, asked).await.map_err(|_| ConnectionError::Deadline)??;
    match answer.status() {
        status if status.is_success() => Ok(()),
        status => Err(ConnectionError::Status { url: url(served), status }),
    }
}

/// Writes the condition, if it says something else; answers up to which revision the APIService is known.
async fn write(
    api: &Api,
    aggregation: &Aggregation,
    registration: &Registration,
    verdict: &Verdict,
) -> Result<u64> {
    let (name, kind) = (&registration.name, super::kind(api).ok_or_else(Error::unknown_path)?);
    let Some(object) = kind.cache().get(&kind.key("", name)) else { return Ok(0) };
    let current = kind.value(&object);
    let was_available = condition(&current).is_some_and(|c| text(c, "/status") == "True");
    aggregation.metrics.found(name, verdict, was_available);
    if is_same(condition(&current), verdict) {
        return Ok(object.revision);
    }
    let identity = json!({"metadata": {"name": name}});
    let resource = GroupVersionResource::new(OWN_GROUP, "v1", "apiservices");
    let Some((request, _)) = request::of_server(api, resource, "", identity, Verb::Update) else {
        return Err(Error::unknown_path());
    };
    let request = request.below("status");
    let since = metadata::time(api.clock.now());
    let uid = Metadata::of(&current).uid().to_owned();
    let committed = change(api, &request, Part::Status, |old| {
        let mut new = old.clone();
        metadata::remove(&mut new, "resourceVersion");
        // Somebody else's by the same name, or one that leads elsewhere by now, is looked at by itself.
        let target = Registration::of(old).map(|found| found.target);
        if Metadata::of(old).uid() == uid && target.as_ref() == Some(&registration.target) {
            set(&mut new, verdict, &since);
        }
        Ok(Decoded::of_server(new))
    })
    .await;
    match committed {
        Ok(committed) => Ok(committed.revision),
        Err(failure) if failure.reason == "NotFound" => Ok(0),
        Err(failure) => Err(failure),
    }
}

fn is_same(condition: Option<&Value>, verdict: &Verdict) -> bool {
    condition.is_some_and(|condition| {
        text(condition, "/status") == status(verdict)
            && text(condition, "/reason") == verdict.reason
            && text(condition, "/message") == verdict.message
    })
}

fn status(verdict: &Verdict) -> &'static str {
    if verdict.is_available { "True" } else { "False" }
}

/// Sets the condition; its time changes with its status only.
fn set(object: &mut Value, verdict: &Verdict, since: &str) {
    let known = condition(object).filter(|known| text(known, "/status") == status(verdict));
    let since = known.map_or(since, |known| text(known, "/lastTransitionTime")).to_owned();
    let made = json!({
        "type": "Available",
        "status": status(verdict),
        "reason": verdict.reason,
        "message": verdict.message,
        "lastTransitionTime": since,
    });
    let Some(object) = object.as_object_mut() else { return };
    let status = object.entry("status").or_insert_with(|| json!({}));
    if !status.is_object() {
        *status = json!({});
    }
    let others = status.get("conditions").and_then(Value::as_array).into_iter().flatten();
    let others = others.filter(|other| text(other, "/type") != "Available");
    let conditions: Vec<Value> = others.cloned().chain([made]).collect();
    status["conditions"] = json!(conditions);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conditions_time_changes_with_its_status_only() {
        let passed = Verdict { is_available: true, reason: "Passed", message: "all checks passed".into() };
        let failed = |message: &str| Verdict::unavailable("FailedDiscoveryCheck", message.into());
        let mut object = json!({"status": {"conditions": [{"type": "Other"}]}});
        let mut check = |verdict: &Verdict, now: &str, expect: &str| {
            assert!(!is_same(condition(&object), verdict));
            set(&mut object, verdict, now);
            assert!(is_same(condition(&object), verdict));
            assert_eq!(text(condition(&object).unwrap(), "/lastTransitionTime"), expect);
            assert_eq!(object["status"]["conditions"].as_array().unwrap().len(), 2);
        };
        check(&failed("a"), "1", "1");
        check(&failed("b"), "2", "1");
        check(&passed, "3", "3");
        check(&failed("b"), "4", "4");
    }
}
