//! Cluster IPs and node ports: each belongs to one Service.
//!
//! Before a Service is stored it takes what it needs ([`allocate`]); afterwards what it no longer needs is given back,
//! and what it took when it could not be stored. What is taken is written down in the store before the Service is, so
//! neither another API server nor a crash can give it to somebody else; what a crash leaves behind is found by
//! [`repair`].
//! Source: `pkg/registry/core/service/storage/alloc.go`.

pub mod repair;

mod addresses;
mod families;
mod ports;
mod ranges;

use std::net::IpAddr;

use machinery::field::{FieldError, Path};
use machinery::metadata::Metadata;
use machinery::net::{Cidr, Family};
use serde_json::{Value, json};
use tracing::warn;

use self::families::{Spec, texts};
use self::ports::Given;
use super::Writer;
use crate::admission::{Context, Effect, Operation};
use crate::status::{Error, Result, Subject};
use crate::tree::{child, text};

pub use ports::{NodePorts, PREFIX};

/// What a Service has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    addresses: Vec<IpAddr>,
    ports: Vec<u16>,
}

impl Held {
    /// What a Service object says it has.
    fn of(service: &Value) -> Self {
        let spec = |field: &str| service.get("spec").and_then(|spec| spec.get(field));
        let listed = spec("clusterIPs").and_then(Value::as_array).into_iter().flatten();
        let mut held = Self::default();
        for address in listed.chain(spec("clusterIP")).filter_map(|address| address.as_str()?.parse().ok()) {
            if !held.addresses.contains(&address) {
                held.addresses.push(address);
            }
        }
        let ports = spec("ports").and_then(Value::as_array).into_iter().flatten();
        let numbers = ports.filter_map(|port| port.get("nodePort")).chain(spec("healthCheckNodePort"));
        for port in numbers.filter_map(|number| u16::try_from(number.as_u64()?).ok()) {
            if port > 0 && !held.ports.contains(&port) {
                held.ports.push(port);
            }
        }
        held
    }

    fn without(&self, other: &Self) -> Self {
        Self {
            addresses: self.addresses.iter().filter(|one| !other.addresses.contains(one)).copied().collect(),
            ports: self.ports.iter().filter(|one| !other.ports.contains(one)).copied().collect(),
        }
    }
}

/// The addresses and ports that a write took, and those that it gives back once it is done.
#[derive(Debug)]
pub struct Allocation {
    /// Namespace and name of the Service.
    service: (String, String),
    taken: Held,
    freed: Held,
}

/// The node ports that the cached Services have.
fn in_use(writer: &Writer) -> Given {
    let mut given = Given::none(writer.node_ports.range());
    for service in services(writer) {
        Held::of(&service).ports.into_iter().for_each(|port| given.set(port));
    }
    given
}

/// The cached Services.
fn services(writer: &Writer) -> impl Iterator<Item = Value> {
    let kind = writer.kind("", "v1", "services");
    let all = kind.map(|kind| kind.cache().list(kind.prefix(), 0).objects).unwrap_or_default();
    all.into_iter().map(|object| object.value())
}

/// Gives a Service the addresses and ports it needs.
///
/// # Errors
/// 422 when something is taken or outside of the range; 500 when there is nothing left.
pub(super) async fn allocate(
    writer: &Writer,
    context: &Context<'_>,
    service: &mut Value,
) -> Result<Option<Allocation>> {
    if !context.is_core("services") || context.operation == Operation::Delete {
        return Ok(None);
    }
    let key = (Metadata::of(service).namespace().to_owned(), Metadata::of(service).name().to_owned());
    let mut allocation = Allocation { service: key, taken: Held::default(), freed: Held::default() };
    let outcome = take((writer, context), service, &mut allocation).await;
    if context.effect == Effect::DryRun {
        allocation.taken = Held::default();
        return outcome.map(|()| None);
    }
    if let Err(error) = outcome {
        allocation.undo(writer).await;
        return Err(error);
    }
    if let Some(old) = context.old {
        allocation.freed = Held::of(old).without(&Held::of(service));
    }
    Ok(Some(allocation))
}

