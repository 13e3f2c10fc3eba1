//! The rules of a schema over an object: what is wrong with it, in upstream's order and words.
//!
//! All rules together may cost as much for one object as upstream's, and each evaluation by itself. What is as it was
//! before is not wrong now, except for rules that are about changes.
//! Source: `Validator` of `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel`.

use std::ops::ControlFlow;

use expressions::{Activation, Budget, EvalError, Program, RUNTIME_BUDGET, Value as CelValue, escape};
use machinery::field::{FieldError, FieldErrors, Path};
use serde_json::{Map, Value};

use super::correlation::{Correlation, OldElements, Pair};
use super::messages::Told;
use super::rule::{Compiled, Rule};
use super::schema_node::SchemaNode;

/// Bytes of a message that is computed.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;
const NO_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";
const NO_BUDGET_FOR_MESSAGE: &str = "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run";
const NO_TYPE: &str =
    "rule compiler initialization error: failed to convert to declType for CEL validation rules";
const TOO_MUCH: &str = "rule compile error: the rules of the schema take too long to compile";

/// What the rules say of a whole object.
pub(super) fn object(node: &SchemaNode, new: &Value, old: Option<&Value>) -> FieldErrors {
    let mut run = Run { budget: Budget::new(RUNTIME_BUDGET), told: Told::default() };
    let pair = old.map(|old| Pair::new(node, new, old));
    // Whether all has been looked at is told by the errors.
    let (ControlFlow::Continue(()) | ControlFlow::Break(())) =
        run.visit(node, &Path::default(), Seen { new, old }, Correlation::root(pair.as_ref()));
    run.told.into_errors()
}

/// What the rules say of a default, where it was already and where there was nothing before; and what is left of the budget,
/// `None` if no more rules may be run.
pub(super) fn default(
    node: &SchemaNode,
    path: &Path,
    value: &Value,
    budget: u64,
    told: &mut Told,
) -> Option<u64> {
    let (mut left, before) = (budget, told.count());
    for old in [Some(value), None] {
        let mut run = Run { budget: Budget::new(budget), told: std::mem::take(told) };
        let flow = run.visit(node, path, Seen { new: value, old }, Correlation::default());
        *told = run.told;
        if flow.is_break() {
            return None;
        }
        left = left.min(run.budget.remaining());
        if told.count() > before {
            break;
        }
    }
    Some(left)
}

/// A value, and what stood in its place before.
#[derive(Clone, Copy)]
struct Seen<'v> {
    new: &'v Value,
    old: Option<&'v Value>,
}

/// An evaluation of all rules; it breaks when no more rules may be run.
struct Run {
    budget: Budget,
    told: Told,
}

impl Run {
    fn visit(
        &mut self,
        node: &SchemaNode,
        path: &Path,
        seen: Seen<'_>,
        correlation: Correlation<'_>,
    ) -> ControlFlow<()> {
        if !node.has_rules || seen.new.is_null() {
            return ControlFlow::Continue(());
        }
        self.rules(node, path, seen, correlation)?;
        match seen.new {
            Value::Array(elements) => self.elements(node, path, elements, seen.old, correlation),
            Value::Object(fields) => self.fields(node, path, fields, seen.old, correlation),
            _ => ControlFlow::Continue(()),
        }
    }

    fn elements(
        &mut self,
        node: &SchemaNode,
        path: &Path,
        elements: &[Value],
        old: Option<&Value>,
        correlation: Correlation<'_>,
    ) -> ControlFlow<()> {
        let Some(items) = node.items.as_deref() else { return ControlFlow::Continue(()) };
        let known = OldElements::of(node, old);
        for (index, new) in elements.iter().enumerate() {
            let old = known.as_ref().and_then(|known| known.of_element(new));
            let pair = old.map(|old| Pair::new(items, new, old));
            self.visit(items, &path.index(index), Seen { new, old }, correlation.part(pair.as_ref()))?;
        }
        ControlFlow::Continue(())
    }

