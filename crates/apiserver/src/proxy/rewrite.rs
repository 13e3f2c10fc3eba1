//! Addresses inside a backend, as a client behind the proxy must ask for them. Pure.

/// Where a page came from.
#[derive(Clone, Debug)]
pub(super) struct Rewrite {
    /// The path of the proxy, without a slash at the end.
    pub(super) prefix: String,
    /// The backend's own `host:port`.
    pub(super) backend: String,
    /// The host that the client asked for.
    pub(super) host: String,
}

impl Rewrite {
    /// The same place behind the proxy; other hosts and relative addresses stay as they are.
    pub(super) fn url(&self, url: &str) -> String {
        let after_scheme = url
            .strip_prefix("http://")
            .or_else(|| url.strip_prefix("https://"))
            .or_else(|| url.strip_prefix("//"));
        let path = match after_scheme {
            None => url,
            Some(rest) => {
                let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                if host != self.backend && host != self.host {
                    return url.to_owned();
                }
                if path.is_empty() { "/" } else { path }
            }
        };
        if !path.starts_with('/') {
            return url.to_owned();
        }
        if path.starts_with(&self.prefix) {
            return path.to_owned();
        }
        format!("{}{path}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, expect: &str) {
        let rewrite =
            Rewrite { prefix: "/p/proxy".into(), backend: "10.0.0.1:80".into(), host: "api:6443".into() };
        assert_eq!(rewrite.url(url), expect);
    }

    #[test]
    fn a_backend_of_ipv6_has_brackets() {
        let rewrite =
            Rewrite { prefix: "/p".into(), backend: "[fd42::5]:80".into(), host: "[fd00::1]:6443".into() };
        for (url, expect) in [
            ("http://[fd42::5]:80/a", "/p/a"),
            ("https://[fd00::1]:6443", "/p/"),
            ("//[fd42::5]:80/a", "/p/a"),
            ("http://[fd42::5]:81/a", "http://[fd42::5]:81/a"),
            ("http://[fd42::6]:80/a", "http://[fd42::6]:80/a"),
            ("http://fd42::5:80/a", "http://fd42::5:80/a"),
        ] {
            assert_eq!(rewrite.url(url), expect, "{url}");
        }
    }

    #[test]
    fn places_in_the_backend_are_led_through_the_proxy() {
        check("/a?b=c", "/p/proxy/a?b=c");
        check("/", "/p/proxy/");
        check("http://10.0.0.1:80/a/", "/p/proxy/a/");
        check("https://api:6443/a", "/p/proxy/a");
        check("/p/proxy/a", "/p/proxy/a");
        check("a/b", "a/b");
        check("#top", "#top");
        check("http://elsewhere.test/a", "http://elsewhere.test/a");
        check("//elsewhere.test/a", "//elsewhere.test/a");
    }
}
