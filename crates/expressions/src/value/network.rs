//! Addresses and ranges of addresses as values.

use std::fmt;
use std::net::IpAddr;

/// A range as it was written, host bits included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    address: IpAddr,
    bits: u32,
}

/// The reason why a text is no address, or no range of them. The texts are upstream's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetworkError {
    #[error("IPv4-mapped IPv6 address {0:?} is not allowed")]
    Mapped(String),
    #[error("IP address {0:?} with zone value is not allowed")]
    Zone(String),
    #[error(
        "IP Address {0:?} parse error during conversion from string: ParseAddr({0:?}): unable to parse IP"
    )]
    Address(String),
    #[error("network address parse error during conversion from string: netip.ParsePrefix({0:?})")]
    Range(String),
}

/// The address that a text says; a zone, and one of IPv4 as one of IPv6, are none.
pub(crate) fn address(text: &str) -> Result<IpAddr, NetworkError> {
    match text.parse() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            Err(NetworkError::Mapped(text.to_owned()))
        }
        Ok(address) => Ok(address),
        Err(_) if text.contains(':') && text.contains('%') => Err(NetworkError::Zone(text.to_owned())),
        Err(_) => Err(NetworkError::Address(text.to_owned())),
    }
}

impl Range {
    pub(crate) fn parse(text: &str) -> Result<Self, NetworkError> {
        let failed = || NetworkError::Range(text.to_owned());
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
