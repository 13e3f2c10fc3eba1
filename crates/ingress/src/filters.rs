//! The changes of a request or an answer on its way, as data, and their effect.
//!
//! Source: `HTTPRouteFilter`, gateway.networking.k8s.io/v1.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{StatusCode, Uri};

use crate::scheme::Scheme;

/// The changes of headers: set, then added, then taken out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderEdit {
    /// In place of what is there.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// Beside what is there.
    pub add: Vec<(HeaderName, HeaderValue)>,
    /// Whatever there is.
    pub remove: Vec<HeaderName>,
}

impl HeaderEdit {
    /// Does it.
    pub fn apply(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.set {
            headers.insert(name, value.clone());
        }
        for (name, value) in &self.add {
            headers.append(name, value.clone());
        }
        for name in &self.remove {
            headers.remove(name);
        }
    }
}

/// Another path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathEdit {
    /// This one.
    Whole(String),
    /// The same with another beginning.
    Prefix {
        /// What the row has matched, without a slash at the end.
        matched: String,
        /// What stands there then.
        replacement: String,
    },
}

impl PathEdit {
    /// The path that a path in normal form becomes.
    pub fn apply(&self, path: &str) -> String {
        match self {
            Self::Whole(path) => path.clone(),
            Self::Prefix { matched, replacement } => {
                let rest = path.strip_prefix(matched.as_str()).unwrap_or(path);
                let path = format!("{}{rest}", replacement.trim_end_matches('/'));
                if path.starts_with('/') { path } else { format!("/{path}") }
            }
        }
    }
}

/// Another target of the request that is sent on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewrite {
    /// Another `Host`.
    pub host: Option<HeaderValue>,
    /// Another path.
    pub path: Option<PathEdit>,
}

impl Rewrite {
    /// The target of a request whose path in normal form is this; `None` if it stays, an error if it would be none.
    ///
    /// # Errors
    /// If what comes out is no target.
    pub fn target(&self, path: &str, query: Option<&str>) -> Option<Result<Uri, http::uri::InvalidUri>> {
        let path = self.path.as_ref()?.apply(path);
        Some(match query {
            Some(query) => format!("{path}?{query}").parse(),
            None => path.parse(),
        })
    }
}

/// The address that a client is sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// Its own, if none.
    pub scheme: Option<Scheme>,
    /// Its own, if none.
    pub host: Option<String>,
    /// That of the scheme that is named, or its own.
    pub port: Option<u16>,
    /// Its own, if none.
    pub path: Option<PathEdit>,
    /// The status of the redirect.
    pub status: StatusCode,
}

/// The scheme, host, port and path by which a request came in.
#[derive(Clone, Copy, Debug)]
pub struct Came<'a> {
    /// The scheme.
    pub scheme: Scheme,
    /// For whom, as rules have it.
    pub host: &'a str,
    /// The port.
    pub port: u16,
    /// For what, in normal form.
    pub path: &'a str,
    /// The same as the client wrote it.
    pub written: &'a str,
    /// As the client wrote it.
    pub query: Option<&'a str>,
}

impl Redirect {
    /// The address to redirect to; `None` if that is where the request is.
    pub fn location(&self, came: &Came<'_>) -> Option<String> {
        let scheme = self.scheme.unwrap_or(came.scheme);
        let port = match (self.port, self.scheme) {
            (Some(port), _) => port,
            (None, Some(scheme)) => scheme.port(),
            (None, None) => came.port,
        };
        let host = self.host.as_deref().unwrap_or(came.host);
        let path = self.path.as_ref().map_or_else(|| came.written.to_owned(), |edit| edit.apply(came.path));
        let is_same = path == came.path || path == came.written;
        if is_same && (scheme, port, host) == (came.scheme, came.port, came.host) {
            return None;
        }
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let port = if port == scheme.port() { String::new() } else { format!(":{port}") };
        let query = came.query.map(|query| format!("?{query}")).unwrap_or_default();
        Some(format!("{}://{host}{port}{path}{query}", scheme.as_str()))
    }
}

