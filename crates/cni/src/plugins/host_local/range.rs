//! The addresses that `host-local` gives: sets of ranges, from each of which an interface gets one. Pure.
//!
//! A range may have more addresses than fit into memory: nothing here lists them.
//!
//! Source: upstream's plugin, `range.go`, `range_set.go`, `allocator.go`.

use std::fmt;
use std::net::IpAddr;

use machinery::address_range::AddressRange;
use machinery::net::{Cidr, Family};
use serde_json::Value;

/// Why a configuration names no ranges.
#[derive(Debug, thiserror::Error)]
pub(super) enum RangeError {
    #[error("ipam has no subnet")]
    NoSubnet,
    #[error("subnet {0} must be a network")]
    NoNetwork(String),
    #[error("subnet {0} must have room for two Pods")]
    TooSmall(String),
    #[error("{0} {1} must be in {2}")]
    Outside(&'static str, String, String),
    #[error("rangeEnd {end} must not be before rangeStart {start}")]
    Backwards { start: IpAddr, end: IpAddr },
    #[error("empty range set")]
    EmptySet,
    #[error("mixed address families")]
    MixedFamilies,
    #[error("subnets {0} and {1} overlap")]
    Overlap(AddressRange, AddressRange),
    #[error("range set {0} overlaps with {1}")]
    SetsOverlap(usize, usize),
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) subnet: Cidr,
    pub(crate) gateway: IpAddr,
    given: AddressRange,
}

impl Range {
    /// Reads `subnet`, `gateway`, `rangeStart` and `rangeEnd`.
    fn parse(range: &Value) -> Result<Self, RangeError> {
        let text = |name: &str| range.get(name).and_then(Value::as_str);
        let written = text("subnet").ok_or(RangeError::NoSubnet)?;
        let wrong = || RangeError::NoNetwork(written.to_owned());
        let subnet = written.parse::<Cidr>().map_err(|_| wrong())?.network();
        if subnet.size() < 4 {
            return Err(RangeError::TooSmall(written.to_owned()));
        }
        // The first address is the network's own; of IPv4, the last one is for all.
        let first = subnet.nth(1).ok_or_else(wrong)?;
        let last = match subnet.family() {
            Family::V4 => subnet.nth(subnet.size().saturating_sub(2)).ok_or_else(wrong)?,
            Family::V6 => subnet.last(),
        };
        let address = |name: &'static str, otherwise: IpAddr| match text(name).filter(|text| !text.is_empty())
        {
            None => Ok(otherwise),
            Some(ip) => {
                let inside = ip.parse().ok().filter(|ip| subnet.contains(*ip));
                inside.ok_or_else(|| RangeError::Outside(name, ip.to_owned(), written.to_owned()))
            }
        };
        let (start, end) = (address("rangeStart", first)?, address("rangeEnd", last)?);
        let given = AddressRange::new(start, end).ok_or(RangeError::Backwards { start, end })?;
        Ok(Self { subnet, gateway: address("gateway", first)?, given })
    }

    /// The address with the length of the network's prefix, as results have it.
    pub(crate) fn with_prefix(&self, ip: IpAddr) -> String {
        format!("{ip}/{}", self.subnet.bits())
    }
}

/// Ranges of one family, of which the next is used when one has no address left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeSet(Vec<Range>);

impl RangeSet {
    fn parse(set: &Value) -> Result<Self, RangeError> {
        let ranges = set.as_array().map_or(&[][..], Vec::as_slice).iter().map(Range::parse);
        let ranges: Vec<Range> = ranges.collect::<Result<_, _>>()?;
        let first = ranges.first().ok_or(RangeError::EmptySet)?;
        if ranges.iter().any(|range| range.subnet.family() != first.subnet.family()) {
            return Err(RangeError::MixedFamilies);
        }
        for (number, one) in ranges.iter().enumerate() {
            if let Some(other) = ranges.iter().skip(number + 1).find(|other| other.given.overlaps(one.given))
            {
                return Err(RangeError::Overlap(one.given, other.given));
            }
        }
        Ok(Self(ranges))
    }

