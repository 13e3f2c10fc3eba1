//! Kinds that come and go while the server runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use apiserver::cache::{Keys, ResourceCache};
use apiserver::catalogue::{Asked, Delegate};
use apiserver::catalogue::{ChangeError, Offer};
use apiserver::kinds::Kind;
use apiserver::respond::Body;
use apiserver::status::Error;
use auth::UserInfo;
use futures::future::BoxFuture;
use http_body_util::BodyExt;
use machinery::field::{FieldError, FieldErrors, Path};
use resources::columns::{Cell, Column, Description};
use resources::fields::SelectableField;
use resources::{Resource, Rules, Scope, Strategy};
use serde_json::{Value, json};
use store::embedded::{Embedded, Options};
use store::{Change, Durability, Expect, Store, Write};

use crate::server::{self, TestServer, start, start_on};

const GROUP: &str = "example.com";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
const PREFIX: &str = "/registry/example.com/widgets/";
const WIDGET: (&str, &str, &str) = (GROUP, "v1", "widgets");

/// Data that has a colour has one that there is.
#[derive(Debug)]
struct Colours(&'static [&'static str]);

impl Rules for Colours {
    fn validate_create(&self, new: &Value) -> FieldErrors {
        let Some(colour) = new.pointer("/data/colour").and_then(Value::as_str) else {
            return FieldErrors::new();
        };
        match self.0.contains(&colour) {
            true => FieldErrors::new(),
            false => FieldError::invalid(&Path::new("data").child("colour"), colour, "no such colour").into(),
        }
    }

    fn validate_update(&self, new: &Value, _: &Value) -> FieldErrors {
        self.validate_create(new)
    }

    fn validate_status_update(&self, _: &Value, _: &Value) -> FieldErrors {
        FieldErrors::new()
    }
}

/// A kind of this test, whose objects look like ConfigMaps.
fn offer(plural: &str, singular: &str, kind: &str, colours: &'static [&'static str]) -> Offer {
    let mut row = Resource::made((GROUP, "v1"), plural, singular, kind, Scope::Namespaced);
    row.short_names = ["wd"].into_iter().collect();
    row.strategy =
        Strategy { rules: Some(Arc::new(Colours(colours))), ..resources::strategies::CONTENT }.into();
    let colour = |object: &Value, _| object.pointer("/data/colour").cloned().unwrap_or_default();
    let column = Column {
        name: "Colour".into(),
        r#type: "string".into(),
        format: "".into(),
        priority: 0,
        told: Description::Text("The colour.".into()),
        cell: Cell::Made(Arc::new(colour)),
    };
    row.columns = vec![resources::columns::GENERIC[0].clone(), column].into();
    row.selectable_fields = vec![SelectableField {
        label: "data.colour".into(),
        pointer: "/data/colour".into(),
        fallback: "".into(),
        absent: "".into(),
    }]
    .into();
    Offer::new(row, schema::builtin().kind("", "v1", "ConfigMap").map(Into::into))
}

fn widgets() -> Offer {
    offer("widgets", "widget", "Widget", &["red", "green"])
}

fn widget(name: &str, colour: &str) -> String {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "data": {"colour": colour}})
        .to_string()
}

async fn follow(server: &TestServer, path: &str) -> Body {
    let response = server::send(server.server.service(), Some(server::admin()), "GET", path, &[], "").await;
    assert_eq!(response.status(), 200, "{path}");
    response.into_body()
}

/// What a watch tells until it ends.
async fn told(mut body: Body) -> Vec<String> {
    let mut text = String::new();
    while let Some(frame) = body.frame().await {
        text.push_str(std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap());
    }
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let shown =
        |event: Value| format!("{} {}", event["type"].as_str().unwrap(), event["object"]["metadata"]["name"]);
    events.map(shown).collect()
}