impl Allocation {
    /// Gives back what was taken for a Service that was not stored after all.
    pub(super) async fn undo(&self, writer: &Writer) {
        self.give_back(writer, &self.taken).await;
    }

    /// Gives back what the Service, stored now, no longer has.
    pub(super) async fn commit(&self, writer: &Writer) {
        self.give_back(writer, &self.freed).await;
    }

    async fn give_back(&self, writer: &Writer, held: &Held) {
        let service = (self.service.0.as_str(), self.service.1.as_str());
        for address in &held.addresses {
            addresses::release(writer, *address, service).await;
        }
        release_ports(writer, &held.ports).await;
    }
}

async fn release_ports(writer: &Writer, ports: &[u16]) {
    if ports.is_empty() {
        return;
    }
    let clear = |given: &mut Given| {
        ports.iter().for_each(|port| given.clear(*port));
        Ok(())
    };
    if let Err(failure) = writer.node_ports.change(writer, clear).await {
        warn!(?ports, %failure, "node ports could not be given back; they will be when they are missed");
    }
}

/// Gives back all that a deleted Service had.
pub(super) async fn deleted(writer: &Writer, service: &Value) {
    let metadata = Metadata::of(service);
    let key = (metadata.namespace().to_owned(), metadata.name().to_owned());
    Allocation { service: key, taken: Held::default(), freed: Held::of(service) }.commit(writer).await;
}

fn invalid(service: &Value, error: FieldError) -> Error {
    let subject = Subject { group: "", resource: "Service" };
    Error::invalid(subject, Metadata::of(service).name(), &error.into())
}

