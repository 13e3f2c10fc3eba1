//! The check that defaults are what their schemas ask for.
//!
//! Source: `ValidateDefaults` of `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting`. Defaults within the
//! metadata of resources inside the object are checked by nothing here, as they are not filled in either.

use serde_json::Value;

use super::Kept;
use crate::build::Source;
use crate::build::props::Props;
use crate::rows::{Schemas, Type};
use crate::rules::violation::Violation;
use crate::rules::{Location, Rules};
use crate::walk::path::{Path, Style};
use crate::walk::validate::{default_at, report::Report};

/// Checks every default of a schema, whose arena this is.
pub(super) fn check(arena: &Schemas, source: &Source<'_>, props: &Props, kept: Kept, found: &mut Report) {
    each(arena, source, props, &mut |default, path| {
        if !kept.defaults && default.is_unpruned() {
            let at = Path::Field(&path, "default");
            found.invalid(at, default.written.clone(), "must not have unknown fields");
        }
        let at = || Path::Field(&path, "default").to_text(Style::Fields);
        for violation in default_at(arena, default.ty, default.rules, default.written) {
            found.push(|| Violation { path: joined(at(), &violation.path), ..violation });
        }
    });
}

/// Whether a default has fields that are not in the schema.
pub(super) fn has_unpruned(arena: &Schemas, source: &Source<'_>, props: &Props) -> bool {
    let mut is_found = false;
    each(arena, source, props, &mut |default, _| is_found |= default.is_unpruned());
    is_found
}

fn joined(path: String, below: &str) -> String {
    match below {
        "" => path,
        index if index.starts_with('[') => path + index,
        name => format!("{path}.{name}"),
    }
}

/// A default as it was written, with what the arena has of it.
struct Default<'a> {
    written: &'a Value,
    ty: Type,
    rules: &'a Rules,
}

impl Default<'_> {
    fn is_unpruned(&self) -> bool {
        self.rules.default.as_ref().is_some_and(|pruned| has_more(self.written, pruned))
    }
}

/// Whether `written` has fields that `pruned` has not.
fn has_more(written: &Value, pruned: &Value) -> bool {
    match (written, pruned) {
        (Value::Object(written), Value::Object(pruned)) => written
            .iter()
            .any(|(name, value)| pruned.get(name).map_or(!value.is_null(), |pruned| has_more(value, pruned))),
        (Value::Array(written), Value::Array(pruned)) => {
            written.iter().zip(pruned).any(|(written, pruned)| has_more(written, pruned))
        }
        _ => false,
    }
}

type Visit<'v> = dyn FnMut(Default<'_>, Path<'_>) + 'v;

fn each(arena: &Schemas, source: &Source<'_>, props: &Props, visit: &mut Visit<'_>) {
    let Some(kind) = arena.kind(source.group, source.version, source.kind) else { return };
    let rules = arena.rules(Location::Root(kind.index));
    below(arena, props, Type::Message(kind.index), rules, Path::Base(source.path), visit);
}

/// The default of a location and of all below it; schemas of maps' values are left out as upstream leaves them.
fn below(
    arena: &Schemas,
    props: &Props,
    ty: Type,
    rules: Option<&Rules>,
    path: Path<'_>,
    visit: &mut Visit<'_>,
) {
    if let Some((written, rules)) = props.default.as_ref().zip(rules) {
        visit(Default { written, ty, rules }, path);
    }
    match ty {
        Type::List(index) => {
            if let Some(item) = props.item() {
                let rules = arena.rules(Location::Item(index));
                below(arena, item, arena.item(index), rules, Path::Field(&path, "items"), visit);
            }
        }
        Type::Message(index) => {
            let Some(schema) = arena.at(index) else { return };
            let properties = Path::Field(&path, "properties");
            for (name, property) in &props.properties {
                let Some((at, field)) = schema.message.field(name) else { continue };
                let rules = u16::try_from(at).ok().and_then(|at| arena.rules(Location::Field(index, at)));
                below(arena, property, field.ty, rules, Path::Key(&properties, name), visit);
            }
        }
        _ => {}
    }
}
