//! Cluster IPs and node ports: each belongs to one Service.
//!
//! What is held is rebuilt from the cached Services at the start, so there is no second record that could disagree.
//! Source: `pkg/registry/core/service/storage/alloc.go`, `ipallocator`, `portallocator`.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use machinery::field::{FieldError, Path};
use machinery::metadata::Metadata;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{Context, Operation, child, text};
use crate::api::{Api, Cidr, PortRange};
use crate::kinds::Kind;
use crate::status::{Error, Result};

/// How often chance is asked for a free address before all are tried in order.
const RANDOM_TRIES: usize = 16;

/// What a Service can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Held {
    /// A cluster IP.
    Address(Ipv4Addr),
    /// A node port.
    Port(u16),
}

/// Who holds what.
#[derive(Debug)]
pub struct Allocator {
    cidr: Cidr,
    ports: PortRange,
    owners: Mutex<HashMap<Held, String>>,
}

impl Allocator {
    /// Nothing is held yet.
    pub fn new(cidr: Cidr, ports: PortRange) -> Self {
        Self { cidr, ports, owners: Mutex::default() }
    }

    /// Takes over what the cached Services hold.
    pub fn load(&self, api: &Api) {
        let Some(kind) = Kind::find("", "v1", "services") else { return };
        let mut owners = self.owners.lock();
        for object in kind.cache(api).list(kind.row().storage_prefix, 0).objects {
            for item in held(&object.value()) {
                owners.insert(item, object.key.to_string());
            }
        }
    }

    /// Gives back.
    pub fn release(&self, items: &[Held]) {
        let mut owners = self.owners.lock();
        for item in items {
            owners.remove(item);
        }
    }

    fn take(&self, item: Held, key: &str, still_holds: &dyn Fn(&str, Held) -> bool) -> bool {
        let mut owners = self.owners.lock();
        match owners.get(&item) {
            Some(owner) if owner != key && still_holds(owner, item) => false,
            _ => {
                owners.insert(item, key.to_owned());
                true
            }
        }
    }

    fn is_free(&self, item: Held) -> bool {
        !self.owners.lock().contains_key(&item)
    }

    fn next(&self, candidates: u64, random: &base::Random, at: &dyn Fn(u64) -> Option<Held>) -> Option<Held> {
        let chance = (0..RANDOM_TRIES).map(|_| random.below(candidates));
        chance.chain(0..candidates).filter_map(at).find(|item| self.is_free(*item))
    }
}

/// What a Service object holds.
pub fn held(service: &Value) -> Vec<Held> {
    let addresses = service.pointer("/spec/clusterIPs").and_then(Value::as_array).into_iter().flatten();
    let one = service.pointer("/spec/clusterIP");
    let mut items: Vec<Held> = Vec::new();
    for address in addresses.chain(one).filter_map(Value::as_str).filter_map(|a| a.parse().ok()) {
        if !items.contains(&Held::Address(address)) {
            items.push(Held::Address(address));
        }
    }
    let ports = service.pointer("/spec/ports").and_then(Value::as_array).into_iter().flatten();
    let numbers = ports
        .filter_map(|p| p.get("nodePort")?.as_u64())
        .chain(service.pointer("/spec/healthCheckNodePort").and_then(Value::as_u64));
    items.extend(numbers.filter(|n| *n > 0).filter_map(|n| u16::try_from(n).ok()).map(Held::Port));
    items
}

/// Gives a Service the addresses and ports it needs; answers what was newly taken.
///
/// # Errors
/// 422 when something is taken or outside of the range.
pub(super) fn allocate(context: &Context<'_>, service: &mut Value) -> Result<Vec<Held>> {
    let kind = &context.request.kind;
    let is_service = kind.group().is_empty() && kind.resource() == "services";
    if !is_service
        || context.operation == Operation::Delete
        || !context.request.resource.subresource.is_empty()
    {
        return Ok(Vec::new());
    }
    let mut taken = Vec::new();
    let outcome = allocate_address(context, service, &mut taken)
        .and_then(|()| allocate_ports(context, service, &mut taken));
    if context.request.is_dry_run() || outcome.is_err() {
        context.api.services.release(&taken);
        taken.clear();
    }
    outcome.map(|()| taken)
}

fn invalid(service: &Value, error: FieldError) -> Error {
    let subject = crate::status::Subject { group: "", resource: "Service" };
    Error::invalid(subject, Metadata::of(service).name(), &vec![error])
}

fn still_holds(context: &Context<'_>, owner: &str, item: Held) -> bool {
    let cache = context.request.kind.cache(context.api);
    cache.get(owner).is_none_or(|object| held(&object.value()).contains(&item))
}

fn claim(context: &Context<'_>, service: &Value, item: Held, taken: &mut Vec<Held>) -> bool {
    let key = context.request.kind.key(Metadata::of(service).namespace(), Metadata::of(service).name());
    if context.old.is_some_and(|old| held(old).contains(&item)) {
        return true;
    }
    let is_taken = context.api.services.take(item, &key, &|owner, item| still_holds(context, owner, item));
    if is_taken {
        taken.push(item);
    }
    is_taken
}

