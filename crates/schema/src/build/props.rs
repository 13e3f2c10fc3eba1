//! A schema as it is written (`JSONSchemaProps`).

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use super::BuildError;
use crate::rules::Validation;

/// A schema; what is not said is empty.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Props {
    pub(super) id: String,
    #[serde(rename = "$schema")]
    pub(super) schema: String,
    #[serde(rename = "$ref")]
    pub(super) reference: String,
    #[serde(rename = "type")]
    pub(super) ty: String,
    pub(super) title: String,
    pub(super) description: String,
    pub(super) format: String,
    pub(super) nullable: bool,
    pub(super) default: Option<Value>,
    pub(super) maximum: Option<f64>,
    pub(super) exclusive_maximum: bool,
    pub(super) minimum: Option<f64>,
    pub(super) exclusive_minimum: bool,
    pub(super) multiple_of: Option<f64>,
    pub(super) max_length: Option<i64>,
    pub(super) min_length: Option<i64>,
    pub(super) pattern: String,
    pub(super) max_items: Option<i64>,
    pub(super) min_items: Option<i64>,
    pub(super) unique_items: bool,
    pub(super) max_properties: Option<i64>,
    pub(super) min_properties: Option<i64>,
    #[serde(rename = "enum")]
    pub(super) allowed: Vec<Value>,
    pub(super) required: Vec<String>,
    pub(super) all_of: Vec<Props>,
    pub(super) any_of: Vec<Props>,
    pub(super) one_of: Vec<Props>,
    pub(super) not: Option<Box<Props>>,
    pub(super) properties: BTreeMap<String, Props>,
    pub(super) items: Option<Items>,
    pub(super) additional_properties: Option<Additional>,
    pub(super) additional_items: Option<Value>,
    pub(super) pattern_properties: BTreeMap<String, Value>,
    pub(super) dependencies: BTreeMap<String, Value>,
    pub(super) definitions: BTreeMap<String, Value>,
    pub(super) example: Option<Value>,
    pub(super) external_docs: Option<Value>,
    #[serde(rename = "x-kubernetes-preserve-unknown-fields")]
    pub(super) preserve: Option<bool>,
    #[serde(rename = "x-kubernetes-embedded-resource")]
    pub(super) embedded: bool,
    #[serde(rename = "x-kubernetes-int-or-string")]
    pub(super) int_or_string: bool,
    #[serde(rename = "x-kubernetes-list-map-keys")]
    pub(super) list_map_keys: Vec<String>,
    #[serde(rename = "x-kubernetes-list-type")]
    pub(super) list_type: Option<String>,
    #[serde(rename = "x-kubernetes-map-type")]
    pub(super) map_type: Option<String>,
    #[serde(rename = "x-kubernetes-validations")]
    pub(super) validations: Vec<Validation>,
}

/// `JSONSchemaPropsOrArray`
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Items {
    Each(Box<Props>),
    Several,
}

/// `JSONSchemaPropsOrBool`
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Additional {
    Each(Box<Props>),
    Allowed(bool),
}

impl<'de> Deserialize<'de> for Items {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Array(_) => Ok(Self::Several),
            schema => Ok(Self::Each(Box::new(serde_json::from_value(schema).map_err(de::Error::custom)?))),
        }
    }
}

impl<'de> Deserialize<'de> for Additional {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Bool(is_allowed) => Ok(Self::Allowed(is_allowed)),
            schema => Ok(Self::Each(Box::new(serde_json::from_value(schema).map_err(de::Error::custom)?))),
        }
    }
}

impl Props {
    /// Reads a schema.
    pub(super) fn read(schema: &Value) -> Result<Self, BuildError> {
        Self::deserialize(schema).map_err(|failure| BuildError::Malformed(failure.to_string()))
    }

    /// Whether unknown fields are preserved.
    pub(super) fn preserves(&self) -> bool {
        self.preserve == Some(true)
    }

    /// The schema of elements.
    pub(super) fn item(&self) -> Option<&Self> {
        match &self.items {
            Some(Items::Each(item)) => Some(item),
            _ => None,
        }
    }

    /// The schema of the values of fields without a name.
    pub(super) fn additional(&self) -> Option<&Self> {
        match &self.additional_properties {
            Some(Additional::Each(schema)) => Some(schema),
            _ => None,
        }
    }

    /// Whether this schema asks for what only structural ones have.
    pub(super) fn is_extended(&self) -> bool {
        let is_flagged = self.embedded || self.int_or_string || self.preserve.is_some();
        let is_listed = self.list_type.is_some() || !self.list_map_keys.is_empty();
        is_flagged || is_listed || !self.validations.is_empty() || self.default.is_some()
    }

    /// Whether a schema within this one, itself included, is such.
    pub(super) fn any(&self, is: &mut impl FnMut(&Self) -> bool) -> bool {
        is(self) || self.parts().any(|part| part.any(is))
    }

    /// All schemas directly within this one, those of rules included.
    pub(super) fn parts(&self) -> impl Iterator<Item = &Self> {
        let junctors = [&self.all_of, &self.any_of, &self.one_of].into_iter().flatten();
        let single = [self.not.as_deref(), self.item(), self.additional()].into_iter().flatten();
        junctors.chain(single).chain(self.properties.values())
    }
}
