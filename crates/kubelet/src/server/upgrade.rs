//! Leaving HTTP: what a client asks for in its upgrade request, and the answer.
//!
//! Clients offer several protocols; the first of theirs that is spoken here is taken.
//! Source: RFC 6455 section 4; `k8s.io/apimachinery/pkg/util/httpstream`.

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::{Body, Refusal, full};

const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// How the connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    WebSocket,
    Spdy,
}

/// An upgrade that both sides want.
#[derive(Debug)]
pub(super) struct Upgrade {
    pub(super) transport: Transport,
    /// What is spoken on top; empty if the client offered nothing.
    pub(super) protocol: &'static str,
    /// The answer to a WebSocket key.
    accept: Option<String>,
}

/// What is spoken, for each transport.
pub(super) struct Protocols {
    pub(super) websocket: &'static [&'static str],
    pub(super) spdy: &'static [&'static str],
}

impl Upgrade {
    /// Reads the request's headers.
    ///
    /// # Errors
    /// 400 if no upgrade is asked for, 403 if no protocol is common.
    pub(super) fn of(headers: &HeaderMap, protocols: &Protocols) -> Result<Self, Refusal> {
        let text =
            |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let upgrade = text(header::UPGRADE).to_ascii_lowercase();
        match (upgrade.as_str(), headers.get(header::SEC_WEBSOCKET_KEY)) {
            ("websocket", Some(key)) => {
                let protocol = negotiate(headers, &header::SEC_WEBSOCKET_PROTOCOL, protocols.websocket)?;
                let accept = Some(derive_accept_key(key.as_bytes()));
                Ok(Self { transport: Transport::WebSocket, protocol, accept })
            }
            ("spdy/3.1", _) => {
                let protocol = negotiate(headers, &STREAM_PROTOCOL, protocols.spdy)?;
                Ok(Self { transport: Transport::Spdy, protocol, accept: None })
            }
            _ => Err(Refusal::bad_request("Upgrade request required")),
        }
    }

    /// 101.
    pub(super) fn response(&self) -> Response<Body> {
        let mut response = Response::new(full(""));
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        let (name, protocol) = match self.transport {
            Transport::WebSocket => ("websocket", header::SEC_WEBSOCKET_PROTOCOL),
            Transport::Spdy => ("SPDY/3.1", STREAM_PROTOCOL),
        };
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static(name));
        if let Some(accept) = self.accept.as_deref().and_then(|accept| HeaderValue::from_str(accept).ok()) {
            headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
        }
        if !self.protocol.is_empty() {
            headers.insert(protocol, HeaderValue::from_static(self.protocol));
        }
        response
    }
}

/// The first offer that is known; nothing offered is the oldest protocol.
fn negotiate(
    headers: &HeaderMap,
    name: &HeaderName,
    known: &'static [&'static str],
) -> Result<&'static str, Refusal> {
    let offers = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let offers: Vec<&str> = offers.flat_map(|value| value.split(',')).map(str::trim).collect();
    if offers.is_empty() {
        return Ok("");
    }
    let common = offers.iter().find_map(|offer| known.iter().find(|protocol| *protocol == offer));
    common.copied().ok_or_else(|| {
        let (offers, known) = (offers.join(" "), known.join(" "));
        Refusal(
            StatusCode::FORBIDDEN,
            format!(
                "unable to upgrade: unable to negotiate protocol: client supports [{offers}], server accepts [{known}]"
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTOCOLS: Protocols = Protocols {
        websocket: &["v5.channel.k8s.io", "v4.channel.k8s.io"],
        spdy: &["v4.channel.k8s.io", "channel.k8s.io"],
    };

    fn check(headers: &[(&str, &str)], expect: Result<(Transport, &str), &str>) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        let got = Upgrade::of(&map, &PROTOCOLS);
        let got = got.as_ref().map(|u| (u.transport, u.protocol)).map_err(|Refusal(_, text)| text.as_str());
        assert_eq!(got, expect);
    }

    #[test]
    fn the_clients_first_offer_that_is_known_is_taken() {
        let websocket = ("upgrade", "websocket");
        let key = ("sec-websocket-key", "x");
        let name = "sec-websocket-protocol";
        let spdy = ("upgrade", "SPDY/3.1");
        let version = "x-stream-protocol-version";
        check(
            &[websocket, key, (name, "v9.channel.k8s.io, v4.channel.k8s.io,v5.channel.k8s.io")],
            Ok((Transport::WebSocket, "v4.channel.k8s.io")),
        );
        check(&[websocket, key], Ok((Transport::WebSocket, "")));
        check(
            &[spdy, (version, "v5.channel.k8s.io"), (version, "v4.channel.k8s.io")],
            Ok((Transport::Spdy, "v4.channel.k8s.io")),
        );
        check(
            &[spdy, (version, "v9")],
            Err("unable to upgrade: unable to negotiate protocol: client supports [v9], server accepts \
                 [v4.channel.k8s.io channel.k8s.io]"),
        );
        check(&[websocket], Err("Upgrade request required"));
        check(&[], Err("Upgrade request required"));
    }
}
