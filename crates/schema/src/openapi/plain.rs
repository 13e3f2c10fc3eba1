//! Paths that are no resources, but tell of the API itself: versions, groups, who issues tokens.
//!
//! Each has an OpenAPI v3 document of its own, and all of them are in the one of v2.
//! Source: `k8s.io/apiserver/pkg/endpoints/discovery`, `pkg/server/routes`, `pkg/routes` of upstream.

use super::META;
use super::operations::{camel, group_words};

const ANY: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const JSON: &[&str] = &["application/json"];

/// A path with a GET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plain {
    /// The path without slashes at its ends, such as `apis/apps`.
    pub path: String,
    /// What the GET is for.
    pub(super) description: &'static str,
    pub(super) id: String,
    pub(super) tag: String,
    /// The message in the answer; text if empty.
    pub(super) answer: String,
    pub(super) media_types: &'static [&'static str],
}

/// All of them, for a server with these groups; the core group is not named.
pub fn all<'g>(groups: impl IntoIterator<Item = &'g str>) -> Vec<Plain> {
    let versions = "get available API versions";
    let mut all = vec![
        plain("api", versions, "getCoreAPIVersions", "core", &format!("{META}.APIVersions"), ANY),
        plain("apis", versions, "getAPIVersions", "apis", &format!("{META}.APIGroupList"), ANY),
    ];
    for group in groups {
        let (word, tag) = group_words(group);
        let (path, id) = (format!("apis/{group}"), format!("get{}APIGroup", camel(&word)));
        let answer = format!("{META}.APIGroup");
        all.push(plain(&path, "get information of a group", &id, &tag, &answer, ANY));
    }
    all.extend([
        plain(
            "version",
            "get the version information for this server",
            "getCodeVersion",
            "version",
            "io.k8s.apimachinery.pkg.version.Info",
            JSON,
        ),
        plain(
            ".well-known/openid-configuration",
            "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
            "getServiceAccountIssuerOpenIDConfiguration",
            "WellKnown",
            "",
            JSON,
        ),
        plain(
            "openid/v1/jwks",
            "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
            "getServiceAccountIssuerOpenIDKeyset",
            "openid",
            "",
            &["application/jwk-set+json"],
        ),
    ]);
    all
}

fn plain(
    path: &str,
    description: &'static str,
    id: &str,
    tag: &str,
    answer: &str,
    media_types: &'static [&'static str],
) -> Plain {
    let own = str::to_owned;
    Plain { path: own(path), description, id: own(id), tag: own(tag), answer: own(answer), media_types }
}
