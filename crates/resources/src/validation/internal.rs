//! Values as upstream's messages show them: in the JSON of its internal types, with every field there is.
//!
//! Only for messages; nothing else knows this form. What the table of types does not have is shown as in the API.
//! Source: `pkg/apis/core/types.go`, `pkg/apis/core/v1/conversion.go`, `encoding/json` of Go.

mod types;

use machinery::field::{FieldError, Reason};
use serde_json::{Map, Value};

use super::At;
use super::diff::unified;
use types::TYPES;

/// A value whose fields have an order.
#[derive(Clone, Debug, PartialEq)]
enum Tree {
    Leaf(Value),
    List(Vec<Tree>),
    Fields(Vec<(String, Tree)>),
}

/// `value` as upstream's type of that name prints it, in one line.
pub(super) fn compact(type_name: &str, value: &Value) -> String {
    let mut out = String::new();
    print(&of_type(type_name, value), None, &mut out);
    out
}

/// An invalid value of a type.
pub(super) fn invalid(at: &At<'_>, type_name: &str, detail: &str) -> FieldError {
    let message = format!("Invalid value: {}: {detail}", compact(type_name, at.value));
    FieldError { path: at.path.clone(), reason: Reason::Invalid, message }
}

/// A value of a type that is there twice.
pub(super) fn duplicate(at: &At<'_>, type_name: &str) -> FieldError {
    let message = format!("Duplicate value: {}", compact(type_name, at.value));
    FieldError { path: at.path.clone(), reason: Reason::Duplicate, message }
}

/// A value of a type that is not one of these.
pub(super) fn not_supported(at: &At<'_>, type_name: &str, supported: &[&str]) -> FieldError {
    let mut error = FieldError::not_supported(&at.path, "", supported);
    let shown = format!("Unsupported value: {}", compact(type_name, at.value));
    error.message = error.message.replacen("Unsupported value: \"\"", &shown, 1);
    error
}

/// A list with values of a type that is invalid.
pub(super) fn invalid_list(at: &At<'_>, type_name: &str, detail: &str) -> FieldError {
    let items: Vec<_> = at.items().map(|item| compact(type_name, item.value)).collect();
    let message = format!("Invalid value: [{}]: {detail}", items.join(","));
    FieldError { path: at.path.clone(), reason: Reason::Invalid, message }
}

/// What differs between two values of a type, as a unified diff of how they print.
///
/// Source: `k8s.io/apimachinery/pkg/util/diff`.
pub(super) fn diff(type_name: &str, old: &Value, new: &Value) -> String {
    let lines = |value: &Value| {
        let mut out = String::new();
        print(&of_type(type_name, value), Some(0), &mut out);
        out
    };
    unified(&lines(old), &lines(new))
}

fn of_type(name: &str, value: &Value) -> Tree {
    match name {
        "PodTemplateSpec" => {
            let mut fields = object_meta(value.get("metadata").unwrap_or(&Value::Null));
            fields.push(("Spec".to_owned(), of_type("PodSpec", value.get("spec").unwrap_or(&Value::Null))));
            Tree::Fields(fields)
        }
        "PodSpec" => Tree::Fields(fields(name, &with_host_fields(value))),
        _ => Tree::Fields(fields(name, value)),
    }
}

/// `metav1.ObjectMeta` has its JSON names, and leaves out what is empty.
fn object_meta(value: &Value) -> Vec<(String, Tree)> {
    const ORDER: [&str; 14] = [
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
    ];
    let is_shown = |value: &&Value| !super::fields::same(value, &Value::Null);
    let found = ORDER.iter().filter_map(|name| Some((*name, value.get(name).filter(is_shown)?)));
    found.map(|(name, value)| (name.to_owned(), Tree::Leaf(value.clone()))).collect()
}

/// What shares the host's namespaces is part of the security context.
fn with_host_fields(spec: &Value) -> Value {
    const MOVED: [&str; 5] = ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"];
    let mut spec = spec.clone();
    let Some(map) = spec.as_object_mut() else { return spec };
    let moved: Vec<_> = MOVED.iter().filter_map(|name| map.remove_entry(*name)).collect();
    let context = map.entry("securityContext").or_insert(Value::Null);
    if !context.is_object() {
        *context = Map::new().into();
    }
    if let Some(context) = context.as_object_mut() {
        context.extend(moved);
    }
    spec
}