    /// The ranges in the order in which they are used.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = &Range> {
        self.0.iter()
    }

    /// The range that gives this address.
    pub(super) fn range_of(&self, ip: IpAddr) -> Option<&Range> {
        self.0.iter().find(|range| range.given.contains(ip))
    }

    /// All addresses but gateways, those behind `last` first.
    pub(super) fn candidates(&self, last: Option<IpAddr>) -> impl Iterator<Item = IpAddr> {
        let all = || self.0.iter().map(|range| range.given);
        let at = last.and_then(|last| Some((all().position(|given| given.contains(last))?, last)));
        let runs: Vec<AddressRange> = match at.and_then(|(at, last)| Some((at, all().nth(at)?, last))) {
            None => all().collect(),
            Some((at, given, last)) => {
                let next = AddressRange::new(last, given.last()).and_then(|rest| rest.addresses().nth(1));
                let rest = next.and_then(|next| AddressRange::new(next, given.last()));
                let others = all().skip(at + 1).chain(all().take(at));
                rest.into_iter().chain(others).chain(AddressRange::new(given.first(), last)).collect()
            }
        };
        let is_gateway = |ip: &IpAddr| self.0.iter().any(|range| range.gateway == *ip);
        runs.into_iter().flat_map(AddressRange::addresses).filter(move |ip| !is_gateway(ip))
    }
}

/// As upstream's plugin says it.
impl fmt::Display for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges: Vec<String> = self.0.iter().map(|range| range.given.to_string()).collect();
        f.write_str(&ranges.join(","))
    }
}

