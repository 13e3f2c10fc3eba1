//! The operations on the paths of a resource, before they are written in either version of OpenAPI.

use super::definitions::Definitions;
use super::{Resource, root_path};
use crate::Object;
use crate::rows::Schemas;
use serde_json::Value;

/// One method on one path.
pub(super) struct Operation<'a> {
    pub(super) path: String,
    /// The method in lower case.
    pub(super) method: &'static str,
    /// `x-kubernetes-action`.
    pub(super) action: &'static str,
    pub(super) id: String,
    /// Group, version and kind of what is acted on.
    pub(super) gvk: (&'a str, &'a str, &'a str),
    /// The message in the request's body.
    pub(super) body: Option<String>,
    /// The message in the answer; none where it is a stream or text.
    pub(super) answer: Option<String>,
    /// The query parameters and their types.
    pub(super) query: Vec<(&'static str, &'static str)>,
}

/// How a version of OpenAPI writes paths.
#[derive(Clone, Copy)]
pub(super) struct Forms {
    /// What all methods on a path share.
    pub(super) path_item: fn(&str) -> Value,
    /// One method.
    pub(super) render: fn(&Operation<'_>) -> Value,
}

pub(super) const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

const WRITE: &[(&str, &str)] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("pretty", "string")];
const PATCH: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
    ("force", "boolean"),
    ("pretty", "string"),
];
const DELETE: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("pretty", "string"),
    ("propagationPolicy", "string"),
];
const LIST: &[(&str, &str)] = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("pretty", "string"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
const READ: &[(&str, &str)] = &[("pretty", "string")];

/// What one verb becomes: method, action, the first word of the id, query parameters.
type Verb = (&'static str, &'static str, &'static str, &'static str, &'static [(&'static str, &'static str)]);

/// Verbs on a collection.
const COLLECTION: &[Verb] = &[
    ("list", "get", "list", "list", LIST),
    ("create", "post", "post", "create", WRITE),
    ("deletecollection", "delete", "deletecollection", "deleteCollection", LIST),
];
/// Verbs on one object.
const ITEM: &[Verb] = &[
    ("get", "get", "get", "read", READ),
    ("update", "put", "put", "replace", WRITE),
    ("patch", "patch", "patch", "patch", PATCH),
    ("delete", "delete", "delete", "delete", DELETE),
];

/// All paths of `resources`; the messages that they name are added to `definitions`.
pub(super) fn paths(
    schemas: &Schemas,
    resources: &[Resource<'_>],
    definitions: &mut Definitions<'_>,
    forms: Forms,
) -> Object {
    let mut paths = Object::new();
    for operation in resources.iter().flat_map(|resource| of(schemas, resource)) {
        for message in operation.body.iter().chain(&operation.answer) {
            definitions.add(message);
        }
        let path = paths.entry(operation.path.clone()).or_insert_with(|| (forms.path_item)(&operation.path));
        if let Value::Object(item) = path {
            item.insert(operation.method.into(), (forms.render)(&operation));
        }
    }
    paths
}

/// All operations on a resource and its subresources.
fn of<'a>(schemas: &Schemas, resource: &Resource<'a>) -> Vec<Operation<'a>> {
    let Resource { group, version, kind, plural, namespaced, verbs, subresources } = *resource;
    let root = root_path(group, version);
    let collection = if namespaced {
        format!("/{root}/namespaces/{{namespace}}/{plural}")
    } else {
        format!("/{root}/{plural}")
    };
    let item = format!("{collection}/{{name}}");
    let scope = if namespaced { "Namespaced" } else { "" };
    let place = format!("{}{}", camel(group.split('.').next().unwrap_or_default()), camel(version));
    let place = if group.is_empty() { format!("Core{place}") } else { place };
    let gvk = (group, version, kind);
    let message = message(schemas, gvk);
    let list = self::message(schemas, (group, version, &format!("{kind}List")));
    let make = |path: &str, verb: &Verb, gvk, scope: &str, name: &str, object: &Option<String>| {
        let &(_, method, action, word, query) = verb;
        let answer = match action {
            "list" => list.clone(),
            "deletecollection" => Some(format!("{META}.Status")),
            "delete" if !matches!(kind, "Pod") => Some(format!("{META}.Status")),
            _ => object.clone(),
        };
        let body = match action {
            "post" | "put" => object.clone(),
            "patch" => Some(format!("{META}.Patch")),
            "delete" | "deletecollection" => Some(format!("{META}.DeleteOptions")),
            _ => None,
        };
        let id = format!("{word}{place}{scope}{name}");
        Operation { path: path.into(), method, action, id, gvk, body, answer, query: query.to_vec() }
    };
    let mut all = Vec::new();
    for verb in COLLECTION.iter().filter(|verb| verbs.contains(&verb.0)) {
        all.push(make(&collection, verb, gvk, scope, kind, &message));
        if namespaced && verb.0 == "list" {
            let everywhere = format!("{kind}ForAllNamespaces");
            all.push(make(&format!("/{root}/{plural}"), verb, gvk, "", &everywhere, &message));
        }
    }
    for verb in ITEM.iter().filter(|verb| verbs.contains(&verb.0)) {
        all.push(make(&item, verb, gvk, scope, kind, &message));
    }
    for sub in subresources {
        let path = format!("{item}/{}", sub.name);
        let name = format!("{kind}{}", camel(sub.name));
        let gvk = if sub.kind.is_empty() { gvk } else { (sub.group, sub.version, sub.kind) };
        let object = self::message(schemas, gvk);
        let create = COLLECTION.iter().filter(|verb| verb.0 == "create");
        for verb in ITEM.iter().chain(create).filter(|verb| sub.verbs.contains(&verb.0)) {
            all.push(make(&path, verb, gvk, scope, &name, &object));
        }
    }
    all
}

fn message(schemas: &Schemas, (group, version, kind): (&str, &str, &str)) -> Option<String> {
    schemas.kind(group, version, kind).map(|schema| schema.message_name().to_owned())
}

fn camel(text: &str) -> String {
    text.split(['-', '.'])
        .map(|part| {
            let mut chars = part.chars();
            chars
                .next()
                .map_or_else(String::new, |first| format!("{}{}", first.to_ascii_uppercase(), chars.as_str()))
        })
        .collect()
}
