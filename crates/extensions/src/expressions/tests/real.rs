//! Definitions of others, in the folder that `KNARR_CRDS` names, if it does.

use std::path::{Path, PathBuf};

use super::*;

fn find_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.extension().and_then(|extension| extension.to_str()) {
            _ if path.is_dir() => find_files(&path, files),
            Some("yaml" | "yml") => files.push(path),
            _ => {}
        }
    }
}

/// Each version's schema, with its name.
fn schemas() -> Vec<(String, Value)> {
    let Some(folder) = std::env::var_os("KNARR_CRDS") else {
        println!("KNARR_CRDS names no folder: nothing is looked at");
        return Vec::new();
    };
    let mut files = Vec::new();
    find_files(Path::new(&folder), &mut files);
    let mut all = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file).expect("a file");
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).expect("YAML");
        for definition in documents.iter().filter(|document| document["kind"] == "CustomResourceDefinition") {
            for version in definition["spec"]["versions"].as_array().into_iter().flatten() {
                let name = format!("{} {}", Metadata::of(definition).name(), version["name"]);
                all.push((name, version["schema"]["openAPIV3Schema"].clone()));
            }
        }
    }
    assert!(!all.is_empty(), "the folder has no definition");
    all
}

/// Breaks the first rule of a schema; whether there is one.
fn break_one(schema: &mut Value) -> bool {
    match schema {
        Value::Array(elements) => elements.iter_mut().any(break_one),
        Value::Object(fields) => {
            let rule =
                fields.get_mut("x-kubernetes-validations").and_then(|rules| rules.pointer_mut("/0/rule"));
            if let Some(rule) = rule {
                *rule = json!(format!("({}) && self.thereIsNoSuchField", rule.as_str().unwrap_or_default()));
                return true;
            }
            fields.values_mut().any(break_one)
        }
        _ => false,
    }
}

#[test]
fn rules_of_real_definitions_compile_within_the_bounds() {
    let (mut with_rules, mut wrong) = (0, Vec::new());
    for (name, mut schema) in schemas() {
        let found = said(&schema);
        wrong.extend(found.iter().map(|line| format!("{name}: {line}")));
        if break_one(&mut schema) {
            with_rules += 1;
            assert!(!said(&schema).is_empty(), "{name}: a broken rule is taken");
        }
    }
    println!("{with_rules} schemas have rules");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
