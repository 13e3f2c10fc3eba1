//! The expressions of `matchConditions`: what they see, and how they are compiled.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/cel/compile.go`.

use std::sync::LazyLock;

use expressions::{CompileError, Declared, Environment, Field, ListKind, PlanError, Problems, Program, Type};

/// The names of the variables.
pub const OBJECT: &str = "object";
/// A variable of expressions, as [`OBJECT`].
pub const OLD_OBJECT: &str = "oldObject";
/// A variable of expressions, as [`OBJECT`].
pub const REQUEST: &str = "request";
/// A variable of expressions, as [`OBJECT`].
pub const NAMESPACE: &str = "namespaceObject";
/// A variable of expressions, as [`OBJECT`].
pub const AUTHORIZER: &str = "authorizer";
/// A variable of expressions, as [`OBJECT`].
pub const REQUEST_RESOURCE: &str = "authorizer.requestResource";

static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| asking(request()));
static REQUEST_TYPE: LazyLock<Declared> = LazyLock::new(admission_request);
static NAMESPACE_TYPE: LazyLock<Declared> = LazyLock::new(namespace);

/// The reason why an expression about requests cannot be evaluated. The texts are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    /// It is wrong, as far as its text tells.
    #[error("compilation failed: {0}")]
    Check(#[source] Problems),
    /// A constant in it is none.
    #[error("compilation failed: program instantiation failed: {0}")]
    Plan(#[source] PlanError),
    /// It is of none of the types that it may be of.
    #[error("must evaluate to {} but got {found}", shown(wanted))]
    Type {
        /// The names of the types that it may be of.
        wanted: Vec<String>,
        /// That of its own.
        found: String,
    },
}

fn shown(wanted: &[String]) -> String {
    match wanted {
        [name] => name.clone(),
        many => format!("one of [{}]", many.join(" ")),
    }
}

impl From<CompileError> for ExpressionError {
    fn from(error: CompileError) -> Self {
        match error {
            CompileError::Check(problems) => Self::Check(problems),
            CompileError::Plan(error) => Self::Plan(error),
        }
    }
}

/// The type of `request`.
pub fn request_type() -> &'static Declared {
    &REQUEST_TYPE
}

/// The type of `namespaceObject`.
pub fn namespace_type() -> &'static Declared {
    &NAMESPACE_TYPE
}

/// What all expressions about requests see.
pub(crate) fn request() -> Environment {
    Environment::new()
        .variable(OBJECT, Type::Dyn)
        .variable(OLD_OBJECT, Type::Dyn)
        .declared(NAMESPACE, NAMESPACE_TYPE.clone())
        .declared(REQUEST, REQUEST_TYPE.clone())
}

/// With what lets expressions ask whether somebody may do something.
pub(crate) fn asking(environment: Environment) -> Environment {
    environment
        .variable(AUTHORIZER, Type::named("kubernetes.authorization.Authorizer"))
        .variable(REQUEST_RESOURCE, Type::named("kubernetes.authorization.ResourceCheck"))
}

/// Compiles one condition of a webhook.
///
/// # Errors
/// What is wrong with it.
pub fn compile(expression: &str) -> Result<Program, ExpressionError> {
    compile_in(&ENVIRONMENT, expression, &[Type::Bool])
}

/// Compiles what must be of one of some types; of any type, if there are none.
pub(crate) fn compile_in(
    environment: &Environment,
    expression: &str,
    types: &[Type],
) -> Result<Program, ExpressionError> {
    let program = environment.compile(expression)?;
    if types.is_empty() || types.contains(program.kind()) {
        return Ok(program);
    }
    let wanted = types.iter().map(Type::declared_name).collect();
    Err(ExpressionError::Type { wanted, found: program.kind().declared_name() })
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

/// Source: `BuildNamespaceType`.
fn namespace() -> Declared {
    fn all(name: &str, fields: Vec<(&str, Declared)>) -> Declared {
        let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
        object(name, &names, fields)
    }
    let texts = || Declared::list(text(), ListKind::Atomic, None);
    let conditions = all(
        "kubernetes.NamespaceCondition",
        vec![
            ("status", text()),
            ("type", text()),
            ("lastTransitionTime", Declared::timestamp()),
            ("message", text()),
            ("reason", text()),
        ],
    );
    let status = vec![("conditions", Declared::list(conditions, ListKind::Atomic, None)), ("phase", text())];
    let metadata = vec![
        ("name", text()),
        ("generateName", text()),
        ("namespace", text()),
        ("labels", Declared::map(text(), None)),
        ("annotations", Declared::map(text(), None)),
        ("UID", text()),
        ("creationTimestamp", Declared::timestamp()),
        ("deletionGracePeriodSeconds", Declared::integer()),
        ("deletionTimestamp", Declared::timestamp()),
        ("generation", Declared::integer()),
        ("resourceVersion", text()),
        ("finalizers", texts()),
    ];
    all(
        "kubernetes.Namespace",
        vec![
            ("metadata", all("kubernetes.NamespaceMetadata", metadata)),
            ("spec", all("kubernetes.NamespaceSpec", vec![("finalizers", texts())])),
            ("status", all("kubernetes.NamespaceStatus", status)),
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
            let failure = compile(bad).map_or_else(|why| why.to_string(), |_| String::new());
            assert!(failure.contains(why), "{bad}: {failure}");
        }
    }
}
