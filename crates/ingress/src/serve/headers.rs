//! The headers of a message that go on to the other side, and those that are said of the client.
//!
//! Nothing that a client says of itself or of whoever it came through is believed: this is where requests come in.
//! Source: RFC 9110 section 7.6.1, RFC 9113 section 8.2.2.

use std::net::IpAddr;

use http::HeaderMap;
use http::header::{
    CONNECTION, COOKIE, EXPECT, HOST, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE,
};

use super::asked::has_token;

/// Headers of one connection.
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    http::header::PROXY_AUTHENTICATE,
    http::header::PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("http2-settings"),
];
/// What only a proxy says, beside all that begins with `x-forwarded-`.
const OF_PROXIES: [&str; 3] = ["forwarded", "x-real-ip", "proxy"];
const FORWARDED: &str = "x-forwarded-";

/// What is said of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client<'a> {
    pub(super) address: IpAddr,
    /// `http` or `https`.
    pub(super) scheme: &'static str,
    pub(super) port: u16,
    /// The host that it asked for, with its port.
    pub(super) authority: &'a str,
}

/// Takes out what is the connection's alone.
pub(super) fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        // How long a body is, and whom it is for, is nobody's to take out.
        .filter(|name| ![http::header::CONTENT_LENGTH, HOST].contains(name))
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// A client's headers as a backend may see them.
pub(super) fn to_backend(headers: &mut HeaderMap, client: &Client<'_>) {
    let wants_trailers = has_token(headers, &TE, "trailers");
    strip(headers);
    // It was answered here, if anybody waits for it.
    headers.remove(EXPECT);
    let of_proxies: Vec<HeaderName> = headers.keys().filter(|name| is_of_proxies(name)).cloned().collect();
    for name in of_proxies {
        headers.remove(name);
    }
    if wants_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    join_cookies(headers);
    let mut set = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    let address = client.address.to_string();
    set("x-forwarded-for", &address);
    set("x-real-ip", &address);
    set("x-forwarded-proto", client.scheme);
    set("x-forwarded-port", &client.port.to_string());
    if !client.authority.is_empty() {
        set("x-forwarded-host", client.authority);
        set("host", client.authority);
    }
}

/// Also with `_` for `-`: what stands behind CGI or WSGI sees no difference.
fn is_of_proxies(name: &HeaderName) -> bool {
    let name = name.as_str().replace('_', "-");
    name.starts_with(FORWARDED) || OF_PROXIES.contains(&name.as_str())
}

/// HTTP/2 has a header for each cookie, HTTP/1.1 one for all. Source: RFC 9113 section 8.2.3.
fn join_cookies(headers: &mut HeaderMap) {
    let all: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if all.len() < 2 {
        return;
    }
    if let Ok(joined) = HeaderValue::from_bytes(&all.join(&b"; "[..])) {
        headers.insert(COOKIE, joined);
    }
}

/// Asks for another protocol, or says that it is spoken from here on.
pub(super) fn switch_to_web_socket(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(given: &[(&str, &str)], expected: &[&str]) {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        let client = Client {
            address: "192.0.2.7".parse().unwrap(),
            scheme: "https",
            port: 443,
            authority: "a.example",
        };
        to_backend(&mut headers, &client);
        let said = ["x-forwarded-for: 192.0.2.7", "x-forwarded-host: a.example", "x-forwarded-port: 443"];
        let more = ["x-forwarded-proto: https", "x-real-ip: 192.0.2.7", "host: a.example"];
        let mut expected: Vec<&str> = expected.iter().copied().chain(said).chain(more).collect();
        let text =
            |(name, value): (&HeaderName, &HeaderValue)| format!("{name}: {}", value.to_str().unwrap());
        let mut found: Vec<String> = headers.iter().map(text).collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_backend_sees_what_is_meant_for_it() {
        check(
            &[("accept", "*/*"), ("authorization", "Bearer x")],
            &["accept: */*", "authorization: Bearer x"],
        );
        check(&[("cookie", "a=1"), ("cookie", "b=2")], &["cookie: a=1; b=2"]);
        check(&[("te", "gzip, trailers")], &["te: trailers"]);
        check(&[("trailer", "grpc-status")], &["trailer: grpc-status"]);
    }

    #[test]
    fn what_is_of_the_connection_or_of_proxies_does_not_go_on() {
        check(
            &[
                ("connection", "close, X-Secret"),
                ("x-secret", "1"),
                ("keep-alive", "timeout=5"),
                ("transfer-encoding", "chunked"),
                ("upgrade", "h2c"),
                ("http2-settings", "AAMAAABkAARAAAAAAAIAAAAA"),
                ("proxy-authorization", "Basic x"),
                ("expect", "100-continue"),
                ("te", "gzip"),
            ],
            &[],
        );
        check(
            &[
                ("x-forwarded-for", "198.51.100.1"),
                ("x-forwarded-proto", "https"),
                ("x-forwarded-host", "bank.example"),
                ("x-forwarded-user", "admin"),
                ("x_forwarded_for", "198.51.100.1"),
                ("x-real-ip", "198.51.100.1"),
                ("x_real_ip", "198.51.100.1"),
                ("forwarded", "for=198.51.100.1"),
                ("proxy", "http://198.51.100.1"),
            ],
            &[],
        );
    }

    #[test]
    fn nobody_takes_out_what_is_said_of_them_or_how_long_a_body_is() {
        check(
            &[("connection", "x-forwarded-for, x-real-ip, host, content-length"), ("content-length", "5")],
            &["content-length: 5"],
        );
    }
}
