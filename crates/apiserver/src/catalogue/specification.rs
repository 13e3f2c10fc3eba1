//! The part of an OpenAPI document of version 2 that is about one group-version, and how such parts join ours. Pure.
//!
//! A server elsewhere has the whole of its own document, which names types of the API machinery as everybody does. Only
//! paths of its group-version are taken, and of the types only those that they lead to; what has the name of another type
//! and is not the same gets a name of its own. A document with a reference that leads nowhere is not taken at all: clients
//! refuse the whole document for it.
//!
//! Source: `FilterSpecByPaths` and `MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters` of
//! `k8s.io/kube-openapi/pkg/aggregator`.

use std::collections::{BTreeMap, BTreeSet};

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What references to types begin with.
const DEFINITIONS: &str = "#/definitions/";
/// How large the part is at most that is kept, as JSON.
const KEPT_BYTES_MAX: usize = 4 << 20;

/// Paths of a group-version, and the types that they lead to.
#[derive(Debug, PartialEq)]
pub struct Specification {
    /// As text, which takes a part of the room of a tree; few ever ask for it.
    json: String,
    hash: String,
}

/// What of a document is kept.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    paths: Map<String, Value>,
    definitions: Map<String, Value>,
}

/// The reason why a document is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// It is no document of version 2.
    #[error("it is no OpenAPI document of version 2")]
    Form,
    /// A reference leads nowhere.
    #[error("it refers to {0:?}, which it does not have")]
    Dangling(String),
    /// What would be kept is too much.
    #[error("its part of the group-version is too large")]
    Size,
}

impl Specification {
    /// The part of a document that is about a group-version.
    ///
    /// # Errors
    /// As [`Unusable`].
    pub fn of(mut document: Value, group: &str, version: &str) -> Result<Self, Unusable> {
        let is_second = document.get("swagger").and_then(Value::as_str) == Some("2.0");
        let mut take = |field: &str| match document.get_mut(field).map(Value::take) {
            Some(Value::Object(map)) => Some(map),
            _ => None,
        };
        let (all, mut types) = (take("paths").unwrap_or_default(), take("definitions").unwrap_or_default());
        if !is_second {
            return Err(Unusable::Form);
        }
        let root = match group {
            "" => format!("/api/{version}/"),
            group => format!("/apis/{group}/{version}/"),
        };
        let paths: Map<String, Value> =
            all.into_iter().filter(|(path, item)| path.starts_with(&root) && item.is_object()).collect();
        let mut wanted = BTreeSet::new();
        paths.values().for_each(|item| references(item, &mut wanted));
        let mut definitions = Map::new();
        while let Some(name) = wanted.pop_first() {
            if definitions.contains_key(&name) {
                continue;
            }
            let definition = types.remove(&name).ok_or_else(|| Unusable::Dangling(name.clone()))?;
            references(&definition, &mut wanted);
            definitions.insert(name, definition);
        }
        let json = serde_json::to_string(&Kept { paths, definitions }).map_err(|_| Unusable::Form)?;
        if json.len() > KEPT_BYTES_MAX {
            return Err(Unusable::Size);
        }
        let hash = digest(&SHA256, json.as_bytes());
        let hash = hash.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
        Ok(Self { json, hash })
    }

    /// Of its content.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    fn kept(&self) -> Kept {
        // It was written here.
        serde_json::from_str(&self.json).unwrap_or_default()
    }

    /// Adds it to a document.
    pub fn join(&self, document: &mut Value) {
        let kept = self.kept();
        let names = match document.get("definitions") {
            Some(Value::Object(known)) => kept.names(known),
            _ => BTreeMap::new(),
        };
        let renamed = |value: &Value| {
            let mut value = value.clone();
            rename(&mut value, &names);
            value
        };
        if let Some(Value::Object(known)) = document.get_mut("definitions") {
            for (name, definition) in &kept.definitions {
                let name = names.get(name).unwrap_or(name);
                known.entry(name.clone()).or_insert_with(|| renamed(definition));
            }
        }
        if let Some(Value::Object(known)) = document.get_mut("paths") {
            for (path, item) in &kept.paths {
                known.entry(path.clone()).or_insert_with(|| renamed(item));
            }
        }
    }
}

