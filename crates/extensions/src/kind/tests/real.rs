//! Objects of real definitions, in the folder that `KNARR_CRDS` names: with every field, with as few as may be, and with each
//! bound broken once. What is said must be what upstream says, which `broken.rs` works out from the schema as it is written.

mod broken;
mod holds;
mod made;
mod unchanged;

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use schema::walk::decode::{FieldValidation, from_value};

use super::*;
use broken::At;
use made::Extent;

/// Said when an object is so wrong that its expressions are not looked at.
const NOT_CHECKED: &str = "some validation rules were not checked";
/// Places without a value that anybody could make up, of all.
const UNMADE_PERCENT_MAX: usize = 2;

fn definitions_in(folder: &Path, found: &mut Vec<Value>) {
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            definitions_in(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            let read: Value = serde_saphyr::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            found.extend(Some(read).filter(|definition| definition["spec"]["versions"].is_array()));
        }
    }
}

/// A definition with the status that it gets, all versions served.
fn accepted(mut definition: Value) -> Value {
    let names = definition["spec"]["names"].clone();
    let kind = names["kind"].as_str().unwrap().to_owned();
    let mut accepted = json!({"singular": kind.to_lowercase(), "listKind": format!("{kind}List")});
    accepted.as_object_mut().unwrap().extend(names.as_object().unwrap().clone());
    let conditions = json!([{"type": "NamesAccepted", "status": "True"}]);
    definition["status"] = json!({"acceptedNames": accepted, "conditions": conditions});
    definition["spec"].as_object_mut().unwrap().remove("conversion");
    definition
}

/// A version whose objects are tried.
struct Trial<'t> {
    name: String,
    kind: &'t CustomKind,
    schema: &'t Value,
    /// What rules say, and whether some work out what they say.
    rules: Vec<String>,
    computes: bool,
    counts: &'t mut Counts,
}

/// What was tried.
#[derive(Default)]
struct Counts {
    seen: HashSet<String>,
    tried: BTreeMap<&'static str, usize>,
    fired: HashSet<String>,
    unmade: BTreeMap<String, usize>,
    wrong: Vec<String>,
}

impl Counts {
    fn count(&mut self, what: &'static str) {
        *self.tried.entry(what).or_default() += 1;
    }
}

