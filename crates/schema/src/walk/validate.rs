//! The validation walk: a value against the rules of its schema, with every broken one.
//!
//! One pass finds what the schema refuses and which elements of sets and maps come twice. Resources within the object are
//! handed back, for those who know the rules of names. The texts are upstream's; how many errors are kept, and how much
//! of the value they may repeat, is bounded.
//!
//! Source: `k8s.io/kube-openapi/pkg/validation/validate`, and of `k8s.io/apiextensions-apiserver/pkg/apiserver` the
//! packages `validation` and `schema/listtype`.

mod junctors;
mod lists;
mod number;
pub(crate) mod report;
mod scalar;
mod seen;

use serde_json::Value;

use crate::Object;
use crate::arena::SchemaRef;
use crate::rows::{Schemas, Type};
use crate::rules::violation::{Problem, Violation};
use crate::rules::{Checks, Counts, Location, Nested, Rules};
use crate::walk::path::{Path, Style};
use crate::walk::stack::with_stack;
use report::{Mark, Report};
use seen::Seen;

/// The findings of a walk.
#[derive(Clone, Debug, Default)]
pub struct Findings<'v> {
    /// Elements of sets and maps that come twice.
    pub repeated: Vec<Violation>,
    /// All other broken rules.
    pub violations: Vec<Violation>,
    /// The number of further ones.
    pub left_out: usize,
    /// Each resource within the object, with its path.
    pub resources: Vec<(String, &'v Object)>,
}

/// Checks a whole object.
pub fn validate<'v>(schema: SchemaRef<'_>, value: &'v Value) -> Findings<'v> {
    root(schema, value, None)
}

/// Checks a whole object that is to take the place of `old`: what was wrong before and has not changed may stay, apart from
/// elements that come twice. Elements of a map that only stand elsewhere have not changed.
pub fn validate_update<'v>(schema: SchemaRef<'_>, value: &'v Value, old: &'v Value) -> Findings<'v> {
    root(schema, value, Some(old))
}

fn root<'v>(schema: SchemaRef<'_>, value: &'v Value, old: Option<&'v Value>) -> Findings<'v> {
    let ty = Type::Message(schema.index);
    let rules = schema.schemas.rules(Location::Root(schema.index));
    run(schema, |walk, report| walk.value_at(ty, rules, Seen::of(ty, value, old), Path::Root, report))
}

/// Checks one field of an object, which may have had another value before: as [`validate_update`].
pub fn validate_field<'v>(
    schema: SchemaRef<'_>,
    name: &str,
    value: &'v Value,
    old: Option<&'v Value>,
) -> Findings<'v> {
    let Some((index, field)) = schema.message.field(name) else { return Findings::default() };
    let location = u16::try_from(index).ok().map(|index| Location::Field(schema.index, index));
    let rules = location.and_then(|location| schema.schemas.rules(location));
    run(schema, |walk, report| {
        let seen = Seen::of(field.ty, value, old);
        walk.value_at(field.ty, rules, seen, Path::Field(&Path::Root, name), report);
    })
}

fn run<'a, 'v>(schema: SchemaRef<'a>, check: impl FnOnce(&mut Walk<'a, 'v>, &mut Report)) -> Findings<'v> {
    let mut walk = Walk::new(schema.schemas, Formats::OfTexts);
    let mut report = Report::default();
    with_stack(|| check(&mut walk, &mut report));
    let left_out = walk.lists.left_out() + report.left_out();
    Findings {
        repeated: walk.lists.into_violations(),
        violations: report.into_violations(),
        left_out,
        resources: walk.resources,
    }
}

/// What the rules of one location say of a default there, as paths below it; of lists only how long they are.
pub(crate) fn default_at(schemas: &Schemas, ty: Type, rules: &Rules, value: &Value) -> Vec<Violation> {
    let mut walk = Walk::new(schemas, Formats::All);
    let mut report = Report::default();
    with_stack(|| walk.value_at(ty, Some(rules), Seen::new(value), Path::Root, &mut report));
    report.into_violations()
}

/// The formats that are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Formats {
    /// Those of texts: for objects upstream takes formats of numbers out of the schema.
    ///
    /// Source: `StripUnsupportedFormatsPostProcessorForVersion`.
    OfTexts,
    /// Those of numbers, too: defaults are looked at by the schema as it was written.
    All,
}

struct Walk<'a, 'v> {
    schemas: &'a Schemas,
    formats: Formats,
    lists: Report,
    resources: Vec<(String, &'v Object)>,
}

/// What the parts of a value are checked by.
#[derive(Clone, Copy)]
enum Parts<'a> {
    Typed(Type),
    Nested(&'a Nested),
}

impl<'a, 'v> Walk<'a, 'v> {
    fn new(schemas: &'a Schemas, formats: Formats) -> Self {
        Self { schemas, formats, lists: Report::default(), resources: Vec::new() }
    }

    fn value_at(
        &mut self,
        ty: Type,
        rules: Option<&'a Rules>,
        value: Seen<'a, 'v>,
        path: Path<'_>,
        report: &mut Report,
    ) {
        match (ty, value.new) {
            (Type::List(index), Value::Array(items)) => {
                if let Some(list) = self.schemas.list(index) {
                    lists::check(list, items, path, &mut self.lists);
                }
            }
            (Type::Message(index), Value::Object(object))
                if self.schemas.at(index).is_some_and(|schema| schema.message.is_embedded_resource()) =>
            {
                self.resources.push((path.to_text(Style::Fields), object));
            }
            _ => {}
        }
        let before = report.mark();
        if let Some(rules) = rules {
            self.check(&rules.checks, Parts::Typed(ty), value, path, report);
            if let Some(overlay) = &rules.overlay {
                let parts = Parts::Nested(overlay);
                self.check(&overlay.checks, parts, value.with(parts), path, report);
            }
        } else {
            self.parts(Parts::Typed(ty), value, path, report);
        }
        self.let_be_unchanged(before, value, report);
    }

