//! The served parts of one definition, and their changes.

use std::sync::Arc;
use std::time::Duration;

use base::Backoff;
use extensions::conditions::{self, Kind as Condition};
use extensions::kind::{self as kinds, CustomKind, KindError};
use jiff::Timestamp;
use machinery::metadata::Metadata;
use resources::definition::is_protected_group;
use serde_json::{Value, json};
use tracing::{debug, warn};

use crate::api::Api;
use crate::cache::CachedObject;
use crate::catalogue::{Catalogue, ChangeError, Custom, Name, Offer};
use crate::conversion::{Conversion, Converters};
use crate::object::StoredForm;
use crate::object::form::Versions;
use crate::precondition::CreatePrecondition;
use crate::status::{Error, Result};

/// How often the store is asked for the objects of a definition before its author is answered all the same.
const TRIES: usize = 6;

/// A definition, and what it has in the catalogue.
#[derive(Debug)]
pub(super) struct Served {
    /// The definition, as the cache has it: its bytes are shared.
    object: Arc<CachedObject>,
    /// What others need to know of it.
    summary: Arc<Value>,
    kinds: Vec<CustomKind>,
    /// Group, version and plural of what is in the catalogue.
    offered: Vec<(String, String, String)>,
    precondition: Arc<CreatePrecondition>,
    conversion: Option<Arc<Conversion>>,
    /// Whether its objects are being deleted.
    is_cleaning: bool,
    /// Whether the catalogue is still to follow, because the store did not answer.
    is_behind: bool,
}

/// A change of one definition.
pub(super) struct Step {
    /// What the cache has.
    pub(super) object: Arc<CachedObject>,
    /// The definition with the status that it is to have.
    pub(super) definition: Value,
    /// What was served before.
    pub(super) before: Option<Served>,
}

/// The definition with the status that it is to have.
pub(super) async fn plan(definition: &Value, others: Vec<Arc<Value>>, now: Timestamp) -> Result<Value> {
    let mut planned = definition.clone();
    if Metadata::of(definition).is_terminating() {
        return Ok(planned);
    }
    let planning = tokio::task::spawn_blocking(move || {
        let status = conditions::plan(&planned, others.iter().map(|other| &**other), now);
        if let Some(map) = planned.as_object_mut() {
            map.insert("status".to_owned(), status);
        }
        planned
    });
    planning.await.map_err(Error::internal)
}

impl Served {
    /// What a definition is to have, none of it in the catalogue yet; nothing, if it is not established.
    pub(super) fn new(
        object: Arc<CachedObject>,
        definition: &Value,
        converters: &Arc<Converters>,
    ) -> std::result::Result<Option<Self>, KindError> {
        if !kinds::is_served(definition) {
            return Ok(None);
        }
        let kinds = kinds::kinds(definition, &[])?;
        let conversion = conversion(definition, &kinds, None, converters);
        let precondition = Arc::new(CreatePrecondition::new(&object.key));
        Ok(Some(Self { conversion, ..Self::of(object, definition, kinds, precondition) }))
    }

    fn of(
        object: Arc<CachedObject>,
        definition: &Value,
        kinds: Vec<CustomKind>,
        precondition: Arc<CreatePrecondition>,
    ) -> Self {
        let summary = Arc::new(summary(definition));
        let offered = Vec::new();
        Self {
            object,
            summary,
            kinds,
            offered,
            precondition,
            conversion: None,
            is_cleaning: false,
            is_behind: false,
        }
    }

    pub(super) fn name(&self) -> &str {
        Metadata::of(&self.summary).name()
    }

    /// Whether this is the object that is served, and its status says all that there is to say: nothing is looked at again
    /// when the server has loaded hundreds of definitions and begins to follow them.
    pub(super) fn is_settled(
        &self,
        object: &Arc<CachedObject>,
        others: &[Arc<Value>],
        now: Timestamp,
    ) -> bool {
        let status = self.summary.get("status");
        !self.is_behind
            && Arc::ptr_eq(&self.object, object)
            && !self.offered.is_empty()
            && !Metadata::of(&self.summary).is_terminating()
            // Whether somebody has approved of it is not in the summary.
            && !is_protected_group(self.group())
            && status == Some(&conditions::plan(&self.summary, others.iter().map(|other| &**other), now))
    }

    pub(super) fn uid(&self) -> &str {
        Metadata::of(&self.summary).uid()
    }

    pub(super) fn group(&self) -> &str {
        self.summary.pointer("/spec/group").and_then(Value::as_str).unwrap_or_default()
    }