fn allocate_address(context: &Context<'_>, service: &mut Value, taken: &mut Vec<Held>) -> Result<()> {
    if text(service, "/spec/type") == "ExternalName" {
        return Ok(());
    }
    let old_address = context.old.map(|old| text(old, "/spec/clusterIP").to_owned()).unwrap_or_default();
    let wanted = match text(service, "/spec/clusterIP") {
        "" => {
            service.pointer("/spec/clusterIPs/0").and_then(Value::as_str).unwrap_or(&old_address).to_owned()
        }
        given => given.to_owned(),
    };
    let address = match wanted.as_str() {
        "None" => "None".to_owned(),
        "" => next_address(context, service, taken)?,
        given => take_address(context, service, given, taken)?,
    };
    let Some(spec) = child(service, "spec") else { return Ok(()) };
    spec.insert("clusterIP".to_owned(), address.clone().into());
    spec.insert("clusterIPs".to_owned(), json!([address]));
    spec.entry("ipFamilies").or_insert_with(|| json!(["IPv4"]));
    spec.entry("ipFamilyPolicy").or_insert_with(|| json!("SingleStack"));
    Ok(())
}

fn take_address(
    context: &Context<'_>,
    service: &Value,
    given: &str,
    taken: &mut Vec<Held>,
) -> Result<String> {
    let path = Path::new("spec").child("clusterIPs").index(0);
    let Ok(address) = given.parse::<Ipv4Addr>() else {
        let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        return Err(invalid(service, FieldError::invalid(&path, given, why)));
    };
    let path = Path::new("spec").child("clusterIPs");
    let shown = json!([given]);
    if !context.api.services.cidr.contains(address) {
        let why = format!(
            "failed to allocate IP {given}: the provided IP ({given}) is not in the valid range. The range of valid IPs is {}",
            context.api.services.cidr
        );
        return Err(invalid(service, FieldError::invalid(&path, &shown, &why)));
    }
    if !claim(context, service, Held::Address(address), taken) {
        let why = format!("failed to allocate IP {given}: provided IP is already allocated");
        return Err(invalid(service, FieldError::invalid(&path, &shown, &why)));
    }
    Ok(given.to_owned())
}

fn next_address(context: &Context<'_>, service: &Value, taken: &mut Vec<Held>) -> Result<String> {
    let allocator = &context.api.services;
    let cidr = allocator.cidr;
    // The lower band is for addresses that users choose.
    let band = (cidr.size() / 16).clamp(16, 256).min(cidr.size() / 2);
    let count = cidr.size().saturating_sub(band + 1);
    let at = |n: u64| cidr.nth(band + n).map(Held::Address);
    while let Some(Held::Address(address)) = allocator.next(count, &context.api.random, &at) {
        if claim(context, service, Held::Address(address), taken) {
            return Ok(address.to_string());
        }
    }
    let path = Path::new("spec").child("clusterIPs");
    Err(invalid(service, FieldError::internal(&path, "failed to allocate a serviceIP: range is full")))
}

fn allocate_ports(context: &Context<'_>, service: &mut Value, taken: &mut Vec<Held>) -> Result<()> {
    let service_type = text(service, "/spec/type").to_owned();
    let wants_ports = match service_type.as_str() {
        "NodePort" => true,
        "LoadBalancer" => {
            service.pointer("/spec/allocateLoadBalancerNodePorts").and_then(Value::as_bool).unwrap_or(true)
        }
        _ => false,
    };
    if !wants_ports {
        return Ok(());
    }
    let count = service.pointer("/spec/ports").and_then(Value::as_array).map_or(0, Vec::len);
    for index in 0..count {
        let Some(port) = service.pointer(&format!("/spec/ports/{index}")).cloned() else { continue };
        let given = port.get("nodePort").and_then(Value::as_u64).filter(|n| *n > 0);
        let number = match given.or_else(|| old_port(context, &port)) {
            Some(number) => take_port(context, service, index, number, taken)?,
            None => next_port(context, service, index, taken)?,
        };
        if let Some(port) =
            service.pointer_mut(&format!("/spec/ports/{index}")).and_then(Value::as_object_mut)
        {
            port.insert("nodePort".to_owned(), number.into());
        }
    }
    Ok(())
}

/// The node port that the same port had before.
fn old_port(context: &Context<'_>, port: &Value) -> Option<u64> {
    let ports = context.old?.pointer("/spec/ports")?.as_array()?;
    let same = ports
        .iter()
        .find(|old| old.get("port") == port.get("port") && old.get("protocol") == port.get("protocol"))?;
    same.get("nodePort")?.as_u64().filter(|n| *n > 0)
}

fn take_port(
    context: &Context<'_>,
    service: &Value,
    index: usize,
    number: u64,
    taken: &mut Vec<Held>,
) -> Result<u16> {
    let path = Path::new("spec").child("ports").index(index).child("nodePort");
    let shown = Value::from(number);
    let range = context.api.services.ports;
    let Some(port) = u16::try_from(number).ok().filter(|port| range.contains(*port)) else {
        let why = format!("provided port is not in the valid range. The range of valid ports is {range}");
        return Err(invalid(service, FieldError::invalid(&path, &shown, &why)));
    };
    // One number may serve two protocols of one Service.
    if taken.contains(&Held::Port(port)) || claim(context, service, Held::Port(port), taken) {
        return Ok(port);
    }
    Err(invalid(service, FieldError::invalid(&path, &shown, "provided port is already allocated")))
}

fn next_port(context: &Context<'_>, service: &Value, index: usize, taken: &mut Vec<Held>) -> Result<u16> {
    let allocator = &context.api.services;
    let range = allocator.ports;
    let at = |n: u64| u16::try_from(n).ok().and_then(|n| range.first.checked_add(n)).map(Held::Port);
    let count = u64::from(range.last.saturating_sub(range.first)) + 1;
    while let Some(Held::Port(port)) = allocator.next(count, &context.api.random, &at) {
        if claim(context, service, Held::Port(port), taken) {
            return Ok(port);
        }
    }
    let path = Path::new("spec").child("ports").index(index).child("nodePort");
    Err(invalid(service, FieldError::internal(&path, "failed to allocate a nodePort: range is full")))
}
