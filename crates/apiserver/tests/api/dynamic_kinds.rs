//! Controllers beside a kind that comes and goes while the server runs: its objects are collected, counted and deleted with
//! their namespace like all others, and nobody takes its absence for theirs.

use std::sync::Arc;
use std::time::Duration;

use apiserver::catalogue::Offer;
use base::{Clock, Random};
use controller::discovery::Watcher;
use controller::{ClientMetrics, Engine, Held, Informers};
use resources::{Resource, Scope};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::server::{TestServer, admin, start_without_flow_control};

const NAMESPACES: &str = "/api/v1/namespaces";
const MAPS: &str = "/api/v1/namespaces/team/configmaps";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/team/widgets";

fn widgets() -> Offer {
    let mut row = Resource::made(("example.com", "v1"), "widgets", "widget", "Widget", Scope::Namespaced);
    row.strategy = resources::strategies::CONTENT.into();
    Offer { row, schema: schema::builtin().kind("", "v1", "ConfigMap").map(Into::into), custom: None }
}

/// A server, and the controllers for which kinds come and go.
struct Cluster {
    server: TestServer,
    informers: Informers,
    metrics: ClientMetrics,
}

impl Cluster {
    async fn start() -> Self {
        let (_, server) = start_without_flow_control().await;
        let metrics = ClientMetrics::new(server.server.metrics());
        let service =
            server.server.service().map_request(|mut request: http::Request<kube::client::Body>| {
                request.extensions_mut().insert(admin());
                request
            });
        let (clock, random) = (Clock::system(), Random::seeded(1));
        let client = kube::Client::new(service, "default");
        let informers =
            Informers::metered(client, server.tasks.clone(), clock, random, metrics.of_part("tester"));
        let engine = Engine::new(informers.clone(), "controllermanager");
        for row in [
            controllers::garbage_collector::CONTROLLER,
            controllers::namespace::CONTROLLER,
            controllers::resource_quota::CONTROLLER,
        ] {
            engine.start(row);
        }
        Self { server, informers, metrics }
    }

    /// Serves Widgets from now on.
    async fn add_widgets(&self) {
        self.server.server.catalogue().add(vec![widgets()]).await.unwrap();
        self.touch_a_service().await;
        self.eventually("Widgets are followed", async || {
            self.followed().is_some_and(|held| held.informer().is_synced())
        })
        .await;
    }

    async fn remove_widgets(&self) {
        self.server.server.catalogue().remove(&[("example.com", "v1", "widgets")]).await.unwrap();
        self.discover().await;
        self.eventually("nothing is left of Widgets", async || self.followed().is_none()).await;
    }

    fn followed(&self) -> Option<Arc<Held>> {
        let all = self.informers.all_held();
        all.into_iter().find(|held| held.resource().plural == "widgets")
    }

    /// Changes an APIService: controllers look at what is served when one changes.
    async fn touch_a_service(&self) {
        const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
        let number = format!("{:?}", std::time::Instant::now());
        let patch = json!({"metadata": {"annotations": {"example.com/touched": number}}}).to_string();
        let touched = self.server.call("PATCH", &format!("{SERVICES}/v1.apps"), &patch).await;
        assert_eq!(touched.code, 200, "{}", touched.body);
    }

    async fn discover(&self) {
        Watcher::of(&self.informers).discover().await.unwrap();
    }

    /// Makes an object and answers a reference to it.
    async fn make(&self, path: &str, name: &str, owners: &[&Value]) -> Value {
        let is_widget = path == WIDGETS;
        let (version, kind) = if is_widget { ("example.com/v1", "Widget") } else { ("v1", "ConfigMap") };
        let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "ownerReferences": owners}});
        let made = self.server.call("POST", path, &object.to_string()).await;
        assert_eq!(made.code, 201, "{}", made.body);
        let uid = &made.body["metadata"]["uid"];
        json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid, "blockOwnerDeletion": true})
    }

    async fn delete(&self, path: &str, name: &str, policy: &str) {
        let options = json!({"propagationPolicy": policy}).to_string();
        let answer = self.server.call("DELETE", &format!("{path}/{name}"), &options).await;
        assert!(answer.code.is_success(), "{}", answer.body);
    }

    async fn names(&self, path: &str) -> Vec<String> {
        let list = self.server.call("GET", path, "").await.body;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let own = |name: &String| name != "kube-root-ca.crt";
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).filter(own).collect()
    }

    async fn left(&self, path: &str, expect: &[&str]) {
        let what = format!("{path} has {expect:?}");
        self.eventually(&what, async || self.names(path).await == expect).await;
    }

    async fn used(&self, expect: &str) {
        let path = "/api/v1/namespaces/team/resourcequotas/q";
        self.eventually(&format!("{expect} Widgets are counted"), async || {
            let quota = self.server.call("GET", path, "").await.body;
            quota["status"]["used"]["count/widgets.example.com"] == expect
        })
        .await;
    }

    async fn eventually(&self, what: &str, mut is_so: impl AsyncFnMut() -> bool) {
        for _ in 0..1_500 {
            if is_so().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{what} did not happen");
    }
}

