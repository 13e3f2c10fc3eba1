//! Addresses from a range, reserved on disk: one file per address, which says whose it is.
//!
//! A reservation is a hard link to a whole file: it is there with its owner or not at all. The range's network,
//! gateway and broadcast addresses are never given. Freed addresses are used again as late as possible.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::network::remove_if_there;
use crate::types::CniError;

const LAST_RESERVED: &str = "last_reserved_ip.0";

/// A range of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) network: Ipv4Addr,
    pub(super) prefix: u8,
    pub(super) gateway: Ipv4Addr,
    start: u32,
    end: u32,
}

impl Range {
    /// Reads `subnet`, `gateway`, `rangeStart` and `rangeEnd` of the first range of an IPAM configuration.
    pub(super) fn parse(ipam: &Value) -> Result<Self, String> {
        let range = ipam.pointer("/ranges/0/0").unwrap_or(ipam);
        let text = |name: &str| range.get(name).and_then(Value::as_str);
        let subnet = text("subnet").ok_or("ipam has no subnet")?;
        let (network, prefix) =
            parse_cidr(subnet).ok_or_else(|| format!("subnet {subnet} must be an IPv4 network"))?;
        if prefix > 30 {
            return Err(format!("subnet {subnet} must have room for two Pods"));
        }
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
        let first = u32::from(network) & mask;
        let last = first | !mask;
        let address = |name: &str, otherwise: u32| match text(name) {
            None => Ok(otherwise),
            Some(ip) => ip
                .parse()
                .map(|ip: Ipv4Addr| u32::from(ip))
                .ok()
                .filter(|ip| (first..=last).contains(ip))
                .ok_or_else(|| format!("{name} {ip} must be in {subnet}")),
        };
        Ok(Self {
            network: first.into(),
            prefix,
            gateway: address("gateway", first + 1)?.into(),
            start: address("rangeStart", first + 1)?,
            end: address("rangeEnd", last - 1)?,
        })
    }
}

/// `10.42.0.0/24` in parts.
pub(super) fn parse_cidr(text: &str) -> Option<(Ipv4Addr, u8)> {
    let (ip, prefix) = text.split_once('/')?;
    let prefix: u8 = prefix.parse().ok()?;
    (prefix <= 32).then_some((ip.parse().ok()?, prefix))
}

/// The reservations of one network.
#[derive(Debug)]
pub(super) struct HostLocal {
    range: Range,
    dir: PathBuf,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    owners: BTreeMap<Ipv4Addr, String>,
    last: Option<u32>,
}

impl HostLocal {
    /// Reads what is reserved in `dir`.
    pub(super) fn open(range: Range, dir: PathBuf) -> Result<Self, CniError> {
        fs::create_dir_all(&dir).map_err(CniError::state(&dir))?;
        let mut taken = Taken::default();
        for entry in fs::read_dir(&dir).map_err(CniError::state(&dir))? {
            let path = entry.map_err(CniError::state(&dir))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if let Ok(ip) = name.parse() {
                taken.owners.insert(ip, fs::read_to_string(&path).map_err(CniError::state(&path))?);
            }
        }
        taken.last = fs::read_to_string(dir.join(LAST_RESERVED))
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .map(|ip: Ipv4Addr| u32::from(ip));
        Ok(Self { range, dir, taken: Mutex::new(taken) })
    }

    pub(super) fn range(&self) -> &Range {
        &self.range
    }

    /// Reserves an address; who has one already gets it again.
    pub(super) fn reserve(&self, container_id: &str, ifname: &str) -> Result<Ipv4Addr, CniError> {
        let owner = owner(container_id, ifname);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((ip, _)) = taken.owners.iter().find(|(_, found)| **found == owner) {
            return Ok(*ip);
        }
        let file = self.dir.join(format!("{container_id}-{ifname}.new"));
        fs::write(&file, &owner).map_err(CniError::state(&file))?;
        let reserved = self.reserve_next(&mut taken, &file, &owner);
        remove_if_there(&file)?;
        reserved
    }

