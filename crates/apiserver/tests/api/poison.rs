//! No object that the API server takes, or that an upstream server may have left in its store, stops whoever follows it
//! with typed objects: every kind that is stored, with null, empty and missing at every path of its schema.
//!
//! The informers are those that the parts of a cluster stand on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::fixtures::{self, collection, stored};
use crate::nothing::{self, Step, changes};
use crate::server::{TestServer, admin, start_without_flow_control};
use base::health::Checks;
use base::{Clock, Random};
use controller::informer::{self, Decode, Transform};
use controller::trace::Reporter;
use controller::{ClientMetrics, Engine, Informers, ResourceRef};
use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, Resource};
use resources::{Resource as Row, Subresource};
use schema::SchemaRef;
use schema::walk::zeros;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use store::{Change, Durability, Expect, Store, Write};
use tower::ServiceExt;

/// A kind as a type: how it is decoded, and how it is followed.
struct Typed {
    kind: [&'static str; 3],
    decode: fn(&[u8]) -> Result<(), String>,
    /// Waits until the informer of the kind has seen a revision; answers the names of what it holds.
    reached: fn(Informers, u64) -> BoxFuture<'static, Vec<String>>,
}

/// A kind of which nothing here has an informer.
struct Followed<K>(K);

impl<K: Resource + DeserializeOwned> Decode for Followed<K> {
    fn decode(text: &str, transform: &Transform) -> Result<Self, serde_json::Error> {
        informer::object(text, transform).map(Self)
    }
}

impl<K: Resource> Resource for Followed<K> {
    const API_VERSION: &'static str = K::API_VERSION;
    const GROUP: &'static str = K::GROUP;
    const KIND: &'static str = K::KIND;
    const VERSION: &'static str = K::VERSION;
    const URL_PATH_SEGMENT: &'static str = K::URL_PATH_SEGMENT;
    type Scope = K::Scope;
}

impl<K: Metadata<Ty = ObjectMeta>> Metadata for Followed<K>
where
    Self: Resource,
{
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        self.0.metadata()
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        self.0.metadata_mut()
    }
}

fn typed<K>() -> Typed
where
    K: Resource<Scope: 'static> + Metadata<Ty = ObjectMeta> + DeserializeOwned + Send + Sync + 'static,
{
    Typed {
        kind: [K::GROUP, K::VERSION, K::KIND],
        decode: |text| {
            let kind = [K::GROUP, K::VERSION, K::KIND];
            zeros::decode::<K>(kind, text).map(drop).map_err(|error| error.to_string())
        },
        reached: |informers, revision| {
            Box::pin(async move {
                let informer = informers.informer::<Followed<K>>();
                informer.reached(revision).await;
                informer.list().iter().filter_map(|object| object.metadata().name.clone()).collect()
            })
        },
    }
}

macro_rules! types {
    ($($module:ident::$version:ident { $($kind:ident)* })*) => {
        vec![$($(typed::<k8s_openapi::api::$module::$version::$kind>(),)*)*]
    };
}

/// Every kind that is stored.
fn types() -> Vec<Typed> {
    let mut all = types! {
        core::v1 { ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolumeClaim PersistentVolume Pod PodTemplate
            ReplicationController ResourceQuota Secret ServiceAccount Service }
        events::v1 { Event }
        admissionregistration::v1 { MutatingWebhookConfiguration ValidatingWebhookConfiguration
            ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding }
        apps::v1 { ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet }
        autoscaling::v1 { HorizontalPodAutoscaler }
        autoscaling::v2 { HorizontalPodAutoscaler }
        batch::v1 { CronJob Job }
        certificates::v1 { CertificateSigningRequest }
        certificates::v1beta1 { ClusterTrustBundle PodCertificateRequest }
        rbac::v1 { ClusterRole ClusterRoleBinding Role RoleBinding }
        policy::v1 { PodDisruptionBudget }
        scheduling::v1 { PriorityClass }
        coordination::v1 { Lease }
        flowcontrol::v1 { FlowSchema PriorityLevelConfiguration }
        node::v1 { RuntimeClass }
        discovery::v1 { EndpointSlice }
        networking::v1 { IngressClass Ingress IPAddress NetworkPolicy ServiceCIDR }
        storage::v1 { CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment VolumeAttributesClass }
        resource::v1 { DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice }
    };
    all.push(typed::<k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService>());
    let definitions = typed::<
        k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    >();
    all.push(definitions);
    all
}

