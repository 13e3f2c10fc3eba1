//! The address of a webhook: a Service of the cluster, or a URL.

use serde_json::Value;

/// The port of a Service that is called where none is named.
const PORT_DEFAULT: u16 = 443;

/// The address of a webhook.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// Behind a Service.
    Service {
        /// Which one.
        service: ServiceReference,
        /// Empty, or a path from the root.
        path: String,
    },
    /// At a URL.
    Url {
        /// Name or address, without brackets.
        host: String,
        /// The port, if it is named.
        port: Option<u16>,
        /// Empty, or a path from the root.
        path: String,
    },
}

/// A Service and one of its ports.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServiceReference {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The port of the Service, not of what is behind it.
    pub port: u16,
}

/// The reason why there is no such place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Nothing is named.
    #[error("webhook configuration must have either service or URL")]
    Nothing,
    /// A URL that is none, or not one for webhooks.
    #[error("Unparsable URL: {0}")]
    Url(String),
    /// A port that is none.
    #[error("invalid port {0}")]
    Port(i64),
}

impl Address {
    /// Reads a `WebhookClientConfig`.
    ///
    /// # Errors
    /// As [`AddressError`].
    pub fn of(config: &Value) -> Result<Self, AddressError> {
        if let Some(service) = config.get("service").filter(|service| service.is_object()) {
            let text = |name: &str| service.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            let port = match service.get("port").and_then(Value::as_i64).unwrap_or(0) {
                0 => PORT_DEFAULT,
                port => u16::try_from(port).map_err(|_| AddressError::Port(port))?,
            };
            let service = ServiceReference { namespace: text("namespace"), name: text("name"), port };
            return Ok(Self::Service { service, path: from_root(&text("path")) });
        }
        let url = config.get("url").and_then(Value::as_str).filter(|url| !url.is_empty());
        Self::of_url(url.ok_or(AddressError::Nothing)?)
    }

    /// Reads a URL: HTTPS, without user, query and fragment.
    ///
    /// # Errors
    /// As [`AddressError`].
    pub fn of_url(text: &str) -> Result<Self, AddressError> {
        let wrong = |why: &str| AddressError::Url(format!("{text:?}: {why}"));
        let uri: http::Uri = text.parse().map_err(|why| wrong(&format!("{why}")))?;
        let authority = uri.authority().ok_or_else(|| wrong("host must be specified"))?;
        let rules = [
            (uri.scheme_str() == Some("https"), "'https' is the only allowed URL scheme"),
            (!authority.host().is_empty(), "host must be specified"),
            (!authority.as_str().contains('@'), "user information is not permitted in the URL"),
            (uri.query().is_none(), "query parameters are not permitted in the URL"),
            (!text.contains('#'), "fragments are not permitted in the URL"),
        ];
        if let Some((_, why)) = rules.iter().find(|(holds, _)| !holds) {
            return Err(wrong(why));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let rest = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
        let port = match rest.strip_prefix(':') {
            Some(port) => Some(port.parse().map_err(|_| wrong("invalid port"))?),
            None => None,
        };
        Ok(Self::Url { host, port, path: uri.path().to_owned() })
    }

    /// The name that the other end's certificate must be for.
    pub fn server_name(&self) -> String {
        match self {
            Self::Service { service, .. } => service.server_name(),
            Self::Url { host, .. } => host.clone(),
        }
    }

    /// Host and port, as credentials are looked up by.
    pub fn target(&self) -> String {
        match self {
            Self::Service { service, .. } => format!("{}:{}", service.server_name(), service.port),
            Self::Url { host, port, .. } => format!("{}:{}", bracketed(host), port.unwrap_or(PORT_DEFAULT)),
        }
    }

    /// The URL that is asked for, and that errors name.
    pub fn url(&self) -> String {
        match self {
            Self::Service { path, .. } => format!("https://{}{}", self.target(), or_root(path)),
            Self::Url { host, port, path } => {
                let port = port.map(|port| format!(":{port}")).unwrap_or_default();
                format!("https://{}{port}{}", bracketed(host), or_root(path))
            }
        }
    }

    /// Host and port to connect to.
    pub fn host(&self) -> (&str, u16) {
        match self {
            Self::Service { service, .. } => (&service.name, service.port),
            Self::Url { host, port, .. } => (host, port.unwrap_or(PORT_DEFAULT)),
        }
    }

    /// `true` if HTTP/2 may be spoken. One connection would lead all calls to one of several that are behind a name;
    /// there is but one on this host. Source: `hookClientConfig`.
    pub fn takes_http2(&self) -> bool {
        match self {
            Self::Service { .. } => false,
            Self::Url { host, .. } => {
                let ip: Option<std::net::IpAddr> = host.parse().ok();
                host.eq_ignore_ascii_case("localhost") || ip.is_some_and(|ip| ip.is_loopback())
            }
        }
    }
}

impl ServiceReference {
    /// The Service's name in the cluster.
    pub fn server_name(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

fn from_root(path: &str) -> String {
    if path.is_empty() || path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

fn or_root(path: &str) -> &str {
    if path.is_empty() { "/" } else { path }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_place_has_a_url_and_a_name_to_prove() {
        for (config, url, name, target) in [
            (
                json!({"service": {"namespace": "ns", "name": "hook", "path": "/mutate"}}),
                "https://hook.ns.svc:443/mutate",
                "hook.ns.svc",
                "hook.ns.svc:443",
            ),
            (
                json!({"service": {"namespace": "ns", "name": "hook", "port": 8443}}),
                "https://hook.ns.svc:8443/",
                "hook.ns.svc",
                "hook.ns.svc:8443",
            ),
            (
                json!({"url": "https://example.com/a/b"}),
                "https://example.com/a/b",
                "example.com",
                "example.com:443",
            ),
            (
                json!({"url": "https://example.com:99"}),
                "https://example.com:99/",
                "example.com",
                "example.com:99",
            ),
            (json!({"url": "https://[::1]:9/x"}), "https://[::1]:9/x", "::1", "[::1]:9"),
        ] {
            let address = Address::of(&config).unwrap();
            let found = (address.url(), address.server_name(), address.target());
            assert_eq!(found, (url.to_owned(), name.to_owned(), target.to_owned()), "{config}");
        }
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for config in [
            json!({}),
            json!({"url": ""}),
            json!({"url": 7}),
            json!({"service": null}),
            json!({"url": "http://example.com"}),
            json!({"url": "https://"}),
            json!({"url": "https://a@example.com"}),
            json!({"url": "https://example.com?a=b"}),
            json!({"url": "https://example.com#a"}),
            json!({"url": "https://example.com:99999"}),
            json!({"url": "https://example.com/\u{1}"}),
            json!({"url": "/relative"}),
            json!({"service": {"namespace": "ns", "name": "hook", "port": 70000}}),
            json!({"service": {"namespace": "ns", "name": "hook", "port": -1}}),
        ] {
            assert!(Address::of(&config).is_err(), "{config}");
        }
    }

    #[test]
    fn only_this_host_is_spoken_to_in_http2() {
        for (url, expect) in [
            ("https://localhost:1", true),
            ("https://127.0.0.1:1", true),
            ("https://[::1]:1", true),
            ("https://example.com", false),
            ("https://localhost.example.com", false),
        ] {
            assert_eq!(Address::of_url(url).unwrap().takes_http2(), expect, "{url}");
        }
    }
}
