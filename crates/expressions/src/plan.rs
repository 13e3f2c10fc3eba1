//! From a checked tree to one that is evaluated: names become places, functions what they do, constants values.
//!
//! Whether something is a path of selections or a call decides what it costs at run time, so paths are put together as
//! cel-go does. Source: cel-go's `interpreter/{planner,decorators}.go`.

use std::sync::Arc;

use machinery::pattern::{Pattern, PatternError};

use crate::check::{Checked, Reference};
use crate::context::{Context, EvalError};
use crate::environment::Environment;
use crate::escape::unescape;
use crate::functions::Body;
use crate::syntax::ast::{Call, Expr, Fold, Kind, Literal, Select};
use crate::types::Type;
use crate::value::{Text, Value};

/// A node that can be evaluated.
#[derive(Debug)]
pub(crate) enum Node {
    Const(Value<'static>),
    Path(Path),
    /// `has(path.field)`.
    Test(Path),
    And(Vec<Self>),
    Or(Vec<Self>),
    NotStrictlyFalse(Box<Self>),
    Equals(Box<[Self; 2]>, bool),
    /// Membership in a list of constants.
    InConstants(Box<Self>, Vec<Value<'static>>),
    /// `optional.or(other)`; of `orValue`, the value.
    Otherwise(Box<[Self; 2]>, bool),
    Call(Box<PlannedCall>),
    List(Vec<(Self, bool)>),
    Map(Vec<(Self, Self, bool)>),
    Made(Arc<str>, Vec<(Arc<str>, Self, bool)>),
    Fold(Box<PlannedFold>),
    /// A value that is computed when its slot is first asked for, and what comes of it.
    Bind(Box<[Self; 2]>),
    /// The list at a slot with one more element: it is taken from there, so that nothing is copied.
    Append {
        slot: usize,
        element: Box<Self>,
        list_cost: u64,
    },
    /// The map at a slot with one more entry: a key and a value, or a map of one.
    Insert {
        slot: usize,
        entry: Vec<Self>,
    },
}

/// A call of a function.
#[derive(Debug)]
pub(crate) struct PlannedCall {
    pub(crate) function: Arc<str>,
    /// The overload's id, if there is only one that it can be.
    pub(crate) overload: Option<&'static str>,
    pub(crate) body: Body,
    pub(crate) args: Vec<Node>,
    /// The regular expression among the arguments, if it is constant.
    pub(crate) pattern: Option<Arc<Pattern>>,
    /// What the sum of nothing is.
    pub(crate) zero: Value<'static>,
}

/// What is selected from.
#[derive(Debug)]
pub(crate) enum Base {
    /// A variable of the environment.
    Variable(usize),
    /// A slot that a fold fills.
    Local(usize),
    Node(Box<Node>),
    /// One of two, with the condition first. Branches that are paths cost as much as what is selected in them.
    Conditional(Box<(Node, Branch, Branch)>),
}

#[derive(Debug)]
pub(crate) enum Branch {
    Path(Path),
    Node(Node),
}

/// Selections, one after the other.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) base: Base,
    pub(crate) steps: Vec<Step>,
}

#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) by: By,
    pub(crate) is_optional: bool,
}

