//! APIServices through the whole server: a real API server elsewhere is found, asked, passed on to and told of, and one that
//! lies, hangs or goes away harms nobody else.

mod extension;

use std::sync::Arc;
use std::time::Duration;

use apiserver::options::ProxyClient;
use apiserver::security::front_proxy::FrontProxy;
use auth::UserInfo;
use auth::pki::Subject;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use store::embedded::{Embedded, Options};
use store::{Change, Durability, Expect, Store, Write};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::server::{self, Answer, TestServer, start_on};
use crate::tls::connected;
use extension::{Authorities, BIG_BYTES, Extension, GROUP, Manner, ROOT};

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const NAME: &str = "v1.wardle.example.com";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const FLUNDERS: &str = "/apis/wardle.example.com/v1/namespaces/default/flunders";
/// How long anything may take here that is to happen.
const SOON: Duration = Duration::from_secs(20);

struct Setup {
    server: TestServer,
    store: Arc<dyn Store>,
    authorities: Authorities,
}

impl Setup {
    async fn new() -> Self {
        let authorities = Authorities::new();
        let identity = authorities.proxy_client();
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> =
            Arc::new(Embedded::open(&dir.path().join("db"), Options::default()).unwrap());
        let server = start_on(Arc::clone(&store), dir, Some("127.0.0.1:0".parse().unwrap()), |config| {
            let ca = authorities.proxies.certificate_pem().as_bytes().to_vec();
            // What the host calls localhost.
            config.options.dials_also.push("::1".parse().unwrap());
            config.options.front_proxy = Some(FrontProxy::new(ca));
            config.options.proxy_client = Some(ProxyClient {
                certificate_pem: identity.certificate_pem.into_bytes(),
                key_pem: identity.key_pem.into_bytes(),
            });
        })
        .await;
        Self { server, store, authorities }
    }

    /// The same with a Service `ext` that leads to an extension.
    async fn with_extension() -> (Self, Extension) {
        let setup = Self::new().await;
        let extension = Extension::start(&setup.authorities).await;
        setup.service().await;
        setup.leads_to(Some(extension.address.port())).await;
        (setup, extension)
    }

    async fn must(&self, method: &str, path: &str, body: Value) -> Answer {
        let answer = self.server.call(method, path, &body.to_string()).await;
        assert!(answer.code.is_success(), "{method} {path}: {} {}", answer.code, answer.body);
        answer
    }

    async fn service(&self) {
        let service =
            json!({"metadata": {"name": "ext"}, "spec": {"ports": [{"name": "https", "port": 443}]}});
        self.must("POST", "/api/v1/namespaces/default/services", service).await;
    }

