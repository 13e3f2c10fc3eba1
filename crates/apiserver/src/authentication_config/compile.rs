//! The rules of the file about claims and users, compiled: `jwt[].claimMappings`, `claimValidationRules`,
//! `userValidationRules`.
//!
//! Source: `k8s.io/apiserver/pkg/apis/apiserver/validation`, `pkg/authentication/cel`.

use std::sync::LazyLock;

use expressions::{Environment, Type};
use machinery::field::{FieldError, FieldErrors, Path};
use machinery::names;

use super::user::{CLAIMS, Expression, From, Mapping, Rule, USER, USER_TYPE};
use super::{Claim, ExtraMapping, Jwt, Mappings, PrefixedClaim};

const BOTH: &str = "claim and expression can't both be set";
const EITHER: &str = "claim or expression is required";
const NOT_WITH_CLAIM: &str = "may not be specified when claim is set";
const NOT_WITH_EXPRESSION: &str = "may not be specified when expression is set";
const PREFIX: &str =
    "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
const VERIFIED: &str = "claims.email_verified must be used in claimMappings.username.expression or \
     claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in \
     claimMappings.username.expression";

static ABOUT_CLAIMS: LazyLock<Environment> = LazyLock::new(|| {
    Environment::new().variable(CLAIMS, Type::map(Type::String, Type::Dyn)).with_escaped_keys()
});
static ABOUT_USER: LazyLock<Environment> =
    LazyLock::new(|| Environment::new().declared(USER, USER_TYPE.clone()).with_escaped_keys());

/// Compiles what is said of one issuer's tokens.
pub(super) fn mapping(config: &Jwt, path: &Path, errors: &mut FieldErrors) -> Mapping {
    let (required, claim_rules) = claim_rules(config, &path.child("claimValidationRules"), errors);
    let at = path.child("claimMappings");
    let mappings = &config.claim_mappings;
    let username = prefixed(&mappings.username, &at.child("username"), Need::Required, errors);
    let groups = prefixed(&mappings.groups, &at.child("groups"), Need::Optional, errors);
    let uid = uid(&mappings.uid, &at.child("uid"), errors);
    let extra = extra(&mappings.extra, &at.child("extra"), errors);
    check_email(mappings, &extra, &claim_rules, &at, errors);
    let user_rules = user_rules(config, &path.child("userValidationRules"), errors);
    Mapping { username, groups, uid, extra, required, claim_rules, user_rules }
}

/// Whose expressions must be true or false.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gives {
    Anything,
    Bool,
}

