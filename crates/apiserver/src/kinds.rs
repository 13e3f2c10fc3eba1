//! A served kind, as the verbs see it: its row, its schema and its cache, behind one handle.
//!
//! What is behind a handle never changes: a kind that changes gets another one, and requests that are under way keep
//! theirs.

pub mod all;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use machinery::field::FieldErrors;
use resources::columns::Column;
use resources::fields::SelectableField;
use resources::{Resource, Scope, Strategy};
use schema::made::Made;
use schema::{Schema, SchemaRef};
use serde_json::{Map, Value};

use crate::blocking;
use crate::cache::{CachedObject, ReadFields, ResourceCache};
use crate::conversion::Conversion;
use crate::object::{Fields, encode_stored, form};
use crate::precondition::CreatePrecondition;
use crate::request_info::Verb;
use crate::status::{Error, Result, Subject};
pub use all::Kinds;

/// The part of the object that a write may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Everything but what has a subresource of its own.
    Object,
    /// `status`.
    Status,
    /// `status.conditions` of a CertificateSigningRequest.
    Approval,
    /// What the subresource of that name changes by its own strategy, such as `spec.ephemeralContainers`.
    Partial(&'static str),
    /// What the subresource's own code changes; nothing is restored.
    Raw,
}

/// The name of a resource in one version of its group. Source: `schema.GroupVersionResource` of apimachinery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupVersionResource<'a> {
    /// Empty for core.
    pub group: &'a str,
    /// The version.
    pub version: &'a str,
    /// The plural name.
    pub resource: &'a str,
}

impl<'a> GroupVersionResource<'a> {
    /// A resource of a group.
    pub const fn new(group: &'a str, version: &'a str, resource: &'a str) -> Self {
        Self { group, version, resource }
    }

    /// A resource of core/v1.
    pub const fn core(resource: &'a str) -> Self {
        Self::new("", "v1", resource)
    }
}

/// A handle to what is known of a kind; cheap to clone.
#[derive(Clone, Debug)]
pub struct Kind(Arc<Served>);

#[derive(Debug)]
struct Served {
    row: Resource,
    api_version: String,
    schema: Option<Schema>,
    cache: Arc<ResourceCache>,
    precondition: Option<Arc<CreatePrecondition>>,
    conversion: Option<Arc<Conversion>>,
}

impl ReadFields for Served {
    fn fields_of(&self, object: &CachedObject) -> Fields {
        let all = &self.row.selectable_fields;
        let object = object.part(&all.iter().flat_map(SelectableField::pointers).collect::<Vec<_>>());
        let value = |label: &str| self.row.field_value(&object, label).into_owned();
        all.iter().map(|field| (field.label.to_string(), value(&field.label))).collect()
    }
}

impl Kind {
    /// The kind of a row, whose objects have this schema, if they have any, and are kept in this cache. What is never
    /// stored has one that stays empty.
    pub fn new(row: Resource, schema: Option<Schema>, cache: Arc<ResourceCache>) -> Self {
        let api_version = row.api_version();
        Self(Arc::new(Served { row, api_version, schema, cache, precondition: None, conversion: None }))
    }

    /// The kind, whose objects are created under a precondition, if there is one, and converted by a webhook, if there is one.
    #[must_use]
    pub(crate) fn with_definition(
        mut self,
        precondition: Option<Arc<CreatePrecondition>>,
        conversion: Option<Arc<Conversion>>,
    ) -> Self {
        if let Some(served) = Arc::get_mut(&mut self.0) {
            served.precondition = precondition;
            served.conversion = conversion;
        }
        self
    }

    /// The webhook that converts its objects. Those in the cache are of the version in which each is stored then;
    /// [`Kind::served`] has them in the kind's own.
    pub fn conversion(&self) -> Option<&Arc<Conversion>> {
        self.0.conversion.as_ref()
    }

    /// The precondition for new objects, if the kind can go.
    pub fn precondition(&self) -> Option<&CreatePrecondition> {
        self.0.precondition.as_deref()
    }

    /// `true` if a CustomResourceDefinition made it.
    pub fn is_custom(&self) -> bool {
        self.made().is_some()
    }

    /// `true` if both are handles to the same.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The row.
    pub fn row(&self) -> &Resource {
        &self.0.row
    }

