use super::*;
use crate::at_rest::Unreadable;
use crate::cache::event::{EVENTS_BYTES_MAX, EVENTS_MAX, EVENTS_MIN};

fn object(name: &str, revision: Revision) -> Arc<CachedObject> {
    let key = format!("/registry/pods/a/{name}");
    let stored = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
    Arc::new(CachedObject::from_stored(key.as_str().into(), stored.as_bytes(), revision).unwrap())
}

fn put(cache: &ResourceCache, name: &str, revision: Revision) {
    let object = object(name, revision);
    cache.apply(&object.key.clone(), revision, Change::Put(object));
}

fn names(listing: &Listing) -> Vec<String> {
    listing.objects.iter().map(|o| format!("{}@{}", o.name(), o.revision)).collect()
}

#[test]
fn the_past_is_rebuilt_from_the_ring() {
    let cache = ResourceCache::new(Keys::below("/registry/pods/"), 0);
    put(&cache, "x", 1);
    put(&cache, "y", 2);
    put(&cache, "x", 3);
    cache.apply("/registry/pods/a/y", 4, Change::Delete(Some(object("y", 4))));
    assert_eq!(names(&cache.list("/registry/pods/", 0)), ["x@3"]);
    assert_eq!(names(&cache.list_at("/registry/pods/", 2).unwrap()), ["x@1", "y@2"]);
    assert_eq!(names(&cache.list_at("/registry/pods/", 3).unwrap()), ["x@3", "y@2"]);
    assert_eq!(names(&cache.list_at("/registry/pods/", 0).unwrap()), Vec::<String>::new());
}

#[tokio::test]
async fn what_cannot_be_read_is_an_error_until_it_can() {
    let cache = Arc::new(ResourceCache::new(Keys::below("/registry/pods/"), 0));
    put(&cache, "x", 1);
    put(&cache, "y", 2);
    let mut watcher = cache.watch(2, IndexKey::Everything);
    let key = "/registry/pods/a/y";
    cache.apply(key, 3, Change::Lose(Unreadable("no key".into())));
    assert_eq!(watcher.next().await.unwrap_err().reason, "Expired");
    assert_eq!(cache.read(key).unwrap_err().message, "Internal error occurred: no key");
    assert!(cache.check_readable("/registry/pods/a/").is_err());
    assert!(cache.check_readable("/registry/pods/b/").is_ok());
    assert!(cache.read("/registry/pods/a/x").unwrap().is_some());
    put(&cache, "y", 4);
    assert!(cache.read(key).unwrap().is_some() && !cache.is_unreadable());
    cache.apply(key, 5, Change::Lose(Unreadable("no key".into())));
    cache.apply(key, 6, Change::Delete(None));
    assert!(cache.read(key).unwrap().is_none() && !cache.is_unreadable());
}

