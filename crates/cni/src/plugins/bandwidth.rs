//! `bandwidth`: how much a Pod may receive and send in a second.
//!
//! What the Pod receives leaves the host's end of its veth pair at a rate; what it sends is led through a link of its own
//! (`ifb`) that it leaves at a rate. Fields are upstream's; a burst that nobody has chosen is made of the rate.

use serde::Deserialize;
use serde_json::Value;
use sys::netlink::{Link, Route, TICK_NANOS, TokenBucket};
use sys::netns::NetNs;

use super::rules::owner_of;
use super::{Attached, Site, hash_of, mac_text};
use crate::attachment::Attachment;
use crate::types::{CniError, CniResult, Interface};

const NAME: &str = "bandwidth";
/// Names of links that Pods' packets are led through start with this.
const IFB_PREFIX: &str = "kb";
/// The least burst, in bytes, that is made of a rate: the largest packet that the kernel has in one piece, 64 KiB, with
/// the headers of what it is cut into.
const BURST_BYTES_MIN: u64 = 72 * 1024;
/// 50 and 25 milliseconds as parts of a second: what may leave at once, and how much longer packets wait at most. The
/// second is upstream's.
const BURST_PART: u64 = 20;
const WAIT_PART: u64 = 40;
/// The header of an Ethernet packet, with a VLAN.
const FRAME_BYTES: u64 = 18;
/// In bits. Source: upstream's plugin.
const BURST_BITS_MAX: u64 = 8 * u32::MAX as u64;
/// What runtimes say, in bits, where they must say some burst: it is no choice of anybody's. Source: containerd, dockershim.
const NO_CHOICE: [u64; 3] = [0, i32::MAX as u64, u32::MAX as u64];

/// Limits in bits and bits in a second, 0 for none. Source: CNI's capability `bandwidth`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Limits {
    ingress_rate: u64,
    ingress_burst: u64,
    egress_rate: u64,
    egress_burst: u64,
}

/// Why limits cannot be. The words are those of upstream's plugin.
#[derive(Debug, thiserror::Error)]
enum LimitsError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("if burst is set, rate must also be set")]
    BurstAlone,
    #[error("burst cannot be more than 4GB")]
    Burst,
}

/// What a Pod receives through, and what it sends through.
type Plan = (Option<TokenBucket>, Option<TokenBucket>);

impl Limits {
    fn read(value: &Value) -> Result<Self, LimitsError> {
        let limits: Self = serde_json::from_value(value.clone())?;
        let pairs = [(limits.ingress_rate, limits.ingress_burst), (limits.egress_rate, limits.egress_burst)];
        if pairs.iter().any(|(rate, burst)| *rate == 0 && *burst != 0) {
            return Err(LimitsError::BurstAlone);
        }
        if pairs.iter().any(|(_, burst)| *burst >= BURST_BITS_MAX) {
            return Err(LimitsError::Burst);
        }
        Ok(limits)
    }

    fn is_none(&self) -> bool {
        self.ingress_rate == 0 && self.egress_rate == 0
    }

    /// For a link whose packets have at most `mtu` bytes.
    fn plan(&self, mtu: u32) -> Plan {
        let of = |rate: u64, burst: u64| (rate != 0).then(|| bucket(rate, burst, mtu));
        (of(self.ingress_rate, self.ingress_burst), of(self.egress_rate, self.egress_burst))
    }
}

/// A burst of less than a packet would let nothing through.
fn bucket(rate_bits: u64, burst_bits: u64, mtu: u32) -> TokenBucket {
    let rate = (rate_bits / 8).max(1);
    let burst = match NO_CHOICE.contains(&burst_bits) {
        true => (rate / BURST_PART).max(BURST_BYTES_MIN),
        false => burst_bits / 8,
    };
    let burst = burst.max(u64::from(mtu) + FRAME_BYTES);
    let nanos = u128::from(burst) * 1_000_000_000;
    let ticks = nanos.div_ceil(u128::from(rate) * u128::from(TICK_NANOS));
    TokenBucket {
        rate,
        limit: u32::try_from(burst + rate / WAIT_PART).unwrap_or(u32::MAX),
        buffer_ticks: u32::try_from(ticks).unwrap_or(u32::MAX),
    }
}

/// The plugin.
#[derive(Debug)]
pub(crate) struct Bandwidth {
    network: String,
    /// Limits of the configuration's own, for every Pod.
    own: Option<Limits>,
    is_told: bool,
    /// What the names of this network's links start with.
    prefix: String,
}

