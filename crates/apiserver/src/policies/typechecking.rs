//! The probable errors of a policy's expressions: they are checked against the types of the kinds that its rules name.
//! Nothing follows from it but what the policy's status says.
//!
//! Source: `plugin/policy/validating/typechecking.go`.

use std::collections::BTreeSet;

use expressions::{CompileError, Declared};
use resources::policy_expressions::Checker;
use serde_json::Value;

use super::policy::ParamKind;
use super::types;
use crate::kinds::Kinds;
use crate::tree::{items, text};

/// How many kinds of one rule are looked at.
const KINDS_MAX: usize = 10;
/// How many expressions are checked, for all kinds together. Upstream has no such bound.
const CHECKS_MAX: usize = 10_000;
/// Bytes of all warnings together, which are to be stored. Upstream has no such bound.
const WARNING_BYTES_MAX: usize = 256 * 1024;

/// A warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The expression, such as `spec.validations[0].expression`.
    pub field: String,
    /// The errors, for each kind for which there are some.
    pub text: String,
}

/// A kind, and what checks expressions about its objects.
struct Typed {
    name: String,
    checker: Checker,
}

/// The probable errors of a ValidatingAdmissionPolicy, as far as kinds are served now.
pub fn warnings(policy: &Value, kinds: &Kinds) -> Vec<Warning> {
    let spec = policy.get("spec").unwrap_or(&Value::Null);
    let typed = typed(spec, kinds);
    if typed.is_empty() {
        return Vec::new();
    }
    let mut room = CHECKS_MAX / typed.len();
    let mut warnings = Vec::new();
    let mut bytes = 0_usize;
    for (index, validation) in items(spec, "/validations").enumerate() {
        for name in ["expression", "messageExpression"] {
            let expression = text(validation, &format!("/{name}"));
            if expression.is_empty() {
                continue;
            }
            let Some(left) = room.checked_sub(1) else { return warnings };
            room = left;
            let text = check(expression, &typed);
            bytes = bytes.saturating_add(text.len());
            if bytes > WARNING_BYTES_MAX {
                return warnings;
            }
            if !text.is_empty() {
                warnings.push(Warning { field: format!("spec.validations[{index}].{name}"), text });
            }
        }
    }
    warnings
}

fn check(expression: &str, typed: &[Typed]) -> String {
    let wrong = |typed: &Typed| match typed.checker.check(expression) {
        Ok(()) => None,
        Err(CompileError::Check(problems)) => Some(format!("{}: {problems}\n", typed.name)),
        Err(other) => Some(format!("{}: {other}\n", typed.name)),
    };
    typed.iter().filter_map(wrong).collect::<Vec<_>>().join("\n")
}

/// The kinds that the policy's rules name, by group, version and kind.
fn typed(spec: &Value, kinds: &Kinds) -> Vec<Typed> {
    let param_kind = ParamKind::of(spec);
    let params = param_kind.as_ref().map(|kind| {
        let (group, version) = kind.group_version();
        let schema = kinds.of_name(group, version, &kind.kind).and_then(|kind| kind.schema());
        schema.map_or_else(Declared::dynamic, |schema| types::declared(schema, &kind.kind))
    });
    let mut found = BTreeSet::new();
    for rule in items(spec, "/matchConstraints/resourceRules") {
        found.extend(named(rule, kinds));
        if found.len() >= CHECKS_MAX {
            break;
        }
    }
    let of_kind = |(group, version, kind): (String, String, String)| {
        let schema = kinds.of_name(&group, &version, &kind)?.schema()?;
        let object = types::declared(schema, &kind);
        let mut checker = Checker::new(&object, params.as_ref());
        for variable in items(spec, "/variables").take(CHECKS_MAX) {
            checker.variable(text(variable, "/name"), text(variable, "/expression"));
        }
        Some(Typed { name: format!("{group}/{version}, Kind={kind}"), checker })
    };
    found.into_iter().filter_map(of_kind).collect()
}

