//! Addresses as Go reads them, with its reasons where a text is none.
//!
//! Source: `netip.ParseAddr` of Go.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use machinery::field::quote;

/// What Go says of a text that is no address, and from where on.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("ParseAddr({}): {why}{}", quote(text), at.as_ref().map(|at| format!(" (at {})", quote(at))).unwrap_or_default())]
pub(crate) struct AddressError {
    text: String,
    why: &'static str,
    at: Option<String>,
}

/// What is wrong, and the rest of the text.
type Wrong<'t> = (&'static str, Option<&'t str>);

/// The address that a text says, and its zone.
pub(super) fn address(text: &str) -> Result<(IpAddr, Option<&str>), AddressError> {
    let read = match text.find(['.', ':', '%']).and_then(|at| text.as_bytes().get(at)) {
        Some(b'.') => ipv4(text).map(|fields| (Ipv4Addr::from(fields).into(), None)),
        Some(b':') => ipv6(text),
        Some(_) => Err(("missing IPv6 address", None)),
        None => Err(("unable to parse IP", None)),
    };
    read.map_err(|(why, at)| {
        let at = at.filter(|at| !at.is_empty()).map(str::to_owned);
        AddressError { text: text.to_owned(), why, at }
    })
}

fn ipv4(text: &str) -> Result<[u8; 4], Wrong<'_>> {
    let mut fields = [0_u8; 4];
    let (mut field, mut value, mut digits) = (0, 0_u16, 0);
    for (at, byte) in text.bytes().enumerate() {
        let rest = || text.get(at..);
        match byte {
            b'0'..=b'9' if digits == 1 && value == 0 => {
                return Err(("IPv4 field has octet with leading zero", None));
            }
            b'0'..=b'9' => {
                value = value * 10 + u16::from(byte - b'0');
                digits += 1;
                let fits = u8::try_from(value).map_err(|_| ("IPv4 field has value >255", None))?;
                if let Some(place) = fields.get_mut(field) {
                    *place = fits;
                }
            }
            b'.' if digits == 0 || at + 1 == text.len() => {
                return Err(("IPv4 field must have at least one digit", rest()));
            }
            b'.' if field == 3 => return Err(("IPv4 address too long", None)),
            b'.' => {
                field += 1;
                (value, digits) = (0, 0);
            }
            _ => return Err(("unexpected character", rest())),
        }
    }
    if field < 3 { Err(("IPv4 address too short", None)) } else { Ok(fields) }
}

fn ipv6(text: &str) -> Result<(IpAddr, Option<&str>), Wrong<'_>> {
    let (written, zone) = match text.split_once('%') {
        Some((_, "")) => return Err(("zone must be a non-empty string", None)),
        Some((written, zone)) => (written, Some(zone)),
        None => (text, None),
    };
    let mut groups: Vec<u16> = Vec::new();
    let mut gap = None;
    let mut rest = written;
    if let Some(after) = rest.strip_prefix("::") {
        gap = Some(0);
        rest = after;
    }
    while groups.len() < 8 && !(rest.is_empty() && gap == Some(groups.len())) {
        let (group, after) = hexadecimal(rest)?;
        if after.starts_with('.') {
            groups.extend(embedded(rest, groups.len(), gap.is_some())?);
            rest = "";
            break;
        }
        groups.push(group);
        rest = after;
        if rest.is_empty() {
            break;
        }
        let after = rest.strip_prefix(':').ok_or(("unexpected character, want colon", Some(rest)))?;
        if after.is_empty() {
            return Err(("colon must be followed by more characters", Some(rest)));
        }
        rest = after;
        if let Some(after) = rest.strip_prefix(':') {
            if gap.is_some() {
                return Err(("multiple :: in address", Some(rest)));
            }
            gap = Some(groups.len());
            rest = after;
        }
    }
    if !rest.is_empty() {
        return Err(("trailing garbage after address", Some(rest)));
    }
    let missing = 8_usize.saturating_sub(groups.len());
    match gap {
        None if missing > 0 => return Err(("address string too short", None)),
        Some(_) if missing == 0 => return Err(("the :: must expand to at least one field of zeros", None)),
        Some(at) => drop(groups.splice(at..at, std::iter::repeat_n(0, missing))),
        None => {}
    }
    let groups: [u16; 8] = groups.try_into().map_err(|_| ("trailing garbage after address", None))?;
    Ok((Ipv6Addr::from(groups).into(), zone))
}

/// The group that a text begins with, and what comes after it.
fn hexadecimal(text: &str) -> Result<(u16, &str), Wrong<'_>> {
    let digits = text.bytes().take_while(u8::is_ascii_hexdigit).count();
    if digits == 0 {
        return Err(("each colon-separated field must have at least one digit", Some(text)));
    }
    let (group, after) = text.split_at_checked(digits).unwrap_or((text, ""));
    match u16::from_str_radix(group, 16) {
        Ok(group) if digits <= 4 => Ok((group, after)),
        _ => Err(("each group must have 4 or less digits", Some(text))),
    }
}

/// The two groups of an address of IPv4 at the end.
fn embedded(text: &str, before: usize, has_gap: bool) -> Result<[u16; 2], Wrong<'_>> {
    if !has_gap && before != 6 {
        let why = "embedded IPv4 address must replace the final 2 fields of the address";
        return Err((why, Some(text)));
    }
    if before > 6 {
        let why = "too many hex fields to fit an embedded IPv4 at the end of the address";
        return Err((why, Some(text)));
    }
    let [a, b, c, d] = ipv4(text)?;
    Ok([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])])
}

#[cfg(test)]
mod tests;
