//! The objects of a resource that a request sees: place in the key space, label selector, field selector.

use std::borrow::Cow;

use machinery::{fields, labels};

use crate::cache::{CachedObject, IndexKey};
use crate::kinds::Kind;
use crate::request_info::{Query, ResourceInfo};
use crate::status::{Error, Result};

/// What a client is told of a field that cannot be selected by; kubectl says itself what it was looking for.
///
/// Source: `DefaultMetaV1FieldSelectorConversion`, and the conversions of kinds that have more.
fn unsupported(kind: &Kind, field: &str) -> String {
    let own = kind.row().selectable_fields.iter().filter(|field| !field.label.starts_with("metadata."));
    match (kind.kind(), own.count()) {
        _ if kind.is_custom() => format!("field label not supported: {field}"),
        (_, 0) => {
            format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        }
        ("Job", _) => format!("field label {field:?} not supported for Job"),
        _ => format!("field label not supported: {field}"),
    }
}

/// The filter of a LIST, WATCH or DELETE of a collection.
#[derive(Clone, Debug)]
pub struct Filter {
    kind: Kind,
    /// The prefix of keys.
    pub prefix: String,
    labels: labels::Selector,
    fields: fields::Selector,
    exact_key: Option<String>,
}

impl Filter {
    /// Reads the selectors of a request.
    ///
    /// # Errors
    /// 400 when a selector cannot be read or names a field that the kind does not offer.
    pub fn of(kind: &Kind, info: &ResourceInfo, query: &Query) -> Result<Self> {
        let labels = labels::Selector::parse(query.get("labelSelector").unwrap_or_default())
            .map_err(|failure| Error::bad_request(failure.to_string()))?;
        let field_text = query.get("fieldSelector").unwrap_or_default();
        let fields =
            fields::Selector::parse(field_text).map_err(|failure| Error::bad_request(failure.to_string()))?;
        let unknown =
            fields.terms.iter().map(|term| term.field.as_str()).find(|field| !kind.is_selectable(field));
        if let Some(field) = unknown {
            return Err(Error::bad_request(unsupported(kind, field)));
        }
        let prefix = kind.collection(&info.namespace);
        let name = Some(info.name.as_str()).filter(|name| !name.is_empty());
        let name = name.or_else(|| fields.required("metadata.name"));
        let exact_key = match name {
            Some(name) if !kind.is_namespaced() || !info.namespace.is_empty() => {
                Some(format!("{prefix}{name}"))
            }
            _ => None,
        };
        Ok(Self { kind: kind.clone(), prefix, labels, fields, exact_key })
    }

    /// Everything of a kind in a namespace, or everywhere if that is empty.
    pub fn collection(kind: &Kind, namespace: &str) -> Self {
        Self {
            prefix: kind.collection(namespace),
            kind: kind.clone(),
            labels: labels::Selector::everything(),
            fields: fields::Selector::default(),
            exact_key: None,
        }
    }

    /// The only key that can match, if there is one.
    pub fn exact_key(&self) -> Option<&str> {
        self.exact_key.as_deref()
    }

    /// The index terms that a watcher with this filter can be found by.
    pub fn index_key(&self) -> IndexKey {
        if let Some(key) = &self.exact_key {
            return IndexKey::Key(key.clone());
        }
        if let Some(name) = self.fields.required("metadata.name") {
            return IndexKey::Name(name.to_owned());
        }
        let own = |field: &str| !field.starts_with("metadata.");
        let term = self.fields.terms.iter().find(|term| !term.is_negated && own(&term.field));
        match term {
            // The fields of objects that are stored in another form are not at hand.
            Some(term) if self.kind.is_stored_form() && self.kind.conversion().is_none() => {
                IndexKey::Field(self.kind.field_reader(), term.field.clone(), term.value.clone())
            }
            _ if self.prefix == self.kind.collection("") => IndexKey::Everything,
            _ => IndexKey::Namespace(self.prefix.clone()),
        }
    }

    /// `true` if selectors leave something out.
    pub fn is_selective(&self) -> bool {
        !self.labels.is_everything() || !self.fields.is_everything()
    }

    /// `true` if an object is seen.
    pub fn matches(&self, object: &CachedObject) -> bool {
        if let Some(key) = &self.exact_key
            && **key != *object.key
        {
            return false;
        }
        object.key.starts_with(&self.prefix)
            && (self.labels.is_everything() || self.matches_labels(object))
            && (self.fields.is_everything() || self.matches_fields(object))
    }

    fn matches_labels(&self, object: &CachedObject) -> bool {
        let labels = object.labels();
        self.labels.matches_with(|name| labels.get(name).map(String::as_str))
    }

    fn matches_fields(&self, object: &CachedObject) -> bool {
        let read = |name: &str| -> Cow<'_, str> {
            match name {
                "metadata.name" => Cow::Borrowed(object.name()),
                "metadata.namespace" => Cow::Borrowed(self.namespace_of(object)),
                _ => {
                    // The cached fields are those of the kind in whose form the object is stored.
                    if self.kind.is_converted() {
                        let fields = self.kind.fields_of(object);
                        let found = fields.into_iter().find(|(field, _)| field == name);
                        return Cow::Owned(found.map(|(_, value)| value).unwrap_or_default());
                    }
                    let fields = object.fields(|object| self.kind.fields_of(object));
                    let found = fields.iter().find(|(field, _)| field == name);
                    Cow::Borrowed(found.map_or("", |(_, value)| value.as_str()))
                }
            }
        };
        self.fields.matches(read)
    }

    fn namespace_of<'a>(&self, object: &'a CachedObject) -> &'a str {
        if !self.kind.is_namespaced() {
            return "";
        }
        object.key.rsplit('/').nth(1).unwrap_or_default()
    }
}