#[derive(Debug)]
pub(crate) enum By {
    Const(Value<'static>),
    Path(Path),
    Node(Node),
}

/// What goes over a list or map.
#[derive(Debug)]
pub(crate) struct PlannedFold {
    pub(crate) range: Node,
    pub(crate) has_two: bool,
    pub(crate) init: Node,
    pub(crate) condition: Node,
    pub(crate) step: Node,
    pub(crate) result: Node,
}

/// The reason why a checked expression cannot be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A constant in it is none: `int('x')`.
    #[error("{0}")]
    Constant(#[source] EvalError),
    /// A constant in it is no regular expression.
    #[error("{0}")]
    Pattern(#[from] PatternError),
    /// It names what is not there; the check should have seen it.
    #[error("reference to undefined name: {0}")]
    Name(String),
    /// It calls what is not there; the check should have seen it.
    #[error("call of undefined function: {0}")]
    Function(String),
    /// A call has not the arguments that its function takes; the check should have seen it.
    #[error("call of {0} without what it takes")]
    Arguments(String),
}

/// Plans a checked expression.
///
/// # Errors
/// A constant is none: `int('x')`.
pub(crate) fn plan(checked: &Checked, environment: &Environment) -> Result<Node, PlanError> {
    let mut planner = Planner { checked, has_escaped_keys: environment.has_escaped_keys, scopes: Vec::new() };
    planner.plan(&checked.root)
}

struct Planner<'c> {
    checked: &'c Checked,
    has_escaped_keys: bool,
    /// Names of places, innermost last.
    scopes: Vec<Arc<str>>,
}

impl Planner<'_> {
    fn plan(&mut self, expr: &Expr) -> Result<Node, PlanError> {
        stacker::maybe_grow(128 << 10, 2 << 20, || match &expr.kind {
            Kind::Literal(literal) => Ok(Node::Const(constant(literal))),
            Kind::Ident(name) => self.named(expr, name),
            Kind::Select(select) => self.select(expr, select),
            Kind::Call(call) => self.call(expr, call),
            Kind::List(elements) => {
                let planned = elements
                    .iter()
                    .map(|element| Ok((self.plan(&element.value)?, element.is_optional)))
                    .collect::<Result<Vec<_>, PlanError>>()?;
                Ok(constant_list(planned))
            }
            Kind::Map(entries) => {
                let planned = entries
                    .iter()
                    .map(|entry| Ok((self.plan(&entry.key)?, self.plan(&entry.value)?, entry.is_optional)))
                    .collect::<Result<Vec<_>, PlanError>>()?;
                Ok(constant_map(planned))
            }
            Kind::Struct(name, fields) => {
                let fields = fields
                    .iter()
                    .map(|field| Ok((field.name.clone(), self.plan(&field.value)?, field.is_optional)))
                    .collect::<Result<Vec<_>, PlanError>>()?;
                let name = name.strip_prefix('.').map_or_else(|| name.clone(), Arc::from);
                Ok(Node::Made(name, fields))
            }
            Kind::Fold(fold) => self.fold(fold),
        })
    }

    fn reference(&self, expr: &Expr) -> &Reference {
        self.checked.references.get(expr.id).unwrap_or(&Reference::Nothing)
    }

    fn named(&mut self, expr: &Expr, name: &str) -> Result<Node, PlanError> {
        let name = name.strip_prefix('.').unwrap_or(name);
        let base = match self.reference(expr) {
            Reference::Variable(index) => Base::Variable(*index),
            Reference::Type(name) => return Ok(Node::Const(Value::Type(name.clone()))),
            Reference::Local => {
                let slot = self.scopes.iter().rposition(|known| &**known == name);
                Base::Local(slot.ok_or_else(|| PlanError::Name(name.to_owned()))?)
            }
            _ => return Err(PlanError::Name(name.to_owned())),
        };
        Ok(Node::Path(Path { base, steps: Vec::new() }))
    }

    fn select(&mut self, expr: &Expr, select: &Select) -> Result<Node, PlanError> {
        if !matches!(self.reference(expr), Reference::Nothing)
            && let Some(name) = expr.qualified_name()
        {
            return self.named(expr, &name);
        }
        let operand = self.plan(&select.operand)?;
        let by = By::Const(self.key(&select.field));
        let path = extended(operand, Step { by, is_optional: false });
        Ok(if select.is_test { Node::Test(path) } else { Node::Path(path) })
    }

