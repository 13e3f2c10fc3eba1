//! `host-local`: an address from each set of ranges, reserved on disk: one file per address, which says whose it is.
//!
//! The files are those of upstream's plugin, so that either takes over from the other: an IPv6 address is its file's name as
//! it is, colons included, and each set has a file of its own that says which of its addresses was given last.
//! A reservation is a hard link to a whole file: it is there with its owner or not at all. The range's network,
//! gateway and broadcast addresses are never given. Freed addresses are used again as late as possible.

mod range;

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use machinery::net::Family;
use serde_json::{Value, json};

use super::{Attached, Site};
use crate::attachment::Attachment;
use crate::files::remove_if_there;
use crate::types::{CniError, CniResult, IpConfig, RouteConfig};

pub(super) use range::{Range, RangeSet};

/// End of the names of files that become reservations.
const UNFINISHED: &str = ".new";

/// The file that says which address of a set was given last.
fn last_reserved(set: usize) -> String {
    format!("last_reserved_ip.{set}")
}

/// An address of a set, by the set's number.
fn no_address(set: usize, why: &str) -> CniError {
    CniError::NoAddress(format!("failed to allocate for range {set}: {why}"))
}

/// The reservations of one network.
#[derive(Debug)]
pub(crate) struct HostLocal {
    sets: Vec<RangeSet>,
    resolv_conf: Option<PathBuf>,
    dir: PathBuf,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    owners: BTreeMap<IpAddr, String>,
    /// By set.
    last: Vec<Option<IpAddr>>,
}

/// A Pod's interface that addresses are for, and the file that says so.
struct Claim<'a> {
    owner: &'a str,
    file: &'a Path,
}

impl HostLocal {
    /// As an IPAM configuration says it, with the routes that go with the addresses.
    pub(super) fn configured(
        network: &str,
        ipam: &Value,
        site: &Site,
    ) -> Result<(Self, Vec<RouteConfig>), CniError> {
        let invalid = |reason: String| CniError::Config { path: network.into(), reason };
        let sets = range::parse(ipam).map_err(|error| invalid(error.to_string()))?;
        let routes = ipam.get("routes").cloned().unwrap_or_default();
        let routes: Option<Vec<RouteConfig>> =
            serde_json::from_value(routes).map_err(|error| invalid(format!("routes: {error}")))?;
        let folder = ipam.get("dataDir").and_then(Value::as_str).map(PathBuf::from);
        let folder = folder.unwrap_or_else(|| site.leases.clone());
        let resolv_conf = ipam.get("resolvConf").and_then(Value::as_str).filter(|path| !path.is_empty());
        let resolv_conf = resolv_conf.map(PathBuf::from);
        let addresses = Self { resolv_conf, ..Self::open(sets, folder.join(network))? };
        Ok((addresses, routes.unwrap_or_default()))
    }

    /// Reads what is reserved in `dir`.
    pub(super) fn open(sets: Vec<RangeSet>, dir: PathBuf) -> Result<Self, CniError> {
        fs::create_dir_all(&dir).map_err(CniError::state(&dir))?;
        let mut taken = Taken::default();
        for entry in fs::read_dir(&dir).map_err(CniError::state(&dir))? {
            let path = entry.map_err(CniError::state(&dir))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if let Ok(ip) = name.parse() {
                taken.owners.insert(ip, fs::read_to_string(&path).map_err(CniError::state(&path))?);
            }
        }
        let last = |set| fs::read_to_string(dir.join(last_reserved(set))).ok()?.trim().parse().ok();
        taken.last = (0..sets.len()).map(last).collect();
        Ok(Self { sets, resolv_conf: None, dir, taken: Mutex::new(taken) })
    }

    /// What the file `resolvConf` says, for the result. Without one, nothing.
    pub(super) fn dns(&self) -> Result<Value, CniError> {
        let Some(path) = &self.resolv_conf else { return Ok(Value::Null) };
        Ok(dns_of(&fs::read_to_string(path).map_err(CniError::state(path))?))
    }

    /// All ranges, by the order of their sets.
    pub(super) fn ranges(&self) -> impl Iterator<Item = &Range> {
        self.sets.iter().flat_map(RangeSet::ranges)
    }

    /// Whether an interface gets an address of a family.
    pub(super) fn gives(&self, family: Family) -> bool {
        self.ranges().any(|range| range.subnet.family() == family)
    }

    /// The range that gives this address.
    pub(super) fn range_of(&self, ip: IpAddr) -> Option<&Range> {
        self.sets.iter().find_map(|set| set.range_of(ip))
    }