impl Trial<'_> {
    /// What is said of an object, as a client that is strict is told.
    fn said(&self, object: &Value) -> Vec<String> {
        let decoded =
            match from_value(self.kind.schema.get().unwrap(), object.clone(), FieldValidation::Strict) {
                Ok(decoded) => decoded.value,
                Err(why) => return vec![why.to_string()],
            };
        let rules = self.kind.row.strategy.rules.as_ref().unwrap();
        rules.validate_create(&decoded).iter().map(ToString::to_string).collect()
    }

    /// Whether a rule in CEL said it.
    fn is_by_rule(&mut self, line: &str) -> bool {
        if let Some(rule) = self.rules.iter().find(|rule| line.ends_with(rule.as_str())) {
            self.counts.fired.insert(format!("{} {rule}", self.name));
            return true;
        }
        line.contains(NOT_CHECKED)
            || self.computes && !line.contains(" in body ") && !line.starts_with("<nil>")
    }

    fn whole(&self, mut object: Value) -> Value {
        object["apiVersion"] = json!(format!("{}/{}", self.kind.row.group, self.kind.row.version));
        object["kind"] = json!(self.kind.row.kind.to_string());
        object["metadata"] = json!({"name": "a"});
        object
    }

    fn wrong(&mut self, what: &str, said: &[String], object: &Value) {
        let object = object.to_string();
        let object: String = object.chars().take(600).collect();
        self.counts.wrong.push(format!("{}: {what}: said {said:?} of {object}", self.name));
    }

    /// An object that is as the schema wants it is refused by rules alone.
    fn accept(&mut self, what: &'static str, object: &Value) {
        self.counts.count(what);
        let object = self.whole(object.clone());
        let said = self.said(&object);
        let by_rules = said.iter().filter(|line| self.is_by_rule(line)).count();
        if by_rules < said.len() {
            self.wrong(what, &said, &object);
        } else if by_rules > 0 {
            self.counts.count("of these, broke rules in CEL");
        }
    }

    /// An object with one broken bound is refused for that, and for what follows from it.
    fn refuse(&mut self, broken: &broken::Broken, at: &At, object: &Value) {
        self.counts.count(broken.rule);
        let object = self.whole(object.clone());
        let said = self.said(&object);
        let follows = |line: &String| {
            line.starts_with("<nil>")
                && line.contains(&at.dotted[..at.dotted.find(['.', '[']).unwrap_or(at.dotted.len())])
                || line.starts_with(&at.dotted)
        };
        let strange: Vec<String> = said.iter().filter(|line| !follows(line)).cloned().collect();
        let strange = strange.iter().any(|line| *line != broken.said && !self.is_by_rule(line));
        if !said.contains(&broken.said) || strange {
            self.wrong(
                &format!("{} of {}, expected {:?}", broken.rule, at.dotted, broken.said),
                &said,
                &object,
            );
        }
        let rules = self.kind.row.strategy.rules.as_ref().unwrap();
        // What was wrong before may stay, where it is known to be as before.
        if let Ok(same) = from_value(self.kind.schema.get().unwrap(), object, FieldValidation::Ignore) {
            let again = rules.validate_update(&same.value, &same.value);
            let said: Vec<String> = again.iter().map(ToString::to_string).collect();
            let stays = unchanged::stays(self.schema, &same.value, &at.dotted);
            if said.iter().all(|line| is_evaluation(line)) != stays {
                self.wrong(&format!("{} of {} stays", broken.rule, at.dotted), &said, &same.value);
            }
        }
    }

    /// A field that the schema does not know is refused by its path, or pruned.
    fn stray(&mut self, at: &At, object: &Value) {
        self.counts.count("unknown field");
        let object = self.whole(object.clone());
        let said = self.said(&object);
        let expect = format!("unknown field \"{}\"", at.field("strayField").dotted);
        if !said.iter().any(|line| line.contains(&expect)) {
            self.wrong(&format!("expected {expect}"), &said, &object);
        }
        let pruned = from_value(self.kind.schema.get().unwrap(), object.clone(), FieldValidation::Ignore);
        if pruned.is_ok_and(|pruned| pruned.value.to_string().contains("strayField")) {
            self.wrong("an unknown field stays", &said, &object);
        }
    }

    /// A place with all below it; `wrap` makes an object of what stands there.
    fn place(&mut self, schema: &Value, at: &At, wrap: &dyn Fn(Value) -> Value) {
        let is_root = at.dotted.is_empty();
        // The same schema in another place says the same.
        if !is_root && !self.counts.seen.insert(schema.to_string()) {
            return;
        }
        for broken in broken::broken(schema, at) {
            // What the object itself is, and that it has metadata, is another's business.
            let is_others = matches!(broken.rule, "type" | "nullable" | "required");
            if !(is_root && is_others && !broken.said.starts_with("spec")) {
                self.refuse(&broken, at, &wrap(broken.value.clone()));
            }
        }
        match schema["type"].as_str() {
            Some("object") => self.object(schema, at, wrap),
            Some("array") => {
                let count = schema["minItems"].as_u64().unwrap_or(0).max(1);
                let Some(items) = made::items(schema, Extent::Least, count) else {
                    return self.unmade(schema);
                };
                let wrap_item = |item: Value| {
                    let mut items = items.clone();
                    items[0] = item;
                    wrap(Value::from(items))
                };
                self.place(&schema["items"], &at.index(0), &wrap_item);
            }
            _ => {}
        }
    }

    fn object(&mut self, schema: &Value, at: &At, wrap: &dyn Fn(Value) -> Value) {
        let is_root = at.dotted.is_empty();
        let is_free =
            schema["x-kubernetes-preserve-unknown-fields"] == true || schema["additionalProperties"] == true;
        if let Some(mut least) = made::object(schema, Extent::Least, (None, 0))
            && !is_free
            && !schema["additionalProperties"].is_object()
        {
            least.insert("strayField".to_owned(), json!(1));
            self.stray(at, &wrap(Value::Object(least)));
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            if is_root && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                continue;
            }
            let Some(value) = made::value(property, Extent::Least) else {
                self.unmade(property);
                continue;
            };
            let Some(around) = made::object(schema, Extent::Least, (Some((name, &value)), 0)) else {
                self.unmade(schema);
                continue;
            };
            let wrap_field = |value: Value| {
                let mut object = around.clone();
                object.insert(name.clone(), value);
                wrap(Value::Object(object))
            };
            self.accept("one field", &wrap_field(value));
            if property["nullable"] == true {
                self.accept("null", &wrap_field(Value::Null));
            }
            self.place(property, &at.field(name), &wrap_field);
        }
        if schema["additionalProperties"].is_object() {
            let Some(around) = made::value(schema, Extent::Full) else { return self.unmade(schema) };
            let wrap_entry = |value: Value| {
                let mut object = around.clone();
                object["k0"] = value;
                wrap(object)
            };
            self.place(&schema["additionalProperties"], &at.key("k0"), &wrap_entry);
        }
    }

    fn unmade(&mut self, schema: &Value) {
        let why =
            schema.get("pattern").or(schema.get("oneOf")).or(schema.get("not")).unwrap_or(schema).to_string();
        *self.counts.unmade.entry(why.chars().take(200).collect()).or_default() += 1;
    }

    fn run(&mut self) {
        let schema = self.schema;
        for (what, extent) in [("the least object", Extent::Least), ("the full object", Extent::Full)] {
            match made::value(schema, extent) {
                Some(object) => self.accept(what, &object),
                None => self.unmade(schema),
            }
        }
        self.place(schema, &At::default(), &|object| object);
    }
}

