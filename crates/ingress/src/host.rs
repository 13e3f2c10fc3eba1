//! Hosts: what a rule says, and what a request asks for.
//!
//! Source: `IngressRule.host`, RFC 3986 section 3.2.2.

use std::fmt;

/// The hosts that a row is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// This one, in lowercase.
    Exact(String),
    /// All that have one label more than this; the text after `*.`.
    Wildcard(String),
    /// All that have one label more than this, or several. Source: `Hostname`, gateway.networking.k8s.io/v1.
    Below(String),
    /// All.
    Any,
}

impl Host {
    /// The meaning of a rule's or a certificate's host.
    pub fn of_rule(text: &str) -> Self {
        let text = text.to_ascii_lowercase();
        match text.strip_prefix("*.") {
            _ if text.is_empty() || text == "*" => Self::Any,
            Some(rest) => Self::Wildcard(rest.to_owned()),
            None => Self::Exact(text),
        }
    }
}

impl Host {
    /// The meaning of the host of a listener or of a route of a Gateway: a wildcard stands for any number of labels.
    pub fn of_gateway(text: &str) -> Self {
        match Self::of_rule(text) {
            Self::Wildcard(rest) => Self::Below(rest),
            other => other,
        }
    }

    /// The names that both hosts of Gateways are for; `None` if there are none.
    pub fn both(&self, other: &Self) -> Option<Self> {
        let is_below =
            |host: &str, rest: &str| host.strip_suffix(rest).is_some_and(|label| label.ends_with('.'));
        match (self, other) {
            (Self::Any, narrow) | (narrow, Self::Any) => Some(narrow.clone()),
            (Self::Below(rest), Self::Exact(host)) | (Self::Exact(host), Self::Below(rest)) => {
                is_below(host, rest).then(|| Self::Exact(host.clone()))
            }
            (Self::Below(one), Self::Below(two)) if is_below(two, one) => Some(other.clone()),
            (Self::Below(one), Self::Below(two)) if is_below(one, two) => Some(self.clone()),
            (one, two) => (one == two).then(|| one.clone()),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(host) => f.write_str(host),
            Self::Wildcard(rest) => write!(f, "*.{rest}"),
            Self::Below(rest) => write!(f, "**.{rest}"),
            Self::Any => f.write_str("*"),
        }
    }
}

/// What follows the first label, for wildcards; `None` if there is nothing.
pub(crate) fn below_wildcard(host: &str) -> Option<&str> {
    let (label, rest) = host.split_once('.')?;
    (!label.is_empty() && !rest.is_empty()).then_some(rest)
}

/// The defect of a request's host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the host is not valid")]
pub struct BadHost;

/// The host that a request asks for, as rules have it: without port, in lowercase, without the root's dot.
///
/// # Errors
/// If it is no name or address with or without a port.
pub fn of_request(authority: &str) -> Result<String, BadHost> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (inside, after) = rest.split_once(']').ok_or(BadHost)?;
            let is_address = inside.parse::<std::net::Ipv6Addr>().is_ok();
            if !is_address {
                return Err(BadHost);
            }
            (inside, after)
        }
        None => {
            let end = authority.find(':').unwrap_or(authority.len());
            authority.split_at_checked(end).ok_or(BadHost)?
        }
    };
    let is_port = |port: &str| port.is_empty() || port.parse::<u16>().is_ok();
    let port_is_right = match port.strip_prefix(':') {
        Some(number) => is_port(number) && number.bytes().all(|byte| byte.is_ascii_digit()),
        None => port.is_empty(),
    };
    let is_written = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let is_name = host.bytes().all(is_written) || authority.starts_with('[');
    let host = host.strip_suffix('.').unwrap_or(host);
    let is_whole = !host.is_empty() && !host.starts_with('.') && !host.contains("..") && host.len() <= 253;
    if port_is_right && is_name && is_whole { Ok(host.to_ascii_lowercase()) } else { Err(BadHost) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_requests_host_is_a_name_without_its_port() {
        let long = format!("{}.example", "a".repeat(250));
        let rows: [(&str, Option<&str>); 24] = [
            ("a.example", Some("a.example")),
            ("A.Example:8080", Some("a.example")),
            ("a.example.", Some("a.example")),
            ("a.example.:443", Some("a.example")),
            ("a.example:", Some("a.example")),
            ("my_host", Some("my_host")),
            ("192.0.2.1:80", Some("192.0.2.1")),
            ("[2001:db8::1]:80", Some("2001:db8::1")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("", None),
            (".", None),
            (":80", None),
            (".example", None),
            ("a..example", None),
            ("a.example:99999", None),
            ("a.example:+80", None),
            ("a.example:80:80", None),
            ("[::1", None),
            ("[a.example]", None),
            ("[::1]x", None),
            ("user@a.example", None),
            ("a.example/x", None),
            ("ä.example", None),
            (&long, None),
        ];
        for (authority, expected) in rows {
            assert_eq!(of_request(authority).ok().as_deref(), expected, "{authority}");
        }
    }

    /// The examples of `HTTPRouteSpec.hostnames`, and what wildcards have in common.
    #[test]
    fn hosts_of_gateways_have_in_common_what_is_for_both() {
        let rows = [
            ("", "", Some("*")),
            ("", "a.example", Some("a.example")),
            ("test.example.com", "", Some("test.example.com")),
            ("test.example.com", "test.example.com", Some("test.example.com")),
            ("test.example.com", "*.example.com", Some("test.example.com")),
            ("*.example.com", "test.example.com", Some("test.example.com")),
            ("*.example.com", "foo.test.example.com", Some("foo.test.example.com")),
            ("*.example.com", "*.example.com", Some("**.example.com")),
            ("*.example.com", "*.a.example.com", Some("**.a.example.com")),
            ("*.a.example.com", "*.example.com", Some("**.a.example.com")),
            ("*.example.com", "example.com", None),
            ("*.example.com", "xexample.com", None),
            ("*.example.com", "*.xexample.com", None),
            ("test.example.com", "*.test.example.com", None),
            ("a.example", "b.example", None),
        ];
        for (listener, route, expected) in rows {
            let both = Host::of_gateway(listener).both(&Host::of_gateway(route));
            assert_eq!(both.map(|host| host.to_string()).as_deref(), expected, "{listener} {route}");
        }
    }

    #[test]
    fn a_rules_host_is_exact_or_has_a_wildcard_for_one_label() {
        let rows = [
            ("", Host::Any),
            ("Foo.com", Host::Exact("foo.com".into())),
            ("*.foo.com", Host::Wildcard("foo.com".into())),
        ];
        for (text, expected) in rows {
            assert_eq!(Host::of_rule(text), expected, "{text}");
        }
        assert_eq!(below_wildcard("bar.foo.com"), Some("foo.com"));
        assert_eq!(below_wildcard("com"), None);
        assert_eq!(below_wildcard(".com"), None);
    }
}