    fn fields(
        &mut self,
        node: &SchemaNode,
        path: &Path,
        fields: &Map<String, Value>,
        old: Option<&Value>,
        correlation: Correlation<'_>,
    ) -> ControlFlow<()> {
        for (name, new) in fields {
            let old = old.and_then(|old| old.get(name));
            let visit = |run: &mut Self, part: &SchemaNode, path: &Path| {
                let pair = old.map(|old| Pair::new(part, new, old));
                let is_kind = correlation.is_root() && matches!(name.as_str(), "apiVersion" | "kind");
                let correlation =
                    if is_kind { Correlation::default() } else { correlation.part(pair.as_ref()) };
                run.visit(part, path, Seen { new, old }, correlation)
            };
            if let Some(values) = node.values.as_deref().filter(|values| values.has_rules) {
                visit(self, values, &path.key(name))?;
            }
            // What rules cannot see has none that are evaluated, either.
            let is_visible = |part: &&SchemaNode| part.declared.is_some() || escape(name).is_none();
            if let Some(part) = node.properties.get(name).filter(|part| part.has_rules).filter(is_visible) {
                visit(self, part, &path.child(name))?;
            }
        }
        ControlFlow::Continue(())
    }

    fn rules(
        &mut self,
        node: &SchemaNode,
        path: &Path,
        seen: Seen<'_>,
        correlation: Correlation<'_>,
    ) -> ControlFlow<()> {
        if node.rules.is_empty() {
            return ControlFlow::Continue(());
        }
        let Some(declared) = &node.declared else {
            self.told.push(|| FieldError::invalid(path, &*node.ty, NO_TYPE));
            return ControlFlow::Continue(());
        };
        if self.budget.remaining() == 0 {
            self.told.push(|| FieldError::invalid(path, &*node.ty, NO_BUDGET));
            return ControlFlow::Break(());
        }
        let old = seen.old.filter(|old| !old.is_null()).map(|old| CelValue::declared(old, declared));
        let new = Activation::new().with("self", CelValue::declared(seen.new, declared));
        let optional =
            new.clone().with("oldSelf", old.clone().map_or(CelValue::Optional(None), CelValue::some));
        let has_old = old.is_some();
        let plain = match old {
            Some(old) => new.with("oldSelf", old),
            None => new,
        };
        let at = At { node, path, new: seen.new, correlation, values: &plain };
        for rule in &node.rules {
            let compiled = match &rule.outcome {
                Some(Ok(compiled)) => compiled,
                Some(Err(why)) => {
                    let why = || format!("rule compile error: {why}");
                    self.told.push(|| FieldError::invalid(path, &*node.ty, &why()));
                    continue;
                }
                None if rule.validation.rule.trim().is_empty() => continue,
                None => {
                    self.told.push(|| FieldError::invalid(path, &*node.ty, TOO_MUCH));
                    return ControlFlow::Break(());
                }
            };
            if compiled.uses_old_self && !has_old && !rule.is_optional() {
                continue;
            }
            let values = if rule.is_optional() { &optional } else { &plain };
            self.rule(&at, rule, compiled, values)?;
        }
        ControlFlow::Continue(())
    }

