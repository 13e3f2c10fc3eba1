//! IP addresses and CIDRs.
//!
//! Fields of old kinds are read the way they always were: IPv4 numbers may have leading zeros (and stay decimal), IPv6
//! addresses may wrap IPv4 ones, and a CIDR may have bits beyond its prefix.
//! Source: `k8s.io/apimachinery/pkg/util/validation/ip.go`, KEP-4858.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use machinery::field::FieldErrors;

use super::At;

const NOT_AN_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const NOT_A_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// The address that `text` stands for; a wrapped IPv4 address is unwrapped.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        let ip: Ipv6Addr = text.parse().ok()?;
        return Some(ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4));
    }
    let mut octets = [0_u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let digits = part.trim_start_matches('0');
        *octet = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    }
    parts.next().is_none().then_some(IpAddr::V4(Ipv4Addr::from(octets)))
}

/// Address and prefix length of a CIDR.
pub(crate) fn parse_cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/')?;
    let ip = parse_ip(address)?;
    if bits.is_empty() || !bits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let bits: u8 = bits.parse().ok()?;
    let max = if address.contains(':') { 128 } else { 32 };
    (bits <= max).then_some((ip, bits))
}

/// How many leading bits two addresses of one family share; `None` for two families.
pub fn common_bits(a: IpAddr, b: IpAddr) -> Option<u32> {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => Some((u32::from(a) ^ u32::from(b)).leading_zeros()),
        (IpAddr::V6(a), IpAddr::V6(b)) => Some((u128::from(a) ^ u128::from(b)).leading_zeros()),
        _ => None,
    }
}

/// The address `ip` and the bits of the prefix only.
pub(crate) fn masked(ip: IpAddr, bits: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from(u32::from(ip) & mask))
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(ip) & mask))
        }
    }
}

impl At<'_> {
    /// An IP address.
    pub(super) fn ip(&self, errors: &mut FieldErrors) {
        if parse_ip(self.text()).is_none() {
            errors.push(self.invalid(NOT_AN_IP));
        }
    }

    /// A CIDR.
    pub(super) fn cidr(&self, errors: &mut FieldErrors) {
        if parse_cidr(self.text().trim()).is_none() {
            errors.push(self.invalid(NOT_A_CIDR));
        }
    }

    /// An address that traffic from outside can be for.
    pub(super) fn not_special(&self, errors: &mut FieldErrors) {
        let Some(ip) = parse_ip(self.text()) else {
            errors.push(self.invalid("must be a valid IP address"));
            return;
        };
        let (is_link_local, is_link_local_multicast) = match ip {
            IpAddr::V4(ip) => (ip.is_link_local(), matches!(ip.octets(), [224, 0, 0, _])),
            IpAddr::V6(ip) => (
                ip.segments().first().is_some_and(|first| first & 0xffc0 == 0xfe80),
                ip.segments().first().is_some_and(|first| first & 0xff0f == 0xff02),
            ),
        };
        if ip.is_unspecified() {
            errors.push(self.invalid(&format!("may not be unspecified ({})", self.text())));
        }
        if ip.is_loopback() {
            errors.push(self.invalid("may not be in the loopback range (127.0.0.0/8, ::1/128)"));
        }
        if is_link_local {
            errors.push(self.invalid("may not be in the link-local range (169.254.0.0/16, fe80::/10)"));
        }
        if is_link_local_multicast {
            errors
                .push(self.invalid("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"));
        }
    }
}

/// Whether there is an address of either family among `texts`.
pub(super) fn is_dual_stack<'a>(texts: impl Iterator<Item = &'a str>) -> bool {
    let families: Vec<_> = texts.filter_map(parse_ip).map(|ip| ip.is_ipv4()).collect();
    families.contains(&true) && families.contains(&false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_ways_to_write_an_address_are_read() {
        let ip = |text: &str| parse_ip(text).map(|ip| ip.to_string());
        assert_eq!(ip("010.002.000.1").as_deref(), Some("10.2.0.1"));
        assert_eq!(ip("::ffff:1.2.3.4").as_deref(), Some("1.2.3.4"));
        assert_eq!(ip("2001:DB8::1").as_deref(), Some("2001:db8::1"));
        for bad in ["", "1.2.3", "1.2.3.4.5", "1.2.3.256", "a.b.c.d", "1.2.3.4/8"] {
            assert_eq!(ip(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_prefix_is_at_most_as_long_as_the_address() {
        assert_eq!(parse_cidr("10.0.0.0/8").map(|(_, bits)| bits), Some(8));
        assert!(parse_cidr("10.0.0.0/33").is_none());
        assert!(parse_cidr("fd00::/129").is_none());
        assert!(parse_cidr("10.0.0.0").is_none());
        assert_eq!(masked("10.1.2.3".parse().unwrap(), 8).to_string(), "10.0.0.0");
        assert_eq!(masked("10.1.2.3".parse().unwrap(), 0).to_string(), "0.0.0.0");
    }
}
