//! The packets that a Pod may send, and the neighbour entries that the host keeps of it whatever it says.

use std::net::IpAddr;
use std::sync::{Once, PoisonError};

use sys::netlink::Route;
use sys::nftables;
use sys::nftables::port::Owner;

use super::{Bridge, mac_of, veth_name};
use crate::attachment::Attachment;
use crate::attachment::parse_mac;
use crate::types::{CniError, CniResult};

impl Bridge {
    /// Lets a port send with its Pod's addresses only, and the host keep to those whatever it is told: no Pod gets what is
    /// another's. Only where the host routes between Pods: there, nobody else gives the interface more addresses.
    pub(super) fn guard(&self, port: &str, mac: [u8; 6], ips: &[IpAddr]) -> Result<(), CniError> {
        if !self.conf.routed {
            return Ok(());
        }
        let mut route = self.route.lock().unwrap_or_else(PoisonError::into_inner);
        let bridge = route.index(&self.conf.bridge)?;
        ips.iter().try_for_each(|ip| route.set_neighbour(bridge, *ip, mac))?;
        let found = route.link(&self.conf.bridge)?.and_then(|link| link.mac.try_into().ok());
        drop(route);
        let gateways: Vec<IpAddr> = self.addresses.ranges().map(|range| range.gateway).collect();
        let gateway = found.unwrap_or_else(|| mac_of(&gateways));
        let owner = Owner { mac, ips, gateway, gateways: &gateways };
        unless_unsupported(nftables::port::guard(self.site.rules.table(), port, &owner))
    }

    /// Makes the rules of all ports of Pods that have none, since somebody has taken them: in one transaction, and each alone
    /// if a link has gone meanwhile.
    pub(super) fn guard_again<'a>(
        &self,
        kept: impl Iterator<Item = (&'a Attachment, &'a CniResult)>,
    ) -> Result<(), CniError> {
        if !self.conf.routed {
            return Ok(());
        }
        let table = self.site.rules.table();
        let guarded = nftables::base_chains()?;
        let links = Route::open()?.links()?;
        let found = links.iter().find(|link| link.name == self.conf.bridge);
        let found = found.and_then(|link| link.mac.clone().try_into().ok());
        let gateways: Vec<IpAddr> = self.addresses.ranges().map(|range| range.gateway).collect();
        let gateway = found.unwrap_or_else(|| mac_of(&gateways));
        let owners = kept.filter_map(|(attachment, result)| {
            let port = veth_name(&attachment.container_id, &attachment.ifname);
            let is_guarded = guarded.iter().any(|chain| chain.table == table && chain.name == port);
            let is_there = links.iter().any(|link| link.name == port);
            let ips = result.pod_ips(&attachment.ifname);
            (is_there && !is_guarded && !ips.is_empty())
                .then(|| Some((port, mac_in(attachment, result)?, ips)))?
        });
        let owners: Vec<(String, [u8; 6], Vec<IpAddr>)> = owners.collect();
        let rules: Vec<(&str, Owner<'_>)> = owners
            .iter()
            .map(|(port, mac, ips)| (port.as_str(), Owner { mac: *mac, ips, gateway, gateways: &gateways }))
            .collect();
        if rules.is_empty() || nftables::port::guard_all(table, rules.iter().copied()).is_ok() {
            return Ok(());
        }
        rules
            .iter()
            .try_for_each(|(port, owner)| unless_unsupported(nftables::port::guard(table, port, owner)))
    }

    /// Takes the rules of a port back, and what the host knows of its Pod.
    pub(super) fn unguard(&self, port: &str, freed: &[IpAddr]) -> Result<(), CniError> {
        if !self.conf.routed {
            return Ok(());
        }
        let mut route = self.route.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bridge) = route.link(&self.conf.bridge)? {
            freed.iter().try_for_each(|ip| route.delete_neighbour(bridge.index, *ip))?;
        }
        drop(route);
        Ok(nftables::port::release(self.site.rules.table(), port)?)
    }

    /// Looks for the rules of a port. In the node's process they are made where an earlier one did not.
    pub(super) fn check_guard(&self, attachment: &Attachment, previous: &CniResult) -> Result<(), CniError> {
        let (table, port) =
            (self.site.rules.table(), veth_name(&attachment.container_id, &attachment.ifname));
        if !self.conf.routed || nftables::port::is_guarded(table, &port)? {
            return Ok(());
        }
        if self.site.rules.is_in_file() {
            // A kernel that has none has no table either.
            let has_any = nftables::port::tables()?.iter().any(|known| known == table);
            let missing = || CniError::Check(format!("rules of link {port} are missing"));
            return if has_any { Err(missing()) } else { Ok(()) };
        }
        let ips = previous.pod_ips(&attachment.ifname);
        let mac = mac_in(attachment, previous).filter(|_| !ips.is_empty());
        mac.map_or(Ok(()), |mac| self.guard(&port, mac, &ips))
    }
}

/// The hardware address that an interface was given.
fn mac_in(attachment: &Attachment, result: &CniResult) -> Option<[u8; 6]> {
    let interface = result.interfaces.iter().find(|it| it.name == attachment.ifname);
    parse_mac(&interface?.mac)
}

/// A kernel that cannot have such rules has none, and that is told once.
fn unless_unsupported(done: sys::Result<()>) -> Result<(), CniError> {
    match done {
        Err(error) if nftables::port::is_unsupported(&error) => {
            static TOLD: Once = Once::new();
            TOLD.call_once(|| {
                tracing::warn!(%error, "the kernel does not check what Pods send (nftables, family netdev)");
            });
            Ok(())
        }
        done => Ok(done?),
    }
}
