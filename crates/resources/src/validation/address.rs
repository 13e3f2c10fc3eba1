//! IP addresses and CIDRs in fields of old kinds, where a CIDR may have bits beyond its prefix.

use std::net::IpAddr;

use machinery::field::FieldErrors;
use machinery::net::{Cidr, Family, legacy_ip};

use super::At;

const NOT_AN_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const NOT_A_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

impl At<'_> {
    /// An IP address.
    pub(super) fn ip(&self, errors: &mut FieldErrors) {
        if legacy_ip(self.text()).is_none() {
            errors.push(self.invalid(NOT_AN_IP));
        }
    }

    /// A CIDR.
    pub(super) fn cidr(&self, errors: &mut FieldErrors) {
        if Cidr::legacy(self.text().trim()).is_none() {
            errors.push(self.invalid(NOT_A_CIDR));
        }
    }

    /// An address that traffic from outside can be for.
    pub(super) fn not_special(&self, errors: &mut FieldErrors) {
        let Some(ip) = legacy_ip(self.text()) else {
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
    let families: Vec<_> = texts.filter_map(legacy_ip).map(Family::of).collect();
    families.contains(&Family::V4) && families.contains(&Family::V6)
}