#[test]
fn large_objects_are_not_remembered_as_often() {
    let cache = ResourceCache::new(Keys::below("/registry/pods/"), 0);
    let key = "/registry/pods/a/x";
    let put = |revision, bytes: usize| {
        let stored = format!(r#"{{"metadata":{{"name":"x"}},"data":"{}"}}"#, "x".repeat(bytes));
        let object = CachedObject::from_stored(key.into(), stored.as_bytes(), revision).unwrap();
        cache.apply(key, revision, Change::Put(Arc::new(object)));
        let state = cache.state.read();
        assert_eq!(state.ring_bytes, state.ring.iter().map(|event| event.object.json.len()).sum::<usize>());
        (state.ring.len(), state.ring_bytes)
    };
    let large = EVENTS_BYTES_MAX / (4 * EVENTS_MIN);
    let last = (1..=1000).fold((0, 0), |_, revision| put(revision, large));
    assert!(last.0 < 4 * EVENTS_MIN && last.1 <= EVENTS_BYTES_MAX, "{last:?}");
    assert!(last.0 > 3 * EVENTS_MIN, "{last:?}");
    let oldest = 1000 - last.0 as u64;
    assert!(cache.list_at(key, oldest).is_ok());
    assert_eq!(cache.list_at(key, oldest - 1).unwrap_err().reason, "Expired");
    // So many are kept, however large they are.
    assert_eq!((1001..=1300).fold((0, 0), |_, revision| put(revision, large * 5)).0, EVENTS_MIN);
}

#[tokio::test]
async fn a_slow_watcher_holds_nobody_up_and_keeps_nothing() {
    let cache = Arc::new(ResourceCache::new(Keys::below("/registry/pods/"), 0));
    let mut slow = cache.watch(0, IndexKey::Everything);
    let mut fast = cache.watch(0, IndexKey::Everything);
    let all = EVENTS_MAX as u64 + 100;
    let mut seen = 0;
    for revision in 1..=all {
        put(&cache, "x", revision);
        seen += fast.next().await.unwrap().len() as u64;
    }
    assert_eq!(seen, all);
    assert_eq!(cache.state.read().ring.len(), EVENTS_MAX, "what is kept does not depend on watchers");
    assert_eq!(slow.next().await.unwrap_err().reason, "Expired");
    let mut late = cache.watch(all - 300, IndexKey::Everything);
    assert_eq!(late.next().await.unwrap().len(), BATCH_EVENTS_MAX, "a little at a time");
    assert_eq!(late.next().await.unwrap().len(), 300 - BATCH_EVENTS_MAX);
}

#[tokio::test]
async fn a_watcher_sees_every_event_once_or_is_cut() {
    let cache = Arc::new(ResourceCache::new(Keys::below("/registry/pods/"), 0));
    let mut watcher = cache.watch(0, IndexKey::Everything);
    put(&cache, "x", 1);
    put(&cache, "x", 2);
    let seen: Vec<_> = watcher.next().await.unwrap().iter().map(|e| e.revision).collect();
    assert_eq!(seen, [1, 2]);
    assert!(watcher.take().unwrap().is_empty());
    for revision in 3..(EVENTS_MAX as u64 + 5) {
        put(&cache, "x", revision);
    }
    assert_eq!(watcher.take().unwrap_err().reason, "Expired");
}

fn loaded(objects: &[(&str, Revision)], revision: Revision) -> Loaded {
    let objects = objects.iter().map(|(name, revision)| object(name, *revision)).collect();
    Loaded { objects, unreadable: Vec::new(), revision }
}

#[test]
fn a_cache_that_is_loaded_has_what_was_read_and_what_has_happened_since() {
    let cache = ResourceCache::loading(Keys::below("/registry/pods/"), 0);
    for (name, revision) in [("x", 3), ("y", 5), ("z", 7)] {
        put(&cache, name, revision);
    }
    cache.apply("/registry/pods/a/x", 8, Change::Delete(Some(object("x", 8))));
    assert!(cache.is_loading() && cache.is_empty());
    assert!(cache.join(loaded(&[("x", 3), ("y", 5), ("old", 2)], 6)));
    assert_eq!(names(&cache.list("/registry/pods/", 0)), ["old@2", "y@5", "z@7"]);
    assert_eq!(names(&cache.list_at("/registry/pods/", 6).unwrap()), ["old@2", "x@3", "y@5"]);
    assert!(cache.list_at("/registry/pods/", 5).is_err(), "what was before is not known");
    put(&cache, "x", 9);
    assert_eq!(cache.list("/registry/pods/", 0).revision, 9);
}

#[test]
fn a_cache_with_too_much_to_keep_is_read_again() {
    let cache = ResourceCache::loading(Keys::below("/registry/pods/"), 0);
    let all = EVENTS_MAX as u64 + 1;
    (1..=all).for_each(|revision| put(&cache, "x", revision));
    assert!(!cache.join(loaded(&[("x", 1)], 1)), "what followed was dropped");
    put(&cache, "x", all + 2);
    assert!(cache.join(loaded(&[("x", all + 1)], all + 1)));
    assert_eq!(names(&cache.list("/registry/pods/", 0)), [format!("x@{}", all + 2)]);
}

#[tokio::test]
async fn what_is_gone_tells_what_is_left_and_ends() {
    let cache = Arc::new(ResourceCache::new(Keys::below("/registry/pods/"), 0));
    let mut watcher = cache.watch(0, IndexKey::Everything);
    put(&cache, "x", 1);
    cache.end();
    put(&cache, "y", 2);
    assert_eq!(watcher.next().await.unwrap().len(), 1);
    assert_eq!(watcher.next().await.unwrap_err().code, 404);
    assert!(watcher.is_over() && cache.is_empty());
    assert_eq!(cache.read("/registry/pods/a/x").unwrap_err().code, 404);
    assert_eq!(cache.read_list("/registry/pods/", 0).unwrap_err().code, 404);
    assert_eq!(cache.list_at("/registry/pods/", 1).unwrap_err().code, 404);
    cache.reset(loaded(&[("x", 3)], 3));
    assert!(cache.is_gone() && cache.is_empty(), "nothing comes back");
}

#[test]
fn every_stored_kind_has_the_name_that_configurations_have_for_it() {
    let check = |keys: Keys, expect: (&str, &str)| assert_eq!((&*keys.group, &*keys.resource), expect);
    let of = |group, version, plural| Keys::of_row(resources::find(group, version, plural).unwrap());
    check(of("", "v1", "secrets"), ("", "secrets"));
    check(of("", "v1", "services"), ("", "services"));
    check(of("apps", "v1", "deployments"), ("apps", "deployments"));
    check(of("autoscaling", "v1", "horizontalpodautoscalers"), ("autoscaling", "horizontalpodautoscalers"));
    check(of("events.k8s.io", "v1", "events"), ("", "events"));
    check(Keys::below("/registry/bears.example/pandas/"), ("bears.example", "pandas"));
    check(Keys::below("/registry/masterleases/"), ("", "masterleases"));
}
