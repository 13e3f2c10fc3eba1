//! Webhooks that say who somebody is, and what they may: a real TLS server on loopback, which does what each test tells it,
//! also what it should not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use apiserver::Config;
use apiserver::authentication_config::TokenWebhook;
use apiserver::authorization_config::Authorization;
use auth::UserInfo;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::hook_server::{Answer, HookServer};
use crate::server::{TestServer, admin, send, start_with};

const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n";
const LOCAL: &str = "- {type: Node, name: node}\n- {type: RBAC, name: rbac}\n";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ACCESS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const WHOAMI: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

fn kubeconfig(hooks: &HookServer, path: &str) -> String {
    json!({
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {
            "server": hooks.url(path), "certificate-authority-data": hooks.ca_bundle()}}],
        "users": [{"name": "u", "user": {"token": "ours"}}],
    })
    .to_string()
}

/// An entry for a webhook, with further fields.
fn entry(fields: &str) -> String {
    format!(
        "- {{type: Webhook, name: hook, webhook: {{subjectAccessReviewVersion: v1, {fields}, \
         connectionInfo: {{type: KubeConfigFile, kubeConfigFile: /hook}}}}}}\n"
    )
}

const DENY: &str = "timeout: 5s, failurePolicy: Deny";

fn parse(authorizers: &str, kubeconfig: &str) -> Authorization {
    Authorization::parse(&format!("{HEAD}{authorizers}"), |_| Ok(kubeconfig.to_owned())).unwrap()
}

/// A server that asks a webhook first.
async fn server(hooks: &HookServer, fields: &str) -> TestServer {
    let authorization = parse(&format!("{}{LOCAL}", entry(fields)), &kubeconfig(hooks, "/authorize"));
    start_with(None, |config| config.options.authorization = authorization).await
}

/// A way to answer, and what it is called.
type Named = (&'static str, fn() -> Answer);

/// What an authorization webhook says.
fn says(status: Value) -> Answer {
    Answer::Whole(json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "status": status,
    }))
}

/// What this user gets: status, and the text of a refusal.
async fn call(server: &TestServer, user: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    let user = UserInfo::new(user, &[]);
    let headers = [("content-type", "application/yaml")];
    let answer = send(server.server.service(), Some(user), method, path, &headers, body).await;
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    (code, body["message"].as_str().unwrap_or_default().to_owned())
}

async fn list(server: &TestServer, user: &str) -> (u16, String) {
    call(server, user, "GET", CONFIG_MAPS, "").await
}

/// Lets a user read ConfigMaps, and do what else the rule says.
async fn bind(server: &TestServer, user: &str, rule: &str) {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = format!("{{metadata: {{name: {user}}}, rules: [{rule}]}}");
    assert_eq!(server.call("POST", &format!("{rbac}/clusterroles"), &role).await.code, 201);
    let binding = format!(
        "{{metadata: {{name: {user}}}, roleRef: {{kind: ClusterRole, name: {user}, apiGroup: rbac.authorization.k8s.io}}, \
         subjects: [{{kind: User, name: {user}, apiGroup: rbac.authorization.k8s.io}}]}}"
    );
    assert_eq!(server.call("POST", &format!("{rbac}/clusterrolebindings"), &binding).await.code, 201);
}

const READS: &str = "{apiGroups: [''], resources: [configmaps], verbs: [get, list]}";

async fn metric(server: &TestServer, line: &str) -> bool {
    let answer = send(server.server.service(), Some(admin()), "GET", "/metrics", &[], "").await;
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8_lossy(&body).lines().any(|found| found == line)
}

