//! The ResourceQuota controller: writes down what a namespace's objects use of each quota.
//!
//! Admission has charged every object that is made. This controller counts what is used when a quota is new or changed
//! and when objects go, and now and then in case something was missed; it does not when objects come, since what is
//! charged and not seen yet would be lost. What cannot be counted now, since its kind is not served or its objects are not
//! at hand, keeps what was written of it. Source: `pkg/controller/resourcequota`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use controller::metadata::{is_deleting, key, namespace};
use controller::pod::Pod;
use controller::{
    Action, Change, Controller, Following, Informers, PartialObject, Plan, ResourceRef, Source,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, ResourceQuota, ResourceQuotaStatus, Service};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use resources::pod_resources::add_all;
use resources::quota::{self, Amounts, Quota};
use serde::Serialize;
use serde_json::{Value, json};

use crate::kinds::{self, Followed};
use crate::options::Options;
use crate::pod::is_finished;

/// The controller's row. Keys are quotas.
pub const CONTROLLER: Controller = Controller {
    name: "resourcequota-controller",
    queue: "resourcequota_primary",
    sources: |_| {
        let mut sources = vec![
            Source::of::<ResourceQuota>(of_quota),
            Source::of::<Pod>(of_pod),
            Source::of::<Service>(|change, informers| {
                let spec = |one: &Option<Arc<Service>>| one.as_ref().map(|service| service.spec.clone());
                of_change(
                    change.old.is_some() && spec(&change.old) != spec(&change.new),
                    &change.key,
                    informers,
                )
            }),
            Source::of::<PersistentVolumeClaim>(|change, informers| {
                let asked =
                    |one: &Option<Arc<PersistentVolumeClaim>>| one.as_ref().map(|claim| claim.spec.clone());
                of_change(
                    change.old.is_some() && asked(&change.old) != asked(&change.new),
                    &change.key,
                    informers,
                )
            }),
        ];
        let counted = kinds::built_in().filter(|resource| resource.namespaced && !is_read_whole(resource));
        sources.extend(counted.map(|resource| Source::metadata_of(resource.clone(), of_counted)));
        sources.push(Source::discovered(GUESTS));
        sources
    },
    reconcile: |informers, key, now| {
        let Some(seen) = gather(informers, key) else { return Plan::nothing() };
        let mut plan = plan(&seen, now);
        plan.requeue(Options::of(informers).resource_quota_sync_period.0);
        plan
    },
};

/// Kinds that come and go. Source: `GetQuotableResources`.
const GUESTS: Following = Following {
    wants: |found| {
        kinds::is_dynamic(found)
            && found.resource.namespaced
            && found.allows(&["create", "delete", "list", "watch"])
    },
    changed: of_counted,
    came: |resource, informers| {
        let name = format!("count/{}", resource.full_name());
        let quotas = informers.informer::<ResourceQuota>().list();
        let counts = |quota: &&Arc<ResourceQuota>| {
            let hard = quota.spec.as_ref().and_then(|spec| spec.hard.as_ref());
            hard.is_some_and(|hard| hard.contains_key(&name))
        };
        quotas.iter().filter(counts).map(|quota| key(&quota.metadata)).collect()
    },
    // What was written of it stays.
    went: |_, _, _| Vec::new(),
};

/// The input of a decision about one quota.
pub struct Snapshot {
    /// The quota.
    pub quota: Arc<ResourceQuota>,
    /// The objects that may count: group, plural, and the object; of most kinds only that it is there.
    pub objects: Vec<(String, String, Value)>,
    /// The names of the quota that can be counted.
    pub countable: BTreeSet<String>,
}

/// Kinds whose objects cost more than their number, and quotas: a second informer of them may not know yet of the one that
/// is to be counted for.
fn is_read_whole(resource: &ResourceRef) -> bool {
    resource.group.is_empty()
        && matches!(
            resource.plural.as_str(),
            "pods" | "services" | "persistentvolumeclaims" | "resourcequotas"
        )
}

/// The status is nobody's but ours and admission's. One that goes is counted by the others.
fn of_quota(change: &Change<ResourceQuota>, informers: &Informers) -> Vec<String> {
    if change.new.is_none() {
        return of_change(true, &change.key, informers);
    }
    let spec = |quota: &Option<Arc<ResourceQuota>>| quota.as_ref().map(|quota| quota.spec.clone());
    let matters = spec(&change.old) != spec(&change.new);
    matters.then(|| change.key.to_string()).into_iter().collect()
}

