//! An IPAddress object for every cluster IP, named by it; and addresses given back when their Service lets go.
//!
//! Follows the Services in the watch cache: at the start everything is put right, then what changes.
//! Source: `pkg/registry/core/service/ipallocator`, KEP-1880.

use machinery::metadata::Metadata;
use serde_json::{Value, json};
use tracing::warn;

use super::{Held, held};
use crate::admission::text;
use crate::api::Api;
use crate::bootstrap;
use crate::cache::CacheEvent;
use crate::cache::interest::Interest;
use crate::kinds::Kind;
use crate::verbs::delete;
use crate::verbs::options::DeleteOptions;

const GROUP: &str = "networking.k8s.io";
const MANAGER: &str = "ipallocator.k8s.io";

/// Follows for ever.
pub async fn follow(api: &Api) {
    let Some(services) = Kind::find("", "v1", "services") else { return };
    loop {
        let mut watcher = services.cache(api).watch(api.cache.revision(), Interest::Everything);
        repair(api, services).await;
        while let Ok(events) = watcher.next().await {
            for event in events {
                settle(api, services, &event).await;
            }
        }
    }
}

/// Publishes what is missing and takes back what belongs to no Service any more.
async fn repair(api: &Api, services: Kind) {
    let Some(addresses) = Kind::find(GROUP, "v1", "ipaddresses") else { return };
    let all = services.cache(api).list(services.row().storage_prefix, 0).objects;
    for service in all.iter().map(|object| object.value()) {
        for address in cluster_ips(&service) {
            publish(api, &address, &service).await;
        }
    }
    let published = addresses.cache(api).list(addresses.row().storage_prefix, 0).objects;
    for object in published.iter().map(|object| addresses.value(object)) {
        let is_ours = Metadata::of(&object).label("ipaddress.kubernetes.io/managed-by") == Some(MANAGER);
        let parent = |field: &str| text(&object, &format!("/spec/parentRef/{field}")).to_owned();
        let service = services.cache(api).get(&services.key(&parent("namespace"), &parent("name")));
        let name = Metadata::of(&object).name().to_owned();
        let is_held = service.is_some_and(|service| cluster_ips(&service.value()).contains(&name));
        if is_ours && !is_held {
            withdraw(api, &name).await;
        }
    }
}

async fn settle(api: &Api, services: Kind, event: &CacheEvent) {
    let is_gone = event.event_type == crate::cache::EventType::Deleted;
    let new = if is_gone { Value::Null } else { services.value(&event.object) };
    let old = match &event.previous {
        Some(previous) => services.value(previous),
        None if is_gone => services.value(&event.object),
        None => Value::Null,
    };
    let kept = held(&new);
    let freed: Vec<Held> = held(&old).into_iter().filter(|item| !kept.contains(item)).collect();
    for item in &freed {
        if let Held::Address(address) = item {
            withdraw(api, &address.to_string()).await;
        }
    }
    api.services.release_of(&event.object.key, &freed);
    let before = cluster_ips(&old);
    for address in cluster_ips(&new).iter().filter(|address| !before.contains(address)) {
        publish(api, address, &new).await;
    }
}

fn cluster_ips(service: &Value) -> Vec<String> {
    let addresses = held(service).into_iter().filter_map(|item| match item {
        Held::Address(address) => Some(address.to_string()),
        Held::Port(_) => None,
    });
    addresses.collect()
}

async fn publish(api: &Api, address: &str, service: &Value) {
    let metadata = Metadata::of(service);
    let object = json!({
        "metadata": {
            "name": address,
            "labels": {
                "ipaddress.kubernetes.io/ip-family": "IPv4",
                "ipaddress.kubernetes.io/managed-by": MANAGER,
            },
        },
        "spec": {"parentRef": {
            "group": "",
            "resource": "services",
            "namespace": metadata.namespace(),
            "name": metadata.name(),
        }},
    });
    if let Err(failure) = bootstrap::ensure(api, GROUP, "v1", "ipaddresses", "", object).await {
        warn!(address, %failure, "an address could not be published");
    }
}

async fn withdraw(api: &Api, address: &str) {
    let object = json!({"metadata": {"name": address}});
    let resource = (GROUP, "v1", "ipaddresses");
    let verb = crate::request_info::Verb::Delete;
    let Some((request, _)) = bootstrap::request(api, resource, "", object, verb) else { return };
    match delete::delete_object(api, &request, &DeleteOptions::default()).await {
        Ok(_) => {}
        Err(failure) if failure.reason == "NotFound" => {}
        Err(failure) => warn!(address, %failure, "an address could not be withdrawn"),
    }
}
