//! Serves the kinds that CustomResourceDefinitions define.
//!
//! One task follows the definitions in the watch cache. For each that changes it works out the status that upstream's
//! controllers would come to, puts its kinds into the catalogue, and then writes the status: whoever is told that a kind is
//! established can use it. Who wrote the definition is answered after that ([`settle`]).
//!
//! Invariants:
//! - A definition that cannot be served keeps none of the others from it: it is told of, and what it served before stays.
//! - Stored definitions that are established are served before the server is ready, by one change of the catalogue.
//! - A definition that is deleted stays until all its objects are gone, and none is created meanwhile (`custom/cleanup.rs`).

mod cleanup;
mod serving;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use base::Backoff;
use machinery::metadata::{self, Metadata};
use serde_json::{Value, json};
use tracing::warn;

use crate::answer::Answer;
use crate::api::Api;
use crate::cache::CachedObject;
use crate::cache::watcher_index::IndexKey;
use crate::cluster::Cluster;
use crate::conversion::Converters;
use crate::kinds::{GroupVersionResource, Kind, Kinds, Part};
use crate::request::{self, Authorized};
use crate::request_info::Verb;
use crate::status::{Error, Result};
use crate::write::Decoded;
use crate::write::change::change;
use serving::{Served, Step};

/// How many stored definitions a thread reads: a start waits for all of them.
const READ_AT_ONCE: usize = 32;
/// The kind of definitions.
const DEFINITIONS: GroupVersionResource<'_> =
    GroupVersionResource::new("apiextensions.k8s.io", "v1", "customresourcedefinitions");

/// `true` if a write is of definitions, so that others follow from it.
pub fn is_followed(request: &Authorized) -> bool {
    let (kind, resource) = (&request.kind, &request.resource);
    resource.verb.is_write()
        && resource.subresource.is_empty()
        && kind.group_version_resource() == DEFINITIONS
        && !request.is_dry_run()
}

/// Waits, after a write of a definition, until what it says is served. The answer is the definition with the status that it
/// has then.
///
/// # Errors
/// 504 when the cache lags.
pub async fn settle(api: &Api, request: &Authorized, answer: Answer) -> Result<Answer> {
    let kind = &request.kind;
    api.cache.fresh().await?;
    api.custom.reached(kind.cache().newest()).await;
    let Answer::Object { code, object } = answer else { return Ok(answer) };
    if request.resource.verb == Verb::Delete {
        return Ok(Answer::Object { code, object });
    }
    api.cache.fresh().await?;
    let newest = kind.cache().get(&object.key).unwrap_or_else(|| Arc::clone(&object));
    let (written, settled) = (kind.value(&object), kind.value(&newest));
    let (written, settled) = (Metadata::of(&written), Metadata::of(&settled));
    // What somebody else has made of it meanwhile is not this answer.
    let is_it = written.uid() == settled.uid() && written.generation() == settled.generation();
    Ok(Answer::Object { code, object: if is_it { newest } else { object } })
}

/// The state of all definitions.
#[derive(Debug, Default)]
pub struct Definitions {
    served: BTreeMap<String, Served>,
}

impl Definitions {
    /// Serves what stored definitions say, as far as their status says that it is established.
    pub async fn load(cluster: &Cluster) -> Self {
        let mut definitions = Self::default();
        let Some(kind) = find(&cluster.builtin) else { return definitions };
        let objects = kind.cache().list(kind.prefix(), 0).objects;
        let reading: Vec<_> = objects
            .chunks(READ_AT_ONCE)
            .map(|some| {
                let (kind, some, converters) = (kind.clone(), some.to_vec(), Arc::clone(&cluster.converters));
                let read = move || {
                    some.into_iter().filter_map(|object| read(&kind, object, &converters)).collect::<Vec<_>>()
                };
                tokio::task::spawn_blocking(read)
            })
            .collect();
        let mut found = Vec::new();
        for some in reading {
            match some.await {
                Ok(some) => found.extend(some),
                Err(failure) => warn!(%failure, "stored definitions cannot be read"),
            }
        }
        for served in serving::all(&cluster.catalogue, found).await {
            served.attend_gate();
            definitions.served.insert(served.name().to_owned(), served);
        }
        definitions
    }

