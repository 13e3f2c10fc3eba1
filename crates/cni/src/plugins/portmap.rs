//! `portmap`: ports of the host that lead into a Pod.
//!
//! Always by nftables. What upstream's plugin can be told about iptables' chains and marks has no meaning here and is
//! refused where it would change what packets do.

use std::net::IpAddr;

use machinery::net::Family;
use serde_json::Value;
use sys::netns::{set_sysctl, sysctl};
use sys::nftables::TableFamily;

use super::rules::{self, Masqueraded, Port, owner_of};
use super::{Attached, Site};
use crate::attachment::Attachment;
use crate::types::{CniError, CniResult, PortMapping};

const UDP: u8 = 17;

/// The plugin.
#[derive(Debug)]
pub(crate) struct Portmap {
    rules: rules::Shared,
    masqueraded: Masqueraded,
    is_told: bool,
}

impl Portmap {
    pub(super) fn new(network: &str, conf: &Value, site: &Site) -> Result<Self, CniError> {
        let is_set = |name: &str| conf.get(name).is_some_and(|value| !super::is_empty(value));
        if let Some(field) = ["conditionsV4", "conditionsV6"].into_iter().find(|field| is_set(field)) {
            return Err(CniError::Unsupported { network: network.to_owned(), field });
        }
        let invalid = |reason: String| CniError::Config { path: network.into(), reason };
        super::check_backend(conf, network, "backend")?;
        let flag = |name: &str, otherwise: bool| match conf.get(name) {
            None | Some(Value::Null) => Ok(otherwise),
            Some(value) => value.as_bool().ok_or_else(|| invalid(format!("{name} must be true or false"))),
        };
        let masqueraded = match (flag("snat", true)?, flag("masqAll", false)?) {
            (false, _) => Masqueraded::Nobody,
            (true, false) => Masqueraded::Needy,
            (true, true) => Masqueraded::Everybody,
        };
        let (rules, is_told) = (site.rules.clone(), super::is_told(conf, "portMappings"));
        Ok(Self { rules, masqueraded, is_told })
    }

    fn ports(&self, attachment: &Attachment, result: &CniResult) -> Vec<Port> {
        let pods = result.pod_ips(&attachment.ifname);
        let first = |family| pods.iter().copied().find(|ip| Family::of(*ip) == family);
        let pods = [Family::V4, Family::V6].map(first);
        let mappings = attachment.port_mappings.iter().filter(|_| self.is_told);
        let ports =
            mappings.flat_map(|mapping| pods.into_iter().flatten().filter_map(|pod| port(mapping, pod)));
        ports.map(|port| Port { masqueraded: self.masqueraded, ..port }).collect()
    }

    pub(super) fn add(&self, attachment: &Attachment, previous: &CniResult) -> Result<(), CniError> {
        let ports = self.ports(attachment, previous);
        if ports.is_empty() {
            return Ok(());
        }
        let owner = owner_of(attachment);
        let udp: Vec<Port> = ports.iter().filter(|port| port.protocol == UDP).cloned().collect();
        self.rules.change(move |rules| {
            rules.ports.insert(owner, ports);
        })?;
        if !udp.is_empty() {
            forget_flows(&udp);
        }
        if self.masqueraded == Masqueraded::Nobody { Ok(()) } else { route_loopback(previous) }
    }

    pub(super) fn del(&self, attachment: &Attachment) -> Result<(), CniError> {
        self.rules.forget(owner_of(attachment))
    }

    pub(super) fn check(&self, attachment: &Attachment, previous: &CniResult) -> Result<(), CniError> {
        let ports = self.ports(attachment, previous);
        if ports.is_empty() || self.rules.has_ports(&owner_of(attachment), &ports)? {
            return Ok(());
        }
        Err(CniError::Check("the host ports of the Pod are missing in nftables".into()))
    }

    pub(super) fn restore<'a>(
        &self,
        kept: impl Iterator<Item = (&'a Attachment, &'a CniResult)>,
    ) -> Result<(), CniError> {
        let all: Vec<(String, Vec<Port>)> =
            kept.map(|(attachment, result)| (owner_of(attachment), self.ports(attachment, result))).collect();
        self.rules.change(move |rules| {
            rules.ports.extend(all.into_iter().filter(|(_, ports)| !ports.is_empty()));
        })
    }

    /// Takes away the ports of what is not attached.
    pub(super) fn retain(&self, attached: &Attached) -> Result<(), CniError> {
        let attached = attached.clone();
        self.rules.change(move |rules| rules.ports.retain(|owner, _| attached.owns(owner)))
    }
}

/// Lets what the host says from its loopback addresses go to the Pod, as upstream's plugin does: on the host's links that
/// the plugins before have named. IPv6 has no such thing.
fn route_loopback(previous: &CniResult) -> Result<(), CniError> {
    for link in previous.interfaces.iter().filter(|link| link.sandbox.is_empty()) {
        let name = format!("net/ipv4/conf/{}/route_localnet", link.name);
        // A link that is not there any more leads nowhere.
        if sysctl(&name).is_ok_and(|value| value != "1") {
            set_sysctl(&name, "1")?;
        }
    }
    Ok(())
}