    /// The key that a field's name stands for.
    fn key(&self, name: &Arc<str>) -> Value<'static> {
        let meant = Some(name).filter(|_| self.has_escaped_keys).and_then(|name| unescape(name));
        Value::String(Text::Shared(meant.map_or_else(|| name.clone(), Arc::from)))
    }

    fn args(&mut self, call: &Call, has_target: bool) -> Result<Vec<Node>, PlanError> {
        let target = call.target.as_deref().filter(|_| has_target);
        target.into_iter().chain(&call.args).map(|arg| self.plan(arg)).collect()
    }

    fn call(&mut self, expr: &Expr, call: &Call) -> Result<Node, PlanError> {
        let Reference::Function { is_qualified, overloads } = self.reference(expr).clone() else {
            return Err(PlanError::Function(call.function.to_string()));
        };
        let args = self.args(call, !is_qualified)?;
        let function = call.function.strip_prefix('.').unwrap_or(&call.function);
        let args = match (function, args.len()) {
            ("_&&_", _) => return Ok(Node::And(args)),
            ("_||_", _) => return Ok(Node::Or(args)),
            ("_?_:_", 3) => return exactly(function, args).map(conditional),
            ("_==_" | "_!=_", 2) => {
                let pair = exactly(function, args)?;
                return Ok(Node::Equals(Box::new(pair), function == "_==_"));
            }
            ("or" | "orValue", 2) => {
                let pair = exactly(function, args)?;
                return Ok(Node::Otherwise(Box::new(pair), function == "orValue"));
            }
            ("_[_]" | "_[?_]" | "_?._", 2) => {
                let [operand, index] = exactly(function, args)?;
                let by = match index {
                    Node::Const(Value::String(Text::Shared(name))) if function == "_?._" => {
                        By::Const(self.key(&name))
                    }
                    Node::Const(key) => By::Const(key),
                    Node::Path(path) => By::Path(path),
                    other => By::Node(other),
                };
                return Ok(Node::Path(extended(operand, Step { by, is_optional: function != "_[_]" })));
            }
            ("@not_strictly_false", 1) => {
                let [one] = exactly(function, args)?;
                return Ok(Node::NotStrictlyFalse(Box::new(one)));
            }
            ("@in", 2) => match constants_of(args) {
                Ok(node) => return Ok(node),
                Err(args) => args,
            },
            _ => args,
        };
        let first = overloads.first().ok_or_else(|| PlanError::Function(function.to_owned()))?;
        let overload = (overloads.len() == 1).then_some(first.id);
        let function: Arc<str> =
            match (is_qualified, call.target.as_ref().and_then(|target| target.qualified_name())) {
                (true, Some(prefix)) => {
                    format!("{}.{function}", prefix.strip_prefix('.').unwrap_or(&prefix)).into()
                }
                _ => function.into(),
            };
        let zero = zero(self.checked.types.get(expr.id));
        let mut planned = PlannedCall { function, overload, body: first.body, args, pattern: None, zero };
        if is_conversion(&planned.function)
            && let [Node::Const(argument)] = planned.args.as_slice()
        {
            let made = (planned.body)(&mut Context::new(u64::MAX), std::slice::from_ref(argument));
            return made.map(Node::Const).map_err(PlanError::Constant);
        }
        let is_regex = matches!(&*planned.function, "matches" | "find" | "findAll");
        if is_regex && let Some(Node::Const(Value::String(pattern))) = planned.args.get(1) {
            planned.pattern = Some(Arc::new(Pattern::new(pattern)?));
        }
        Ok(Node::Call(Box::new(planned)))
    }

    fn fold(&mut self, fold: &Fold) -> Result<Node, PlanError> {
        let outside = self.scopes.len();
        if fold.is_binding() {
            let init = self.plan(&fold.init)?;
            self.scopes.push(fold.accu.clone());
            let result = self.plan(&fold.result);
            self.scopes.truncate(outside);
            return Ok(Node::Bind(Box::new([init, result?])));
        }
        let range = self.plan(&fold.range)?;
        let init = self.plan(&fold.init)?;
        self.scopes.push(fold.accu.clone());
        self.scopes.push(fold.variable.clone());
        self.scopes.extend(fold.second.clone());
        let condition = self.plan(&fold.condition)?;
        let step = self.plan(&fold.step)?;
        let step = appending(step, outside);
        self.scopes.truncate(outside + 1);
        let result = self.plan(&fold.result);
        self.scopes.truncate(outside);
        let (has_two, result) = (fold.second.is_some(), result?);
        Ok(Node::Fold(Box::new(PlannedFold { range, has_two, init, condition, step, result })))
    }
}

fn exactly<const N: usize>(function: &str, args: Vec<Node>) -> Result<[Node; N], PlanError> {
    args.try_into().map_err(|_| PlanError::Arguments(function.to_owned()))
}

/// The step of a path after everything that has been selected before.
fn extended(operand: Node, step: Step) -> Path {
    let mut path = match operand {
        Node::Path(path) => path,
        other => Path { base: Base::Node(Box::new(other)), steps: Vec::new() },
    };
    path.steps.push(step);
    path
}

fn conditional([condition, yes, no]: [Node; 3]) -> Node {
    let branch = |node| match node {
        Node::Path(path) => Branch::Path(path),
        other => Branch::Node(other),
    };
    let base = Base::Conditional(Box::new((condition, branch(yes), branch(no))));
    Node::Path(Path { base, steps: Vec::new() })
}

