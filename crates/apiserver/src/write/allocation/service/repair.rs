//! Keeps addresses, node ports and Services in step: what a crash, an older version or somebody's hand left behind is
//! put right, and said in an Event.
//!
//! Follows the watch cache: at the start everything is looked at, then what changes. What is taken but belongs to
//! nobody may belong to a Service that is about to be stored: it is given back only after [`UNDER_WAY`].
//! Source: `pkg/registry/core/service/ipallocator/controller/repairip.go`, `portallocator/controller/repair.go`.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use machinery::metadata::{self, Metadata};
use machinery::net::Family;
use serde_json::{Value, json};
use tracing::warn;

use super::{Held, addresses, ports, ranges, services};
use crate::cache::watcher_index::IndexKey;
use crate::cache::{CacheEvent, EventType};
use crate::kinds::GroupVersionResource;
use crate::status::{Error, Result};
use crate::tree::text;
use crate::write::Writer;

/// Longer than any request may take.
const UNDER_WAY: SignedDuration = SignedDuration::from_secs(60);
/// How long a repair that failed waits for the next try.
const RETRY: Duration = Duration::from_secs(5);

/// Follows for ever, once the first objects are there.
pub async fn follow(writer: &Writer) {
    loop {
        if let Err(failure) = follow_once(writer).await {
            warn!(%failure, "service addresses could not be repaired; it is tried again");
            tokio::time::sleep(RETRY).await;
        }
    }
}

/// What is taken but belongs to nobody, and until when it may still find its Service.
#[derive(Debug, Default)]
struct Suspects {
    addresses: BTreeMap<IpAddr, Timestamp>,
    ports: BTreeMap<u16, Timestamp>,
}

impl Suspects {
    fn first_due(&self) -> Option<Timestamp> {
        self.addresses.values().chain(self.ports.values()).min().copied()
    }
}

async fn follow_once(writer: &Writer) -> Result<()> {
    let (Some(services), Some(addresses)) = (writer.kind("", "v1", "services"), addresses::kind(writer))
    else {
        return Err(Error::internal("Services or IPAddresses are not served"));
    };
    let revision = writer.cache.revision();
    let mut of_services = services.cache().watch(revision, IndexKey::Everything);
    let mut of_addresses = addresses.cache().watch(revision, IndexKey::Everything);
    let mut of_ports = writer.cache.resource(ports::PREFIX).watch(revision, IndexKey::Everything);
    let mut suspects = Suspects::default();
    check_everything(writer, &mut suspects).await?;
    loop {
        let due = suspects.first_due();
        tokio::select! {
            events = of_services.next() => {
                for event in events? {
                    check_service(writer, &event.object.value()).await?;
                }
            }
            events = of_addresses.next() => {
                for event in events? {
                    address_changed(writer, &event, &mut suspects).await?;
                }
            }
            events = of_ports.next() => {
                events?;
                check_ports(writer, &mut suspects).await?;
            }
            () = until(writer, due) => look_again(writer, &mut suspects).await?,
        }
    }
}

async fn until(writer: &Writer, due: Option<Timestamp>) {
    let Some(due) = due else { return std::future::pending().await };
    let left = due.duration_since(writer.clock.now());
    tokio::time::sleep(Duration::try_from(left).unwrap_or_default()).await;
}

async fn check_everything(writer: &Writer, suspects: &mut Suspects) -> Result<()> {
    for service in services(writer).collect::<Vec<_>>() {
        check_service(writer, &service).await?;
    }
    let Some(kind) = addresses::kind(writer) else { return Ok(()) };
    for object in kind.cache().list(kind.prefix(), 0).objects {
        check_address(writer, &kind.value(&object), suspects).await?;
    }
    check_ports(writer, suspects).await
}

async fn look_again(writer: &Writer, suspects: &mut Suspects) -> Result<()> {
    let now = writer.clock.now();
    let due: Vec<IpAddr> =
        suspects.addresses.iter().filter(|(_, at)| **at <= now).map(|(address, _)| *address).collect();
    for address in due {
        suspects.addresses.remove(&address);
        if let Some(object) = find(writer, address) {
            check_address(writer, &object, suspects).await?;
        }
    }
    check_ports(writer, suspects).await
}

async fn address_changed(writer: &Writer, event: &CacheEvent, suspects: &mut Suspects) -> Result<()> {
    let object = event.object.value();
    if event.event_type != EventType::Deleted {
        return check_address(writer, &object, suspects).await;
    }
    // Whoever took it away may have taken it from a Service.
    let Some((namespace, name)) = addresses::parent(&object) else { return Ok(()) };
    match service(writer, namespace, name) {
        Some(service) => check_service(writer, &service).await,
        None => Ok(()),
    }
}

fn find(writer: &Writer, address: IpAddr) -> Option<Value> {
    let kind = addresses::kind(writer)?;
    kind.cache().get(&kind.key("", &address.to_string())).map(|object| kind.value(&object))
}

