//! Addresses of networks: IP, CIDR, MAC. IPv4 may have leading zeros, as it had before Go forbade them.

use std::net::Ipv6Addr;

pub(super) fn is_ipv4(text: &str) -> bool {
    is_ip(text) && text.contains('.')
}

pub(super) fn is_ipv6(text: &str) -> bool {
    text.parse::<Ipv6Addr>().is_ok()
}

pub(super) fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let bits_max = if is_dotted(address) { 32 } else { 128 };
    let is_number = !bits.is_empty() && bits.len() <= 3 && bits.bytes().all(|byte| byte.is_ascii_digit());
    is_ip(address) && is_number && bits.parse::<u32>().is_ok_and(|bits| bits <= bits_max)
}

/// Six, eight or twenty bytes: `01:23:45:67:89:ab`, `01-23-...` or `0123.4567.89ab`.
pub(super) fn is_mac(text: &str) -> bool {
    let is_hex =
        |part: &str, digits| part.len() == digits && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_made_of = |separator, digits, counts: [usize; 3]| {
        text.split(separator).all(|part| is_hex(part, digits))
            && counts.contains(&text.split(separator).count())
    };
    is_made_of(':', 2, [6, 8, 20]) || is_made_of('-', 2, [6, 8, 20]) || is_made_of('.', 4, [3, 4, 10])
}

fn is_ip(text: &str) -> bool {
    is_dotted(text) || is_ipv6(text)
}

fn is_dotted(text: &str) -> bool {
    let is_byte = |part: &str| {
        let digits = part.trim_start_matches('0');
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && (digits.is_empty() || digits.parse::<u8>().is_ok())
    };
    text.split('.').count() == 4 && text.split('.').all(is_byte)
}
