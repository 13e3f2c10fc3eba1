//! What Kubernetes adds to CEL: quantities, versions, regular expressions, lists and sets, addresses, and `cel.bind`.
//!
//! Without: `url`, `format`, comprehensions of two variables, `indexOf` of lists, durations and timestamps.
//! Source: `k8s.io/apiserver/pkg/cel/library` (quantity, semver, regex), cel-go's `ext.Bindings`.

mod lists;
mod network;

use std::cmp::Ordering;
use std::sync::Arc;

use cel::common::ast::{ComprehensionExpr, Expr, IdedExpr, ListExpr, LiteralValue};
use cel::extractors::{Arguments, This};
use cel::objects::Opaque;
use cel::parser::{Macro, MacroExprHelper};
use cel::{Context, DeclarationError, Env, ExecutionError, ParseError, Value};
use machinery::quantity::Quantity;
use regex::{Regex, RegexBuilder};

type Answer = Result<Value, ExecutionError>;

/// Bytes that a regular expression may become.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// An amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Amount(pub(crate) Quantity);

impl Opaque for Amount {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.Quantity"
    }
}

/// A version by semver.org 2.0; what stands after `+` says nothing about which is newer.
#[derive(Clone, Debug)]
pub(crate) struct Version(pub(crate) semver::Version);

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.0.cmp_precedence(&other.0) == Ordering::Equal
    }
}

impl Eq for Version {}

impl Opaque for Version {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.Semver"
    }
}

/// The environment that selectors are compiled and run in.
pub(crate) fn environment() -> Result<Env, DeclarationError> {
    let mut env = Env::stdlib();
    env.add_extension(cel::extensions::strings)?;
    env.add_extension(cel::extensions::lists)?;
    env.add_macro(Macro::receiver("bind", 3, bind))?;
    Ok(env)
}

/// A context with Kubernetes' functions.
pub(crate) fn context(env: Arc<Env>) -> Result<Context<'static, 'static>, DeclarationError> {
    let mut context = Context::with_env(env);
    context.add_function("quantity", |text: Arc<String>| quantity(&text))?;
    context.add_function("isQuantity", |text: Arc<String>| text.parse::<Quantity>().is_ok())?;
    context.add_function("semver", |text: Arc<String>| version(&text))?;
    context.add_function("isSemver", |text: Arc<String>| semver::Version::parse(&text).is_ok())?;
    context.add_function("compareTo", |This(one): This<Arc<dyn Opaque>>, other: Arc<dyn Opaque>| {
        compare(&*one, &*other).map(|order| Value::Int(order as i64))
    })?;
    context.add_function("isGreaterThan", |This(one): This<Arc<dyn Opaque>>, other: Arc<dyn Opaque>| {
        compare(&*one, &*other).map(|order| Value::Bool(order == Ordering::Greater))
    })?;
    context.add_function("isLessThan", |This(one): This<Arc<dyn Opaque>>, other: Arc<dyn Opaque>| {
        compare(&*one, &*other).map(|order| Value::Bool(order == Ordering::Less))
    })?;
    context.add_function("sign", |This(one): This<Arc<dyn Opaque>>| {
        amount("sign", &*one).map(|amount| Value::Int(i64::from(amount.signum())))
    })?;
    context.add_function("isInteger", |This(one): This<Arc<dyn Opaque>>| {
        amount("isInteger", &*one).map(|amount| Value::Bool(amount.is_whole()))
    })?;
    context.add_function("asInteger", |This(one): This<Arc<dyn Opaque>>| as_integer(&*one))?;
    context.add_function("add", |This(one): This<Arc<dyn Opaque>>, other: Value| {
        Ok::<_, ExecutionError>(made(amount("add", &*one)?.plus(operand("add", &other)?)))
    })?;
    context.add_function("sub", |This(one): This<Arc<dyn Opaque>>, other: Value| {
        Ok::<_, ExecutionError>(made(amount("sub", &*one)?.minus(operand("sub", &other)?)))
    })?;
    context.add_function("find", |This(text): This<Arc<String>>, pattern: Arc<String>| {
        let found = regex("find", &pattern)?.find(&text).map_or("", |found| found.as_str());
        Ok::<_, ExecutionError>(Arc::new(found.to_owned()))
    })?;
    context
        .add_function("findAll", |This(text): This<Arc<String>>, Arguments(rest): Arguments| -> Answer {
            find_all(&text, &rest)
        })?;
    lists::add(&mut context)?;
    network::add(&mut context)?;
    for (name, part) in PARTS {
        let part = *part;
        context.add_function(name, move |This(one): This<Arc<dyn Opaque>>| -> Answer {
            let version = one.downcast_ref::<Version>();
            let version = version.ok_or_else(|| wrong(name, one.runtime_type_name()))?;
            Ok(Value::Int(i64::try_from(part(&version.0)).unwrap_or(i64::MAX)))
        })?;
    }
    Ok(context)
}