fn type_of(row: &Row) -> Typed {
    let kind = [&*row.group, &*row.version, &*row.kind];
    types()
        .into_iter()
        .find(|found| found.kind == kind)
        .unwrap_or_else(|| panic!("{kind:?} has no type here"))
}

fn schema_of(row: &Row) -> SchemaRef<'static> {
    schema::builtin().kind(&row.group, &row.version, &row.kind).unwrap()
}

#[test]
fn every_kind_is_decoded_with_nothing_at_any_path() {
    let (mut tried, mut refused) = (0, Vec::new());
    for found in types() {
        let [group, version, kind] = found.kind;
        let schema = schema::builtin().kind(group, version, kind).unwrap();
        for change in changes(schema) {
            let mut object = json!({"metadata": {"name": "a"}});
            change.apply(&mut object);
            tried += 1;
            if let Err(why) = (found.decode)(object.to_string().as_bytes()) {
                refused.push(format!("{kind} {}: {why}", change.text()));
            }
        }
    }
    assert!(tried > 10_000, "{tried} objects are not all");
    assert!(refused.is_empty(), "{} of {tried}: {:#?}", refused.len(), &refused[..refused.len().min(30)]);
}

/// A server with one object of every kind, and its store.
struct Fixture {
    store: Arc<dyn Store>,
    server: TestServer,
}

impl Fixture {
    async fn new() -> Self {
        let (store, server) = start_without_flow_control().await;
        for row in stored() {
            let answer = server.call("POST", &collection(row), &fixtures::of(row).unwrap().to_string()).await;
            // Two versions of a kind share their objects.
            assert!(matches!(answer.code.as_u16(), 201 | 409), "{}: {}", row.plural, answer.body);
        }
        Self { store, server }
    }

    fn informers(&self, metrics: &ClientMetrics) -> Informers {
        let service =
            self.server.server.service().map_request(|mut request: http::Request<kube::client::Body>| {
                request.extensions_mut().insert(admin());
                request
            });
        let client = kube::Client::new(service, "default");
        let (clock, random) = (Clock::system(), Random::seeded(1));
        Informers::metered(client, self.server.tasks.clone(), clock, random, metrics.of_part("tester"))
    }

    /// The code and the object that the server answers.
    async fn call(&self, method: &str, path: &str, kind: &str, body: &Value) -> (bool, Value) {
        let answer = self.server.call_with(method, path, &[("content-type", kind)], &body.to_string()).await;
        (answer.code.is_success(), answer.body)
    }

    /// Puts an object into the store, past the server.
    async fn put(&self, row: &Row, object: &Value) -> u64 {
        let name = object["metadata"]["name"].as_str().unwrap();
        let scope = if row.is_namespaced() { "default/" } else { "" };
        let value = object.to_string().into_bytes().into();
        let key = format!("{}{scope}{name}", row.storage_prefix);
        let there = self.store.get(&key).await.unwrap();
        let write = Write {
            expect: there.map_or(Expect::Absent, |entry| Expect::Revision(entry.revision)),
            key,
            change: Change::Put { value, ttl_seconds: None },
            durability: Durability::Synced,
            cause: Default::default(),
            only_while: None,
        };
        self.store.commit(write).await.unwrap()
    }
}

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const TRIES_MAX: usize = 3;