fn service(writer: &Writer, namespace: &str, name: &str) -> Option<Value> {
    let kind = writer.kind("", "v1", "services")?;
    kind.cache().get(&kind.key(namespace, name)).map(|object| object.value())
}

/// What is wrong with the record of a Service's address.
#[derive(Debug, PartialEq, Eq)]
enum Fault {
    /// No ServiceCIDR has it.
    OutOfRange,
    /// There is no IPAddress.
    Missing,
    /// The IPAddress says that it belongs to something else.
    WrongReference,
    /// Another Service has it too, and the IPAddress says so.
    Twice,
    /// The IPAddress has lost its labels.
    Labels,
}

/// Looks at the record of an address of the Service `of`. `has` says whether another Service has the address.
fn fault(
    object: Option<&Value>,
    of: (&str, &str),
    is_inside: bool,
    has: impl Fn(&str, &str) -> bool,
) -> Option<Fault> {
    if !is_inside {
        return Some(Fault::OutOfRange);
    }
    let Some(object) = object else { return Some(Fault::Missing) };
    match addresses::parent(object) {
        Some(parent) if parent == of => (!addresses::has_labels(object)).then_some(Fault::Labels),
        Some((namespace, name)) if has(namespace, name) => Some(Fault::Twice),
        _ => Some(Fault::WrongReference),
    }
}

async fn check_service(writer: &Writer, seen: &Value) -> Result<()> {
    let of = (Metadata::of(seen).namespace(), Metadata::of(seen).name());
    let cidrs = addresses::service_cidrs(writer);
    for address in Held::of(seen).addresses {
        let has = |namespace: &str, name: &str| {
            service(writer, namespace, name)
                .is_some_and(|other| Held::of(&other).addresses.contains(&address))
        };
        let is_inside = ranges::is_inside(address, cidrs.iter());
        let found = fault(find(writer, address).as_ref(), of, is_inside, has);
        // The Service may have let go of it in between: only then it looks as if the record were missing.
        if let Some(fault) = found
            && has(of.0, of.1)
        {
            repair_address(writer, seen, address, &fault).await?;
        }
    }
    Ok(())
}

async fn repair_address(writer: &Writer, service: &Value, address: IpAddr, fault: &Fault) -> Result<()> {
    let of = (Metadata::of(service).namespace(), Metadata::of(service).name());
    let family = Family::of(address).as_str();
    let (namespace, name) = of;
    let (reason, note) = match fault {
        Fault::OutOfRange => (
            "ClusterIPOutOfRange",
            format!(
                "Cluster IP [{family}]: {address} is not within any configured Service CIDR; please recreate service"
            ),
        ),
        Fault::Missing => {
            ("ClusterIPNotAllocated", format!("Cluster IP [{family}]: {address} is not allocated; repairing"))
        }
        Fault::WrongReference => (
            "ClusterIPNotAllocated",
            format!(
                "the ClusterIP [{family}]: {address} for Service {namespace}/{name} has a wrong reference; repairing"
            ),
        ),
        Fault::Twice => (
            "ClusterIPAlreadyAllocated",
            format!(
                "Cluster IP [{family}]:{address} was assigned to multiple services; please recreate service"
            ),
        ),
        Fault::Labels => ("", String::new()),
    };
    if !reason.is_empty() {
        tell(writer, service, "Service", reason, "ClusterIPAllocation", &note).await;
    }
    if matches!(fault, Fault::OutOfRange | Fault::Twice) {
        return Ok(());
    }
    if *fault != Fault::Missing {
        addresses::unmake(writer, &address.to_string()).await?;
    }
    match addresses::make(writer, addresses::object(address, namespace, name)).await {
        Err(failure) if failure.reason != "AlreadyExists" => Err(failure),
        _ => Ok(()),
    }
}

/// Removes an IPAddress that was made for a Service which has it not.
async fn check_address(writer: &Writer, object: &Value, suspects: &mut Suspects) -> Result<()> {
    let name = Metadata::of(object).name();
    let (true, Ok(address)) = (addresses::is_managed(object), name.parse::<IpAddr>()) else {
        return Ok(());
    };
    suspects.addresses.remove(&address);
    let (reason, note) = match addresses::parent(object) {
        None => (
            "IPAddressNotAllocated",
            format!(
                "IPAddress {name} appears to have been modified, not referencing a Service {}: cleaning up",
                reference(object)
            ),
        ),
        Some((namespace, parent)) => match service(writer, namespace, parent) {
            Some(service) if Held::of(&service).addresses.contains(&address) => return Ok(()),
            // An update that is under way has taken it, perhaps.
            found => {
                let made = Metadata::of(object).creation_timestamp().unwrap_or_default();
                let due = made + UNDER_WAY;
                if due > writer.clock.now() {
                    suspects.addresses.insert(address, due);
                    return Ok(());
                }
                let what = if found.is_some() { "has a wrong reference" } else { "appears to have leaked" };
                let reason =
                    if found.is_some() { "IPAddressWrongReference" } else { "IPAddressNotAllocated" };
                (reason, format!("IPAddress: {name} for Service {namespace}/{parent} {what}; cleaning up"))
            }
        },
    };
    tell(writer, object, "IPAddress", reason, "IPAddressAllocation", &note).await;
    addresses::unmake(writer, name).await
}

