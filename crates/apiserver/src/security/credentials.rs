//! The credentials that a client sends to prove who it is: read here, and taken out of the request before anybody else
//! sees it.
//!
//! Certificates apart, it is all in headers. None of them ever gets to a backend: not to a Pod behind a proxy, not to a
//! kubelet.
//!
//! Source: `k8s.io/apiserver/pkg/authentication/request/{bearertoken,websocket}`, `WithAuthentication`.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::front_proxy::FrontProxy;

/// Browsers cannot set `Authorization` on a WebSocket; they name this protocol with the token at its end.
const PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// A text that cannot be taken as a token, though it was sent as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// The tokens of a request, in the order in which they are tried.
pub fn tokens(headers: &HeaderMap) -> Vec<Result<String, Malformed>> {
    let of_socket = if is_web_socket(headers) { socket_token(headers).transpose() } else { None };
    header_token(headers).map(Ok).into_iter().chain(of_socket).collect()
}

/// Takes out of a request's headers what proves who sent it, or claims to. Protocols of a WebSocket stay, but for the one
/// that is a token, also where it was no WebSocket.
pub fn clear(headers: &mut HeaderMap, proxy: Option<&FrontProxy>) {
    let is_proxys = |name: &HeaderName| proxy.is_some_and(|proxy| proxy.sets(name.as_str()));
    let names = headers.keys().filter(|name| is_credential(name) || is_proxys(name));
    for name in names.cloned().collect::<Vec<_>>() {
        headers.remove(name);
    }
    if !headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().any(|value| contains(value, PROTOCOL)) {
        return;
    }
    let kept: Vec<String> = protocols(headers).filter(|protocol| !is_token(protocol)).collect();
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    if let Ok(kept) = HeaderValue::from_str(&kept.join(", "))
        && !kept.is_empty()
    {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, kept);
    }
}

/// Whether a header says who somebody is, or whom they act as.
fn is_credential(name: &HeaderName) -> bool {
    let name = name.as_str();
    matches!(name, "authorization" | "proxy-authorization")
        || name.starts_with("impersonate-")
        || name.starts_with("x-remote-")
}

fn header_token(headers: &HeaderMap) -> Option<String> {
    let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok())?;
    let mut parts = header.trim().splitn(3, ' ');
    let is_bearer = parts.next().is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer"));
    parts.next().filter(|token| is_bearer && !token.is_empty()).map(str::to_owned)
}

/// Source: `wsstream.IsWebSocketRequest`.
fn is_web_socket(headers: &HeaderMap) -> bool {
    let is_upgrade = |value: &HeaderValue| {
        let words = value.to_str().unwrap_or_default().split(',');
        words.into_iter().any(|word| word.trim().eq_ignore_ascii_case("upgrade"))
    };
    headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
        && headers.get(CONNECTION).is_some_and(is_upgrade)
}

/// One token, and beside it a protocol that the server can answer with.
fn socket_token(headers: &HeaderMap) -> Result<Option<String>, Malformed> {
    let (tokens, others): (Vec<String>, Vec<String>) = protocols(headers).partition(|one| is_token(one));
    let token = match tokens.as_slice() {
        [] => return Ok(None),
        [one] => one.get(PROTOCOL.len()..).unwrap_or_default(),
        _ => return Err(Malformed("multiple base64.bearer.authorization tokens specified")),
    };
    let bytes = URL_SAFE_NO_PAD
        .decode(token)
        .map_err(|_| Malformed("invalid base64.bearer.authorization token encoding"))?;
    let token =
        String::from_utf8(bytes).map_err(|_| Malformed("invalid base64.bearer.authorization token"))?;
    match (token.is_empty(), others.is_empty()) {
        (true, _) => Ok(None),
        (false, true) => Err(Malformed("missing additional subprotocol")),
        (false, false) => Ok(Some(token)),
    }
}

/// The protocols that a WebSocket request offers, over all headers of the name.
fn protocols(headers: &HeaderMap) -> impl Iterator<Item = String> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let texts = values.map(|value| String::from_utf8_lossy(value.as_bytes()));
    let words = texts.flat_map(|text| text.split(',').map(|word| word.trim().to_owned()).collect::<Vec<_>>());
    words.filter(|word| !word.is_empty())
}

/// A token by any spelling of the prefix: what is not taken as one is not passed on either.
fn is_token(protocol: &str) -> bool {
    protocol.get(..PROTOCOL.len()).is_some_and(|prefix| prefix.eq_ignore_ascii_case(PROTOCOL))
}

