//! The conditions of a structural schema: whatever a rule speaks of has a type, and rules say nothing about types.
//!
//! Source: `ValidateStructural`, and of `ValidateCustomResourceDefinitionOpenAPISchema` what an arena relies on.

use std::collections::BTreeMap;

use serde_json::Value;

use super::BuildError;
use super::props::{Additional, Items, Props};
use crate::rules::pattern::{Pattern, PatternError};
use crate::rules::violation::{Problem, Violation};
use crate::walk::path::{Path, Style};
use crate::walk::validate::report::Report;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Where a schema stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Whether the schema uses only what is supported at all.
pub(super) fn supported(props: &Props) -> Result<(), BuildError> {
    let unsupported = [
        (!props.id.is_empty(), "id"),
        (!props.schema.is_empty(), "schema"),
        (!props.reference.is_empty(), "$ref"),
        (!props.pattern_properties.is_empty(), "patternProperties"),
        (!props.dependencies.is_empty(), "dependencies"),
        (props.additional_items.is_some(), "additionalItems"),
        (!props.definitions.is_empty(), "definitions"),
    ];
    if let Some((_, name)) = unsupported.iter().find(|(is_used, _)| *is_used) {
        return Err(BuildError::Unsupported(format!("OpenAPIV3Schema '{name}' is not supported")));
    }
    if props.items == Some(Items::Several) {
        let why = "OpenAPIV3Schema 'items' must be a schema, but is an array";
        return Err(BuildError::Unsupported(why.to_owned()));
    }
    if props.preserve == Some(false) {
        let why = "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined";
        return Err(BuildError::Unsupported(why.to_owned()));
    }
    props.parts().try_for_each(supported)
}

/// What is wrong with a whole schema.
pub(super) fn check(props: &Props, path: Path<'_>, found: &mut Report) {
    Check { pattern_bytes: 0, patterns: BTreeMap::new(), found }.base(props, Level::Root, path);
}

/// What an arena relies on besides: types that there are, and fields that are either named or not.
pub(super) fn relied_on(props: &Props, path: Path<'_>, found: &mut Report) {
    let child = |name| Path::Field(&path, name);
    let at = child("type");
    match &*props.ty {
        "" => {}
        "null" => {
            let why = "type cannot be set to null, use nullable as an alternative";
            found.push(|| Violation::plain(at.to_text(Style::Fields), Problem::Forbidden, why));
        }
        ty if !TYPES.contains(&ty) => {
            found.push(|| Violation {
                supported: TYPES.map(str::to_owned).into(),
                ..Violation::new(at.to_text(Style::Fields), Problem::NotSupported, ty.into(), "")
            });
        }
        _ => {}
    }
    let is_closed = !matches!(props.additional_properties, None | Some(Additional::Allowed(true)));
    if is_closed && !props.properties.is_empty() {
        let why = "additionalProperties and properties are mutual exclusive";
        let at = child("additionalProperties");
        found.push(|| Violation::plain(at.to_text(Style::Fields), Problem::Forbidden, why));
    }
    for (name, property) in &props.properties {
        relied_on(property, Path::Key(&child("properties"), name), found);
    }
    for (name, part) in [("items", props.item()), ("additionalProperties", props.additional())] {
        if let Some(part) = part {
            relied_on(part, child(name), found);
        }
    }
}

/// How much memory the patterns of a schema may take together.
const PATTERNS_BYTES_MAX: usize = 32 << 20;

struct Check<'f> {
    /// What the patterns take that were read, each where it stands; and each by itself, so that it is read once.
    pattern_bytes: usize,
    patterns: BTreeMap<String, Result<usize, PatternError>>,
    found: &'f mut Report,
}