    /// The names that it was given.
    pub(super) fn names(&self) -> Value {
        self.summary.pointer("/status/acceptedNames").cloned().unwrap_or_default()
    }

    pub(super) fn summary(&self) -> &Arc<Value> {
        &self.summary
    }

    /// Lets creates through as long as the definition is what is served, and none once it is being deleted.
    pub(super) fn attend_gate(&self) {
        if Metadata::of(&self.summary).is_terminating() {
            self.precondition.end();
        } else if !self.is_behind {
            self.precondition.follow(self.object.revision);
        }
    }

    /// Whether it could be given names when others give theirs back.
    pub(super) fn lacks_names(&self) -> bool {
        !conditions::is_true(&self.summary, Condition::NamesAccepted)
    }

    /// Whether its objects are to be deleted now, and are not yet.
    pub(super) fn begins_cleanup(&self) -> bool {
        !self.is_cleaning && Metadata::of(&self.summary).is_terminating()
    }

    /// Whether the catalogue is still to follow.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Its objects are being deleted from now on.
    pub(super) fn cleaning(&mut self) {
        self.is_cleaning = true;
    }

    /// What is to be in the catalogue.
    fn offers(&self) -> Vec<Offer> {
        let Some(stored) = self.kinds.iter().find(|kind| kind.is_storage) else { return Vec::new() };
        let mut form = StoredForm::new(&stored.row.storage_api_version, stored.schema.clone());
        if let Some(conversion) = &self.conversion {
            form = form.among(Arc::clone(conversion.versions()));
        }
        let served = self.kinds.iter().filter(|kind| kind.is_served);
        let custom = || Custom {
            form: form.clone(),
            precondition: Arc::clone(&self.precondition),
            conversion: self.conversion.clone(),
        };
        let offer = |kind: &CustomKind| Offer {
            row: kind.row.clone(),
            schema: Some(kind.schema.clone()),
            custom: Some(custom()),
        };
        served.map(offer).collect()
    }

    fn names_of(offers: &[Offer]) -> Vec<(String, String, String)> {
        let name = |offer: &Offer| {
            (offer.row.group.to_string(), offer.row.version.to_string(), offer.row.plural.to_string())
        };
        offers.iter().map(name).collect()
    }

    /// Takes all of it out of the catalogue.
    pub(super) async fn withdraw(self, api: &Api) {
        let names: Vec<Name<'_>> = self.offered.iter().map(|(g, v, p)| (&**g, &**v, &**p)).collect();
        if let Err(failure) = api.catalogue.remove(&names).await {
            warn!(%failure, name = self.name(), "a kind cannot be withdrawn");
        }
        self.precondition.end();
    }
}

impl Step {
    /// Brings the catalogue in line with the definition. What cannot be served leaves it as it is.
    pub(super) async fn take(self, api: &Api) -> Served {
        let Self { object, definition, before } = self;
        let name = Metadata::of(&definition).name().to_owned();
        if let Some(before) = before.as_ref()
            && is_same(before, &definition)
        {
            return before_with(before, object, &definition);
        }
        let precondition = match &before {
            Some(before) => Arc::clone(&before.precondition),
            None => Arc::new(CreatePrecondition::new(&object.key)),
        };
        let kinds = match kinds::is_served(&definition) {
            true => made(definition.clone(), before.as_ref()).await,
            false => Ok(Vec::new()),
        };
        let kinds = match kinds {
            Ok(kinds) => kinds,
            Err(why) => {
                warn!(%why, name, "a definition cannot be served");
                let Some(before) = before else {
                    return Served::of(object, &definition, Vec::new(), precondition);
                };
                return before_with(&before, object, &definition);
            }
        };
        let conversion = conversion(&definition, &kinds, before.as_ref(), &api.converters);
        let mut served = Served { conversion, ..Served::of(object, &definition, kinds, precondition) };
        served.is_cleaning = before.as_ref().is_some_and(|before| before.is_cleaning);
        let offers = served.offers();
        let gone = before.as_ref().map(|before| before.offered.clone()).unwrap_or_default();
        let gone: Vec<Name<'_>> = gone.iter().map(|(g, v, p)| (&**g, &**v, &**p)).collect();
        let names = Served::names_of(&offers);
        match change(api, &gone, offers).await {
            Ok(()) => served.offered = names,
            Err(failure) => {
                warn!(%failure, name, "a definition's kinds cannot be served");
                served.is_behind = matches!(failure, ChangeError::Store(_));
                served.offered = before.map(|before| before.offered).unwrap_or_default();
            }
        }
        debug!(name, kinds = served.offered.len(), "a definition is served");
        served
    }
}

