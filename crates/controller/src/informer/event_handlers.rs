//! The event handlers of an informer: one task calls each in turn with every change.
//!
//! Two dozen controllers follow Pods, and nearly all changes of a Pod mean nothing to most of them: a task each, woken for
//! every change, would cost more than what all of them do. Whoever comes is told first of everything that is there; a change
//! from just before may be told after that again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::changes::PendingChanges;
use super::object::Object;
use super::{Change, Objects, key_of_object, revision_of};

/// Changes that are told before others may run.
const CHANGES_AT_ONCE: usize = 32;

/// What is called with every change. It must not wait for anything.
pub(super) type EventHandler = Box<dyn Fn(&Change<dyn Object>) + Send + Sync>;

/// See the module.
#[derive(Default)]
pub(crate) struct EventHandlers {
    state: Mutex<State>,
    arrived: Notify,
}

#[derive(Default)]
struct State {
    added: Vec<EventHandler>,
    has_task: bool,
}

impl EventHandlers {
    /// Adds one more; says whether no task calls them yet.
    pub(super) fn add(&self, handler: EventHandler) -> bool {
        let mut state = self.state.lock();
        state.added.push(handler);
        let is_first = !std::mem::replace(&mut state.has_task, true);
        drop(state);
        self.arrived.notify_one();
        is_first
    }

    fn take_added(&self) -> Vec<EventHandler> {
        std::mem::take(&mut self.state.lock().added)
    }
}

/// Calls the event handlers of an informer for ever.
pub(super) async fn distribute(objects: Arc<dyn Objects>) {
    let changes = PendingChanges::of(&*objects);
    let all = objects.event_handlers();
    let mut handlers: Vec<EventHandler> = Vec::new();
    let mut news = Vec::new();
    loop {
        // While there is no handler, what has changed is told by what is there.
        tell(&mut handlers, news).await;
        let mut added = all.take_added();
        if !added.is_empty() {
            tell(&mut handlers, changes.take()).await;
            let there = objects.list().into_iter().map(|object| {
                let (key, revision) = (key_of_object(object.meta()).into(), revision_of(object.meta()));
                Change { key, old: None, new: Some(object), revision }
            });
            tell(&mut added, there.collect()).await;
            handlers.extend(added);
        }
        news = tokio::select! {
            biased;
            news = changes.next() => news,
            () = all.arrived.notified() => Vec::new(),
        };
    }
}

/// Whoever panics is told nothing more, and nobody else hears of it.
async fn tell(handlers: &mut Vec<EventHandler>, changes: Vec<Change<dyn Object>>) {
    for (number, change) in changes.into_iter().enumerate() {
        handlers.retain(|handler| {
            let heard = catch_unwind(AssertUnwindSafe(|| handler(&change)));
            if heard.is_err() {
                tracing::error!(
                    key = &*change.key,
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
    use crate::informer::object::ObjectType;
    use crate::informer::shared::Shared;
    use crate::informer::undecodable::Undecodable;

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
        let handler = move |change: &Change<Pod>| {
            heard
                .send(format!("{name}: {}>{}", part(&change.old), part(&change.new)))
                .expect("somebody asks");
        };
        informer.add_event_handler(tasks, handler);
    }

    async fn check(heard: &mut mpsc::UnboundedReceiver<String>, expect: &[&str]) {
        for expect in expect {
            assert_eq!(heard.recv().await.as_deref(), Some(*expect));
        }
        assert!(heard.try_recv().is_err());
    }

    #[tokio::test]
    async fn whoever_comes_hears_what_is_there_and_then_with_all_others_what_changes() {
        let shared = Arc::new(Shared::of(ObjectType::of::<Pod>(), Undecodable::untold(), None));
        let informer = Informer::over(shared.clone());
        let (sender, mut heard) = mpsc::unbounded_channel();
        let tasks = Tasks::new();
        shared.replace(vec![Arc::new(pod("a", 2))], Vec::new(), 2);
        join(&informer, &tasks, "first", &sender);
        check(&mut heard, &["first: 0>2"]).await;
        shared.replace(vec![Arc::new(pod("a", 3))], Vec::new(), 3);
        join(&informer, &tasks, "second", &sender);
        check(&mut heard, &["first: 2>3", "second: 0>3"]).await;
        shared.replace(vec![Arc::new(pod("a", 4))], Vec::new(), 4);
        shared.replace(vec![Arc::new(pod("a", 5))], Vec::new(), 5);
        check(&mut heard, &["first: 3>5", "second: 3>5"]).await;
        shared.replace(Vec::new(), Vec::new(), 6);
        check(&mut heard, &["first: 5>0", "second: 5>0"]).await;
    }

    #[tokio::test]
    async fn whoever_panics_keeps_nobody_from_hearing() {
        let shared = Arc::new(Shared::of(ObjectType::of::<Pod>(), Undecodable::untold(), None));
        let informer = Informer::over(shared.clone());
        let (sender, mut heard) = mpsc::unbounded_channel();
        let tasks = Tasks::new();
        informer.add_event_handler(&tasks, |_| panic!("it is a bad day"));
        join(&informer, &tasks, "other", &sender);
        for revision in [2, 3] {
            shared.replace(vec![Arc::new(pod("a", revision))], Vec::new(), revision);
            let expect = if revision == 2 { "other: 0>2" } else { "other: 2>3" };
            check(&mut heard, &[expect]).await;
        }
    }
}
