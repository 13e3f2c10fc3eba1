//! The default ServiceCIDR of a new cluster: the range of service addresses.

use machinery::metadata::{self, Metadata};
use serde_json::{Value, json};
use tracing::warn;

use crate::api::Api;
use crate::kinds::{GroupVersionResource, Part};
use crate::request::of_server;
use crate::request_info::Verb;
use crate::status::Result;
use crate::write::Decoded;
use crate::write::change::change;
use crate::write::loopback::ensure;

const DEFAULT: &str = "kubernetes";

const EVENTS: GroupVersionResource<'_> = GroupVersionResource::new("events.k8s.io", "v1", "events");
const SERVICE_CIDRS: GroupVersionResource<'_> =
    GroupVersionResource::new("networking.k8s.io", "v1", "servicecidrs");

/// Makes the range of service addresses, or adds the second family to it, and says that addresses can be had from it.
///
/// # Errors
/// When the store or the cache fail.
pub(super) async fn service_range(api: &Api) -> Result<()> {
    let ranges: Vec<String> = api.config.service_cidrs.iter().map(|range| range.to_string()).collect();
    let object = json!({"metadata": {"name": DEFAULT}, "spec": {"cidrs": ranges}});
    ensure(api, SERVICE_CIDRS, "", object.clone()).await?;
    widen_service_range(api, object.clone(), &ranges).await?;
    service_range_is_ready(api, object).await
}

/// What is to be done about a range that is there.
#[derive(Debug, PartialEq, Eq)]
enum Difference {
    /// It is what the flags say.
    Nothing,
    /// The cluster has become one of both families.
    SecondFamily,
    /// Anything else: Services keep the addresses that they have.
    Other,
}

fn difference(has: &[&str], wanted: &[String]) -> Difference {
    match (has, wanted) {
        (has, wanted) if has.iter().eq(wanted) => Difference::Nothing,
        ([one], [first, _]) if one == first => Difference::SecondFamily,
        _ => Difference::Other,
    }
}

/// Source: `pkg/controlplane/controller/defaultservicecidr`.
async fn widen_service_range(api: &Api, object: Value, ranges: &[String]) -> Result<()> {
    let Some((request, _)) = of_server(api, SERVICE_CIDRS, "", object, Verb::Update) else { return Ok(()) };
    api.cache.fresh().await?;
    let Some(known) = request.kind.cache().get(&request.key()).map(|known| known.value()) else {
        return Ok(());
    };
    let has = known.pointer("/spec/cidrs").and_then(Value::as_array).into_iter().flatten();
    let has: Vec<&str> = has.filter_map(Value::as_str).collect();
    match difference(&has, ranges) {
        Difference::Nothing => return Ok(()),
        Difference::Other => {
            tell_of_difference(api, &known, &has, ranges).await;
            return Ok(());
        }
        Difference::SecondFamily => {}
    }
    let widened = change(api, &request, Part::Object, |old| {
        let mut new = old.clone();
        metadata::remove(&mut new, "resourceVersion");
        if let Some(cidrs) = new.pointer_mut("/spec/cidrs") {
            *cidrs = json!(ranges);
        }
        Ok(Decoded::of_server(new))
    });
    Box::pin(widened).await.map(drop)
}

/// Services keep the addresses that they have, and new ones get those of the range that is there.
///
/// Source: the event `KubernetesDefaultServiceCIDRInconsistent` of `pkg/controlplane/controller/defaultservicecidr`.
async fn tell_of_difference(api: &Api, range: &Value, has: &[&str], ranges: &[String]) {
    warn!(?has, flags = ?ranges, "the default ServiceCIDR does not match the flags; it stays as it is");
    let (about, now) = (Metadata::of(range), api.clock.now());
    let note = format!(
        "The default ServiceCIDR [{}] does not match the flag configurations [{}]",
        has.join(" "),
        ranges.join(" ")
    );
    let event = json!({
        "metadata": {"name": format!("{DEFAULT}.{:x}", now.as_nanosecond()), "namespace": "default"},
        "eventTime": metadata::micro_time(now),
        "reportingController": "kubernetes-default-service-cidr-controller",
        "reportingInstance": "kubernetes-default-service-cidr-controller",
        "action": "ServiceCIDRCheck",
        "reason": "KubernetesDefaultServiceCIDRInconsistent",
        "type": "Warning",
        "note": note,
        "regarding": {
            "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "name": about.name(), "uid": about.uid(),
        },
    });
    if let Err(failure) = ensure(api, EVENTS, "default", event).await {
        warn!(%failure, "the event could not be recorded");
    }
}

async fn service_range_is_ready(api: &Api, range: Value) -> Result<()> {
    let Some((request, _)) = of_server(api, SERVICE_CIDRS, "", range, Verb::Update) else { return Ok(()) };
    let request = request.below("status");
    api.cache.fresh().await?;
    let is_ready = |range: &Value| range.pointer("/status/conditions/0").is_some();
    if request.kind.cache().get(&request.key()).is_some_and(|range| is_ready(&range.value())) {
        return Ok(());
    }
    let condition = json!({
        "type": "Ready",
        "status": "True",
        "reason": "",
        "message": "Kubernetes default Service CIDR is ready",
        "lastTransitionTime": metadata::time(api.clock.now()),
    });
    change(api, &request, Part::Status, |old| {
        let mut new = old.clone();
        metadata::remove(&mut new, "resourceVersion");
        if let Some(map) = new.as_object_mut() {
            map.insert("status".to_owned(), json!({"conditions": [condition]}));
        }
        Ok(Decoded::of_server(new))
    })
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_second_family_comes_by_itself() {
        let check = |has: &[&str], wanted: &[&str], expect: Difference| {
            let texts: Vec<String> = wanted.iter().map(|text| (*text).to_owned()).collect();
            assert_eq!(difference(has, &texts), expect, "{has:?} {wanted:?}");
        };
        let (v4, v6) = ("10.43.0.0/16", "fd43::/112");
        check(&[v4], &[v4], Difference::Nothing);
        check(&[v4, v6], &[v4, v6], Difference::Nothing);
        check(&[v4], &[v4, v6], Difference::SecondFamily);
        check(&[v6], &[v6, v4], Difference::SecondFamily);
        check(&[v4], &[v6, v4], Difference::Other);
        check(&[v4], &[v6], Difference::Other);
        check(&[v4, v6], &[v4], Difference::Other);
        check(&["10.44.0.0/16"], &[v4, v6], Difference::Other);
        check(&[], &[v4], Difference::Other);
    }
}
