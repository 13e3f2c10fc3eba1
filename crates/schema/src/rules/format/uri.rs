//! URIs that a request can be made of: absolute ones, or absolute paths. Source: Go's `url.ParseRequestURI`.

pub(super) fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return false;
    }
    if text == "*" {
        return true;
    }
    let Some((scheme, rest)) = scheme(text) else { return false };
    let path = rest.split_once('?').map_or(rest, |(path, _)| path);
    if !path.starts_with('/') {
        // Such as `mailto:a@b`.
        return !scheme.is_empty();
    }
    let authority = path.strip_prefix("//").filter(|_| !scheme.is_empty());
    let Some(authority) = authority else { return is_escaped_well(path) };
    let end = authority.find('/').unwrap_or(authority.len());
    let (authority, path) = authority.split_at(end);
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    is_user(user) && is_host(host) && is_escaped_well(path)
}

/// The scheme, which may be missing, and what follows; `None` if there is a colon but no scheme.
fn scheme(text: &str) -> Option<(&str, &str)> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return None,
            b':' => return Some((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Some(("", text))
}

fn is_user(user: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
    user.bytes().all(is_allowed) && is_escaped_well(user)
}

fn is_host(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[') {
        Some(inner) => match inner.rsplit_once(']') {
            Some(found) => found,
            None => return false,
        },
        None => host.rfind(':').map_or((host, ""), |at| host.split_at(at)),
    };
    let is_port = port.is_empty()
        || port.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    // Of ASCII, only `%` itself may be escaped in a host, before the zone of an address.
    let is_plain = |at: usize| match name.as_bytes().get(at + 1..at + 3) {
        Some(b"25") => true,
        Some([high, _]) => matches!(high, b'8' | b'9' | b'a'..=b'f' | b'A'..=b'F'),
        _ => false,
    };
    let is_allowed = |(at, byte): (usize, u8)| match byte {
        b'%' => is_plain(at),
        byte if byte.is_ascii() => byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte),
        _ => true,
    };
    is_port && is_escaped_well(name) && name.bytes().enumerate().all(is_allowed)
}

/// Whether there are two hexadecimal digits after every percent sign.
fn is_escaped_well(text: &str) -> bool {
    let mut parts = text.split('%');
    parts.next();
    parts.all(|part| part.len() >= 2 && part.bytes().take(2).all(|byte| byte.is_ascii_hexdigit()))
}
