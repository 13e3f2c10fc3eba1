//! One mail address, with or without a name. Source: RFC 5322 as Go's `mail.ParseAddress` reads it.

pub(super) fn is_email(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    if let Some(inner) = text.strip_suffix('>') {
        // What precedes the last `<` is a name.
        return inner
            .rsplit_once('<')
            .is_some_and(|(name, address)| is_phrase(name.trim_matches([' ', '\t'])) && is_address(address));
    }
    is_address(text)
}

/// `local@domain`, where quotes may be around the local part.
fn is_address(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let is_local = if local.starts_with('"') { is_quoted(local) } else { is_dotted(local) };
    is_local && (is_dotted(domain) || is_literal(domain))
}

/// Words, or a text in quotes, or nothing.
fn is_phrase(text: &str) -> bool {
    is_quoted(text) || text.split([' ', '\t']).all(|word| word.chars().all(|c| is_atom(c) || c == '.'))
}

/// Atoms with dots between them.
fn is_dotted(text: &str) -> bool {
    text.split('.').all(|atom| !atom.is_empty() && atom.chars().all(is_atom))
}

fn is_atom(c: char) -> bool {
    c.is_ascii_alphanumeric() || !c.is_ascii() || "!#$%&'*+-/=?^_`{|}~".contains(c)
}

fn is_quoted(text: &str) -> bool {
    let Some(inner) = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { return false };
    let mut is_escaped = false;
    for c in inner.chars() {
        match c {
            _ if c.is_control() && c != '\t' => return false,
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return false,
            _ => {}
        }
    }
    !inner.is_empty() && !is_escaped
}

/// An address in brackets.
fn is_literal(text: &str) -> bool {
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inner
        .is_some_and(|inner| inner.strip_prefix("IPv6:").unwrap_or(inner).parse::<std::net::IpAddr>().is_ok())
}
