//! The end of a definition: its objects are deleted, with their finalizers respected, and when the last is gone it goes too.
//!
//! No create is made after the definition's end was written (`precondition.rs`): what is found after that is all.
//! Source: `k8s.io/apiextensions-apiserver/pkg/controller/finalizer`.

use std::sync::Arc;
use std::time::Duration;

use base::Backoff;
use extensions::conditions::{self, FINALIZER, Kind as Condition, Terminating};
use machinery::metadata::{self, Metadata};
use serde_json::{Value, json};
use tracing::{info, warn};

use super::{DEFINITIONS, find, said, write_status};
use crate::api::Api;
use crate::cache::CachedObject;
use crate::cache::watcher_index::IndexKey;
use crate::kinds::{Kind, Part};
use crate::request;
use crate::request_info::Verb;
use crate::status::{Error, Result};
use crate::write::Decoded;
use crate::write::change::change;
use crate::write::delete::delete;
use crate::write::options::DeleteOptions;

/// So many objects that cannot be deleted keep nobody from deleting others; more, and all of them come later.
const FAILURES_MAX: usize = 16;

/// Begins to clean up after a definition that is being deleted; goes on until it is gone.
pub(super) fn begin(api: &Arc<Api>, name: &str, uid: &str) {
    let cleanup = Cleanup { api: Arc::clone(api), name: name.to_owned(), uid: uid.to_owned() };
    api.serving.spawn("custom-kind-cleanup", async move { cleanup.run().await });
}

struct Cleanup {
    api: Arc<Api>,
    name: String,
    uid: String,
}

impl Cleanup {
    async fn run(self) {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30), 0.1);
        while let Err(failure) = self.once().await {
            warn!(%failure, name = self.name, "the objects of a definition cannot be deleted yet");
            let told = self.say(Terminating::Failed(failure.message.clone())).await;
            if let Err(failure) = told {
                warn!(%failure, name = self.name, "nor can that be said");
            }
            tokio::time::sleep(backoff.next(&self.api.random)).await;
        }
    }

    /// The definition, as long as it is held by the finalizer.
    fn held(&self) -> Option<Value> {
        let kind = find(&self.api.builtin)?;
        let definition = kind.value(&*kind.cache().get(&kind.key("", &self.name))?);
        let meta = Metadata::of(&definition);
        (meta.uid() == self.uid && meta.finalizers().contains(&FINALIZER)).then_some(definition)
    }

    async fn once(&self) -> Result<()> {
        self.api.cache.fresh().await?;
        let Some(definition) = self.held() else { return Ok(()) };
        if conditions::is_built_in(&definition) {
            self.say(Terminating::BuiltIn).await?;
        } else if conditions::is_true(&definition, Condition::Established) {
            self.say(Terminating::InProgress).await?;
            self.delete_all(&definition).await?;
            self.say(Terminating::Completed).await?;
        } else {
            self.say(Terminating::NeverEstablished).await?;
        }
        self.release().await?;
        info!(name = self.name, "a definition and its objects are gone");
        Ok(())
    }

    /// Deletes all objects, and waits until they are gone.
    async fn delete_all(&self, definition: &Value) -> Result<()> {
        let Some(kind) = self.kind(definition) else {
            return Err(Error::internal("its objects are not served"));
        };
        let revision = self.api.cache.fresh().await?;
        let mut watcher = kind.cache().watch(revision, IndexKey::Everything);
        let mut failures = Vec::new();
        for object in kind.cache().read_list(kind.prefix(), revision)?.objects {
            failures.extend(self.delete(&kind, &object).await.err());
            if failures.len() == FAILURES_MAX {
                break;
            }
        }
        if let Some(failure) = failures.pop() {
            return Err(failure);
        }
        while !kind.cache().is_empty() {
            watcher.next().await?;
        }
        // A cache that was replaced is empty, too.
        match kind.cache().is_gone() {
            true => Err(Error::internal("its objects are being loaded again")),
            false => Ok(()),
        }
    }

    /// The definition's kind in the version in which objects are stored: nothing has to be converted.
    fn kind(&self, definition: &Value) -> Option<Kind> {
        let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (group, plural) = (text("/spec/group"), text("/status/acceptedNames/plural"));
        let current = self.api.catalogue.current();
        current
            .iter()
            .filter(|kind| kind.is_custom() && kind.is_stored_form())
            .find(|kind| (kind.group(), kind.resource()) == (group, plural))
            .cloned()
    }

    async fn delete(&self, kind: &Kind, object: &CachedObject) -> Result<()> {
        let namespace = object.key.rsplit('/').nth(1).filter(|_| kind.is_namespaced()).unwrap_or_default();
        let named = json!({"metadata": {"name": object.name()}});
        let Some((request, _)) = request::of_server_for(&self.api, kind, namespace, named, Verb::Delete)
        else {
            return Err(Error::internal("its objects are in no place"));
        };
        match Box::pin(delete(&self.api, &request, &DeleteOptions::default())).await {
            Ok(_) => Ok(()),
            Err(error) if error.reason == "NotFound" => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn say(&self, how_far: Terminating) -> Result<()> {
        let Some(definition) = self.held() else { return Ok(()) };
        let status = conditions::terminating(&definition, how_far, self.api.clock.now());
        if Some(&status) == definition.get("status") {
            return Ok(());
        }
        said(write_status(&self.api, &self.name, &status, None).await)?;
        self.api.cache.fresh().await.map(drop)
    }

    /// Takes the finalizer away; with the last one goes the definition.
    async fn release(&self) -> Result<()> {
        let named = json!({"metadata": {"name": self.name}});
        let Some((request, _)) = request::of_server(&self.api, DEFINITIONS, "", named, Verb::Update) else {
            return Ok(());
        };
        let written = change(&self.api, &request, Part::Raw, |old| {
            let mut new = old.clone();
            if Metadata::of(old).uid() == self.uid {
                let mut finalizers = Metadata::of(old).finalizers();
                finalizers.retain(|finalizer| *finalizer != FINALIZER);
                metadata::set_finalizers(&mut new, &finalizers);
            }
            metadata::remove(&mut new, "resourceVersion");
            Ok(Decoded::of_server(new))
        });
        said(Box::pin(written).await.map(drop))
    }
}