fn of_pod(change: &Change<Pod>, informers: &Informers) -> Vec<String> {
    let facts = |pod: &Arc<Pod>| (is_finished(pod), is_deleting(&pod.metadata));
    let is_same = |old: &Arc<Pod>, new: &Arc<Pod>| facts(old) == facts(new) && old.spec == new.spec;
    let matters = match (&change.old, &change.new) {
        (Some(old), Some(new)) => !is_same(old, new),
        (Some(_), None) => true,
        (None, _) => false,
    };
    of_change(matters, &change.key, informers)
}

fn of_counted(change: &Change<PartialObject>, _: &ResourceRef, informers: &Informers) -> Vec<String> {
    of_change(change.new.is_none(), &change.key, informers)
}

/// The quotas of the namespace of `key`, if it matters to them.
fn of_change(matters: bool, changed: &str, informers: &Informers) -> Vec<String> {
    let Some((namespace, _)) = changed.split_once('/').filter(|_| matters) else { return Vec::new() };
    let quotas = informers.informer::<ResourceQuota>().in_namespace(namespace);
    quotas.iter().map(|quota| key(&quota.metadata)).collect()
}

fn gather(informers: &Informers, key: &str) -> Option<Snapshot> {
    let quota = informers.informer::<ResourceQuota>().get(key)?;
    let read = Quota::of(&serde_json::to_value(&*quota).unwrap_or_default());
    let place = namespace(&quota.metadata).to_owned();
    let (mut objects, mut countable) = (Vec::new(), BTreeSet::new());
    let followed = Followed::of(informers);
    let counted = followed.all().filter(|(one, _)| one.namespaced && read.counts(&one.group, &one.plural));
    for (resource, informer) in counted {
        if !is_read_whole(&resource) && !informer.is_synced() {
            continue;
        }
        countable.extend(read.names(&resource.group, &resource.plural).into_iter().map(str::to_owned));
        let values: Vec<Value> = match (resource.group.as_str(), resource.plural.as_str()) {
            ("", "pods") => pods(&informers.informer::<Pod>().in_namespace(&place)),
            ("", "services") => whole(&informers.informer::<Service>().in_namespace(&place)),
            ("", "persistentvolumeclaims") => {
                whole(&informers.informer::<PersistentVolumeClaim>().in_namespace(&place))
            }
            ("", "resourcequotas") => {
                vec![Value::Null; informers.informer::<ResourceQuota>().in_namespace(&place).len()]
            }
            _ => vec![Value::Null; informer.in_namespace(&place).len()],
        };
        objects
            .extend(values.into_iter().map(|value| (resource.group.clone(), resource.plural.clone(), value)));
    }
    Some(Snapshot { quota, objects, countable })
}

/// Pods, as far as they are known.
fn pods(all: &[Arc<Pod>]) -> Vec<Value> {
    let of = |pod: &Arc<Pod>| json!({ "metadata": pod.metadata, "spec": pod.spec, "status": pod.status });
    all.iter().map(of).collect()
}

fn whole<K: Serialize>(objects: &[Arc<K>]) -> Vec<Value> {
    objects.iter().map(|object| serde_json::to_value(&**object).unwrap_or_default()).collect()
}

/// Decides what the quota's status says.
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let read = Quota::of(&serde_json::to_value(&*snapshot.quota).unwrap_or_default());
    let mut used = read.nothing_used();
    for (group, plural, object) in &snapshot.objects {
        if read.matches(group, plural, object) {
            add_all(&mut used, &read.mask(&quota::usage(group, plural, object, now)));
        }
    }
    let hard = snapshot.quota.spec.as_ref().and_then(|spec| spec.hard.clone());
    let mut used = shown(&used);
    let written = snapshot.quota.status.as_ref().and_then(|status| status.used.as_ref());
    for (name, amount) in used.iter_mut().filter(|(name, _)| !snapshot.countable.contains(*name)) {
        if let Some(before) = written.and_then(|written| written.get(name)) {
            amount.clone_from(before);
        }
    }
    let status = ResourceQuotaStatus { hard, used: Some(used) };
    if snapshot.quota.status.as_ref() != Some(&status) {
        plan.push(Action::update_status(&ResourceQuota {
            status: Some(status),
            ..(*snapshot.quota).clone()
        }));
    }
    plan
}