/// The kinds that a rule names without wildcards: as upstream, the core group's resources are those of any group.
fn named(rule: &Value, kinds: &Kinds) -> Vec<(String, String, String)> {
    let texts = |pointer: &str| items(rule, pointer).filter_map(Value::as_str).collect::<BTreeSet<&str>>();
    let (groups, versions) = (texts("/apiGroups"), texts("/apiVersions"));
    if groups.iter().chain(&versions).any(|text| text.contains('*')) {
        return Vec::new();
    }
    let resources = texts("/resources");
    let is_plain = |resource: &&str| !resource.contains(['*', '/']);
    let mut found = Vec::new();
    for group in &groups {
        for version in &versions {
            for resource in resources.iter().copied().filter(is_plain) {
                let of_any = kinds.iter().filter(|kind| {
                    (group.is_empty() || kind.group() == *group)
                        && kind.version() == *version
                        && kind.resource() == resource
                });
                let name = |text: &str| text.to_owned();
                found
                    .extend(of_any.map(|kind| (name(kind.group()), name(kind.version()), name(kind.kind()))));
                if found.len() >= KINDS_MAX {
                    found.truncate(KINDS_MAX);
                    return found;
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::all::builtin;

    fn policy(resources: Value, fields: Value) -> Value {
        let mut spec = json!({"matchConstraints": {"resourceRules": [resources]}});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({"metadata": {"name": "p"}, "spec": spec})
    }

    fn rule(group: &str, resources: &[&str]) -> Value {
        json!({"apiGroups": [group], "apiVersions": ["v1"], "resources": resources, "operations": ["*"]})
    }

    fn one(expression: &str) -> Value {
        json!({"validations": [{"expression": "true"}, {"expression": expression}]})
    }

    #[test]
    fn what_does_not_fit_a_type_is_told() {
        let kinds = builtin();
        let told =
            warnings(&policy(rule("apps", &["deployments"]), one("object.spec.replicas > 'x'")), &kinds);
        let text = "apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_' applied to '(int, string)'\n | object.spec.replicas > 'x'\n | .....................^\n";
        assert_eq!(
            told,
            [Warning { field: "spec.validations[1].expression".to_owned(), text: text.to_owned() }]
        );
        for (rule, fields, count) in [
            (rule("apps", &["deployments"]), one("object.spec.replicas > 1 && oldObject == null"), 0),
            (rule("apps", &["deployments", "replicasets"]), one("object.spec.strategy.type == ''"), 1),
            // Wildcards and subresources are not looked at.
            (rule("*", &["deployments"]), one("object.nothing"), 0),
            (rule("apps", &["*"]), one("object.nothing"), 0),
            (rule("apps", &["deployments/scale"]), one("object.nothing"), 0),
            (rule("example.com", &["deployments"]), one("object.nothing"), 0),
            (rule("apps", &["deployments"]), one("authorizer.requestResource.check('get').allowed()"), 0),
            (rule("apps", &["deployments"]), one("namespaceObject.metadata.name == request.name"), 0),
            (
                rule("apps", &["deployments"]),
                json!({"validations": [{"expression": "true", "messageExpression": "object.nothing"}]}),
                1,
            ),
            (
                rule("apps", &["deployments"]),
                json!({"variables": [{"name": "n", "expression": "object.spec.replicas"}], "validations": [{"expression": "variables.n == 'x'"}]}),
                1,
            ),
            (
                rule("apps", &["deployments"]),
                json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [{"expression": "params.data.a == 1"}]}),
                1,
            ),
            (
                rule("apps", &["deployments"]),
                json!({"paramKind": {"apiVersion": "example.com/v1", "kind": "Unknown"}, "validations": [{"expression": "params.data.a == 1"}]}),
                0,
            ),
        ] {
            let told = warnings(&policy(rule.clone(), fields.clone()), &kinds);
            assert_eq!(told.len(), count, "{rule} {fields}: {told:?}");
        }
    }

    #[test]
    fn what_is_told_is_bounded() {
        let long = format!("object.{}", "x".repeat(10_000));
        let validations: Vec<Value> = (0..200).map(|_| json!({"expression": long})).collect();
        let told = warnings(
            &policy(rule("apps", &["deployments"]), json!({"validations": validations})),
            &builtin(),
        );
        let bytes: usize = told.iter().map(|warning| warning.text.len()).sum();
        assert!(bytes > WARNING_BYTES_MAX / 2 && bytes <= WARNING_BYTES_MAX, "{bytes}");
    }
}
