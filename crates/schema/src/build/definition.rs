//! Checks of a schema in a CustomResourceDefinition: more than an arena needs, as what is refused now cannot become a
//! promise.
//!
//! Rules in CEL must be there and readable; what they mean is for whoever evaluates them. An update may leave as it is
//! what the old definition has already ([`Kept`]).
//!
//! Source: `validateCustomResourceDefinitionValidation` of `k8s.io/apiextensions-apiserver/pkg/apis/apiextensions`.

mod defaults;
pub mod field_path;
mod lists;
mod standard;
mod validations;

use serde_json::Value;

use super::props::Props;
use super::structural::supported;
use super::{BuildError, Source, check_bounds, complete, lower, structural};
use crate::Schemas;
use crate::rules::violation::{Problem, Violation};
use crate::walk::path::{Path, Style};
use crate::walk::stack::with_stack;
use crate::walk::validate::report::Report;

/// What the root of a schema may say if `status` has a subresource, as upstream names it.
const ROOT_FIELDS: [(&str, &str); 22] = [
    ("description", "Description"),
    ("type", "Type"),
    ("format", "Format"),
    ("title", "Title"),
    ("maximum", "Maximum"),
    ("exclusiveMaximum", "ExclusiveMaximum"),
    ("minimum", "Minimum"),
    ("exclusiveMinimum", "ExclusiveMinimum"),
    ("maxLength", "MaxLength"),
    ("minLength", "MinLength"),
    ("pattern", "Pattern"),
    ("maxItems", "MaxItems"),
    ("minItems", "MinItems"),
    ("uniqueItems", "UniqueItems"),
    ("multipleOf", "MultipleOf"),
    ("required", "Required"),
    ("items", "Items"),
    ("properties", "Properties"),
    ("externalDocs", "ExternalDocs"),
    ("example", "Example"),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields"),
    ("x-kubernetes-validations", "XValidations"),
];

/// The conditions that a new schema need not meet because the old definition does not meet them either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Types that there are.
    pub types: bool,
    /// Being structural.
    pub structure: bool,
    /// Defaults without fields that are not in the schema.
    pub defaults: bool,
    /// Sets of what is replaced as a whole.
    pub sets: bool,
    /// Keys of lists that are always there.
    pub keys: bool,
}

impl Kept {
    /// The conditions that these schemas, the old definition's, do not meet.
    pub fn of<'a>(schemas: impl IntoIterator<Item = &'a Value>) -> Self {
        schemas.into_iter().fold(Self::default(), |kept, schema| {
            let one = with_stack(|| Self::of_one(schema));
            Self {
                types: kept.types || one.types,
                structure: kept.structure || one.structure,
                defaults: kept.defaults || one.defaults,
                sets: kept.sets || one.sets,
                keys: kept.keys || one.keys,
            }
        })
    }

    fn of_one(schema: &Value) -> Self {
        let path = Path::Root;
        let Some(props) = Some(schema).filter(|schema| check_bounds(schema).is_ok()).and_then(read) else {
            return Self { structure: true, ..Self::default() };
        };
        let structure = supported(&props).is_err() || !structural_report(&props, path).is_valid();
        let mut kept = Self { structure, ..Self::default() };
        props.any(&mut |schema| {
            kept.types |= !schema.ty.is_empty() && !standard::TYPES.contains(&&*schema.ty);
            kept.sets |= lists::has_granular_set(schema);
            let mut found = Report::default();
            lists::keys(schema, path, &mut found);
            kept.keys |= !found.is_valid();
            false
        });
        let source = Source {
            group: "",
            version: "",
            kind: "Kind",
            list_kind: "KindList",
            plural: "",
            path: "",
            schema,
        };
        if !structure && let Ok(arena) = lower::lower(&source, &props) {
            kept.defaults = defaults::has_unpruned(&arena, &source, &props);
        }
        kept
    }
}

/// `true` if a schema fills anything in.
pub fn has_defaults(schema: &Value) -> bool {
    let has = |props: Props| props.any(&mut |schema| schema.default.is_some());
    check_bounds(schema).is_ok() && with_stack(|| read(schema).is_some_and(has))
}

/// The strictness with which a schema is checked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Strictness {
    /// `true` if `status` has a subresource, and so is checked by itself.
    pub has_status: bool,
    /// `true` if the schema may be other than structural: the definition keeps unknown fields, and always did.
    pub may_be_loose: bool,
    /// The conditions that the old definition does not meet either.
    pub kept: Kept,
}

/// The result of checking a schema.
#[derive(Debug, Default)]
pub struct Checked {
    /// The violations, in upstream's order.
    pub violations: Vec<Violation>,
    /// The number of further violations.
    pub left_out: usize,
    /// The arena of the schema, if nothing is wrong.
    pub arena: Option<Schemas>,
}