/// Where an object of the row can be written whole: method and path.
fn writes(row: &Row) -> Vec<(&'static str, &'static str, String)> {
    let (path, name) = (collection(row), name_of(row));
    let mut all = vec![("POST", JSON, format!("{path}?dryRun=All"))];
    let own = row.subresources.iter().filter(|sub| sub.kind.is_empty() || sub.kind == row.kind);
    for subresource in own.filter(|sub| sub.verbs.contains(&"update")) {
        all.push(("PUT", JSON, format!("{path}/{name}/{}?dryRun=All", subresource.name)));
        all.push(("PATCH", MERGE, format!("{path}/{name}/{}?dryRun=All", subresource.name)));
    }
    all
}

fn name_of(row: &Row) -> String {
    fixtures::of(row).unwrap()["metadata"]["name"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn every_object_that_the_server_takes_is_decoded() {
    let fixture = Fixture::new().await;
    let (mut sent, mut taken, mut refused) = (0, 0, Vec::new());
    // By type, field, value and way: how often it was tried; what was taken once is not sent again.
    let mut done: HashMap<(&str, String, String, &str, bool), usize> = HashMap::new();
    for row in stored() {
        let object = fixtures::of(row).unwrap();
        let found = type_of(row);
        let own_changes = changes(schema_of(row));
        for (method, content_type, path) in writes(row) {
            for change in &own_changes {
                let is_status = path.contains("/status?");
                let is_in_status = matches!(change.path.first(), Some(Step::Field(name)) if name == "status");
                if path.contains('?') && method != "POST" && is_status != is_in_status {
                    continue;
                }
                let (message, field) = change.about.clone();
                let id = (message, field, change.value.to_string(), method, is_status);
                let tries = done.entry(id).or_default();
                if *tries >= TRIES_MAX {
                    continue;
                }
                *tries += 1;
                let mut body = if method == "PATCH" { json!({}) } else { object.clone() };
                if method == "POST" {
                    body["metadata"]["name"] = format!("x{}", name_of(row)).into();
                }
                change.apply(&mut body);
                sent += 1;
                let (is_taken, answer) = fixture.call(method, &path, content_type, &body).await;
                if !is_taken {
                    continue;
                }
                *tries = TRIES_MAX;
                taken += 1;
                if let Err(why) = (found.decode)(answer.to_string().as_bytes()) {
                    refused.push(format!("{method} {path} {}: {why}", change.text()));
                }
            }
        }
    }
    eprintln!("{sent} objects sent, {taken} taken");
    assert!(taken > 3_000, "{taken} objects of {sent} are too few");
    assert!(refused.is_empty(), "{} of {taken}: {:#?}", refused.len(), &refused[..refused.len().min(30)]);
    fixture.server.stop().await;
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The object that the server answers; `Err(false)` if it answers that the fault is its own, which it never is.
async fn sent(
    fixture: &Fixture,
    (method, path, kind): (&str, &str, &str),
    body: &[u8],
) -> Result<Value, bool> {
    let answer = fixture.server.call_bytes(method, path, &[("content-type", kind)], body).await;
    match answer.code.as_u16() {
        200..300 => Ok(answer.body),
        code => Err(code < 500),
    }
}

#[tokio::test]
async fn every_object_that_the_server_takes_as_protobuf_is_decoded() {
    let fixture = Fixture::new().await;
    let (mut tried, mut taken, mut wrong) = (0, 0, Vec::new());
    let mut done: BTreeSet<(&str, String, String)> = BTreeSet::new();
    for row in stored() {
        let (object, found, schema) = (fixtures::of(row).unwrap(), type_of(row), schema_of(row));
        let path = format!("{}?dryRun=All", collection(row));
        for change in changes(schema) {
            if !done.insert((change.about.0, change.about.1.clone(), change.value.to_string())) {
                continue;
            }
            let mut body = object.clone();
            body["metadata"]["name"] = format!("x{}", name_of(row)).into();
            change.apply(&mut body);
            // What has no form on the wire cannot be sent.
            let Ok(bytes) = schema::proto::encode(schema, &body) else { continue };
            tried += 1;
            match sent(&fixture, ("POST", &path, PROTOBUF), &bytes).await {
                Ok(answer) => {
                    taken += 1;
                    if let Err(why) = (found.decode)(answer.to_string().as_bytes()) {
                        wrong.push(format!("{path} {}: {why}", change.text()));
                    }
                }
                Err(true) => {}
                Err(false) => wrong.push(format!("{path} {}: a fault of the server", change.text())),
            }
        }
    }
    eprintln!("{tried} objects sent, {taken} taken");
    assert!(taken > 1_000, "{taken} objects of {tried} are too few");
    assert!(wrong.is_empty(), "{} of {tried}: {:#?}", wrong.len(), &wrong[..wrong.len().min(30)]);
    fixture.server.stop().await;
}

/// What is sent to a subresource of a kind of its own, as it should be.
fn sound(kind: &str, name: &str) -> Option<Value> {
    Some(match kind {
        "Binding" => json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}}),
        "Eviction" => json!({"metadata": {"name": name}, "deleteOptions": {"gracePeriodSeconds": 1}}),
        "TokenRequest" => json!({"spec": {"audiences": [], "expirationSeconds": 3600}}),
        "Scale" => json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"replicas": 1}}),
        _ => return None,
    })
}

