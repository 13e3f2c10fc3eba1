//! Many definitions: real ones, where there are some, and how long it takes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::*;

/// The definitions in a folder, and in those in it.
fn definitions_in(folder: &Path, found: &mut Vec<Value>) {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            definitions_in(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            let read: Value = serde_saphyr::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            // Some projects have definitions without content, for tests of their own.
            found.extend(Some(read).filter(|definition| definition["spec"]["versions"].is_array()));
        }
    }
}

/// The least value that a schema allows, if that can be told.
fn minimal(schema: &Value) -> Option<Value> {
    if let Some(default) = schema.get("default") {
        return Some(default.clone());
    }
    if let Some(choice) = schema.pointer("/enum/0") {
        return Some(choice.clone());
    }
    let has = |name: &str| schema.get(name).is_some();
    if ["oneOf", "anyOf", "allOf", "not", "pattern", "format"].iter().any(|name| has(name))
        && !has("x-kubernetes-int-or-string")
    {
        return None;
    }
    match schema["type"].as_str() {
        _ if has("x-kubernetes-int-or-string") => Some(json!(1)),
        Some("object") => {
            let mut object = Map::new();
            for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                object.insert(name.to_owned(), minimal(&schema["properties"][name])?);
            }
            (schema["minProperties"].as_u64().unwrap_or(0) <= object.len() as u64)
                .then_some(Value::Object(object))
        }
        Some("array") => {
            let items = schema["minItems"].as_u64().unwrap_or(0);
            (0..items.min(1)).map(|_| minimal(&schema["items"])).collect::<Option<Vec<_>>>().map(Value::from)
        }
        Some("string") => {
            let length = schema["minLength"].as_u64().unwrap_or(0).max(1);
            Some(json!("a".repeat(length as usize)))
        }
        Some("integer" | "number") => Some(schema.get("minimum").cloned().unwrap_or(json!(1))),
        Some("boolean") => Some(json!(true)),
        _ => None,
    }
}

/// Creates an object of a version, if one can be made up; says whether.
async fn create_one(server: &TestServer, definition: &Value, version: &Value) -> bool {
    let schema = &version["schema"]["openAPIV3Schema"];
    let Some(Value::Object(mut object)) = minimal(schema) else { return false };
    let (group, names) = (definition["spec"]["group"].as_str().unwrap(), &definition["spec"]["names"]);
    let version = version["name"].as_str().unwrap();
    object.insert("apiVersion".into(), format!("{group}/{version}").into());
    object.insert("kind".into(), names["kind"].clone());
    object.insert("metadata".into(), json!({"name": "a"}));
    let namespace = if definition["spec"]["scope"] == "Namespaced" { "namespaces/default/" } else { "" };
    let path = format!("/apis/{group}/{version}/{namespace}{}", names["plural"].as_str().unwrap());
    let made = server.call("POST", &path, &Value::Object(object).to_string()).await;
    let has_rules = schema.to_string().contains("x-kubernetes-validations");
    if made.code == 422 && has_rules {
        // What is made up knows nothing of rules.
        return false;
    }
    assert_eq!(made.code, 201, "{path}: {}", made.body);
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let table = server.call_with("GET", &path, &table, "").await;
    assert_eq!((table.code.as_u16(), &table.body["rows"][0]["cells"][0]), (200, &json!("a")), "{path}");
    assert_eq!(server.call("DELETE", &format!("{path}/a"), "").await.code, 200, "{path}");
    true
}

#[tokio::test]
async fn real_definitions_are_accepted_and_served() {
    let mut all = Vec::new();
    match std::env::var_os("KNARR_CRDS") {
        Some(folder) => definitions_in(Path::new(&folder), &mut all),
        None => {
            eprintln!("KNARR_CRDS names no folder with definitions: only this project's own are tried");
            all.push(widgets());
        }
    }
    let server = start(None).await;
    let mut made = 0;
    for definition in &all {
        let name = definition["metadata"]["name"].as_str().unwrap();
        let mut answer = server.call("POST", DEFINITIONS, &definition.to_string()).await;
        if answer.code == 409 {
            // Two projects have some of the same.
            answer = redefine(&server, name, |old| old["spec"] = definition["spec"].clone()).await;
        }
        assert!(answer.code.is_success(), "{name}: {}", answer.body["message"]);
        assert_eq!(condition(&read(&server, name).await, "Established").0, "True", "{name}");
        // Of these webhooks none is there to convert anything.
        let by_webhook = definition["spec"]["conversion"]["strategy"] == "Webhook";
        for version in definition["spec"]["versions"].as_array().unwrap() {
            if version["served"] == true && (!by_webhook || version["storage"] == true) {
                made += usize::from(create_one(&server, definition, version).await);
            }
        }
    }
    eprintln!("{} definitions, objects of {made} versions", all.len());
    assert!(made > 0);
    let second = server.call("GET", "/openapi/v2", "").await.body;
    crate::discovery::check_references(&second, &second["definitions"], "#/definitions/");
    server.stop().await;
}

/// How much memory this process has, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// How many kinds are there before the one that counts.
const KINDS: usize = 60;

#[tokio::test]
async fn many_kinds_are_no_burden_for_the_next() {
    let server = start(None).await;
    let before = resident();
    let started = Instant::now();
    for number in 0..KINDS {
        define(
            &server,
            &definition(&format!("kind{number}s"), &format!("Kind{number}"), vec![version("v1", true)]),
        )
        .await;
    }
    let (all, memory) = (started.elapsed(), resident().saturating_sub(before));
    let started = Instant::now();
    define(&server, &widgets()).await;
    assert_eq!(post(&server, &widget("a", json!({"size": 1}))).await.code, 201);
    let next = started.elapsed();
    eprintln!("{KINDS} kinds: {all:?}, {memory} KiB; the next one with its first object: {next:?}");
    assert!(next < Duration::from_secs(5), "{next:?}");
    let list = server.call("GET", "/apis/example.com/v1", "").await.body;
    assert_eq!(list["resources"].as_array().unwrap().len(), (KINDS + 1) * 3);
    server.stop().await;
}