/// Changes the catalogue, if need be with the patience that a store deserves which does not answer at once.
async fn change(api: &Api, gone: &[Name<'_>], offers: Vec<Offer>) -> std::result::Result<(), ChangeError> {
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(500), 0.1);
    for _ in 1..TRIES {
        match api.catalogue.change(gone, offers.clone()).await {
            Err(failure @ ChangeError::Store(_)) => debug!(%failure, "kinds are to be loaded again"),
            done => return done,
        }
        tokio::time::sleep(backoff.next(&api.random)).await;
    }
    api.catalogue.change(gone, offers).await
}

/// What was served before, which stays, of a definition that says something else now.
fn before_with(before: &Served, object: Arc<CachedObject>, definition: &Value) -> Served {
    Served {
        object,
        summary: Arc::new(summary(definition)),
        kinds: before.kinds.clone(),
        offered: before.offered.clone(),
        precondition: Arc::clone(&before.precondition),
        conversion: before.conversion.clone(),
        is_cleaning: before.is_cleaning,
        is_behind: before.is_behind,
    }
}

/// Whether a definition has the same kinds as before.
fn is_same(before: &Served, definition: &Value) -> bool {
    let names = |definition: &Value| definition.pointer("/status/acceptedNames").cloned();
    let ends = |definition: &Value| conditions::is_true(definition, Condition::Terminating);
    !before.is_behind
        && names(&before.summary) == names(definition)
        && ends(&before.summary) == ends(definition)
        && kinds::is_served(&before.summary) == kinds::is_served(definition)
        && before.object.value().get("spec") == definition.get("spec")
}

/// The webhook that converts between a definition's versions. If nothing of it has changed it is the one from before.
fn conversion(
    definition: &Value,
    kinds: &[CustomKind],
    before: Option<&Served>,
    converters: &Arc<Converters>,
) -> Option<Arc<Conversion>> {
    let spec = definition.pointer("/spec/conversion").filter(|_| kinds::converts_by_webhook(definition))?;
    let versions = Versions::new(kinds.iter().map(|kind| (kind.row.api_version(), kind.schema.clone())));
    let known = before.filter(|before| before.summary.pointer("/spec/conversion") == Some(spec));
    let known = known.and_then(|before| before.conversion.as_ref());
    if let Some(same) = known.filter(|known| **known.versions() == versions) {
        return Some(Arc::clone(same));
    }
    let name = Metadata::of(definition).name();
    Some(Arc::new(Conversion::new(converters, name, spec, Arc::new(versions))))
}

/// The kinds of a definition. Schemas that did not change are the same as before.
async fn made(
    definition: Value,
    before: Option<&Served>,
) -> std::result::Result<Vec<CustomKind>, Box<dyn std::error::Error + Send + Sync>> {
    let before = before.map(|before| before.kinds.clone()).unwrap_or_default();
    let building = tokio::task::spawn_blocking(move || kinds::kinds(&definition, &before));
    Ok(building.await??)
}

/// A definition without what is large: its schemas, and who owns which of its fields.
fn summary(definition: &Value) -> Value {
    let mut summary = json!({});
    for part in ["metadata", "spec", "status"] {
        let Some(fields) = definition.get(part).and_then(Value::as_object) else { continue };
        let kept = fields
            .iter()
            .filter(|(name, _)| !matches!(name.as_str(), "managedFields" | "versions" | "annotations"));
        summary[part] = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
    }
    summary
}

/// Serves many definitions by one change, or, if one of them cannot be, each by its own.
pub(super) async fn all(catalogue: &Catalogue, mut all: Vec<Served>) -> Vec<Served> {
    let offers: Vec<Vec<Offer>> = all.iter().map(Served::offers).collect();
    let names: Vec<_> = offers.iter().map(|offers| Served::names_of(offers)).collect();
    match catalogue.add(offers.iter().flatten().cloned().collect()).await {
        Ok(()) => all.iter_mut().zip(names).for_each(|(served, names)| served.offered = names),
        Err(failure @ ChangeError::Store(_)) => warn!(%failure, "stored definitions are served later"),
        Err(failure) => {
            warn!(%failure, "stored definitions are served one by one");
            for ((served, offers), names) in all.iter_mut().zip(offers).zip(names) {
                match catalogue.add(offers).await {
                    Ok(()) => served.offered = names,
                    Err(failure) => {
                        warn!(%failure, name = served.name(), "a stored definition is not served")
                    }
                }
            }
        }
    }
    // What could not be served is tried again when definitions are followed.
    all.retain(|served| !served.offered.is_empty());
    all
}
