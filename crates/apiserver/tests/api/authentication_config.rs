//! The file of `--authentication-config` at work: issuers on loopback, whose tokens say what each test wants, also what they
//! should not.

use std::sync::Arc;

use apiserver::authentication_config::{Anonymous, Authentication};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::issuer::Issuer;
use crate::server::{TestServer, admin, send, start_with};

const OWN: &str = "https://kubernetes.default.svc.cluster.local";
const WHOAMI: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// The file: an entry for each issuer, with what is said of its claims.
fn file(all: &[(&Issuer, Value)]) -> Value {
    let entry = |(issuer, fields): &(&Issuer, Value)| {
        let mut entry = json!({"issuer": {
            "url": issuer.url(), "certificateAuthority": issuer.ca_pem(), "audiences": ["cluster"]}});
        entry.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        entry
    };
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": all.iter().map(entry).collect::<Vec<_>>(),
    })
}

fn by_sub(prefix: &str) -> Value {
    json!({"claimMappings": {"username": {"claim": "sub", "prefix": prefix}}})
}

async fn server(file: &Value) -> TestServer {
    let authentication = Authentication::parse(&file.to_string(), OWN).unwrap();
    start_with(None, |config| {
        config.options.anonymous = authentication.anonymous.clone().unwrap_or_default();
        config.options.authentication = authentication;
    })
    .await
}

/// Who the server takes the sender of a token for; nobody, if it does not take it.
async fn whoami(server: &TestServer, token: &str) -> Option<Value> {
    let token = format!("Bearer {token}");
    let headers = [("content-type", "application/json"), ("authorization", token.as_str())];
    let answer = send(server.server.service(), None, "POST", WHOAMI, &headers, "{}").await;
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(code == 201, body.pointer("/status/userInfo").is_some(), "{body}");
    assert!(code == 201 || code == 401, "{body}");
    body.pointer("/status/userInfo").cloned()
}