    fn reserve_next(&self, taken: &mut Taken, file: &PathBuf, owner: &str) -> Result<Ipv4Addr, CniError> {
        let Range { start, end, gateway, network, prefix } = self.range;
        let first = taken.last.map_or(start, |last| last + 1);
        let first = if (start..=end).contains(&first) { first } else { start };
        for candidate in (first..=end).chain(start..first) {
            let ip = Ipv4Addr::from(candidate);
            if ip == gateway || taken.owners.contains_key(&ip) {
                continue;
            }
            let path = self.dir.join(ip.to_string());
            match fs::hard_link(file, &path) {
                Ok(()) => {
                    taken.owners.insert(ip, owner.to_owned());
                    taken.last = Some(candidate);
                    let last = self.dir.join(LAST_RESERVED);
                    fs::write(&last, ip.to_string()).map_err(CniError::state(&last))?;
                    return Ok(ip);
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    taken.owners.insert(ip, fs::read_to_string(&path).map_err(CniError::state(&path))?);
                }
                Err(error) => return Err(CniError::state(&path)(error)),
            }
        }
        Err(CniError::NoAddress { range: format!("{network}/{prefix}") })
    }

    /// Frees the address of a Pod's interface. No error if it has none.
    pub(super) fn release(&self, container_id: &str, ifname: &str) -> Result<(), CniError> {
        let owner = owner(container_id, ifname);
        self.release_where(|found| found == owner).map(drop)
    }

    /// Frees what belongs to none of these Pods, and returns what that was.
    pub(super) fn retain(&self, container_ids: &BTreeSet<String>) -> Result<Vec<Ipv4Addr>, CniError> {
        self.release_where(|found| !container_ids.contains(found.lines().next().unwrap_or_default()))
    }

    fn release_where(&self, is_free: impl Fn(&str) -> bool) -> Result<Vec<Ipv4Addr>, CniError> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let free: Vec<Ipv4Addr> =
            taken.owners.iter().filter(|(_, owner)| is_free(owner)).map(|(ip, _)| *ip).collect();
        for ip in &free {
            remove_if_there(&self.dir.join(ip.to_string()))?;
            taken.owners.remove(ip);
        }
        Ok(free)
    }
}

fn owner(container_id: &str, ifname: &str) -> String {
    format!("{container_id}\r\n{ifname}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn open(dir: &tempfile::TempDir) -> HostLocal {
        let range = Range::parse(&json!({ "subnet": "10.42.0.0/29" })).unwrap();
        HostLocal::open(range, dir.path().join("net")).unwrap()
    }

    #[test]
    fn addresses_are_unique_survive_a_restart_and_are_used_again_last() {
        let dir = tempfile::tempdir().unwrap();
        let ipam = open(&dir);
        assert_eq!(ipam.reserve("a", "eth0").unwrap().to_string(), "10.42.0.2");
        assert_eq!(ipam.reserve("b", "eth0").unwrap().to_string(), "10.42.0.3");
        assert_eq!(
            ipam.reserve("a", "eth0").unwrap().to_string(),
            "10.42.0.2",
            "the same Pod keeps its address"
        );
        ipam.release("a", "eth0").unwrap();
        ipam.release("a", "eth0").unwrap();
        let ipam = open(&dir);
        assert_eq!(ipam.reserve("b", "eth0").unwrap().to_string(), "10.42.0.3");
        let more: Vec<String> =
            (0..4).map(|n| ipam.reserve(&format!("c{n}"), "eth0").unwrap().to_string()).collect();
        assert_eq!(more, ["10.42.0.4", "10.42.0.5", "10.42.0.6", "10.42.0.2"]);
        assert_eq!(
            ipam.reserve("d", "eth0").unwrap_err().to_string(),
            "no IP addresses available in range set: 10.42.0.0/29"
        );
        let keep = BTreeSet::from(["b".to_owned()]);
        assert_eq!(ipam.retain(&keep).unwrap().len(), 4);
        assert_eq!(ipam.reserve("d", "eth0").unwrap().to_string(), "10.42.0.4");
    }

    #[test]
    fn a_range_says_what_is_wrong_with_it() {
        for (ipam, says) in [
            (json!({}), "ipam has no subnet"),
            (json!({ "subnet": "10.42.0.0" }), "subnet 10.42.0.0 must be an IPv4 network"),
            (json!({ "subnet": "10.42.0.0/31" }), "subnet 10.42.0.0/31 must have room for two Pods"),
            (
                json!({ "subnet": "10.42.0.0/24", "gateway": "10.43.0.1" }),
                "gateway 10.43.0.1 must be in 10.42.0.0/24",
            ),
        ] {
            assert_eq!(Range::parse(&ipam).unwrap_err(), says);
        }
    }
}