#[tokio::test]
async fn a_kind_comes_is_used_and_goes() {
    let server = start(None).await;
    let catalogue = server.server.catalogue();
    assert_eq!(server.call("GET", WIDGETS, "").await.code, 404);
    let before = documents(&server).await;
    catalogue.add(vec![widgets()]).await.unwrap();
    let with = documents(&server).await;
    assert_ne!(before.0, with.0, "the tag of aggregated discovery");
    assert_eq!((before.1, with.1), (false, true), "there is a document of the group-version");

    // Discovery and OpenAPI know it.
    let list = server.call("GET", "/apis/example.com/v1", "").await.body;
    let found = &list["resources"][0];
    assert_eq!((&found["name"], &found["shortNames"]), (&json!("widgets"), &json!(["wd"])));
    assert_eq!(server.call("GET", "/apis/example.com", "").await.body["preferredVersion"]["version"], "v1");
    let path = "/apis/example.com/v1/namespaces/{namespace}/widgets/{name}";
    let third = server.call("GET", "/openapi/v3/apis/example.com/v1", "").await.body;
    crate::discovery::check_references(&third, &third["components"]["schemas"], "#/components/schemas/");
    assert!(third["paths"][path]["patch"].is_object(), "{third}");
    let second = server.call("GET", "/openapi/v2", "").await.body;
    assert!(second["paths"][path]["get"].is_object());

    // It is written, read and followed as any other.
    let body = follow(&server, &format!("{WIDGETS}?watch=true&resourceVersion=0")).await;
    let selected = follow(&server, &format!("{WIDGETS}?watch=true&fieldSelector=data.colour%3Dgreen")).await;
    let red = server.call("POST", WIDGETS, &widget("a", "red")).await;
    assert_eq!((red.code.as_u16(), &red.body["metadata"]["generation"]), (201, &json!(1)), "{}", red.body);
    let blue = server.call("POST", WIDGETS, &widget("b", "blue")).await;
    let expect = "Widget.example.com \"b\" is invalid: data.colour: Invalid value: \"blue\": no such colour";
    assert_eq!((blue.code.as_u16(), blue.body["message"].as_str()), (422, Some(expect)));
    let one = format!("{WIDGETS}/a");
    let green = server.call("PATCH", &one, r#"{"data": {"colour": "green"}}"#).await;
    assert_eq!((green.code.as_u16(), &green.body["metadata"]["generation"]), (200, &json!(2)));
    let apply = [("content-type", "application/apply-patch+yaml")];
    let own = r#"{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "data": {"size": "3"}}"#;
    let applied = server.call_with("PATCH", &format!("{one}?fieldManager=me"), &apply, own).await;
    assert_eq!(
        (applied.code.as_u16(), &applied.body["data"]),
        (200, &json!({"colour": "green", "size": "3"}))
    );
    let other = own.replace("\"size\": \"3\"", "\"size\": \"4\"");
    let conflict = server.call_with("PATCH", &format!("{one}?fieldManager=you"), &apply, &other).await;
    assert_eq!(conflict.code, 409, "{}", conflict.body);
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let table = server.call_with("GET", WIDGETS, &table, "").await.body;
    assert_eq!(table["rows"][0]["cells"], json!(["a", "green"]));
    for (colour, count) in [("green", 1), ("red", 0)] {
        let found =
            server.call("GET", &format!("{WIDGETS}?fieldSelector=data.colour%3D{colour}"), "").await.body;
        assert_eq!(found["items"].as_array().unwrap().len(), count, "{colour}");
    }

    // It changes, and nobody who follows it is cut.
    catalogue.replace(vec![offer("widgets", "widget", "Widget", &["blue"])]).await.unwrap();
    assert_eq!(server.call("POST", WIDGETS, &widget("b", "blue")).await.code, 201);
    assert_eq!(server.call("POST", WIDGETS, &widget("c", "red")).await.code, 422);

    // It goes, and with it whoever follows it, what is told of it, and all memory of it.
    let cache = Arc::downgrade(catalogue.current().find(GROUP, "v1", "widgets").unwrap().cache());
    catalogue.remove(&[WIDGET]).await.unwrap();
    assert_eq!(told(body).await, ["ADDED \"a\"", "MODIFIED \"a\"", "MODIFIED \"a\"", "ADDED \"b\""]);
    assert_eq!(told(selected).await, ["ADDED \"a\"", "MODIFIED \"a\""]);
    let gone = server.call("GET", &one, "").await;
    assert_eq!(gone.code, 404);
    assert_eq!(documents(&server).await, before);
    assert!(cache.upgrade().is_none(), "nothing keeps the objects");

    // What was stored is there when it comes again.
    catalogue.add(vec![widgets()]).await.unwrap();
    assert_eq!(server.call("GET", &one, "").await.body["data"]["colour"], "green");
    server.stop().await;
}

#[tokio::test]
async fn other_fields_are_found_by_at_once() {
    let server = start(None).await;
    let catalogue = server.server.catalogue();
    catalogue.add(vec![widgets()]).await.unwrap();
    assert_eq!(server.call("POST", WIDGETS, &widget("a", "red")).await.code, 201);
    let find =
        async |selector: &str| server.call("GET", &format!("{WIDGETS}?fieldSelector={selector}"), "").await;
    assert_eq!(find("data.colour%3Dred").await.body["items"][0]["metadata"]["name"], "a");
    assert_eq!(find("kind%3DWidget").await.code, 400);
    let body = follow(&server, &format!("{WIDGETS}?watch=true&fieldSelector=data.colour%3Dred")).await;
    let mut other = widgets();
    let field = SelectableField {
        label: "kind".into(),
        pointer: "/kind".into(),
        ..other.row.selectable_fields[0].clone()
    };
    other.row.selectable_fields = vec![field].into();
    catalogue.replace(vec![other]).await.unwrap();
    assert_eq!(told(body).await, ["ADDED \"a\""], "who looks for what cannot be looked for is sent away");
    assert_eq!(find("kind%3DWidget").await.body["items"][0]["metadata"]["name"], "a");
    assert_eq!(find("kind%3DGadget").await.body["items"], json!([]));
    assert_eq!(find("data.colour%3Dred").await.code, 400);
    server.stop().await;
}

/// Serves a group-version with one word.
struct Word(Vec<Kind>);

impl Delegate for Word {
    fn group_version(&self) -> (&str, &str) {
        (GROUP, "v1")
    }

    fn kinds(&self) -> &[Kind] {
        &self.0
    }

    fn openapi(&self) -> Vec<u8> {
        br#"{"openapi": "3.0.0", "info": {"title": "a word", "version": "1"}}"#.to_vec()
    }

    fn serve(&self, asked: Asked) -> BoxFuture<'_, Result<http::Response<Body>, Error>> {
        let said =
            json!({"kind": "Word", "user": asked.permit.user().name, "resource": asked.resource.resource});
        Box::pin(async move { Ok(apiserver::respond::json(http::StatusCode::OK, &said)) })
    }
}

