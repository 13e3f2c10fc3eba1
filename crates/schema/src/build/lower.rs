//! A schema that is known to be structural into an arena and its rules.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest as _, Sha256};

use super::parts::{Parts, index, message};
use super::props::{Additional, Props};
use super::{BuildError, Source, builtin, checks};
use crate::Object;
use crate::arena::TypeRef;
use crate::rows::{
    ATOMIC, EMBEDDED, Field, Kind, LENIENT, List, ListKind, Names, OPEN, PRESERVE, REQUIRED, Schemas, Type,
};
use crate::rules::{Location, Rules};
use crate::walk::decode;

/// What descriptions of lists refer to.
const CONVENTIONS: &str =
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";
/// Where the schemas of parts stand, which are locations themselves.
const PARTS: [&str; 3] = ["additionalProperties", "items", "properties"];

/// The arena of a kind.
pub(super) fn lower(source: &Source<'_>, props: &Props) -> Result<Schemas, BuildError> {
    let name = |kind: &str| {
        let group: Vec<&str> = source.group.rsplit('.').collect();
        format!("{}.{}.{kind}", group.join("."), source.version)
    };
    let builtins = crate::builtin();
    let (root_name, list_name) = (name(source.kind), name(source.list_kind));
    let needed = builtin::needed(builtins);
    let mut names: Vec<(&str, Option<u16>)> = vec![(&root_name, None), (&list_name, None)];
    names.extend(needed.iter().filter_map(|index| Some((builtins.at(*index)?.message_name(), Some(*index)))));
    names.sort_unstable();
    if names.windows(2).any(|pair| matches!(pair, [(one, _), (other, _)] if one == other)) {
        return Err(BuildError::Unsupported(format!("kind {:?} has the name of another", source.kind)));
    }
    let position = |name: &str| index(names.iter().position(|(other, _)| *other == name).unwrap_or_default());
    let (root, list) = (position(&root_name)?, position(&list_name)?);
    let mut parts = Parts {
        kind: source.kind.to_owned(),
        object_meta: position(builtin::OBJECT_META)?,
        ..Parts::default()
    };
    parts.messages = vec![message(String::new(), 0, Vec::new()); names.len()];
    let indexes: BTreeMap<u16, u16> =
        names.iter().zip(0..).filter_map(|((_, old), new)| Some(((*old)?, new))).collect();
    for (old, new) in &indexes {
        if let Some(copy) = builtin::copy(builtins, *old, &indexes, &mut parts) {
            parts.set(*new, copy);
        }
    }
    let schema = Written { props, written: source.schema.as_object(), is_open: props.preserves() };
    let fields = parts.fields(root, schema, Resource::Whole)?;
    let preserved = if props.preserves() { PRESERVE | OPEN } else { 0 };
    parts.set(root, message(root_name.clone(), LENIENT | preserved, fields));
    let rules = parts.rules_of(schema, checks::types(props))?;
    parts.rules.insert(Location::Root(root), rules);
    let fields = parts.list_fields(source, [root, list], position(builtin::LIST_META)?)?;
    parts.set(list, message(list_name.clone(), 0, fields));
    Ok(parts.finish(source, [root, list]))
}

/// A schema and how it was written.
#[derive(Clone, Copy)]
struct Written<'a> {
    props: &'a Props,
    written: Option<&'a Object>,
    /// Whether unknown fields are preserved here or anywhere above: server-side apply takes them then, though they may be
    /// pruned later. Source: `visitSpec` of `k8s.io/kube-openapi/pkg/schemaconv`.
    is_open: bool,
}

impl<'a> Written<'a> {
    fn part(self, name: &str, props: &'a Props) -> Self {
        let written = self.written.and_then(|written| written.get(name)?.as_object());
        Self { props, written, is_open: self.is_open || props.preserves() }
    }

    fn property(self, name: &str, props: &'a Props) -> Self {
        self.part("properties", props).part(name, props)
    }
}

/// Whether an object has `apiVersion`, `kind` and `metadata` in any case.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Resource {
    Whole,
    Part,
}

/// JSON of what was JSON.
fn text(written: &impl serde::Serialize) -> Box<str> {
    serde_json::to_string(written).unwrap_or_default().into()
}

fn field(name: &str, ty: Type, flags: u16) -> Field {
    let (merge_key, default) = (Cow::Borrowed(""), Cow::Borrowed(""));
    Field {
        name: Cow::Owned(name.to_owned()),
        ty,
        number: 0,
        flags,
        via: Cow::Borrowed(&[]),
        merge_key,
        default,
    }
}