fn is_conversion(function: &str) -> bool {
    matches!(
        function,
        "bool" | "bytes" | "double" | "duration" | "dyn" | "int" | "string" | "timestamp" | "type" | "uint"
    )
}

/// The sum of nothing, of a type.
fn zero(kind: Option<&Type>) -> Value<'static> {
    match kind {
        Some(Type::Uint) => Value::Uint(0),
        Some(Type::Double) => Value::Double(0.0),
        Some(Type::Duration) => Value::Duration(0),
        _ => Value::Int(0),
    }
}

fn constant(literal: &Literal) -> Value<'static> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(yes) => Value::Bool(*yes),
        Literal::Int(number) => Value::Int(*number),
        Literal::Uint(number) => Value::Uint(*number),
        Literal::Double(number) => Value::Double(*number),
        Literal::String(text) => Value::String(Text::Shared(text.clone())),
        Literal::Bytes(bytes) => Value::Bytes(bytes.clone()),
    }
}

/// A list of constants is one itself.
fn constant_list(elements: Vec<(Node, bool)>) -> Node {
    let constants = elements.iter().map(|(node, is_optional)| match node {
        Node::Const(value) if !is_optional => Some(value.clone()),
        _ => None,
    });
    match constants.collect::<Option<Vec<_>>>() {
        Some(values) => Node::Const(Value::list(values)),
        None => Node::List(elements),
    }
}

fn constant_map(entries: Vec<(Node, Node, bool)>) -> Node {
    let mut by_key = std::collections::BTreeMap::new();
    for entry in &entries {
        let (Node::Const(key), Node::Const(value), false) = entry else { return Node::Map(entries) };
        let Some(key) = key.key() else { return Node::Map(entries) };
        by_key.insert(key, value.clone());
    }
    if by_key.len() < entries.len() {
        return Node::Map(entries);
    }
    Node::Const(Value::map(by_key))
}

/// Membership in a list of constants costs nothing beside what is looked for.
fn constants_of(args: Vec<Node>) -> Result<Node, Vec<Node>> {
    let is_simple = |value: &Value<'static>| {
        matches!(
            value,
            Value::Bool(_)
                | Value::Int(_)
                | Value::Uint(_)
                | Value::Double(_)
                | Value::String(_)
                | Value::Null
        )
    };
    let constants = match args.get(1) {
        Some(Node::Const(Value::List(list))) if list.iter().all(|value| is_simple(&value)) => {
            list.iter().collect()
        }
        _ => return Err(args),
    };
    match args.into_iter().next() {
        Some(_) if Vec::is_empty(&constants) => Ok(Node::Const(Value::Bool(false))),
        Some(value) => Ok(Node::InConstants(Box::new(value), constants)),
        None => Err(Vec::new()),
    }
}

/// A step that adds to the running list or map, which nobody else has.
fn appending(step: Node, slot: usize) -> Node {
    match step {
        Node::Call(mut call) if &*call.function == "cel.@mapInsert" && is_slot(call.args.first(), slot) => {
            Node::Insert { slot, entry: call.args.split_off(1) }
        }
        Node::Call(mut call) if &*call.function == "_+_" && is_slot(call.args.first(), slot) => {
            match call.args.pop() {
                Some(Node::List(mut elements)) if matches!(elements.as_slice(), [(_, false)]) => {
                    match elements.pop() {
                        Some((element, _)) => {
                            Node::Append { slot, element: Box::new(element), list_cost: 10 }
                        }
                        None => Node::Call(call),
                    }
                }
                Some(Node::Const(Value::List(list))) if list.len() == 1 => {
                    let element = Node::Const(list.get(0).unwrap_or(Value::Null));
                    Node::Append { slot, element: Box::new(element), list_cost: 0 }
                }
                other => {
                    call.args.extend(other);
                    Node::Call(call)
                }
            }
        }
        Node::Path(Path { base: Base::Conditional(parts), steps }) if steps.is_empty() => {
            let (condition, yes, no) = *parts;
            let yes = match yes {
                Branch::Node(node) => Branch::Node(appending(node, slot)),
                path => path,
            };
            Node::Path(Path { base: Base::Conditional(Box::new((condition, yes, no))), steps })
        }
        other => other,
    }
}

fn is_slot(node: Option<&Node>, slot: usize) -> bool {
    matches!(node, Some(Node::Path(Path { base: Base::Local(known), steps })) if *known == slot && steps.is_empty())
}