    fn rule(
        &mut self,
        at: &At<'_>,
        rule: &Rule,
        compiled: &Compiled,
        values: &Activation<'_>,
    ) -> ControlFlow<()> {
        let detail = match compiled.program.evaluate(values, &mut self.budget).result {
            Ok(CelValue::Bool(true)) => return ControlFlow::Continue(()),
            Ok(_) => return self.broken(at, rule, compiled),
            Err(EvalError::Budget) => {
                self.told.push(|| FieldError::invalid(at.path, &*at.node.ty, NO_BUDGET));
                return ControlFlow::Break(());
            }
            Err(why @ EvalError::CostLimit) => {
                let detail = format!(
                    "'{why}': no further validation rules will be run due to call cost exceeds limit for rule: {}",
                    rule.shown()
                );
                self.told.push(|| FieldError::invalid(at.path, &*at.node.ty, &detail));
                return ControlFlow::Break(());
            }
            Err(why @ EvalError::NoOverload) => format!(
                "'{why}': call arguments did not match a supported operator, function or macro signature for rule: {}",
                rule.shown()
            ),
            Err(why) => format!("{why} evaluating rule: {}", rule.shown()),
        };
        self.told.push(|| FieldError::invalid(at.path, &*at.node.ty, &detail));
        ControlFlow::Continue(())
    }

    /// A rule that is not true.
    fn broken(&mut self, at: &At<'_>, rule: &Rule, compiled: &Compiled) -> ControlFlow<()> {
        if !compiled.uses_old_self && at.correlation.is_unchanged() {
            return ControlFlow::Continue(());
        }
        let path = match &rule.field {
            Some(field) => at.path.child(field),
            None => at.path.clone(),
        };
        let computed = match &compiled.message {
            Some(Ok(program)) => message(program, at.values, &mut self.budget),
            _ => Ok(None),
        };
        let detail = match computed {
            Ok(Some(detail)) => detail,
            Ok(None) if rule.validation.message.is_empty() => format!("failed rule: {}", rule.shown()),
            Ok(None) => rule.shown().to_owned(),
            Err(failure) => {
                let why = || end_of_rules(&failure, &rule.validation.message_expression);
                self.told.push(|| FieldError::invalid(&path, &*at.node.ty, &why()));
                return ControlFlow::Break(());
            }
        };
        self.told.push(|| of_reason(&path, at, &detail, &rule.validation.reason));
        ControlFlow::Continue(())
    }
}

/// Where a rule is evaluated.
struct At<'r> {
    node: &'r SchemaNode,
    path: &'r Path,
    new: &'r Value,
    correlation: Correlation<'r>,
    /// What messages are computed with.
    values: &'r Activation<'r>,
}

fn of_reason(path: &Path, at: &At<'_>, detail: &str, reason: &str) -> FieldError {
    // What has parts is not shown: it may be very large.
    let is_shown = !matches!(&*at.node.ty, "object" | "array");
    match reason {
        "FieldValueForbidden" => FieldError::forbidden(path, detail),
        "FieldValueRequired" => FieldError::required(path, detail),
        "FieldValueDuplicate" if is_shown => FieldError::duplicate(path, at.new),
        "FieldValueDuplicate" => FieldError::duplicate_unshown(path),
        _ if is_shown => FieldError::invalid(path, at.new, detail),
        _ => FieldError::invalid_unshown(path, detail),
    }
}

/// Why no more rules are run after a message expression has failed.
fn end_of_rules(failure: &EvalError, expression: &str) -> String {
    match failure {
        EvalError::CostLimit => format!(
            "no further validation rules will be run due to call cost exceeds limit for messageExpression: {}",
            machinery::field::quote(expression)
        ),
        _ => NO_BUDGET_FOR_MESSAGE.to_owned(),
    }
}

/// What a message expression says, if it is something that can be shown.
///
/// # Errors
/// If no more rules may be run.
fn message(
    program: &Program,
    values: &Activation<'_>,
    budget: &mut Budget,
) -> Result<Option<String>, EvalError> {
    let text = match program.evaluate(values, budget).result {
        Ok(CelValue::String(text)) => text.trim().to_owned(),
        Ok(_) => return Ok(None),
        Err(failure @ (EvalError::Budget | EvalError::CostLimit)) => return Err(failure),
        Err(_) => return Ok(None),
    };
    let can_be_shown = !text.is_empty() && text.len() <= MESSAGE_BYTES_MAX && !text.contains('\n');
    Ok(can_be_shown.then_some(text))
}
