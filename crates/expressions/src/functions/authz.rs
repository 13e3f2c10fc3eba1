//! Questions to an authorizer. Source: `k8s.io/apiserver/pkg/cel/library/authz.go`.

use std::sync::Arc;

use machinery::names;

use super::{Answer, Row, fail, no_overload};
use crate::authorizer::{
    AuthorizerValue, Decision, GroupCheck, PathCheck, Resource, ResourceCheck, ServiceAccount, Subject,
};
use crate::context::{Context, EvalError};
use crate::value::{Text, Value};

macro_rules! of {
    ($kind:literal) => {
        concat!("kubernetes.authorization.", $kind)
    };
}

const NARROWED: &str = concat!(of!("ResourceCheck"), ".(string) -> ", of!("ResourceCheck"));

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "path",
        overloads: &[("authorizer_path", concat!(of!("Authorizer"), ".(string) -> ", of!("PathCheck")))],
        body: path,
    },
    Row {
        name: "group",
        overloads: &[("authorizer_group", concat!(of!("Authorizer"), ".(string) -> ", of!("GroupCheck")))],
        body: group,
    },
    Row {
        name: "serviceAccount",
        overloads: &[(
            "authorizer_serviceaccount",
            concat!(of!("Authorizer"), ".(string, string) -> ", of!("Authorizer")),
        )],
        body: service_account,
    },
    Row {
        name: "resource",
        overloads: &[(
            "groupcheck_resource",
            concat!(of!("GroupCheck"), ".(string) -> ", of!("ResourceCheck")),
        )],
        body: resource,
    },
    Row {
        name: "subresource",
        overloads: &[("resourcecheck_subresource", NARROWED)],
        body: |_, args| narrowed(args, |resource, text| resource.subresource = text),
    },
    Row {
        name: "namespace",
        overloads: &[("resourcecheck_namespace", NARROWED)],
        body: |_, args| narrowed(args, |resource, text| resource.namespace = text),
    },
    Row {
        name: "name",
        overloads: &[("resourcecheck_name", NARROWED)],
        body: |_, args| narrowed(args, |resource, text| resource.name = text),
    },
    Row {
        name: "fieldSelector",
        overloads: &[("authorizer_fieldselector", NARROWED)],
        body: |_, args| narrowed(args, |resource, text| resource.field_selector = text),
    },
    Row {
        name: "labelSelector",
        overloads: &[("authorizer_labelselector", NARROWED)],
        body: |_, args| narrowed(args, |resource, text| resource.label_selector = text),
    },
    Row {
        name: "check",
        overloads: &[
            ("pathcheck_check", concat!(of!("PathCheck"), ".(string) -> ", of!("Decision"))),
            ("resourcecheck_check", concat!(of!("ResourceCheck"), ".(string) -> ", of!("Decision"))),
        ],
        body: check,
    },
    Row {
        name: "errored",
        overloads: &[("decision_errored", concat!(of!("Decision"), ".() -> bool"))],
        body: |_, args| told(args, |decision| Value::Bool(decision.error.is_some())),
    },
    Row {
        name: "error",
        overloads: &[("decision_error", concat!(of!("Decision"), ".() -> string"))],
        body: |_, args| told(args, |decision| Value::text(decision.error.as_deref().unwrap_or_default())),
    },
    Row {
        name: "allowed",
        overloads: &[("decision_allowed", concat!(of!("Decision"), ".() -> bool"))],
        body: |_, args| told(args, |decision| Value::Bool(decision.is_allowed)),
    },
    Row {
        name: "reason",
        overloads: &[("decision_reason", concat!(of!("Decision"), ".() -> string"))],
        body: |_, args| told(args, |decision| Value::text(&*decision.reason)),
    },
];

fn path<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::Authorizer(authorizer), Value::String(path)] = args else { return no_overload() };
    if path.trim().is_empty() {
        return fail("path must not be empty");
    }
    Ok(Value::PathCheck(Arc::new(PathCheck { authorizer: (**authorizer).clone(), path: path.to_string() })))
}

fn group<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::Authorizer(authorizer), Value::String(group)] = args else { return no_overload() };
    Ok(Value::GroupCheck(Arc::new(GroupCheck {
        authorizer: (**authorizer).clone(),
        group: group.to_string(),
    })))
}

fn service_account<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::Authorizer(authorizer), Value::String(namespace), Value::String(name)] = args else {
        return no_overload();
    };
    if !names::dns1123_subdomain(name).is_empty() {
        return fail("Invalid service account name");
    }
    if !names::dns1123_label(namespace).is_empty() {
        return fail("Invalid service account namespace");
    }
    let service_account = Some(ServiceAccount { namespace: namespace.to_string(), name: name.to_string() });
    let authorizer = authorizer.authorizer.clone();
    Ok(Value::Authorizer(Arc::new(AuthorizerValue { authorizer, service_account })))
}

fn resource<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::GroupCheck(check), Value::String(name)] = args else { return no_overload() };
    if name.trim().is_empty() {
        return fail("resource must not be empty");
    }
    let resource = Resource { group: check.group.clone(), resource: name.to_string(), ..Resource::default() };
    Ok(Value::ResourceCheck(Arc::new(ResourceCheck { authorizer: check.authorizer.clone(), resource })))
}

fn narrowed<'a>(args: &[Value<'a>], narrow: fn(&mut Resource, String)) -> Answer<'a> {
    let [Value::ResourceCheck(check), Value::String(text)] = args else { return no_overload() };
    let mut check = (**check).clone();
    narrow(&mut check.resource, text.to_string());
    Ok(Value::ResourceCheck(Arc::new(check)))
}

fn check<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let verb = |verb: &Text<'a>| verb.to_string();
    let decision = match args {
        [Value::PathCheck(check), Value::String(text)] => {
            check.authorizer.ask(&verb(text), Subject::Path(check.path.clone()))
        }
        [Value::ResourceCheck(check), Value::String(text)] => {
            check.authorizer.ask(&verb(text), Subject::Resource(check.resource.clone()))
        }
        _ => return no_overload(),
    };
    Ok(Value::Decision(Arc::new(decision.ok_or(EvalError::Unanswered)?)))
}

fn told<'a>(args: &[Value<'a>], tell: fn(&Decision) -> Value<'a>) -> Answer<'a> {
    let [Value::Decision(decision)] = args else { return no_overload() };
    Ok(tell(decision))
}
