//! No resource is reached by a path of another scope: every row of the table, every verb, every subresource, streams too.
//!
//! The rows come from the table, so that a new kind cannot be forgotten. Whoever asks may do everything in one
//! namespace: what authorization says of that namespace must be answered there or not at all (CVE-2019-11247).

use crate::fixtures::served;
use crate::server::{self, TestServer, start_with};
use auth::UserInfo;
use http_body_util::BodyExt;
use resources::Resource;
use serde_json::Value;

/// What upstream says where no route is.
const NO_ROUTE: &str = "the server could not find the requested resource";
/// Every method that clients use.
const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
const WEB_SOCKET: &[(&str, &str)] = &[
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("sec-websocket-protocol", "v4.channel.k8s.io"),
];
/// Calls of a node's storage, which the table does not name.
const UNLISTED: [&str; 1] = ["csi"];

/// A server with the namespaces `a` and `b`, and who may do everything in `a`.
async fn with_tenant() -> (TestServer, UserInfo) {
    let server = start_with(None, |config| config.options.is_fair = false).await;
    for name in ["a", "b"] {
        let made =
            server.call("POST", "/api/v1/namespaces", &format!("{{metadata: {{name: {name}}}}}")).await;
        assert_eq!(made.code, 201, "{}", made.body);
    }
    let binding = "{metadata: {name: all}, subjects: [{kind: User, name: tenant}], \
                    roleRef: {kind: ClusterRole, name: cluster-admin, apiGroup: rbac.authorization.k8s.io}}";
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/a/rolebindings";
    let made = server.call("POST", path, binding).await;
    assert_eq!(made.code, 201, "{}", made.body);
    (server, UserInfo { name: "tenant".into(), ..UserInfo::default() })
}

fn root(row: &Resource) -> String {
    let prefix = if row.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", row.group) };
    format!("{prefix}/{}", row.version)
}

/// An object's path, and those of everything below it.
fn below(row: &Resource, object: &str) -> Vec<String> {
    let listed = row.subresources.iter().map(|subresource| subresource.name);
    let names = listed.chain(UNLISTED).chain(["status", "finalize", "nonsense"]);
    let mut paths = vec![object.to_owned()];
    paths.extend(names.map(|name| format!("{object}/{name}")));
    paths.extend(["proxy/pods", "log/x", "status/x"].map(|rest| format!("{object}/{rest}")));
    paths
}

/// Paths of a row where it is not.
fn wrong(row: &Resource) -> Vec<String> {
    let (root, plural) = (root(row), &*row.plural);
    if row.is_namespaced() {
        return below(row, &format!("{root}/{plural}/x"));
    }
    let mut paths = vec![format!("{root}/namespaces/a/{plural}")];
    for name in ["a", "b", "x"] {
        paths.extend(below(row, &format!("{root}/namespaces/a/{plural}/{name}")));
    }
    paths
}

async fn answered(
    server: &TestServer,
    user: &UserInfo,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> (u16, Value) {
    let service = server.server.service();
    let response = server::send(service, Some(user.clone()), method, path, headers, "{}").await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

async fn is_nowhere(
    server: &TestServer,
    user: &UserInfo,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) {
    let (code, body) = answered(server, user, method, path, headers).await;
    assert_eq!(code, 404, "{method} {path}: {body}");
    assert_eq!(body["message"], NO_ROUTE, "{method} {path}");
}

#[tokio::test]
async fn no_row_is_served_by_a_path_of_another_scope() {
    let (server, tenant) = with_tenant().await;
    let admin = server::admin();
    let mut walked = 0;
    for row in served() {
        let user = if row.is_namespaced() { &admin } else { &tenant };
        for path in wrong(row) {
            for method in METHODS {
                let headers = [("content-type", "application/merge-patch+json")];
                is_nowhere(&server, user, method, &path, &headers).await;
                is_nowhere(&server, user, method, &format!("{path}?watch=1&dryRun=All"), &headers).await;
                walked += 2;
            }
            is_nowhere(&server, user, "GET", &path, WEB_SOCKET).await;
            is_nowhere(&server, user, "GET", &path.replacen("/v1/", "/v1/watch/", 1), &[]).await;
        }
    }
    assert!(walked > 1000, "{walked}");
    server.stop().await;
}

/// All namespaces together can be read, and nothing else; what cannot be read is nowhere.
#[tokio::test]
async fn all_namespaces_at_once_are_only_read() {
    let (server, tenant) = with_tenant().await;
    for row in served().filter(|row| row.is_namespaced()) {
        let path = format!("{}/{}", root(row), row.plural);
        assert_eq!(answered(&server, &tenant, "GET", &path, &[]).await.0, 403, "{path}");
        let is_read = row.allows("list");
        for method in METHODS {
            let expect = match (is_read, method) {
                (false, _) => 404,
                (true, "GET") => 200,
                (true, _) => 405,
            };
            let (code, body) = answered(&server, &server::admin(), method, &path, &[]).await;
            assert_eq!(code, expect, "{method} {path}: {body}");
        }
    }
    server.stop().await;
}

/// The same paths in their own scope lead somewhere: the walk above would notice if nothing were served at all.
#[tokio::test]
async fn every_row_is_served_in_its_own_scope() {
    let (server, tenant) = with_tenant().await;
    for row in served().filter(|row| row.allows("get")) {
        let scope = if row.is_namespaced() { "/namespaces/a" } else { "" };
        let path = format!("{}{scope}/{}/x", root(row), row.plural);
        let (code, body) = answered(&server, &server::admin(), "GET", &path, &[]).await;
        assert_eq!(code, 404, "{path}");
        assert_ne!(body["message"], NO_ROUTE, "{path}");
    }
    let itself = "/api/v1/namespaces/a";
    assert_eq!(answered(&server, &tenant, "GET", itself, &[]).await.0, 200);
    assert_eq!(answered(&server, &tenant, "GET", &format!("{itself}/status"), &[]).await.0, 200);
    assert_eq!(answered(&server, &tenant, "GET", "/api/v1/namespaces/b", &[]).await.0, 403);
    assert_eq!(answered(&server, &tenant, "GET", "/api/v1/namespaces/b/status", &[]).await.0, 403);
    server.stop().await;
}
