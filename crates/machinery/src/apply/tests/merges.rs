//! The cases of structured-merge-diff's updater: what writes of several managers, in several versions, make of an
//! object, and who owns what of it after all. Source: its `merge/*_test.go`.

use std::collections::BTreeMap;

use schema::Schemas;
use schema::build::{Source, build};

use super::*;

/// A table beside this file.
pub(super) fn table(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/apply/tests").join(name);
    std::fs::read_to_string(path).expect("a table")
}

/// The arena of a kind with this schema.
pub(super) fn arena(schema: &Value) -> Schemas {
    let source = Source {
        group: "example.com",
        version: "v1",
        kind: "Thing",
        list_kind: "ThingList",
        plural: "things",
        path: "",
        schema,
    };
    build(&source).unwrap_or_else(|error| panic!("{error:?}: {schema}"))
}

/// How an object of one version becomes one of another.
#[derive(Clone, Copy)]
enum Converting {
    /// Nothing changes but the version.
    Alike,
    /// Names below are one letter, as often as the version says.
    Repeat,
    /// Names end with the version.
    Rename,
    /// Something in v1 can be made only of what it is in v2.
    Rely,
}

/// The versions of a kind; that without a name stands for all.
struct Kinds {
    versions: BTreeMap<String, Schemas>,
    converting: Converting,
}

impl Versions for Kinds {
    fn schema(&self, api_version: &str) -> Option<SchemaRef<'_>> {
        let schemas = self.versions.get(bare(api_version)).or_else(|| self.versions.get(""))?;
        schemas.kind("example.com", "v1", "Thing")
    }

    fn convert(&self, object: &Value, api_version: &str) -> Option<Value> {
        let (from, to) = (object["apiVersion"].as_str().map(bare)?, bare(api_version));
        let mut converted = match self.converting {
            Converting::Repeat if from != to => {
                let times = to.strip_prefix('v')?.parse().ok()?;
                let mut object = object.clone();
                if let Some(inner) = object.get_mut("mapOfMapsRecursive") {
                    let first = |name: &str| name.get(..1).unwrap_or_default().repeat(times);
                    *inner = renamed(inner, &first);
                }
                object
            }
            Converting::Rename if from != to => renamed(object, &|name| match name.strip_suffix(from) {
                Some(stem) => format!("{stem}{to}"),
                None => name.to_owned(),
            }),
            Converting::Rely if from != to => {
                let both = ["field_foo_rely_on_bar", "required_field_bar"];
                let [new, old] = if to == "v1" { both } else { [both[1], both[0]] };
                if to == "v1" {
                    object.get(old)?;
                }
                renamed(object, &|name| if name == old { new.to_owned() } else { name.to_owned() })
            }
            _ => object.clone(),
        };
        converted["metadata"] = object["metadata"].clone();
        converted["apiVersion"] = api_version.into();
        Some(converted)
    }
}

fn bare(api_version: &str) -> &str {
    api_version.strip_prefix("example.com/").unwrap_or(api_version)
}

fn renamed(value: &Value, name: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::Object(map) => map.iter().map(|(key, value)| (name(key), renamed(value, name))).collect(),
        Value::Array(items) => items.iter().map(|item| renamed(item, name)).collect(),
        other => other.clone(),
    }
}

/// A case of the table, as far as it has got.
struct Case<'t> {
    name: String,
    kinds: Kinds,
    object: Option<Value>,
    ignored: BTreeMap<&'t str, Set<'t>>,
    writes: u8,
    /// What the last apply was refused for.
    conflicts: Option<BTreeSet<String>>,
    owned: BTreeMap<String, BTreeSet<String>>,
    asks_owners: bool,
}

impl<'t> Case<'t> {
    fn write(&mut self, verb: &str, rest: &'t str) -> Result<(), String> {
        self.nothing_is_untold()?;
        let [manager, version, json] = words(rest);
        let api_version = format!("example.com/{version}");
        let mut object: Value = serde_json::from_str(json).expect("an object");
        object["apiVersion"] = api_version.clone().into();
        object["kind"] = "Thing".into();
        object["metadata"] = json!({"name": "a"});
        self.writes += 1;
        let now = format!("2024-01-01T00:00:{:02}Z", self.writes);
        let nothing = Set::new();
        let ignored = self.ignored.get(version).unwrap_or(&nothing);
        let write = Write { manager, api_version: &api_version, subresource: "", now: &now, ignored };
        let live = self.object.as_ref().and_then(|live| self.kinds.convert(live, &api_version));
        if verb == "update" {
            track(&write, &self.kinds, live.as_ref(), &mut object);
            self.object = Some(object);
            return Ok(());
        }
        let on_conflict = if verb == "force" { OnConflict::Force } else { OnConflict::Refuse };
        match apply(&write, &self.kinds, live.as_ref(), &object, on_conflict) {
            Ok(applied) => self.object = Some(applied),
            Err(ApplyError::Conflicts(Conflicts(conflicts))) => {
                let text = |conflict: &Conflict| {
                    let manager = conflict.manager.split('"').nth(1).unwrap_or_default();
                    format!("{manager} {}", conflict.field)
                };
                self.conflicts = Some(conflicts.iter().map(text).collect());
            }
            Err(error) => return Err(error.to_string()),
        }
        Ok(())
    }