/// Whether a rule could not be evaluated, because what it looks at is of the wrong type. That is said of what did not change,
/// too.
fn is_evaluation(line: &str) -> bool {
    line.contains(" evaluating rule: ") || line.contains("call arguments did not match")
}

/// What the rules of a schema say, and whether some of them work that out.
fn rules_of(schema: &Value, said: &mut Vec<String>, computes: &mut bool) {
    let Value::Object(fields) = schema else {
        schema.as_array().into_iter().flatten().for_each(|part| rules_of(part, said, computes));
        return;
    };
    for rule in fields.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten() {
        *computes |= rule.get("messageExpression").is_some();
        let text = |name: &str| rule[name].as_str().unwrap_or_default().trim().to_owned();
        let message = text("message");
        said.push(if message.is_empty() { format!("failed rule: {}", text("rule")) } else { message });
    }
    fields.values().for_each(|part| rules_of(part, said, computes));
}

#[test]
fn objects_of_real_definitions_are_judged_as_upstream_judges_them() {
    let mut definitions = Vec::new();
    match std::env::var_os("KNARR_CRDS") {
        Some(folder) => definitions_in(Path::new(&folder), &mut definitions),
        None => return println!("KNARR_CRDS names no folder: nothing is tried"),
    }
    let (mut counts, mut rules_count) = (Counts::default(), 0);
    for definition in definitions {
        let definition = accepted(definition);
        let built = kinds(&definition, &[]).unwrap();
        for version in definition["spec"]["versions"].as_array().unwrap() {
            let Some(kind) = built.iter().find(|kind| version["name"] == *kind.row.version) else { continue };
            let schema = &version["schema"]["openAPIV3Schema"];
            let name = format!("{} {}", definition["metadata"]["name"].as_str().unwrap(), kind.row.version);
            let (mut rules, mut computes) = (Vec::new(), false);
            rules_of(schema, &mut rules, &mut computes);
            rules_count += rules.len();
            Trial { name, kind, schema, rules, computes, counts: &mut counts }.run();
        }
    }
    let Counts { tried, fired, unmade, wrong, .. } = counts;
    println!("{tried:#?}\nrules in CEL that objects broke: {} of {rules_count}", fired.len());
    println!("values that were not made up: {unmade:#?}");
    assert!(
        wrong.is_empty(),
        "{} are wrong, such as {:#?}",
        wrong.len(),
        wrong.iter().take(25).collect::<Vec<_>>()
    );
    let (unmade, all) = (unmade.values().sum::<usize>(), tried.values().sum::<usize>());
    assert!(unmade * 100 <= all * UNMADE_PERCENT_MAX, "{unmade} values of {all} were not made up");
}