#[tokio::test]
async fn a_group_version_of_somebody_else_comes_before_kinds() {
    let server = start(None).await;
    let catalogue = server.server.catalogue();
    catalogue.add(vec![widgets()]).await.unwrap();
    let row = Resource::made((GROUP, "v1"), "words", "word", "Word", Scope::Cluster);
    let nothing = ResourceCache::new(Keys::of_row(&row), 0);
    catalogue.delegate(Arc::new(Word(vec![Kind::new(row, None, Arc::new(nothing))]))).await;
    let found = server.call("GET", WIDGETS, "").await;
    assert_eq!(found.body, json!({"kind": "Word", "user": "admin", "resource": "widgets"}));
    let nobody = UserInfo { name: "nobody".into(), ..UserInfo::default() };
    let refused = server::send(server.server.service(), Some(nobody), "GET", WIDGETS, &[], "").await;
    assert_eq!(refused.status(), 403);
    let listed = server.call("GET", "/apis/example.com/v1", "").await.body;
    assert_eq!(
        (&listed["resources"][0]["name"], listed["resources"].as_array().unwrap().len()),
        (&json!("words"), 1)
    );
    let third = server.call("GET", "/openapi/v3/apis/example.com/v1", "").await.body;
    assert_eq!(third["info"]["title"], "a word");
    let second = server.call("GET", "/openapi/v2", "").await.body;
    assert!(second["paths"]["/apis/example.com/v1/namespaces/{namespace}/widgets"].is_null());
    catalogue.withdraw((GROUP, "v1")).await;
    assert_eq!(server.call("GET", WIDGETS, "").await.body["kind"], "WidgetList");
    server.stop().await;
}

