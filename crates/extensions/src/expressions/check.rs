//! The rules of a definition's schema: whether they compile, what they could cost, whether defaults keep them.
//!
//! A rule that stands below lists and maps costs as often as these could have entries; how often that is follows from the
//! schema, or from the size of a request. Source: `ValidateCustomResourceDefinitionOpenAPISchema`, `CELSchemaContext` and
//! `ValidateDefaults` of the API server for extensions.

use expressions::{Declared, RUNTIME_BUDGET};
use machinery::field::{FieldError, FieldErrors, Path, Shown};
use resources::definition::{Expressions, VersionSchema};
use schema::rules::Validation;
use serde::Serialize;

use super::evaluate;
use super::messages::Told;
use super::rule::{Compiled, Rule, Work};
use super::schema_node::{Root, SchemaNode};

/// What one rule may cost by estimate.
const RULE_COST_MAX: u64 = 10_000_000;
/// What all rules of a schema may cost by estimate.
const SCHEMA_COST_MAX: u64 = 100_000_000;
/// How many of the rules that cost most are named when all cost too much together.
const NAMED_MAX: usize = 4;

/// The check of all expressions of definitions.
#[derive(Clone, Copy, Debug)]
pub struct Cel;

impl Expressions for Cel {
    fn check(&self, version: &VersionSchema<'_>) -> FieldErrors {
        let path = Path::new(version.path);
        let mut node = SchemaNode::of(version.schema, Root::Resource);
        if !node.has_rules {
            return FieldErrors::new();
        }
        let mut work = Work::default();
        node.compile(&mut work);
        let mut told = Told::default();
        if work.is_too_much() {
            let why = "the x-kubernetes-validations of the schema take too long to compile: have fewer, or at fewer places above one another";
            told.push(|| FieldError::forbidden(&path, why));
            return told.into_errors();
        }
        // Whether all have been looked at is told by the errors.
        let (Some(_) | None) = defaults(&node, &path, RUNTIME_BUDGET, &mut told);
        if told.is_empty() {
            let mut check = Check { told, is_unchanged: version.is_unchanged, total: 0, most: Vec::new() };
            check.node(&node, &path, Context { times_max: Some(1), apart: None });
            check.all(&path);
            told = check.told;
        }
        told.into_errors()
    }
}

/// Whether defaults keep the rules about them; nothing is filled into the values of maps. What is left of the budget.
fn defaults(node: &SchemaNode, path: &Path, budget: u64, told: &mut Told) -> Option<u64> {
    let mut left = budget;
    if !node.has_rules {
        return Some(left);
    }
    if let Some(value) = &node.default {
        left = evaluate::default(node, &path.child("default"), value, left, told)?;
    }
    if let Some(items) = &node.items {
        left = defaults(items, &path.child("items"), left, told)?;
    }
    for (name, part) in &node.properties {
        left = defaults(part, &path.child("properties").key(name), left, told)?;
    }
    Some(left)
}

/// What there is to know of a node beside itself.
#[derive(Clone, Copy)]
struct Context<'c> {
    /// How often it can be there; `None` if nobody says.
    times_max: Option<u64>,
    /// The outermost list around it whose elements cannot be told apart.
    apart: Option<&'c Path>,
}

struct Check {
    told: Told,
    /// Whether the stored definition has the same schema.
    is_unchanged: bool,
    /// What all expressions cost.
    total: u64,
    /// Those that cost most.
    most: Vec<(u64, Path)>,
}

impl Check {
    /// What is below comes first, as upstream tells it.
    fn node(&mut self, node: &SchemaNode, path: &Path, context: Context<'_>) {
        if !node.has_rules {
            return;
        }
        let times_max = match (context.times_max, node.times_max) {
            (Some(times), Some(each)) => Some(times.saturating_mul(each)),
            _ => None,
        };
        let below = Context { times_max, ..context };
        if let Some(values) = &node.values {
            self.node(values, &path.child("additionalProperties"), below);
        }
        for (name, part) in &node.properties {
            self.node(part, &path.child("properties").key(name), below);
        }
        if let Some(items) = &node.items {
            let apart = if node.keys.is_some() { below.apart } else { below.apart.or(Some(path)) };
            self.node(items, &path.child("items"), Context { apart, ..below });
        }
        self.rules(node, path, context);
    }

