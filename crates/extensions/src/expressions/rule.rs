//! Rules, compiled: what evaluates them and says why they are broken, and what that can cost.

use expressions::{CompileError, Declared, Environment, PlanError, Problems, Program, Type};
use schema::rules::Validation;

/// Parts of types that are declared for one schema: a type is declared with all that is below it wherever there are rules.
const PARTS_MAX: usize = 1_000_000;
/// Rules of one schema.
const RULES_MAX: usize = 20_000;
/// Bytes that are said of rules that cannot be compiled; after that, nothing is said of why.
const REASONS_BYTES_MAX: usize = 4 << 20;

/// What has been done to compile the rules of a schema.
#[derive(Debug, Default)]
pub(super) struct Work {
    parts: usize,
    rules: usize,
    reasons_bytes: usize,
}

impl Work {
    /// Counts a type with so many parts.
    pub(super) fn of_type(&mut self, parts: usize) {
        self.parts = self.parts.saturating_add(parts);
    }

    /// Whether there is more to do than one schema is worth.
    pub(super) fn is_too_much(&self) -> bool {
        self.parts > PARTS_MAX || self.rules > RULES_MAX
    }

    fn reason(&mut self, reason: RuleError) -> RuleError {
        self.reasons_bytes = self.reasons_bytes.saturating_add(reason.to_string().len());
        if self.reasons_bytes <= REASONS_BYTES_MAX { reason } else { RuleError::Untold }
    }
}

/// The reason why a rule, or what computes its message, cannot be evaluated. The texts are upstream's where it has any.
#[derive(Debug, thiserror::Error)]
pub(super) enum RuleError {
    #[error(transparent)]
    Compile(CompileError),
    #[error("cel expression must evaluate to a bool")]
    NoBool,
    #[error("messageExpression compilation failed: {0}")]
    Message(#[source] Problems),
    #[error("messageExpression instantiation failed: {0}")]
    MessagePlan(#[source] PlanError),
    #[error("messageExpression must evaluate to a string")]
    NoText,
    /// So much has been said of others that nothing is said of it.
    #[error("compilation failed, as that of other rules did")]
    Untold,
}

/// A rule of a node.
#[derive(Debug)]
pub(super) struct Rule {
    /// As it is written.
    pub(super) validation: Validation,
    /// The field below that is blamed.
    pub(super) field: Option<String>,
    /// What it has become; `None` if it is empty, or there was too much to do.
    pub(super) outcome: Option<Result<Compiled, RuleError>>,
}

/// A rule that can be evaluated.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) program: Program,
    /// Whether it is about changes.
    pub(super) uses_old_self: bool,
    /// What computes the message, if anything does.
    pub(super) message: Option<Result<Program, RuleError>>,
}

impl Rule {
    pub(super) fn new(validation: Validation, field: Option<String>) -> Self {
        Self { validation, field, outcome: None }
    }

    /// Whether it is evaluated without an old value, too.
    pub(super) fn is_optional(&self) -> bool {
        self.validation.optional_old_self == Some(true)
    }

    /// What is shown of it in errors.
    pub(super) fn shown(&self) -> &str {
        let Validation { rule, message, .. } = &self.validation;
        if message.is_empty() { rule.trim() } else { message.trim() }
    }

    /// Compiles the rules of a node whose values are of a type.
    pub(super) fn compile_all(rules: &mut [Self], declared: &Declared, work: &mut Work) {
        if work.is_too_much() {
            return;
        }
        let declared = declared.named("selfType");
        let environment = Environment::new().declared("self", declared.clone());
        let optional = environment.clone().optional("oldSelf", &declared);
        // What upstream keeps apart, the environment of expressions that are stored and that of new ones, is one here:
        // both have everything that Kubernetes has at this version.
        let plain = environment.declared("oldSelf", declared);
        for rule in rules {
            work.rules += 1;
            if work.is_too_much() {
                return;
            }
            let environment = if rule.is_optional() { &optional } else { &plain };
            rule.outcome = compile(&rule.validation, environment, work);
        }
    }
}

fn compile(
    validation: &Validation,
    environment: &Environment,
    work: &mut Work,
) -> Option<Result<Compiled, RuleError>> {
    if validation.rule.trim().is_empty() {
        return None;
    }
    let program = match environment.compile(&validation.rule) {
        Ok(program) if *program.kind() == Type::Bool => program,
        Ok(_) => return Some(Err(RuleError::NoBool)),
        Err(why) => return Some(Err(work.reason(RuleError::Compile(why)))),
    };
    let uses_old_self = program.mentions("oldSelf");
    let message = (!validation.message_expression.is_empty())
        .then(|| message(&validation.message_expression, environment).map_err(|why| work.reason(why)));
    Some(Ok(Compiled { program, uses_old_self, message }))
}

fn message(expression: &str, environment: &Environment) -> Result<Program, RuleError> {
    match environment.compile(expression) {
        Ok(program) if *program.kind() == Type::String => Ok(program),
        Ok(_) => Err(RuleError::NoText),
        Err(CompileError::Check(why)) => Err(RuleError::Message(why)),
        Err(CompileError::Plan(why)) => Err(RuleError::MessagePlan(why)),
    }
}
