//! `host-local`: addresses from a range, reserved on disk: one file per address, which says whose it is.
//!
//! The files are those of upstream's plugin, so that either takes over from the other.
//! A reservation is a hard link to a whole file: it is there with its owner or not at all. The range's network,
//! gateway and broadcast addresses are never given. Freed addresses are used again as late as possible.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use machinery::net::Cidr;
use serde_json::{Value, json};

use super::{Attached, Site};
use crate::network::{Attachment, remove_if_there};
use crate::types::{CniError, CniResult, IpConfig, RouteConfig};

/// End of the names of files that become reservations.
const UNFINISHED: &str = ".new";
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
        let sets = ipam.get("ranges").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let sizes = sets.iter().map(|set| set.as_array().map_or(0, Vec::len));
        if !sets.is_empty() && (sets.len() > 1 || sizes.sum::<usize>() != 1) {
            return Err("ranges must have one set of one range".into());
        }
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

/// As upstream's plugin says it.
impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", Ipv4Addr::from(self.start), Ipv4Addr::from(self.end))
    }
}

/// Of the only range set.
fn no_address(why: &str) -> CniError {
    CniError::NoAddress(format!("failed to allocate for range 0: {why}"))
}

/// `10.42.0.0/24` in parts: the kernel's requests and rules here are those of IPv4.
pub(super) fn parse_cidr(text: &str) -> Option<(Ipv4Addr, u8)> {
    text.parse::<Cidr>().ok()?.v4()
}

/// The reservations of one network.
#[derive(Debug)]
pub(crate) struct HostLocal {
    range: Range,
    resolv_conf: Option<PathBuf>,
    dir: PathBuf,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    owners: BTreeMap<Ipv4Addr, String>,
    last: Option<u32>,
}

