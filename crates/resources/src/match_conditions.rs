//! The expressions of `matchConditions`: what they see, and how they are compiled.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/cel/compile.go`.

use std::sync::LazyLock;

use expressions::{Declared, Environment, Field, ListKind, Program, Type};

/// The names of the variables.
pub const OBJECT: &str = "object";
/// As [`OBJECT`].
pub const OLD_OBJECT: &str = "oldObject";
/// As [`OBJECT`].
pub const REQUEST: &str = "request";
/// As [`OBJECT`].
pub const NAMESPACE: &str = "namespaceObject";
/// As [`OBJECT`].
pub const AUTHORIZER: &str = "authorizer";
/// As [`OBJECT`].
pub const REQUEST_RESOURCE: &str = "authorizer.requestResource";

static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| {
    Environment::new()
        .variable(OBJECT, Type::Dyn)
        .variable(OLD_OBJECT, Type::Dyn)
        .variable(NAMESPACE, Type::Dyn)
        .declared(REQUEST, REQUEST_TYPE.clone())
        .variable(AUTHORIZER, Type::named("kubernetes.authorization.Authorizer"))
        .variable(REQUEST_RESOURCE, Type::named("kubernetes.authorization.ResourceCheck"))
});

static REQUEST_TYPE: LazyLock<Declared> = LazyLock::new(admission_request);

/// The type of `request`.
pub fn request_type() -> &'static Declared {
    &REQUEST_TYPE
}

/// Compiles one condition of a webhook.
///
/// # Errors
/// What is wrong with it, in upstream's words.
pub fn compile(expression: &str) -> Result<Program, String> {
    let failed =
        |why: String| format!("compilation failed: {}", why.trim_start_matches("compilation failed: "));
    let program = ENVIRONMENT.compile(expression).map_err(|failure| failed(failure.to_string()))?;
    match program.kind() {
        Type::Bool => Ok(program),
        other => Err(format!("must evaluate to bool but got {other}")),
    }
}

fn text() -> Declared {
    Declared::string(None)
}

fn object(name: &str, required: &[&str], fields: Vec<(&str, Declared)>) -> Declared {
    let fields = fields.into_iter().map(|(name, declared)| {
        let is_required = required.contains(&name);
        Field { name: name.to_owned(), declared, is_required }
    });
    Declared::object(fields).named(name)
}

fn admission_request() -> Declared {
    let group_version = |name: &str, last: &str| {
        let fields = vec![("group", text()), ("version", text()), (last, text())];
        object(name, &["group", "version", last], fields)
    };
    let kind = group_version("kubernetes.GroupVersionKind", "kind");
    let resource = group_version("kubernetes.GroupVersionResource", "resource");
    let texts = || Declared::list(text(), ListKind::Atomic, None);
    let user = object(
        "kubernetes.UserInfo",
        &[],
        vec![
            ("username", text()),
            ("uid", text()),
            ("groups", texts()),
            ("extra", Declared::map(texts(), None)),
        ],
    );
    object(
        "kubernetes.AdmissionRequest",
        &["kind", "resource", "requestKind", "requestResource", "name", "operation", "userInfo"],
        vec![
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("subResource", text()),
            ("requestKind", kind),
            ("requestResource", resource),
            ("requestSubResource", text()),
            ("name", text()),
            ("namespace", text()),
            ("operation", text()),
            ("userInfo", user),
            ("dryRun", Declared::boolean()),
            ("options", Declared::dynamic()),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_a_question_about_what_it_sees() {
        for good in [
            "true",
            "object.metadata.name != 'x'",
            "has(oldObject.metadata)",
            "request.operation == 'CREATE' && request.kind.group == ''",
            "'devs' in request.userInfo.groups",
            "request.userInfo.extra['scopes'].exists(s, s == 'a')",
            "request.options.fieldManager == 'me'",
            "authorizer.group('apps').resource('deployments').check('create').allowed()",
            "!authorizer.requestResource.check('breakglass').allowed()",
        ] {
            let compiled = compile(good);
            assert!(compiled.is_ok(), "{good}: {:?}", compiled.err());
        }
        for (bad, why) in [
            ("1", "must evaluate to bool but got int"),
            ("object.spec", "must evaluate to bool but got dyn"),
            ("nothing == 1", "undeclared reference to 'nothing'"),
            ("params.a == 1", "undeclared reference to 'params'"),
            ("request.colour == ''", "undefined field 'colour'"),
            ("request.operation == 1", "found no matching overload for '_==_'"),
            ("request.", "Syntax error"),
        ] {
            let failure = compile(bad).err().unwrap_or_default();
            assert!(failure.contains(why), "{bad}: {failure}");
        }
    }
}
