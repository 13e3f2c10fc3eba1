//! A front proxy authenticates its own clients and says in headers who they are.
//!
//! Source: `k8s.io/apiserver/pkg/authentication/request/headerrequest`.

use auth::UserInfo;
use http::HeaderMap;

use crate::impersonation::extra;

/// The proxies that are believed, and the headers that they send. Source: `--requestheader-*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontProxy {
    /// The authorities for proxies' client certificates, PEM.
    pub client_ca_pem: Vec<u8>,
    /// The common names that are believed; any, if empty.
    pub allowed_names: Vec<String>,
    /// The first that is there names the user.
    pub username_headers: Vec<String>,
    /// The first that is there is the uid.
    pub uid_headers: Vec<String>,
    /// All of them are groups.
    pub group_headers: Vec<String>,
    /// The prefixes of headers of extra information.
    pub extra_prefixes: Vec<String>,
}

impl FrontProxy {
    /// Upstream's usual headers, for proxies of this authority.
    pub fn new(client_ca_pem: Vec<u8>) -> Self {
        let one = |name: &str| vec![name.to_owned()];
        Self {
            client_ca_pem,
            allowed_names: Vec::new(),
            username_headers: one("X-Remote-User"),
            uid_headers: one("X-Remote-Uid"),
            group_headers: one("X-Remote-Group"),
            extra_prefixes: one("X-Remote-Extra-"),
        }
    }

    /// `true` if a proxy with this common name is believed.
    pub fn believes(&self, name: &str) -> bool {
        self.allowed_names.is_empty() || self.allowed_names.iter().any(|allowed| allowed == name)
    }

    /// `true` if a header, in lower case, is one that proxies set.
    pub fn sets(&self, header: &str) -> bool {
        let mut names = self.username_headers.iter().chain(&self.uid_headers).chain(&self.group_headers);
        names.any(|name| name.eq_ignore_ascii_case(header))
            || self.extra_prefixes.iter().any(|prefix| header.starts_with(&prefix.to_ascii_lowercase()))
    }

    /// The user that the headers name, if they do.
    pub fn user(&self, headers: &HeaderMap) -> Option<UserInfo> {
        let texts = |names: &[String]| -> Vec<String> {
            let values = names.iter().flat_map(|name| headers.get_all(name.as_str()));
            let texts = values.filter_map(|value| value.to_str().ok()).filter(|text| !text.is_empty());
            texts.map(str::to_owned).collect()
        };
        let name = texts(&self.username_headers).into_iter().next()?;
        let prefixes = self.extra_prefixes.iter().map(|prefix| prefix.to_ascii_lowercase());
        Some(UserInfo {
            name,
            uid: texts(&self.uid_headers).into_iter().next().unwrap_or_default(),
            groups: texts(&self.group_headers),
            extra: prefixes.flat_map(|prefix| extra(headers, &prefix)).collect(),
        })
    }

    /// The data that extension API servers read in `kube-system/extension-apiserver-authentication`.
    pub fn published(&self) -> Vec<(&'static str, String)> {
        let list = |names: &[String]| serde_json::json!(names).to_string();
        vec![
            ("requestheader-client-ca-file", String::from_utf8_lossy(&self.client_ca_pem).into_owned()),
            ("requestheader-allowed-names", list(&self.allowed_names)),
            ("requestheader-username-headers", list(&self.username_headers)),
            ("requestheader-uid-headers", list(&self.uid_headers)),
            ("requestheader-group-headers", list(&self.group_headers)),
            ("requestheader-extra-headers-prefix", list(&self.extra_prefixes)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_name_the_user() {
        let proxy = FrontProxy { allowed_names: vec!["aggregator".into()], ..FrontProxy::new(Vec::new()) };
        let mut headers = HeaderMap::new();
        assert_eq!(proxy.user(&headers), None);
        for (name, value) in [
            ("x-remote-user", "jane"),
            ("x-remote-group", "dev"),
            ("x-remote-group", "ops"),
            ("x-remote-extra-a%2fb", "c"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        let user = proxy.user(&headers).unwrap();
        assert_eq!((user.name.as_str(), user.groups), ("jane", vec!["dev".into(), "ops".into()]));
        assert_eq!(user.extra, [("a/b".to_owned(), vec!["c".to_owned()])].into());
        assert!(proxy.believes("aggregator") && !proxy.believes("mallory"));
    }
}
