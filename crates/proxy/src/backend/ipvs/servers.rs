//! Virtual and real servers in the kernel. A real server goes gracefully: connections of TCP may end first.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use sys::netlink::ipvs::{Destination, Ipvs, VirtualAddress};

use super::plan::Server;
use crate::service_port::Target;

const TCP: u8 = 6;
/// What real servers get of all.
const WEIGHT: u32 = 1;
/// How long connections keep a real server that is wanted no longer.
const DRAINING_MAX: Duration = Duration::from_secs(15 * 60);

/// Real servers that get nothing new, and since when.
#[derive(Debug, Default)]
pub(super) struct Servers {
    draining: BTreeMap<(VirtualAddress, Target), Instant>,
}

fn destination(target: Target, weight: u32) -> Destination {
    Destination { ip: target.0, port: target.1, weight, connections: 0 }
}

impl Servers {
    /// Makes the kernel have these, and no others but at addresses that are `excluded`.
    pub(super) fn replace(
        &mut self,
        ipvs: &mut Ipvs,
        wanted: &BTreeMap<VirtualAddress, &Server>,
        excluded: impl Fn(IpAddr) -> bool,
    ) -> sys::Result<()> {
        let present: BTreeMap<VirtualAddress, _> = ipvs.services()?.into_iter().collect();
        for (vip, server) in wanted {
            let Some(service) = present.get(vip) else {
                self.change(ipvs, *vip, None, Some(server))?;
                continue;
            };
            if *service != server.service {
                ipvs.set_service(*vip, &server.service)?;
            }
            let found = ipvs.destinations(*vip)?;
            let known: BTreeSet<Target> = found.iter().map(|one| (one.ip, one.port)).collect();
            for target in &server.to {
                let is_fine = |one: &Destination| (one.ip, one.port) == *target && one.weight == WEIGHT;
                if !found.iter().any(is_fine) {
                    self.add(ipvs, *vip, *target)?;
                }
            }
            for target in known.difference(&server.to) {
                self.remove(ipvs, *vip, *target)?;
            }
        }
        for vip in present.keys().filter(|vip| !wanted.contains_key(vip) && !excluded(vip.ip)) {
            self.delete(ipvs, *vip)?;
        }
        Ok(())
    }

    /// Makes of one virtual server another.
    pub(super) fn change(
        &mut self,
        ipvs: &mut Ipvs,
        vip: VirtualAddress,
        old: Option<&Server>,
        new: Option<&Server>,
    ) -> sys::Result<()> {
        let Some(new) = new else { return self.delete(ipvs, vip) };
        match old {
            None => ipvs.add_service(vip, &new.service)?,
            Some(old) if old.service != new.service => ipvs.set_service(vip, &new.service)?,
            Some(_) => {}
        }
        let none = BTreeSet::new();
        let known = old.map_or(&none, |old| &old.to);
        for target in new.to.difference(known) {
            self.add(ipvs, vip, *target)?;
        }
        for target in known.difference(&new.to) {
            self.remove(ipvs, vip, *target)?;
        }
        Ok(())
    }

    fn delete(&mut self, ipvs: &mut Ipvs, vip: VirtualAddress) -> sys::Result<()> {
        self.draining.retain(|(of, _), _| *of != vip);
        ipvs.delete_service(vip)
    }

    /// One that is still there gets connections again.
    fn add(&mut self, ipvs: &mut Ipvs, vip: VirtualAddress, target: Target) -> sys::Result<()> {
        self.draining.remove(&(vip, target));
        match ipvs.add_destination(vip, &destination(target, WEIGHT)) {
            Err(error) if error.is_exists() => ipvs.set_destination(vip, &destination(target, WEIGHT)),
            other => other,
        }
    }

    fn remove(&mut self, ipvs: &mut Ipvs, vip: VirtualAddress, target: Target) -> sys::Result<()> {
        let found = ipvs.destinations(vip)?;
        let has_connections = |one: &Destination| (one.ip, one.port) == target && one.connections > 0;
        if vip.protocol != TCP || !found.iter().any(has_connections) {
            return ipvs.delete_destination(vip, &destination(target, 0));
        }
        self.draining.entry((vip, target)).or_insert_with(Instant::now);
        ipvs.set_destination(vip, &destination(target, 0))
    }

    /// Deletes those whose connections have ended, and those that have had their time.
    pub(super) fn drain(&mut self, ipvs: &mut Ipvs, now: Instant) -> sys::Result<()> {
        let all: Vec<_> = self.draining.iter().map(|(key, since)| (*key, *since)).collect();
        for ((vip, target), since) in all {
            let found = ipvs.destinations(vip)?;
            let is_busy = |one: &Destination| (one.ip, one.port) == target && one.connections > 0;
            if found.iter().any(is_busy) && now.duration_since(since) < DRAINING_MAX {
                continue;
            }
            ipvs.delete_destination(vip, &destination(target, 0))?;
            self.draining.remove(&(vip, target));
        }
        Ok(())
    }
}
