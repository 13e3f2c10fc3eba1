//! Who is it: certificates apart, every way to say so, through the whole server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::issuer::Issuer;
use crate::server::{TestServer, admin, now, send, start, start_at, start_with};
use apiserver::audit::{self, LogFile, policy::Policy};
use apiserver::authentication_config::{Authentication, Flags};
use apiserver::options::ServiceAccounts;
use apiserver::security::Peer;
use apiserver::security::front_proxy::FrontProxy;
use auth::UserInfo;
use auth::keys::private::PrivateKey;
use auth::token::{Private, Reference, Tokens};
use base::{Clock, Random};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use futures::future::BoxFuture;
use http_body_util::{BodyExt, Full};
use jiff::SignedDuration;
use serde_json::{Value, json};
use store::embedded::{Embedded, Options};
use store::{Entry, Page, Revision, Store, StoreError, Watch, Write};
use tower::ServiceExt;

const BOOTSTRAP: &str = "{metadata: {name: bootstrap-token-abcdef}, type: bootstrap.kubernetes.io/token, stringData: \
                         {token-id: abcdef, token-secret: 0123456789abcdef, usage-bootstrap-authentication: 'true'}}";
const WHOAMI: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// What `kubectl auth whoami` sees, or the error.
async fn whoami(server: &TestServer, user: Option<UserInfo>, headers: &[(&str, &str)]) -> (u16, Value) {
    let mut all = vec![("content-type", "application/json")];
    all.extend(headers);
    let answer = send(server.server.service(), user, "POST", WHOAMI, &all, "{}").await;
    let code = answer.status().as_u16();
    let body: Value =
        serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap();
    match body.pointer("/status/userInfo") {
        Some(user) => (code, user.clone()),
        None => (code, body["message"].clone()),
    }
}

#[tokio::test]
async fn acting_as_somebody_is_asked_for_piece_by_piece() {
    let server = start(None).await;
    let (code, user) =
        whoami(&server, Some(admin()), &[("impersonate-user", "jane"), ("impersonate-group", "dev")]).await;
    assert_eq!((code, user), (201, json!({"username": "jane", "groups": ["dev", "system:authenticated"]})));
    let (code, why) = whoami(&server, Some(admin()), &[("impersonate-group", "dev")]).await;
    assert_eq!((code, why), (400, json!("requested [{Group  dev    }] without impersonating a user")));
    let bob = UserInfo::new("bob", &[]);
    let (code, why) =
        whoami(&server, Some(bob), &[("impersonate-user", "system:serviceaccount:default:default")]).await;
    assert_eq!(code, 403);
    assert_eq!(
        why,
        json!(
            "serviceaccounts \"default\" is forbidden: User \"bob\" cannot impersonate resource \"serviceaccounts\" in API group \"\" in the namespace \"default\""
        )
    );
    server.stop().await;
}

#[tokio::test]
async fn a_bootstrap_token_lets_a_node_in_until_its_secret_goes() {
    let server = start(None).await;
    let path = "/api/v1/namespaces/kube-system/secrets";
    let made = server.call("POST", path, BOOTSTRAP).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let token = [("authorization", "Bearer abcdef.0123456789abcdef")];
    let (code, user) = whoami(&server, None, &token).await;
    assert_eq!(
        (code, user),
        (
            201,
            json!({"username": "system:bootstrap:abcdef", "groups": ["system:bootstrappers", "system:authenticated"]})
        )
    );
    server.call("DELETE", &format!("{path}/bootstrap-token-abcdef"), "").await;
    assert_eq!(whoami(&server, None, &token).await.0, 401);
    server.stop().await;
}

/// A store that counts what is asked of it, other than writes.
struct Counted(Embedded, AtomicU64);

impl Counted {
    fn count<T>(&self, answer: T) -> T {
        self.1.fetch_add(1, Ordering::Relaxed);
        answer
    }
}