    /// Makes the Service's only endpoint one on this host, which the API would refuse, or one that is not ready.
    async fn leads_to(&self, port: Option<u16>) {
        let slice = json!({
            "kind": "EndpointSlice",
            "apiVersion": "discovery.k8s.io/v1",
            "metadata": {"name": "ext", "namespace": "default", "labels": {"kubernetes.io/service-name": "ext"}},
            "addressType": "IPv4",
            "ports": [{"name": "https", "port": port.unwrap_or(1), "protocol": "TCP"}],
            "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": port.is_some()}}],
        });
        let key = "/registry/endpointslices/default/ext".to_owned();
        let known = self.store.get(&key).await.unwrap();
        let write = Write {
            key,
            expect: known.map_or(Expect::Absent, |entry| Expect::Revision(entry.revision)),
            change: Change::Put { value: slice.to_string().into(), ttl_seconds: None },
            durability: Durability::Synced,
            cause: Default::default(),
            only_while: None,
        };
        self.store.commit(write).await.unwrap();
    }

    fn registration(&self, group: &str, version: &str) -> Value {
        let bundle = STANDARD.encode(self.authorities.serving.certificate_pem());
        json!({
            "metadata": {"name": format!("{version}.{group}")},
            "spec": {
                "group": group,
                "version": version,
                "groupPriorityMinimum": 2000,
                "versionPriority": 15,
                "caBundle": bundle,
                "service": {"namespace": "default", "name": "ext"},
            },
        })
    }

    /// Registers the extension, and waits until it is told of as it tells.
    async fn register(&self) {
        self.must("POST", SERVICES, self.registration(GROUP, "v1")).await;
        self.is("Passed").await;
        self.discovered(|entry| entry["freshness"] == "Current").await;
    }

    async fn condition(&self) -> Value {
        let path = format!("{SERVICES}/{NAME}");
        let found = self.server.call("GET", &path, "").await.body;
        found["status"]["conditions"][0].clone()
    }

    /// Waits for a reason.
    async fn is(&self, reason: &str) -> Value {
        let found = tokio::time::timeout(SOON, async {
            loop {
                let condition = self.condition().await;
                if condition["reason"] == reason {
                    return condition;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        match found.await {
            Ok(condition) => condition,
            Err(_) => panic!("{reason} is not reached: {}", self.condition().await),
        }
    }

    async fn aggregated(&self) -> Value {
        self.server.call_with("GET", "/apis", &[("accept", AGGREGATED)], "").await.body
    }

    async fn entry(&self) -> Value {
        let all = self.aggregated().await;
        let items = all["items"].as_array().unwrap();
        let group = items.iter().find(|item| item["metadata"]["name"] == GROUP);
        group.map(|group| group["versions"][0].clone()).unwrap_or_default()
    }

    /// Waits until the group-version is told of in some way.
    async fn discovered(&self, expect: impl Fn(&Value) -> bool) -> Value {
        let found = tokio::time::timeout(SOON, async {
            loop {
                let entry = self.entry().await;
                if expect(&entry) {
                    return entry;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        match found.await {
            Ok(entry) => entry,
            Err(_) => panic!("discovery stays {}", self.entry().await),
        }
    }

    async fn get(&self, path: &str) -> Answer {
        self.server.call("GET", path, "").await
    }

    async fn stop(self) {
        self.server.stop().await;
    }
}

#[tokio::test]
async fn requests_are_passed_on_with_who_sends_them() {
    let (setup, extension) = Setup::with_extension().await;
    setup.register().await;
    let user = UserInfo {
        name: "jane".into(),
        uid: "u-7".into(),
        groups: vec!["system:masters".into(), "dev".into()],
        extra: [("example.com/Scope".to_owned(), vec!["a b".to_owned()])].into(),
    };
    let forged = [
        ("authorization", "Bearer secret"),
        ("x-remote-user", "root"),
        ("x-remote-group", "forged"),
        ("x-remote-uid", "0"),
        ("x-remote-extra-forged", "1"),
        ("x-remote-extra-example.com%2fscope", "forged"),
        ("connection", "x-hop"),
        ("x-hop", "1"),
        ("accept", "application/vnd.kubernetes.protobuf"),
        ("x-kept", "1"),
    ];
    let path = format!("{FLUNDERS}?labelSelector=a%3Db&limit=5");
    let service = setup.server.server.service();
    let response = server::send(service, Some(user), "GET", &path, &forged, "").await;
    assert_eq!(response.status(), 200);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["kind"], "FlunderList");
    let seen = extension.last("/flunders");
    assert_eq!(seen.uri, path);
    assert_eq!((seen.certificates, seen.version), (1, http::Version::HTTP_2));
    let all = |name: &str| -> Vec<&str> {
        seen.headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
    };
    assert_eq!(all("x-remote-user"), ["jane"]);
    assert_eq!(all("x-remote-uid"), ["u-7"]);
    assert_eq!(all("x-remote-group"), ["system:masters", "dev"]);
    assert_eq!(all("x-remote-extra-example.com%2fscope"), ["a b"]);
    assert_eq!((all("accept"), all("x-kept")), (vec!["application/vnd.kubernetes.protobuf"], vec!["1"]));
    for absent in ["authorization", "x-remote-extra-forged", "x-hop"] {
        assert!(!seen.headers.contains_key(absent), "{absent}");
    }

    let made = setup.must("POST", FLUNDERS, json!({"metadata": {"name": "f"}})).await;
    assert_eq!((made.code.as_u16(), &made.body["metadata"]["name"]), (201, &json!("f")));
    let missing = setup.get(&format!("{FLUNDERS}/missing")).await;
    assert_eq!((missing.code.as_u16(), &missing.body["reason"]), (404, &json!("NotFound")));
    let version = setup.get(ROOT).await;
    assert_eq!(
        (version.code.as_u16(), &version.body["groupVersion"]),
        (200, &json!("wardle.example.com/v1"))
    );
    assert_eq!(extension.last(ROOT).headers["x-remote-user"], "admin");

    // Whoever may not is not heard there.
    let before = extension.state.seen.lock().unwrap().len();
    let nobody = UserInfo { name: "joe".into(), ..UserInfo::default() };
    let service = setup.server.server.service();
    let refused = server::send(service, Some(nobody), "GET", FLUNDERS, &[], "").await;
    assert_eq!(refused.status(), 403);
    for path in
        ["/things/..", "/things/%2e%2e/%2e%2e/secrets", "/namespaces/a%2fb/flunders", "/flunders/a%2Fb"]
    {
        let answer = setup.get(&format!("{ROOT}{path}")).await;
        assert_eq!(answer.code, 404, "{path}: {}", answer.body);
    }
    assert_eq!(extension.state.seen.lock().unwrap().len(), before);
    setup.stop().await;
}

#[tokio::test]
async fn answers_stream() {
    let (setup, extension) = Setup::with_extension().await;
    setup.register().await;
    let stream = |path: String| {
        server::send(
            setup.server.server.service(),
            Some(server::admin()),
            "GET",
            Box::leak(path.into_boxed_str()),
            &[],
            "",
        )
    };
    let mut watch = stream(format!("{FLUNDERS}?watch=true")).await.into_body();
    for expect in ["{\"type\":\"ADDED\"}\n", "{\"type\":\"DELETED\"}\n"] {
        let frame = tokio::time::timeout(SOON, watch.frame()).await.unwrap().unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), expect);
    }
    let mut big = stream(format!("{FLUNDERS}/big")).await.into_body();
    let mut bytes = 0;
    while let Some(frame) = tokio::time::timeout(SOON, big.frame()).await.unwrap() {
        bytes += frame.unwrap().into_data().map_or(0, |data| data.len());
    }
    assert_eq!(bytes, BIG_BYTES);
    // One connection serves them all.
    let before = extension.connections();
    let all = (0..20).map(|_| setup.get(FLUNDERS));
    assert!(futures::future::join_all(all).await.iter().all(|answer| answer.code == 200));
    assert_eq!(extension.connections(), before);
    drop(watch);
    setup.stop().await;
}

#[tokio::test]
async fn an_upgrade_is_joined() {
    let (setup, extension) = Setup::with_extension().await;
    setup.register().await;
    let subject = Subject::client("jane", "jane", "system:masters");
    let identity = setup.server.authority.issue(setup.server.dir.path(), &subject, server::now()).unwrap();
    let mut stream = connected(&setup.server, &[b"http/1.1"], Some(&identity)).await;
    let head = format!(
        "GET {FLUNDERS}/a/exec?x=1 HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: echo\r\nx-remote-user: root\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(tokio::time::timeout(SOON, stream.read_u8()).await.unwrap().unwrap());
    }
    let answer = String::from_utf8(answer).unwrap().to_lowercase();
    assert!(answer.starts_with("http/1.1 101") && answer.contains("upgrade: echo"), "{answer}");
    stream.write_all(b"word").await.unwrap();
    let mut said = [0; 9];
    tokio::time::timeout(SOON, stream.read_exact(&mut said)).await.unwrap().unwrap();
    assert_eq!(&said, b"echo word");
    let seen = extension.last("/exec");
    assert_eq!(seen.uri, format!("{FLUNDERS}/a/exec?x=1"));
    assert_eq!(
        (seen.method.as_str(), &seen.headers["x-forwarded-for"]),
        ("GET", &"127.0.0.1".parse().unwrap())
    );
    let users: Vec<_> = seen.headers.get_all("x-remote-user").iter().collect();
    assert_eq!(users, ["jane"]);
    assert_eq!(seen.certificates, 1);
    setup.stop().await;
}

#[tokio::test]
async fn what_another_server_serves_is_discovered_with_what_is_ours() {
    let (setup, _extension) = Setup::with_extension().await;
    let before = setup.aggregated().await;
    setup.register().await;
    let entry = setup.entry().await;
    assert_eq!(
        entry,
        json!({"version": "v1", "freshness": "Current", "resources": [{
            "resource": "flunders",
            "responseKind": {"group": GROUP, "version": "v1", "kind": "Flunder"},
            "scope": "Namespaced",
            "singularResource": "flunder",
            "verbs": ["get", "list", "watch", "create"],
            "shortNames": ["fl"],
        }]})
    );
    // All else is what it was, in its order.
    let mut after = setup.aggregated().await;
    after["items"].as_array_mut().unwrap().retain(|item| item["metadata"]["name"] != GROUP);
    assert_eq!(after, before);
    let names = |list: &Value| -> Vec<String> {
        let groups = list["groups"].as_array().unwrap().iter();
        groups.map(|group| group["name"].as_str().unwrap().to_owned()).collect()
    };
    let groups = names(&setup.get("/apis").await.body);
    let at = |name: &str| groups.iter().position(|group| group == name).unwrap();
    assert_eq!(groups[0], "apiregistration.k8s.io");
    assert!(at("resource.k8s.io") < at(GROUP) && at(GROUP) < at("metrics.k8s.io"), "{groups:?}");
    // Its priority says where it comes.
    let higher = json!({"spec": {"groupPriorityMinimum": 19_000}});
    setup.must("PATCH", &format!("{SERVICES}/{NAME}"), higher).await;
    assert_eq!(names(&setup.get("/apis").await.body)[1], GROUP);
    let group = setup.get(&format!("/apis/{GROUP}")).await.body;
    let version = json!({"groupVersion": "wardle.example.com/v1", "version": "v1"});
    assert_eq!((&group["preferredVersion"], &group["versions"]), (&version, &json!([version])));

    setup.must("DELETE", &format!("{SERVICES}/{NAME}"), json!(null)).await;
    assert_eq!(setup.get(&format!("/apis/{GROUP}")).await.code, 404);
    assert_eq!(setup.get(FLUNDERS).await.code, 404);
    assert_eq!(setup.aggregated().await, before);
    setup.stop().await;
}

#[tokio::test]
async fn documents_of_both_are_one() {
    let (setup, extension) = Setup::with_extension().await;
    let before = setup.get("/openapi/v2").await.body;
    setup.register().await;
    let document = "apis/wardle.example.com/v1";
    let index = tokio::time::timeout(SOON, async {
        loop {
            let index = setup.get("/openapi/v3").await.body;
            if index["paths"].get(document).is_some() {
                return index;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let index = index.await.unwrap();
    let url = index["paths"][document]["serverRelativeURL"].as_str().unwrap();
    assert_eq!(url, "/openapi/v3/apis/wardle.example.com/v1?hash=ABC123");
    assert!(!index["paths"]["api/v1"]["serverRelativeURL"].as_str().unwrap().contains("FORGED"));
    let told = setup.get(url).await;
    assert_eq!((told.code.as_u16(), &told.body["info"]["title"]), (200, &json!("wardle")));
    assert_eq!(extension.last("/openapi/v3/apis/wardle.example.com/v1").headers["x-remote-user"], "admin");
    assert_eq!(setup.get(&url.replace("ABC123", "OLD")).await.code, 301);

    let whole = tokio::time::timeout(SOON, async {
        loop {
            let whole = setup.get("/openapi/v2").await.body;
            if whole["definitions"].get("com.example.Flunder").is_some() {
                return whole;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let whole = whole.await.unwrap();
    let (pod, other) = ("io.k8s.api.core.v1.Pod", "io.k8s.api.core.v1.Pod_v2");
    assert_eq!(whole["definitions"][pod], before["definitions"][pod]);
    assert_eq!(whole["definitions"][other]["description"], "Another Pod.");
    let reference = &whole["definitions"]["com.example.Flunder"]["properties"]["pod"]["$ref"];
    assert_eq!(reference, &json!(format!("#/definitions/{other}")));
    assert_eq!(whole["paths"]["/api/v1/pods"], before["paths"]["/api/v1/pods"]);
    let protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let answer = setup.server.call_with("GET", "/openapi/v2", &[("accept", protobuf)], "").await;
    assert_eq!(answer.code, 200);
    setup.stop().await;
}

#[tokio::test]
async fn availability_says_what_is_missing() {
    let setup = Setup::new().await;
    setup.must("POST", SERVICES, setup.registration(GROUP, "v1")).await;
    // It is followed with the next request, whatever may come of it.
    let answer = setup.get(FLUNDERS).await;
    assert_eq!((answer.code.as_u16(), answer.body), (503, json!("service unavailable\n")));
    assert_eq!(setup.entry().await, json!({"version": "v1", "freshness": "Stale"}));
    let condition = setup.is("ServiceNotFound").await;
    assert_eq!((&condition["status"], &condition["type"]), (&json!("False"), &json!("Available")));
    assert_eq!(condition["message"], "service/ext in \"default\" is not present");

    let service = json!({"metadata": {"name": "ext"}, "spec": {"ports": [{"name": "https", "port": 8443}]}});
    setup.must("POST", "/api/v1/namespaces/default/services", service).await;
    let condition = setup.is("ServicePortError").await;
    assert_eq!(condition["message"], "service/ext in \"default\" is not listening on port 443");
    let ports = json!({"spec": {"ports": [{"name": "https", "port": 443}]}});
    setup.must("PATCH", "/api/v1/namespaces/default/services/ext", ports).await;
    let condition = setup.is("EndpointsNotFound").await;
    assert_eq!(condition["message"], "cannot find endpointslices for service/ext in \"default\"");
    setup.leads_to(None).await;
    let condition = setup.is("MissingEndpoints").await;
    let message = "endpointslices for service/ext in \"default\" have no addresses with port name \"https\"";
    assert_eq!(condition["message"], message);

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = listener.local_addr().unwrap();
    drop(listener);
    setup.leads_to(Some(closed.port())).await;
    let condition = setup.is("FailedDiscoveryCheck").await;
    let message = condition["message"].as_str().unwrap();
    let begin = "failing or missing response from https://ext.default.svc:443/apis/wardle.example.com/v1: ";
    assert!(message.starts_with(begin) && message.contains("connection refused"), "{message}");
    let metrics = setup.get("/metrics").await.body;
    let metrics = metrics.as_str().unwrap();
    assert!(
        metrics.contains("aggregator_unavailable_apiservice{name=\"v1.wardle.example.com\"} 1"),
        "{metrics}"
    );

    let extension = Extension::start(&setup.authorities).await;
    setup.leads_to(Some(extension.address.port())).await;
    let condition = setup.is("Passed").await;
    assert_eq!(condition["message"], "all checks passed");
    setup.discovered(|entry| entry["freshness"] == "Current").await;
    assert_eq!(setup.get(FLUNDERS).await.code, 200);
    // Nothing changes: nothing is written.
    let revision = || async {
        setup.get(&format!("{SERVICES}/{NAME}")).await.body["metadata"]["resourceVersion"].clone()
    };
    let before = revision().await;
    setup.leads_to(Some(extension.address.port())).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(revision().await, before);
    setup.stop().await;
}

#[tokio::test]
async fn a_server_that_goes_is_told_of_as_stale_and_comes_back() {
    let (setup, extension) = Setup::with_extension().await;
    setup.register().await;
    let address = extension.address;
    extension.stop().await;
    let answer = setup.get(FLUNDERS).await;
    assert_eq!(answer.code, 503);
    let text = answer.body.as_str().unwrap();
    assert!(text.starts_with("error trying to reach service: "), "{text}");
    // Somebody touches it: it is looked at.
    setup.must("PATCH", &format!("{SERVICES}/{NAME}"), json!({"metadata": {"labels": {"a": "b"}}})).await;
    setup.is("FailedDiscoveryCheck").await;
    let stale = setup.discovered(|entry| entry["freshness"] == "Stale").await;
    assert_eq!(stale["resources"][0]["resource"], "flunders");
    assert_eq!(setup.get(FLUNDERS).await.body, "service unavailable\n");
    let metrics = setup.get("/metrics").await.body;
    let counted = "aggregator_unavailable_apiservice_total{name=\"v1.wardle.example.com\",reason=\"FailedDiscoveryCheck\"} 1";
    assert!(metrics.as_str().unwrap().contains(counted), "{metrics}");

    let _extension = Extension::start_at(&setup.authorities, address, &[b"h2"]).await;
    setup.is("Passed").await;
    setup.discovered(|entry| entry["freshness"] == "Current").await;
    assert_eq!(setup.get(FLUNDERS).await.code, 200);
    setup.stop().await;
}

/// Whoever has no certificate that the APIService believes gets nothing, also nothing of who asks.
#[tokio::test]
async fn nobody_else_is_believed() {
    let (setup, extension) = Setup::with_extension().await;
    let mut registration = setup.registration(GROUP, "v1");
    let other = Authorities::new();
    registration["spec"]["caBundle"] = STANDARD.encode(other.serving.certificate_pem()).into();
    setup.must("POST", SERVICES, registration).await;
    let condition = setup.is("FailedDiscoveryCheck").await;
    // Two authorities of one name are told apart by the signature alone.
    assert!(condition["message"].as_str().unwrap().contains("invalid peer certificate"), "{condition}");
    // A name that is not in the certificate.
    setup.must("DELETE", &format!("{SERVICES}/{NAME}"), json!(null)).await;
    let mut registration = setup.registration(GROUP, "v1");
    registration["spec"]["service"]["name"] = "other".into();
    let service =
        json!({"metadata": {"name": "other"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    setup.must("POST", "/api/v1/namespaces/default/services", service).await;
    registration["spec"]["service"]["port"] = extension.address.port().into();
    setup.must("POST", SERVICES, registration).await;
    let condition = setup.is("FailedDiscoveryCheck").await;
    assert!(condition["message"].as_str().unwrap().contains("not valid for"), "{condition}");
    for (bundle, text) in [("", "UnknownIssuer"), ("bm9uZQ==", "unable to load root certificates")] {
        setup.must("DELETE", &format!("{SERVICES}/{NAME}"), json!(null)).await;
        let mut registration = setup.registration(GROUP, "v1");
        registration["spec"]["caBundle"] = bundle.into();
        setup.must("POST", SERVICES, registration).await;
        let condition = setup.is("FailedDiscoveryCheck").await;
        let message = condition["message"].as_str().unwrap();
        assert!(message.contains(text) || message.contains("no certificate authorities"), "{message}");
    }
    assert_eq!(extension.state.seen.lock().unwrap().len(), 0);
    // Unless anybody is.
    let patch = json!({"spec": {"caBundle": null, "insecureSkipTLSVerify": true}});
    setup.must("PATCH", &format!("{SERVICES}/{NAME}"), patch).await;
    setup.is("Passed").await;
    assert_eq!(setup.get(FLUNDERS).await.code, 200);
    setup.stop().await;
}

#[tokio::test]
async fn a_server_that_lies_or_hangs_harms_nobody_else() {
    let (setup, extension) = Setup::with_extension().await;
    let before = setup.aggregated().await;
    for manner in [
        Manner::Huge,
        Manner::NoJson,
        Manner::Lie,
        Manner::Deep,
        Manner::Redirect,
        Manner::Error,
        Manner::Drip,
        Manner::Hang,
    ] {
        extension.behave(manner);
        setup.must("POST", SERVICES, setup.registration(GROUP, "v1")).await;
        setup.is("Passed").await;
        // It has been asked, and asked again because the answer was of no use; for some that of servers of old is.
        let is_old = matches!(manner, Manner::Redirect | Manner::Error);
        let freshness = if is_old { "Current" } else { "Stale" };
        let asked = async {
            let wanted = if is_old { 1 } else { 2 };
            while extension.state.seen.lock().unwrap().iter().filter(|seen| seen.uri == "/apis").count()
                < wanted
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(SOON, asked).await.unwrap();
        let entry = setup.discovered(|entry| entry["freshness"] == freshness).await;
        assert_eq!(entry["resources"].is_array(), is_old, "{manner:?}: {entry}");
        let mut after = setup.aggregated().await;
        after["items"].as_array_mut().unwrap().retain(|item| item["metadata"]["name"] != GROUP);
        assert_eq!(after, before, "{manner:?}");
        assert_eq!(setup.get("/apis/apps/v1").await.code, 200, "{manner:?}");
        assert_eq!(setup.get("/openapi/v3").await.code, 200, "{manner:?}");
        setup.must("DELETE", &format!("{SERVICES}/{NAME}"), json!(null)).await;
        extension.state.seen.lock().unwrap().clear();
    }
    extension.behave(Manner::Well);
    setup.register().await;
    let moved = setup.get(&format!("{FLUNDERS}/moved")).await;
    let text = "the backend attempted to redirect this request, which is not permitted";
    assert_eq!((moved.code.as_u16(), moved.body), (502, json!(text)));
    setup.stop().await;
}

#[tokio::test]
async fn servers_of_old_are_served_too() {
    let setup = Setup::new().await;
    let extension =
        Extension::start_at(&setup.authorities, "127.0.0.1:0".parse().unwrap(), &[b"http/1.1"]).await;
    extension.behave(Manner::Old);
    setup.service().await;
    setup.leads_to(Some(extension.address.port())).await;
    setup.register().await;
    let entry = setup.entry().await;
    assert_eq!(entry["resources"][0]["resource"], "flunders", "{entry}");
    // A request sees its own connection, and its body is passed on.
    extension.behave(Manner::Well);
    let made = setup.must("POST", FLUNDERS, json!({"metadata": {"name": "f"}})).await;
    assert_eq!(made.body["metadata"]["name"], "f");
    assert_eq!(extension.last("/flunders").version, http::Version::HTTP_11);
    setup.stop().await;
}

/// A built-in group-version is somebody else's when its APIService says so; that of APIServices never is.
#[tokio::test]
async fn built_in_groups_can_be_taken_and_are_given_back() {
    let (setup, extension) = Setup::with_extension().await;
    let local = setup.get(&format!("{SERVICES}/v1.apps")).await.body;
    assert_eq!(local["metadata"]["labels"]["kube-aggregator.kubernetes.io/automanaged"], "onstart");
    assert_eq!(local["status"]["conditions"][0]["reason"], "Local");
    let path = "/apis/apps/v1/namespaces/default/deployments";
    assert_eq!(setup.get(path).await.code, 200);
    let taken = json!({"spec": setup.registration("apps", "v1")["spec"]});
    setup.must("PATCH", &format!("{SERVICES}/v1.apps"), taken).await;
    // The extension has no Deployments, and its check fails.
    let refused = tokio::time::timeout(SOON, async {
        while setup.get(path).await.code != 503 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    refused.await.unwrap();
    assert_eq!(extension.last("/apis/apps/v1").headers["x-remote-user"], "system:kube-aggregator");
    // Given back, it leads here again.
    setup
        .must("PATCH", &format!("{SERVICES}/v1.apps"), json!({"spec": {"service": null, "caBundle": null}}))
        .await;
    assert_eq!(setup.get(path).await.code, 200);
    let said_local = tokio::time::timeout(SOON, async {
        loop {
            let found = setup.get(&format!("{SERVICES}/v1.apps")).await.body;
            if found["status"]["conditions"][0]["reason"] == "Local" {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert_eq!(said_local.await.unwrap()["status"]["conditions"][0]["status"], "True");
    // Gone, it is made again, and leads here.
    setup.must("DELETE", &format!("{SERVICES}/v1.apps"), json!(null)).await;
    assert_eq!(setup.get(path).await.code, 200);
    let made_again = tokio::time::timeout(SOON, async {
        loop {
            let found = setup.get(&format!("{SERVICES}/v1.apps")).await;
            if found.code == 200 {
                return found.body;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert_eq!(made_again.await.unwrap()["status"]["conditions"][0]["reason"], "Local");

    let own = setup.registration("apiregistration.k8s.io", "v1");
    setup.must("POST", SERVICES, own).await;
    assert_eq!(setup.get(SERVICES).await.code, 200);
    setup.stop().await;
}

#[tokio::test]
async fn another_metrics_server_takes_over_and_gives_back() {
    let (setup, extension) = Setup::with_extension().await;
    let path = "/apis/metrics.k8s.io/v1beta1/nodes";
    let own = setup.get(path).await;
    assert_eq!((own.code.as_u16(), &own.body["kind"]), (200, &json!("NodeMetricsList")));
    let registration = setup.registration("metrics.k8s.io", "v1beta1");
    setup.must("POST", SERVICES, registration).await;
    assert_eq!(setup.get(path).await.code, 503);
    assert_eq!(extension.state.seen.lock().unwrap().iter().filter(|seen| seen.uri == path).count(), 0);
    setup.must("DELETE", &format!("{SERVICES}/v1beta1.metrics.k8s.io"), json!(null)).await;
    assert_eq!(setup.get(path).await.body["kind"], "NodeMetricsList");
    setup.stop().await;
}

#[tokio::test]
async fn group_versions_of_definitions_are_registered_as_they_come_and_go() {
    let setup = Setup::new().await;
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}},
                {"name": "v2", "served": false, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}},
            ],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    setup.must("POST", definitions, definition).await;
    let path = format!("{SERVICES}/v1.example.com");
    let reaches = |code: u16| {
        let (setup, path) = (&setup, &path);
        async move {
            let reached = tokio::time::timeout(SOON, async {
                while setup.get(path).await.code != code {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
            reached.await.unwrap();
        }
    };
    reaches(200).await;
    let found = setup.get(&path).await.body;
    let (group, version) = (&found["spec"]["groupPriorityMinimum"], &found["spec"]["versionPriority"]);
    assert_eq!((group, version), (&json!(1000), &json!(100)));
    assert_eq!(found["metadata"]["labels"]["kube-aggregator.kubernetes.io/automanaged"], "true");
    assert_eq!(setup.get(&format!("{SERVICES}/v2.example.com")).await.code, 404);
    setup.must("DELETE", &format!("{definitions}/widgets.example.com"), json!(null)).await;
    reaches(404).await;
    setup.stop().await;
}
