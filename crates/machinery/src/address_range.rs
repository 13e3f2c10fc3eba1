//! A run of addresses: a network, or all from one address to another.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::net::{Cidr, Family};

/// All addresses of one family from the first to the last, both included; written as `FROM-TO` or as a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct AddressRange {
    first: IpAddr,
    last: IpAddr,
}

/// A text that is no run of addresses, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressRangeError {
    /// Neither a network nor two addresses.
    #[error("{0:?} must be a network, such as 192.0.2.0/28, or FROM-TO, such as 192.0.2.10-192.0.2.20")]
    Form(String),
    /// Two families.
    #[error("{0:?} must begin and end with addresses of one family")]
    Families(String),
    /// It ends before it begins.
    #[error("{0:?} must not end before it begins")]
    Order(String),
}

impl AddressRange {
    /// From one address to another; `None` if it would end before it begins, or has two families.
    pub fn new(first: IpAddr, last: IpAddr) -> Option<Self> {
        (Family::of(first) == Family::of(last) && first <= last).then_some(Self { first, last })
    }

    /// The first address.
    pub fn first(self) -> IpAddr {
        self.first
    }

    /// The last address.
    pub fn last(self) -> IpAddr {
        self.last
    }

    /// The family of all of them.
    pub fn family(self) -> Family {
        Family::of(self.first)
    }

    /// `true` if an address is one of them.
    pub fn contains(self, address: IpAddr) -> bool {
        Family::of(address) == self.family() && self.first <= address && address <= self.last
    }

    /// `true` if any address is in both.
    pub fn overlaps(self, other: Self) -> bool {
        self.family() == other.family() && self.first <= other.last && other.first <= self.last
    }

    /// All of them, in order.
    pub fn addresses(self) -> impl Iterator<Item = IpAddr> {
        std::iter::successors(Some(self.first), move |address| {
            (*address < self.last).then(|| match address {
                IpAddr::V4(ip) => Ipv4Addr::from_bits(ip.to_bits().saturating_add(1)).into(),
                IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits().saturating_add(1)).into(),
            })
        })
    }
}

impl From<Cidr> for AddressRange {
    fn from(cidr: Cidr) -> Self {
        Self { first: cidr.first(), last: cidr.last() }
    }
}

impl From<IpAddr> for AddressRange {
    fn from(address: IpAddr) -> Self {
        Self { first: address, last: address }
    }
}

impl FromStr for AddressRange {
    type Err = AddressRangeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let wrong = || AddressRangeError::Form(text.to_owned());
        let Some((first, last)) = text.split_once('-') else {
            return text.parse::<Cidr>().map(Self::from).map_err(|_| wrong());
        };
        let address = |text: &str| text.trim().parse::<IpAddr>().map_err(|_| wrong());
        let (first, last) = (address(first)?, address(last)?);
        if Family::of(first) != Family::of(last) {
            return Err(AddressRangeError::Families(text.to_owned()));
        }
        if last < first {
            return Err(AddressRangeError::Order(text.to_owned()));
        }
        Ok(Self { first, last })
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl From<AddressRange> for String {
    fn from(range: AddressRange) -> Self {
        range.to_string()
    }
}

impl TryFrom<String> for AddressRange {
    type Error = AddressRangeError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_or_refused() {
        for (text, expect) in [
            ("192.0.2.8/30", Ok("192.0.2.8-192.0.2.11")),
            ("192.0.2.8/32", Ok("192.0.2.8-192.0.2.8")),
            (" 192.0.2.1 - 192.0.2.3 ", Ok("192.0.2.1-192.0.2.3")),
            ("2001:db8::1-2001:db8::2", Ok("2001:db8::1-2001:db8::2")),
            ("", Err("network")),
            ("192.0.2.1", Err("network")),
            ("192.0.2.1-", Err("network")),
            ("-192.0.2.1", Err("network")),
            ("192.0.2.1-5", Err("network")),
            ("192.0.2.0/33", Err("network")),
            ("a-b", Err("network")),
            ("192.0.2.1-2001:db8::1", Err("one family")),
            ("192.0.2.2-192.0.2.1", Err("end before")),
        ] {
            let read = text.parse::<AddressRange>().map(String::from).map_err(|error| error.to_string());
            match expect {
                Ok(expect) => assert_eq!(read.as_deref(), Ok(expect), "{text}"),
                Err(why) => {
                    assert!(read.as_ref().is_err_and(|error| error.contains(why)), "{text}: {read:?}")
                }
            }
        }
    }

    #[test]
    fn runs_know_their_addresses() {
        let range: AddressRange = "192.0.2.254-192.0.3.1".parse().unwrap();
        let all: Vec<String> = range.addresses().map(|ip| ip.to_string()).collect();
        assert_eq!(all, ["192.0.2.254", "192.0.2.255", "192.0.3.0", "192.0.3.1"]);
        let end: AddressRange = "255.255.255.254-255.255.255.255".parse().unwrap();
        assert_eq!(end.addresses().count(), 2);
        for (other, expect) in [
            ("192.0.3.1-192.0.3.9", true),
            ("192.0.3.2-192.0.3.9", false),
            ("192.0.2.0/23", true),
            ("::/0", false),
        ] {
            assert_eq!(range.overlaps(other.parse().unwrap()), expect, "{other}");
        }
        assert!(range.contains("192.0.3.0".parse().unwrap()) && !range.contains("::1".parse().unwrap()));
    }
}