impl Store for Counted {
    fn commit(&self, write: Write) -> BoxFuture<'_, Result<Revision, StoreError>> {
        self.0.commit(write)
    }

    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Entry>, StoreError>> {
        // A server's own sign of life is none of its clients' doing.
        let is_own = key.starts_with("/registry/leases/") || key.starts_with("/registry/masterleases/");
        if is_own { self.0.get(key) } else { self.count(self.0.get(key)) }
    }

    fn range(
        &self,
        start: &str,
        end: &str,
        at: Option<Revision>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Page, StoreError>> {
        self.count(self.0.range(start, end, at, limit))
    }

    fn revision(&self) -> Revision {
        self.0.revision()
    }

    fn newest(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        self.count(self.0.newest())
    }

    fn watch(&self, after: Revision) -> BoxFuture<'_, Result<Watch, StoreError>> {
        self.0.watch(after)
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        self.0.compact(revision)
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.0.close()
    }
}

/// Anybody may send anything as a token: what was not signed by the server costs the store nothing. What the server itself
/// has made or taken back counts at once all the same.
#[tokio::test]
async fn what_strangers_send_as_tokens_is_not_asked_of_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let inner = Embedded::open(&dir.path().join("db"), Options::default()).unwrap();
    let store = Arc::new(Counted(inner, AtomicU64::new(0)));
    let server = crate::server::start_on(store.clone(), dir, None, |_| {}).await;
    let path = "/api/v1/namespaces/kube-system/secrets";
    let good = "abcdef.0123456789abcdef".to_owned();
    let mut tokens: Vec<String> = (0..100).map(|n| format!("{n:06}.0123456789abcdef")).collect();
    tokens.push("nothing at all".to_owned());
    tokens.push("abcdef.0123456789abcdee".to_owned());
    tokens.push(good.clone());
    let asks = async |token: &str, code: u16| {
        let header = format!("Bearer {token}");
        let before = store.1.load(Ordering::Relaxed);
        assert_eq!(whoami(&server, None, &[("authorization", &header)]).await.0, code, "{token}");
        assert_eq!(store.1.load(Ordering::Relaxed), before, "{token} is asked of the store");
    };
    for token in &tokens {
        asks(token, 401).await;
    }
    assert_eq!(server.call("POST", path, BOOTSTRAP).await.code, 201);
    asks(&good, 201).await;
    asks("abcdef.0123456789abcdee", 401).await;
    assert_eq!(server.call("DELETE", &format!("{path}/bootstrap-token-abcdef"), "").await.code, 200);
    asks(&good, 401).await;
    server.stop().await;
}

/// A log of everything in a folder.
fn audited(dir: &std::path::Path) -> audit::Config {
    let policy = "{apiVersion: audit.k8s.io/v1, kind: Policy, omitStages: [RequestReceived], rules: [{level: Metadata}]}";
    let log = LogFile { path: dir.join("audit.log"), ..LogFile::default() };
    audit::Config { policy: Policy::parse(policy).unwrap(), log, webhook: None }
}

/// What the log in a folder says of the requests with this user agent.
fn events_of(dir: &std::path::Path, agent: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(dir.join("audit.log")).unwrap();
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["userAgent"] == agent).collect()
}

/// The users that it names, and how and through whom they are known.
fn known_by(dir: &std::path::Path, agent: &str) -> Vec<(Value, Value, Value)> {
    let said = |event: &Value, key: &str| {
        event["annotations"].get(format!("knarr.io/authenticated-{key}")).cloned().unwrap_or_default()
    };
    let events = events_of(dir, agent);
    let known = events
        .iter()
        .map(|event| (event["user"]["username"].clone(), said(event, "by"), said(event, "through")));
    known.collect()
}

/// A token of the account `web` that lies in the Secret `old`.
async fn lasting(server: &TestServer, uid: &str) -> String {
    let key = auth::pki::service_account_key(server.dir.path()).unwrap();
    let tokens = Tokens::new(&key, "https://kubernetes.default.svc.cluster.local", Vec::new()).unwrap();
    let account = Reference { name: "web".into(), uid: uid.to_owned() };
    let token = tokens.issue_legacy("default", "old", &account).unwrap();
    let secret = json!({"metadata": {"name": "old", "annotations": {"kubernetes.io/service-account.name": "web"}},
        "type": "kubernetes.io/service-account-token", "data": {"token": STANDARD.encode(&token)}});
    let made = server.call("POST", "/api/v1/namespaces/default/secrets", &secret.to_string()).await;
    assert_eq!(made.code, 201, "{}", made.body);
    token
}