    /// Whether the table knows of the last apply's conflicts.
    fn nothing_is_untold(&self) -> Result<(), String> {
        match &self.conflicts {
            Some(conflicts) => Err(format!("conflicts with {conflicts:?}")),
            None => Ok(()),
        }
    }

    fn conflicts(&mut self, rest: &str) -> Result<(), String> {
        let expect = rest.split("; ").map(str::to_owned).collect::<BTreeSet<_>>();
        let found = self.conflicts.take().unwrap_or_default();
        if found == expect { Ok(()) } else { Err(format!("conflicts with {found:?}")) }
    }

    fn object(&self, rest: &str) -> Result<(), String> {
        self.nothing_is_untold()?;
        let [version, json] = words(rest);
        let expect: Value = serde_json::from_str(json).expect("an object");
        let mut object = self.object.as_ref().and_then(|object| self.kinds.convert(object, version));
        if let Some(Value::Object(map)) = &mut object {
            map.retain(|name, _| !matches!(&**name, "apiVersion" | "kind" | "metadata"));
        }
        if object.as_ref() == Some(&expect) { Ok(()) } else { Err(format!("became {object:?}")) }
    }

    fn owns(&mut self, rest: &str) {
        self.asks_owners = true;
        if rest != "nobody" {
            let [manager, version, paths] = words(rest);
            let paths = paths.split(' ').map(str::to_owned).collect();
            self.owned.insert(format!("{manager} {version}"), paths);
        }
    }

    fn finish(&self) -> Result<(), String> {
        self.nothing_is_untold()?;
        let entries = self.object.as_ref().map_or(&[][..], entries_of);
        let mut owned: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (identity, entry) in Managers::decode(entries).expect("managers").iter() {
            let who = format!("{} {}", identity.manager, bare(&entry.api_version));
            owned.entry(who).or_default().extend(texts(&entry.set));
        }
        let is_right = !self.asks_owners || owned == self.owned;
        if is_right { Ok(()) } else { Err(format!("owned by {owned:#?}")) }
    }
}

fn words<const N: usize>(text: &str) -> [&str; N] {
    let mut words = text.splitn(N, ' ');
    [(); N].map(|()| words.next().unwrap_or_else(|| panic!("too few words: {text}")))
}

/// What the lines above a case say of its kind.
#[derive(Default)]
struct Section<'t> {
    schemas: BTreeMap<&'t str, &'t str>,
    versions: Vec<(&'t str, &'t str)>,
    converting: &'t str,
}

impl<'t> Section<'t> {
    fn arena(&self, name: &str) -> Schemas {
        let json = self.schemas.get(name).unwrap_or_else(|| panic!("no schema {name}"));
        arena(&serde_json::from_str(json).expect("a schema"))
    }

    fn case(&self, name: &str) -> Case<'t> {
        let converting = match self.converting {
            "repeat" => Converting::Repeat,
            "rename" => Converting::Rename,
            "rely" => Converting::Rely,
            _ => Converting::Alike,
        };
        let version = |(version, name): &(&str, &str)| ((*version).to_owned(), self.arena(name));
        Case {
            name: name.to_owned(),
            kinds: Kinds { versions: self.versions.iter().map(version).collect(), converting },
            object: None,
            ignored: BTreeMap::new(),
            writes: 0,
            conflicts: None,
            owned: BTreeMap::new(),
            asks_owners: false,
        }
    }
}

#[test]
fn writes_of_many_managers_give_what_they_give_upstream() {
    let mut section = Section::default();
    let mut case: Option<Case<'_>> = None;
    let (mut cases, mut failures) = (0, Vec::new());
    let text = table("merges.txt");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with("//"));
    for line in lines.chain(["schema end"]) {
        let (verb, rest) = line.split_once(' ').expect("a verb and more");
        if matches!(verb, "schema" | "case")
            && let Some(case) = case.take()
        {
            cases += 1;
            failures.extend(case.finish().err().map(|why| format!("{}: {why}", case.name)));
            if verb == "schema" {
                section.versions.clear();
                section.converting = "";
            }
        }
        match (verb, &mut case) {
            ("let", _) => {
                let [name, json] = words(rest);
                section.schemas.insert(name, json);
            }
            ("schema", _) => {
                let (name, version) = rest.split_once(' ').unwrap_or((rest, ""));
                section.versions.push((version, name));
            }
            ("converting", _) => section.converting = rest,
            ("case", case) => *case = Some(section.case(rest)),
            ("become", Some(case)) => {
                case.kinds.versions.insert(String::new(), section.arena(rest));
            }
            ("ignored", Some(case)) => {
                let [version, path] = words(rest);
                let names: Vec<&str> = path.split('.').skip(1).collect();
                case.ignored.insert(version, Set::of_fields(&[&names]));
            }
            ("owns", Some(case)) => case.owns(rest),
            (verb, Some(case)) => {
                let outcome = match verb {
                    "conflicts" => case.conflicts(rest),
                    "object" => case.object(rest),
                    _ => case.write(verb, rest),
                };
                failures.extend(outcome.err().map(|why| format!("{}: {line}\n    {why}", case.name)));
            }
            (_, None) => panic!("no case: {line}"),
        }
    }
    assert!(cases > 90, "{cases} cases");
    assert!(failures.is_empty(), "{} of {cases} cases:\n{}", failures.len(), failures.join("\n"));
}
