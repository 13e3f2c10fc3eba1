//! Lengths of lists, and elements that come twice.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::report::Report;
use crate::Object;
use crate::rows::{List, ListKind, Names};
use crate::rules::violation::{Problem, Violation};
use crate::rules::{Checks, key};
use crate::walk::path::{Path, Style};

/// What the rules say of a whole list.
pub(super) fn counts(checks: &Checks, items: &[Value], path: Path<'_>, report: &mut Report) {
    report.matched(2);
    let at = || path.to_text(Style::Dotted);
    let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let counts = checks.items;
    if let Some(min) = counts.and_then(|counts| counts.min).filter(|min| length < *min) {
        report.push(|| {
            let detail = format!("{} in body should have at least {min} items", at());
            Violation::new(at(), Problem::Invalid, length.into(), detail)
        });
    }
    if let Some(max) = counts.and_then(|counts| counts.max).filter(|max| length > *max) {
        report.push(|| Violation { max, ..Violation::new(at(), Problem::TooMany, length.into(), "") });
    }
    let mut seen = HashSet::new();
    if checks.unique_items && !items.iter().all(|item| seen.insert(key(item))) {
        let detail = || format!("{} in body shouldn't contain duplicates", at());
        report.push(|| Violation::new(at(), Problem::Invalid, "".into(), detail()));
    }
}

/// Whether the elements of a set or of a map are told apart.
pub(super) fn check(list: &List, items: &[Value], path: Path<'_>, report: &mut Report) {
    match list.kind {
        ListKind::Unset | ListKind::Atomic => {}
        ListKind::Set => {
            for (index, item) in
                repeated(items.iter().map(key)).into_iter().filter_map(|at| Some((at, items.get(at)?)))
            {
                duplicate(path, index, item.clone(), report);
            }
        }
        ListKind::Map => {
            let stray = items.iter().position(|item| !(item.is_null() || item.is_object()));
            if let Some((index, item)) = stray.and_then(|index| Some((index, items.get(index)?))) {
                let why = "must be an object for an array of list-type map";
                let at = Path::Index(&path, index).to_text(Style::Fields);
                report.push(|| Violation::new(at, Problem::Invalid, item.clone(), why));
                return;
            }
            let keys = |item: &Value| Value::Object(keys_of(item, &list.keys));
            for index in repeated(items.iter().map(|item| keys(item).to_string())) {
                duplicate(path, index, items.get(index).map(keys).unwrap_or_default(), report);
            }
        }
    }
}

fn duplicate(path: Path<'_>, index: usize, value: Value, report: &mut Report) {
    let at = || Path::Index(&path, index).to_text(Style::Fields);
    report.push(|| Violation::new(at(), Problem::Duplicate, value, ""));
}

/// The key fields that an element has.
fn keys_of(item: &Value, names: &Names) -> Object {
    let value = |name: &str| Some((name.to_owned(), item.get(name)?.clone()));
    names.iter().filter_map(value).collect()
}

/// Where something comes for the second time; further times are not told.
fn repeated(keys: impl Iterator<Item = String>) -> Vec<usize> {
    let mut times = HashMap::<String, usize>::new();
    let mut found = Vec::new();
    for (index, key) in keys.enumerate() {
        let times = times.entry(key).or_default();
        *times += 1;
        if *times == 2 {
            found.push(index);
        }
    }
    found
}