async fn take(
    (writer, context): (&Writer, &Context<'_>),
    service: &mut Value,
    allocation: &mut Allocation,
) -> Result<()> {
    let cluster: Vec<Family> = writer.config.service_cidrs.iter().map(Cidr::family).collect();
    let name = Metadata::of(service).name().to_owned();
    let old = context.old.and_then(|old| old.get("spec")?.as_object());
    let Some(spec) = child(service, "spec") else { return Ok(()) };
    families::settle(spec, old, &cluster)
        .map_err(|errors| Error::invalid(Subject { group: "", resource: "Service" }, &name, &errors))?;
    take_addresses(writer, context, service, allocation).await?;
    take_ports(writer, context, service, allocation).await
}

/// Which of the Service's addresses are to be taken now: all of a new one's, the second of one that becomes dual.
fn missing(spec: &Spec, old: Option<&Spec>) -> std::ops::Range<usize> {
    let families = texts(spec, "ipFamilies").len();
    let is_external = |spec: &Spec| families::text(spec, "type") == "ExternalName";
    let is_headless = |spec: &Spec| texts(spec, "clusterIPs").first() == Some(&"None");
    if is_external(spec) || is_headless(spec) || families::is_unchanged(spec, old) {
        return 0..0;
    }
    match old.filter(|old| !is_external(old)) {
        None => 0..families,
        Some(old) if is_headless(old) => 0..0,
        Some(old) if texts(old, "ipFamilies").len() == 1 && families == 2 => 1..2,
        Some(_) => 0..0,
    }
}

async fn take_addresses(
    writer: &Writer,
    context: &Context<'_>,
    service: &mut Value,
    allocation: &mut Allocation,
) -> Result<()> {
    let old = context.old.and_then(|old| old.get("spec")?.as_object());
    let Some(spec) = service.get("spec").and_then(Value::as_object) else { return Ok(()) };
    let shown = spec.get("clusterIPs").cloned().unwrap_or_default();
    let families: Vec<Family> = texts(spec, "ipFamilies").into_iter().filter_map(Family::parse).collect();
    let mut addresses: Vec<String> = texts(spec, "clusterIPs").into_iter().map(str::to_owned).collect();
    let missing = missing(spec, old);
    if missing.is_empty() {
        return Ok(());
    }
    let (namespace, name) = allocation.service.clone();
    let key = (namespace.as_str(), name.as_str());
    for index in missing {
        let Some(family) = families.get(index).copied() else { break };
        let wanted = addresses.get(index).map(String::as_str).unwrap_or_default();
        let address = if wanted.is_empty() {
            addresses::take_any(writer, context, key, family).await?
        } else {
            let refused = |why: &str| {
                let path = Path::new("spec").child("clusterIPs");
                let why = format!("failed to allocate IP {wanted}: {why}");
                invalid(service, FieldError::invalid(&path, &shown, &why))
            };
            let address: IpAddr = wanted.parse().map_err(|_| refused("it is no IP address"))?;
            addresses::take((writer, context), key, address).await?.map_err(refused)?;
            address
        };
        if context.effect == Effect::Stored {
            allocation.taken.addresses.push(address);
        }
        addresses.truncate(index);
        addresses.push(address.to_string());
    }
    if let Some(spec) = child(service, "spec") {
        spec.insert("clusterIP".to_owned(), addresses.first().cloned().unwrap_or_default().into());
        spec.insert("clusterIPs".to_owned(), json!(addresses));
    }
    Ok(())
}

/// Takes the node ports and the health check's port, all in one change of the record.
async fn take_ports(
    writer: &Writer,
    context: &Context<'_>,
    service: &mut Value,
    allocation: &mut Allocation,
) -> Result<()> {
    let had = context.old.map(|old| Held::of(old).ports).unwrap_or_default();
    let asks = Held::of(service).ports.iter().any(|port| !had.contains(port));
    if !asks && !needs_any_port(service) {
        return Ok(());
    }
    let decide = |given: &mut Given| {
        let mut filled = service.clone();
        let mut turn = Turn { given, had: &had, taken: Vec::new(), random: &writer.random };
        turn.node_ports(&mut filled, context.old.is_none())?;
        turn.health_check_port(&mut filled)?;
        Ok((filled, turn.taken))
    };
    let (filled, taken) = if context.effect == Effect::DryRun {
        decide(&mut writer.node_ports.given(writer))?
    } else {
        writer.node_ports.change(writer, decide).await?
    };
    *service = filled;
    allocation.taken.ports = taken;
    Ok(())
}

fn type_of(service: &Value) -> &str {
    text(service, "/spec/type")
}

fn has_node_ports(service: &Value) -> bool {
    matches!(type_of(service), "NodePort" | "LoadBalancer")
}

/// Whether ports without a node port get one.
fn gets_node_ports(service: &Value) -> bool {
    let is_wanted = service.pointer("/spec/allocateLoadBalancerNodePorts").and_then(Value::as_bool);
    type_of(service) == "NodePort" || (type_of(service) == "LoadBalancer" && is_wanted.unwrap_or(true))
}

/// Whether load balancers must be told which nodes have endpoints.
fn needs_health_check(service: &Value) -> bool {
    type_of(service) == "LoadBalancer" && text(service, "/spec/externalTrafficPolicy") == "Local"
}

fn number(value: &Value, field: &str) -> u64 {
    value.get(field).and_then(Value::as_u64).unwrap_or_default()
}

fn ports(service: &Value) -> &[Value] {
    service.pointer("/spec/ports").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn needs_any_port(service: &Value) -> bool {
    let is_open = gets_node_ports(service) && ports(service).iter().any(|port| number(port, "nodePort") == 0);
    is_open || (needs_health_check(service) && number(&service["spec"], "healthCheckNodePort") == 0)
}

/// In a new Service, two protocols of one port share a node port, whichever of them names it.
fn of_same(service: &Value, index: usize) -> Option<u64> {
    let all = ports(service);
    let mine = number(all.get(index)?, "port");
    let same = all.iter().enumerate().filter(|(other, port)| *other != index && number(port, "port") == mine);
    same.map(|(_, port)| number(port, "nodePort")).find(|port| *port > 0)
}

/// One decision about a Service's ports.
struct Turn<'a> {
    given: &'a mut Given,
    had: &'a [u16],
    taken: Vec<u16>,
    random: &'a base::Random,
}

impl Turn<'_> {
    fn node_ports(&mut self, service: &mut Value, is_new: bool) -> Result<()> {
        if !has_node_ports(service) {
            return Ok(());
        }
        for index in 0..ports(service).len() {
            let Some(port) = ports(service).get(index).cloned() else { continue };
            let (wanted, same) = (number(&port, "nodePort"), of_same(service, index));
            if wanted == 0 && !gets_node_ports(service) {
                continue;
            }
            let path = Path::new("spec").child("ports").index(index).child("nodePort");
            let got = match (wanted, same.filter(|_| is_new)) {
                (0, Some(same)) => self.this(service, &path, same, true)?,
                (0, None) => self.any("nodePort")?,
                (wanted, same) => self.this(service, &path, wanted, !is_new || same == Some(wanted))?,
            };
            let place = service.pointer_mut(&format!("/spec/ports/{index}")).and_then(Value::as_object_mut);
            if let Some(port) = place {
                port.insert("nodePort".to_owned(), got.into());
            }
        }
        Ok(())
    }

    fn any(&mut self, what: &str) -> Result<u16> {
        let Some(port) = self.given.free(self.random) else {
            return Err(Error::internal(format!("failed to allocate a {what}: range is full")));
        };
        self.given.set(port);
        self.taken.push(port);
        Ok(port)
    }

    fn this(&mut self, service: &Value, path: &Path, wanted: u64, may_share: bool) -> Result<u16> {
        let refused = |why: &str| invalid(service, FieldError::invalid(path, &Value::from(wanted), why));
        let range = self.given.range();
        let Some(port) = u16::try_from(wanted).ok().filter(|port| range.contains(*port)) else {
            let why = format!("provided port is not in the valid range. The range of valid ports is {range}");
            return Err(refused(&why));
        };
        if self.had.contains(&port) || (may_share && self.taken.contains(&port)) {
            return Ok(port);
        }
        if self.given.has(port) {
            return Err(refused("provided port is already allocated"));
        }
        self.given.set(port);
        self.taken.push(port);
        Ok(port)
    }

    fn health_check_port(&mut self, service: &mut Value) -> Result<()> {
        if !needs_health_check(service) {
            return Ok(());
        }
        let path = Path::new("spec").child("healthCheckNodePort");
        let got = match number(&service["spec"], "healthCheckNodePort") {
            0 => self.any("HealthCheck NodePort")?,
            wanted => self.this(service, &path, wanted, false)?,
        };
        if let Some(spec) = child(service, "spec") {
            spec.insert("healthCheckNodePort".to_owned(), got.into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::config::PortRange;

    fn parse(yaml: &str) -> Value {
        json!({"metadata": {"name": "a"}, "spec": serde_saphyr::from_str::<Value>(yaml).unwrap()})
    }

    /// The node ports after a write, with free ones shown by how many there are; or what is wrong.
    fn check(spec: &str, old: Option<&str>, expect: &Expect) {
        let mut given = Given::none(PortRange { first: 30000, last: 30099 });
        given.set(30005);
        let (mut service, old) = (parse(spec), old.map(parse));
        let had = old.as_ref().map(|old| Held::of(old).ports).unwrap_or_default();
        had.iter().for_each(|port| given.set(*port));
        let random = base::Random::seeded(1);
        let mut turn = Turn { given: &mut given, had: &had, taken: Vec::new(), random: &random };
        let outcome =
            turn.node_ports(&mut service, old.is_none()).and_then(|()| turn.health_check_port(&mut service));
        let mut chosen: Vec<u16> = Vec::new();
        let mut show = |port: u64| {
            let port = u16::try_from(port).unwrap();
            if port == 0 || port < 30010 {
                return port.to_string();
            }
            let at = chosen.iter().position(|one| *one == port).unwrap_or_else(|| {
                chosen.push(port);
                chosen.len() - 1
            });
            format!("chance{at}")
        };
        let text = match outcome {
            Err(error) => error.message,
            Ok(()) => {
                let numbers: Vec<String> =
                    ports(&service).iter().map(|port| show(number(port, "nodePort"))).collect();
                let health = number(&service["spec"], "healthCheckNodePort");
                let health = if health == 0 { String::new() } else { format!(" health {}", show(health)) };
                format!("{}{health}", numbers.join(","))
            }
        };
        expect.assert_eq(&text);
    }

    #[test]
    fn ports_are_given_out_where_the_type_has_them() {
        check("{type: ClusterIP, ports: [{port: 80}]}", None, &expect!["0"]);
        check("{type: NodePort, ports: [{port: 80}, {port: 81}]}", None, &expect!["chance0,chance1"]);
        check(
            "{type: LoadBalancer, allocateLoadBalancerNodePorts: false, ports: [{port: 80}, {port: 81, nodePort: 30001}]}",
            None,
            &expect!["0,30001"],
        );
    }

    #[test]
    fn two_protocols_of_one_port_share_a_node_port() {
        check(
            "{type: NodePort, ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]}",
            None,
            &expect!["chance0,chance0"],
        );
        check(
            "{type: NodePort, ports: [{port: 53, protocol: UDP, nodePort: 30001}, {port: 53, protocol: TCP}]}",
            None,
            &expect!["30001,30001"],
        );
        check(
            "{type: NodePort, ports: [{port: 53, protocol: UDP, nodePort: 30001}, {port: 53, protocol: TCP, nodePort: 30001}]}",
            None,
            &expect!["30001,30001"],
        );
    }

    #[test]
    fn what_another_service_has_is_refused() {
        check(
            "{type: NodePort, ports: [{port: 80, nodePort: 30005}]}",
            None,
            &expect![[
                r#"Service "a" is invalid: spec.ports[0].nodePort: Invalid value: 30005: provided port is already allocated"#
            ]],
        );
        check(
            "{type: NodePort, ports: [{port: 80, nodePort: 80}]}",
            None,
            &expect![[
                r#"Service "a" is invalid: spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-30099"#
            ]],
        );
    }

    #[test]
    fn an_update_keeps_what_it_has_and_takes_the_rest() {
        check(
            "{type: NodePort, ports: [{port: 80, nodePort: 30001}, {port: 81}]}",
            Some("{type: NodePort, ports: [{port: 80, nodePort: 30001}]}"),
            &expect!["30001,chance0"],
        );
        check(
            "{type: LoadBalancer, externalTrafficPolicy: Local, ports: [{port: 80, nodePort: 30001}]}",
            Some("{type: NodePort, ports: [{port: 80, nodePort: 30001}]}"),
            &expect!["30001 health chance0"],
        );
    }

    #[test]
    fn what_a_service_no_longer_has_is_free() {
        let old = parse(
            "{clusterIPs: [10.0.0.1, 'fd00::1'], clusterIP: 10.0.0.1, ports: [{nodePort: 30001}, {nodePort: 30001}], healthCheckNodePort: 30002}",
        );
        let new = parse("{clusterIPs: [10.0.0.1], clusterIP: 10.0.0.1, ports: [{nodePort: 30001}]}");
        let freed = Held::of(&old).without(&Held::of(&new));
        assert_eq!(freed, Held { addresses: vec!["fd00::1".parse().unwrap()], ports: vec![30002] });
    }

    #[test]
    fn only_what_is_missing_is_taken() {
        let spec = |yaml: &str| parse(yaml)["spec"].as_object().unwrap().clone();
        let single = spec("{type: ClusterIP, clusterIPs: [10.0.0.1], ipFamilies: [IPv4]}");
        let dual = spec("{type: ClusterIP, clusterIPs: [10.0.0.1], ipFamilies: [IPv4, IPv6]}");
        let external = spec("{type: ExternalName}");
        let headless = spec("{type: ClusterIP, clusterIPs: [None], ipFamilies: [IPv4, IPv6]}");
        assert_eq!(missing(&dual, None), 0..2);
        assert_eq!(missing(&dual, Some(&external)), 0..2);
        assert_eq!(missing(&dual, Some(&single)), 1..2);
        assert!(missing(&single, Some(&single)).is_empty() && missing(&headless, None).is_empty());
        assert!(missing(&external, Some(&single)).is_empty());
    }
}
