//! Controllers beside an API server that writes down what it is asked, as whom upstream has them ask: they do their work, and
//! ask for nothing that their role does not allow.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use auth::rbac::Rbac;
use auth::{Attributes, Decision, UserInfo, bootstrap};
use base::{Clock, Random, Tasks};
use bytes::Bytes;
use controller::{Controller, Engine, Informers};
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use machinery::features;
use serde_json::{Value, json};
use tokio::sync::watch;

/// What there is, and what was asked.
#[derive(Default)]
struct State {
    /// By the path of the collection, of all namespaces where there are some.
    objects: BTreeMap<&'static str, Vec<Value>>,
    /// As `verb group/resource/subresource namespace name`.
    asked: BTreeSet<String>,
    /// Of writes, what is sent.
    written: Vec<(String, Value)>,
}

struct Server(watch::Sender<State>);

impl Server {
    fn start(objects: BTreeMap<&'static str, Vec<Value>>, controller: Controller) -> Arc<Self> {
        let server = Arc::new(Self(watch::Sender::new(State { objects, ..State::default() })));
        let of = server.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let server = of.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        let clock = Clock::simulated("2026-01-01T12:00:00Z".parse().unwrap());
        let client = kube::Client::new(service, "default");
        let informers = Informers::new(client, Tasks::new(), clock, Random::seeded(1));
        controllers::set_transforms(&informers);
        Engine::new(informers, "controllermanager").start(controller);
        server
    }

    async fn answer(
        &self,
        request: Request<kube::client::Body>,
    ) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        let (head, body) = request.into_parts();
        let is_watch = head.uri.query().unwrap_or_default().contains("watch=true");
        let body = body.collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let asked = attributes(&head.method, head.uri.path(), is_watch);
        let mut answer = None;
        self.0.send_modify(|state| answer = Some(state.answer(head.uri.path(), &asked, body)));
        let (code, value) = answer.unwrap();
        let pending = StreamBody::new(futures::stream::pending()).boxed_unsync();
        let full = Full::new(Bytes::from(value.to_string())).boxed_unsync();
        Response::builder().status(code).body(if is_watch { pending } else { full }).unwrap()
    }

    /// What is written within a minute, when there is so much of it.
    async fn written(&self, number: usize) -> Vec<(String, Value)> {
        let mut state = self.0.subscribe();
        let there = state.wait_for(|state| state.written.len() >= number);
        let in_time = tokio::time::timeout(Duration::from_mins(1), there).await.is_ok();
        assert!(in_time, "{:?}", self.0.borrow().written);
        self.0.borrow().written.clone()
    }

    /// That whatever was asked is what an account of this name may ask for.
    fn asked_only_what_the_role_allows(&self, account: &str) {
        let mut rbac = Rbac::new();
        bootstrap::cluster_roles().iter().for_each(|role| rbac.insert_cluster_role(role));
        bootstrap::cluster_role_bindings()
            .iter()
            .for_each(|binding| rbac.insert_cluster_role_binding(binding));
        let user = UserInfo::service_account("kube-system", account, "");
        for asked in &self.0.borrow().asked {
            let is_allowed = matches!(rbac.authorize(&user, &read(asked)), Decision::Allow(_));
            assert!(is_allowed, "{account} may not {asked}");
        }
    }
}

impl State {
    fn answer(&mut self, path: &str, asked: &Attributes, body: Value) -> (u16, Value) {
        let Attributes { verb, group, resource, subresource, namespace, name, .. } = asked;
        self.asked.insert(format!("{verb} {group}/{resource}/{subresource} {namespace}/{name}"));
        let all = self.objects.iter().find(|(collection, _)| collection.ends_with(&format!("/{resource}")));
        let all = all.map(|(_, all)| all.as_slice()).unwrap_or_default();
        match verb.as_str() {
            "get" => match all.iter().find(|one| one["metadata"]["name"] == *name) {
                Some(found) => (200, found.clone()),
                None => (404, json!({"kind": "Status", "reason": "NotFound", "details": {"name": name}})),
            },
            "list" | "watch" => (200, json!({"metadata": {"resourceVersion": "10"}, "items": all})),
            _ => {
                self.written.push((format!("{verb} {path}"), body));
                (200, json!({"metadata": {"resourceVersion": "5"}}))
            }
        }
    }
}

/// What a request asks for.
fn attributes(method: &Method, path: &str, is_watch: bool) -> Attributes {
    let mut parts = path.trim_start_matches("/").split("/").map(str::to_owned);
    let mut next = || parts.next().unwrap_or_default();
    let group = if next() == "apis" { next() } else { String::new() };
    let (version, mut resource, mut namespace) = (next(), next(), String::new());
    if resource == "namespaces" {
        namespace = next();
        resource = next();
    }
    let (name, subresource) = (next(), next());
    let verb = match (method.as_str(), name.is_empty()) {
        ("GET", false) => "get",
        ("GET", true) if is_watch => "watch",
        ("GET", true) => "list",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", _) => "delete",
        (other, _) => panic!("{other} {path}"),
    };
    let verb = verb.to_owned();
    Attributes {
        verb,
        group,
        version,
        resource,
        subresource,
        namespace,
        name,
        is_resource: true,
        ..Attributes::default()
    }
}

