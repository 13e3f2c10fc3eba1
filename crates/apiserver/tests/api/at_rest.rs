//! Encryption at rest through the API: what lies in the store, and what clients see of values that cannot be read.

use std::sync::Arc;

use crate::server::{TestServer, admin, send, start_on};
use encryption::Config;
use http::StatusCode;
use http_body_util::BodyExt;
use serde_json::json;
use store::embedded::{Embedded, Options};
use store::{Change, Durability, Expect, Store, Write};

const A: &str = "{name: a, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}";
const B: &str = "{name: b, secret: YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODk=}";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn text(providers: &str) -> String {
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- {{resources: [secrets], providers: [{providers}]}}\n"
    )
}

fn secretbox(keys: &str) -> String {
    format!("{{secretbox: {{keys: [{keys}]}}}}")
}

/// A store that outlives servers.
struct Disk {
    store: Arc<dyn Store>,
    dir: tempfile::TempDir,
}

impl Disk {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { store: Arc::new(Embedded::open(dir.path(), Options::default()).unwrap()), dir }
    }

    async fn server(&self, providers: Option<&str>) -> TestServer {
        let dir = tempfile::tempdir().unwrap();
        start_on(Arc::clone(&self.store), dir, None, |config| {
            config.options.encryption =
                providers.map(|providers| Config::parse(text(providers).as_bytes(), true).unwrap());
            config.options.reloads_encryption = providers.is_some();
        })
        .await
    }

    /// What is stored under a key of a Secret in `default`.
    async fn raw(&self, name: &str) -> Vec<u8> {
        let key = format!("/registry/secrets/default/{name}");
        self.store.get(&key).await.unwrap().unwrap().value.to_vec()
    }

    /// Puts bytes where a Secret would be, as another server might.
    async fn put(&self, name: &str, value: &[u8]) {
        let key = format!("/registry/secrets/default/{name}");
        let held = self.store.get(&key).await.unwrap();
        let expect = held.map_or(Expect::Absent, |entry| Expect::Revision(entry.revision));
        let change = Change::Put { value: value.to_vec().into(), ttl_seconds: None };
        let write = Write {
            key,
            expect,
            change,
            durability: Durability::Synced,
            cause: Default::default(),
            only_while: None,
        };
        self.store.commit(write).await.unwrap();
    }

    /// Whether a text lies anywhere in the store's files.
    fn has(&self, text: &str) -> bool {
        let files = std::fs::read_dir(self.dir.path()).unwrap();
        files
            .map(|file| std::fs::read(file.unwrap().path()).unwrap())
            .any(|bytes| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
    }
}

async fn create(server: &TestServer, name: &str) {
    let secret = json!({"metadata": {"name": name}, "stringData": {"password": "correct horse"}});
    let made = server.call("POST", SECRETS, &secret.to_string()).await;
    assert_eq!(made.code, StatusCode::CREATED, "{}", made.body);
}