/// Checks the schema of one version of a kind, or what the schemas of all its versions have in common.
pub fn check(source: &Source<'_>, strictness: Strictness) -> Checked {
    if let Err(why) = check_bounds(source.schema) {
        return refused(source, &why);
    }
    with_stack(|| match Props::read(source.schema) {
        Ok(props) => checked(source, strictness, &props),
        Err(why) => refused(source, &why),
    })
}

fn checked(source: &Source<'_>, strictness: Strictness, props: &Props) -> Checked {
    let path = Path::Base(source.path);
    let mut found = Report::default();
    if strictness.has_status {
        root(source, props, &mut found);
    }
    if props.nullable {
        let at = Path::Field(&path, "nullable");
        found.forbidden(at, "nullable cannot be true at the root");
    }
    let unsupported = supported(props).err();
    let mut arena = None;
    let is_loose = strictness.may_be_loose && !props.any(&mut |schema| schema.is_extended());
    if unsupported.is_none() && !is_loose {
        let structural = structural_report(props, path);
        if structural.is_valid() {
            arena = lowered(source, props, strictness.kept, &mut found);
        } else {
            found.append_sorted(structural);
        }
    }
    if let Some(arena) = &arena {
        defaults::check(arena, source, props, strictness.kept, &mut found);
    }
    standard::check(props, strictness.kept, path, &mut found);
    if let Some(why) = unsupported.filter(|_| found.is_valid()) {
        return refused(source, &why);
    }
    let arena = arena.filter(|_| found.is_valid());
    Checked { left_out: found.left_out(), violations: found.into_violations(), arena }
}

/// The arena, to try values in. One that only lacks sense, which is told elsewhere or kept, is no error here.
fn lowered(source: &Source<'_>, props: &Props, kept: Kept, found: &mut Report) -> Option<Schemas> {
    let mut senseless = Report::default();
    structural::relied_on(props, Path::Base(source.path), &mut senseless);
    if !senseless.is_valid() || kept.types {
        return None;
    }
    lower::lower(source, props)
        .map_err(|why| {
            let at = source.path.strip_suffix(".openAPIV3Schema").unwrap_or(source.path).to_owned();
            let why = format!("error building validator: {why}");
            found.push(|| Violation::new(at, Problem::Invalid, "".into(), why));
        })
        .ok()
}

fn structural_report(props: &Props, path: Path<'_>) -> Report {
    let mut found = Report::default();
    structural::check(props, path, &mut found);
    complete::check(props, path, &mut found);
    found
}

fn read(schema: &Value) -> Option<Props> {
    Props::read(schema).ok()
}

/// What is said of a schema that cannot be looked into.
fn refused(source: &Source<'_>, why: &BuildError) -> Checked {
    let violation = Violation::new(source.path.to_owned(), Problem::Invalid, "".into(), why.to_string());
    Checked { violations: vec![violation], ..Checked::default() }
}

/// The root of a schema of which `status` is checked by itself says nothing that would be lost then.
fn root(source: &Source<'_>, props: &Props, found: &mut Report) {
    let path = Path::Base(source.path);
    if !props.ty.is_empty() && props.ty != "object" {
        let why = "only \"object\" is allowed as the type at the root of the schema if the status subresource is \
                   enabled";
        found.invalid(Path::Field(&path, "type"), &*props.ty, why);
        return;
    }
    let is_said = |value: &Value| !matches!(value, Value::Null | Value::Bool(false)) && value != "";
    let is_allowed = |name: &str| ROOT_FIELDS.iter().any(|(allowed, _)| *allowed == name);
    let mut fields = source.schema.as_object().into_iter().flatten();
    if fields.any(|(name, value)| is_said(value) && !is_allowed(name)) {
        let names: Vec<&str> = ROOT_FIELDS.iter().map(|(_, name)| *name).collect();
        let why = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            names.join(" ")
        );
        found.invalid(path, source.schema.clone(), &why);
    }
}

impl Report {
    pub(super) fn forbidden(&mut self, path: Path<'_>, why: &str) {
        self.push(|| Violation::plain(path.to_text(Style::Fields), Problem::Forbidden, why));
    }

    pub(super) fn required(&mut self, path: Path<'_>, why: &str) {
        self.push(|| Violation::plain(path.to_text(Style::Fields), Problem::Required, why));
    }

    pub(super) fn invalid(&mut self, path: Path<'_>, value: impl Into<Value>, why: &str) {
        self.push(|| Violation::new(path.to_text(Style::Fields), Problem::Invalid, value.into(), why));
    }

    pub(super) fn not_supported(&mut self, path: Path<'_>, value: &str, supported: &[&str]) {
        self.push(|| Violation {
            supported: supported.iter().map(|name| (*name).to_owned()).collect(),
            ..Violation::new(path.to_text(Style::Fields), Problem::NotSupported, value.into(), "")
        });
    }

    /// Adds what another report has, in order of field.
    fn append_sorted(&mut self, other: Self) {
        self.leave_out(other.left_out());
        for violation in super::sorted(other) {
            self.push(|| violation);
        }
    }
}

#[cfg(test)]
mod tests;