/// The tag of aggregated discovery, and whether OpenAPI has a document of the group-version.
async fn documents(server: &TestServer) -> (String, bool) {
    let accept = [("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")];
    let response =
        server::send(server.server.service(), Some(server::admin()), "GET", "/apis", &accept, "").await;
    let tag = response.headers()["etag"].to_str().unwrap().to_owned();
    let index = server.call("GET", "/openapi/v3", "").await.body;
    (tag, index["paths"]["apis/example.com/v1"].is_object())
}

#[tokio::test]
async fn a_change_that_cannot_be_leaves_everything_as_it_was() {
    let server = start(None).await;
    let catalogue = server.server.catalogue();
    let generation = catalogue.current().generation();
    let check = |found: Result<(), ChangeError>, expect: &str| {
        assert_eq!(found.unwrap_err().to_string(), expect);
    };
    check(catalogue.remove(&[WIDGET]).await, "widgets.v1.example.com is not served");
    check(catalogue.add(vec![widgets(), widgets()]).await, "widgets.v1.example.com is served already");
    check(
        catalogue.add(vec![offer("gadgets", "gadget", "Widget", &[]), widgets()]).await,
        "widgets.v1.example.com is served already",
    );
    for (prefix, other) in [
        ("/registry/pods/widgets/", "/registry/pods/"),
        ("/registry/services/", "/registry/services/endpoints/"),
        ("/registry/widgets", "/registry/widgets"),
        ("/registry/a/b/c/", "/registry/a/b/c/"),
    ] {
        let mut offer = widgets();
        offer.row.storage_prefix = prefix.into();
        let why =
            format!("objects of widgets.v1.example.com cannot be told from others by their keys: {other}");
        check(catalogue.add(vec![offer]).await, &why);
    }
    assert_eq!(catalogue.current().generation(), generation);
    server.stop().await;
}

fn put(key: &str, expect: Expect, colour: &str) -> Write {
    let name = key.rsplit('/').next().unwrap();
    let value = json!({"metadata": {"name": name, "namespace": "default", "uid": name},
        "apiVersion": "example.com/v1", "kind": "Widget", "data": {"colour": colour}});
    let change = Change::Put { value: value.to_string().into(), ttl_seconds: None };
    Write {
        key: key.to_owned(),
        expect,
        change,
        durability: Durability::Relaxed,
        cause: Default::default(),
        only_while: None,
    }
}

/// Changes, makes and removes a few objects until it is told to stop.
async fn write_until(store: Arc<dyn Store>, is_over: Arc<AtomicBool>) {
    let mut revisions: BTreeMap<String, u64> = BTreeMap::new();
    for step in 0_usize.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let key = format!("{PREFIX}default/w{}", step * 7 % 13);
        let held = revisions.remove(&key);
        match held {
            Some(revision) if step % 3 == 0 => {
                let (expect, change) = (Expect::Revision(revision), Change::Delete);
                let write = Write { change, ..put(&key, expect, "") };
                store.commit(write).await.unwrap();
            }
            held => {
                let expect = held.map_or(Expect::Absent, Expect::Revision);
                let revision = store.commit(put(&key, expect, &step.to_string())).await.unwrap();
                revisions.insert(key, revision);
            }
        }
        tokio::task::yield_now().await;
    }
}

