//! Who asks, and may they: the API server says it of everybody, itself included.
//!
//! Certificates of the cluster's authority of clients and bearer tokens say who. Source: `pkg/kubelet/server/auth.go`,
//! KEP-2862.

use std::time::Duration;

pub(crate) use controller::access::Access;
use controller::access::{Asked, Lives, User};
use http::{Method, Request, StatusCode, header};
use jiff::Timestamp;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::Refusal;
use crate::context::Context;

/// How long answers are good for. Source: `authentication.webhook.cacheTTL`, `authorization.webhook.cacheAuthorizedTTL`,
/// `authorization.webhook.cacheUnauthorizedTTL`.
pub(super) const LIVES: Lives = Lives {
    known: Duration::from_mins(2),
    allowed: Duration::from_mins(5),
    refused: Duration::from_secs(30),
};

/// Somebody with a certificate.
#[derive(Debug)]
pub(super) struct Certified {
    pub(super) user: User,
    ends_second: i64,
}

impl Certified {
    pub(super) fn is_valid(&self, now: Timestamp) -> bool {
        now.as_second() <= self.ends_second
    }
}

/// The user of a certificate that the configured authority has signed.
pub(super) fn of_certificate(certificate: &[u8]) -> Option<Certified> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next().and_then(|name| name.as_str().ok())?.to_owned();
    let groups =
        subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned).collect();
    let ends_second = certificate.validity().not_after.timestamp();
    Some(Certified { user: User { name, groups, uid: String::new() }, ends_second })
}

/// The resource that a path stands for; several where any of them is enough, the finest first.
pub(super) fn subresources(path: &str) -> &'static [&'static str] {
    let is_below =
        |root: &str| path == root || path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'));
    if is_below("/stats") {
        return &["stats"];
    }
    if is_below("/metrics") {
        return &["metrics"];
    }
    if is_below("/logs") {
        return &["log"];
    }
    if is_below("/csi") {
        // Ours, and fine-grained as the others that the whole of the kubelet includes.
        return &["csi", "proxy"];
    }
    if is_below("/checkpoint") {
        return &["checkpoint"];
    }
    if is_below("/statusz") {
        return &["statusz"];
    }
    if is_below("/flagz") {
        return &["configz"];
    }
    if is_below("/pods") || is_below("/runningpods") {
        return &["pods", "proxy"];
    }
    if is_below("/healthz") {
        return &["healthz", "proxy"];
    }
    if is_below("/configz") {
        return &["configz", "proxy"];
    }
    &["proxy"]
}

fn verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "get",
    }
}

/// Lets a request pass.
///
/// # Errors
/// 401 for nobody, 403 for who may not, 500 if the API server does not say.
pub(super) async fn check<B>(
    access: &Access,
    context: &Context,
    certified: Option<&User>,
    request: &Request<B>,
) -> Result<(), Refusal> {
    let token =
        request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(bearer);
    let unknown = |error: kube::Error| Refusal::internal(error.to_string());
    let user = match (certified, token) {
        (Some(user), _) => user.clone(),
        (None, Some(token)) => {
            access.of_token(&context.client, token).await.map_err(unknown)?.ok_or_else(unauthorized)?
        }
        (None, None) => return Err(unauthorized()),
    };
    let (subresources, verb) = (subresources(request.uri().path()), verb(request.method()));
    for subresource in subresources {
        let asked = Asked::Node { verb, subresource, name: context.config.node_name.clone() };
        if access.may(&context.client, &user, asked).await.map_err(unknown)? {
            return Ok(());
        }
    }
    let (name, resources) = (&user.name, subresources.join(" "));
    let message =
        format!("Forbidden (user={name}, verb={verb}, resource=nodes, subresource(s)=[{resources}])\n");
    Err(Refusal(StatusCode::FORBIDDEN, message))
}

/// The token that a header has. Source: `bearertoken` of upstream's `k8s.io/apiserver/pkg/authentication/request`.
fn bearer(header: &str) -> Option<&str> {
    let mut words = header.trim().splitn(3, ' ');
    let (scheme, token) = (words.next()?, words.next()?);
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn unauthorized() -> Refusal {
    Refusal(StatusCode::UNAUTHORIZED, "Unauthorized".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Source: `bearertoken_test.go` of upstream's `k8s.io/apiserver/pkg/authentication/request`.
    #[test]
    fn tokens_are_read_whatever_the_case_of_their_scheme() {
        for (header, expect) in [
            ("Bearer token", Some("token")),
            ("bearer token", Some("token")),
            ("BEARER token", Some("token")),
            ("  Bearer token  ", Some("token")),
            ("Bearer token more", Some("token")),
            ("Bearer  token", None),
            ("Bearer ", None),
            ("Bearer", None),
            ("bearer:token", None),
            ("Bearertoken", None),
            ("Basic token", None),
            ("Foo Bearer token", None),
            ("", None),
        ] {
            assert_eq!(bearer(header), expect, "{header:?}");
        }
    }

    #[test]
    fn a_certificate_is_good_to_the_second_that_it_says() {
        let user = User { name: "u".into(), groups: Vec::new(), uid: String::new() };
        let certified = Certified { user, ends_second: 100 };
        for (second, expect) in [(0, true), (99, true), (100, true), (101, false)] {
            assert_eq!(certified.is_valid(Timestamp::from_second(second).unwrap()), expect, "{second}");
        }
        assert!(of_certificate(b"no certificate").is_none() && of_certificate(b"").is_none());
    }

    /// Source: `TestIsSubPath` and `AuthzTestCases` of upstream's `pkg/kubelet/server`.
    #[test]
    fn paths_stand_for_upstreams_subresources() {
        for (paths, expect) in [
            ("/stats /stats/ /stats/summary", &["stats"][..]),
            ("/metrics /metrics/slis /metrics/cadvisor /metrics/probes /metrics/resource", &["metrics"]),
            ("/logs /logs/ /logs/a/b", &["log"]),
            ("/checkpoint/ns/pod/container", &["checkpoint"]),
            ("/pods /pods/ /runningpods/", &["pods", "proxy"]),
            ("/healthz /healthz/log /healthz/ping /healthz/syncloop", &["healthz", "proxy"]),
            ("/configz", &["configz", "proxy"]),
            ("/statusz", &["statusz"]),
            ("/flagz", &["configz"]),
            ("/csi", &["csi", "proxy"]),
            ("/attach/ns/pod/container /attach/ns/pod/uid/container", &["proxy"]),
            (
                "/exec/ns/pod/container /run/ns/pod/container /portForward/ns/pod /containerLogs/ns/pod/container",
                &["proxy"],
            ),
            ("/debug/flags/v /debug/pprof/heap", &["proxy"]),
            ("/statsx /metricsx /logsx/a /podsx /healthzx /stat / /a/stats //stats", &["proxy"]),
        ] {
            for path in paths.split(' ') {
                assert_eq!(subresources(path), expect, "{path}");
            }
        }
        let verbs = ["POST", "GET", "PUT", "PATCH", "DELETE"].map(|name| verb(&name.parse().unwrap()));
        assert_eq!(verbs, ["create", "get", "update", "patch", "delete"]);
    }
}
