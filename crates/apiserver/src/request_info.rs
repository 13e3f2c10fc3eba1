//! The target of a request, read off its method, path and query. Pure.
//!
//! Source: `k8s.io/apiserver/pkg/endpoints/request.RequestInfo`.

use http::Method;

use crate::status::{Error, Result};

/// The verb of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads a collection.
    List,
    /// Follows a collection.
    Watch,
    /// Makes an object.
    Create,
    /// Replaces an object.
    Update,
    /// Changes part of an object.
    Patch,
    /// Removes an object.
    Delete,
    /// Removes a collection.
    DeleteCollection,
}

impl Verb {
    /// The word RBAC rules use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// `true` if the verb changes something.
    pub fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// The query's parameters, decoded, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Decodes what follows the question mark.
    pub fn parse(text: &str) -> Self {
        Self(form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    /// The first value of `name`; empty values count as absent.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).filter(|v| !v.is_empty())
    }

    /// Every value of `name`.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// `true` if `name` is there, with whatever value.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(key, _)| key == name)
    }

    /// A flag as the API reads it: absent, `0` and `false` are false, anything else is true, also nothing.
    pub fn flag(&self, name: &str) -> bool {
        match self.0.iter().find(|(key, _)| key == name) {
            None => false,
            Some((_, value)) => value != "0" && !value.eq_ignore_ascii_case("false"),
        }
    }

    /// A whole number.
    ///
    /// # Errors
    /// 400 if it is none.
    pub fn number(&self, name: &str) -> Result<Option<i64>> {
        let Some(text) = self.get(name) else { return Ok(None) };
        text.parse()
            .map(Some)
            .map_err(|_| Error::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))
    }
}

/// The scope in which a path puts a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// `/RESOURCE`: the cluster, or all namespaces.
    Cluster,
    /// `/namespaces/NAMESPACE/RESOURCE`
    Namespace,
    /// `/namespaces/NAMESPACE`: the Namespace itself, which is in itself as far as rights go.
    Itself,
}

/// The resource part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceInfo {
    /// The verb.
    pub verb: Verb,
    /// Empty for core.
    pub group: String,
    /// For example `v1`.
    pub version: String,
    /// The scope in which the path puts it.
    pub scope: Scope,
    /// Empty for cluster scope and for all namespaces. For a Namespace itself: its name.
    pub namespace: String,
    /// The plural.
    pub resource: String,
    /// Empty if none.
    pub subresource: String,
    /// Empty for collections.
    pub name: String,
    /// The rest of the path after the subresource, for proxies.
    pub rest: String,
}

/// A request as data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    /// The method in upper case.
    pub method: Method,
    /// The path as sent.
    pub path: String,
    /// The query's text as sent.
    pub raw_query: String,
    /// The parameters.
    pub query: Query,
    /// The resource that it is about; `None` for paths that are no resource.
    pub resource: Option<ResourceInfo>,
}

impl RequestInfo {
    /// Reads method, path and query.
    pub fn parse(method: &Method, path: &str, query: Option<&str>) -> Self {
        let parsed = Query::parse(query.unwrap_or_default());
        let resource = resource_info(method, path, &parsed);
        Self {
            method: method.clone(),
            path: path.to_owned(),
            raw_query: query.unwrap_or_default().to_owned(),
            query: parsed,
            resource,
        }
    }
}

fn resource_info(method: &Method, path: &str, query: &Query) -> Option<ResourceInfo> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (group, version, mut rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let mut watch_prefix = false;
    if let ["watch", tail @ ..] = rest {
        watch_prefix = true;
        rest = tail;
    }
    let (scope, namespace, rest) = match rest {
        [] => return None,
        ["namespaces", namespace] | ["namespaces", namespace, "status" | "finalize", ..] => {
            (Scope::Itself, *namespace, rest)
        }
        ["namespaces", namespace, tail @ ..] => (Scope::Namespace, *namespace, tail),
        _ => (Scope::Cluster, "", rest),
    };
    let name = rest.get(1).copied().unwrap_or_default();
    let verb = match watch_prefix {
        true => Verb::Watch,
        false => verb(method, !name.is_empty(), query)?,
    };
    Some(ResourceInfo {
        verb,
        group: group.to_owned(),
        version: version.to_owned(),
        scope,
        namespace: decode(namespace),
        resource: decode(rest.first().copied().unwrap_or_default()),
        subresource: rest.get(2).copied().unwrap_or_default().to_owned(),
        name: decode(name),
        rest: rest.get(3..).map(|rest| rest.join("/")).unwrap_or_default(),
    })
}

