//! The scope of a resource: a path's scope fits its kind's, or nothing is there.
//!
//! Only [`RequestScope::new`] makes a [`RequestScope`], and a [`Request`](crate::request::Request) has one: no verb, no
//! subresource and no stream is reached by a path that upstream does not route. That authorization was asked about one scope
//! while another one answered was CVE-2019-11247.
//!
//! Source: `registerResourceHandlers` of `k8s.io/apiserver/pkg/endpoints/installer.go`.

use std::ops::Deref;

use crate::kinds::Kind;
use crate::request_info::{ResourceInfo, Scope, Verb};
use crate::status::{Error, Result};

/// The resource part of a request, in a scope in which its kind is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestScope {
    resource: ResourceInfo,
}

impl RequestScope {
    /// Checks that a kind is served where a path names it.
    ///
    /// # Errors
    /// 404 for a path that there is not, 405 for what cannot be done to all namespaces at once.
    pub fn new(kind: &Kind, resource: ResourceInfo) -> Result<Self> {
        let is_itself = kind.group().is_empty() && kind.resource() == "namespaces";
        let is_across = kind.is_namespaced() && resource.scope == Scope::Cluster;
        let is_there = match resource.scope {
            Scope::Namespace => kind.is_namespaced(),
            Scope::Itself => is_itself,
            Scope::Cluster => !is_across || (resource.name.is_empty() && kind.has_verb(Verb::List)),
        };
        if !is_there || !is_whole(&resource) {
            return Err(Error::unknown_path());
        }
        if is_across && !matches!(resource.verb, Verb::List | Verb::Watch) {
            return Err(Error::method_not_allowed());
        }
        Ok(Self { resource })
    }

    /// The same object's subresource.
    pub fn below(&mut self, subresource: &str) {
        subresource.clone_into(&mut self.resource.subresource);
    }
}

impl Deref for RequestScope {
    type Target = ResourceInfo;

    fn deref(&self) -> &ResourceInfo {
        &self.resource
    }
}

/// Nothing is below a subresource but what a proxy passes on, nothing below an object is watched, and no name has a
/// slash in it, however it was written.
fn is_whole(resource: &ResourceInfo) -> bool {
    let is_below = !resource.subresource.is_empty();
    (resource.rest.is_empty() || resource.subresource == "proxy")
        && !(is_below && resource.verb == Verb::Watch)
        && !resource.name.contains('/')
        && !resource.namespace.contains('/')
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::request_info::RequestInfo;

    fn check(method: Method, path: &str, expect: u16) {
        let resource = RequestInfo::parse(&method, path, None).resource.unwrap();
        let kinds = crate::kinds::all::builtin();
        let kind = kinds.find(&resource.group, &resource.version, &resource.resource).unwrap();
        let code = RequestScope::new(kind, resource).map_or_else(|error| error.code.as_u16(), |_| 200);
        assert_eq!(code, expect, "{method} {path}");
    }

    #[test]
    fn a_path_leads_to_its_own_scope_only() {
        for (path, expect) in [
            ("/api/v1/nodes/n/proxy/pods", 200),
            ("/api/v1/namespaces/a/nodes/n/proxy/pods", 404),
            ("/api/v1/namespaces/a/nodes/n", 404),
            ("/api/v1/namespaces/a/nodes", 404),
            ("/api/v1/namespaces/a", 200),
            ("/api/v1/namespaces/a/status", 200),
            ("/api/v1/namespaces/a/status/x", 404),
            ("/api/v1/namespaces/a/namespaces", 404),
            ("/api/v1/namespaces/a/namespaces/a", 404),
            ("/api/v1/namespaces/a/namespaces/b", 404),
            ("/api/v1/namespaces/a/namespaces/b/finalize", 404),
            ("/api/v1/watch/namespaces/a/namespaces/b", 404),
            ("/api/v1/watch/nodes/n/proxy", 404),
            ("/api/v1/pods", 200),
            ("/api/v1/pods/p", 404),
            ("/api/v1/pods/p/log", 404),
            ("/api/v1/bindings", 404),
            ("/api/v1/namespaces/a/pods/p/log", 200),
            ("/api/v1/namespaces/a/pods/p/log/x", 404),
            ("/api/v1/namespaces/a/pods/p/proxy/x", 200),
            ("/api/v1/namespaces/a%2Fb/pods", 404),
            ("/api/v1/namespaces/a/pods/b%2Fc", 404),
        ] {
            check(Method::GET, path, expect);
        }
        check(Method::POST, "/api/v1/pods", 405);
        check(Method::DELETE, "/api/v1/pods", 405);
        check(Method::POST, "/api/v1/bindings", 404);
        check(Method::POST, "/api/v1/namespaces/a/namespaces", 404);
    }
}