/// Whoever has sent to these ports of the host before would be led on to where that went.
fn forget_flows(ports: &[Port]) {
    let forgotten = sys::netlink::flush_flows(TableFamily::Inet, |flow| {
        let (ip, number) = flow.destination;
        let is_of = |port: &&Port| flow.protocol == UDP && port.host_port == number;
        let mut of_flow = ports.iter().filter(is_of).filter(|port| Family::of(port.pod) == Family::of(ip));
        of_flow.any(|port| {
            port.host_ip.is_none_or(|host| host == ip) && flow.answering != (port.pod, port.pod_port)
        })
    });
    if let Err(error) = forgotten {
        tracing::warn!(%error, "cannot forget old UDP flows to host ports");
    }
}

fn port(mapping: &PortMapping, pod: IpAddr) -> Option<Port> {
    let protocol = match mapping.protocol.to_ascii_lowercase().as_str() {
        "tcp" => 6,
        "udp" => UDP,
        "sctp" => 132,
        _ => return None,
    };
    // An address of the other family leads to no address of this one.
    let host_ip = match mapping.host_ip.as_str() {
        "" => None,
        text => {
            let host_ip = text.parse().ok().filter(|ip| Family::of(*ip) == Family::of(pod))?;
            Some(host_ip).filter(|ip: &IpAddr| !ip.is_unspecified())
        }
    };
    let (host_port, pod_port) = (mapping.host_port, mapping.container_port);
    let port = Port { protocol, host_ip, host_port, pod, pod_port, masqueraded: Masqueraded::default() };
    (host_port != 0).then_some(port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Interface, IpConfig};

    #[test]
    fn ports_lead_to_the_interface_that_is_attached_in_each_family() {
        let check = |interfaces: &[&str], of_address: Option<usize>, more: &[&str], expect: &[&str]| {
            let named = |name: &&str| Interface { name: (*name).to_owned(), ..Interface::default() };
            let of = |address: &str, interface| IpConfig {
                address: address.into(),
                interface,
                ..IpConfig::default()
            };
            let ips = [of("10.42.0.2/24", of_address), of("10.42.0.3/24", Some(1))];
            let result = CniResult {
                interfaces: interfaces.iter().map(named).collect(),
                ips: ips.into_iter().chain(more.iter().map(|address| of(address, Some(0)))).collect(),
                ..CniResult::default()
            };
            let mapping = PortMapping {
                host_port: 80,
                container_port: 8080,
                protocol: "tcp".into(),
                host_ip: String::new(),
            };
            let attachment =
                Attachment { ifname: "eth0".into(), port_mappings: vec![mapping], ..Attachment::default() };
            let rules = rules::in_file("t".into(), "/nowhere".into());
            let portmap = Portmap { rules, masqueraded: Masqueraded::default(), is_told: true };
            let ports = portmap.ports(&attachment, &result);
            let found: Vec<String> = ports.iter().map(|port| port.pod.to_string()).collect();
            assert_eq!(found, expect, "{interfaces:?}");
        };
        check(&["eth0", "net1"], Some(0), &[], &["10.42.0.2"]);
        check(&["net1", "eth0"], Some(0), &[], &["10.42.0.3"]);
        check(&["net1", "eth0"], None, &[], &["10.42.0.2"]);
        check(&["net1", "net2"], Some(0), &[], &[]);
        check(&["eth0", "net1"], Some(0), &["fd42::2/64", "fd43::2/64"], &["10.42.0.2", "fd42::2"]);
        check(&["eth0", "net1"], Some(1), &["fd42::2/64"], &["fd42::2"]);
    }

    #[test]
    fn an_address_of_the_other_family_opens_no_port_of_this_one() {
        // None for no port, and for one of all addresses nothing.
        let check = |host_ip: &str, v4: Option<&str>, v6: Option<&str>| {
            let mapping = PortMapping {
                host_port: 80,
                container_port: 8080,
                protocol: "TCP".into(),
                host_ip: host_ip.into(),
            };
            for (pod, expect) in [("10.42.0.2", v4), ("fd42::2", v6)] {
                let found = port(&mapping, pod.parse().unwrap());
                let found = found.map(|port| port.host_ip.map(|ip| ip.to_string()).unwrap_or_default());
                assert_eq!(found.as_deref(), expect, "{host_ip:?} {pod}");
            }
        };
        check("", Some(""), Some(""));
        check("0.0.0.0", Some(""), None);
        check("192.0.2.1", Some("192.0.2.1"), None);
        check("::", None, Some(""));
        check("2001:db8::1", None, Some("2001:db8::1"));
        check("host", None, None);
    }
}