fn shown(amounts: &Amounts) -> BTreeMap<String, Quantity> {
    amounts.iter().map(|(name, amount)| (name.clone(), Quantity(amount.to_string()))).collect()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http::header::ACCEPT;
    use http::{Request, Response};
    use http_body_util::Full;

    use super::*;
    use crate::fixture::{noon, parse};

    /// A server that has one quota for whom asks for whole ones; whoever asks for metadata only waits for ever.
    fn lagging(quota: &Value) -> Informers {
        let list = json!({"metadata": {"resourceVersion": "7"}, "items": [quota]}).to_string();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
            let lags = accept.is_some_and(|accept| accept.contains("PartialObjectMetadata"));
            let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
            let body = (!lags && !is_watch).then(|| Full::new(Bytes::from(list.clone())));
            async move {
                match body {
                    Some(body) => Ok::<_, Infallible>(Response::new(body)),
                    None => std::future::pending().await,
                }
            }
        });
        let clock = base::Clock::simulated(noon());
        let client = kube::Client::new(service, "default");
        Informers::new(client, base::Tasks::new(), clock, base::Random::seeded(1))
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_quota_counts_itself_though_a_second_informer_does_not_know_it_yet() {
        let metadata = json!({"name": "q", "namespace": "team", "resourceVersion": "7"});
        let quota = json!({"metadata": metadata, "spec": {"hard": {"resourcequotas": "3"}}});
        let informers = lagging(&quota);
        let quotas = informers.informer::<ResourceQuota>();
        let second = kinds::built_in().find(|one| one.plural == "resourcequotas").unwrap();
        let second = informers.metadata(second);
        quotas.synced().await;
        assert_eq!((quotas.len(), second.revision()), (1, 0), "the second one lags");
        let plan = (CONTROLLER.reconcile)(&informers, "team/q", noon());
        let used = plan.actions().map(|action| match action {
            Action::Request(request) => request.body["status"]["used"].to_string(),
            _ => String::new(),
        });
        assert_eq!(used.collect::<Vec<_>>(), [r#"{"resourcequotas":"1"}"#]);
    }

    fn check(status: &str, expect: Option<&str>) {
        check_with(&["configmaps", "pods", "requests.cpu"], status, expect);
    }

    fn check_with(countable: &[&str], status: &str, expect: Option<&str>) {
        let quota = format!(
            "{{metadata: {{name: q}}, spec: {{hard: {{pods: '5', requests.cpu: '2', configmaps: '3'}}}}, status: {status}}}"
        );
        let countable = countable.iter().map(|&name| name.to_owned()).collect();
        let pod = |cpu: &str| {
            let yaml =
                format!("{{spec: {{containers: [{{name: a, resources: {{requests: {{cpu: {cpu}}}}}}}]}}}}");
            (String::new(), "pods".to_owned(), parse::<Value>(&yaml))
        };
        let map = || (String::new(), "configmaps".to_owned(), Value::Null);
        let objects = vec![pod("500m"), pod("'1'"), map(), map()];
        let plan = plan(&Snapshot { quota: Arc::new(parse(&quota)), objects, countable }, noon());
        let written = plan.actions().next().map(|action| match action {
            Action::Request(request) => request.body["status"]["used"].to_string(),
            _ => String::new(),
        });
        assert_eq!(written.as_deref(), expect);
    }

    #[test]
    fn the_status_says_what_is_used() {
        check("{}", Some(r#"{"configmaps":"2","pods":"2","requests.cpu":"1500m"}"#));
        check(
            "{hard: {pods: '5', requests.cpu: '2', configmaps: '3'}, used: {pods: '2', requests.cpu: 1500m, configmaps: '2'}}",
            None,
        );
    }

    #[test]
    fn what_cannot_be_counted_keeps_what_was_written() {
        let hard = "hard: {pods: '5', requests.cpu: '2', configmaps: '3'}";
        let seen = &["pods", "requests.cpu"][..];
        check_with(
            seen,
            &format!("{{{hard}, used: {{pods: '7', requests.cpu: 1500m, configmaps: '9'}}}}"),
            Some(r#"{"configmaps":"9","pods":"2","requests.cpu":"1500m"}"#),
        );
        check_with(
            seen,
            &format!("{{{hard}, used: {{pods: '2', requests.cpu: 1500m, configmaps: '9'}}}}"),
            None,
        );
    }
}
