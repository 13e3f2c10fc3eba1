//! Merging of lists and maps: the allowed values of `x-kubernetes-list-type`, its keys and `x-kubernetes-map-type`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Kept;
use crate::build::props::{Items, Props};
use crate::walk::path::Path;
use crate::walk::validate::report::Report;

const LIST_TYPE: &str = "x-kubernetes-list-type";
const MAP_TYPE: &str = "x-kubernetes-map-type";
const KEYS: &str = "x-kubernetes-list-map-keys";

/// Types and keys, as far as they are about what a definition looks like.
pub(super) fn check(props: &Props, kept: Kept, path: Path<'_>, found: &mut Report) {
    let child = |name| Path::Field(&path, name);
    let is_typed = |name: &str, wanted: &str, found: &mut Report| {
        let why = format!("must be {wanted} if {name} is specified");
        match &*props.ty {
            ty if ty == wanted => return true,
            "" => found.required(child("type"), &why),
            ty => found.invalid(child("type"), ty, &why),
        }
        false
    };
    if let Some(map) = &props.map_type {
        is_typed(MAP_TYPE, "object", found);
        if !matches!(&**map, "atomic" | "granular") {
            found.not_supported(child(MAP_TYPE), map, &["atomic", "granular"]);
        }
    }
    if let Some(list) = &props.list_type {
        if is_typed(LIST_TYPE, "array", found) && !kept.sets {
            set(props, path, found);
        }
        if !matches!(&**list, "atomic" | "set" | "map") {
            found.not_supported(child(LIST_TYPE), list, &["atomic", "set", "map"]);
        }
    }
    if !props.list_map_keys.is_empty() {
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        match props.list_type.as_deref() {
            Some("map") => {}
            Some(list) => found.invalid(child(LIST_TYPE), list, why),
            None => found.required(child(LIST_TYPE), why),
        }
    }
    if props.list_type.as_deref() == Some("map") {
        map(props, path, found);
    }
}

/// What is wrong with the elements of a set: the field that is to say `atomic`, and what it says.
fn granular_element(props: &Props) -> Option<(&'static str, Option<&str>)> {
    let item = props.item().filter(|_| props.list_type.as_deref() == Some("set"))?;
    let list = item.list_type.as_deref();
    match &*item.ty {
        "array" if list.is_some_and(|list| list != "atomic") => Some((LIST_TYPE, list)),
        // Upstream shows the list type here as well.
        "object" if item.map_type.as_deref() != Some("atomic") => Some((MAP_TYPE, list)),
        _ => None,
    }
}

/// Whether the elements of a set are merged field by field.
pub(super) fn has_granular_set(props: &Props) -> bool {
    granular_element(props).is_some()
}

fn set(props: &Props, path: Path<'_>, found: &mut Report) {
    if let Some((field, said)) = granular_element(props) {
        let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let items = Path::Field(&path, "items");
        found.invalid(Path::Field(&items, field), said.map_or(Value::Null, Value::from), why);
    }
}

fn map(props: &Props, path: Path<'_>, found: &mut Report) {
    let (items, keys) = (Path::Field(&path, "items"), Path::Field(&path, KEYS));
    if props.list_map_keys.is_empty() {
        found.required(keys, "must not be empty if x-kubernetes-list-type is map");
    }
    let item = match &props.items {
        None => {
            found.required(items, "must have a schema if x-kubernetes-list-type is map");
            return;
        }
        Some(Items::Several) => {
            found.invalid(items, "", "must only have a single schema if x-kubernetes-list-type is map");
            return;
        }
        Some(Items::Each(item)) => item,
    };
    if item.ty != "object" {
        let why = "must be object if parent array's x-kubernetes-list-type is map";
        found.invalid(Path::Field(&items, "type"), &*item.ty, why);
        return;
    }
    let properties = Path::Field(&items, "properties");
    let mut seen = BTreeSet::new();
    // All keys are shown, and so each rule is told once.
    let (mut is_stray_told, mut is_twice_told) = (false, false);
    for key in &props.list_map_keys {
        let shown = || Value::from(props.list_map_keys.clone());
        if !item.properties.contains_key(key) && !std::mem::replace(&mut is_stray_told, true) {
            found.invalid(keys, shown(), "entries must all be names of item properties");
        }
        if !seen.insert(key) && !std::mem::replace(&mut is_twice_told, true) {
            found.invalid(keys, shown(), "must not contain duplicate entries");
        }
        if item.properties.get(key).is_some_and(|property| matches!(&*property.ty, "array" | "object")) {
            let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            let at = Path::Key(&properties, key);
            // Upstream shows the type of the element.
            found.invalid(Path::Field(&at, "type"), &*item.ty, why);
        }
    }
}

/// Whether the elements of sets and maps, and their keys, are always there.
///
/// Source: `validateMapListKeysMapSet`.
pub(super) fn keys(props: &Props, path: Path<'_>, found: &mut Report) {
    let Some((list, item)) = props.list_type.as_deref().zip(props.item()) else { return };
    if !matches!(list, "set" | "map") {
        return;
    }
    let items = Path::Field(&path, "items");
    if item.nullable {
        let why = format!("cannot be nullable when x-kubernetes-list-type is {list}");
        found.forbidden(Path::Field(&items, "nullable"), &why);
    }
    if list != "map" {
        return;
    }
    let properties = Path::Field(&items, "properties");
    let required: BTreeSet<&str> = item.required.iter().map(String::as_str).collect();
    for key in &props.list_map_keys {
        let Some(property) = item.properties.get(key) else { continue };
        let at = Path::Key(&properties, key);
        if !required.contains(&**key) && property.default.is_none() {
            let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required \
                       property";
            found.required(Path::Field(&at, "default"), why);
        }
        if property.nullable {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            found.forbidden(Path::Field(&at, "nullable"), why);
        }
    }
}
