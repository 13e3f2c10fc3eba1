//! Cluster IPs: who makes the IPAddress object that is named by an address has the address.
//!
//! The store lets only one of two make it, whichever API server they came through.
//! Source: `pkg/registry/core/service/ipallocator`, KEP-1880.

use std::net::IpAddr;

use machinery::metadata::Metadata;
use machinery::net::Family;
use serde_json::{Value, json};
use tracing::warn;

use super::ranges::{self, Range};
use crate::admission::{Context, Effect};
use crate::kinds::{GroupVersionResource, Kind};
use crate::status::{Error, Result};
use crate::tree::text;
use crate::write::Writer;

const GROUP: &str = "networking.k8s.io";
const RESOURCE: GroupVersionResource<'_> = GroupVersionResource::new(GROUP, "v1", "ipaddresses");
const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
const FAMILY: &str = "ipaddress.kubernetes.io/ip-family";
const MANAGER: &str = "ipallocator.k8s.io";

/// The IPAddress that says that a Service has `address`.
pub(super) fn object(address: IpAddr, namespace: &str, name: &str) -> Value {
    json!({
        "metadata": {
            "name": address.to_string(),
            "labels": {FAMILY: Family::of(address).as_str(), MANAGED_BY: MANAGER},
        },
        "spec": {"parentRef": {"group": "", "resource": "services", "namespace": namespace, "name": name}},
    })
}

/// Whether Services have made this IPAddress.
pub(super) fn is_managed(object: &Value) -> bool {
    Metadata::of(object).label(MANAGED_BY) == Some(MANAGER)
}

/// Whether its labels are those of [`object`].
pub(super) fn has_labels(object: &Value) -> bool {
    let family = Metadata::of(object).name().parse().map(|address| Family::of(address).as_str());
    is_managed(object) && family.ok() == Metadata::of(object).label(FAMILY)
}

/// The Service that an IPAddress says has it.
pub(super) fn parent(object: &Value) -> Option<(&str, &str)> {
    let of = |field: &str| text(object, &format!("/spec/parentRef/{field}"));
    (of("group").is_empty() && of("resource") == "services").then(|| (of("namespace"), of("name")))
}

pub(super) fn kind(writer: &Writer) -> Option<&Kind> {
    writer.kind(GROUP, "v1", "ipaddresses")
}

/// The cached ServiceCIDRs.
pub(super) fn service_cidrs(writer: &Writer) -> Vec<Value> {
    let Some(kind) = writer.kind(GROUP, "v1", "servicecidrs") else { return Vec::new() };
    kind.cache().list(kind.prefix(), 0).objects.iter().map(|one| kind.value(one)).collect()
}

/// Makes an IPAddress.
pub(super) async fn make(writer: &Writer, object: Value) -> Result<()> {
    writer.loopback.create(writer, RESOURCE, "", object).await
}

/// Removes an IPAddress.
pub(super) async fn unmake(writer: &Writer, name: &str) -> Result<()> {
    match writer.loopback.delete(writer, RESOURCE, ("", name)).await {
        Err(failure) if failure.reason != "NotFound" => Err(failure),
        _ => Ok(()),
    }
}

/// Gives an address back that a Service had, unless another one has it by now.
pub(super) async fn release(writer: &Writer, address: IpAddr, (namespace, name): (&str, &str)) {
    let found = kind(writer).and_then(|kind| kind.cache().get(&kind.key("", &address.to_string())));
    let is_others = found.is_some_and(|found| {
        let found = found.value();
        parent(&found).is_some_and(|parent| parent != (namespace, name))
    });
    if is_others {
        return;
    }
    if let Err(failure) = unmake(writer, &address.to_string()).await {
        warn!(%address, %failure, "an address could not be given back; it will be when it is missed");
    }
}

/// Takes the address `wanted` for a Service; the error is upstream's word for why not.
pub(super) async fn take(
    (writer, context): (&Writer, &Context<'_>),
    service: (&str, &str),
    wanted: IpAddr,
) -> Result<Result<(), &'static str>> {
    let ranges = ranges::offered(service_cidrs(writer).iter());
    if !ranges.iter().any(|range| range.has(wanted)) {
        return Ok(Err("the provided network does not match the current range"));
    }
    let is_taken = if context.effect == Effect::DryRun {
        is_known(writer, wanted)
    } else {
        !claim(writer, service, wanted).await?
    };
    Ok(if is_taken { Err("provided IP is already allocated") } else { Ok(()) })
}

/// Takes any address of a family for a Service.
pub(super) async fn take_any(
    writer: &Writer,
    context: &Context<'_>,
    service: (&str, &str),
    family: Family,
) -> Result<IpAddr> {
    let ranges = ranges::offered(service_cidrs(writer).iter());
    for range in ranges.iter().filter(|range| range.family() == family) {
        if let Some(address) = take_from(writer, context, service, range).await? {
            return Ok(address);
        }
    }
    Err(Error::internal("failed to allocate a serviceIP: range is full"))
}

async fn take_from(
    writer: &Writer,
    context: &Context<'_>,
    service: (&str, &str),
    range: &Range,
) -> Result<Option<IpAddr>> {
    for address in range.candidates(&writer.random) {
        if is_known(writer, address) {
            continue;
        }
        if context.effect == Effect::DryRun || claim(writer, service, address).await? {
            return Ok(Some(address));
        }
    }
    Ok(None)
}

fn is_known(writer: &Writer, address: IpAddr) -> bool {
    kind(writer).is_some_and(|kind| kind.cache().get(&kind.key("", &address.to_string())).is_some())
}

async fn claim(writer: &Writer, (namespace, name): (&str, &str), address: IpAddr) -> Result<bool> {
    match make(writer, object(address, namespace, name)).await {
        Ok(()) => Ok(true),
        Err(failure) if failure.reason == "AlreadyExists" => Ok(false),
        Err(failure) => Err(failure),
    }
}