impl Check<'_> {
    fn forbidden(&mut self, path: Path<'_>, detail: &str) {
        self.found.push(|| Violation::plain(path.to_text(Style::Fields), Problem::Forbidden, detail));
    }

    fn required(&mut self, path: Path<'_>, detail: &str) {
        self.found.push(|| Violation::plain(path.to_text(Style::Fields), Problem::Required, detail));
    }

    fn invalid(&mut self, path: Path<'_>, value: impl Into<Value>, detail: &str) {
        self.found
            .push(|| Violation::new(path.to_text(Style::Fields), Problem::Invalid, value.into(), detail));
    }

    /// A schema that is not part of a rule.
    fn base(&mut self, props: &Props, level: Level, path: Path<'_>) {
        let child = |name| Path::Field(&path, name);
        match (&props.items, &*props.ty) {
            (None, "array") => self.required(child("items"), "must be specified"),
            (Some(Items::Each(item)), _) => self.base(item, Level::Item, child("items")),
            _ => {}
        }
        for (name, property) in &props.properties {
            self.base(property, Level::Field, Path::Key(&child("properties"), name));
        }
        if props.additional_properties.is_some() {
            if level == Level::Root {
                self.forbidden(child("additionalProperties"), "must not be used at the root");
            }
            if props.embedded {
                let why = "must not be used if x-kubernetes-embedded-resource is set";
                self.forbidden(child("additionalProperties"), why);
            }
        }
        if let Some(values) = props.additional() {
            self.base(values, Level::Field, child("additionalProperties"));
        }
        self.extensions(props, path);
        self.rules(props, Exceptions::of(props), path);
        self.types(props, level, path);
        self.resource(props, level, path);
    }

    fn extensions(&mut self, props: &Props, path: Path<'_>) {
        const WHY: &str = "must be false if x-kubernetes-int-or-string is true";
        if props.int_or_string && props.preserves() {
            self.invalid(Path::Field(&path, "x-kubernetes-preserve-unknown-fields"), true, WHY);
        }
        if props.int_or_string && props.embedded {
            self.invalid(Path::Field(&path, "x-kubernetes-embedded-resource"), true, WHY);
        }
    }

    fn types(&mut self, props: &Props, level: Level, path: Path<'_>) {
        let at = Path::Field(&path, "type");
        let ty = &*props.ty;
        if props.embedded && ty != "object" {
            let why = "must be object if x-kubernetes-embedded-resource is true";
            match ty {
                "" => self.required(at, why),
                _ => self.invalid(at, ty, why),
            }
        } else if ty.is_empty() && !props.int_or_string && !props.preserves() {
            let why = match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            };
            self.required(at, why);
        }
        if level == Level::Root && !ty.is_empty() && ty != "object" {
            self.invalid(at, ty, "must be object at the root");
        }
    }

    /// What whole resources have.
    fn resource(&mut self, props: &Props, level: Level, path: Path<'_>) {
        let properties = Path::Field(&path, "properties");
        let is_resource = level == Level::Root || props.embedded;
        for name in ["kind", "apiVersion"] {
            if let Some(property) = props.properties.get(name).filter(|property| property.ty != "string")
                && is_resource
            {
                let at = Path::Key(&properties, name);
                self.invalid(Path::Field(&at, "type"), &*property.ty, "must be string");
            }
        }
        if let Some(metadata) = props.properties.get("metadata") {
            let at = Path::Key(&properties, "metadata");
            if is_resource && metadata.ty != "object" {
                self.invalid(Path::Field(&at, "type"), &*metadata.ty, "must be object");
            }
            if level == Level::Root && !says_only_names(metadata) {
                let why = "must not specify anything other than name and generateName, but metadata is implicitly \
                           specified";
                self.forbidden(at, why);
            }
        }
        if props.embedded && !props.preserves() && props.properties.is_empty() {
            let why = "must not be empty if x-kubernetes-embedded-resource is true without \
                       x-kubernetes-preserve-unknown-fields";
            self.required(properties, why);
        }
    }

    /// The rules of a schema, which may hold schemas themselves.
    fn rules(&mut self, props: &Props, except: Exceptions, path: Path<'_>) {
        let child = |name| Path::Field(&path, name);
        if !except.any_of {
            self.several(&props.any_of, false, child("anyOf"));
        }
        self.several(&props.all_of, except.first_all_of, child("allOf"));
        self.several(&props.one_of, false, child("oneOf"));
        if let Some(not) = &props.not {
            self.nested(not, Exceptions::default(), child("not"));
        }
        if !props.pattern.is_empty() {
            self.pattern(&props.pattern, child("pattern"));
        }
    }

    /// Reads a pattern, unless there is no room left for any.
    fn pattern(&mut self, pattern: &str, path: Path<'_>) {
        if self.pattern_bytes <= PATTERNS_BYTES_MAX {
            let read = || Pattern::new(pattern).map(|pattern| pattern.bytes());
            match self.patterns.entry(pattern.to_owned()).or_insert_with(read) {
                Ok(bytes) => self.pattern_bytes += *bytes,
                Err(why) => {
                    let why = format!("must be a valid regular expression, but isn't: {why}");
                    return self.invalid(path, pattern, &why);
                }
            }
        }
        if self.pattern_bytes > PATTERNS_BYTES_MAX {
            let why = format!("all patterns together take more than {PATTERNS_BYTES_MAX} bytes of memory");
            self.invalid(path, pattern, &why);
        }
    }

    fn several(&mut self, all: &[Props], is_first_excepted: bool, path: Path<'_>) {
        for (index, nested) in all.iter().enumerate() {
            let except = Exceptions { any_of: is_first_excepted && index == 0, first_all_of: false };
            self.nested(nested, except, Path::Index(&path, index));
        }
    }

    /// A schema that is part of a rule.
    fn nested(&mut self, props: &Props, except: Exceptions, path: Path<'_>) {
        let child = |name| Path::Field(&path, name);
        self.rules(props, except, path);
        if let Some(item) = props.item() {
            self.nested(item, Exceptions::default(), child("items"));
        }
        for (name, property) in &props.properties {
            self.nested(property, Exceptions::default(), Path::Key(&child("properties"), name));
        }
        let is_open = !matches!(props.additional_properties, None | Some(Additional::Allowed(false)));
        for (is_broken, name, what) in [
            (!props.ty.is_empty(), "type", "empty"),
            (is_open, "additionalProperties", "undefined"),
            (props.default.is_some(), "default", "undefined"),
            (!props.title.is_empty(), "title", "empty"),
            (!props.description.is_empty(), "description", "empty"),
            (props.nullable, "nullable", "false"),
            (props.preserves(), "x-kubernetes-preserve-unknown-fields", "false"),
            (props.embedded, "x-kubernetes-embedded-resource", "false"),
            (props.int_or_string, "x-kubernetes-int-or-string", "false"),
            (!props.list_map_keys.is_empty(), "x-kubernetes-list-map-keys", "empty"),
            (props.list_type.is_some(), "x-kubernetes-list-type", "undefined"),
            (props.map_type.is_some(), "x-kubernetes-map-type", "undefined"),
            (!props.validations.is_empty(), "x-kubernetes-validations", "empty"),
        ] {
            if is_broken {
                self.forbidden(child(name), &format!("must be {what} to be structural"));
            }
        }
        if props.properties.contains_key("metadata") {
            let at = Path::Key(&child("properties"), "metadata");
            self.forbidden(at, "must not be specified in a nested context");
        }
    }
}

/// Where a rule may say of what type a number or text is.
#[derive(Clone, Copy, Default)]
struct Exceptions {
    any_of: bool,
    first_all_of: bool,
}

impl Exceptions {
    fn of(props: &Props) -> Self {
        let first_all_of = props.all_of.first().is_some_and(|first| is_int_or_string(&first.any_of));
        Self { any_of: is_int_or_string(&props.any_of), first_all_of }
    }
}

/// Whether the alternatives are to be a whole number or a text, and nothing else.
pub(super) fn is_int_or_string(any_of: &[Props]) -> bool {
    let only = |ty: &str| Props { ty: ty.to_owned(), ..Props::default() };
    matches!(any_of, [first, second] if *first == only("integer") && *second == only("string"))
}

/// Whether the schema of an object's own metadata restricts nothing but names.
fn says_only_names(metadata: &Props) -> bool {
    let are_names = metadata.properties.keys().all(|name| matches!(&**name, "name" | "generateName"));
    let properties = if are_names { metadata.properties.clone() } else { Default::default() };
    let plain =
        Props { ty: metadata.ty.clone(), default: metadata.default.clone(), properties, ..Props::default() };
    *metadata == plain
}