impl Bandwidth {
    pub(super) fn new(network: &str, conf: &Value, site: &Site) -> Result<Self, CniError> {
        const FIELDS: [&str; 4] = ["ingressRate", "ingressBurst", "egressRate", "egressBurst"];
        let has_own = FIELDS.iter().any(|field| conf.get(field).is_some_and(|value| !value.is_null()));
        let invalid =
            |error: LimitsError| CniError::Config { path: network.into(), reason: error.to_string() };
        let own = has_own.then(|| Limits::read(conf)).transpose().map_err(invalid)?;
        let (network, is_told) = (network.to_owned(), super::is_told(conf, NAME));
        Ok(Self { network, own, is_told, prefix: ifb_prefix(site.rules.table()) })
    }

    /// `None` if the Pod may send and receive as it likes.
    fn limits(&self, attachment: &Attachment) -> Result<Option<Limits>, CniError> {
        let told = attachment.capabilities.get(NAME).filter(|told| self.is_told && !told.is_null());
        let limits = match (self.own, told) {
            (Some(own), _) => own,
            (None, Some(told)) => Limits::read(told).map_err(|error| CniError::Config {
                path: self.network.clone().into(),
                reason: format!("{NAME}: {error}"),
            })?,
            (None, None) => return Ok(None),
        };
        Ok(Some(limits).filter(|limits| !limits.is_none()))
    }

    fn ifb_name(&self, attachment: &Attachment) -> String {
        format!("{}{:08x}", self.prefix, hash_of(&owner_of(attachment)) & 0xffff_ffff)
    }

    /// What came before it, and the link that it has made.
    pub(super) fn add(
        &self,
        attachment: &Attachment,
        mut previous: CniResult,
    ) -> Result<CniResult, CniError> {
        let Some(limits) = self.limits(attachment)? else { return Ok(previous) };
        if let Some(ifb) = self.limit(attachment, &previous, limits)? {
            let (name, mac) = (ifb.name, mac_text(&ifb.mac));
            previous.interfaces.push(Interface { name, mac, ..Interface::default() });
        }
        Ok(previous)
    }

    /// May be repeated. What the Pod sends is redirected when all is there that it is redirected to.
    fn limit(
        &self,
        attachment: &Attachment,
        previous: &CniResult,
        limits: Limits,
    ) -> Result<Option<Link>, CniError> {
        let mut route = Route::open()?;
        let link = host_end(&mut route, attachment, previous)?;
        let (ingress, egress) = limits.plan(link.mtu);
        if let Some(bucket) = ingress {
            needing("tbf (module sch_tbf)", route.set_token_bucket(link.index, &bucket))?;
        }
        let Some(bucket) = egress else { return Ok(None) };
        let ifb = self.make_ifb(&mut route, attachment, link.mtu)?;
        needing("tbf (module sch_tbf)", route.set_token_bucket(ifb.index, &bucket))?;
        route.set_up(&ifb.name)?;
        let modules = "ingress, u32 or mirred (modules sch_ingress, cls_u32, act_mirred)";
        needing(modules, route.redirect_incoming(link.index, ifb.index))?;
        Ok(Some(ifb))
    }

    fn make_ifb(&self, route: &mut Route, attachment: &Attachment, mtu: u32) -> Result<Link, CniError> {
        let (name, owner) = (self.ifb_name(attachment), owner_of(attachment));
        let made = match route.create_ifb(&name, mtu) {
            // Left by an attempt that was cut off. That of a Pod whose name is another's by chance stays.
            Err(error) if error.is_exists() => {
                if route.link(&name)?.is_some_and(|link| !["", owner.as_str()].contains(&&*link.alias)) {
                    return Err(error.into());
                }
                route.delete_link(&name)?;
                route.create_ifb(&name, mtu)
            }
            made => made,
        };
        needing("ifb (module ifb)", made)?;
        route.set_alias(&name, &owner)?;
        let missing = || CniError::Bandwidth(format!("link {name} is missing"));
        route.link(&name)?.ok_or_else(missing)
    }

    /// Queues go with the link that they are of.
    pub(super) fn del(&self, attachment: &Attachment) -> Result<(), CniError> {
        Ok(Route::open()?.delete_link(&self.ifb_name(attachment))?)
    }