    /// Reserves an address of each set for a Pod's interface, those that are wished for if there are such.
    pub(super) fn reserve_for(&self, attachment: &Attachment) -> Result<Vec<IpAddr>, CniError> {
        let wanted = attachment.wanted_ips()?;
        self.reserve(&attachment.container_id, &attachment.ifname, wanted)
    }

    /// Addresses as a result has them.
    pub(super) fn configs(&self, ips: &[IpAddr], interface: Option<usize>) -> Vec<IpConfig> {
        let config = |ip: &IpAddr| {
            let range = self.range_of(*ip)?;
            let (address, gateway) = (range.with_prefix(*ip), Some(range.gateway));
            Some(IpConfig { address, gateway, interface, ..IpConfig::default() })
        };
        ips.iter().filter_map(config).collect()
    }

    /// What the plugin answers when nobody makes an interface.
    pub(super) fn add(&self, attachment: &Attachment, routes: &[RouteConfig]) -> Result<CniResult, CniError> {
        let ips = self.configs(&self.reserve_for(attachment)?, None);
        Ok(CniResult { ips, routes: routes.to_vec(), dns: self.dns()?, ..CniResult::default() })
    }

    /// Whether a Pod's interface has an address.
    pub(super) fn check(&self, attachment: &Attachment) -> Result<(), CniError> {
        let Attachment { container_id, ifname, .. } = attachment;
        let wanted = owner(container_id, ifname);
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.owners.values().any(|owner| *owner == wanted) {
            return Ok(());
        }
        Err(CniError::Check(format!("host-local: Failed to find address added by container {container_id}")))
    }