/// The sets of an IPAM configuration: that of the old form, of a network alone, comes first.
pub(super) fn parse(ipam: &Value) -> Result<Vec<RangeSet>, RangeError> {
    let listed = ipam.get("ranges").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let alone =
        ipam.get("subnet").filter(|subnet| !subnet.is_null()).map(|_| Value::from(vec![ipam.clone()]));
    let sets: Vec<RangeSet> = alone.iter().chain(listed).map(RangeSet::parse).collect::<Result<_, _>>()?;
    if sets.is_empty() {
        return Err(RangeError::NoSubnet);
    }
    for (number, one) in sets.iter().enumerate() {
        let overlaps = |other: &RangeSet| {
            one.ranges().any(|range| other.ranges().any(|other| range.given.overlaps(other.given)))
        };
        if let Some(after) = sets.iter().skip(number + 1).position(overlaps) {
            return Err(RangeError::SetsOverlap(number, number + 1 + after));
        }
    }
    Ok(sets)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ranges_say_what_they_give_or_what_is_wrong_with_them() {
        let (v4, v6) = (json!({ "subnet": "10.42.0.0/24" }), json!({ "subnet": "fd42::/64" }));
        for (ipam, expect) in [
            (json!({}), Err("ipam has no subnet")),
            (json!({ "ranges": [[{}]] }), Err("ipam has no subnet")),
            (json!({ "ranges": [[]] }), Err("empty range set")),
            (v4.clone(), Ok("10.42.0.1-10.42.0.254")),
            (v6.clone(), Ok("fd42::1-fd42::ffff:ffff:ffff:ffff")),
            (json!({ "ranges": [[v4]] }), Ok("10.42.0.1-10.42.0.254")),
            (
                json!({ "ranges": [[v4], [v6]] }),
                Ok("10.42.0.1-10.42.0.254 fd42::1-fd42::ffff:ffff:ffff:ffff"),
            ),
            (
                json!({ "subnet": "10.9.0.0/30", "ranges": [[v6]] }),
                Ok("10.9.0.1-10.9.0.2 fd42::1-fd42::ffff:ffff:ffff:ffff"),
            ),
            (
                json!({ "ranges": [[v4, { "subnet": "10.43.0.0/24", "rangeStart": "10.43.0.7" }]] }),
                Ok("10.42.0.1-10.42.0.254,10.43.0.7-10.43.0.254"),
            ),
            (json!({ "subnet": "fd42::/126" }), Ok("fd42::1-fd42::3")),
            (json!({ "subnet": "::/0" }), Ok("::1-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")),
            (json!({ "subnet": "0.0.0.0/0" }), Ok("0.0.0.1-255.255.255.254")),
            (json!({ "subnet": "fd42::/127" }), Err("subnet fd42::/127 must have room for two Pods")),
            (json!({ "subnet": "fd42::/128" }), Err("subnet fd42::/128 must have room for two Pods")),
            (json!({ "subnet": "10.42.0.0/31" }), Err("subnet 10.42.0.0/31 must have room for two Pods")),
            (json!({ "subnet": "10.42.0.0" }), Err("subnet 10.42.0.0 must be a network")),
            (json!({ "subnet": "fd42::/129" }), Err("subnet fd42::/129 must be a network")),
            (
                json!({ "subnet": "10.42.0.0/24", "gateway": "10.43.0.1" }),
                Err("gateway 10.43.0.1 must be in 10.42.0.0/24"),
            ),
            (
                json!({ "subnet": "fd42::/64", "rangeStart": "10.42.0.1" }),
                Err("rangeStart 10.42.0.1 must be in fd42::/64"),
            ),
            (
                json!({ "subnet": "fd42::/64", "rangeStart": "fd42::9", "rangeEnd": "fd42::8" }),
                Err("rangeEnd fd42::8 must not be before rangeStart fd42::9"),
            ),
            (json!({ "ranges": [[v4, v6]] }), Err("mixed address families")),
            (
                json!({ "ranges": [[v6, { "subnet": "fd42::/80" }]] }),
                Err("subnets fd42::1-fd42::ffff:ffff:ffff:ffff and fd42::1-fd42::ffff:ffff:ffff overlap"),
            ),
            (
                json!({ "ranges": [[v6], [v4], [{ "subnet": "fd42::/80" }]] }),
                Err("range set 0 overlaps with 2"),
            ),
        ] {
            let found = parse(&ipam).map_err(|error| error.to_string());
            let found = found.map(|sets| sets.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
            assert_eq!(found, expect.map(str::to_owned).map_err(str::to_owned), "{ipam}");
        }
    }

    #[test]
    fn addresses_behind_the_last_one_come_first_and_gateways_never() {
        let set = |ranges: Value| RangeSet::parse(&ranges).unwrap();
        let small = set(json!([{ "subnet": "10.1.0.0/29" }]));
        let two = set(json!([{ "subnet": "fd01::/126" }, { "subnet": "fd02::/126", "gateway": "fd02::3" }]));
        let end = set(json!([{ "subnet": "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffc/126" }]));
        for (set, last, expect) in [
            (&small, None, "10.1.0.2 10.1.0.3 10.1.0.4 10.1.0.5 10.1.0.6"),
            (&small, Some("10.1.0.4"), "10.1.0.5 10.1.0.6 10.1.0.2 10.1.0.3 10.1.0.4"),
            (&small, Some("10.1.0.6"), "10.1.0.2 10.1.0.3 10.1.0.4 10.1.0.5 10.1.0.6"),
            (&small, Some("10.2.0.1"), "10.1.0.2 10.1.0.3 10.1.0.4 10.1.0.5 10.1.0.6"),
            (&small, Some("fd01::2"), "10.1.0.2 10.1.0.3 10.1.0.4 10.1.0.5 10.1.0.6"),
            (&two, None, "fd01::2 fd01::3 fd02::1 fd02::2"),
            (&two, Some("fd01::2"), "fd01::3 fd02::1 fd02::2 fd01::2"),
            (&two, Some("fd02::1"), "fd02::2 fd01::2 fd01::3 fd02::1"),
            (
                &end,
                Some("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
                "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            ),
        ] {
            let last = last.map(|text| text.parse().unwrap());
            let found: Vec<String> = set.candidates(last).map(|ip| ip.to_string()).collect();
            assert_eq!(found.join(" "), expect, "{set} behind {last:?}");
        }
        let large = set(json!([{ "subnet": "fd42::/64" }]));
        let found: Vec<String> = large.candidates(None).take(2).map(|ip| ip.to_string()).collect();
        assert_eq!(found, ["fd42::2", "fd42::3"]);
    }
}
