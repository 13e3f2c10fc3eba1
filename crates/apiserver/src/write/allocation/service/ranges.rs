//! The ranges that cluster IPs come from: those of the ServiceCIDRs that are ready.
//!
//! Source: `pkg/registry/core/service/ipallocator/{cidrallocator,ipallocator}.go`, KEP-1880, KEP-3070.

use std::net::IpAddr;

use machinery::metadata::Metadata;
use machinery::net::{Cidr, Family};
use serde_json::Value;

/// The lower band of a range is for addresses that users choose; this is how small and large it may be, and which
/// part of the range.
const BAND_MIN: u64 = 16;
const BAND_MAX: u64 = 256;
const BAND_STEP: u64 = 16;
/// Upstream takes no larger IPv6 range.
const BITS_MIN_V6: u8 = 64;

/// A range that addresses can be taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    cidr: Cidr,
    /// How many addresses can be given out; the first is at offset 1.
    hosts: u64,
    band: u64,
}

impl Range {
    fn new(cidr: Cidr) -> Option<Self> {
        let size = cidr.size();
        if cidr.family() == Family::V6 && cidr.bits() < BITS_MIN_V6 {
            return None;
        }
        // IPv4 has an address for all, too.
        let hosts = size.saturating_sub(if cidr.family() == Family::V4 { 2 } else { 1 });
        let band = if size <= BAND_MIN { 0 } else { (size / BAND_STEP).clamp(BAND_MIN, BAND_MAX) };
        Some(Self { cidr, hosts, band: band.min(hosts) })
    }

    /// Whether the address can be given out.
    pub(super) fn has(&self, address: IpAddr) -> bool {
        let is_first = address == self.cidr.first();
        let is_last = address.is_ipv4() && address == self.cidr.last();
        self.cidr.contains(address) && !is_first && !is_last
    }

    /// Every address that can be given out, those first that are meant for it, from where chance says.
    pub(super) fn candidates(&self, random: &base::Random) -> impl Iterator<Item = IpAddr> + use<> {
        let (cidr, hosts, band) = (self.cidr, self.hosts, self.band);
        let upper = band + random.below(hosts - band);
        let lower = random.below(band);
        let order = (upper..hosts).chain(band..upper).chain(lower..band).chain(0..lower);
        order.filter_map(move |n| cidr.nth(n + 1))
    }

    pub(super) fn family(&self) -> Family {
        self.cidr.family()
    }
}

/// The networks of a ServiceCIDR.
pub(super) fn networks(service_cidr: &Value) -> impl Iterator<Item = Cidr> {
    let texts = service_cidr.pointer("/spec/cidrs").and_then(Value::as_array).into_iter().flatten();
    texts.filter_map(|text| text.as_str()?.parse().ok())
}

/// Where no controller says otherwise, a ServiceCIDR is ready.
fn is_ready(service_cidr: &Value) -> bool {
    let conditions = service_cidr.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
    !Metadata::of(service_cidr).is_terminating() && ready.is_none_or(|ready| ready["status"] == "True")
}

/// What the ServiceCIDRs offer, each range once.
pub(super) fn offered<'a>(service_cidrs: impl Iterator<Item = &'a Value>) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    for range in service_cidrs.filter(|one| is_ready(one)).flat_map(networks).filter_map(Range::new) {
        if !ranges.contains(&range) {
            ranges.push(range);
        }
    }
    ranges
}

/// Whether an address lies in any ServiceCIDR, ready or not.
pub(super) fn is_inside<'a>(address: IpAddr, mut service_cidrs: impl Iterator<Item = &'a Value>) -> bool {
    service_cidrs.any(|one| networks(one).filter_map(Range::new).any(|range| range.has(address)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn range(text: &str) -> Range {
        Range::new(text.parse().unwrap()).unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn every_address_but_the_ends_is_offered_once_and_the_lower_band_last() {
        let all: Vec<IpAddr> = range("10.0.0.0/24").candidates(&base::Random::seeded(3)).collect();
        assert_eq!(all.len(), 254);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 254);
        let is_low = |address: &IpAddr| *address <= ip("10.0.0.16");
        assert!(all[..238].iter().all(|address| !is_low(address)));
        assert!(all[238..].iter().all(is_low));
    }

    /// Source: `TestCalculateRangeOffset` of upstream's `ipallocator`.
    #[test]
    fn the_band_is_upstreams_part_of_the_range() {
        for (cidr, expect) in [
            ("192.168.1.0/24", 16),
            ("192.168.1.0/27", 16),
            ("192.168.1.0/28", 0),
            ("192.168.1.0/30", 0),
            ("10.0.0.0/20", 256),
            ("10.0.0.0/21", 128),
            ("10.0.0.0/8", 256),
            ("fd00::/112", 256),
            ("fd00::/124", 0),
            ("fd00::/64", 256),
        ] {
            assert_eq!(range(cidr).band, expect, "{cidr}");
        }
    }

    #[test]
    fn small_ranges_have_no_band() {
        let all: Vec<IpAddr> = range("10.0.0.0/30").candidates(&base::Random::seeded(3)).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>(), [&ip("10.0.0.1"), &ip("10.0.0.2")].into());
        assert_eq!(range("10.0.0.7/32").candidates(&base::Random::seeded(3)).count(), 0);
    }

    #[test]
    fn network_and_broadcast_addresses_cannot_be_asked_for() {
        let range = range("10.0.0.0/24");
        assert!(range.has(ip("10.0.0.1")) && range.has(ip("10.0.0.254")));
        assert!(!range.has(ip("10.0.0.0")) && !range.has(ip("10.0.0.255")) && !range.has(ip("10.0.1.1")));
        let range = self::range("fd00::/120");
        assert!(range.has(ip("fd00::ff")) && !range.has(ip("fd00::")) && !range.has(ip("fd00::100")));
    }

    #[test]
    fn only_what_is_ready_and_stays_offers_addresses() {
        let list: Vec<Value> = serde_saphyr::from_str(
            "[{spec: {cidrs: [10.0.0.0/24, 'fd00::/112']}},
              {spec: {cidrs: [10.0.0.0/24]}, status: {conditions: [{type: Ready, status: 'True'}]}},
              {spec: {cidrs: [10.1.0.0/24]}, status: {conditions: [{type: Ready, status: 'False'}]}},
              {metadata: {deletionTimestamp: '2026-01-01T00:00:00Z'}, spec: {cidrs: [10.2.0.0/24]}},
              {spec: {cidrs: ['fd01::/48']}}]",
        )
        .unwrap();
        assert_eq!(offered(list.iter()), [range("10.0.0.0/24"), range("fd00::/112")]);
        assert!(is_inside(ip("10.1.0.7"), list.iter()));
        assert!(!is_inside(ip("10.3.0.7"), list.iter()));
    }
}