/// What a cache holds is what the store had at the same revision.
async fn agrees(store: &dyn Store, kind: &Kind) -> u64 {
    let listing = kind.cache().list(PREFIX, 0);
    let page =
        store.range(PREFIX, "/registry/example.com/widgets0", Some(listing.revision), 0).await.unwrap();
    let stored: Vec<_> = page.entries.iter().map(|entry| (entry.key.as_str(), entry.revision)).collect();
    let cached: Vec<_> = listing.objects.iter().map(|object| (&*object.key, object.revision)).collect();
    assert_eq!(cached, stored, "at {}", listing.revision);
    listing.revision
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_kind_that_comes_while_others_write_misses_nothing() {
    const ROUNDS: usize = 30;
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Embedded::open(&dir.path().join("db"), Options::default()).unwrap());
    let server = start_on(Arc::clone(&store), dir, None, |_| {}).await;
    let catalogue = server.server.catalogue();
    let is_over = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn(write_until(Arc::clone(&store), Arc::clone(&is_over)));
    for round in 0..ROUNDS {
        catalogue.add(vec![widgets()]).await.unwrap();
        let snapshot = catalogue.current();
        let kind = snapshot.find(GROUP, "v1", "widgets").unwrap();
        let first = agrees(&*store, kind).await;
        let mut watcher = kind.cache().watch(first, apiserver::cache::IndexKey::Everything);
        let mut last = first;
        while last < first + 40 {
            for event in watcher.next().await.unwrap() {
                assert!(event.revision > last, "round {round}: {} after {last}", event.revision);
                last = event.revision;
            }
            agrees(&*store, kind).await;
        }
        catalogue.remove(&[WIDGET]).await.unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    writer.await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_that_race_with_changes_see_one_state() {
    const CHANGES: usize = 60;
    let server = Arc::new(start(None).await);
    let gadgets = || offer("gadgets", "gadget", "Gadget", &[]);
    let names = [WIDGET, (GROUP, "v1", "gadgets")];
    let catalogue = server.server.catalogue();
    catalogue.add(vec![widgets(), gadgets()]).await.unwrap();
    assert_eq!(server.call("POST", WIDGETS, &widget("a", "red")).await.code, 201);
    let is_over = Arc::new(AtomicBool::new(false));
    let asking = (0..3).map(|_| {
        let (server, is_over) = (Arc::clone(&server), Arc::clone(&is_over));
        tokio::spawn(async move {
            let mut seen = [0_usize; 2];
            while !is_over.load(Ordering::Relaxed) {
                let list = server.call("GET", "/apis/example.com/v1", "").await;
                let resources = list.body["resources"].as_array().map_or(0, Vec::len);
                assert!(matches!((list.code.as_u16(), resources), (200, 2) | (404, 0)), "{}", list.body);
                let found = server.call("GET", WIDGETS, "").await;
                let items = found.body["items"].as_array().map_or(0, Vec::len);
                assert!(matches!((found.code.as_u16(), items), (200, 1) | (404, 0)), "{}", found.body);
                seen[usize::from(found.code == 200)] += 1;
                let third = server.call("GET", "/openapi/v3", "").await.body;
                let paths =
                    ["apis/example.com", "apis/example.com/v1"].map(|path| third["paths"][path].is_object());
                assert_eq!(paths[0], paths[1]);
            }
            seen
        })
    });
    let asking: Vec<_> = asking.collect();
    for _ in 0..CHANGES {
        catalogue.remove(&names).await.unwrap();
        tokio::task::yield_now().await;
        catalogue.change(&[], vec![widgets(), gadgets()]).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    is_over.store(true, Ordering::Relaxed);
    let mut seen = [0; 2];
    for asked in asking {
        let [without, with] = asked.await.unwrap();
        seen = [seen[0] + without, seen[1] + with];
    }
    assert!(seen[1] > 0, "{seen:?}");
    Arc::into_inner(server).unwrap().stop().await;
}