/// A number that a version is made of: its name, and how to get it.
type Part = (&'static str, fn(&semver::Version) -> u64);

const PARTS: &[Part] = &[
    ("major", |version| version.major),
    ("minor", |version| version.minor),
    ("patch", |version| version.patch),
];

/// The version that a text says.
pub(crate) fn version(text: &str) -> Answer {
    let version = semver::Version::parse(text);
    let version = version.map_err(|error| ExecutionError::function_error("semver", error))?;
    Ok(Value::Opaque(Arc::new(Version(version))))
}

/// The amount that a text says.
pub(crate) fn quantity(text: &str) -> Answer {
    let quantity = text.parse::<Quantity>();
    Ok(made(quantity.map_err(|error| ExecutionError::function_error("quantity", error))?))
}

fn regex(function: &str, pattern: &str) -> Result<Regex, ExecutionError> {
    let made = RegexBuilder::new(pattern).size_limit(REGEX_BYTES_MAX).build();
    made.map_err(|error| ExecutionError::function_error(function, error))
}

/// `text.findAll(pattern)`, `text.findAll(pattern, limit)`.
fn find_all(text: &str, arguments: &[Value]) -> Answer {
    let (pattern, limit) = match arguments {
        [Value::String(pattern)] => (pattern, usize::MAX),
        // Below zero there is no limit.
        [Value::String(pattern), Value::Int(limit)] => {
            (pattern, usize::try_from(*limit).unwrap_or(usize::MAX))
        }
        _ => return Err(wrong("findAll", "these arguments")),
    };
    let pattern = regex("findAll", pattern)?;
    let found = pattern.find_iter(text).take(limit).map(|found| Value::from(found.as_str()));
    Ok(Value::List(Arc::new(found.collect())))
}

fn made(quantity: Quantity) -> Value {
    Value::Opaque(Arc::new(Amount(quantity)))
}

fn wrong(function: &str, kind: &str) -> ExecutionError {
    ExecutionError::function_error(function, format!("no such overload for {kind}"))
}

fn amount(function: &str, value: &dyn Opaque) -> Result<Quantity, ExecutionError> {
    let amount = value.downcast_ref::<Amount>();
    amount.map(|amount| amount.0).ok_or_else(|| wrong(function, value.runtime_type_name()))
}

/// What is added: a quantity, or a whole number.
fn operand(function: &str, value: &Value) -> Result<Quantity, ExecutionError> {
    match value {
        Value::Int(units) => Ok(Quantity::new(*units, machinery::quantity::Format::DecimalSi)),
        Value::Opaque(other) => amount(function, &**other),
        other => Err(wrong(function, &other.type_of().to_string())),
    }
}

fn as_integer(value: &dyn Opaque) -> Answer {
    let amount = amount("asInteger", value)?;
    if amount.is_whole() {
        return Ok(Value::Int(amount.value()));
    }
    Err(ExecutionError::function_error("asInteger", "cannot convert value to integer"))
}

fn compare(one: &dyn Opaque, other: &dyn Opaque) -> Result<Ordering, ExecutionError> {
    if let (Some(one), Some(other)) = (one.downcast_ref::<Amount>(), other.downcast_ref::<Amount>()) {
        return Ok(one.0.cmp(&other.0));
    }
    if let (Some(one), Some(other)) = (one.downcast_ref::<Version>(), other.downcast_ref::<Version>()) {
        return Ok(one.0.cmp_precedence(&other.0));
    }
    Err(wrong("compareTo", &format!("{} and {}", one.runtime_type_name(), other.runtime_type_name())))
}

/// `cel.bind(name, value, expression)`: a fold over nothing that starts with the value.
fn bind(
    helper: &mut MacroExprHelper<'_>,
    target: &mut Option<IdedExpr>,
    args: &mut Vec<IdedExpr>,
) -> Result<Option<IdedExpr>, ParseError> {
    let is_ours =
        matches!(target.as_ref().map(|target| &target.expr), Some(Expr::Ident(name)) if name == "cel");
    if !is_ours {
        return Ok(None);
    }
    let (Some(result), Some(accu_init), Some(name)) = (args.pop(), args.pop(), args.pop()) else {
        return Ok(None);
    };
    let Expr::Ident(accu_var) = name.expr else {
        return Err(helper.new_error(name.id, "cel.bind() variable names must be simple identifiers"));
    };
    let iter_range = helper.next_expr(Expr::List(ListExpr::new(Vec::new())));
    let loop_cond = helper.next_expr(Expr::Literal(LiteralValue::Boolean(false.into())));
    let loop_step = helper.next_expr(Expr::Ident(accu_var.clone()));
    let iter_var = "#unused".to_owned();
    let fold = ComprehensionExpr {
        iter_range,
        iter_var,
        iter_var2: None,
        accu_var,
        accu_init,
        loop_cond,
        loop_step,
        result,
    };
    Ok(Some(helper.next_expr(Expr::Comprehension(Box::new(fold)))))
}
