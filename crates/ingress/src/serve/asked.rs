//! The target of a request, once it can be believed: anything that two readers could understand in two ways is refused.
//!
//! Source: RFC 9112 section 3.2, RFC 9113 section 8.3.1.

use http::header::{CONNECTION, HOST, UPGRADE};
use http::{HeaderMap, Method, Request, StatusCode, Version};

use crate::host;
use crate::path;

/// A request's target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// As the client wrote it, with its port; empty for HTTP/1.0 without one.
    pub(super) authority: String,
    /// As rules have it.
    pub(super) host: String,
    /// In normal form.
    pub(super) path: String,
    pub(super) switch: Switch,
}

/// Whether the client wants to speak another protocol from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Switch {
    Stay,
    /// The only one: another version of HTTP would lead around all rules.
    WebSocket,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused(pub(super) StatusCode, pub(super) &'static str);

const BAD_HOST: Refused = Refused(StatusCode::BAD_REQUEST, "the request must have one valid host");
const BAD_PATH: Refused = Refused(StatusCode::BAD_REQUEST, "the path is not valid");
const NO_METHOD: Refused = Refused(StatusCode::METHOD_NOT_ALLOWED, "CONNECT and TRACE are not answered here");

impl Asked {
    pub(super) fn of<B>(request: &Request<B>) -> Result<Self, Refused> {
        if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
            return Err(NO_METHOD);
        }
        let authority = authority(request)?;
        let host = match authority {
            "" => String::new(),
            authority => host::of_request(authority).map_err(|_| BAD_HOST)?,
        };
        let path = match request.uri().path() {
            // `OPTIONS *` is about the server, whichever path it has.
            "*" => "/".into(),
            path => path::normal(path).map_err(|_| BAD_PATH)?,
        };
        let switch = switch(request.version(), request.headers());
        Ok(Self { authority: authority.to_owned(), host, path: path.into_owned(), switch })
    }
}

/// The one host that a request has, in its target or in its header, or the same in both.
fn authority<B>(request: &Request<B>) -> Result<&str, Refused> {
    let mut headers = request.headers().get_all(HOST).iter();
    let header = headers.next().map(|value| value.to_str().map_err(|_| BAD_HOST)).transpose()?;
    if headers.next().is_some() {
        return Err(BAD_HOST);
    }
    let target = request.uri().authority().map(http::uri::Authority::as_str);
    match (target, header) {
        (Some(target), Some(header)) if !target.eq_ignore_ascii_case(header) => Err(BAD_HOST),
        (Some(found), _) | (None, Some(found)) if !found.is_empty() => Ok(found),
        (None, None) if request.version() < Version::HTTP_11 => Ok(""),
        _ => Err(BAD_HOST),
    }
}

fn switch(version: Version, headers: &HeaderMap) -> Switch {
    let is_asked = version == Version::HTTP_11 && has_token(headers, &CONNECTION, "upgrade");
    if is_asked && has_token(headers, &UPGRADE, "websocket") { Switch::WebSocket } else { Switch::Stay }
}

/// Whether one of a header's values, which are lists, has this word.
pub(super) fn has_token(headers: &HeaderMap, name: &http::HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|token| token.trim().eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(version: Version, uri: &str, headers: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder().version(version).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    type Headers = &'static [(&'static str, &'static str)];

    #[test]
    fn a_request_has_one_host() {
        let (one, two, ten) = (Version::HTTP_11, Version::HTTP_2, Version::HTTP_10);
        let rows: [(Version, &str, Headers, Option<&str>); 14] = [
            (one, "/", &[("host", "A.example:80")], Some("a.example")),
            (one, "http://a.example/", &[("host", "a.example")], Some("a.example")),
            (one, "http://a.example/", &[], Some("a.example")),
            (two, "https://a.example/", &[], Some("a.example")),
            (two, "https://a.example/", &[("host", "a.example")], Some("a.example")),
            (ten, "/", &[], Some("")),
            (one, "http://a.example/", &[("host", "b.example")], None),
            (two, "https://a.example/", &[("host", "b.example")], None),
            (two, "https://a.example/", &[("host", "a.example"), ("host", "a.example")], None),
            (one, "/", &[("host", "a.example"), ("host", "b.example")], None),
            (one, "/", &[("host", "")], None),
            (one, "/", &[], None),
            (one, "/", &[("host", "a.example/admin")], None),
            (one, "/", &[("host", "user@a.example")], None),
        ];
        for (version, uri, headers, expected) in rows {
            let asked = Asked::of(&request(version, uri, headers));
            let host = asked.as_ref().ok().map(|asked| asked.host.as_str());
            assert_eq!(host, expected, "{version:?} {uri} {headers:?}");
            assert!(expected.is_some() || asked == Err(BAD_HOST));
        }
    }

    #[test]
    fn only_web_sockets_switch_protocols() {
        let rows: [(Version, Headers, Switch); 7] = [
            (
                Version::HTTP_11,
                &[("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")],
                Switch::WebSocket,
            ),
            (
                Version::HTTP_11,
                &[("connection", "Upgrade, HTTP2-Settings"), ("upgrade", "h2c")],
                Switch::Stay,
            ),
            (Version::HTTP_11, &[("connection", "Upgrade"), ("upgrade", "TLS/1.0")], Switch::Stay),
            (Version::HTTP_11, &[("upgrade", "websocket")], Switch::Stay),
            (Version::HTTP_11, &[("connection", "Upgrade")], Switch::Stay),
            (Version::HTTP_10, &[("connection", "Upgrade"), ("upgrade", "websocket")], Switch::Stay),
            (Version::HTTP_2, &[("connection", "Upgrade"), ("upgrade", "websocket")], Switch::Stay),
        ];
        for (version, headers, expected) in rows {
            let uri = "http://a.example/";
            let asked = Asked::of(&request(version, uri, headers)).unwrap();
            assert_eq!(asked.switch, expected, "{version:?} {headers:?}");
        }
    }

    #[test]
    fn some_methods_and_paths_are_refused() {
        let mut connect = request(Version::HTTP_11, "/", &[("host", "a.example")]);
        for method in [Method::CONNECT, Method::TRACE] {
            *connect.method_mut() = method;
            assert_eq!(Asked::of(&connect), Err(NO_METHOD));
        }
        for path in ["/../x", "/%2e%2e/", "/%00"] {
            assert_eq!(
                Asked::of(&request(Version::HTTP_11, path, &[("host", "a")])),
                Err(BAD_PATH),
                "{path}"
            );
        }
        let any = Asked::of(&request(Version::HTTP_11, "*", &[("host", "a")])).unwrap();
        assert_eq!(any.path, "/");
    }
}