async fn revision(server: &TestServer, name: &str) -> String {
    let got = server.call("GET", &format!("{SECRETS}/{name}"), "").await;
    assert_eq!(got.body["data"]["password"], "Y29ycmVjdCBob3JzZQ==", "{}", got.body);
    got.body["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

/// An update that changes nothing.
async fn touch(server: &TestServer, name: &str) {
    let patched = server.call("PATCH", &format!("{SECRETS}/{name}"), "{}").await;
    assert_eq!(patched.code, StatusCode::OK, "{}", patched.body);
}

#[tokio::test]
async fn no_plain_secret_reaches_the_disk() {
    let disk = Disk::new();
    let server = disk.server(Some(&secretbox(A))).await;
    create(&server, "one").await;
    let changed =
        server.call("PATCH", &format!("{SECRETS}/one"), r#"{"stringData": {"more": "battery"}}"#).await;
    assert_eq!(changed.code, StatusCode::OK);
    let map = json!({"metadata": {"name": "map"}, "data": {"key": "not hidden at all"}});
    server.call("POST", "/api/v1/namespaces/default/configmaps", &map.to_string()).await;
    assert!(disk.raw("one").await.starts_with(b"k8s:enc:secretbox:v1:a:"));
    let listed = server.call("GET", SECRETS, "").await;
    assert_eq!(listed.body["items"][0]["data"]["more"], "YmF0dGVyeQ==");
    let gone = server.call("DELETE", &format!("{SECRETS}/one"), "").await;
    assert_eq!(gone.code, StatusCode::OK);
    server.stop().await;
    disk.store.close().await.unwrap();
    assert!(disk.has("not hidden at all"), "the control: plain values would be found");
    for hidden in ["correct horse", "Y29ycmVjdCBob3JzZQ", "battery", "YmF0dGVyeQ"] {
        assert!(!disk.has(hidden), "{hidden}");
    }
}

#[tokio::test]
async fn an_update_that_changes_nothing_moves_a_value_to_the_newest_key() {
    let disk = Disk::new();
    let server = disk.server(None).await;
    create(&server, "one").await;
    assert!(disk.raw("one").await.starts_with(b"{"));
    server.stop().await;

    let server = disk.server(Some(&format!("{}, {{identity: {{}}}}", secretbox(A)))).await;
    let before = revision(&server, "one").await;
    touch(&server, "one").await;
    let after = revision(&server, "one").await;
    assert_ne!(before, after, "it was rewritten");
    assert!(disk.raw("one").await.starts_with(b"k8s:enc:secretbox:v1:a:"));
    touch(&server, "one").await;
    assert_eq!(revision(&server, "one").await, after, "and is not again");

    let rotated = text(&secretbox(&format!("{B}, {A}")));
    assert!(server.server.reload_encryption(rotated.as_bytes()).await.unwrap());
    touch(&server, "one").await;
    assert!(disk.raw("one").await.starts_with(b"k8s:enc:secretbox:v1:b:"));
    server.stop().await;
}

#[tokio::test]
async fn what_cannot_be_read_is_an_error_that_names_object_and_key_until_the_key_is_back() {
    let disk = Disk::new();
    let server = disk.server(Some(&secretbox(A))).await;
    create(&server, "old").await;
    server.stop().await;

    let server = disk.server(Some(&secretbox(B))).await;
    create(&server, "new").await;
    let one = format!("{SECRETS}/old");
    let expect = "Internal error occurred: unable to transform key \"/registry/secrets/default/old\": no matching key \
                  was found for the provided Secretbox transformer: the value begins with \"a:\"";
    for (method, path, body) in [
        ("GET", one.as_str(), ""),
        ("PATCH", &one, "{}"),
        ("DELETE", &one, ""),
        ("GET", SECRETS, ""),
        ("GET", "/api/v1/secrets?limit=1", ""),
        ("GET", "/api/v1/secrets?watch=true", ""),
        ("DELETE", SECRETS, ""),
    ] {
        let answer = server.call(method, path, body).await;
        assert_eq!(answer.code, StatusCode::INTERNAL_SERVER_ERROR, "{method} {path}: {}", answer.body);
        assert_eq!(answer.body["message"], expect, "{method} {path}");
        assert_eq!(answer.body["reason"], "InternalError");
    }
    let taken = server.call("POST", SECRETS, r#"{"metadata": {"name": "old"}}"#).await;
    assert_eq!(taken.body["reason"], "AlreadyExists");
    revision(&server, "new").await;
    let elsewhere = server.call("GET", "/api/v1/namespaces/kube-system/secrets", "").await;
    assert_eq!(elsewhere.code, StatusCode::OK);

    let back = text(&secretbox(&format!("{B}, {A}")));
    assert!(server.server.reload_encryption(back.as_bytes()).await.unwrap());
    while server.call("GET", &one, "").await.code != StatusCode::OK {
        tokio::task::yield_now().await;
    }
    let listed = server.call("GET", SECRETS, "").await;
    assert_eq!(listed.body["items"].as_array().unwrap().len(), 2, "{}", listed.body);
    server.stop().await;
}

#[tokio::test]
async fn a_watch_ends_when_somebody_stores_what_cannot_be_read() {
    let disk = Disk::new();
    let server = disk.server(Some(&secretbox(A))).await;
    create(&server, "one").await;
    let path = format!("{SECRETS}?watch=true&resourceVersion={}", revision(&server, "one").await);
    let mut watch = send(server.server.service(), Some(admin()), "GET", &path, &[], "").await.into_body();
    disk.put("one", b"k8s:enc:secretbox:v1:x:nonsense").await;
    let frame = watch.frame().await.unwrap().unwrap().into_data().unwrap();
    let event: serde_json::Value = serde_json::from_slice(&frame).unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    let listed = server.call("GET", SECRETS, "").await;
    assert_eq!(listed.code, StatusCode::INTERNAL_SERVER_ERROR, "{}", listed.body);
    server.stop().await;
}

#[tokio::test]
async fn the_last_state_of_a_deleted_secret_is_told() {
    let disk = Disk::new();
    let server = disk.server(Some(&secretbox(A))).await;
    create(&server, "one").await;
    let path = format!("{SECRETS}?watch=true&resourceVersion={}", revision(&server, "one").await);
    let mut watch = send(server.server.service(), Some(admin()), "GET", &path, &[], "").await.into_body();
    server.call("DELETE", &format!("{SECRETS}/one"), "").await;
    let frame = watch.frame().await.unwrap().unwrap().into_data().unwrap();
    let event: serde_json::Value = serde_json::from_slice(&frame).unwrap();
    assert_eq!(event["type"], "DELETED");
    assert_eq!(event["object"]["data"]["password"], "Y29ycmVjdCBob3JzZQ==");
    server.stop().await;
}

#[tokio::test]
async fn plugins_are_part_of_a_servers_health() {
    let check = async |providers: Option<&str>, expect: bool| {
        let disk = Disk::new();
        let server = disk.server(providers).await;
        for endpoint in ["/healthz", "/livez", "/readyz"] {
            let said = server.call("GET", &format!("{endpoint}?verbose"), "").await;
            let said = said.body.as_str().unwrap_or_default().to_owned();
            assert_eq!(said.contains("[+]kms-providers ok"), expect, "{endpoint}: {said}");
        }
        server.stop().await;
    };
    check(None, false).await;
    check(Some(&secretbox(A)), true).await;
}
