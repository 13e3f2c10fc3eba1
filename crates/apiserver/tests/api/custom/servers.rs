//! Several servers on one store, and a store that lets a server wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use store::embedded::{Embedded, Options};
use store::{Entry, Page, Revision, Store, StoreError, Watch, Write};
use tokio::sync::Notify;

use super::*;

const PREFIX: &str = "/registry/example.com/widgets/";

/// A store that writes widgets when it is told to, and now and then does not read them.
struct Slow {
    inner: Arc<dyn Store>,
    is_told: AtomicBool,
    reached: Notify,
    go: Notify,
    /// How many readings fail.
    fails: AtomicUsize,
    /// Whether the next who asks for the newest revision waits.
    holds: AtomicBool,
}

impl Store for Slow {
    fn commit(&self, write: Write) -> BoxFuture<'_, Result<Revision, StoreError>> {
        async move {
            if write.key.starts_with(PREFIX) && self.is_told.load(Ordering::Relaxed) {
                self.reached.notify_one();
                self.go.notified().await;
            }
            self.inner.commit(write).await
        }
        .boxed()
    }

    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Entry>, StoreError>> {
        self.inner.get(key)
    }

    fn range(
        &self,
        start: &str,
        end: &str,
        at: Option<Revision>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Page, StoreError>> {
        let one_less = |left: usize| left.checked_sub(1);
        let is_hit = start == PREFIX
            && self.fails.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok();
        if is_hit {
            return async { Err(StoreError::Unavailable("it is a test".to_owned())) }.boxed();
        }
        self.inner.range(start, end, at, limit)
    }

    fn revision(&self) -> Revision {
        self.inner.revision()
    }

    fn newest(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        async move {
            if self.holds.swap(false, Ordering::Relaxed) {
                self.reached.notify_one();
                self.go.notified().await;
            }
            self.inner.newest().await
        }
        .boxed()
    }

    fn watch(&self, after: Revision) -> BoxFuture<'_, Result<Watch, StoreError>> {
        self.inner.watch(after)
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.compact(revision)
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        async { Ok(()) }.boxed()
    }
}

/// A store and its folder.
fn slow_store(is_told: bool) -> (tempfile::TempDir, Arc<Slow>) {
    let folder = tempfile::tempdir().unwrap();
    let inner = Arc::new(Embedded::open(&folder.path().join("db"), Options::default()).unwrap());
    let (reached, go, fails) = (Notify::new(), Notify::new(), AtomicUsize::new(0));
    let (is_told, holds) = (is_told.into(), false.into());
    (folder, Arc::new(Slow { inner, is_told, reached, go, fails, holds }))
}

/// Two servers on one store; that of the second waits.
async fn two_servers() -> (TestServer, Arc<TestServer>, Arc<Slow>) {
    let (folder, slow) = slow_store(true);
    let first = server::start_on(Arc::clone(&slow.inner), folder, None, |_| {}).await;
    define(&first, &widgets()).await;
    let dir = tempfile::tempdir().unwrap();
    let second = server::start_on(Arc::clone(&slow) as Arc<dyn Store>, dir, None, |_| {}).await;
    (first, Arc::new(second), slow)
}

async fn stored(slow: &Slow) -> usize {
    let page = slow.inner.range(PREFIX, "/registry/example.com/widgets0", None, 0);
    page.await.unwrap().entries.len()
}

#[tokio::test]
async fn a_create_that_another_server_has_under_way_does_not_outlive_the_kind() {
    let (first, second, slow) = two_servers().await;
    let writer = Arc::clone(&second);
    let late = tokio::spawn(async move { post(&writer, &widget("late", json!({"size": 1}))).await });
    slow.reached.notified().await;
    let name = "widgets.example.com";
    assert_eq!(first.call("DELETE", &format!("{DEFINITIONS}/{name}"), "").await.code, 200);
    life::until("the definition is gone", async || read(&first, name).await["code"] == 404).await;
    slow.go.notify_one();
    let late = late.await.unwrap();
    assert_eq!((late.code.as_u16(), stored(&slow).await), (405, 0), "{}", late.body);
    // Nor does it come to the next kind of that name.
    define(&first, &widgets()).await;
    assert_eq!(first.call("GET", WIDGETS, "").await.body["items"], json!([]));
    first.stop().await;
}