fn contains(value: &HeaderValue, text: &str) -> bool {
    String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase().contains(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `secret` in base64.
    const TOKEN: &str = "base64url.bearer.authorization.k8s.io.c2VjcmV0";
    const SOCKET: [(&str, &str); 2] = [("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")];

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        headers
    }

    fn check_tokens(pairs: &[(&str, &str)], expect: &[Result<&str, &'static str>]) {
        let found = tokens(&headers(pairs));
        let found: Vec<_> =
            found.iter().map(|one| one.as_ref().map(String::as_str).map_err(|why| why.0)).collect();
        assert_eq!(found, expect, "{pairs:?}");
    }

    #[test]
    fn a_token_is_where_upstream_looks_for_one() {
        check_tokens(&[], &[]);
        check_tokens(&[("authorization", "Bearer x")], &[Ok("x")]);
        check_tokens(&[("authorization", "bEARER x y")], &[Ok("x")]);
        check_tokens(&[("authorization", "Bearer ")], &[]);
        check_tokens(&[("authorization", "Basic x")], &[]);
        let many = format!("{TOKEN}, {TOKEN}, v4");
        let alone = "missing additional subprotocol";
        let twice = "multiple base64.bearer.authorization tokens specified";
        for (protocols, expect) in [
            (&[format!("v4.channel.k8s.io, {TOKEN}")][..], &[Ok("secret")][..]),
            (&[format!("{TOKEN},v4.channel.k8s.io")], &[Ok("secret")]),
            (&[TOKEN.to_owned(), "v4.channel.k8s.io".to_owned()], &[Ok("secret")]),
            (&[TOKEN.to_owned()], &[Err(alone)]),
            (&[format!("{TOKEN},,")], &[Err(alone)]),
            (&[many], &[Err(twice)]),
            (&[TOKEN.to_owned(), TOKEN.to_owned(), "v4".to_owned()], &[Err(twice)]),
            (
                &["base64url.bearer.authorization.k8s.io.***, v4".to_owned()],
                &[Err("invalid base64.bearer.authorization token encoding")],
            ),
            (
                &["base64url.bearer.authorization.k8s.io._w, v4".to_owned()],
                &[Err("invalid base64.bearer.authorization token")],
            ),
            (&["base64url.bearer.authorization.k8s.io., v4".to_owned()], &[]),
            (&["v4.channel.k8s.io".to_owned()], &[]),
        ] {
            let offered: Vec<_> =
                protocols.iter().map(|value| ("sec-websocket-protocol", value.as_str())).collect();
            check_tokens(&[&SOCKET[..], &offered].concat(), expect);
            check_tokens(&offered, &[]);
            check_tokens(&[&[("upgrade", "websocket")][..], &offered].concat(), &[]);
            check_tokens(
                &[&[("upgrade", "spdy/3.1"), ("connection", "upgrade")][..], &offered].concat(),
                &[],
            );
        }
    }

    #[test]
    fn nothing_that_proves_who_a_client_is_stays() {
        let custom = FrontProxy {
            username_headers: vec!["X-Who".into()],
            uid_headers: vec!["X-Id".into()],
            group_headers: vec!["X-Groups".into()],
            extra_prefixes: vec!["X-More-".into()],
            ..FrontProxy::new(Vec::new())
        };
        let socket = "sec-websocket-protocol";
        let upper = TOKEN.to_ascii_uppercase();
        for (pairs, expect) in [
            (&[("authorization", "Bearer x"), ("accept", "*/*")][..], &[("accept", "*/*")][..]),
            (&[("authorization", "Basic x"), ("authorization", "Bearer y")], &[]),
            (&[("proxy-authorization", "Basic x")], &[]),
            (&[("impersonate-user", "root"), ("impersonate-extra-a", "b"), ("impersonate-uid", "1")], &[]),
            (
                &[("x-remote-user", "root"), ("x-remote-group", "system:masters"), ("x-remote-extra-a", "b")],
                &[],
            ),
            (&[("x-who", "root"), ("x-id", "1"), ("x-groups", "system:masters"), ("x-more-a", "b")], &[]),
            (&[("cookie", "the=backend's")], &[("cookie", "the=backend's")]),
            (&[(socket, "v4, v5")], &[(socket, "v4, v5")]),
            (&[(socket, TOKEN)], &[]),
            (&[(socket, "v4"), (socket, TOKEN), (socket, "v5")], &[(socket, "v4, v5")]),
            (&[(socket, &format!("{TOKEN},v4,{TOKEN}"))], &[(socket, "v4")]),
            (&[(socket, &format!("v4,{upper}"))], &[(socket, "v4")]),
            (&[(socket, &format!("v4,\t {TOKEN}\t"))], &[(socket, "v4")]),
        ] {
            let mut found = headers(pairs);
            clear(&mut found, Some(&custom));
            assert_eq!(found, headers(expect), "{pairs:?}");
        }
    }
}