#[tokio::test]
async fn the_use_of_a_secrets_token_is_written_down_and_one_that_is_invalid_lets_nobody_in() {
    const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
    let server = start(None).await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = server.call("POST", accounts, "{metadata: {name: web}}").await.body;
    let token = lasting(&server, account["metadata"]["uid"].as_str().unwrap()).await;
    let bearer = format!("Bearer {token}");
    let token = [("authorization", bearer.as_str())];
    let secret = "/api/v1/namespaces/default/secrets/old";
    let used = async |day: &str| {
        let written = async {
            while server.call("GET", secret, "").await.body["metadata"]["labels"][LAST_USED] != day {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(10), written).await.expect("it is written down");
    };
    let today = now().strftime("%Y-%m-%d").to_string();
    assert_eq!(whoami(&server, None, &token).await.0, 201);
    used(&today).await;
    let label = |key: &str, value: &str| json!({"metadata": {"labels": {key: value}}}).to_string();
    let old = label(LAST_USED, "2020-01-01");
    assert_eq!(server.call("PATCH", secret, &old).await.code, 200);
    assert_eq!(whoami(&server, None, &token).await.0, 201);
    used(&today).await;
    let invalid = label("kubernetes.io/legacy-token-invalid-since", "2026-01-01");
    assert_eq!(server.call("PATCH", secret, &invalid).await.code, 200);
    assert_eq!(server.call("PATCH", secret, &old).await.code, 200);
    assert_eq!(whoami(&server, None, &token).await.0, 401);
    used(&today).await;
    server.stop().await;
}

#[tokio::test]
async fn operators_say_who_issues_tokens_by_what_they_are_checked_and_how_long_they_last() {
    let key = || auth::pki::service_account_key(tempfile::tempdir().unwrap().path()).unwrap();
    let other = key();
    let old = Tokens::new(&other, "https://old.example.com", vec!["here".into()]).unwrap();
    let server = start_with(None, |config| {
        config.options.service_accounts = ServiceAccounts {
            believed: vec![PrivateKey::of_pkcs8(&other).unwrap().public().clone()],
            issuers: vec!["https://new.example.com".into(), "https://old.example.com".into()],
            jwks_uri: Some("https://keys.example.com/jwks".into()),
            audiences: vec!["here".into(), "there".into()],
            token_seconds_max: Some(3600),
            ..ServiceAccounts::default()
        };
    })
    .await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = server.call("POST", accounts, "{metadata: {name: web}}").await.body;
    let asked = "{spec: {expirationSeconds: 7200}}";
    let headers = [("content-type", "application/yaml")];
    let path = format!("{accounts}/web/token");
    let answer = send(server.server.service(), Some(admin()), "POST", &path, &headers, asked).await;
    let warning = answer.headers()["warning"].to_str().unwrap().to_owned();
    assert_eq!(warning, "299 - \"requested expiration of 7200 seconds shortened to 3600 seconds\"");
    let issued: Value =
        serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!(issued["spec"]["expirationSeconds"], 3600);
    assert_eq!(issued["spec"]["audiences"], json!(["here", "there"]));
    let token = issued["status"]["token"].as_str().unwrap().to_owned();
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&claims).unwrap()["iss"], "https://new.example.com");
    let reference =
        Reference { name: "web".into(), uid: account["metadata"]["uid"].as_str().unwrap().into() };
    let of = |tokens: &Tokens, audience: &str| {
        let private =
            Private { namespace: "default".into(), serviceaccount: reference.clone(), ..Private::default() };
        tokens.issue(private, &[audience.to_owned()], 600, now(), "id".into()).unwrap()
    };
    let stranger = Tokens::new(&key(), "https://old.example.com", Vec::new()).unwrap();
    let unknown = Tokens::new(&other, "https://other.example.com", Vec::new()).unwrap();
    for (token, code) in [
        (token, 201),
        (of(&old, "there"), 201),
        (of(&old, "elsewhere"), 401),
        (of(&stranger, "here"), 401),
        (of(&unknown, "here"), 401),
    ] {
        let bearer = format!("Bearer {token}");
        assert_eq!(whoami(&server, None, &[("authorization", &bearer)]).await.0, code);
    }
    let document = server.call("GET", "/.well-known/openid-configuration", "").await.body;
    assert_eq!(document["issuer"], "https://new.example.com");
    assert_eq!(document["jwks_uri"], "https://keys.example.com/jwks");
    let keys = server.call("GET", "/openid/v1/jwks", "").await.body;
    assert_eq!(keys["keys"].as_array().unwrap().len(), 2);
    server.stop().await;
    let server = start_with(None, |config| config.service_account_issuer = "kubernetes".into()).await;
    for path in ["/.well-known/openid-configuration", "/openid/v1/jwks"] {
        assert_eq!(server.call("GET", path, "").await.code, 404, "nobody could ask such an issuer");
    }
    server.stop().await;
}

