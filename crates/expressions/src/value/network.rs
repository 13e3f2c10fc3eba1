//! Addresses and ranges of addresses as values.

mod parse;

use std::fmt;
use std::net::IpAddr;

use machinery::field::quote;

pub(crate) use parse::AddressError;

/// A range as it was written, host bits included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    address: IpAddr,
    bits: u32,
}

/// The reason why a text is no address, or no range of them. The texts are upstream's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetworkError {
    #[error("IPv4-mapped IPv6 address {} is not allowed", quote(.0))]
    Mapped(String),
    #[error("IP address {} with zone value is not allowed", quote(.0))]
    Zone(String),
    #[error("IP Address {} parse error during conversion from string: {why}", quote(text))]
    Address { text: String, why: AddressError },
    // Upstream says it twice.
    #[error("network address parse error during conversion from string: {0}")]
    Range(Box<NetworkError>),
    #[error(
        "network address parse error during conversion from string: netip.ParsePrefix({}): {why}",
        quote(text)
    )]
    Prefix { text: String, why: PrefixError },
}

/// What Go's `netip.ParsePrefix` says.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrefixError {
    #[error("no '/'")]
    NoSlash,
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error("IPv6 zones cannot be present in a prefix")]
    Zone,
    #[error("bad bits after slash: {}", quote(.0))]
    Bits(String),
    #[error("prefix length out of range")]
    OutOfRange,
}

/// The address that a text says; a zone, and one of IPv4 as one of IPv6, are none.
pub(crate) fn address(text: &str) -> Result<IpAddr, NetworkError> {
    match parse::address(text) {
        Ok((_, Some(_))) => Err(NetworkError::Zone(text.to_owned())),
        Ok((address, None)) if is_mapped(address) => Err(NetworkError::Mapped(text.to_owned())),
        Ok((address, None)) => Ok(address),
        Err(why) => Err(NetworkError::Address { text: text.to_owned(), why }),
    }
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

impl Range {
    pub(crate) fn parse(text: &str) -> Result<Self, NetworkError> {
        let range = match Self::prefix(text) {
            Err(why) => Err(NetworkError::Prefix { text: text.to_owned(), why }),
            Ok(range) if is_mapped(range.address) => Err(NetworkError::Mapped(text.to_owned())),
            Ok(range) => Ok(range),
        };
        range.map_err(|error| NetworkError::Range(Box::new(error)))
    }

    fn prefix(text: &str) -> Result<Self, PrefixError> {
        let (written, bits) = text.rsplit_once('/').ok_or(PrefixError::NoSlash)?;
        let (address, zone) = parse::address(written)?;
        if zone.is_some() {
            return Err(PrefixError::Zone);
        }
        let is_plain =
            bits.bytes().all(|byte| byte.is_ascii_digit()) && (bits.len() == 1 || !bits.starts_with('0'));
        // More digits than a number can have are no number, as `strconv.Atoi` has it.
        let number = bits.parse::<i64>().ok().filter(|_| is_plain);
        let number = number.ok_or_else(|| PrefixError::Bits(bits.to_owned()))?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = u32::try_from(number).ok().filter(|bits| *bits <= width).ok_or(PrefixError::OutOfRange)?;
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