#[tokio::test]
async fn the_first_with_an_opinion_decides() {
    let hooks = HookServer::start(|path, review| {
        assert_eq!((path, &review["kind"]), ("/authorize", &json!("SubjectAccessReview")));
        assert_ne!(review["spec"]["user"], "admin", "nobody is asked about masters");
        says(match review["spec"]["user"].as_str().unwrap() {
            "friend" => json!({"allowed": true, "reason": "a friend"}),
            "foe" => json!({"denied": true, "reason": "a foe"}),
            _ => json!({"reason": "who is it"}),
        })
    })
    .await;
    let server = server(&hooks, DENY).await;
    for user in ["foe", "other"] {
        bind(&server, user, READS).await;
    }
    assert_eq!(list(&server, "friend").await.0, 200);
    assert_eq!(list(&server, "other").await.0, 200, "roles allow it");
    let cannot = |user: &str, why: &str| {
        let what = "cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\"";
        (403, format!("configmaps is forbidden: User \"{user}\" {what}: {why}"))
    };
    assert_eq!(list(&server, "foe").await, cannot("foe", "a foe"), "roles are not asked any more");
    assert_eq!(list(&server, "stranger").await, cannot("stranger", "who is it"));
    for (user, expect) in [
        ("friend", json!({"allowed": true, "reason": "a friend"})),
        ("foe", json!({"allowed": false, "denied": true, "reason": "a foe"})),
        ("stranger", json!({"allowed": false, "reason": "who is it"})),
    ] {
        let body = json!({"spec": {"user": user, "resourceAttributes": {"verb": "get", "resource": "pods"}}});
        let answer = server.call("POST", ACCESS, &body.to_string()).await;
        assert_eq!(answer.body["status"], expect, "{user}");
    }
    let rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let headers = [("content-type", "application/json")];
    let service = server.server.service();
    let user = Some(UserInfo::new("other", &[]));
    let answer = send(service, user, "POST", rules, &headers, "{\"spec\": {\"namespace\": \"a\"}}").await;
    let body: Value =
        serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap();
    let status = &body["status"];
    assert_eq!(status["incomplete"], true);
    assert_eq!(status["evaluationError"], "webhook authorizer does not support user rule resolution");
    let prefix = "apiserver_authorization_decisions_total";
    assert!(
        metric(&server, &format!("{prefix}{{type=\"Webhook\",name=\"hook\",decision=\"denied\"}} 2")).await
    );
    assert!(
        metric(&server, &format!("{prefix}{{type=\"RBAC\",name=\"rbac\",decision=\"allowed\"}} 2")).await
    );
    server.stop().await;
}

#[tokio::test]
async fn a_question_tells_which_objects_are_meant() {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let asked = Arc::clone(&seen);
    let hooks = HookServer::start(move |_, review| {
        asked.lock().unwrap().push(review["spec"].clone());
        says(json!({"allowed": true}))
    })
    .await;
    let server = server(&hooks, DENY).await;
    let path = format!("{CONFIG_MAPS}?labelSelector=a%3Db&fieldSelector=metadata.name%21%3Dx");
    assert_eq!(call(&server, "jane", "GET", &path, "").await.0, 200);
    assert_eq!(call(&server, "jane", "GET", "/version", "").await.0, 200);
    let seen = seen.lock().unwrap().clone();
    let expect = json!([
        {
            "user": "jane",
            "groups": ["system:authenticated"],
            "resourceAttributes": {
                "verb": "list", "version": "v1", "resource": "configmaps", "namespace": "default",
                "fieldSelector": {"requirements": [{"key": "metadata.name", "operator": "NotIn", "values": ["x"]}]},
                "labelSelector": {"requirements": [{"key": "a", "operator": "In", "values": ["b"]}]},
            },
        },
        {
            "user": "jane",
            "groups": ["system:authenticated"],
            "nonResourceAttributes": {"path": "/version", "verb": "get"},
        },
    ]);
    assert_eq!(Value::from(seen), expect);
    server.stop().await;
}

/// A webhook that counts how often it is asked.
async fn counting(status: Value) -> (HookServer, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let asked = Arc::clone(&count);
    let hooks = HookServer::start(move |_, _| {
        asked.fetch_add(1, Ordering::SeqCst);
        says(status.clone())
    })
    .await;
    (hooks, count)
}