async fn metrics(server: &TestServer) -> String {
    let answer = send(server.server.service(), Some(admin()), "GET", "/metrics", &[], "").await;
    String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn expressions_say_whom_a_token_stands_for() {
    let issuer = Issuer::start().await;
    let file = file(&[(
        &issuer,
        json!({
            "claimMappings": {
                "username": {"expression": "'ex:' + claims.sub"},
                "groups": {"expression": "claims.roles.split(',').map(r, 'ex:' + r)"},
                "uid": {"expression": "claims.?id.orValue('')"},
                "extra": [{"key": "example.com/tenant", "valueExpression": "claims.?tenant.orValue('')"}],
            },
            "claimValidationRules": [{
                "expression": "claims.exp - claims.iat <= 86400.0", "message": "it lasts too long"}],
            "userValidationRules": [{
                "expression": "!user.username.startsWith('ex:system:') && user.groups.all(g, !g.startsWith('ex:system:'))"}],
        }),
    )]);
    let server = server(&file).await;
    let now = crate::server::now().as_second();
    let with = |claims: Value| {
        let mut all = json!({"iat": now, "sub": "jane", "roles": "dev,ops", "id": "7", "tenant": ["a", "", "b"], "jti": "j"});
        all.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
        issuer.token(all)
    };
    let expect = json!({
        "username": "ex:jane",
        "uid": "7",
        "groups": ["ex:dev", "ex:ops", "system:authenticated"],
        "extra": {
            "authentication.kubernetes.io/credential-id": ["JTI=j"],
            "example.com/tenant": ["a", "b"],
        },
    });
    assert_eq!(whoami(&server, &with(json!({}))).await, Some(expect));
    for (why, claims) in [
        ("it lasts too long", json!({"iat": 0})),
        ("a user of the system", json!({"sub": "system:admin"})),
        ("a group of the system", json!({"roles": "dev,system:masters"})),
        ("roles are no text", json!({"roles": ["dev"]})),
        ("the uid is no text", json!({"id": 7})),
        ("extra values are no texts", json!({"tenant": [1]})),
        ("extra values are an object", json!({"tenant": {"a": "b"}})),
        ("no name", json!({"sub": null})),
        ("too long", json!({"huge": "a".repeat(70_000)})),
    ] {
        assert_eq!(whoami(&server, &with(claims)).await, None, "{why}");
    }
    let deep = (0..100).fold(json!("jane"), |inner, _| json!({"a": inner}));
    assert!(whoami(&server, &with(json!({"deep": deep}))).await.is_some());
    let text = metrics(&server).await;
    for (result, count) in [("success", 2), ("failure", 8)] {
        let prefix = format!(
            "apiserver_authentication_jwt_authenticator_latency_seconds_count{{result=\"{result}\",jwt_issuer_hash=\"sha256:"
        );
        let line = text.lines().find(|line| line.starts_with(&prefix)).unwrap_or(&text);
        assert!(line.ends_with(&format!(" {count}")), "{line}");
    }
    server.stop().await;
}

#[tokio::test]
async fn each_issuer_speaks_for_itself_alone() {
    let (one, other) = (Issuer::start().await, Issuer::start().await);
    let mut written = file(&[(&one, by_sub("one:")), (&other, by_sub("other:"))]);
    written["jwt"][1]["issuer"]["discoveryURL"] = format!("{}/discovery", other.url()).into();
    let server = server(&written).await;
    let name = |user: Option<Value>| user.map(|user| user["username"].clone());
    let jane = || json!({"sub": "jane"});
    assert_eq!(name(whoami(&server, &one.token(jane())).await), Some(json!("one:jane")));
    assert_eq!(name(whoami(&server, &other.token(jane())).await), Some(json!("other:jane")));
    assert_eq!(other.state().asked, ["/discovery", "/keys"]);
    assert_eq!(whoami(&server, &one.token(json!({"sub": "jane", "iss": other.url()}))).await, None);
    assert_eq!(whoami(&server, &one.token(json!({"sub": "jane", "iss": "https://third"}))).await, None);
    server.stop().await;
}

#[tokio::test]
async fn an_issuer_is_not_asked_for_each_made_up_key() {
    let issuer = Issuer::start().await;
    let server = server(&file(&[(&issuer, by_sub(""))])).await;
    issuer.state().is_silent = true;
    let jane = || json!({"sub": "jane"});
    let tokens: Vec<String> = (0..20).map(|number| issuer.token_by(&format!("k{number}"), jane())).collect();
    let all = tokens.iter().map(|token| whoami(&server, token));
    assert!(futures::future::join_all(all).await.iter().all(Option::is_none));
    assert_eq!(issuer.state().asked.len(), 1, "it does not answer, and is left alone for a while");
    assert_eq!(whoami(&server, &issuer.token(json!({"sub": "jane", "exp": 1}))).await, None);
    assert_eq!(whoami(&server, &issuer.token(json!({"sub": "jane", "aud": "other"}))).await, None);
    assert_eq!(issuer.state().asked.len(), 1, "nobody is asked about what cannot be good");
    server.stop().await;
}

#[tokio::test]
async fn groups_may_be_elsewhere() {
    let (issuer, other) = (Issuer::start().await, Issuer::start().await);
    let mappings = json!({"claimMappings": {
        "username": {"claim": "sub", "prefix": ""}, "groups": {"claim": "groups", "prefix": "ex:"}}});
    let server = server(&file(&[(&issuer, mappings)])).await;
    let leads = |issuer: &Issuer, path: &str, nonce: &str| {
        issuer.token(json!({
            "sub": "jane",
            "nonce": nonce,
            "_claim_names": {"groups": "s"},
            "_claim_sources": {"s": {"endpoint": format!("{}{path}", issuer.url()), "access_token": "t"}},
        }))
    };
    let told = issuer.token(json!({"groups": ["dev", "ops"]}));
    issuer.state().elsewhere = told;
    let token = leads(&issuer, "/elsewhere", "a");
    for _ in 0..3 {
        let user = whoami(&server, &token).await.unwrap();
        assert_eq!(user["groups"], json!(["ex:dev", "ex:ops", "system:authenticated"]));
    }
    let asked = issuer.state().asked.iter().filter(|path| *path == "/elsewhere").count();
    assert_eq!(asked, 1, "answers are kept for a while");
    for (nonce, told) in [
        ("b", "nonsense".to_owned()),
        ("c", issuer.token(json!({"groups": ["dev"], "aud": "somebody else"}))),
        ("d", issuer.token(json!({"groups": ["dev"], "exp": 1}))),
        ("e", issuer.token(json!({"roles": ["dev"]}))),
        ("f", other.token(json!({"groups": ["dev"], "iss": issuer.url()}))),
        ("g", other.token(json!({"groups": ["dev"]}))),
    ] {
        issuer.state().elsewhere = told;
        assert_eq!(whoami(&server, &leads(&issuer, "/elsewhere", nonce)).await, None, "{nonce}");
    }
    assert_eq!(whoami(&server, &leads(&issuer, "/nowhere", "h")).await, None);
    server.stop().await;
}

#[tokio::test]
async fn a_changed_file_counts_and_a_broken_one_never() {
    let (one, other) = (Issuer::start().await, Issuer::start().await);
    let mut first = file(&[(&one, by_sub("one:"))]);
    first["anonymous"] = json!({"enabled": true, "conditions": [{"path": "/livez"}]});
    let server = server(&first).await;
    let reload = async |file: &Value| {
        let reloaded = server.server.reload_authentication(&file.to_string()).await;
        reloaded.map_err(|why| base::error_chain(&why))
    };
    let name = async |issuer: &Issuer| {
        whoami(&server, &issuer.token(json!({"sub": "jane"}))).await.map(|user| user["username"].clone())
    };
    assert_eq!(reload(&first).await, Ok(false), "it says the same");
    assert_eq!((name(&one).await, name(&other).await), (Some(json!("one:jane")), None));
    let asked = one.state().asked.len();
    let mut both = file(&[(&one, by_sub("uno:")), (&other, by_sub("other:"))]);
    both["anonymous"] = first["anonymous"].clone();
    assert_eq!(reload(&both).await, Ok(true));
    assert_eq!(other.state().asked.len(), 2, "it has told its keys before it counts");
    assert_eq!((name(&one).await, name(&other).await), (Some(json!("uno:jane")), Some(json!("other:jane"))));
    assert_eq!(one.state().asked.len(), asked, "what is known of an issuer stays known");
    for (change, expect) in [
        (("/jwt/0/issuer/url", json!("http://issuer")), "URL scheme must be https"),
        (("/jwt/0/claimMappings/username/prefix", Value::Null), "prefix is required when claim is set"),
        (("/jwt/0/claimMappings", json!({"user": {}})), "unknown field"),
        (
            ("/anonymous/conditions", json!([])),
            "anonymous: Forbidden: changed from initial configuration file",
        ),
        (("/kind", json!("Other")), "it must be an AuthenticationConfiguration"),
    ] {
        let mut broken = both.clone();
        *broken.pointer_mut(change.0).unwrap() = change.1;
        let failure = reload(&broken).await.unwrap_err();
        assert!(failure.contains(expect), "{failure}");
        assert_eq!(name(&one).await, Some(json!("uno:jane")), "{expect}");
    }
    let text = metrics(&server).await;
    for (metric, labels, value) in [
        ("config_controller_automatic_reloads_total", "status=\"success\"", Some("1")),
        ("config_controller_automatic_reloads_total", "status=\"failure\"", Some("5")),
        ("config_controller_automatic_reload_last_timestamp_seconds", "status=\"failure\"", None),
        ("config_controller_last_config_info", "hash=\"sha256:", Some("1")),
        ("jwt_authenticator_jwks_fetch_last_timestamp_seconds", "result=\"success\"", None),
        ("jwt_authenticator_jwks_fetch_last_key_set_info", "hash=\"sha256:", Some("1")),
    ] {
        let name = format!("apiserver_authentication_{metric}{{");
        let found = text.lines().find(|line| line.starts_with(&name) && line.contains(labels));
        let found = found.unwrap_or_else(|| panic!("{name} {labels}"));
        assert!(value.is_none_or(|value| found.ends_with(&format!(" {value}"))), "{found}");
    }
    let mut gone = file(&[(&other, by_sub("other:"))]);
    gone["anonymous"] = first["anonymous"].clone();
    assert_eq!(reload(&gone).await, Ok(true));
    assert_eq!((name(&one).await, name(&other).await), (None, Some(json!("other:jane"))));
    let text = metrics(&server).await;
    let keys = text.lines().filter(|line| line.contains("jwks_fetch_last_key_set_info{")).count();
    assert_eq!(keys, 1, "nothing is told of an issuer that is not there any more");
    server.stop().await;
}

#[tokio::test]
async fn nobody_need_say_who_they_are_where_the_file_says() {
    let mut written = file(&[]);
    written["anonymous"] = json!({"enabled": true, "conditions": [{"path": "/livez"}, {"path": "/healthz"}]});
    let server = server(&written).await;
    for (path, code) in
        [("/livez", 200), ("/healthz", 200), ("/readyz", 401), ("/livez/", 401), ("/version", 401)]
    {
        let answer = send(server.server.service(), None, "GET", path, &[], "").await;
        assert_eq!(answer.status(), code, "{path}");
    }
    server.stop().await;
    let nowhere = Authentication::parse(
        &json!({"apiVersion": "apiserver.config.k8s.io/v1beta1", "kind": "AuthenticationConfiguration", "anonymous": {}}).to_string(),
        OWN,
    );
    assert_eq!(
        nowhere.unwrap(),
        Authentication { jwt: Vec::<Arc<_>>::new(), anonymous: Some(Anonymous::Nowhere) }
    );
}
