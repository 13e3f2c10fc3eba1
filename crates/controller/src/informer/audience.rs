//! Those who are told of an informer's changes by one task, each in turn.
//!
//! Two dozen controllers follow Pods, and nearly all changes of a Pod mean nothing to most of them: a task each, woken for every
//! change, would cost more than what all of them do. Whoever comes is told first of everything that is there; a change from
//! just before may be told after that again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Change, Changes, Kind, Objects, key_of_object, revision_of};

/// Changes that are told before others may run.
const CHANGES_AT_ONCE: usize = 32;

/// Whoever is told of changes. It must not wait for anything.
pub(crate) type Ear<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;

/// See the module.
pub(crate) struct Audience<K> {
    hall: Mutex<Hall<K>>,
    arrived: Notify,
}

struct Hall<K> {
    newcomers: Vec<Ear<K>>,
    has_speaker: bool,
}

impl<K> Default for Audience<K> {
    fn default() -> Self {
        Self { hall: Mutex::new(Hall { newcomers: Vec::new(), has_speaker: false }), arrived: Notify::new() }
    }
}

impl<K> Audience<K> {
    /// Takes one more; says whether nobody speaks to them yet.
    pub(super) fn join(&self, ear: Ear<K>) -> bool {
        let mut hall = self.hall.lock();
        hall.newcomers.push(ear);
        let is_first = !std::mem::replace(&mut hall.has_speaker, true);
        drop(hall);
        self.arrived.notify_one();
        is_first
    }

    fn newcomers(&self) -> Vec<Ear<K>> {
        std::mem::take(&mut self.hall.lock().newcomers)
    }
}

/// Speaks to an informer's audience for ever.
pub(super) async fn speak<K: Kind>(objects: Arc<dyn Objects<K>>) {
    let mut changes = Changes::of(&objects);
    let audience = objects.audience();
    let mut ears: Vec<Ear<K>> = Vec::new();
    let mut news = Vec::new();
    loop {
        // While nobody listens, what has changed is told by what is there.
        tell(&mut ears, news).await;
        let mut newcomers = audience.newcomers();
        if !newcomers.is_empty() {
            tell(&mut ears, changes.take()).await;
            let all = objects.list().into_iter().map(|object| {
                let meta = object.metadata();
                let (key, revision) = (key_of_object(meta), revision_of(meta));
                Change { key, old: None, new: Some(object), revision }
            });
            tell(&mut newcomers, all.collect()).await;
            ears.extend(newcomers);
        }
        news = tokio::select! {
            biased;
            news = changes.next() => news,
            () = audience.arrived.notified() => Vec::new(),
        };
    }
}

/// Whoever panics is told nothing more, and nobody else hears of it.
async fn tell<K>(ears: &mut Vec<Ear<K>>, changes: Vec<Change<K>>) {
    for (number, change) in changes.into_iter().enumerate() {
        ears.retain(|ear| {
            let heard = catch_unwind(AssertUnwindSafe(|| ear(&change)));
            if heard.is_err() {
                tracing::error!(
                    key = change.key,
                    "whoever was told of a change panicked, and is told no more"
                );
            }
            heard.is_ok()
        });
        if number % CHANGES_AT_ONCE == CHANGES_AT_ONCE - 1 {
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use base::Tasks;
    use k8s_openapi::api::core::v1::Pod;
    use tokio::sync::mpsc;

    use super::*;
    use crate::Informer;
    use crate::informer::follower::Follower;
    use crate::informer::shared::Shared;

    fn pod(name: &str, revision: u64) -> Pod {
        let pod = serde_json::json!({"metadata": {"name": name, "resourceVersion": revision.to_string()}});
        serde_json::from_value(pod).expect("a Pod")
    }

    /// Joins under a name; what is heard is `name: revision of the old>revision of the new`.
    fn join(
        informer: &Informer<Pod>,
        tasks: &Tasks,
        name: &'static str,
        heard: &mpsc::UnboundedSender<String>,
    ) {
        let heard = heard.clone();
        let part = |pod: &Option<Arc<Pod>>| pod.as_ref().map_or(0, |pod| revision_of(&pod.metadata));
        let ear = move |change: &Change<Pod>| {
            heard
                .send(format!("{name}: {}>{}", part(&change.old), part(&change.new)))
                .expect("somebody asks");
        };
        informer.tell(tasks, Box::new(ear));
    }

    async fn check(heard: &mut mpsc::UnboundedReceiver<String>, expect: &[&str]) {
        for expect in expect {
            assert_eq!(heard.recv().await.as_deref(), Some(*expect));
        }
        assert!(heard.try_recv().is_err());
    }

    #[tokio::test]
    async fn whoever_comes_hears_what_is_there_and_then_with_all_others_what_changes() {
        let shared = Arc::new(Shared::<Pod>::new(Arc::new(Follower::unwatched()), None));
        let informer = Informer { objects: shared.clone() };
        let (sender, mut heard) = mpsc::unbounded_channel();
        let tasks = Tasks::new();
        shared.replace(vec![pod("a", 2)], Vec::new(), 2);
        join(&informer, &tasks, "first", &sender);
        check(&mut heard, &["first: 0>2"]).await;
        shared.replace(vec![pod("a", 3)], Vec::new(), 3);
        join(&informer, &tasks, "second", &sender);
        check(&mut heard, &["first: 2>3", "second: 0>3"]).await;
        shared.replace(vec![pod("a", 4)], Vec::new(), 4);
        shared.replace(vec![pod("a", 5)], Vec::new(), 5);
        check(&mut heard, &["first: 3>5", "second: 3>5"]).await;
        shared.replace(Vec::new(), Vec::new(), 6);
        check(&mut heard, &["first: 5>0", "second: 5>0"]).await;
    }

    #[tokio::test]
    async fn whoever_panics_keeps_nobody_from_hearing() {
        let shared = Arc::new(Shared::<Pod>::new(Arc::new(Follower::unwatched()), None));
        let informer = Informer { objects: shared.clone() };
        let (sender, mut heard) = mpsc::unbounded_channel();
        let tasks = Tasks::new();
        informer.tell(&tasks, Box::new(|_| panic!("it is a bad day")));
        join(&informer, &tasks, "other", &sender);
        for revision in [2, 3] {
            shared.replace(vec![pod("a", revision)], Vec::new(), revision);
            let expect = if revision == 2 { "other: 0>2" } else { "other: 2>3" };
            check(&mut heard, &[expect]).await;
        }
    }
}
