//! What a watch has told: the state that a cache has which nobody makes wait for the newest revision.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use store::{Entry, Page, Revision, Store, StoreError};
use tokio::sync::OnceCell;

use super::Liar;

/// Before a watch that broke is begun again.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Filled when it is first read.
#[derive(Default)]
pub(super) struct Cache(OnceCell<Arc<Mutex<State>>>);

struct State {
    entries: BTreeMap<String, Entry>,
    revision: Revision,
}

impl Cache {
    async fn state(&self, liar: &Liar) -> Result<&Arc<Mutex<State>>, StoreError> {
        let fill = async {
            let page = liar.inner.range("/registry/", "/registry0", None, 0).await?;
            let entries = page.entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
            let state = Arc::new(Mutex::new(State { entries, revision: page.revision }));
            liar.tasks.spawn("cache", follow(Arc::clone(&liar.inner), Arc::clone(&state)));
            Ok(state)
        };
        self.0.get_or_try_init(|| fill).await
    }
}

pub(super) async fn get(liar: &Liar, key: &str) -> Result<Option<Entry>, StoreError> {
    let state = liar.cache.state(liar).await?;
    Ok(state.lock().entries.get(key).cloned())
}

pub(super) async fn range(liar: &Liar, start: &str, end: &str, limit: usize) -> Result<Page, StoreError> {
    let state = liar.cache.state(liar).await?.lock();
    let all: Vec<Entry> =
        state.entries.range(start.to_owned()..end.to_owned()).map(|(_, entry)| entry.clone()).collect();
    let count = if limit == 0 { all.len() } else { limit.min(all.len()) };
    let remaining = (all.len() - count) as u64;
    Ok(Page { entries: all.into_iter().take(count).collect(), revision: state.revision, remaining })
}

async fn follow(store: Arc<dyn Store>, state: Arc<Mutex<State>>) {
    loop {
        let after = state.lock().revision;
        if let Ok(mut watch) = store.watch(after).await {
            while let Some(Ok(batch)) = watch.batches.recv().await {
                let mut state = state.lock();
                for event in batch.events {
                    match event.entry {
                        Some(entry) => drop(state.entries.insert(event.key, entry)),
                        None => drop(state.entries.remove(&event.key)),
                    }
                }
                state.revision = batch.upto;
            }
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}