    fn rules(&mut self, node: &SchemaNode, path: &Path, context: Context<'_>) {
        if node.rules.is_empty() {
            return;
        }
        let all = path.child("x-kubernetes-validations");
        let Some(declared) = &node.declared else {
            let why = "internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations";
            self.told.push(|| FieldError::internal(&all, why));
            return;
        };
        for (index, rule) in node.rules.iter().enumerate() {
            let path = all.index(index);
            match &rule.outcome {
                Some(Ok(compiled)) => self.compiled(rule, compiled, &path, declared, context),
                Some(Err(why)) => {
                    let (at, why) = (path.child("rule"), why.to_string());
                    self.told.push(|| FieldError::invalid(&at, shown(&rule.validation), &why));
                    self.optional_without_old(rule, &path);
                }
                None => self.optional_without_old(rule, &path),
            }
        }
    }

    fn compiled(
        &mut self,
        rule: &Rule,
        compiled: &Compiled,
        path: &Path,
        declared: &Declared,
        context: Context<'_>,
    ) {
        let times = context.times_max.unwrap_or_else(|| declared.cardinality_max());
        let cost = compiled.program.cost().max.saturating_mul(times);
        self.cost("estimated rule cost", cost, path.child("rule"));
        let message = path.child("messageExpression");
        match &compiled.message {
            Some(Ok(program)) => self.cost("estimated messageExpression cost", program.cost().max, message),
            Some(Err(why)) => {
                self.told.push(|| FieldError::invalid(&message, shown(&rule.validation), &why.to_string()));
            }
            None => {}
        }
        if !compiled.uses_old_self {
            self.optional_without_old(rule, path);
            return;
        }
        if let Some(apart) = context.apart {
            self.told.push(|| {
                let why = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {apart}"
                );
                FieldError::invalid(&path.child("rule"), &rule.validation.rule, &why)
            });
        }
    }

    fn optional_without_old(&mut self, rule: &Rule, path: &Path) {
        if let Some(optional) = rule.validation.optional_old_self {
            let why = "may not be set if oldSelf is not used in rule";
            self.told.push(|| FieldError::invalid(&path.child("optionalOldSelf"), optional, why));
        }
    }

    fn cost(&mut self, what: &str, cost: u64, path: Path) {
        if cost > RULE_COST_MAX && !self.is_unchanged {
            self.told.push(|| FieldError::forbidden(&path, &exceeds(what, cost, RULE_COST_MAX)));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= SCHEMA_COST_MAX / 100 {
            let at = self.most.partition_point(|(other, _)| *other >= cost);
            self.most.insert(at, (cost, path));
            self.most.truncate(NAMED_MAX);
        }
    }

    /// What all rules cost together.
    fn all(&mut self, path: &Path) {
        if self.total <= SCHEMA_COST_MAX {
            return;
        }
        for (_, rule) in std::mem::take(&mut self.most) {
            let why =
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            self.told.push(|| FieldError::forbidden(&rule, why));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        self.told.push(|| FieldError::forbidden(path, &exceeds(what, self.total, SCHEMA_COST_MAX)));
    }
}

#[expect(clippy::cast_precision_loss, reason = "the factor is shown with few digits")]
fn exceeds(what: &str, cost: u64, max: u64) -> String {
    let factor = cost as f64 / max as f64;
    let factor = match factor {
        _ if factor > 100.0 => "more than 100x".to_owned(),
        // Rounded, it would be as if nothing were exceeded.
        _ if factor < 1.5 => format!("{factor:.6}x"),
        _ => format!("{factor:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

/// A rule as upstream shows it: its internal form, which has no names of its own in JSON.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Internal<'a> {
    rule: &'a str,
    message: &'a str,
    message_expression: &'a str,
    reason: Option<&'a str>,
    field_path: &'a str,
    optional_old_self: Option<bool>,
}

fn shown(validation: &Validation) -> Shown {
    let internal = Internal {
        rule: &validation.rule,
        message: &validation.message,
        message_expression: &validation.message_expression,
        reason: Some(&*validation.reason).filter(|reason| !reason.is_empty()),
        field_path: &validation.field_path,
        optional_old_self: validation.optional_old_self,
    };
    let text = serde_json::to_string(&internal).unwrap_or_default();
    // Go writes JSON so that it can stand in HTML.
    Shown::printed(text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026"))
}

#[cfg(test)]
pub(super) mod tests {
    /// What is said of a rule that costs so much.
    pub(in super::super) fn exceeded(cost: u64) -> String {
        super::exceeds("cost", cost, super::RULE_COST_MAX)
    }
}