#[tokio::test]
async fn answers_are_kept_as_long_as_the_configuration_says() {
    for (status, fields, expect) in [
        (json!({"allowed": true}), "", 1),
        (json!({"allowed": true}), "cacheAuthorizedRequests: false, ", 3),
        (json!({"allowed": true}), "cacheUnauthorizedRequests: false, ", 1),
        (json!({"allowed": false}), "", 1),
        (json!({"denied": true}), "cacheUnauthorizedRequests: false, ", 3),
        (json!({"allowed": true}), "authorizedTTL: 1ns, ", 3),
    ] {
        let (hooks, count) = counting(status.clone()).await;
        let server = server(&hooks, &format!("{fields}{DENY}")).await;
        for _ in 0..3 {
            list(&server, "jane").await;
        }
        assert_eq!(count.load(Ordering::SeqCst), expect, "{status} {fields}");
        server.stop().await;
    }
    let (hooks, count) = counting(json!({"allowed": true})).await;
    let server = server(&hooks, DENY).await;
    let long = format!("{CONFIG_MAPS}/{}", "a".repeat(10_000));
    for _ in 0..2 {
        assert_eq!(call(&server, "jane", "GET", &long, "").await.0, 404);
    }
    assert_eq!(count.load(Ordering::SeqCst), 2, "who sends much does not fill the cache");
    server.stop().await;
}

#[tokio::test]
async fn a_webhook_that_gives_no_good_answer_counts_as_its_policy_says() {
    let behaviours: [Named; 8] = [
        ("refuses", || Answer::Raw(403, "no".to_owned())),
        ("redirects", || Answer::Raw(302, String::new())),
        ("talks nonsense", || Answer::Raw(200, "{".to_owned())),
        ("says nothing", || Answer::Raw(200, String::new())),
        ("says too much", || Answer::Huge),
        ("does not answer", || Answer::Hang),
        ("answers another question", || {
            Answer::Whole(
                json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": {"allowed": true}}),
            )
        }),
        ("answers in another version", || {
            Answer::Whole(
                json!({"apiVersion": "authorization.k8s.io/v1beta1", "kind": "SubjectAccessReview", "status": {"allowed": true}}),
            )
        }),
    ];
    for (name, behaviour) in behaviours {
        let hooks = HookServer::start(move |_, _| behaviour()).await;
        for (policy, reader, stranger) in [("Deny", 500, 500), ("NoOpinion", 200, 500)] {
            let server = server(&hooks, &format!("timeout: 400ms, failurePolicy: {policy}")).await;
            bind(&server, "reader", READS).await;
            let (code, why) = list(&server, "reader").await;
            assert_eq!(code, reader, "{name} {policy}: {why}");
            let (code, why) = list(&server, "stranger").await;
            assert_eq!(code, stranger, "{name} {policy}");
            assert!(why.contains("authorization webhook \"hook\" could not be asked"), "{name}: {why}");
            assert!(!why.contains("127.0.0.1"), "clients are not told where it is: {why}");
            let result = if name == "does not answer" { "timeout" } else { "error" };
            let open = "apiserver_authorization_webhook_evaluations_fail_open_total";
            let is_open = metric(&server, &format!("{open}{{name=\"hook\",result=\"{result}\"}} 2")).await;
            assert_eq!(is_open, policy == "NoOpinion", "{name} {policy}");
            let body = json!({"spec": {"user": "reader", "resourceAttributes": {"verb": "get", "resource": "pods"}}});
            let status = server.call("POST", ACCESS, &body.to_string()).await.body["status"].clone();
            assert_eq!(status["denied"] == true, policy == "Deny", "{name}: {status}");
            assert_eq!(status["evaluationError"], "authorization webhook \"hook\" could not be asked");
            server.stop().await;
        }
    }
}

#[tokio::test]
async fn a_webhook_that_says_both_says_no() {
    let hooks = HookServer::start(|_, _| says(json!({"allowed": true, "denied": true}))).await;
    let server = server(&hooks, "timeout: 5s, failurePolicy: NoOpinion").await;
    bind(&server, "reader", READS).await;
    let (code, why) = list(&server, "reader").await;
    assert_eq!(code, 500);
    assert!(why.contains("returned both allow and deny response"), "{why}");
    server.stop().await;
}

