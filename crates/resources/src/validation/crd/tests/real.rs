//! Whole definitions: the project's own, and those in the folder that `KNARR_CRDS` names, if it does.

use std::path::{Path, PathBuf};

use schema::build::{Source, build};
use schema::proto;

use super::*;

const OWN: [&str; 3] = [
    include_str!("definitions/backups.yaml"),
    include_str!("definitions/engines.yaml"),
    include_str!("definitions/boxes.yaml"),
];

/// Every definition there is.
fn definitions() -> Vec<Value> {
    let mut all: Vec<Value> = OWN.iter().flat_map(|text| parse(text)).collect();
    match std::env::var_os("KNARR_CRDS") {
        Some(folder) => {
            let mut files = Vec::new();
            find_files(Path::new(&folder), &mut files);
            all.extend(files.iter().flat_map(|file| parse(&std::fs::read_to_string(file).unwrap())));
            println!("{} definitions, with those of {}", all.len(), folder.display());
        }
        None => println!("KNARR_CRDS names no folder: {} definitions of the project's own alone", all.len()),
    }
    all
}

fn find_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.extension().and_then(|extension| extension.to_str()) {
            _ if path.is_dir() => find_files(&path, files),
            Some("yaml" | "yml") => files.push(path),
            _ => {}
        }
    }
}

fn parse(text: &str) -> Vec<Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    let is_whole = |document: &Value| {
        let is_empty = document.pointer("/spec/versions").is_none();
        if is_empty {
            println!("left out, as it defines nothing: {}", document["metadata"]["name"]);
        }
        !is_empty
    };
    let documents = documents.into_iter().filter(|document| document["kind"] == "CustomResourceDefinition");
    documents.filter(is_whole).collect()
}

#[test]
fn real_definitions_are_accepted_and_may_stay() {
    for definition in definitions() {
        let name = definition["metadata"]["name"].as_str().unwrap().to_owned();
        let object = prepared(&definition);
        assert_eq!(shown(&row().validate_create(&object)), "", "{name}");
        assert_eq!(shown(&row().validate_update(&updated(&object), &updated(&object))), "", "{name}");
    }
}

#[test]
fn real_definitions_have_schemas_that_can_be_served() {
    for definition in definitions() {
        let object = prepared(&definition);
        let text = |pointer: &str| object.pointer(pointer).unwrap().as_str().unwrap().to_owned();
        let [group, kind, list_kind, plural] =
            ["/spec/group", "/spec/names/kind", "/spec/names/listKind", "/spec/names/plural"].map(text);
        for version in object["spec"]["versions"].as_array().unwrap() {
            let schema = &version["schema"]["openAPIV3Schema"];
            let version = version["name"].as_str().unwrap();
            let source = Source {
                group: &group,
                version,
                kind: &kind,
                list_kind: &list_kind,
                plural: &plural,
                path: "",
                schema,
            };
            let arena = build(&source).unwrap();
            assert!(arena.kind(&group, version, &kind).is_some(), "{plural}.{group}/{version}");
        }
    }
}

#[test]
fn real_definitions_survive_protobuf() {
    let kind = schema::builtin().kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition").unwrap();
    for definition in definitions() {
        let mut object = prepared(&definition);
        let bytes = proto::encode(kind, &object).unwrap();
        let mut read = proto::decode(kind, &proto::open(&bytes).unwrap()).unwrap();
        for field in ["apiVersion", "kind"] {
            read[field] = object[field].clone();
        }
        // An empty list is not told from none.
        object["status"].as_object_mut().unwrap().remove("conditions");
        let again =
            |object: &Value| decode::from_value(kind, object.clone(), FieldValidation::Strict).unwrap().value;
        assert_eq!(again(&read), again(&object), "{}", definition["metadata"]["name"]);
    }
}