    /// Reserves addresses; who has one of a set already gets it again. If a set has none, those of the others are free again.
    fn reserve(
        &self,
        container_id: &str,
        ifname: &str,
        mut wanted: Vec<IpAddr>,
    ) -> Result<Vec<IpAddr>, CniError> {
        let owner = owner(container_id, ifname);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let file = self.dir.join(format!("{container_id}-{ifname}{UNFINISHED}"));
        fs::write(&file, &owner).map_err(CniError::state(&file))?;
        let claim = Claim { owner: &owner, file: &file };
        let (mut ips, mut new) = (Vec::with_capacity(self.sets.len()), Vec::new());
        let mut outcome = Ok(());
        for (number, set) in self.sets.iter().enumerate() {
            let has = |(ip, found): (&IpAddr, &String)| {
                (*found == owner && set.range_of(*ip).is_some()).then_some(*ip)
            };
            let known = taken.owners.iter().find_map(has);
            let wish = wanted.iter().position(|ip| set.range_of(*ip).is_some()).map(|at| wanted.remove(at));
            let reserved = match (known, wish) {
                (Some(ip), _) => Ok(ip),
                (None, Some(ip)) => self.reserve_this(&mut taken, &claim, number, ip),
                (None, None) => self.reserve_next(&mut taken, &claim, number),
            };
            match reserved {
                Ok(ip) => {
                    ips.push(ip);
                    new.extend(known.is_none().then_some(ip));
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        if outcome.is_ok() && !wanted.is_empty() {
            let all = wanted.iter().map(|ip| format!(" {ip}")).collect::<String>();
            outcome = Err(CniError::NoAddress(format!("failed to allocate all requested IPs:{all}")));
        }
        if outcome.is_err() {
            self.free(&mut taken, &new)?;
        }
        remove_if_there(&file)?;
        outcome.map(|()| ips)
    }

    fn reserve_this(
        &self,
        taken: &mut Taken,
        claim: &Claim<'_>,
        number: usize,
        ip: IpAddr,
    ) -> Result<IpAddr, CniError> {
        let Some(set) = self.sets.get(number) else { return Err(no_address(number, "there is no such set")) };
        if set.range_of(ip).is_some_and(|range| range.gateway == ip) {
            return Err(no_address(number, &format!("requested ip {ip} is subnet's gateway")));
        }
        if self.take(taken, claim, ip)? {
            return Ok(ip);
        }
        Err(no_address(number, &format!("requested IP address {ip} is not available in range set {set}")))
    }

    fn reserve_next(&self, taken: &mut Taken, claim: &Claim<'_>, number: usize) -> Result<IpAddr, CniError> {
        let Some(set) = self.sets.get(number) else { return Err(no_address(number, "there is no such set")) };
        for ip in set.candidates(taken.last.get(number).copied().flatten()) {
            if !self.take(taken, claim, ip)? {
                continue;
            }
            if let Some(last) = taken.last.get_mut(number) {
                *last = Some(ip);
            }
            let last = self.dir.join(last_reserved(number));
            fs::write(&last, ip.to_string()).map_err(CniError::state(&last))?;
            return Ok(ip);
        }
        Err(no_address(number, &format!("no IP addresses available in range set: {set}")))
    }

    /// Takes this address, if nobody else has it.
    fn take(&self, taken: &mut Taken, claim: &Claim<'_>, ip: IpAddr) -> Result<bool, CniError> {
        if taken.owners.contains_key(&ip) {
            return Ok(false);
        }
        let path = self.dir.join(ip.to_string());
        match fs::hard_link(claim.file, &path) {
            Ok(()) => {
                taken.owners.insert(ip, claim.owner.to_owned());
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                taken.owners.insert(ip, fs::read_to_string(&path).map_err(CniError::state(&path))?);
                Ok(false)
            }
            Err(error) => Err(CniError::state(&path)(error)),
        }
    }

    /// Frees the addresses of a Pod's interface, and says which. No error if it has none.
    pub(super) fn release(&self, container_id: &str, ifname: &str) -> Result<Vec<IpAddr>, CniError> {
        let owner = owner(container_id, ifname);
        // What a process that was killed has left.
        remove_if_there(&self.dir.join(format!("{container_id}-{ifname}.new")))?;
        let freed = self.release_where(|found| found.trim() == owner.trim())?;
        if freed.is_empty() {
            // Former versions of upstream's plugin wrote no interface.
            return self.release_where(|found| found.trim() == container_id);
        }
        Ok(freed)
    }

    /// Who has an address and is not attached: container id and interface.
    pub(super) fn owners_beside(&self, attached: &Attached) -> Vec<(String, String)> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let owners =
            taken.owners.values().map(|owner| owner.trim().split_once("\r\n").unwrap_or((owner, "")));
        let stale = owners.filter(|(id, ifname)| !attached.has(id, ifname));
        stale.map(|(id, ifname)| (id.to_owned(), ifname.to_owned())).collect()
    }

    /// Frees what belongs to nothing that is attached.
    pub(super) fn retain(&self, attached: &Attached) -> Result<(), CniError> {
        self.remove_unfinished(attached)?;
        let stale = self.owners_beside(attached);
        stale.iter().try_for_each(|(id, ifname)| self.release(id, ifname).map(drop))
    }

    /// What was begun to be reserved for what is not attached.
    fn remove_unfinished(&self, attached: &Attached) -> Result<(), CniError> {
        for entry in fs::read_dir(&self.dir).map_err(CniError::state(&self.dir))? {
            let path = entry.map_err(CniError::state(&self.dir))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some(owner) = name.strip_suffix(UNFINISHED) else { continue };
            if !owner.rsplit_once('-').is_some_and(|(id, ifname)| attached.has(id, ifname)) {
                remove_if_there(&path)?;
            }
        }
        Ok(())
    }

    fn release_where(&self, is_free: impl Fn(&str) -> bool) -> Result<Vec<IpAddr>, CniError> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let free: Vec<IpAddr> =
            taken.owners.iter().filter(|(_, owner)| is_free(owner)).map(|(ip, _)| *ip).collect();
        self.free(&mut taken, &free)?;
        Ok(free)
    }

    fn free(&self, taken: &mut Taken, ips: &[IpAddr]) -> Result<(), CniError> {
        for ip in ips {
            remove_if_there(&self.dir.join(ip.to_string()))?;
            taken.owners.remove(ip);
        }
        Ok(())
    }
}

/// A file as resolv.conf(5), as a result has it. Source: CNI specification 1.1.0, "dns".
fn dns_of(text: &str) -> Value {
    let mut dns = json!({});
    for line in text.lines().filter(|line| !line.starts_with(['#', ';'])) {
        let mut words = line.split_whitespace();
        let (key, values) = (words.next().unwrap_or_default(), words.collect::<Vec<_>>());
        match (key, values.first()) {
            ("nameserver", Some(server)) => match dns["nameservers"].as_array_mut() {
                Some(servers) => servers.push(json!(server)),
                None => dns["nameservers"] = json!([server]),
            },
            ("domain", Some(domain)) => dns["domain"] = json!(domain),
            ("search", Some(_)) => dns["search"] = json!(values),
            ("options", Some(_)) => dns["options"] = json!(values),
            _ => {}
        }
    }
    dns
}

fn owner(container_id: &str, ifname: &str) -> String {
    format!("{container_id}\r\n{ifname}")
}

#[cfg(test)]
mod tests;