/// Where a body of the subresource's own kind can be sent.
fn ways(subresource: &Subresource) -> Vec<(&'static str, &'static str)> {
    let rows = [
        ("create", "POST", JSON),
        ("create", "POST", PROTOBUF),
        ("update", "PUT", JSON),
        ("update", "PUT", PROTOBUF),
        ("patch", "PATCH", MERGE),
    ];
    let has = |verb| subresource.verbs.contains(&verb);
    rows.into_iter().filter(|(verb, ..)| has(*verb)).map(|(_, method, kind)| (method, kind)).collect()
}

#[tokio::test]
async fn no_body_of_a_subresource_breaks_the_server_or_its_object() {
    let fixture = Fixture::new().await;
    let (mut tried, mut taken, mut wrong, mut kinds) = (0, 0, Vec::new(), BTreeSet::new());
    for row in stored() {
        let (name, found) = (name_of(row), type_of(row));
        let others = row.subresources.iter().filter(|sub| !sub.kind.is_empty() && sub.kind != row.kind);
        for (subresource, sound) in others.filter_map(|sub| Some((sub, sound(sub.kind, &name)?))) {
            kinds.insert(subresource.kind);
            let group: &str = if subresource.group.is_empty() { &row.group } else { subresource.group };
            let schema = schema::builtin().kind(group, subresource.version, subresource.kind).unwrap();
            let object = format!("{}/{name}", collection(row));
            for (method, kind) in ways(subresource) {
                // A dry run of an eviction or a binding changes nothing; that of a scale is looked at all the same.
                let path = format!("{object}/{}?dryRun=All", subresource.name);
                for change in changes(schema) {
                    let mut body = if method == "PATCH" { json!({}) } else { sound.clone() };
                    change.apply(&mut body);
                    let bytes = match kind {
                        PROTOBUF => schema::proto::encode(schema, &body).ok(),
                        _ => Some(body.to_string().into_bytes()),
                    };
                    let Some(bytes) = bytes else { continue };
                    tried += 1;
                    match sent(&fixture, (method, &path, kind), &bytes).await {
                        Ok(_) => taken += 1,
                        Err(true) => {}
                        Err(false) => wrong.push(format!("{method} {path} {kind} {}", change.text())),
                    }
                }
            }
            let (_, now) = fixture.call("GET", &object, JSON, &json!({})).await;
            if let Err(why) = (found.decode)(now.to_string().as_bytes()) {
                wrong.push(format!("{object} afterwards: {why}"));
            }
        }
    }
    eprintln!("{tried} bodies sent, {taken} taken");
    assert_eq!(kinds, BTreeSet::from(["Binding", "Eviction", "Scale", "TokenRequest"]));
    assert!(taken > 100, "{taken} of {tried} are too few");
    assert!(wrong.is_empty(), "{} of {tried}: {:#?}", wrong.len(), &wrong[..wrong.len().min(30)]);
    fixture.server.stop().await;
}