fn reference(object: &Value) -> String {
    let of = |field: &str| text(object, &format!("/spec/parentRef/{field}"));
    format!("&{{{} {} {} {}}}", of("group"), of("resource"), of("namespace"), of("name"))
}

/// Brings the record of the node ports in step with the Services.
async fn check_ports(writer: &Writer, suspects: &mut Suspects) -> Result<()> {
    let mut problems: Vec<(Value, &str, String)> = Vec::new();
    let known = std::mem::take(&mut suspects.ports);
    let due = writer.clock.now() + UNDER_WAY;
    let range = writer.node_ports.range();
    // The record first, then the Services: a port that is taken in between makes the write fail, and all starts over.
    let left = writer
        .node_ports
        .change(writer, |given| {
            problems.clear();
            let mut owners: HashMap<u16, usize> = HashMap::new();
            let all: Vec<Value> = services(writer).collect();
            for (index, service) in all.iter().enumerate() {
                for port in Held::of(service).ports {
                    let found = if !range.contains(port) {
                        Some((
                            "PortOutOfRange",
                            format!(
                                "Port {port} is not within the port range {range}; please recreate service"
                            ),
                        ))
                    } else if owners.insert(port, index).is_some() {
                        Some((
                            "PortAlreadyAllocated",
                            format!("Port {port} was assigned to multiple services; please recreate service"),
                        ))
                    } else if !given.has(port) {
                        given.set(port);
                        Some(("PortNotAllocated", format!("Port {port} is not allocated; repairing")))
                    } else {
                        None
                    };
                    problems.extend(found.map(|(reason, note)| (service.clone(), reason, note)));
                }
            }
            let mut left = BTreeMap::new();
            for port in given.ports().filter(|port| !owners.contains_key(port)).collect::<Vec<_>>() {
                match known.get(&port) {
                    Some(at) if *at <= writer.clock.now() => given.clear(port),
                    at => {
                        left.insert(port, at.copied().unwrap_or(due));
                    }
                }
            }
            Ok(left)
        })
        .await?;
    suspects.ports = left;
    for (service, reason, note) in problems {
        tell(writer, &service, "Service", reason, "", &note).await;
    }
    Ok(())
}

/// Records a Warning about an object.
async fn tell(writer: &Writer, object: &Value, kind: &str, reason: &str, action: &str, note: &str) {
    const REPORTER: &str = "ipallocator-repair-controller";
    let about = Metadata::of(object);
    let (group, namespace) = match kind {
        "IPAddress" => ("networking.k8s.io/v1", "default"),
        _ => ("v1", about.namespace()),
    };
    let now = writer.clock.now();
    let name = format!("{}.{:x}", about.name(), now.as_nanosecond());
    warn!(object = about.name(), reason, note, "a service address was not in order");
    let event = json!({
        "metadata": {"name": name, "namespace": namespace},
        "eventTime": metadata::micro_time(now),
        "reportingController": if action.is_empty() { "portallocator-repair-controller" } else { REPORTER },
        "reportingInstance": REPORTER,
        "action": if action.is_empty() { "PortAllocation" } else { action },
        "reason": reason,
        "type": "Warning",
        "note": note,
        "regarding": {
            "apiVersion": group, "kind": kind, "namespace": about.namespace(), "name": about.name(), "uid": about.uid(),
        },
    });
    let events = GroupVersionResource::new("events.k8s.io", "v1", "events");
    if let Err(failure) = writer.loopback.create(writer, events, namespace, event).await {
        warn!(%failure, "the event could not be recorded");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: &str = "10.43.0.7";

    fn object(namespace: &str, name: &str) -> Value {
        addresses::object(ADDRESS.parse().unwrap(), namespace, name)
    }

    fn check(object: Option<Value>, others: &[&str], expect: Option<Fault>) {
        let has = |_: &str, name: &str| others.contains(&name);
        assert_eq!(fault(object.as_ref(), ("a", "web"), true, has), expect);
    }

    #[test]
    fn an_address_and_its_service_name_each_other() {
        check(Some(object("a", "web")), &[], None);
        check(None, &[], Some(Fault::Missing));
        check(Some(object("a", "gone")), &[], Some(Fault::WrongReference));
        check(Some(object("a", "other")), &["other"], Some(Fault::Twice));
        let mut foreign = object("a", "web");
        foreign["spec"]["parentRef"] = json!({"group": "gateway", "resource": "gateways", "name": "web"});
        check(Some(foreign), &[], Some(Fault::WrongReference));
        let mut bare = object("a", "web");
        bare["metadata"]["labels"] = json!({});
        check(Some(bare), &[], Some(Fault::Labels));
        assert_eq!(fault(None, ("a", "web"), false, |_, _| false), Some(Fault::OutOfRange));
    }
}