impl HostLocal {
    /// As an IPAM configuration says it, with the routes that go with the addresses.
    pub(super) fn configured(
        network: &str,
        ipam: &Value,
        site: &Site,
    ) -> Result<(Self, Vec<RouteConfig>), CniError> {
        let invalid = |reason: String| CniError::Config { path: network.into(), reason };
        let range = Range::parse(ipam).map_err(invalid)?;
        let routes = ipam.get("routes").cloned().unwrap_or_default();
        let routes: Option<Vec<RouteConfig>> =
            serde_json::from_value(routes).map_err(|error| invalid(format!("routes: {error}")))?;
        let folder = ipam.get("dataDir").and_then(Value::as_str).map(PathBuf::from);
        let folder = folder.unwrap_or_else(|| site.leases.clone());
        let resolv_conf = ipam.get("resolvConf").and_then(Value::as_str).filter(|path| !path.is_empty());
        let resolv_conf = resolv_conf.map(PathBuf::from);
        let addresses = Self { resolv_conf, ..Self::open(range, folder.join(network))? };
        Ok((addresses, routes.unwrap_or_default()))
    }

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
        Ok(Self { range, resolv_conf: None, dir, taken: Mutex::new(taken) })
    }

    /// What the file `resolvConf` says, for the result. Without one, nothing.
    pub(super) fn dns(&self) -> Result<Value, CniError> {
        let Some(path) = &self.resolv_conf else { return Ok(Value::Null) };
        Ok(dns_of(&fs::read_to_string(path).map_err(CniError::state(path))?))
    }

    pub(super) fn range(&self) -> &Range {
        &self.range
    }

    /// Reserves an address for a Pod's interface, the one that is wished for if there is one.
    pub(super) fn reserve_for(&self, attachment: &Attachment) -> Result<Ipv4Addr, CniError> {
        let wanted = attachment.wanted_ip()?;
        self.reserve(&attachment.container_id, &attachment.ifname, wanted)
    }

    /// What the plugin answers when nobody makes an interface.
    pub(super) fn add(&self, attachment: &Attachment, routes: &[RouteConfig]) -> Result<CniResult, CniError> {
        let ip = self.reserve_for(attachment)?;
        let config = IpConfig {
            address: format!("{ip}/{}", self.range.prefix),
            gateway: Some(self.range.gateway.into()),
            ..IpConfig::default()
        };
        let (ips, dns) = (vec![config], self.dns()?);
        Ok(CniResult { ips, routes: routes.to_vec(), dns, ..CniResult::default() })
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

    /// Reserves an address; who has one already gets it again.
    pub(super) fn reserve(
        &self,
        container_id: &str,
        ifname: &str,
        wanted: Option<Ipv4Addr>,
    ) -> Result<Ipv4Addr, CniError> {
        let owner = owner(container_id, ifname);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((ip, _)) = taken.owners.iter().find(|(_, found)| **found == owner) {
            return Ok(*ip);
        }
        let file = self.dir.join(format!("{container_id}-{ifname}{UNFINISHED}"));
        fs::write(&file, &owner).map_err(CniError::state(&file))?;
        let reserved = match wanted {
            Some(ip) => self.reserve_this(&mut taken, &file, &owner, ip),
            None => self.reserve_next(&mut taken, &file, &owner),
        };
        remove_if_there(&file)?;
        reserved
    }

    fn reserve_this(
        &self,
        taken: &mut Taken,
        file: &Path,
        owner: &str,
        ip: Ipv4Addr,
    ) -> Result<Ipv4Addr, CniError> {
        let Range { start, end, gateway, .. } = self.range;
        if !(start..=end).contains(&u32::from(ip)) {
            return Err(CniError::NoAddress(format!("failed to allocate all requested IPs: {ip}")));
        }
        if ip == gateway {
            return Err(no_address(&format!("requested ip {ip} is subnet's gateway")));
        }
        if self.take(taken, file, owner, ip)? {
            return Ok(ip);
        }
        Err(no_address(&format!("requested IP address {ip} is not available in range set {}", self.range)))
    }

    fn reserve_next(&self, taken: &mut Taken, file: &Path, owner: &str) -> Result<Ipv4Addr, CniError> {
        let Range { start, end, gateway, .. } = self.range;
        let first = taken.last.map_or(start, |last| last + 1);
        let first = if (start..=end).contains(&first) { first } else { start };
        for candidate in (first..=end).chain(start..first) {
            let ip = Ipv4Addr::from(candidate);
            if ip == gateway || !self.take(taken, file, owner, ip)? {
                continue;
            }
            taken.last = Some(candidate);
            let last = self.dir.join(LAST_RESERVED);
            fs::write(&last, ip.to_string()).map_err(CniError::state(&last))?;
            return Ok(ip);
        }
        Err(no_address(&format!("no IP addresses available in range set: {}", self.range)))
    }

    /// Takes this address, if nobody else has it.
    fn take(&self, taken: &mut Taken, file: &Path, owner: &str, ip: Ipv4Addr) -> Result<bool, CniError> {
        if taken.owners.contains_key(&ip) {
            return Ok(false);
        }
        let path = self.dir.join(ip.to_string());
        match fs::hard_link(file, &path) {
            Ok(()) => {
                taken.owners.insert(ip, owner.to_owned());
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
    pub(super) fn release(&self, container_id: &str, ifname: &str) -> Result<Vec<Ipv4Addr>, CniError> {
        let owner = owner(container_id, ifname);
        // What a process that was killed has left.
        remove_if_there(&self.dir.join(format!("{container_id}-{ifname}.new")))?;
        self.release_where(|found| found == owner)
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
mod tests {
    use super::*;

    fn open(dir: &tempfile::TempDir) -> HostLocal {
        let range = Range::parse(&json!({ "subnet": "10.42.0.0/29" })).unwrap();
        HostLocal::open(range, dir.path().join("net")).unwrap()
    }

    #[test]
    fn addresses_are_unique_survive_a_restart_and_are_used_again_last() {
        let dir = tempfile::tempdir().unwrap();
        let ipam = open(&dir);
        assert_eq!(ipam.reserve("a", "eth0", None).unwrap().to_string(), "10.42.0.2");
        assert_eq!(ipam.reserve("b", "eth0", None).unwrap().to_string(), "10.42.0.3");
        assert_eq!(
            ipam.reserve("a", "eth0", None).unwrap().to_string(),
            "10.42.0.2",
            "the same Pod keeps its address"
        );
        ipam.release("a", "eth0").unwrap();
        ipam.release("a", "eth0").unwrap();
        let ipam = open(&dir);
        assert_eq!(ipam.reserve("b", "eth0", None).unwrap().to_string(), "10.42.0.3");
        let more: Vec<String> =
            (0..4).map(|n| ipam.reserve(&format!("c{n}"), "eth0", None).unwrap().to_string()).collect();
        assert_eq!(more, ["10.42.0.4", "10.42.0.5", "10.42.0.6", "10.42.0.2"]);
        assert_eq!(
            ipam.reserve("d", "eth0", None).unwrap_err().to_string(),
            "failed to allocate for range 0: no IP addresses available in range set: 10.42.0.1-10.42.0.6"
        );
        let keep = Attached { containers: ["b".to_owned()].into(), ..Attached::default() };
        assert_eq!(ipam.owners_beside(&keep).len(), 4);
        ipam.retain(&keep).unwrap();
        assert_eq!(ipam.reserve("d", "eth0", None).unwrap().to_string(), "10.42.0.4");
    }

    #[test]
    fn an_address_that_is_wished_for_is_given_unless_it_is_taken_or_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let ipam = open(&dir);
        let wish = |id: &str, ip: [u8; 4]| ipam.reserve(id, "eth0", Some(ip.into()));
        assert_eq!(wish("a", [10, 42, 0, 5]).unwrap().to_string(), "10.42.0.5");
        let of_set = "failed to allocate for range 0: requested";
        for (ip, says) in [
            (5, format!("{of_set} IP address 10.42.0.5 is not available in range set 10.42.0.1-10.42.0.6")),
            (1, format!("{of_set} ip 10.42.0.1 is subnet's gateway")),
            (7, "failed to allocate all requested IPs: 10.42.0.7".to_owned()),
        ] {
            assert_eq!(wish("b", [10, 42, 0, ip]).unwrap_err().to_string(), says);
        }
        assert_eq!(ipam.reserve("c", "eth0", None).unwrap().to_string(), "10.42.0.2");
    }

    #[test]
    fn what_a_crash_left_of_a_reservation_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let ipam = open(&dir);
        let files = ["gone-eth0.new", "here-eth0.new"].map(|name| dir.path().join("net").join(name));
        files.iter().for_each(|file| fs::write(file, "half").unwrap());
        ipam.retain(&Attached { containers: ["here".to_owned()].into(), ..Attached::default() }).unwrap();
        assert_eq!(files.map(|file| file.exists()), [false, true], "a Pod that is there may be at it");
    }

    #[test]
    fn a_range_says_what_is_wrong_with_it() {
        for (ipam, says) in [
            (json!({}), "ipam has no subnet"),
            (
                json!({ "ranges": [[{ "subnet": "10.1.0.0/24" }], [{ "subnet": "fd00::/64" }]] }),
                "ranges must have one set of one range",
            ),
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