fn compile(
    environment: &Environment,
    text: &str,
    gives: Gives,
    path: &Path,
    errors: &mut FieldErrors,
) -> Option<Expression> {
    let compiled = environment.compile(text).map_err(|why| why.to_string());
    let compiled = compiled.and_then(|program| match gives == Gives::Bool && *program.kind() != Type::Bool {
        true => Err("must evaluate to bool".to_owned()),
        false => Ok(program),
    });
    match compiled {
        Ok(program) => Some(Expression { text: text.to_owned(), program }),
        Err(why) => {
            errors.push(FieldError::invalid(path, text, &why));
            None
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Required,
    Optional,
}

fn prefixed(mapping: &PrefixedClaim, path: &Path, need: Need, errors: &mut FieldErrors) -> From {
    let prefix = path.child("prefix");
    match (mapping.claim.as_str(), mapping.expression.as_str()) {
        ("", "") if need == Need::Required => errors.push(FieldError::required(path, EITHER)),
        ("", "") => {}
        ("", expression) => {
            if let Some(given) = &mapping.prefix {
                errors.push(FieldError::invalid(&prefix, given, NOT_WITH_EXPRESSION));
            }
            let at = path.child("expression");
            let compiled = compile(&ABOUT_CLAIMS, expression, Gives::Anything, &at, errors);
            return compiled.map_or(From::Nothing, From::Expression);
        }
        (claim, "") => {
            if mapping.prefix.is_none() {
                errors.push(FieldError::required(&prefix, PREFIX));
            }
            let prefix = mapping.prefix.clone().unwrap_or_default();
            return From::Claim { name: claim.to_owned(), prefix };
        }
        _ => errors.push(FieldError::invalid(path, "", BOTH)),
    }
    From::Nothing
}

fn uid(mapping: &Claim, path: &Path, errors: &mut FieldErrors) -> From {
    match (mapping.claim.as_str(), mapping.expression.as_str()) {
        ("", "") => From::Nothing,
        ("", expression) => {
            let at = path.child("expression");
            let compiled = compile(&ABOUT_CLAIMS, expression, Gives::Anything, &at, errors);
            compiled.map_or(From::Nothing, From::Expression)
        }
        (claim, "") => From::Claim { name: claim.to_owned(), prefix: String::new() },
        _ => {
            errors.push(FieldError::invalid(path, "", BOTH));
            From::Nothing
        }
    }
}

fn extra(mappings: &[ExtraMapping], path: &Path, errors: &mut FieldErrors) -> Vec<(String, Expression)> {
    let mut extra = Vec::new();
    for (index, mapping) in mappings.iter().enumerate() {
        let (path, key) = (path.index(index), mapping.key.as_str());
        let at = path.child("key");
        errors.extend(names::domain_prefixed_path(&at, key));
        if key != key.to_lowercase() {
            errors.push(FieldError::invalid(&at, key, "must be lowercase"));
        }
        if is_reserved(key) {
            let why = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
            errors.push(FieldError::invalid(&at, key, why));
        }
        if mappings.iter().take(index).any(|other| other.key == key) {
            errors.push(FieldError::duplicate(&at, key));
            continue;
        }
        let at = path.child("valueExpression");
        if mapping.value_expression.is_empty() {
            errors.push(FieldError::required(&at, ""));
            continue;
        }
        let compiled = compile(&ABOUT_CLAIMS, &mapping.value_expression, Gives::Anything, &at, errors);
        extra.extend(compiled.map(|expression| (key.to_owned(), expression)));
    }
    extra
}

fn is_reserved(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    ["kubernetes.io", "k8s.io"].into_iter().any(|reserved| {
        domain.strip_suffix(reserved).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

type Required = Vec<(String, String)>;

fn claim_rules(config: &Jwt, path: &Path, errors: &mut FieldErrors) -> (Required, Vec<Rule>) {
    let (mut required, mut rules) = (Vec::new(), Vec::new());
    let all = config.claim_validation_rules.as_slice();
    for (index, rule) in all.iter().enumerate() {
        let (path, before) = (path.index(index), all.iter().take(index));
        match (rule.claim.as_str(), rule.expression.as_str()) {
            ("", "") => errors.push(FieldError::required(&path, EITHER)),
            (claim, "") => {
                if !rule.message.is_empty() {
                    let at = path.child("message");
                    errors.push(FieldError::invalid(&at, &rule.message, NOT_WITH_CLAIM));
                }
                if before.into_iter().any(|other| other.claim == claim && other.expression.is_empty()) {
                    errors.push(FieldError::duplicate(&path.child("claim"), claim));
                }
                required.push((claim.to_owned(), rule.required_value.clone()));
            }
            ("", expression) => {
                if !rule.required_value.is_empty() {
                    let at = path.child("requiredValue");
                    errors.push(FieldError::invalid(&at, &rule.required_value, NOT_WITH_EXPRESSION));
                }
                let at = path.child("expression");
                if before.into_iter().any(|other| other.expression == expression && other.claim.is_empty()) {
                    errors.push(FieldError::duplicate(&at, expression));
                    continue;
                }
                let compiled = compile(&ABOUT_CLAIMS, expression, Gives::Bool, &at, errors);
                rules.extend(compiled.map(|condition| Rule { condition, message: rule.message.clone() }));
            }
            (claim, _) => errors.push(FieldError::invalid(&path, claim, BOTH)),
        }
    }
    (required, rules)
}

fn user_rules(config: &Jwt, path: &Path, errors: &mut FieldErrors) -> Vec<Rule> {
    let mut rules = Vec::new();
    let all = config.user_validation_rules.as_slice();
    for (index, rule) in all.iter().enumerate() {
        let at = path.index(index).child("expression");
        let expression = rule.expression.as_str();
        if expression.is_empty() {
            errors.push(FieldError::required(&at, ""));
        } else if all.iter().take(index).any(|other| other.expression == expression) {
            errors.push(FieldError::duplicate(&at, expression));
        } else {
            let compiled = compile(&ABOUT_USER, expression, Gives::Bool, &at, errors);
            rules.extend(compiled.map(|condition| Rule { condition, message: rule.message.clone() }));
        }
    }
    rules
}

/// Who is named by an address that nobody has verified could be anybody.
fn check_email(
    mappings: &Mappings,
    extra: &[(String, Expression)],
    claim_rules: &[Rule],
    path: &Path,
    errors: &mut FieldErrors,
) {
    let username = mappings.username.expression.as_str();
    if !ABOUT_CLAIMS.selects(username, CLAIMS, "email") {
        return;
    }
    let extra = extra.iter().map(|(_, expression)| expression.text.as_str());
    let rules = claim_rules.iter().map(|rule| rule.condition.text.as_str());
    let mut all = std::iter::once(username).chain(extra).chain(rules);
    if !all.any(|expression| ABOUT_CLAIMS.selects(expression, CLAIMS, "email_verified")) {
        let at = path.child("username").child("expression");
        errors.push(FieldError::invalid(&at, username, VERIFIED));
    }
}