#[tokio::test]
async fn the_audit_log_says_how_a_sender_is_known() {
    let log = tempfile::tempdir().unwrap();
    let server = start_with(None, |config| {
        config.options.audit = Some(audited(log.path()));
        config.options.front_proxy = Some(FrontProxy::new(config.client_ca_pem.clone()));
    })
    .await;
    let made = server.call("POST", "/api/v1/namespaces/kube-system/secrets", BOOTSTRAP).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = server.call("POST", accounts, "{metadata: {name: web}}").await.body;
    let issued = server.call("POST", &format!("{accounts}/web/token"), "{}").await.body;
    let bound = issued["status"]["token"].as_str().unwrap().to_owned();
    let lasting = lasting(&server, account["metadata"]["uid"].as_str().unwrap()).await;
    let (bound, lasting) = (format!("Bearer {bound}"), format!("Bearer {lasting}"));
    let certified = Peer { user: Some(UserInfo::new("jane", &[])), ..Peer::default() };
    let proxy = Peer { proxy: Some("aggregator".into()), ..Peer::default() };
    let nobody = Peer::default;
    /// Who asks over the network, with which headers, and what is expected: user, by, through.
    type Case<'a> = (Option<Peer>, Vec<(&'a str, &'a str)>, [&'a str; 3]);
    let cases: Vec<Case<'_>> = vec![
        (None, vec![], ["admin", "in-process", ""]),
        (Some(certified.clone()), vec![], ["jane", "x509", ""]),
        (Some(certified.clone()), vec![("impersonate-user", "joe")], ["jane", "x509", ""]),
        (Some(certified), vec![("authorization", &bound)], ["jane", "x509", ""]),
        (Some(proxy), vec![("x-remote-user", "joe")], ["joe", "front-proxy", "aggregator"]),
        (Some(nobody()), vec![("x-remote-user", "joe")], ["system:anonymous", "anonymous", ""]),
        (Some(nobody()), vec![], ["system:anonymous", "anonymous", ""]),
        (
            Some(nobody()),
            vec![("authorization", &bound)],
            ["system:serviceaccount:default:web", "bound-token", ""],
        ),
        (
            Some(nobody()),
            vec![("authorization", &lasting)],
            ["system:serviceaccount:default:web", "secret-token", ""],
        ),
        (
            Some(nobody()),
            vec![("authorization", "Bearer abcdef.0123456789abcdef")],
            ["system:bootstrap:abcdef", "bootstrap-token", ""],
        ),
        (Some(nobody()), vec![("authorization", "Bearer wrong")], ["", "", ""]),
    ];
    for (number, (peer, headers, _)) in cases.iter().enumerate() {
        let mut request = http::Request::post(WHOAMI)
            .header("content-type", "application/json")
            .header("user-agent", format!("case {number}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(Full::new(bytes::Bytes::from_static(b"{}"))).unwrap();
        match peer {
            Some(peer) => drop(request.extensions_mut().insert(Arc::new(peer.clone()))),
            None => drop(request.extensions_mut().insert(admin())),
        }
        server.server.service().oneshot(request).await.unwrap();
    }
    server.stop().await;
    for (number, (_, _, expect)) in cases.iter().enumerate() {
        let [user, by, through] = expect.map(|text| if text.is_empty() { Value::Null } else { json!(text) });
        assert_eq!(known_by(log.path(), &format!("case {number}")), [(user, by, through)], "{number}");
    }
}

/// Browsers send a token as a protocol of a WebSocket, which it must be, and beside another one.
#[tokio::test]
async fn a_token_in_a_protocol_is_one_of_a_web_socket() {
    let server = start(None).await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    assert_eq!(server.call("POST", accounts, "{metadata: {name: one}}").await.code, 201);
    let issued = server.call("POST", &format!("{accounts}/one/token"), "{}").await.body;
    let token = URL_SAFE_NO_PAD.encode(issued["status"]["token"].as_str().unwrap());
    let token = format!("base64url.bearer.authorization.k8s.io.{token}");
    let with = format!("v4.channel.k8s.io, {token}");
    let socket = [("connection", "Upgrade"), ("upgrade", "websocket")];
    for (is_socket, protocols, expect) in [
        (true, with.as_str(), 201),
        (true, &token, 401),
        (true, &format!("{with}, {token}"), 401),
        (true, "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.eA", 401),
        // Nobody, who may not ask.
        (false, &with, 403),
        (true, "v4.channel.k8s.io", 403),
    ] {
        let mut headers = vec![("sec-websocket-protocol", protocols)];
        headers.extend(is_socket.then_some(socket).into_iter().flatten());
        assert_eq!(whoami(&server, None, &headers).await.0, expect, "{is_socket} {protocols}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_front_proxy_says_who_its_client_is() {
    let server = start_with(None, |config| {
        config.options.front_proxy = Some(FrontProxy::new(config.client_ca_pem.clone()));
    })
    .await;
    let ask = |proxy: Option<&str>| {
        let mut request = http::Request::post(WHOAMI)
            .header("content-type", "application/json")
            .header("x-remote-user", "jane")
            .header("x-remote-group", "dev")
            .body(Full::new(bytes::Bytes::from_static(b"{}")))
            .unwrap();
        request
            .extensions_mut()
            .insert(Arc::new(Peer { proxy: proxy.map(str::to_owned), ..Peer::default() }));
        server.server.service().oneshot(request)
    };
    assert_eq!(ask(None).await.unwrap().status(), 403, "headers alone say nothing");
    let answer = ask(Some("aggregator")).await.unwrap();
    let body: Value =
        serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!(
        body["status"]["userInfo"],
        json!({"username": "jane", "groups": ["dev", "system:authenticated"]})
    );
    let map = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let published = server.call("GET", map, "").await.body;
    assert_eq!(published["data"]["requestheader-username-headers"], json!("[\"X-Remote-User\"]"));
    server.stop().await;
}

#[tokio::test]
async fn an_outside_issuer_is_believed_by_its_keys() {
    let issuer = Issuer::start().await;
    let flags = Flags {
        issuer_url: issuer.url(),
        client_id: "cluster".into(),
        ca_pem: issuer.ca_pem(),
        username_claim: "sub".into(),
        username_prefix: Some("oidc:".into()),
        required_claims: vec![("tier".into(), "paid".into())],
        signing_algorithms: vec!["ES256".into()],
        ..Flags::default()
    };
    let log = tempfile::tempdir().unwrap();
    let server = start_with(None, |config| {
        config.options.audit = Some(audited(log.path()));
        config.options.authentication =
            Authentication::of_flags(&flags, &config.service_account_issuer).unwrap();
    })
    .await;
    let jane = json!({"sub": "jane", "tier": "paid"});
    for _ in 0..2 {
        let token = format!("Bearer {}", issuer.token(jane.clone()));
        let headers = [("authorization", &*token), ("user-agent", "jane's")];
        let (code, user) = whoami(&server, None, &headers).await;
        assert_eq!(code, 201, "{user}");
        assert_eq!(user["username"], "oidc:jane");
    }
    for wrong in [json!({"sub": "jane"}), json!({"sub": "jane", "tier": "paid", "aud": "other"})] {
        let token = format!("Bearer {}", issuer.token(wrong));
        assert_eq!(whoami(&server, None, &[("authorization", &token)]).await.0, 401);
    }
    server.stop().await;
    let known = known_by(log.path(), "jane's");
    assert_eq!(known, vec![(json!("oidc:jane"), json!("oidc"), json!(issuer.url())); 2]);
}

/// The header with a token of the account `web` that is bound to this Secret, whose name is `s`.
async fn bound_to_a_secret(server: &TestServer, secret: &str) -> String {
    server.call("POST", "/api/v1/namespaces/default/serviceaccounts", "{metadata: {name: web}}").await;
    server.call("POST", "/api/v1/namespaces/default/secrets", secret).await;
    let path = "/api/v1/namespaces/default/serviceaccounts/web/token";
    let asked =
        server.call("POST", path, "{spec: {boundObjectRef: {kind: Secret, apiVersion: v1, name: s}}}").await;
    assert_eq!(asked.code, 201, "{}", asked.body);
    format!("Bearer {}", asked.body["status"]["token"].as_str().unwrap())
}

#[tokio::test]
async fn a_bound_token_dies_with_what_it_is_bound_to() {
    let server = start(None).await;
    let secrets = "/api/v1/namespaces/default/secrets";
    let header = bound_to_a_secret(&server, "{metadata: {name: s}}").await;
    let token = [("authorization", header.as_str())];
    let (code, user) = whoami(&server, None, &token).await;
    assert_eq!((code, &user["username"]), (201, &json!("system:serviceaccount:default:web")));
    server.call("DELETE", &format!("{secrets}/s"), "").await;
    server.call("GET", &format!("{secrets}/s"), "").await;
    assert_eq!(whoami(&server, None, &token).await.0, 401);
    server.stop().await;
}

#[tokio::test]
async fn a_finalizer_does_not_keep_a_token_alive() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(Embedded::open(&dir.path().join("db"), Options::default()).unwrap());
    let start = now();
    let clock = Clock::manual(start);
    let server = start_at(clock.clone(), Random::seeded(1), store, dir, None, |_| {}).await;
    let secrets = "/api/v1/namespaces/default/secrets";
    let header = bound_to_a_secret(&server, "{metadata: {name: s, finalizers: [example.com/hold]}}").await;
    let token = [("authorization", header.as_str())];
    server.call("DELETE", &format!("{secrets}/s"), "").await;
    let held = server.call("GET", &format!("{secrets}/s"), "").await;
    assert!(held.body["metadata"]["deletionTimestamp"].is_string(), "{}", held.body);
    for (seconds, code) in [(0, 201), (59, 201), (61, 401)] {
        clock.set(start + SignedDuration::from_secs(seconds));
        assert_eq!(whoami(&server, None, &token).await.0, code, "{seconds}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_token_is_bound_to_a_pod_of_its_own_account_only() {
    let server = start(None).await;
    for account in ["web", "other"] {
        let account = format!("{{metadata: {{name: {account}}}}}");
        server.call("POST", "/api/v1/namespaces/default/serviceaccounts", &account).await;
    }
    let pod = "{metadata: {name: p}, spec: {serviceAccountName: web, containers: [{name: c, image: i}]}}";
    let made = server.call("POST", "/api/v1/namespaces/default/pods", pod).await;
    assert_eq!(made.code, 201, "{}", made.body);
    for (account, code) in [("web", 201), ("other", 400)] {
        let path = format!("/api/v1/namespaces/default/serviceaccounts/{account}/token");
        let asked = server
            .call("POST", &path, "{spec: {boundObjectRef: {kind: Pod, apiVersion: v1, name: p}}}")
            .await;
        assert_eq!(asked.code, code, "{account}: {}", asked.body);
    }
    server.stop().await;
}

/// Source: KEP-1205.
#[tokio::test]
async fn a_pods_token_is_good_for_a_year_where_operators_say_so_and_told_of_when_it_is_late() {
    const YEAR: i64 = 365 * 24 * 3600;
    let (log, dir, start) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), now());
    let store = Arc::new(Embedded::open(&dir.path().join("db"), Options::default()).unwrap());
    let clock = Clock::manual(start);
    let audit = audited(log.path());
    let extending = |config: &mut apiserver::config::Config| {
        config.options.service_accounts.extends_tokens = true;
        config.options.audit = Some(audit);
    };
    let server = start_at(clock.clone(), Random::seeded(1), store, dir, None, extending).await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    server.call("POST", accounts, "{metadata: {name: web}}").await;
    let pod = "{metadata: {name: p}, spec: {serviceAccountName: web, containers: [{name: c, image: i}]}}";
    assert_eq!(server.call("POST", "/api/v1/namespaces/default/pods", pod).await.code, 201);
    let bound = "boundObjectRef: {kind: Pod, apiVersion: v1, name: p}";
    let mut header = String::new();
    for (spec, told, lasts) in [
        (format!("{bound}, audiences: [vault], expirationSeconds: 3607"), 3607, 3607),
        (format!("{bound}, expirationSeconds: 3608"), 3608, 3608),
        ("expirationSeconds: 3607".to_owned(), 3607, 3607),
        (format!("{bound}, expirationSeconds: 3607"), 3607, YEAR),
    ] {
        let asked =
            server.call("POST", &format!("{accounts}/web/token"), &format!("{{spec: {{{spec}}}}}")).await;
        assert_eq!(asked.body["spec"]["expirationSeconds"], told, "{}", asked.body);
        let end = asked.body["status"]["expirationTimestamp"].as_str().unwrap().parse::<jiff::Timestamp>();
        assert_eq!(end.unwrap().as_second() - start.as_second(), told, "kubelets go by this");
        let token = asked.body["status"]["token"].as_str().unwrap();
        let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
        let claims: Value = serde_json::from_slice(&claims).unwrap();
        let after = |claim: &Value| claim.as_i64().map(|at| at - start.as_second());
        assert_eq!(after(&claims["exp"]), Some(lasts), "{spec}");
        assert_eq!(after(&claims["kubernetes.io"]["warnafter"]), (told != lasts).then_some(told), "{spec}");
        header = format!("Bearer {token}");
    }
    let token = |agent| [("authorization", header.as_str()), ("user-agent", agent)];
    for (agent, seconds, code) in [("in time", 3607, 201), ("late", 3617, 201), ("too late", YEAR + 61, 401)]
    {
        clock.set(start + SignedDuration::from_secs(seconds));
        assert_eq!(whoami(&server, None, &token(agent)).await.0, code, "{agent}");
    }
    server.stop().await;
    let stale = |agent: &str| {
        let events = events_of(log.path(), agent);
        events[0]["annotations"]["authentication.k8s.io/stale-token"].clone()
    };
    assert_eq!(stale("in time"), Value::Null);
    let subject = "system:serviceaccount:default:web";
    assert_eq!(stale("late"), format!("subject: {subject}, seconds after warning threshold: 10"));
}

#[tokio::test]
async fn only_the_three_paths_of_health_are_everybodys_and_only_to_read() {
    let server = start(None).await;
    for (method, path, code) in [
        ("GET", "/healthz", 200),
        ("HEAD", "/livez", 200),
        ("GET", "/readyz", 200),
        ("POST", "/healthz", 403),
        ("GET", "/healthz/ping", 403),
        ("GET", "/readyz/poststarthook/x", 403),
        ("GET", "/livezz", 403),
    ] {
        let user = UserInfo { name: "nobody".into(), ..UserInfo::default() };
        let answer = send(server.server.service(), Some(user), method, path, &[], "").await;
        assert_eq!(answer.status(), code, "{method} {path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn questions_about_access_must_make_sense() {
    let server = start(None).await;
    let ask = |kind: &'static str, body: &'static str| {
        let path = format!("/apis/authorization.k8s.io/v1/{kind}");
        let server = &server;
        async move { server.call("POST", &path, body).await }
    };
    let both = ask("subjectaccessreviews", "{spec: {}}").await;
    assert_eq!(both.code, 422);
    let fields: Vec<&str> = both.body["details"]["causes"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|c| c["field"].as_str())
        .collect();
    assert_eq!(fields, ["spec.resourceAttributes", "spec.user"]);
    let masters = "{spec: {groups: ['system:masters'], resourceAttributes: {verb: get, resource: pods}}}";
    assert_eq!(ask("subjectaccessreviews", masters).await.body["status"]["allowed"], json!(true));
    let nowhere = ask("selfsubjectrulesreviews", "{spec: {}}").await;
    assert_eq!((nowhere.code.as_u16(), &nowhere.body["message"]), (400, &json!("no namespace on request")));
    server.stop().await;
}
