//! Attends to every server elsewhere as long as an APIService names it: whether it is available, and what it tells.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::{AbortHandle, BoxFuture, abortable};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use super::link::Link;
use super::served::Served;
use super::{Aggregation, availability, discovery};
use crate::api::Api;

/// Attends for ever.
pub async fn follow(api: &Api, aggregation: &Aggregation) {
    api.wait_bootstrapped().await;
    let mut registrations = aggregation.registrations.subscribe();
    let mut under_way: BTreeMap<String, (Arc<Link>, AbortHandle)> = BTreeMap::new();
    let mut running: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
    loop {
        let current = Arc::clone(&registrations.borrow_and_update());
        let wanted = current.iter().filter_map(|registration| {
            let link = aggregation.link(&registration.name)?;
            Some(Served { registration: registration.clone(), link, turned: Arc::default() })
        });
        let wanted: BTreeMap<String, Served> =
            wanted.map(|served| (served.registration.name.clone(), served)).collect();
        under_way.retain(|name, (link, handle)| {
            let stays = wanted.get(name).is_some_and(|served| Arc::ptr_eq(&served.link, link));
            if !stays {
                handle.abort();
                aggregation.metrics.forget(name);
            }
            stays
        });
        for registration in current.iter() {
            availability::is_local(api, aggregation, registration).await;
        }
        for (name, served) in wanted {
            if under_way.contains_key(&name) {
                continue;
            }
            let link = Arc::clone(&served.link);
            let (attended, handle) = abortable(attend(api, aggregation, served));
            running.push(attended.map(drop).boxed());
            under_way.insert(name, (link, handle));
        }
        tokio::select! {
            changed = registrations.changed() => if changed.is_err() { return },
            Some(()) = running.next() => {}
        }
    }
}

async fn attend(api: &Api, aggregation: &Aggregation, served: Served) {
    tokio::join!(availability::keep(api, aggregation, &served), discovery::keep(api, aggregation, &served));
}