impl Parts {
    fn rules_of(&self, schema: Written<'_>, types: &'static [&'static str]) -> Result<Rules, BuildError> {
        let rest = schema
            .written
            .into_iter()
            .flatten()
            .filter(|(name, value)| !(PARTS.contains(&name.as_str()) && value.is_object()));
        Ok(Rules {
            checks: checks::checks(schema.props, types)?,
            default: schema.props.default.clone(),
            validations: schema.props.validations.clone(),
            overlay: None,
            written: text(&rest.collect::<BTreeMap<_, _>>()),
        })
    }

    /// The type of the values of a schema.
    fn ty(&mut self, schema: Written<'_>) -> Result<Type, BuildError> {
        let props = schema.props;
        Ok(match &*props.ty {
            _ if props.int_or_string => Type::IntOrString,
            "boolean" => Type::Bool,
            "integer" if props.format == "int32" => Type::Int32,
            "integer" => Type::Int64,
            "number" => Type::Double,
            "string" => Type::String,
            "array" => self.elements(schema)?,
            "object" => self.object(schema)?,
            _ if !props.properties.is_empty() || props.additional_properties.is_some() => {
                self.object(schema)?
            }
            _ if props.items.is_some() => self.elements(schema)?,
            _ => Type::Json,
        })
    }

    fn elements(&mut self, schema: Written<'_>) -> Result<Type, BuildError> {
        let Some(item) = schema.props.item() else { return Ok(Type::Json) };
        let item = schema.part("items", item);
        let kind = match schema.props.list_type.as_deref() {
            None => ListKind::Unset,
            Some("set") => ListKind::Set,
            Some("map") => ListKind::Map,
            Some(_) => ListKind::Atomic,
        };
        let keys = Names::Read(schema.props.list_map_keys.clone().into());
        let ty = self.ty(item)?;
        let at = self.list(List { item: ty, kind, keys })?;
        let rules = self.rules_of(item, checks::types(item.props))?;
        self.rules.insert(Location::Item(at), rules);
        Ok(Type::List(at))
    }

    fn object(&mut self, schema: Written<'_>) -> Result<Type, BuildError> {
        let props = schema.props;
        let is_map = props.properties.is_empty() && !props.embedded;
        match &props.additional_properties {
            Some(Additional::Each(values)) if is_map => {
                let values = schema.part("additionalProperties", values);
                let ty = self.ty(values)?;
                let at = self.map(ty)?;
                let rules = self.rules_of(values, checks::types(values.props))?;
                self.rules.insert(Location::Value(at), rules);
                return Ok(Type::Map(at));
            }
            Some(Additional::Allowed(_)) if is_map => {
                // Nothing is known of the values: objects among them keep no fields.
                let bare = self.reserve()?;
                self.flag(bare, LENIENT | OPEN);
                return Ok(Type::Map(self.map(Type::Message(bare))?));
            }
            _ => {}
        }
        let at = self.reserve()?;
        let resource = if props.embedded { Resource::Whole } else { Resource::Part };
        let fields = self.fields(at, schema, resource)?;
        let preserves = props.preserves() || props.additional_properties == Some(Additional::Allowed(true));
        let flags = [
            (true, LENIENT),
            (preserves, PRESERVE),
            (schema.is_open || preserves || fields.is_empty(), OPEN),
            (props.embedded, EMBEDDED),
            (props.map_type.as_deref() == Some("atomic"), ATOMIC),
        ];
        if let Some(message) = self.messages.get_mut(usize::from(at)) {
            message.fields = Cow::Owned(fields);
        }
        flags.iter().filter(|(is_set, _)| *is_set).for_each(|(_, flag)| self.flag(at, *flag));
        Ok(Type::Message(at))
    }

    fn flag(&mut self, at: u16, flag: u16) {
        if let Some(message) = self.messages.get_mut(usize::from(at)) {
            message.flags |= flag;
        }
    }

    /// The fields of an object, in order of name.
    fn fields(&mut self, at: u16, schema: Written<'_>, resource: Resource) -> Result<Vec<Field>, BuildError> {
        const OWN: [&str; 3] = ["apiVersion", "kind", "metadata"];
        let props = schema.props;
        let mut names: BTreeSet<&str> = props.properties.keys().map(String::as_str).collect();
        if resource == Resource::Whole {
            names.extend(OWN);
        }
        let mut fields = Vec::with_capacity(names.len());
        for (name, number) in names.into_iter().zip(0usize..) {
            let is_metadata = name == "metadata" && resource == Resource::Whole;
            let is_required = props.required.iter().any(|required| required == name);
            let mut flags = if is_required { REQUIRED } else { 0 };
            let Some(property) = props.properties.get(name) else {
                let ty = if is_metadata { Type::Message(self.object_meta) } else { Type::String };
                fields.push(field(name, ty, flags));
                continue;
            };
            if property.map_type.as_deref() == Some("atomic") {
                flags |= ATOMIC;
            }
            let property = schema.property(name, property);
            let mut rules = self.rules_of(property, checks::types(property.props))?;
            let ty = if is_metadata {
                rules.overlay = Some(Box::new(checks::nested(property.props)?));
                rules.default = None;
                Type::Message(self.object_meta)
            } else {
                self.ty(property)?
            };
            let mut field = field(name, ty, flags);
            if let Some(default) = &rules.default {
                field.default = Cow::Owned(default.to_string());
            }
            fields.push(field);
            self.rules.insert(Location::Field(at, index(number)?), rules);
        }
        Ok(fields)
    }

    fn list_fields(
        &mut self,
        source: &Source<'_>,
        [root, list]: [u16; 2],
        meta: u16,
    ) -> Result<Vec<Field>, BuildError> {
        let about = |location, words: String, mut written: Object| {
            written.insert("description".into(), words.into());
            (location, Rules { written: text(&written), ..Rules::default() })
        };
        let whole: Object = [("type".into(), "object".into()), ("required".into(), vec!["items"].into())]
            .into_iter()
            .collect();
        let array = [("type".into(), "array".into())].into_iter().collect();
        let items = format!("List of {}. More info: {CONVENTIONS}", source.plural);
        self.rules.extend([
            about(Location::Root(list), format!("{} is a list of {}", source.list_kind, source.kind), whole),
            about(Location::Field(list, 1), items, array),
        ]);
        let items =
            self.list(List { item: Type::Message(root), kind: ListKind::Unset, keys: Names::NONE })?;
        Ok(vec![
            field("apiVersion", Type::String, 0),
            field("items", Type::List(items), REQUIRED),
            field("kind", Type::String, 0),
            field("metadata", Type::Message(meta), 0),
        ])
    }

    fn finish(self, source: &Source<'_>, [root, list]: [u16; 2]) -> Schemas {
        let kind = |kind: &str, message| Kind {
            group: Cow::Owned(source.group.to_owned()),
            version: Cow::Owned(source.version.to_owned()),
            kind: Cow::Owned(kind.to_owned()),
            message,
        };
        let mut kinds = vec![kind(source.kind, root), kind(source.list_kind, list)];
        kinds.sort_by(|left, right| left.kind.cmp(&right.kind));
        let mut schemas = Schemas {
            messages: Cow::Owned(self.messages),
            lists: Cow::Owned(self.lists),
            maps: Cow::Owned(self.maps),
            kinds: Cow::Owned(kinds),
            rules: self.rules,
            fingerprint: Cow::Owned(fingerprint(source)),
        };
        prune_defaults(&mut schemas, root);
        schemas
    }
}

pub(super) fn fingerprint(source: &Source<'_>) -> String {
    let Source { group, version, kind, list_kind, plural, schema, .. } = source;
    let text = format!("{group}/{version} {kind} {list_kind} {plural} {schema}");
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Takes out of defaults what the schema does not know.
fn prune_defaults(schemas: &mut Schemas, root: u16) {
    let mut rules = std::mem::take(&mut schemas.rules);
    for (location, rules) in &mut rules {
        let Some(default) = rules.default.take() else { continue };
        let ty = match *location {
            Location::Root(index) => Some(Type::Message(index)),
            Location::Item(index) => Some(schemas.item(index)),
            Location::Value(index) => Some(schemas.map(index)),
            Location::Field(message, field) => {
                let fields = schemas.at(message).map(|schema| schema.fields());
                fields.and_then(|fields| fields.get(usize::from(field))).map(|field| field.ty)
            }
        };
        let (Some(ty), Some(owner)) = (ty, schemas.at(root)) else { continue };
        let pruned = decode::pruned(TypeRef { schemas, ty }, owner.message, default);
        let text = pruned.to_string();
        rules.default = Some(pruned);
        if let Location::Field(message, field) = *location
            && let Some(message) = schemas.messages.to_mut().get_mut(usize::from(message))
            && let Some(field) = message.fields.to_mut().get_mut(usize::from(field))
        {
            field.default = Cow::Owned(text);
        }
    }
    schemas.rules = rules;
}