/// Nulls at every path of an object at once, as `leaf` or in lists and maps.
fn full_of_nulls(row: &Row, name: &str, is_leaf: bool) -> Value {
    let mut object = nothing::full_of_nulls(schema_of(row), is_leaf);
    let place =
        json!({"name": name, "namespace": if row.is_namespaced() { "default" } else { "" }, "uid": name});
    for (field, value) in place.as_object().unwrap() {
        object["metadata"][field] = value.clone();
    }
    for field in ["deletionTimestamp", "resourceVersion", "generation"] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    object["apiVersion"] = row.api_version().into();
    object["kind"] = (*row.kind).into();
    object
}

fn resource_of(row: &Row) -> ResourceRef {
    ResourceRef {
        group: row.group.to_string(),
        version: row.version.to_string(),
        kind: row.kind.to_string(),
        plural: row.plural.to_string(),
        namespaced: row.is_namespaced(),
    }
}

/// What the gauge of left-out objects says, by resource.
fn left_out(metrics: &ClientMetrics) -> BTreeMap<String, u64> {
    let text = metrics.registry().render();
    let lines = text.lines().filter_map(|line| line.strip_prefix("knarr_informer_undecodable_objects{"));
    let parsed = lines.map(|line| {
        let (labels, count) = line.rsplit_once(' ').unwrap();
        let resource = labels.rsplit_once("resource=\"").unwrap().1.trim_end_matches(['"', '}']);
        (resource.to_owned(), count.parse().unwrap())
    });
    parsed.filter(|(_, count)| *count > 0).collect()
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let found = tokio::time::timeout(Duration::from_secs(30), future).await;
    found.unwrap_or_else(|_| panic!("{what} did not happen"))
}

#[tokio::test]
async fn informers_follow_past_whatever_lies_in_the_store() {
    let fixture = Fixture::new().await;
    let metrics = ClientMetrics::new(fixture.server.server.metrics());
    let informers = fixture.informers(&metrics);
    let rows: Vec<_> = stored().filter(|row| row.storage_api_version == row.api_version()).collect();
    // Some is there before the first list, some comes over the watch.
    for (name, is_leaf) in [("leaf", true), ("inner", false)] {
        let mut revisions = Vec::new();
        for row in &rows {
            revisions.push(fixture.put(row, &full_of_nulls(row, name, is_leaf)).await);
        }
        for (row, revision) in rows.iter().zip(revisions) {
            let names = soon(&row.plural, (type_of(row).reached)(informers.clone(), revision)).await;
            assert!(names.iter().any(|found| found == name), "{}: {names:?}", row.plural);
            let metadata = informers.metadata(&resource_of(row));
            soon(&row.plural, metadata.reached(revision)).await;
            assert!(metadata.list().iter().any(|found| found.metadata.name.as_deref() == Some(name)));
        }
    }
    assert_eq!(left_out(&metrics), BTreeMap::new());

    // What nobody can decode is left out alone, and told on the object.
    for row in &rows {
        let mut poison =
            json!({"metadata": {"name": "poison"}, "kind": row.kind, "apiVersion": row.api_version()});
        poison["metadata"]["labels"] = json!(["no", "map"]);
        poison["metadata"]["namespace"] = if row.is_namespaced() { "default" } else { "" }.into();
        fixture.put(row, &poison).await;
        let revision = fixture.put(row, &full_of_nulls(row, "after", true)).await;
        let names = soon(&row.plural, (type_of(row).reached)(informers.clone(), revision)).await;
        assert!(names.iter().any(|found| found == "after"), "{}: {names:?}", row.plural);
        assert!(!names.iter().any(|found| found == "poison"), "{}: {names:?}", row.plural);
    }
    assert!(left_out(&metrics).values().sum::<u64>() >= u64::try_from(rows.len()).unwrap());
    let ready = fixture.server.call("GET", "/readyz?verbose", "").await.body;
    assert!(ready.as_str().unwrap().contains("[+]informer-sync/tester ok\n"), "{ready}");
    let live = fixture.server.call("GET", "/livez?verbose", "").await.body;
    assert!(!live.as_str().unwrap().contains("informer-sync/"), "{live}");
    let checks = Checks::of(metrics.registry()).all();
    assert!(matches!(checks.as_slice(), [(name, Ok(()))] if name == "informer-sync/tester"), "{checks:?}");
    let events = informers.informer::<Followed<k8s_openapi::api::core::v1::Event>>();
    let mut changes = events.subscribe();
    soon("an event on the Pod", async {
        let is_told = |event: &k8s_openapi::api::core::v1::Event| {
            let on = &event.involved_object;
            let is_on_pod = on.kind.as_deref() == Some("Pod") && on.name.as_deref() == Some("poison");
            is_on_pod && event.reason.as_deref() == Some("FailedDecoding")
        };
        while !events.list().iter().any(|event| is_told(&event.0)) {
            changes.next().await;
        }
    })
    .await;

    // A version that can be decoded is taken in again.
    for row in &rows {
        let revision = fixture.put(row, &full_of_nulls(row, "poison", true)).await;
        let names = soon(&row.plural, (type_of(row).reached)(informers.clone(), revision)).await;
        assert!(names.iter().any(|found| found == "poison"), "{}: {names:?}", row.plural);
    }
    assert_eq!(left_out(&metrics), BTreeMap::new());
    fixture.server.stop().await;
}