    pub(super) fn check(&self, attachment: &Attachment, previous: &CniResult) -> Result<(), CniError> {
        let Some(limits) = self.limits(attachment)? else { return Ok(()) };
        let mut route = Route::open()?;
        let link = host_end(&mut route, attachment, previous)?;
        let (ingress, egress) = limits.plan(link.mtu);
        if ingress.is_some() {
            check_bucket(&mut route, &link, ingress)?;
        }
        if egress.is_none() {
            return Ok(());
        }
        let name = self.ifb_name(attachment);
        let ifb = match route.link(&name)? {
            Some(ifb) if ifb.is_up => ifb,
            Some(_) => return Err(CniError::Check(format!("link {name} is down"))),
            None => return Err(CniError::Check(format!("link {name} is missing"))),
        };
        check_bucket(&mut route, &ifb, egress)?;
        if route.incoming_redirected_to(link.index)? != Some(ifb.index) {
            return Err(CniError::Check(format!("{} is not redirected to {name}", link.name)));
        }
        Ok(())
    }

    /// Limits again what was limited and is not any more.
    pub(super) fn restore<'a>(&self, kept: impl Iterator<Item = (&'a Attachment, &'a CniResult)>) {
        for (attachment, result) in kept {
            let Ok(Some(limits)) = self.limits(attachment) else { continue };
            // What was attached without this plugin is detached without it.
            let ifb = self.ifb_name(attachment);
            let was_limited = limits.egress_rate == 0 || result.interfaces.iter().any(|it| it.name == ifb);
            let is_there = attachment.netns_path.exists();
            if !was_limited || !is_there || self.check(attachment, result).is_ok() {
                continue;
            }
            match self.limit(attachment, result, limits) {
                Ok(_) => {
                    tracing::info!(container = attachment.container_id, "the bandwidth is limited again")
                }
                Err(error) => {
                    tracing::warn!(container = attachment.container_id, %error, "the bandwidth is not limited");
                }
            }
        }
    }

    /// Takes away the links of what is not attached, and those that nobody was told of.
    pub(super) fn retain(&self, attached: &Attached) -> Result<(), CniError> {
        let mut route = Route::open()?;
        let links = route.links()?;
        let own = links.iter().filter(|link| is_ifb(link, &self.prefix));
        let mut stale = own.filter(|link| link.alias.is_empty() || !attached.owns(&link.alias));
        stale.try_for_each(|link| Ok(route.delete_link(&link.name)?))
    }
}

/// The names among `links` of those that the Pods of the network with this nftables table are led through.
pub(crate) fn ifbs_of<'a>(links: &'a [Link], table: &str) -> impl Iterator<Item = &'a str> {
    let prefix = ifb_prefix(table);
    links.iter().filter(move |link| is_ifb(link, &prefix)).map(|link| link.name.as_str())
}

fn is_ifb(link: &Link, prefix: &str) -> bool {
    link.kind == "ifb" && link.name.starts_with(prefix)
}

/// Of one network: others on the host have links of their own.
fn ifb_prefix(table: &str) -> String {
    format!("{IFB_PREFIX}{:05x}", hash_of(table) & 0xf_ffff)
}

/// The host's end of the Pod's veth pair, among what the plugins before have made.
fn host_end(route: &mut Route, attachment: &Attachment, previous: &CniResult) -> Result<Link, CniError> {
    let ifname = &attachment.ifname;
    let end = NetNs::open(&attachment.netns_path)?.run(|| Route::open()?.link(ifname))?;
    if let Some(index) = end.filter(|link| link.kind == "veth").and_then(|link| link.peer) {
        for made in previous.interfaces.iter().filter(|it| it.sandbox.is_empty()) {
            if let Some(link) = route.link(&made.name)?.filter(|link| link.index == index) {
                return Ok(link);
            }
        }
    }
    Err(CniError::Bandwidth(format!("{ifname} is no end of a veth pair whose other end is on the host")))
}

fn check_bucket(route: &mut Route, link: &Link, planned: Option<TokenBucket>) -> Result<(), CniError> {
    let found = route.token_bucket(link.index)?;
    if found == planned {
        return Ok(());
    }
    let what = if found.is_some() { "is not as it was set" } else { "is missing" };
    Err(CniError::Check(format!("the rate of link {} {what}", link.name)))
}

/// Says what the kernel lacks.
fn needing<T>(what: &str, made: sys::Result<T>) -> Result<T, CniError> {
    made.map_err(|error| match error.is_unknown_kind() {
        true => CniError::Bandwidth(format!("the kernel has no {what}")),
        false => error.into(),
    })
}

#[cfg(test)]
mod tests;