fn fields(type_name: &str, value: &Value) -> Vec<(String, Tree)> {
    let Some((_, row)) = TYPES.iter().find(|(name, _)| *name == type_name) else {
        return value
            .as_object()
            .into_iter()
            .flatten()
            .map(|(k, v)| (k.clone(), Tree::Leaf(v.clone())))
            .collect();
    };
    let mut found = Vec::new();
    for word in row.split_ascii_whitespace() {
        match word.strip_prefix('+') {
            Some("ObjectMeta") => {
                found.extend(object_meta(value.get("metadata").unwrap_or(&Value::Null)));
            }
            Some(embedded) => found.extend(fields(embedded, value)),
            None => found.push(field(word, value)),
        }
    }
    found
}

/// The field that a word of the table describes.
fn field(word: &str, object: &Value) -> (String, Tree) {
    let end = word.find(['/', '?', '#', '!', '~', '@', '*', '=', '[']).unwrap_or(word.len());
    let (name, rest) = word.split_at(end);
    let (json_name, kind) = match rest.strip_prefix('/') {
        None => (uncapitalized(name), rest),
        Some(rest) => {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
            let (json_name, kind) = rest.split_at(end);
            (json_name.to_owned(), kind)
        }
    };
    let value = object.get(&json_name).filter(|value| !value.is_null());
    (name.to_owned(), shown(kind, value))
}

fn uncapitalized(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(chars).collect()
}

fn shown(kind: &str, value: Option<&Value>) -> Tree {
    let null = || Tree::Leaf(Value::Null);
    let leaf = |otherwise: Value| Tree::Leaf(value.cloned().unwrap_or(otherwise));
    let (mark, name) = kind.split_at(kind.len().min(1));
    match mark {
        "" => leaf("".into()),
        "#" => leaf(0.into()),
        "!" => leaf(false.into()),
        "~" => leaf("0".into()),
        "@" => value.map_or_else(null, label_selector),
        "*" => value.map_or_else(null, |value| of_type(name, value)),
        "=" => of_type(name, value.unwrap_or(&Value::Null)),
        "[" => match value.and_then(Value::as_array) {
            Some(list) => {
                let name = name.trim_end_matches(']');
                Tree::List(list.iter().map(|item| of_type(name, item)).collect())
            }
            None => null(),
        },
        _ => leaf(Value::Null),
    }
}

/// A `metav1.LabelSelector`, which has labels first.
fn label_selector(value: &Value) -> Tree {
    let of = |name: &str| Some((name.to_owned(), Tree::Leaf(value.get(name)?.clone())));
    Tree::Fields(["matchLabels", "matchExpressions"].into_iter().filter_map(of).collect())
}

/// Prints as Go's `json.Marshal`, or at that depth as its `json.MarshalIndent` with one space.
fn print(tree: &Tree, depth: Option<usize>, out: &mut String) {
    match tree {
        Tree::Leaf(Value::Object(map)) => {
            let fields = map.iter().map(|(name, value)| (name.clone(), Tree::Leaf(value.clone()))).collect();
            print(&Tree::Fields(fields), depth, out);
        }
        Tree::Leaf(Value::Array(list)) => {
            print(&Tree::List(list.iter().cloned().map(Tree::Leaf).collect()), depth, out);
        }
        Tree::Leaf(value) => out.push_str(&escaped(&value.to_string())),
        Tree::List(items) => enclosed('[', ']', items, depth, out, print),
        Tree::Fields(fields) => enclosed('{', '}', fields, depth, out, |(name, value), depth, out| {
            out.push_str(&escaped(&Value::from(name.as_str()).to_string()));
            out.push_str(if depth.is_some() { ": " } else { ":" });
            print(value, depth, out);
        }),
    }
}

