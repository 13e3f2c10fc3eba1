//! Nobody has policies read what they may not read themselves: the parameters that policies and bindings name.
//!
//! A rule of upstream's registry, which has no plugin there. Source: `authz.go` of
//! `pkg/registry/admissionregistration/validatingadmissionpolicy`, and of its neighbours.

use auth::{Attributes, Decision, MASTERS, UserInfo};
use machinery::field::{FieldError, FieldErrors, Path};
use machinery::metadata::Metadata;
use serde_json::Value;

use super::{Context, Operation, Step, judged};
use crate::kinds::{GroupVersionResource, Kinds, Part};
use crate::policies::GROUP;
use crate::policies::policy::{Binding, ParamKind, ParamRef};
use crate::status::{Error, Result};

/// Checks writes of policies and bindings.
pub(super) fn validate<'a>(context: &'a Context<'a>, object: &'a Value) -> Step<'a> {
    let kind = &context.request.kind;
    let is_written = matches!(context.operation, Operation::Create | Operation::Update(Part::Object));
    let user = context.request.user();
    if kind.group() != GROUP || !is_written || context.request.is_servers() || user.is_in(MASTERS) {
        return Step::Done(Ok(()));
    }
    let asked = match kind.resource() {
        "validatingadmissionpolicies" | "mutatingadmissionpolicies" => of_policy(context, object),
        "validatingadmissionpolicybindings" => of_binding(context, "validatingadmissionpolicies", object),
        "mutatingadmissionpolicybindings" => of_binding(context, "mutatingadmissionpolicies", object),
        _ => None,
    };
    let Some(asked) = asked else { return Step::Done(Ok(())) };
    judged(async move { permitted(context, object, asked).await })
}

/// What somebody has to be allowed, and what they are told if they are not.
struct Asked {
    attributes: Attributes,
    field: &'static str,
    why: String,
}

async fn permitted(context: &Context<'_>, object: &Value, asked: Asked) -> Result<()> {
    let verdict = context.cluster.security.decide(context.request.user(), &asked.attributes).await;
    let why = match (verdict.decision, verdict.error) {
        (Decision::Allow(_), _) => return Ok(()),
        (_, Some(failure)) => failure,
        _ => asked.why,
    };
    let path = Path::new("spec").child(asked.field);
    let errors = FieldErrors::from(FieldError::forbidden(&path, &why));
    Err(Error::invalid(context.request.kind.kind_subject(), Metadata::of(object).name(), &errors))
}

/// Who names a kind of parameters may read all of it.
fn of_policy(context: &Context<'_>, object: &Value) -> Option<Asked> {
    let kind = ParamKind::of(object.get("spec")?)?;
    let before = context.old.and_then(|old| ParamKind::of(old.get("spec")?));
    if before.is_some_and(|before| before == kind) {
        return None;
    }
    let ParamKind { api_version, kind: name } = &kind;
    let why = format!(
        "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={name}, apiVersion={api_version})",
        shown(context.request.user()),
    );
    let everything = Attributes { name: "*".to_owned(), namespace: "*".to_owned(), ..Attributes::default() };
    let (attributes, _) = about(&context.request.catalogue, &kind, "get", everything);
    Some(Asked { attributes, field: "paramKind", why })
}

/// Who hands a parameter to a policy may read it; whatever it may be, where that is not known.
fn of_binding(context: &Context<'_>, policies: &str, object: &Value) -> Option<Asked> {
    let Binding { policy, param_ref, .. } = Binding::new(object);
    let ParamRef { name, namespace, .. } = param_ref?;
    let (user, verb) = (shown(context.request.user()), if name.is_empty() { "list" } else { "get" });
    let version = context.request.kind.version();
    let policies = GroupVersionResource::new(GROUP, version, policies);
    let found = context.lookup_part(policies, "", &policy, &["/spec/paramKind"]);
    let is_found = found.is_some();
    let kind = found.and_then(|found| ParamKind::of(found.get("spec")?));
    let attributes = Attributes { name, namespace, ..Attributes::default() };
    let all = format!(
        "to determine minimum required permissions and user {user} does not have \"{verb}\" permission for all groups, versions and resources"
    );
    let (attributes, why) = match kind {
        Some(kind) => match about(&context.request.catalogue, &kind, verb, attributes) {
            (attributes, true) => (
                attributes,
                format!(
                    "user {user} does not have \"{verb}\" permission on the object referenced by paramRef"
                ),
            ),
            (attributes, false) => (attributes, format!("unable to resolve paramKind {kind} {all}")),
        },
        None => {
            let any = || "*".to_owned();
            let attributes = Attributes {
                verb: verb.to_owned(),
                group: any(),
                version: any(),
                resource: any(),
                is_resource: true,
                ..attributes
            };
            let why = match is_found {
                true => format!(
                    "user {user} does not have \"{verb}\" permission on the object referenced by paramRef"
                ),
                false => format!("unable to get policy {policy} {all}"),
            };
            (attributes, why)
        }
    };
    Some(Asked { attributes, field: "paramRef", why })
}

/// What is asked about a kind's objects, and whether the kind is served: else all of its group are asked about.
fn about(kinds: &Kinds, kind: &ParamKind, verb: &str, attributes: Attributes) -> (Attributes, bool) {
    let (group, version) = kind.group_version();
    let found = kinds.of_name(group, version, &kind.kind);
    let asked = Attributes {
        verb: verb.to_owned(),
        group: group.to_owned(),
        version: version.to_owned(),
        resource: found.map_or("*", |kind| kind.resource()).to_owned(),
        is_resource: true,
        ..attributes
    };
    (asked, found.is_some())
}

/// A user, as Go prints one.
fn shown(user: &UserInfo) -> String {
    let extra = user.extra.iter().map(|(key, values)| format!("{key}:[{}]", values.join(" ")));
    let extra: Vec<String> = extra.collect();
    format!("&{{{} {} [{}] map[{}]}}", user.name, user.uid, user.groups.join(" "), extra.join(" "))
}