/// The kind goes, and comes back, and goes: dependents of its objects stay.
async fn comes_and_goes(cluster: &Cluster) {
    let owner = cluster.make(WIDGETS, "stays", &[]).await;
    cluster.make(MAPS, "of-stays", &[&owner]).await;
    for _ in 0..3 {
        cluster.remove_widgets().await;
        // Whoever looks at dependents now finds nobody who knows their owner.
        let touch = r#"{"metadata": {"finalizers": ["example.com/touched"]}}"#;
        for patch in [touch, r#"{"metadata": {"finalizers": null}}"#] {
            let touched = cluster.server.call("PATCH", &format!("{MAPS}/of-stays"), patch).await;
            assert_eq!(touched.code, 200, "{}", touched.body);
        }
        cluster
            .make(
                MAPS,
                "canary",
                &[&json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"})],
            )
            .await;
        cluster.left(MAPS, &["of-stays", "orphan"]).await;
        cluster.used("2").await;
        cluster.add_widgets().await;
        cluster.left(WIDGETS, &["orphan", "stays"]).await;
    }
    cluster.delete(WIDGETS, "stays", "Background").await;
    cluster.left(MAPS, &["orphan"]).await;
    cluster.used("1").await;
}

#[tokio::test]
async fn a_kind_that_comes_and_goes_is_collected_counted_and_deleted_like_others() {
    let cluster = Cluster::start().await;
    let made = cluster.server.call("POST", NAMESPACES, "{metadata: {name: team}}").await;
    assert_eq!(made.code, 201, "{}", made.body);
    let quota = "{metadata: {name: q}, spec: {hard: {count/widgets.example.com: '3'}}}";
    let made = cluster.server.call("POST", "/api/v1/namespaces/team/resourcequotas", quota).await;
    assert_eq!(made.code, 201, "{}", made.body);
    cluster.used("0").await;

    cluster.add_widgets().await;
    let map = cluster.make(MAPS, "owner", &[]).await;
    let root = cluster.make(WIDGETS, "root", &[]).await;
    let leaf = cluster.make(WIDGETS, "leaf", &[&root]).await;
    cluster.make(MAPS, "of-leaf", &[&leaf]).await;
    cluster.make(WIDGETS, "of-map", &[&map]).await;
    cluster.used("3").await;
    let fourth = json!({"metadata": {"name": "fourth"}}).to_string();
    let refused = cluster.server.call("POST", WIDGETS, &fourth).await;
    assert_eq!(refused.code, 403, "{}", refused.body);

    // In the foreground, all the way down; and in the background from a built-in owner.
    cluster.delete(WIDGETS, "root", "Foreground").await;
    cluster.left(WIDGETS, &["of-map"]).await;
    cluster.left(MAPS, &["owner"]).await;
    cluster.delete(MAPS, "owner", "Background").await;
    cluster.left(WIDGETS, &[]).await;
    cluster.used("0").await;

    // Orphans of both sorts stay, and forget.
    let parent = cluster.make(WIDGETS, "parent", &[]).await;
    cluster.make(WIDGETS, "orphan", &[&parent]).await;
    cluster.make(MAPS, "orphan", &[&parent]).await;
    cluster.delete(WIDGETS, "parent", "Orphan").await;
    cluster.left(WIDGETS, &["orphan"]).await;
    for path in [WIDGETS, MAPS] {
        let orphan = cluster.server.call("GET", &format!("{path}/orphan"), "").await.body;
        assert_eq!(orphan["metadata"]["ownerReferences"], Value::Null, "{orphan}");
    }

    comes_and_goes(&cluster).await;

    // An owner goes, and its kind right after it.
    let last = cluster.make(WIDGETS, "last", &[]).await;
    cluster.make(MAPS, "of-last", &[&last]).await;
    cluster
        .eventually("the owner is known", async || {
            cluster.followed().is_some_and(|held| held.informer().get("team/last").is_some())
        })
        .await;
    cluster.delete(WIDGETS, "last", "Background").await;
    cluster.remove_widgets().await;
    cluster.left(MAPS, &["orphan"]).await;
    cluster.add_widgets().await;

    // The namespace goes with all of it.
    cluster.delete(NAMESPACES, "team", "Background").await;
    cluster
        .eventually("the namespace goes", async || {
            cluster.server.call("GET", "/api/v1/namespaces/team", "").await.code == 404
        })
        .await;
    cluster.left(WIDGETS, &[]).await;

    // What has not changed is not sent again.
    cluster.discover().await;
    cluster.discover().await;
    let metrics = cluster.metrics.registry().render();
    let unchanged = metrics
        .lines()
        .any(|line| line.starts_with("rest_client_requests_total") && line.contains("code=\"304\""));
    assert!(unchanged, "{metrics}");
    cluster.server.stop().await;
}