    /// The strategy of the kind when it is written.
    pub fn strategy(&self) -> &Strategy {
        &self.0.row.strategy
    }

    /// The group; empty for core.
    pub fn group(&self) -> &str {
        &self.0.row.group
    }

    /// The version.
    pub fn version(&self) -> &str {
        &self.0.row.version
    }

    /// The plural.
    pub fn resource(&self) -> &str {
        &self.0.row.plural
    }

    /// The kind's name.
    pub fn kind(&self) -> &str {
        &self.0.row.kind
    }

    /// The kind of a list of them.
    pub fn list_kind(&self) -> &str {
        &self.0.row.list_kind
    }

    /// The prefix of objects' keys, wherever they are; empty for kinds that are never stored.
    pub fn prefix(&self) -> &str {
        &self.0.row.storage_prefix
    }

    /// The columns of `kubectl get`.
    pub fn columns(&self) -> &[Column] {
        &self.0.row.columns
    }

    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> &str {
        &self.0.api_version
    }

    /// The resource's whole name.
    pub fn group_version_resource(&self) -> GroupVersionResource<'_> {
        GroupVersionResource::new(self.group(), self.version(), self.resource())
    }

    /// `/v1, Kind=Pod`, as some errors print it.
    pub fn api_version_kind(&self) -> String {
        format!("{}/{}, Kind={}", &self.0.row.group, self.0.row.version, &self.0.row.kind)
    }

    /// The resource, as errors about objects name it.
    pub fn subject(&self) -> Subject<'_> {
        Subject { group: &self.0.row.group, resource: &self.0.row.plural }
    }

    /// The kind, as errors about invalid objects name it.
    pub fn kind_subject(&self) -> Subject<'_> {
        Subject { group: &self.0.row.group, resource: &self.0.row.kind }
    }

    /// `true` if objects live in namespaces.
    pub fn is_namespaced(&self) -> bool {
        self.0.row.scope == Scope::Namespaced
    }

    /// `true` if the verb can be done on the resource itself.
    pub fn has_verb(&self, verb: Verb) -> bool {
        self.0.row.allows(verb.as_str())
    }

    /// `true` if answers can be Tables: not of what can only be posted, which is no object to be listed.
    pub fn has_table(&self, subresource: &str) -> bool {
        const POSTED: &[&str] = &["create"];
        let below = self.0.row.subresource(subresource);
        below.map_or(self.0.row.verbs, |subresource| subresource.verbs) != POSTED
    }

    /// `true` if objects can be sent in protobuf: not custom ones, of which only Scales can.
    pub fn has_protobuf(&self, subresource: &str) -> bool {
        !self.is_custom() || subresource == "scale"
    }

    /// `true` if a DELETE is answered with the object that is gone, not with a Status.
    ///
    /// Source: `ReturnDeletedObject` of upstream's stores.
    pub fn is_deletion_answered(&self) -> bool {
        const CORE: [&str; 7] = [
            "pods",
            "services",
            "serviceaccounts",
            "persistentvolumes",
            "persistentvolumeclaims",
            "podtemplates",
            "resourcequotas",
        ];
        match self.group() {
            "" => CORE.contains(&self.resource()),
            "storage.k8s.io" => self.resource() != "csistoragecapacities",
            "resource.k8s.io" => true,
            _ => false,
        }
    }

    /// The prefix of the keys of objects in `namespace` (all, if empty).
    pub fn collection(&self, namespace: &str) -> String {
        if self.is_namespaced() && !namespace.is_empty() {
            format!("{}{namespace}/", &self.0.row.storage_prefix)
        } else {
            self.0.row.storage_prefix.to_string()
        }
    }

    /// The store's key of an object.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        let prefix = &self.0.row.storage_prefix;
        let mut key = String::with_capacity(prefix.len() + namespace.len() + 1 + name.len());
        key.push_str(prefix);
        if self.is_namespaced() && !namespace.is_empty() {
            key.push_str(namespace);
            key.push('/');
        }
        key.push_str(name);
        key
    }

    /// The cache of the kind's objects.
    pub fn cache(&self) -> &Arc<ResourceCache> {
        &self.0.cache
    }

    /// The schema of the kind's objects. That of a custom kind is built when it is first asked for.
    pub fn schema(&self) -> Option<SchemaRef<'_>> {
        self.0.schema.as_ref().and_then(Schema::get)
    }

    /// The facts of a custom kind's schema that are known without its arena.
    pub fn made(&self) -> Option<&Made> {
        self.0.schema.as_ref().and_then(Schema::made)
    }

    /// `true` if a field selector may name `field`.
    pub fn is_selectable(&self, field: &str) -> bool {
        self.0.row.is_selectable(field)
    }

    /// The selectable fields of a cached object.
    pub fn fields_of(&self, object: &CachedObject) -> Fields {
        let all = &self.0.row.selectable_fields;
        if !self.is_converted() {
            return self.0.fields_of(object);
        }
        let object = self.to_served(Cow::Owned(object.value())).into_owned();
        all.iter()
            .map(|field| {
                (field.label.to_string(), self.0.row.field_value(&object, &field.label).into_owned())
            })
            .collect()
    }

    /// The reader of the selectable fields of objects that are stored in the form that they are served in.
    pub fn field_reader(&self) -> Arc<dyn ReadFields> {
        Arc::<Served>::clone(&self.0)
    }

    /// Every broken rule of a new object.
    pub fn validate_create(&self, object: &Value) -> FieldErrors {
        self.apart(|| self.0.row.validate_create(object))
    }

    /// Every broken rule of a changed object.
    pub fn validate_update(&self, new: &Value, old: &Value, part: Part) -> FieldErrors {
        match part {
            Part::Object => self.apart(|| self.0.row.validate_update(new, old)),
            Part::Status => self.apart(|| self.0.row.validate_status_update(new, old)),
            Part::Partial(subresource) => resources::partial(self.row(), subresource)
                .map(|strategy| strategy.validate(self.row(), new, old))
                .unwrap_or_default(),
            Part::Approval => resources::strategies::validate_approval(self.row(), new, old),
            Part::Raw => FieldErrors::new(),
        }
    }

    /// Checks by rules that may take long, while other tasks of this thread go on elsewhere, where there is another one.
    fn apart<T>(&self, check: impl FnOnce() -> T) -> T {
        blocking::when(self.0.row.strategy.rules.as_ref().is_some_and(|rules| rules.may_take_long()), check)
    }

    /// The life of objects, if not for ever.
    pub fn ttl_seconds(&self) -> Option<u32> {
        (self.0.row.ttl_seconds > 0).then_some(self.0.row.ttl_seconds)
    }

    /// `true` if a write may be acknowledged before it is on disk.
    pub fn is_relaxed(&self) -> bool {
        self.0.row.is_relaxed
    }

    /// `true` if new objects are stored in the form in which they are served.
    pub fn is_stored_form(&self) -> bool {
        self.0.row.storage_api_version == *self.0.api_version
    }

    /// `true` if objects are in another form, as long as nobody asks for their JSON or their value, than they are
    /// served in.
    pub fn is_converted(&self) -> bool {
        self.0.conversion.is_none() && !self.is_stored_form()
    }

    /// An object of the cache as it is served: converted by the webhook, if there is one and it has to be.
    ///
    /// # Errors
    /// 500 if it cannot be converted.
    pub async fn served(&self, object: Arc<CachedObject>) -> Result<Arc<CachedObject>> {
        if self.0.conversion.is_none() {
            return Ok(object);
        }
        let (mut served, failure) = self.served_until(vec![object]).await;
        match (served.pop(), failure) {
            (Some(object), None) => Ok(object),
            (_, failure) => Err(failure.unwrap_or_else(|| Error::internal("nothing was converted"))),
        }
    }

    /// Objects of the cache as they are served.
    ///
    /// # Errors
    /// 500 if one of them cannot be converted.
    pub async fn all_served(&self, objects: Vec<Arc<CachedObject>>) -> Result<Vec<Arc<CachedObject>>> {
        let (served, failure) = self.served_until(objects).await;
        failure.map_or(Ok(served), Err)
    }

    /// Objects of the cache as they are served, up to the first that cannot be converted, and why that is.
    pub async fn served_until(
        &self,
        objects: Vec<Arc<CachedObject>>,
    ) -> (Vec<Arc<CachedObject>>, Option<Error>) {
        match &self.0.conversion {
            Some(conversion) => Box::pin(conversion.objects(objects, self.api_version())).await,
            None => (objects, None),
        }
    }

    /// A served object in the form of another version of the kind.
    ///
    /// # Errors
    /// 500 if it cannot be converted.
    pub async fn in_form_of(&self, other: &Self, served: Value) -> Result<Value> {
        match &self.0.conversion {
            Some(conversion) => conversion.value(served, other.api_version()).await,
            None => Ok(other.to_served(Cow::Owned(self.to_stored(served))).into_owned()),
        }
    }

    /// The stored form of a served object, and what that is served as, if that is not the same.
    ///
    /// # Errors
    /// 500 if it cannot be converted.
    pub async fn forms(&self, served: Value) -> Result<(Value, Option<Value>)> {
        let Some(conversion) = self.0.conversion.as_ref().filter(|_| !self.is_stored_form()) else {
            return Ok((self.to_stored(served), None));
        };
        let stored = conversion.value(served, &self.0.row.storage_api_version).await?;
        let form = self.cache().keys().form.as_ref();
        let read = form.and_then(|form| form.reread(&stored)).unwrap_or_else(|| stored.clone());
        let served = conversion.value(read, self.api_version()).await?;
        Ok((stored, Some(served)))
    }

    /// The served form of a stored object.
    pub fn to_served<'a>(&self, stored: Cow<'a, Value>) -> Cow<'a, Value> {
        if !self.is_converted() {
            return stored;
        }
        let mut object = stored.into_owned();
        if let Some(map) = object.as_object_mut() {
            self.convert(map, self.api_version(), self.0.row.conversion.map(|c| c.from_storage));
        }
        if let Some(schema) = self.0.schema.as_ref().filter(|schema| schema.made().is_some()) {
            object = form::pruned(schema, object);
        }
        Cow::Owned(object)
    }

    /// The stored form of a served object.
    pub fn to_stored(&self, mut served: Value) -> Value {
        if self.is_converted()
            && let Some(map) = served.as_object_mut()
        {
            self.convert(map, &self.0.row.storage_api_version, self.0.row.conversion.map(|c| c.to_storage));
            if let Some(form) = &self.cache().keys().form {
                served = form::pruned(form.schema(), served);
            }
        }
        served
    }

    fn convert(
        &self,
        map: &mut Map<String, Value>,
        api_version: &str,
        change: Option<fn(&mut Map<String, Value>)>,
    ) {
        if map.get("apiVersion").and_then(Value::as_str) == Some(api_version) {
            return;
        }
        if let Some(change) = change {
            change(map);
        }
        map.insert("apiVersion".to_owned(), api_version.into());
    }

    /// The parsed, served form of a cached object.
    pub fn value(&self, object: &CachedObject) -> Value {
        let mut stored = object.value();
        crate::formats::strip_nulls(&mut stored);
        self.to_served(Cow::Owned(stored)).into_owned()
    }

    /// The served form of a cached object as clients see it, with the nulls that rules never see.
    pub fn sent(&self, object: &CachedObject) -> Value {
        if !self.is_converted() {
            return object.value();
        }
        let mut value = self.value(object);
        crate::formats::fill_nulls(&mut value);
        value
    }

    /// The served JSON bytes of a cached object; shared unless the kind is stored in another form.
    pub fn json(&self, object: &CachedObject) -> Bytes {
        self.converted(object).map_or_else(|| object.json.clone(), |object| object.json)
    }

    /// The function that makes an item of a list out of a served object, after its opening brace: the list of a
    /// built-in kind says what its items are, those of a custom kind say it themselves.
    pub fn item(&self) -> fn(&CachedObject) -> Bytes {
        if self.is_custom() { CachedObject::typed_item } else { CachedObject::untyped_item }
    }

    /// The served JSON bytes of an object in another form as an item of a list.
    pub fn converted_item(&self, object: &CachedObject) -> Bytes {
        let item = self.item();
        let item = self.converted(object).map_or_else(|| item(object), |object| item(&object));
        [b"{", &*item].concat().into()
    }

    /// The object in its served form; `None` if that is the stored one.
    fn converted(&self, object: &CachedObject) -> Option<CachedObject> {
        if !self.is_converted() {
            return None;
        }
        let stored = encode_stored(&self.sent(object)).ok()?;
        CachedObject::from_stored(Arc::clone(&object.key), &stored, object.revision)
    }
}
