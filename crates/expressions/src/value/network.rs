//! Addresses and ranges of addresses as values.

use std::fmt;
use std::net::IpAddr;

/// A range as it was written, host bits included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    address: IpAddr,
    bits: u32,
}

/// The address that a text says; a zone, and one of IPv4 as one of IPv6, are none.
pub(crate) fn address(text: &str) -> Result<IpAddr, String> {
    match text.parse() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed"))
        }
        Ok(address) => Ok(address),
        Err(_) if text.contains(':') && text.contains('%') => {
            Err(format!("IP address {text:?} with zone value is not allowed"))
        }
        Err(_) => Err(format!(
            "IP Address {text:?} parse error during conversion from string: ParseAddr({text:?}): unable to parse IP"
        )),
    }
}

impl Range {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let failed = || {
            let why = format!(
                "network address parse error during conversion from string: netip.ParsePrefix({text:?})"
            );
            why
        };
        let (written, bits) = text.split_once('/').ok_or_else(failed)?;
        let address = address(written).map_err(|_| failed())?;
        let is_plain = !bits.is_empty() && (bits == "0" || !bits.starts_with(['0', '+']));
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.parse().ok().filter(|bits| is_plain && *bits <= width).ok_or_else(failed)?;
        Ok(Self { address, bits })
    }

    pub(crate) fn address(self) -> IpAddr {
        self.address
    }

    pub(crate) fn bits(self) -> u32 {
        self.bits
    }

    /// Whether all of another range is in this one.
    pub(crate) fn covers(self, other: Self) -> bool {
        self.bits <= other.bits && self.contains(other.address)
    }

    /// The same range without host bits.
    pub(crate) fn masked(self) -> Self {
        Self { address: self.first(self.address), ..self }
    }

    /// Bytes of the prefix, as costs are reckoned with.
    pub(crate) fn size(self) -> usize {
        usize::try_from(self.bits.div_ceil(8)).unwrap_or(16)
    }

    /// The first address of the range of this size that `address` is in.
    fn first(self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32_u32.saturating_sub(self.bits)).unwrap_or(0);
                IpAddr::V4((address.to_bits() & mask).into())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128_u32.saturating_sub(self.bits)).unwrap_or(0);
                IpAddr::V6((address.to_bits() & mask).into())
            }
        }
    }

    pub(crate) fn contains(self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4() && self.first(address) == self.first(self.address)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.bits)
    }
}