    /// What was wrong before and is as it was counts for nothing. It is only looked at where something is wrong.
    fn let_be_unchanged(&self, before: Mark, value: Seen<'a, 'v>, report: &mut Report) {
        if report.has_more_than(before) && value.is_same(self.schemas) {
            report.go_back_to(before);
        }
    }

    /// A value and its parts, in upstream's order.
    fn check(
        &mut self,
        checks: &'a Checks,
        parts: Parts<'a>,
        value: Seen<'a, 'v>,
        path: Path<'_>,
        report: &mut Report,
    ) {
        report.matched(1);
        let seen = value;
        let value = seen.new;
        let format = checks.format.as_ref();
        let format = format.filter(|format| self.formats == Formats::All || !format.is_of_numbers());
        scalar::types(checks, format, value, path, report);
        if !value.is_null() {
            report.matched(2);
            if let Some(junctors) = checks.junctors.as_deref() {
                self.junctors(junctors, seen, path, report);
            }
            scalar::text(checks, value, path, report);
            number::check(checks, format, value, path, report);
            if let Value::Array(items) = value {
                self.parts(parts, seen, path, report);
                lists::counts(checks, items, path, report);
            }
        }
        scalar::allowed(checks, value, path, report);
        if let Value::Object(object) = value {
            report.matched(1);
            if let Some(counts) = checks.properties {
                properties(counts, object.len(), path, report);
            }
            self.parts(parts, seen, path, report);
            for name in checks.required.iter().filter(|name| !object.contains_key(*name)) {
                let at = Path::Field(&path, name);
                report.push(|| Violation::plain(at.to_text(Style::Dotted), Problem::Required, ""));
            }
        }
    }

    fn parts(&mut self, parts: Parts<'a>, value: Seen<'a, 'v>, path: Path<'_>, report: &mut Report) {
        match parts {
            Parts::Typed(ty) => self.typed(ty, value, path, report),
            Parts::Nested(nested) => self.nested(nested, value, path, report),
        }
    }

    fn typed(&mut self, ty: Type, value: Seen<'a, 'v>, path: Path<'_>, report: &mut Report) {
        let schemas = self.schemas;
        match (ty, value.new) {
            (Type::Message(index), Value::Object(object)) => {
                let Some(schema) = schemas.at(index).filter(|schema| schema.message.is_lenient()) else {
                    return;
                };
                for (name, part) in object {
                    let Some((at, field)) = schema.message.field(name) else { continue };
                    let location = u16::try_from(at).ok().map(|at| Location::Field(index, at));
                    let rules = location.and_then(|location| schemas.rules(location));
                    // Kind and version of the object are those that were asked for, before as now.
                    let is_fixed = path.is_root() && matches!(&**name, "apiVersion" | "kind");
                    let part = if is_fixed { Seen::new(part) } else { value.part(schemas, name, part) };
                    self.value_at(field.ty, rules, part, Path::Field(&path, name), report);
                }
            }
            (Type::List(index), Value::Array(items)) => {
                let (ty, rules) = (schemas.item(index), schemas.rules(Location::Item(index)));
                let elements = value.elements(schemas);
                for (at, item) in items.iter().enumerate() {
                    self.value_at(ty, rules, elements.element(item), Path::Index(&path, at), report);
                }
            }
            (Type::Map(index), Value::Object(entries)) => {
                let (ty, rules) = (schemas.map(index), schemas.rules(Location::Value(index)));
                for (key, entry) in entries {
                    let entry = value.part(schemas, key, entry);
                    self.value_at(ty, rules, entry, Path::Key(&path, key), report);
                }
            }
            _ => {}
        }
    }

    fn nested(&mut self, nested: &'a Nested, value: Seen<'a, 'v>, path: Path<'_>, report: &mut Report) {
        match value.new {
            Value::Object(object) => {
                for (name, part) in &nested.properties {
                    let Some(field) = object.get(name) else { continue };
                    let (seen, path) = (value.part(self.schemas, name, field), Path::Field(&path, name));
                    self.nested_at(part, seen, path, report);
                }
            }
            Value::Array(items) => {
                let Some(part) = nested.items.as_deref() else { return };
                let elements = value.elements(self.schemas);
                for (at, item) in items.iter().enumerate() {
                    self.nested_at(part, elements.element(item), Path::Index(&path, at), report);
                }
            }
            _ => {}
        }
    }

    fn nested_at(&mut self, part: &'a Nested, value: Seen<'a, 'v>, path: Path<'_>, report: &mut Report) {
        let before = report.mark();
        self.check(&part.checks, Parts::Nested(part), value, path, report);
        self.let_be_unchanged(before, value, report);
    }
}

fn properties(counts: Counts, length: usize, path: Path<'_>, report: &mut Report) {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let at = || path.to_text(Style::Dotted);
    if let Some(min) = counts.min.filter(|min| length < *min) {
        report.push(|| {
            let detail = format!("{} in body should have at least {min} properties", at());
            Violation::new(at(), Problem::Invalid, length.into(), detail)
        });
    }
    if let Some(max) = counts.max.filter(|max| length > *max) {
        report.push(|| Violation { max, ..Violation::new(at(), Problem::TooMany, length.into(), "") });
    }
}

#[cfg(test)]
mod tests;