    /// Follows the definitions for ever.
    pub async fn follow(mut self, api: &Arc<Api>) {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5), 0.1);
        loop {
            if let Err(failure) = self.follow_once(api, &mut backoff).await {
                warn!(%failure, "definitions are looked at again");
                tokio::time::sleep(backoff.next(&api.random)).await;
            }
        }
    }

    async fn follow_once(&mut self, api: &Arc<Api>, backoff: &mut Backoff) -> Result<()> {
        let kind = find(&api.builtin).ok_or_else(|| Error::internal("definitions are not served"))?.clone();
        let revision = api.cache.revision();
        let mut watcher = kind.cache().watch(revision, IndexKey::Everything);
        let listing = kind.cache().read_list(kind.prefix(), revision)?;
        let there = listing.objects.iter().map(|object| object.name().to_owned());
        let names: BTreeSet<String> = there.chain(self.served.keys().cloned()).collect();
        self.take(api, &kind, names).await?;
        api.custom.advance(revision.max(kind.cache().newest().min(listing.revision)));
        loop {
            let behind = self.served.values().filter(|served| served.is_behind());
            let behind: BTreeSet<String> = behind.map(|served| served.name().to_owned()).collect();
            let pause = (!behind.is_empty()).then(|| backoff.next(&api.random));
            let events = tokio::select! {
                events = watcher.next() => events?,
                () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {
                    self.take(api, &kind, behind).await?;
                    continue;
                }
            };
            let reached = events.last().map(|event| event.revision);
            let names = events.iter().map(|event| event.object.name().to_owned()).collect();
            self.take(api, &kind, names).await?;
            backoff.reset();
            reached.into_iter().for_each(|revision| api.custom.advance(revision));
        }
    }

    /// Brings what is served in line with what some definitions say. Those of their groups that lack names come after.
    async fn take(&mut self, api: &Arc<Api>, kind: &Kind, names: BTreeSet<String>) -> Result<()> {
        let mut waiting = BTreeSet::new();
        for name in &names {
            let before = self.served.get(name).map(|served| (served.group().to_owned(), served.names()));
            self.one(api, kind, name).await?;
            let after = self.served.get(name).map(Served::names);
            // Only names that are given back can be given to others.
            let Some((group, _)) = before.filter(|(_, names)| after.as_ref() != Some(names)) else {
                continue;
            };
            let lacking = self.served.values().filter(|served| served.lacks_names());
            let lacking = lacking.filter(|served| served.group() == group);
            waiting.extend(lacking.map(|served| served.name().to_owned()));
        }
        for name in waiting.difference(&names) {
            self.one(api, kind, name).await?;
        }
        Ok(())
    }

    /// What is to be known of the definitions of a group: names are taken in a group, and there may be hundreds of groups.
    fn of_group(&self, group: &str) -> Vec<Arc<Value>> {
        let of_group = self.served.values().filter(|served| served.group() == group);
        of_group.map(|served| Arc::clone(served.summary())).collect()
    }

    /// Brings in line what one definition says.
    async fn one(&mut self, api: &Arc<Api>, kind: &Kind, name: &str) -> Result<()> {
        let Some(object) = kind.cache().get(&kind.key("", name)) else {
            if let Some(gone) = self.served.remove(name) {
                gone.withdraw(api).await;
            }
            return Ok(());
        };
        if let Some(served) = self.served.get(name)
            && served.is_settled(&object, &self.of_group(served.group()), api.clock.now())
        {
            return Ok(());
        }
        let definition = kind.value(&object);
        let uid = Metadata::of(&definition).uid().to_owned();
        if let Some(other) = self.served.get(name).filter(|served| served.uid() != uid).map(|_| name) {
            // It was deleted and made again in between.
            if let Some(gone) = self.served.remove(other) {
                gone.withdraw(api).await;
            }
        }
        let group = definition.pointer("/spec/group").and_then(Value::as_str).unwrap_or_default();
        let planned = serving::plan(&definition, self.of_group(group), api.clock.now()).await?;
        let before = self.served.remove(name);
        let step = Step { object: Arc::clone(&object), definition: planned.clone(), before };
        let mut served = step.take(api).await;
        served.attend_gate();
        if served.begins_cleanup() {
            served.cleaning();
            cleanup::begin(api, name, &uid);
        }
        // Nobody is told of a kind that is not there yet.
        let is_behind = served.is_behind();
        self.served.insert(name.to_owned(), served);
        if !is_behind && planned.get("status") != definition.get("status") {
            let status = planned.get("status").cloned().unwrap_or_default();
            said(write_status(api, name, &status, Some(&definition)).await)?;
        }
        Ok(())
    }
}

/// What a stored definition is to have.
fn read(kind: &Kind, object: Arc<CachedObject>, converters: &Arc<Converters>) -> Option<Served> {
    let definition = kind.value(&object);
    match Served::new(Arc::clone(&object), &definition, converters) {
        Ok(served) => served,
        Err(why) => {
            warn!(%why, name = object.name(), "a stored definition is not served");
            None
        }
    }
}

fn find(kinds: &Kinds) -> Option<&Kind> {
    let GroupVersionResource { group, version, resource } = DEFINITIONS;
    kinds.find(group, version, resource)
}

/// Somebody else's write in between, or the definition's end, is told by an event of its own.
fn said(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(error) if error.reason == "Conflict" || error.reason == "NotFound" => Ok(()),
        outcome => outcome,
    }
}

/// Writes the status of a definition; of nothing but `as_of`, if that is given.
async fn write_status(api: &Api, name: &str, status: &Value, as_of: Option<&Value>) -> Result<()> {
    let Some((request, _)) =
        request::of_server(api, DEFINITIONS, "", json!({"metadata": {"name": name}}), Verb::Update)
    else {
        return Ok(());
    };
    let request = request.below("status");
    let written = change(api, &request, Part::Status, |old| {
        let mut new = old.clone();
        match as_of {
            Some(as_of) => {
                metadata::set(&mut new, "resourceVersion", Metadata::of(as_of).resource_version());
            }
            None => drop(metadata::remove(&mut new, "resourceVersion")),
        }
        if let Some(new) = new.as_object_mut() {
            new.insert("status".to_owned(), status.clone());
        }
        Ok(Decoded::of_server(new))
    });
    Box::pin(written).await.map(drop)
}
