//! Tests that are written with IPv4 addresses, told in IPv6: each address has one of the other family that ends in it.

use std::net::{Ipv4Addr, Ipv6Addr};

/// How many bits are in front of those of the IPv4 address.
const BITS_BEFORE: u8 = 96;

/// The IPv6 address for one of IPv4, which means the same on a link or a host if that means something there.
pub fn address(v4: Ipv4Addr) -> Ipv6Addr {
    let first: u16 = match v4.octets() {
        [0, 0, 0, 0] => return Ipv6Addr::UNSPECIFIED,
        [127, ..] => return Ipv6Addr::LOCALHOST,
        [169, 254, ..] => 0xfe80,
        [224..=255, ..] => 0xff02,
        _ => 0xfd00,
    };
    Ipv6Addr::from_bits(u128::from(first) << 112 | u128::from(v4.to_bits()))
}

/// A text with such addresses in place of all of IPv4, and networks of as many addresses in place of networks.
pub fn text(v4: &str) -> String {
    let is_part = |c: char| c.is_ascii_digit() || c == '.' || c == '/';
    let mut rest = v4;
    let mut told = String::new();
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(start);
        let (word, behind) = from.split_at(from.find(|c| !is_part(c)).unwrap_or(from.len()));
        told.push_str(before);
        told.push_str(&in_ipv6(word).unwrap_or_else(|| word.to_owned()));
        rest = behind;
    }
    told + rest
}

/// `None` for what is neither address nor network.
fn in_ipv6(word: &str) -> Option<String> {
    let (ip, length) = word.split_once('/').map_or((word, None), |(ip, bits)| (ip, Some(bits)));
    // Old fields may have zeros in front.
    let octets: Option<Vec<u8>> = ip.split('.').map(|part| part.parse().ok()).collect();
    let octets: [u8; 4] = octets?.try_into().ok()?;
    let ip = address(octets.into());
    Some(match (length, octets) {
        (None, _) => ip.to_string(),
        (Some("0"), _) => format!("{ip}/0"),
        (Some(_), [127, ..]) => format!("{ip}/128"),
        (Some(length), _) => format!("{ip}/{}", length.parse::<u8>().ok()?.checked_add(BITS_BEFORE)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_networks_are_told_and_all_else_is_left() {
        for (v4, v6) in [
            ("[10.43.0.5, 10.43.0.0/16]", "[fd00::a2b:5, fd00::a2b:0/112]"),
            ("0.0.0.0/0 127.0.0.0/8 010.42.0.2/32", "::/0 ::1/128 fd00::a2a:2/128"),
            ("80/6 web//6 30080: 169.254.1.1", "80/6 web//6 30080: fe80::a9fe:101"),
            ("", ""),
        ] {
            assert_eq!(text(v4), v6);
        }
    }
}