#[tokio::test]
async fn a_create_waits_until_its_server_has_followed_the_definition() {
    let (first, second, slow) = two_servers().await;
    let writer = Arc::clone(&second);
    let late = tokio::spawn(async move { post(&writer, &widget("late", json!({"size": 1}))).await });
    slow.reached.notified().await;
    let changed = redefine(&first, "widgets.example.com", |definition| {
        definition["spec"]["names"]["categories"] = json!(["some"]);
    });
    assert_eq!(changed.await.code, 200);
    // The store says that the definition is another one now; later tries wait for nobody.
    slow.is_told.store(false, Ordering::Relaxed);
    slow.go.notify_one();
    let late = late.await.unwrap();
    assert_eq!((late.code.as_u16(), stored(&slow).await), (201, 1), "{}", late.body);
    first.stop().await;
}

#[tokio::test]
async fn a_definition_is_served_as_soon_as_the_store_hands_out_its_objects() {
    let (folder, slow) = slow_store(false);
    let server = server::start_on(Arc::clone(&slow) as Arc<dyn Store>, folder, None, |_| {}).await;
    define(&server, &widgets()).await;
    assert_eq!(post(&server, &widget("a", json!({"size": 1}))).await.code, 201);
    for (fails, name) in [(3, "soon"), (20, "later")] {
        slow.fails.store(fails, Ordering::Relaxed);
        let changed = redefine(&server, "widgets.example.com", |definition| {
            let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
            definition.pointer_mut(spec).unwrap()[name] = json!({"type": "string", "default": "yes"});
        });
        assert_eq!(changed.await.code, 200);
        let shows =
            async || server.call("GET", &format!("{WIDGETS}/a"), "").await.body["spec"][name] == "yes";
        // Its author is answered before, if that takes long, but not if it does not.
        assert!(name == "later" || shows().await);
        life::until("the object has the new default", shows).await;
        assert_eq!(post(&server, &widget(name, json!({"size": 1}))).await.code, 201);
    }
    server.stop().await;
}

#[tokio::test]
async fn what_is_under_way_when_a_definition_changes_finds_its_object() {
    let (folder, slow) = slow_store(false);
    let server = server::start_on(Arc::clone(&slow) as Arc<dyn Store>, folder, None, |_| {}).await;
    let server = Arc::new(server);
    define(&server, &widgets()).await;
    assert_eq!(post(&server, &widget("a", json!({"size": 1}))).await.code, 201);
    let merge = json!({"spec": {"size": 2}}).to_string();
    let rows = [("GET", "/a", ""), ("GET", "", ""), ("PATCH", "/a", &merge), ("DELETE", "/a", "")];
    for (number, (method, path, body)) in rows.into_iter().enumerate() {
        slow.holds.store(true, Ordering::Relaxed);
        let (asker, path, body) = (Arc::clone(&server), format!("{WIDGETS}{path}"), body.to_owned());
        let late = tokio::spawn(async move { asker.call(method, &path, &body).await });
        slow.reached.notified().await;
        // Another default: objects are read anew.
        let changed = redefine(&server, "widgets.example.com", |definition| {
            let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
            let new = json!({"type": "string", "default": "yes"});
            definition.pointer_mut(spec).unwrap()[format!("new{number}")] = new;
        });
        assert_eq!(changed.await.code, 200);
        slow.go.notify_one();
        let late = late.await.unwrap();
        assert_eq!(late.code, 200, "{method}: {}", late.body);
        if method != "DELETE" {
            let object = late.body.pointer("/items/0").unwrap_or(&late.body);
            assert_eq!(object["spec"][format!("new{number}")], "yes", "{method}: {}", late.body);
        }
    }
}
