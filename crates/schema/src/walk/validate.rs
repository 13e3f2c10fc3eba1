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

use serde_json::Value;

use crate::Object;
use crate::arena::SchemaRef;
use crate::rows::{Schemas, Type};
use crate::rules::violation::{Problem, Violation};
use crate::rules::{Checks, Counts, Nested, Place, Rules};
use crate::walk::path::{Path, Style};
use crate::walk::stack::with_room;
use report::Report;

/// What a walk has found.
#[derive(Clone, Debug, Default)]
pub struct Findings<'v> {
    /// The broken rules: first those of sets and maps, then all others.
    pub violations: Vec<Violation>,
    /// How many more there are.
    pub left_out: usize,
    /// Each resource within the object, with its path.
    pub resources: Vec<(String, &'v Object)>,
}

/// Checks a whole object.
pub fn validate<'v>(schema: SchemaRef<'_>, value: &'v Value) -> Findings<'v> {
    let mut walk = Walk { schemas: schema.schemas, lists: Report::default(), resources: Vec::new() };
    let mut report = Report::default();
    let rules = schema.schemas.rules(Place::Root(schema.index));
    with_room(|| walk.place(Type::Message(schema.index), rules, value, Path::Root, &mut report));
    let reports = [walk.lists, report];
    let left_out = reports.iter().map(Report::left_out).sum();
    let violations = reports.into_iter().flat_map(Report::into_violations).collect();
    Findings { violations, left_out, resources: walk.resources }
}

/// What the rules of one place say of a value there, as paths below it; of lists only how long they are.
pub(crate) fn value_at(schemas: &Schemas, ty: Type, rules: &Rules, value: &Value) -> Vec<Violation> {
    let mut walk = Walk { schemas, lists: Report::default(), resources: Vec::new() };
    let mut report = Report::default();
    with_room(|| walk.place(ty, Some(rules), value, Path::Root, &mut report));
    report.into_violations()
}

struct Walk<'a, 'v> {
    schemas: &'a Schemas,
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
    fn place(
        &mut self,
        ty: Type,
        rules: Option<&'a Rules>,
        value: &'v Value,
        path: Path<'_>,
        report: &mut Report,
    ) {
        match (ty, value) {
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
        let Some(rules) = rules else {
            self.parts(Parts::Typed(ty), value, path, report);
            return;
        };
        self.check(&rules.checks, Parts::Typed(ty), value, path, report);
        if let Some(overlay) = &rules.overlay {
            self.check(&overlay.checks, Parts::Nested(overlay), value, path, report);
        }
    }

    /// A value and its parts, in upstream's order.
    fn check(
        &mut self,
        checks: &'a Checks,
        parts: Parts<'a>,
        value: &'v Value,
        path: Path<'_>,
        report: &mut Report,
    ) {
        report.matched(1);
        scalar::types(checks, value, path, report);
        if !value.is_null() {
            report.matched(2);
            if let Some(junctors) = checks.junctors.as_deref() {
                self.junctors(junctors, value, path, report);
            }
            scalar::text(checks, value, path, report);
            number::check(checks, value, path, report);
            if let Value::Array(items) = value {
                self.parts(parts, value, path, report);
                lists::counts(checks, items, path, report);
            }
        }
        scalar::allowed(checks, value, path, report);
        if let Value::Object(object) = value {
            report.matched(1);
            if let Some(counts) = checks.properties {
                properties(counts, object.len(), path, report);
            }
            self.parts(parts, value, path, report);
            for name in checks.required.iter().filter(|name| !object.contains_key(*name)) {
                let at = Path::Field(&path, name);
                report.push(|| Violation::plain(at.to_text(Style::Dotted), Problem::Required, ""));
            }
        }
    }

    fn parts(&mut self, parts: Parts<'a>, value: &'v Value, path: Path<'_>, report: &mut Report) {
        match parts {
            Parts::Typed(ty) => self.typed(ty, value, path, report),
            Parts::Nested(nested) => self.nested(nested, value, path, report),
        }
    }

    fn typed(&mut self, ty: Type, value: &'v Value, path: Path<'_>, report: &mut Report) {
        let schemas = self.schemas;
        match (ty, value) {
            (Type::Message(index), Value::Object(object)) => {
                let Some(schema) = schemas.at(index).filter(|schema| schema.message.is_lenient()) else {
                    return;
                };
                for (name, value) in object {
                    let Some((at, field)) = schema.message.field(name) else { continue };
                    let place = u16::try_from(at).ok().map(|at| Place::Field(index, at));
                    let rules = place.and_then(|place| schemas.rules(place));
                    self.place(field.ty, rules, value, Path::Field(&path, name), report);
                }
            }
            (Type::List(index), Value::Array(items)) => {
                let (ty, rules) = (schemas.item(index), schemas.rules(Place::Item(index)));
                for (at, item) in items.iter().enumerate() {
                    self.place(ty, rules, item, Path::Index(&path, at), report);
                }
            }
            (Type::Map(index), Value::Object(entries)) => {
                let (ty, rules) = (schemas.map(index), schemas.rules(Place::Value(index)));
                for (key, entry) in entries {
                    self.place(ty, rules, entry, Path::Key(&path, key), report);
                }
            }
            _ => {}
        }
    }

    fn nested(&mut self, nested: &'a Nested, value: &'v Value, path: Path<'_>, report: &mut Report) {
        match value {
            Value::Object(object) => {
                for (name, part) in &nested.properties {
                    if let Some(value) = object.get(name) {
                        self.check(
                            &part.checks,
                            Parts::Nested(part),
                            value,
                            Path::Field(&path, name),
                            report,
                        );
                    }
                }
            }
            Value::Array(items) => {
                let Some(part) = nested.items.as_deref() else { return };
                for (at, item) in items.iter().enumerate() {
                    self.check(&part.checks, Parts::Nested(part), item, Path::Index(&path, at), report);
                }
            }
            _ => {}
        }
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
