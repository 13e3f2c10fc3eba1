//! The operations on the paths of a resource, before they are written in either version of OpenAPI.

use super::META;
use super::arenas::Arenas;
use super::definitions::Definitions;
use super::{Resource, root_path};
use crate::Object;
use serde_json::Value;

/// One method on one path.
pub(super) struct Operation<'a> {
    pub(super) path: String,
    /// The method in lower case.
    pub(super) method: &'static str,
    /// `x-kubernetes-action`.
    pub(super) action: &'static str,
    pub(super) id: String,
    /// Group and version in one word; client generators make a class of each.
    pub(super) tag: String,
    /// Group, version and kind of what is acted on.
    pub(super) gvk: (&'a str, &'a str, &'a str),
    /// Whether its resource is of a custom kind.
    pub(super) is_custom: bool,
    /// The message in the request's body.
    pub(super) body: Option<String>,
    /// The message in the answer; none where it is a stream or text.
    pub(super) answer: Option<String>,
    /// The query parameters and their types.
    pub(super) query: &'static [Parameter],
}

/// The name of a query parameter, and its type.
type Parameter = (&'static str, &'static str);

/// How a version of OpenAPI writes paths.
#[derive(Clone, Copy)]
pub(super) struct Forms {
    /// What all methods on a path share.
    pub(super) path_item: fn(&str) -> Value,
    /// One method.
    pub(super) render: fn(&Operation<'_>) -> Value,
}

const WRITE: &[Parameter] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("pretty", "string")];
const PATCH: &[Parameter] = &[
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
    ("force", "boolean"),
    ("pretty", "string"),
];
const DELETE: &[Parameter] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    ("orphanDependents", "boolean"),
    ("pretty", "string"),
    ("propagationPolicy", "string"),
];
const DELETE_COLLECTION: &[Parameter] = &[
    ("continue", "string"),
    ("dryRun", "string"),
    ("fieldSelector", "string"),
    ("gracePeriodSeconds", "integer"),
    ("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("orphanDependents", "boolean"),
    ("pretty", "string"),
    ("propagationPolicy", "string"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
];
const LIST: &[Parameter] = &[
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
const READ: &[Parameter] = &[("pretty", "string")];
const LOG: &[Parameter] = &[
    ("container", "string"),
    ("follow", "boolean"),
    ("insecureSkipTLSVerifyBackend", "boolean"),
    ("limitBytes", "integer"),
    ("pretty", "string"),
    ("previous", "boolean"),
    ("sinceSeconds", "integer"),
    ("stream", "string"),
    ("tailLines", "integer"),
    ("timestamps", "boolean"),
];
const EXEC: &[Parameter] = &[
    ("command", "string"),
    ("container", "string"),
    ("stderr", "boolean"),
    ("stdin", "boolean"),
    ("stdout", "boolean"),
    ("tty", "boolean"),
];
const ATTACH: &[Parameter] = &[
    ("container", "string"),
    ("stderr", "boolean"),
    ("stdin", "boolean"),
    ("stdout", "boolean"),
    ("tty", "boolean"),
];

/// The parameters of the subresources that connect a client with something else, by their kind.
fn connection(kind: &str) -> Option<&'static [Parameter]> {
    Some(match kind {
        "PodExecOptions" => EXEC,
        "PodAttachOptions" => ATTACH,
        "PodPortForwardOptions" => &[("ports", "integer")],
        "NodeProxyOptions" | "PodProxyOptions" | "ServiceProxyOptions" => &[("path", "string")],
        _ => return None,
    })
}

/// What one verb becomes: method, action, the first word of the id, query parameters.
type Verb = (&'static str, &'static str, &'static str, &'static str, &'static [Parameter]);

/// Verbs on a collection.
const COLLECTION: &[Verb] = &[
    ("list", "get", "list", "list", LIST),
    ("create", "post", "post", "create", WRITE),
    ("deletecollection", "delete", "deletecollection", "delete", DELETE_COLLECTION),
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
    arenas: Arenas<'_>,
    resources: &[Resource<'_>],
    definitions: &mut Definitions<'_>,
    forms: Forms,
) -> Object {
    let mut paths = Object::new();
    for operation in resources.iter().flat_map(|resource| of(arenas, resource)) {
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

/// What the operations of a group-version have in common.
struct GroupVersion {
    root: String,
    /// The middle of their ids, such as `AppsV1`.
    id: String,
    tag: String,
}

impl GroupVersion {
    fn of(group: &str, version: &str) -> Self {
        let (word, tag) = group_words(if group.is_empty() { "core" } else { group });
        let tag = format!("{tag}_{version}");
        Self { root: root_path(group, version), id: format!("{word}{}", camel(version)), tag }
    }
}

/// A group in ids and in tags: `RbacAuthorization` and `rbacAuthorization`.
pub(super) fn group_words(group: &str) -> (String, String) {
    let name = group.trim_end_matches(".k8s.io");
    let word = camel(name);
    let rest: String = word.chars().skip(1).collect();
    let tag = format!("{}{rest}", name.chars().take(1).collect::<String>());
    (word, tag)
}

/// The id and the tag of the operation that lists a group-version's resources.
pub(super) fn discovery(group: &str, version: &str) -> (String, String) {
    let group_version = GroupVersion::of(group, version);
    (format!("get{}APIResources", group_version.id), group_version.tag)
}

/// All operations on a resource and its subresources.
fn of<'a>(arenas: Arenas<'_>, resource: &Resource<'a>) -> Vec<Operation<'a>> {
    let Resource { group, version, kind, plural, namespaced, verbs, .. } = *resource;
    let group_version = GroupVersion::of(group, version);
    let root = &group_version.root;
    let collection = match namespaced {
        true => format!("/{root}/namespaces/{{namespace}}/{plural}"),
        false => format!("/{root}/{plural}"),
    };
    let item = format!("{collection}/{{name}}");
    let scope = if namespaced { "Namespaced" } else { "" };
    let make = Maker { arenas, resource, group_version: &group_version };
    let gvk = (group, version, kind);
    let mut all = Vec::new();
    for verb in COLLECTION.iter().filter(|verb| verbs.contains(&verb.0)) {
        let middle = if verb.0 == "deletecollection" { "Collection" } else { "" };
        all.push(make.operation(&collection, verb, gvk, &format!("{middle}{scope}{kind}")));
        if namespaced && verb.0 == "list" {
            all.push(make.operation(
                &format!("/{root}/{plural}"),
                verb,
                gvk,
                &format!("{kind}ForAllNamespaces"),
            ));
        }
    }
    for verb in ITEM.iter().filter(|verb| verbs.contains(&verb.0)) {
        all.push(make.operation(&item, verb, gvk, &format!("{scope}{kind}")));
    }
    for sub in resource.subresources {
        let path = format!("{item}/{}", sub.name);
        let name = format!("{scope}{kind}{}", camel(sub.name));
        let gvk = if sub.kind.is_empty() { gvk } else { (sub.group, sub.version, sub.kind) };
        let create = COLLECTION.iter().filter(|verb| verb.0 == "create");
        for verb in ITEM.iter().chain(create).filter(|verb| sub.verbs.contains(&verb.0)) {
            let Some(query) = connection(sub.kind) else {
                let operation = make.operation(&path, verb, gvk, &name);
                let query = if sub.name == "log" { LOG } else { operation.query };
                all.push(Operation { query, ..operation });
                continue;
            };
            all.push(Operation { query, ..make.connection(&path, verb, gvk, &name) });
            if sub.name == "proxy" {
                let (path, name) = (format!("{path}/{{path}}"), format!("{name}WithPath"));
                all.push(Operation { query, ..make.connection(&path, verb, gvk, &name) });
            }
        }
    }
    all
}

type Gvk<'a> = (&'a str, &'a str, &'a str);

/// Makes the operations of one resource.
struct Maker<'m, 'a> {
    arenas: Arenas<'m>,
    resource: &'m Resource<'a>,
    group_version: &'m GroupVersion,
}

impl<'a> Maker<'_, 'a> {
    /// The operation of a verb on what `gvk` is the type of; `name` ends its id.
    fn operation(&self, path: &str, verb: &Verb, gvk: Gvk<'a>, name: &str) -> Operation<'a> {
        let &(_, method, action, word, query) = verb;
        let object = || self.arenas.name(gvk).map(str::to_owned);
        let answer = match action {
            "list" => self.arenas.list_name(gvk).map(str::to_owned),
            "delete" if self.resource.is_deletion_answered => object(),
            "delete" | "deletecollection" => Some(format!("{META}.Status")),
            _ => object(),
        };
        let body = match action {
            "post" | "put" => object(),
            "patch" => Some(format!("{META}.Patch")),
            "delete" | "deletecollection" => Some(format!("{META}.DeleteOptions")),
            _ => None,
        };
        let (id, tag) = (format!("{word}{}{name}", self.group_version.id), self.group_version.tag.clone());
        let Resource { group, version, kind, .. } = *self.resource;
        let is_custom = crate::builtin().own_kind(group, version, kind).is_none();
        Operation { path: path.into(), method, action, id, tag, gvk, is_custom, body, answer, query }
    }

    /// The operation that connects by the method of a verb.
    fn connection(&self, path: &str, verb: &Verb, gvk: Gvk<'a>, name: &str) -> Operation<'a> {
        let id = format!("connect{}{}{name}", self.group_version.id, camel(verb.1));
        let (body, answer, action) = (None, None, "connect");
        Operation { id, action, body, answer, ..self.operation(path, verb, gvk, name) }
    }
}

pub(super) fn camel(text: &str) -> String {
    text.split(['-', '.'])
        .map(|part| {
            let mut chars = part.chars();
            chars
                .next()
                .map_or_else(String::new, |first| format!("{}{}", first.to_ascii_uppercase(), chars.as_str()))
        })
        .collect()
}