fn verb(method: &Method, named: bool, query: &Query) -> Option<Verb> {
    Some(match (method.as_str(), named) {
        ("GET" | "HEAD", true) => Verb::Get,
        ("GET" | "HEAD", false) if query.flag("watch") => Verb::Watch,
        ("GET" | "HEAD", false) => Verb::List,
        ("POST", _) => Verb::Create,
        ("PUT", _) => Verb::Update,
        ("PATCH", _) => Verb::Patch,
        ("DELETE", true) => Verb::Delete,
        ("DELETE", false) => Verb::DeleteCollection,
        _ => return None,
    })
}

/// Decodes a path segment's percent escapes.
fn decode(segment: &str) -> String {
    if !segment.contains('%') {
        return segment.to_owned();
    }
    let escaped = segment.replace('+', "%2B");
    form_urlencoded::parse(escaped.as_bytes()).map(|(key, _)| key.into_owned()).collect()
}

/// The beginning of a text, in whole characters.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes_max)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: Method, uri: &str, expect: &str) {
        let (path, query) = uri.split_once('?').map_or((uri, None), |(p, q)| (p, Some(q)));
        let info = RequestInfo::parse(&method, path, query);
        let shown = info.resource.map_or("-".to_owned(), |r| {
            format!(
                "{} g={} v={} ns={} r={} n={} s={} rest={}",
                r.verb.as_str(),
                r.group,
                r.version,
                r.namespace,
                r.resource,
                r.name,
                r.subresource,
                r.rest
            )
        });
        assert_eq!(shown, expect, "{method} {uri}");
    }

    #[test]
    fn paths_are_read_as_upstream_reads_them() {
        check(Method::GET, "/api/v1/pods", "list g= v=v1 ns= r=pods n= s= rest=");
        check(Method::GET, "/api/v1/pods?watch=True", "watch g= v=v1 ns= r=pods n= s= rest=");
        check(Method::GET, "/api/v1/namespaces", "list g= v=v1 ns= r=namespaces n= s= rest=");
        check(Method::GET, "/api/v1/namespaces/a", "get g= v=v1 ns=a r=namespaces n=a s= rest=");
        check(
            Method::PUT,
            "/api/v1/namespaces/a/finalize",
            "update g= v=v1 ns=a r=namespaces n=a s=finalize rest=",
        );
        check(Method::POST, "/api/v1/namespaces/a/pods", "create g= v=v1 ns=a r=pods n= s= rest=");
        check(
            Method::PATCH,
            "/apis/apps/v1/namespaces/a/deployments/web/scale",
            "patch g=apps v=v1 ns=a r=deployments n=web s=scale rest=",
        );
        check(Method::DELETE, "/api/v1/nodes", "deletecollection g= v=v1 ns= r=nodes n= s= rest=");
        check(
            Method::GET,
            "/api/v1/nodes/n/proxy/metrics/cadvisor",
            "get g= v=v1 ns= r=nodes n=n s=proxy rest=metrics/cadvisor",
        );
        check(Method::GET, "/api/v1/nodes/n?watch=1", "get g= v=v1 ns= r=nodes n=n s= rest=");
        check(Method::POST, "/api/v1/watch/nodes/n", "watch g= v=v1 ns= r=nodes n=n s= rest=");
        check(Method::GET, "/apis/apps/v1", "-");
        check(Method::GET, "/healthz", "-");
        check(
            Method::GET,
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
            "get g=rbac.authorization.k8s.io v=v1 ns= r=clusterroles n=system:node s= rest=",
        );
    }

    #[test]
    fn flags_follow_go() {
        for (text, expect) in
            [("watch=1", true), ("watch", true), ("watch=0", false), ("watch=f", true), ("a=1", false)]
        {
            assert_eq!(Query::parse(text).flag("watch"), expect, "{text}");
        }
    }
}