#[tokio::test]
async fn what_may_go_better_is_tried_again() {
    let count = Arc::new(AtomicUsize::new(0));
    let asked = Arc::clone(&count);
    let hooks = HookServer::start(move |_, _| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => Answer::Raw(500, "in a moment".to_owned()),
        _ => says(json!({"allowed": true})),
    })
    .await;
    let server = server(&hooks, DENY).await;
    assert_eq!(list(&server, "jane").await.0, 200);
    assert_eq!(count.load(Ordering::SeqCst), 2);
    for (result, times) in [("error", 1), ("success", 1)] {
        let name = "apiserver_authorization_webhook_evaluations_total";
        let line = format!("{name}{{name=\"hook\",result=\"{result}\"}} {times}");
        assert!(metric(&server, &line).await, "{line}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_webhook_is_asked_only_about_what_its_conditions_say() {
    let conditions = |expression: &str, policy: &str| {
        format!(
            "timeout: 5s, failurePolicy: {policy}, matchConditionSubjectAccessReviewVersion: v1, \
             matchConditions: [{{expression: \"{expression}\"}}]"
        )
    };
    for (expression, policy, expect, calls) in [
        ("request.user == 'jane'", "Deny", 200, 1),
        ("request.user != 'jane'", "Deny", 403, 0),
        ("request.nonResourceAttributes.path == '/'", "Deny", 500, 0),
        ("request.nonResourceAttributes.path == '/'", "NoOpinion", 500, 0),
    ] {
        let (hooks, count) = counting(json!({"allowed": true})).await;
        let server = server(&hooks, &conditions(expression, policy)).await;
        let (code, why) = list(&server, "jane").await;
        assert_eq!(code, expect, "{expression} {policy}: {why}");
        assert_eq!(count.load(Ordering::SeqCst), calls, "{expression} {policy}");
        let name = "apiserver_authorization_match_condition_exclusions_total";
        let is_excluded = metric(&server, &format!("{name}{{type=\"Webhook\",name=\"hook\"}} 1")).await;
        assert_eq!(is_excluded, expect == 403, "{expression} {policy}");
        server.stop().await;
    }
}

/// Creates a ConfigMap as somebody, under the eyes of an admission webhook that refuses whatever its condition lets through.
async fn create_under(server: &TestServer, hooks: &HookServer, expression: &str) -> (u16, String) {
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let hook = json!({
        "name": "no.example.com",
        "clientConfig": {"url": hooks.url("/admit"), "caBundle": hooks.ca_bundle()},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
        "matchConditions": [{"name": "c", "expression": expression}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    });
    let body = json!({"metadata": {"name": "c"}, "webhooks": [hook]});
    let made = server.call("POST", path, &body.to_string()).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let config_map = "{metadata: {generateName: a}}";
    let answer = call(server, "jane", "POST", &format!("{CONFIG_MAPS}?timeout=3s"), config_map).await;
    assert_eq!(server.call("DELETE", &format!("{path}/c"), "").await.code, 200);
    answer
}

#[tokio::test]
async fn expressions_ask_webhooks_too() {
    let questions = Arc::new(std::sync::Mutex::new(Vec::new()));
    let asked = Arc::clone(&questions);
    let hooks = HookServer::start(move |path, review| {
        if path == "/admit" {
            return Answer::Says(json!({"allowed": false}));
        }
        let spec = &review["spec"];
        let about = if spec["resourceAttributes"].is_object() {
            &spec["resourceAttributes"]
        } else {
            &spec["nonResourceAttributes"]
        };
        let verb = about["verb"].as_str().unwrap_or_default();
        if verb == "create" {
            return says(json!({"allowed": true}));
        }
        asked.lock().unwrap().push((spec["user"].clone(), about.clone()));
        match verb {
            "hang" => Answer::Hang,
            "break" => Answer::Raw(403, "no".to_owned()),
            "deny" => says(json!({"denied": true, "reason": "never"})),
            _ => says(json!({"allowed": spec["user"] == "jane", "reason": "it says so"})),
        }
    })
    .await;
    let server =
        server(&hooks, "timeout: 30s, failurePolicy: Deny, authorizedTTL: 1ns, unauthorizedTTL: 1ns").await;
    let pods = "authorizer.group('').resource('pods').namespace('default')";
    for (expression, code, questions_asked) in [
        (format!("{pods}.check('get').allowed()"), 400, 1),
        (format!("{pods}.check('get').reason() == 'it says so'"), 400, 1),
        (format!("!{pods}.check('deny').allowed() && {pods}.check('deny').reason() == 'never'"), 400, 1),
        (format!("{pods}.check('get').allowed() && {pods}.check('list').allowed()"), 400, 2),
        (format!("{pods}.check('deny').allowed() && {pods}.check('list').allowed()"), 201, 1),
        (format!("false && {pods}.check('get').allowed()"), 201, 0),
        ("authorizer.requestResource.check('own').allowed()".to_owned(), 400, 1),
        ("authorizer.path('/metrics').check('get').allowed()".to_owned(), 400, 1),
        ("authorizer.serviceAccount('a', 'b').path('/x').check('get').allowed()".to_owned(), 201, 1),
        (format!("{pods}.check('break').errored() && {pods}.check('break').error() != ''"), 400, 1),
        (format!("{pods}.check('break').allowed()"), 201, 1),
        // What costs too much is not asked.
        ("['a', 'b', 'c'].all(v, authorizer.path('/x').check(v).allowed())".to_owned(), 403, 2),
        (format!("{pods}.check('hang').allowed()"), 504, 1),
    ] {
        let (found, why) = create_under(&server, &hooks, &expression).await;
        assert_eq!(found, code, "{expression}: {why}");
        let asked = std::mem::take(&mut *questions.lock().unwrap());
        assert_eq!(asked.len(), questions_asked, "{expression}: {asked:?}");
    }
    let selected =
        format!("{pods}.labelSelector('a=b').fieldSelector('spec.nodeName=n').check('list').allowed()");
    assert_eq!(create_under(&server, &hooks, &selected).await.0, 400);
    let expect = json!({
        "verb": "list", "version": "*", "resource": "pods", "namespace": "default",
        "fieldSelector": {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n"]}]},
        "labelSelector": {"requirements": [{"key": "a", "operator": "In", "values": ["b"]}]},
    });
    assert_eq!(questions.lock().unwrap().as_slice(), [(json!("jane"), expect)]);
    server.stop().await;
}

#[tokio::test]
async fn a_stranger_in_a_webhooks_place_is_not_believed() {
    let (hooks, count) = counting(json!({"allowed": true})).await;
    let (other, _) = counting(json!({"allowed": true})).await;
    let wrong = kubeconfig(&hooks, "/").replace(&hooks.ca_bundle(), &other.ca_bundle());
    let authorization = parse(&format!("{}{LOCAL}", entry(DENY)), &wrong);
    let server = start_with(None, |config| config.options.authorization = authorization).await;
    assert_eq!(list(&server, "jane").await.0, 500);
    assert_eq!(count.load(Ordering::SeqCst), 0);
    server.stop().await;
}

#[tokio::test]
async fn whoever_gives_rights_away_or_approves_is_judged_by_webhooks_too() {
    let hooks = HookServer::start(|_, review| {
        let verb = review["spec"]["resourceAttributes"]["verb"].as_str().unwrap_or_default().to_owned();
        says(json!({"denied": matches!(verb.as_str(), "escalate" | "bind" | "approve" | "impersonate")}))
    })
    .await;
    let server = server(&hooks, DENY).await;
    bind(
        &server,
        "boss",
        "{apiGroups: ['*'], resources: ['*'], verbs: [create, update, get, escalate, approve, impersonate]}",
    )
    .await;
    let role = "{metadata: {name: all}, rules: [{apiGroups: ['*'], resources: ['*'], verbs: ['*']}]}";
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let (code, why) = call(&server, "boss", "POST", path, role).await;
    assert_eq!(code, 403);
    assert!(why.contains("is attempting to grant RBAC permissions not currently held"), "{why}");
    let headers = [("impersonate-user", "jane"), ("content-type", "application/json")];
    let user = Some(UserInfo::new("boss", &[]));
    let answer = send(server.server.service(), user, "POST", WHOAMI, &headers, "{}").await;
    assert_eq!(answer.status(), 403);
    server.stop().await;
}

#[tokio::test]
async fn a_new_configuration_counts_at_once_and_a_broken_one_never() {
    let (yes, _) = counting(json!({"allowed": true})).await;
    let (no, _) = counting(json!({"denied": true})).await;
    let server = server(&yes, DENY).await;
    assert_eq!(list(&server, "jane").await.0, 200);
    let text = format!("{HEAD}{}{LOCAL}", entry(DENY));
    let reload = |text: &str, hooks: &HookServer| {
        let file = kubeconfig(hooks, "/authorize");
        let reloaded = server.server.reload_authorization(text, move |_| Ok(file.clone()));
        reloaded.map_err(|why| base::error_chain(&why))
    };
    assert_eq!(reload(&text, &yes), Ok(false), "it says the same");
    assert_eq!(list(&server, "jane").await.0, 200);
    assert_eq!(reload(&text, &no), Ok(true));
    assert_eq!(list(&server, "jane").await.0, 403, "what the other one said is forgotten");
    for (broken, expect) in [
        ("nonsense".to_owned(), "failed to load AuthorizationConfiguration"),
        (format!("{HEAD}- {{type: RBAC, name: rbac}}\n"), "missing required types: [Node]"),
        (format!("{HEAD}{LOCAL}- {{type: AlwaysAllow, name: alwaysallow}}\n"), "AlwaysAllow is not allowed"),
    ] {
        let failure = reload(&broken, &yes).unwrap_err();
        assert!(failure.contains(expect), "{failure}");
        assert_eq!(list(&server, "jane").await.0, 403, "{broken}");
    }
    assert_eq!(reload(&format!("{HEAD}{LOCAL}"), &yes), Ok(true));
    assert_eq!(list(&server, "jane").await.0, 403, "only roles are left");
    let answer = send(server.server.service(), Some(admin()), "GET", "/metrics", &[], "").await;
    let text = String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap();
    for (status, count) in [("success", 2), ("failure", 3)] {
        let prefix =
            format!("apiserver_authorization_config_controller_automatic_reloads_total{{status=\"{status}\"");
        let line = text.lines().find(|line| line.starts_with(&prefix)).unwrap();
        assert!(line.ends_with(&format!(" {count}")), "{line}");
    }
    server.stop().await;
}

#[tokio::test]
async fn everything_and_nothing_may_be_allowed_if_somebody_says_so() {
    let only = |mode: &str| {
        let text = format!("{HEAD}- {{type: {mode}, name: {}}}\n", mode.to_lowercase());
        let authorization = Authorization::parse(&text, |path| Err(path.into())).unwrap();
        move |config: &mut Config| config.options.authorization = authorization
    };
    let server = start_with(None, only("AlwaysAllow")).await;
    assert_eq!(list(&server, "jane").await.0, 200);
    server.stop().await;
    let server = start_with(None, only("AlwaysDeny")).await;
    let (code, why) = list(&server, "jane").await;
    assert!(code == 403 && why.ends_with(": Everything is forbidden."), "{code} {why}");
    server.stop().await;
}

/// A server that asks a webhook about tokens.
async fn with_tokens(hooks: &HookServer, version: &str, ttl: Duration) -> TestServer {
    let file = kubeconfig(hooks, "/authenticate");
    let webhook = TokenWebhook::new("/hook", version, ttl, |_| Ok(file.clone())).unwrap();
    start_with(None, |config| config.options.token_webhook = Some(webhook)).await
}

fn knows(version: &str, status: Value) -> Answer {
    Answer::Whole(json!({
        "apiVersion": format!("authentication.k8s.io/{version}"), "kind": "TokenReview", "status": status,
    }))
}

/// Status, and who the server thinks it is.
async fn whoami(server: &TestServer, token: &str) -> (u16, Value) {
    let token = format!("Bearer {token}");
    let headers = [("content-type", "application/json"), ("authorization", token.as_str())];
    let answer = send(server.server.service(), None, "POST", WHOAMI, &headers, "{}").await;
    let code = answer.status().as_u16();
    let body: Value =
        serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap();
    let user = body.pointer("/status/userInfo").unwrap_or(&body["message"]);
    (code, user.clone())
}

#[tokio::test]
async fn a_token_that_nothing_here_knows_is_the_webhooks_to_judge() {
    for version in ["v1", "v1beta1"] {
        let hooks = HookServer::start(move |path, review| {
            assert_eq!(path, "/authenticate");
            assert_eq!(review["apiVersion"], format!("authentication.k8s.io/{version}"));
            match review["spec"]["token"].as_str().unwrap() {
                "good" => knows(
                    version,
                    json!({"authenticated": true, "user": {"username": "jane", "uid": "7", "groups": ["dev"], "extra": {"a": ["b"]}}}),
                ),
                "elsewhere" => knows(
                    version,
                    json!({"authenticated": true, "audiences": ["other"], "user": {"username": "jane"}}),
                ),
                "nobody" => knows(version, json!({"authenticated": true, "user": {}})),
                "liar" => knows(version, json!({"authenticated": "true", "user": {"username": "jane"}})),
                "other" => knows("v2", json!({"authenticated": true, "user": {"username": "jane"}})),
                "huge" => Answer::Huge,
                "refused" => Answer::Raw(403, "no".to_owned()),
                _ => knows(version, json!({"authenticated": false, "error": "secret reason"})),
            }
        })
        .await;
        let server = with_tokens(&hooks, version, Duration::from_secs(120)).await;
        let (code, user) = whoami(&server, "good").await;
        let expect = json!({"username": "jane", "uid": "7", "groups": ["dev", "system:authenticated"], "extra": {"a": ["b"]}});
        assert_eq!((code, user), (201, expect));
        for token in ["bad", "elsewhere", "nobody", "liar", "other", "huge", "refused"] {
            assert_eq!(whoami(&server, token).await, (401, json!("Unauthorized")), "{token}");
        }
        for (token, audiences, expect) in [
            ("good", json!([]), Some(json!(["https://kubernetes.default.svc.cluster.local"]))),
            ("elsewhere", json!(["other", "third"]), Some(json!(["other"]))),
            ("elsewhere", json!(["third"]), None),
            ("good", json!(["third"]), None),
            ("bad", json!([]), None),
        ] {
            let body = json!({"spec": {"token": token, "audiences": audiences}}).to_string();
            let answer = server.call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", &body).await;
            let status = &answer.body["status"];
            assert_eq!(status.get("authenticated").is_some(), expect.is_some(), "{token}: {status}");
            assert_eq!(status.get("audiences").cloned(), expect, "{token}");
            assert!(!status.to_string().contains("secret reason"), "{status}");
        }
        server.stop().await;
    }
}

#[tokio::test]
async fn a_token_is_asked_about_once_also_when_many_send_it() {
    for (ttl, again) in [(Duration::from_secs(120), 1), (Duration::ZERO, 2)] {
        let count = Arc::new(AtomicUsize::new(0));
        let asked = Arc::clone(&count);
        let hooks = HookServer::start_async(move |_, _| {
            let asked = Arc::clone(&asked);
            Box::pin(async move {
                asked.fetch_add(1, Ordering::SeqCst);
                // Long enough for the others to come.
                tokio::time::sleep(Duration::from_millis(300)).await;
                knows("v1", json!({"authenticated": true, "user": {"username": "jane"}}))
            })
        })
        .await;
        let server = with_tokens(&hooks, "v1", ttl).await;
        let all = futures::future::join_all((0..20).map(|_| whoami(&server, "good"))).await;
        assert!(all.iter().all(|(code, _)| *code == 201), "{all:?}");
        assert_eq!(count.load(Ordering::SeqCst), 1);
        assert_eq!(whoami(&server, "good").await.0, 201);
        assert_eq!(count.load(Ordering::SeqCst), again);
        server.stop().await;
    }
}

#[tokio::test]
async fn what_this_server_knows_is_nobody_elses_business() {
    let (hooks, count) = counting(json!({})).await;
    let server = with_tokens(&hooks, "v1", Duration::ZERO).await;
    let path = "/api/v1/namespaces/default/serviceaccounts";
    assert_eq!(server.call("POST", path, "{metadata: {name: robot}}").await.code, 201);
    let made = server.call("POST", &format!("{path}/robot/token"), "{}").await;
    let token = made.body["status"]["token"].as_str().unwrap().to_owned();
    assert_eq!(whoami(&server, &token).await.0, 201);
    assert_eq!(count.load(Ordering::SeqCst), 0);
    server.stop().await;
}