impl Kept {
    /// What types are called that others of the same name are not the same as.
    ///
    /// The API machinery's own types stay what they are here: other versions of it describe them in other words, and clients
    /// know them by their names.
    fn names(&self, known: &Map<String, Value>) -> BTreeMap<String, String> {
        let is_other = |name: &str, definition: &Value| {
            let is_machinery = name.starts_with("io.k8s.apimachinery.");
            known.get(name).is_some_and(|known| known != definition && !is_machinery)
        };
        let conflicts = self.definitions.iter().filter(|(name, definition)| is_other(name, definition));
        let mut names = BTreeMap::new();
        for (name, _) in conflicts {
            let free = (2..).map(|number: u32| format!("{name}_v{number}")).find(|candidate| {
                !known.contains_key(candidate) && !self.definitions.contains_key(candidate)
            });
            names.extend(free.map(|free| (name.clone(), free)));
        }
        names
    }
}

/// Adds the name of every type that a value refers to.
fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match (key.as_str(), value.as_str().and_then(|text| text.strip_prefix(DEFINITIONS))) {
                    ("$ref", Some(name)) => {
                        found.insert(name.to_owned());
                    }
                    _ => references(value, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

fn rename(value: &mut Value, names: &BTreeMap<String, String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let name = value.as_str().and_then(|text| text.strip_prefix(DEFINITIONS));
                match names.get(name.unwrap_or_default()).filter(|_| key == "$ref") {
                    Some(name) => *value = Value::String(format!("{DEFINITIONS}{name}")),
                    None => rename(value, names),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| rename(value, names)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reference(name: &str) -> Value {
        json!({"$ref": format!("{DEFINITIONS}{name}")})
    }

    fn theirs() -> Value {
        json!({
            "swagger": "2.0",
            "paths": {
                "/apis/example.com/v1/things": {"get": {"responses": {"200": {"schema": reference("Thing")}}}},
                "/apis/example.com/v10/things": {"get": {}},
                "/api/v1/pods": {"get": {"description": "forged"}},
                "/version/": {"get": {}},
            },
            "definitions": {
                "Thing": {"properties": {"part": reference("Part"), "own": reference("Thing"), "$ref": {"type": "string"}}},
                "Part": {"type": "string"},
                "Pod": {"description": "forged"},
            },
        })
    }

    #[test]
    fn only_what_is_about_the_group_version_is_taken() {
        let found = Specification::of(theirs(), "example.com", "v1").unwrap().kept();
        assert_eq!(found.paths.keys().collect::<Vec<_>>(), ["/apis/example.com/v1/things"]);
        assert_eq!(found.definitions.keys().collect::<Vec<_>>(), ["Part", "Thing"]);
    }

    #[test]
    fn a_type_that_is_not_the_same_gets_another_name() {
        let found = Specification::of(theirs(), "example.com", "v1").unwrap();
        let mut ours =
            json!({"paths": {"/api/v1/pods": {}}, "definitions": {"Part": {"type": "integer"}, "Pod": {}}});
        found.join(&mut ours);
        let expect = json!({
            "paths": {
                "/api/v1/pods": {},
                "/apis/example.com/v1/things": {"get": {"responses": {"200": {"schema": reference("Thing")}}}},
            },
            "definitions": {
                "Part": {"type": "integer"},
                "Part_v2": {"type": "string"},
                "Pod": {},
                "Thing": {"properties": {"part": reference("Part_v2"), "own": reference("Thing"), "$ref": {"type": "string"}}},
            },
        });
        assert_eq!(ours, expect);
        let before = ours.clone();
        found.join(&mut ours);
        assert_eq!(ours["definitions"]["Part"], before["definitions"]["Part"]);
    }

    #[test]
    fn what_cannot_be_used_is_left_out() {
        let check = |document: Value, expect: Unusable| {
            assert_eq!(Specification::of(document, "example.com", "v1").unwrap_err(), expect);
        };
        check(json!({}), Unusable::Form);
        check(json!([]), Unusable::Form);
        check(json!({"swagger": "3.0", "paths": {}}), Unusable::Form);
        let mut dangling = theirs();
        dangling["definitions"].as_object_mut().unwrap().remove("Part");
        check(dangling, Unusable::Dangling("Part".into()));
        let mut large = theirs();
        large["definitions"]["Part"]["description"] = "x".repeat(KEPT_BYTES_MAX).into();
        check(large, Unusable::Size);
        let empty = json!({"swagger": "2.0", "paths": [], "definitions": 7});
        assert_eq!(Specification::of(empty, "example.com", "v1").unwrap().kept().paths.len(), 0);
    }
}