/// The same, as it was written down.
fn read(line: &str) -> Attributes {
    let words: Vec<&str> = line.split([' ', '/']).map(str::trim).collect();
    let [verb, group, resource, subresource, namespace, name] = words.as_slice() else { panic!("{line}") };
    let own = |word: &&str| (*word).to_owned();
    Attributes {
        verb: own(verb),
        group: own(group),
        resource: own(resource),
        subresource: own(subresource),
        namespace: own(namespace),
        name: own(name),
        is_resource: true,
        ..Attributes::default()
    }
}

fn mounting_pod(namespace: &str, name: &str, level: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "5"},
        "spec": {
            "securityContext": {"seLinuxOptions": {"level": level}},
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
            "containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        },
        "status": {"phase": "Running"},
    })
}

#[tokio::test(start_paused = true)]
async fn the_selinux_warning_controller_tells_of_pods_that_share_a_volume() {
    let claim = json!({
        "metadata": {"name": "data", "namespace": "shop", "uid": "c", "resourceVersion": "5"},
        "spec": {"volumeName": "pv"},
        "status": {"phase": "Bound"},
    });
    let volume = json!({
        "metadata": {"name": "pv", "resourceVersion": "5"},
        "spec": {
            "claimRef": {"namespace": "shop", "name": "data", "uid": "c"},
            "csi": {"driver": "d", "volumeHandle": "h"},
        },
    });
    let driver = json!({"metadata": {"name": "d", "resourceVersion": "5"}, "spec": {"seLinuxMount": true}});
    let pods = vec![
        mounting_pod("shop", "a", "s0:c1"),
        mounting_pod("shop", "b", "s0:c2"),
        mounting_pod("other", "c", "s0:c3"),
    ];
    let objects = BTreeMap::from([
        ("/api/v1/pods", pods),
        ("/api/v1/persistentvolumeclaims", vec![claim]),
        ("/api/v1/persistentvolumes", vec![volume]),
        ("/apis/storage.k8s.io/v1/csidrivers", vec![driver]),
    ]);
    let server = Server::start(objects, controllers::volume::selinux_warning::CONTROLLER);
    let written = server.written(2).await;
    let mut told: Vec<String> = written
        .iter()
        .map(|(request, event)| {
            let (pod, component) = (&event["involvedObject"]["name"], &event["source"]["component"]);
            format!("{request}: {} {pod} {component}: {}", event["reason"], event["message"])
        })
        .collect();
    told.sort();
    let line = |pod: &str, level: &str, other: &str, other_level: &str| {
        let message = format!(
            "SELinuxLabel \":::{level}\" conflicts with pod {other} that uses the same volume as this pod with SELinuxLabel \
             \":::{other_level}\". If both pods land on the same node, only one of them may access the volume."
        );
        let message = json!(message);
        format!(
            "create /api/v1/namespaces/shop/events: \"SELinuxLabelConflict\" \"{pod}\" \"selinux_warning\": {message}"
        )
    };
    assert_eq!(told, [line("a", "s0:c1", "b", "s0:c2"), line("b", "s0:c2", "a", "s0:c1")]);
    server.asked_only_what_the_role_allows("selinux-warning-controller");
}

#[tokio::test(start_paused = true)]
async fn the_storage_version_garbage_collector_takes_out_servers_without_a_lease() {
    features::turn_on(&["StorageVersionAPI=true".parse().unwrap()]).unwrap_or_else(drop);
    let version = |name: &str, servers: &[&str]| {
        let entry = |server: &&str| json!({"apiServerID": server, "encodingVersion": "v1", "decodableVersions": ["v1"]});
        let entries: Vec<Value> = servers.iter().map(entry).collect();
        json!({"metadata": {"name": name, "uid": name, "resourceVersion": "5"}, "spec": {},
               "status": {"storageVersions": entries}})
    };
    let lease = |name: &str, component: &str| {
        let labels = json!({"apiserver.kubernetes.io/identity": component});
        json!({"metadata": {"name": name, "namespace": "kube-system", "uid": name, "resourceVersion": "5", "labels": labels}})
    };
    let objects = BTreeMap::from([
        (
            "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions",
            vec![
                version("apps.deployments", &["here", "gone"]),
                version("apps.replicasets", &["here"]),
                version("batch.jobs", &["gone", "other"]),
            ],
        ),
        (
            "/apis/coordination.k8s.io/v1/leases",
            vec![lease("here", "kube-apiserver"), lease("other", "other-apiserver")],
        ),
    ]);
    let server = Server::start(objects, controllers::storage_version_gc::CONTROLLER);
    let mut written = server.written(2).await;
    written.sort_by(|one, other| one.0.cmp(&other.0));
    let [deleted, updated] = written.as_slice() else { panic!("{written:?}") };
    let versions = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
    assert_eq!(deleted.0, format!("delete {versions}/batch.jobs"));
    assert_eq!(updated.0, format!("update {versions}/apps.deployments/status"));
    let status = &updated.1["status"];
    assert_eq!(status.pointer("/storageVersions/0/apiServerID"), Some(&json!("here")));
    assert_eq!(
        (status["storageVersions"].as_array().unwrap().len(), &status["commonEncodingVersion"]),
        (1, &json!("v1"))
    );
    server.asked_only_what_the_role_allows("storage-version-garbage-collector");
    assert!(server.0.borrow().asked.contains("get coordination.k8s.io/leases/ kube-system/gone"));
}