#[tokio::test]
async fn controllers_and_scheduler_go_on_among_objects_full_of_nulls() {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        before(info);
    }));
    let fixture = Fixture::new().await;
    let rows = || stored().filter(|row| row.storage_api_version == row.api_version());
    for (name, is_leaf) in [("leaf", true), ("inner", false)] {
        for row in rows() {
            fixture.put(row, &full_of_nulls(row, name, is_leaf)).await;
        }
    }
    let informers = fixture.informers(&ClientMetrics::default());
    let engine = Engine::new(informers.clone(), "controllermanager");
    controllers::known().for_each(|row| engine.start(*row));
    let tasks = informers.tasks().clone();
    let run = scheduler::run(
        scheduler::Configuration::default(),
        informers.clone(),
        Reporter::disabled(),
        tasks.clone(),
    );
    tasks.spawn("scheduler", run);

    let node = json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": null}]}});
    let made = fixture.server.call("POST", "/api/v1/nodes", &node.to_string()).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let set = "{metadata: {name: probe}, spec: {replicas: 1, selector: {matchLabels: {app: probe}}, template: {\
        metadata: {labels: {app: probe}}, spec: {tolerations: [{operator: Exists}], containers: [{name: c, image: i}]}}}}";
    let service = "{metadata: {name: probe}, spec: {selector: {app: probe}, ports: [{port: 80}]}}";
    for (path, body) in [("/apis/apps/v1/namespaces/default/replicasets", set), (SERVICES, service)] {
        let made = fixture.server.call("POST", path, body).await;
        assert_eq!(made.code, 201, "{}", made.body);
    }
    let pods = informers.informer::<k8s_openapi::api::core::v1::Pod>();
    let mut changes = pods.subscribe();
    soon("the probe's Pod on a Node", async {
        let is_bound = |pod: &k8s_openapi::api::core::v1::Pod| {
            let is_probe = pod.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key("app"));
            is_probe && pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
        };
        while !pods.list().iter().any(|pod| is_bound(pod)) {
            changes.next().await;
        }
    })
    .await;
    let slices = informers.informer::<k8s_openapi::api::discovery::v1::EndpointSlice>();
    let mut changes = slices.subscribe();
    soon("the probe's EndpointSlice", async {
        while !slices.list().iter().any(|slice| slice.metadata.generate_name.as_deref() == Some("probe-")) {
            changes.next().await;
        }
    })
    .await;
    assert_eq!(PANICS.load(Ordering::SeqCst), 0);
    fixture.server.stop().await;
}

const SERVICES: &str = "/api/v1/namespaces/default/services";