/// All of it, of a row or of one of its backends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    /// Of the request that is sent on.
    pub request: HeaderEdit,
    /// Of the answer.
    pub response: HeaderEdit,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of `ReplacePrefixMatch` in upstream's reference.
    #[test]
    fn a_prefix_is_replaced_as_the_reference_says() {
        for (path, matched, replacement, expected) in [
            ("/foo/bar", "/foo", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/foo", "/xyz/", "/xyz/bar"),
            ("/foo", "/foo", "/xyz", "/xyz"),
            ("/foo/", "/foo", "/xyz", "/xyz/"),
            ("/foo/bar", "/foo", "", "/bar"),
            ("/foo/", "/foo", "", "/"),
            ("/foo", "/foo", "", "/"),
            ("/foo/", "/foo", "/", "/"),
            ("/foo", "/foo", "/", "/"),
            ("/a", "", "/xyz", "/xyz/a"),
        ] {
            let edit = PathEdit::Prefix { matched: matched.into(), replacement: replacement.into() };
            assert_eq!(edit.apply(path), expected, "{path} {matched} {replacement}");
        }
        assert_eq!(PathEdit::Whole("/one".into()).apply("/foo/bar"), "/one");
    }

    fn redirect() -> Redirect {
        Redirect { scheme: None, host: None, port: None, path: None, status: StatusCode::FOUND }
    }

    #[test]
    fn a_client_is_sent_where_the_reference_says() {
        let plain = Came {
            scheme: Scheme::Http,
            host: "a.example",
            port: 80,
            path: "/x",
            written: "/x",
            query: Some("q=1"),
        };
        let odd = Came { port: 8080, ..plain };
        let tls = Came { scheme: Scheme::Https, port: 443, ..plain };
        let host = Some("b.example".to_owned());
        let rows: [(Redirect, Came<'_>, Option<&str>); 10] = [
            (Redirect { host: host.clone(), ..redirect() }, plain, Some("http://b.example/x?q=1")),
            (Redirect { host: host.clone(), ..redirect() }, odd, Some("http://b.example:8080/x?q=1")),
            (Redirect { host, ..redirect() }, tls, Some("https://b.example/x?q=1")),
            (Redirect { scheme: Some(Scheme::Https), ..redirect() }, odd, Some("https://a.example/x?q=1")),
            (
                Redirect { scheme: Some(Scheme::Https), port: Some(8443), ..redirect() },
                plain,
                Some("https://a.example:8443/x?q=1"),
            ),
            (Redirect { port: Some(8083), ..redirect() }, plain, Some("http://a.example:8083/x?q=1")),
            (
                Redirect { path: Some(PathEdit::Whole("/y".into())), ..redirect() },
                Came { query: None, host: "2001:db8::1", ..plain },
                Some("http://[2001:db8::1]/y"),
            ),
            // These lead to themselves.
            (redirect(), plain, None),
            (Redirect { scheme: Some(Scheme::Https), ..redirect() }, tls, None),
            (Redirect { path: Some(PathEdit::Whole("/x".into())), ..redirect() }, plain, None),
        ];
        for (redirect, came, expected) in rows {
            assert_eq!(redirect.location(&came).as_deref(), expected, "{redirect:?}");
        }
    }

    #[test]
    fn headers_are_set_added_and_taken_out() {
        let pair = |name: &'static str, value: &'static str| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let edit = HeaderEdit {
            set: vec![pair("a", "1")],
            add: vec![pair("b", "2")],
            remove: vec![HeaderName::from_static("c")],
        };
        let mut headers = HeaderMap::from_iter([pair("a", "0"), pair("b", "0"), pair("c", "0")]);
        edit.apply(&mut headers);
        let mut found: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}={}", value.to_str().unwrap())).collect();
        found.sort();
        assert_eq!(found, ["a=1", "b=0", "b=2"]);
    }

    #[test]
    fn a_rewritten_target_keeps_its_query() {
        let edit = PathEdit::Prefix { matched: "/a".into(), replacement: "/b".into() };
        let rewrite = Rewrite { host: None, path: Some(edit) };
        let target = |path, query| rewrite.target(path, query).map(|uri| uri.map(|uri| uri.to_string()).ok());
        assert_eq!(target("/a/c", Some("q=%20")), Some(Some("/b/c?q=%20".to_owned())));
        assert_eq!(target("/a", None), Some(Some("/b".to_owned())));
        assert_eq!(target("/a b", None), Some(None));
        assert!(Rewrite::default().target("/a", None).is_none());
    }
}
