//! The check that all that the rules at the root of a schema speak of has a type.
//!
//! Source: `validateStructuralCompleteness`.

use super::props::Props;
use crate::rules::violation::{Problem, Violation};
use crate::walk::path::{Path, Style};
use crate::walk::validate::report::Report;

/// What the rules at the root speak of that the schema itself does not have; upstream looks no further.
pub(super) fn check(props: &Props, path: Path<'_>, found: &mut Report) {
    rules(props, props, [path, path], found);
}

/// The schemas within the rules of `rule`, which apply to what has the schema `base`; their paths in the opposite order.
fn rules(rule: &Props, base: &Props, [base_path, path]: [Path<'_>; 2], found: &mut Report) {
    if let Some(not) = &rule.not {
        nested(not, base, [base_path, Path::Field(&path, "not")], found);
    }
    for (name, all) in [("allOf", &rule.all_of), ("anyOf", &rule.any_of), ("oneOf", &rule.one_of)] {
        for (index, one) in all.iter().enumerate() {
            nested(one, base, [base_path, Path::Index(&Path::Field(&path, name), index)], found);
        }
    }
}

fn nested(rule: &Props, base: &Props, [base_path, path]: [Path<'_>; 2], found: &mut Report) {
    rules(rule, base, [base_path, path], found);
    if let Some(item) = rule.item() {
        let at = [Path::Field(&base_path, "items"), Path::Field(&path, "items")];
        part(item, base.item(), at, found);
    }
    let [base_properties, properties] =
        [Path::Field(&base_path, "properties"), Path::Field(&path, "properties")];
    for (name, property) in &rule.properties {
        let at = [Path::Key(&base_properties, name), Path::Key(&properties, name)];
        part(property, base.properties.get(name), at, found);
    }
}

fn part(rule: &Props, base: Option<&Props>, [base_path, path]: [Path<'_>; 2], found: &mut Report) {
    match base {
        Some(base) => nested(rule, base, [base_path, path], found),
        None => {
            found.push(|| {
                let why = format!("because it is defined in {}", path.to_text(Style::Fields));
                Violation::plain(base_path.to_text(Style::Fields), Problem::Required, why)
            });
        }
    }
}
