//! Cluster IPs and node ports: each belongs to one Service.
//!
//! What is held is rebuilt from the cached Services at the start, so there is no second record that could disagree.
//! Source: `pkg/registry/core/service/storage/alloc.go`, `ipallocator`, `portallocator`.

pub mod published;

use std::collections::HashMap;
use std::net::Ipv4Addr;

use jiff::{SignedDuration, Timestamp};
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
/// How long something stays taken for a Service that is not seen to have it: longer than any request may take.
const UNDER_WAY: SignedDuration = SignedDuration::from_secs(70);

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
    owners: Mutex<HashMap<Held, Owner>>,
}

/// Who took something, and when.
#[derive(Debug)]
struct Owner {
    key: String,
    at: Timestamp,
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
                owners.insert(item, Owner { key: object.key.to_string(), at: api.clock.now() });
            }
        }
    }

    /// Gives back what this Service held, and nobody else has taken since.
    pub fn release_of(&self, key: &str, items: &[Held]) {
        let mut owners = self.owners.lock();
        for item in items {
            if owners.get(item).is_some_and(|owner| owner.key == key) {
                owners.remove(item);
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

    /// Takes something for the Service `key`, unless another one has it, or is about to.
    fn take(&self, item: Held, owner: Owner, still_holds: &dyn Fn(&Owner, Held) -> bool) -> bool {
        let mut owners = self.owners.lock();
        if owners.get(&item).is_some_and(|held_by| still_holds(held_by, item)) {
            return false;
        }
        owners.insert(item, owner);
        true
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
        .and_then(|()| allocate_ports(context, service, &mut taken))
        .and_then(|()| allocate_health_check_port(context, service, &mut taken));
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

/// Whether somebody has something: by what is stored, or because their request is still under way.
fn still_holds(context: &Context<'_>, owner: &Owner, item: Held) -> bool {
    let stored = context.request.kind.cache(context.api).get(&owner.key);
    let is_stored = stored.is_some_and(|object| held(&object.value()).contains(&item));
    is_stored || owner.at + UNDER_WAY > context.api.clock.now()
}

fn claim(context: &Context<'_>, service: &Value, item: Held, taken: &mut Vec<Held>) -> bool {
    let key = context.request.kind.key(Metadata::of(service).namespace(), Metadata::of(service).name());
    if context.old.is_some_and(|old| held(old).contains(&item)) {
        return true;
    }
    let owner = Owner { key, at: context.api.clock.now() };
    let is_taken = context.api.services.take(item, owner, &|owner, item| still_holds(context, owner, item));
    if is_taken {
        taken.push(item);
    }
    is_taken
}

fn allocate_address(context: &Context<'_>, service: &mut Value, taken: &mut Vec<Held>) -> Result<()> {
    if text(service, "/spec/type") == "ExternalName" {
        let_go(context, service);
        return Ok(());
    }
    check_families(service)?;
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
    // Without a selector and without an address, endpoints of both families may be written by hand.
    let has_selector = spec.get("selector").and_then(Value::as_object).is_some_and(|all| !all.is_empty());
    let is_free = address == "None" && !has_selector;
    let is_unset = |value: Option<&Value>| {
        value.is_none_or(|value| value.is_null() || value.as_array().is_some_and(Vec::is_empty))
    };
    if is_unset(spec.get("ipFamilyPolicy")) {
        let policy = if is_free { "RequireDualStack" } else { "SingleStack" };
        spec.insert("ipFamilyPolicy".to_owned(), policy.into());
    }
    if is_unset(spec.get("ipFamilies")) {
        spec.insert("ipFamilies".to_owned(), json!(["IPv4"]));
    }
    let is_single = spec.get("ipFamilyPolicy").is_some_and(|policy| policy == "SingleStack");
    if is_free
        && !is_single
        && let Some(families) = spec.get_mut("ipFamilies").and_then(Value::as_array_mut)
        && let [one] = families.as_slice()
    {
        let other = if one == "IPv4" { "IPv6" } else { "IPv4" };
        families.push(other.into());
    }
    Ok(())
}

/// A Service that becomes an ExternalName gives up what it had, unless its writer says otherwise.
fn let_go(context: &Context<'_>, service: &mut Value) {
    let Some(old) = context.old.filter(|old| text(old, "/spec/type") != "ExternalName") else { return };
    let is_same = |field: &str, new: &Value| {
        let pointer = format!("/spec/{field}");
        new.pointer(&pointer) == old.pointer(&pointer)
    };
    let dropped: Vec<&str> =
        ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort"]
            .into_iter()
            .filter(|field| is_same(field, service))
            .collect();
    let old_ports = held(old);
    let Some(spec) = child(service, "spec") else { return };
    for field in dropped {
        spec.remove(field);
    }
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let number = port.get("nodePort").and_then(Value::as_u64).and_then(|n| u16::try_from(n).ok());
        let was_held = number.is_some_and(|number| old_ports.contains(&Held::Port(number)));
        if let Some(port) = port.as_object_mut().filter(|_| was_held) {
            port.remove("nodePort");
        }
    }
}

/// Only families that the cluster has addresses of can be asked for.
fn check_families(service: &Value) -> Result<()> {
    let is_headless = text(service, "/spec/clusterIP") == "None";
    let selector = service.pointer("/spec/selector").and_then(Value::as_object);
    if is_headless && selector.is_none_or(serde_json::Map::is_empty) {
        return Ok(());
    }
    let spec = Path::new("spec");
    if text(service, "/spec/ipFamilyPolicy") == "RequireDualStack" {
        let why = "this cluster is not configured for dual-stack services";
        return Err(invalid(
            service,
            FieldError::invalid(&spec.child("ipFamilyPolicy"), "RequireDualStack", why),
        ));
    }
    let families = service.pointer("/spec/ipFamilies").and_then(Value::as_array).into_iter().flatten();
    for (index, family) in families.filter_map(Value::as_str).enumerate() {
        if family == "IPv6" {
            let path = spec.child("ipFamilies").index(index);
            return Err(invalid(
                service,
                FieldError::invalid(&path, family, "not configured on this cluster"),
            ));
        }
    }
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
        let path = Path::new("spec").child("ports").index(index).child("nodePort");
        let number = match given.or_else(|| old_port(context, &port)) {
            Some(number) => take_port(context, service, &path, number, taken)?,
            None => next_port(context, service, &path, taken)?,
        };
        if let Some(port) =
            service.pointer_mut(&format!("/spec/ports/{index}")).and_then(Value::as_object_mut)
        {
            port.insert("nodePort".to_owned(), number.into());
        }
    }
    Ok(())
}

/// Where load balancers ask which nodes have endpoints, for Services that want their traffic to stay on the node.
fn allocate_health_check_port(
    context: &Context<'_>,
    service: &mut Value,
    taken: &mut Vec<Held>,
) -> Result<()> {
    let is_local = text(service, "/spec/externalTrafficPolicy") == "Local";
    if text(service, "/spec/type") != "LoadBalancer" || !is_local {
        return Ok(());
    }
    let path = Path::new("spec").child("healthCheckNodePort");
    let given = service.pointer("/spec/healthCheckNodePort").and_then(Value::as_u64).filter(|n| *n > 0);
    let number = match given {
        Some(number) => take_port(context, service, &path, number, taken)?,
        None => next_port(context, service, &path, taken)?,
    };
    if let Some(spec) = child(service, "spec") {
        spec.insert("healthCheckNodePort".to_owned(), number.into());
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
    path: &Path,
    number: u64,
    taken: &mut Vec<Held>,
) -> Result<u16> {
    let shown = Value::from(number);
    let range = context.api.services.ports;
    let Some(port) = u16::try_from(number).ok().filter(|port| range.contains(*port)) else {
        let why = format!("provided port is not in the valid range. The range of valid ports is {range}");
        return Err(invalid(service, FieldError::invalid(path, &shown, &why)));
    };
    // One number may serve two protocols of one Service.
    if taken.contains(&Held::Port(port)) || claim(context, service, Held::Port(port), taken) {
        return Ok(port);
    }
    Err(invalid(service, FieldError::invalid(path, &shown, "provided port is already allocated")))
}

fn next_port(context: &Context<'_>, service: &Value, path: &Path, taken: &mut Vec<Held>) -> Result<u16> {
    let allocator = &context.api.services;
    let range = allocator.ports;
    let at = |n: u64| u16::try_from(n).ok().and_then(|n| range.first.checked_add(n)).map(Held::Port);
    let count = u64::from(range.last.saturating_sub(range.first)) + 1;
    while let Some(Held::Port(port)) = allocator.next(count, &context.api.random, &at) {
        if claim(context, service, Held::Port(port), taken) {
            return Ok(port);
        }
    }
    Err(invalid(service, FieldError::internal(path, "failed to allocate a nodePort: range is full")))
}