fn enclosed<T>(
    open: char,
    close: char,
    items: &[T],
    depth: Option<usize>,
    out: &mut String,
    one: impl Fn(&T, Option<usize>, &mut String),
) {
    let line = |depth: Option<usize>, out: &mut String| {
        if let Some(depth) = depth {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', depth));
        }
    };
    out.push(open);
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        let inner = depth.map(|depth| depth + 1);
        line(inner, out);
        one(item, inner, out);
    }
    if !items.is_empty() {
        line(depth, out);
    }
    out.push(close);
}

/// Go escapes what HTML would read.
fn escaped(json: &str) -> String {
    json.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e")
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn parse(yaml: &str) -> Value {
        serde_saphyr::from_str(yaml).unwrap()
    }

    fn check(type_name: &str, yaml: &str, expect: Expect) {
        expect.assert_eq(&compact(type_name, &parse(yaml)));
    }

    #[test]
    fn every_type_that_is_named_is_there() {
        for (_, row) in TYPES {
            for word in row.split_ascii_whitespace() {
                let Some(at) = word.find(['*', '=', '[', '+']) else { continue };
                let name = word[at + 1..].trim_end_matches(']');
                let is_known = name == "ObjectMeta" || TYPES.iter().any(|(known, _)| *known == name);
                assert!(is_known, "{word}");
            }
        }
    }

    #[test]
    fn every_field_is_shown_under_its_name_in_go() {
        check(
            "HTTPGetAction",
            "{port: http, httpHeaders: [{name: a, value: <b>}]}",
            expect![[
                r#"{"Path":"","Port":"http","Host":"","Scheme":"","HTTPHeaders":[{"Name":"a","Value":"\u003cb\u003e"}]}"#
            ]],
        );
        check(
            "PodAffinityTerm",
            "{topologyKey: k, labelSelector: {matchExpressions: [{key: a, operator: Exists}], matchLabels: {a: b}}}",
            expect![[
                r#"{"LabelSelector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"a","operator":"Exists"}]},"Namespaces":null,"TopologyKey":"k","NamespaceSelector":null,"MatchLabelKeys":null,"MismatchLabelKeys":null}"#
            ]],
        );
        check(
            "Volume",
            "{name: v, configMap: {name: m, defaultMode: 420}}",
            expect![[
                r#"{"Name":"v","HostPath":null,"EmptyDir":null,"GCEPersistentDisk":null,"AWSElasticBlockStore":null,"GitRepo":null,"Secret":null,"NFS":null,"ISCSI":null,"Glusterfs":null,"PersistentVolumeClaim":null,"RBD":null,"Quobyte":null,"FlexVolume":null,"Cinder":null,"CephFS":null,"Flocker":null,"DownwardAPI":null,"FC":null,"AzureFile":null,"ConfigMap":{"Name":"m","Items":null,"DefaultMode":420,"Optional":null},"VsphereVolume":null,"AzureDisk":null,"PhotonPersistentDisk":null,"Projected":null,"PortworxVolume":null,"ScaleIO":null,"StorageOS":null,"CSI":null,"Ephemeral":null,"Image":null}"#
            ]],
        );
    }

    #[test]
    fn what_is_the_hosts_is_security() {
        let template = compact(
            "PodTemplateSpec",
            &parse("{metadata: {labels: {a: b}}, spec: {hostNetwork: true, containers: []}}"),
        );
        assert!(template.starts_with(r#"{"labels":{"a":"b"},"Spec":{"Volumes":null,"#), "{template}");
        assert!(template.contains(r#""SecurityContext":{"HostNetwork":true,"HostPID":false,"#), "{template}");
    }

    #[test]
    fn a_difference_is_shown_with_what_is_around_it() {
        let old = parse("{nodeName: a, containers: [{name: c, image: i}]}");
        let new = parse("{nodeName: b, containers: [{name: c, image: i}]}");
        expect![[r#"
            @@ -42,7 +42,7 @@
              "NodeSelector": null,
              "ServiceAccountName": "",
              "AutomountServiceAccountToken": null,
            - "NodeName": "a",
            + "NodeName": "b",
              "SecurityContext": {
               "HostNetwork": false,
               "HostPID": false,
        "#]]
        .assert_eq(&diff("PodSpec", &old, &new));
    }
}
