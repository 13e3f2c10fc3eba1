//! Evaluation of planned expressions, and what it costs.
//!
//! Nothing that an expression does takes longer, or more memory, than its bounds: each step costs, and what is made is
//! counted before it is made. Costs are upstream's, so that what is stored there can be evaluated here.
//! Source: cel-go's `interpreter`; `k8s.io/apiserver/pkg/apis/cel` for the bounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::charge;
use crate::context::{Context, EvalError};
use crate::functions::{Answer, index, shown};
use crate::plan::{Base, Branch, By, Node, Path, PlannedCall, PlannedFold, Step};
use crate::value::{Entries, List, Made, Map, Object, Value};

/// The limit of one evaluation's cost.
pub const PER_CALL_LIMIT: u64 = 1_000_000;
/// The limit of the cost of all evaluations for one object of a custom kind, or one binding of a policy.
pub const RUNTIME_BUDGET: u64 = 10_000_000;
/// The limit of the cost of all match conditions of a webhook or a binding for one object.
pub const MATCH_CONDITIONS_BUDGET: u64 = 2_500_000;
/// Rounds after which a fold looks whether it is wanted any more.
const CHECK_EVERY: usize = 100;

/// The limits of evaluations' cost, each and together.
#[derive(Clone, Debug)]
pub struct Budget {
    per_call: u64,
    remaining: u64,
    interrupted: Option<Arc<AtomicBool>>,
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(RUNTIME_BUDGET)
    }
}

impl Budget {
    /// A budget for many evaluations.
    #[must_use]
    pub fn new(total: u64) -> Self {
        Self { per_call: PER_CALL_LIMIT, remaining: total, interrupted: None }
    }

    /// With another bound for each evaluation.
    #[must_use]
    pub fn per_call(mut self, limit: u64) -> Self {
        self.per_call = limit;
        self
    }

    /// Ends evaluations once the flag is set.
    #[must_use]
    pub fn interrupted_by(mut self, flag: Arc<AtomicBool>) -> Self {
        self.interrupted = Some(flag);
        self
    }

    /// The rest of the budget.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.remaining
    }
}

/// The values of variables.
#[derive(Clone, Debug, Default)]
pub struct Activation<'a> {
    values: Vec<(&'a str, Binding<'a>)>,
}

#[derive(Clone, Debug)]
enum Binding<'a> {
    Value(Value<'a>),
    Computed(&'a dyn Fields),
}

/// A variable whose fields are computed when they are asked for: `variables` of a policy.
pub trait Fields: std::fmt::Debug {
    /// The value of a field; `None` if there is no such field. What it costs is the callee's to count.
    fn field<'a>(&'a self, name: &str) -> Option<Result<Value<'a>, EvalError>>;
}

impl<'a> Activation<'a> {
    /// Without variables.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With the value of a variable.
    #[must_use]
    pub fn with(mut self, name: &'a str, value: Value<'a>) -> Self {
        self.values.push((name, Binding::Value(value)));
        self
    }

    /// With a variable whose fields are computed.
    #[must_use]
    pub fn computing(mut self, name: &'a str, fields: &'a dyn Fields) -> Self {
        self.values.push((name, Binding::Computed(fields)));
        self
    }

    fn find(&self, name: &str) -> Option<&Binding<'a>> {
        self.values.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}

/// Evaluates a plan; what it has cost comes with the value or the error, and is taken off the budget.
pub(crate) fn evaluate<'a>(
    node: &'a Node,
    variables: &'a [Arc<str>],
    activation: &'a Activation<'a>,
    budget: &mut Budget,
) -> (Result<Value<'a>, EvalError>, u64) {
    if budget.remaining == 0 {
        return (Err(EvalError::Budget), 0);
    }
    let limit = budget.per_call.min(budget.remaining);
    let interrupted = budget.interrupted.clone();
    let mut run = Run { variables, activation, slots: Vec::new(), context: Context::new(limit), interrupted };
    let result = run.eval(node);
    let cost = run.context.cost();
    let is_last = budget.remaining < budget.per_call;
    budget.remaining = budget.remaining.saturating_sub(cost);
    match result {
        Err(EvalError::CostLimit) if is_last => (Err(EvalError::Budget), cost),
        result => (result, cost),
    }
}

struct Run<'a> {
    variables: &'a [Arc<str>],
    activation: &'a Activation<'a>,
    /// What folds and bindings around the current node hold.
    slots: Vec<Slot<'a>>,
    context: Context,
    interrupted: Option<Arc<AtomicBool>>,
}

enum Slot<'a> {
    Ready(Value<'a>),
    Failed(EvalError),
    /// Computed when it is first asked for.
    Lazy(&'a Node),
}

impl<'a> Run<'a> {
    fn eval(&mut self, node: &'a Node) -> Answer<'a> {
        match node {
            Node::Const(value) => Ok(value.clone()),
            Node::Path(path) => {
                let value = self.resolve(path);
                if !matches!(path.base, Base::Conditional(_)) {
                    self.context.charge(1)?;
                }
                value
            }
            other => stacker::maybe_grow(128 << 10, 2 << 20, || self.eval_deeper(other)),
        }
    }

    fn eval_deeper(&mut self, node: &'a Node) -> Answer<'a> {
        match node {
            Node::Const(_) | Node::Path(_) => self.eval(node),
            Node::Test(path) => self.test(path),
            Node::And(terms) => self.logic(terms, false),
            Node::Or(terms) => self.logic(terms, true),
            Node::NotStrictlyFalse(operand) => {
                let value = self.eval(operand);
                self.context.charge(1)?;
                match value {
                    Err(error) if error.is_final() => Err(error),
                    value => Ok(Value::Bool(!matches!(value, Ok(Value::Bool(false))))),
                }
            }
            Node::Equals(operands, is_wanted) => {
                let [one, other] = &**operands;
                let (one, other) = self.both(one, other)?;
                self.context.charge(charge::equality(&one, &other))?;
                Ok(Value::Bool(one.equals(&other) == *is_wanted))
            }
            Node::InConstants(value, constants) => {
                let value = self.eval(value)?;
                Ok(Value::Bool(constants.iter().any(|constant| value.equals(constant))))
            }
            Node::Otherwise(operands, is_value) => {
                let [one, other] = &**operands;
                match self.eval(one)? {
                    Value::Optional(Some(value)) if *is_value => Ok((*value).clone()),
                    Value::Optional(None) => self.eval(other),
                    value => Ok(value),
                }
            }
            Node::Call(call) => self.call(call),
            Node::List(elements) => self.list(elements),
            Node::Map(entries) => self.map(entries),
            Node::Made(name, fields) => self.made(name, fields),
            Node::Fold(fold) => self.fold(fold),
            Node::Bind(parts) => {
                let [init, result] = &**parts;
                let slot = self.slots.len();
                self.slots.push(Slot::Lazy(init));
                let value = self.eval(result);
                self.slots.truncate(slot);
                value
            }
            Node::Append { slot, element, list_cost } => self.append(*slot, element, *list_cost),
            Node::Insert { slot, entry } => self.insert(*slot, entry),
        }
    }

    /// `||`, which `true` decides, and `&&`, which `false` does: whatever else fails does not matter then.
    fn logic(&mut self, terms: &'a [Node], decisive: bool) -> Answer<'a> {
        let mut failure = None;
        for term in terms {
            match self.eval(term) {
                Ok(Value::Bool(value)) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => failure = failure.or(Some(EvalError::NoOverload)),
                Err(error) if error.is_final() => return Err(error),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    fn local(&mut self, slot: usize) -> Answer<'a> {
        match self.slots.get(slot) {
            Some(Slot::Ready(value)) => Ok(value.clone()),
            Some(Slot::Failed(error)) => Err(error.clone()),
            Some(Slot::Lazy(node)) => {
                let node = *node;
                // What is computed here has been planned outside: it sees only what was there then.
                let inner = self.slots.split_off(slot);
                let value = self.eval(node);
                self.slots.truncate(slot);
                self.slots.extend(inner);
                let held = match &value {
                    Ok(value) => Slot::Ready(value.clone()),
                    Err(error) => Slot::Failed(error.clone()),
                };
                if let Some(slot) = self.slots.get_mut(slot) {
                    *slot = held;
                }
                value
            }
            None => Err("no such attribute".into()),
        }
    }

    /// What a path leads to, without what its first part costs.
    fn resolve(&mut self, path: &'a Path) -> Answer<'a> {
        let (value, steps) = self.base(path)?;
        self.walk(value, steps)
    }

    fn base(&mut self, path: &'a Path) -> Result<(Value<'a>, &'a [Step]), EvalError> {
        let steps = path.steps.as_slice();
        let value = match &path.base {
            Base::Local(slot) => self.local(*slot)?,
            Base::Node(node) => self.eval(node)?,
            Base::Conditional(parts) => self.conditional(parts)?,
            Base::Variable(variable) => {
                let name = self.variables.get(*variable).map_or("", |name| &**name);
                match self.activation.find(name) {
                    Some(Binding::Value(value)) => value.clone(),
                    Some(Binding::Computed(fields)) => return self.computed(*fields, steps),
                    None => return Err(format!("no such attribute(s): {name}").into()),
                }
            }
        };
        Ok((value, steps))
    }

    fn computed(
        &mut self,
        fields: &'a dyn Fields,
        steps: &'a [Step],
    ) -> Result<(Value<'a>, &'a [Step]), EvalError> {
        let Some((Step { by: By::Const(Value::String(name)), .. }, rest)) = steps.split_first() else {
            return Err(EvalError::NoOverload);
        };
        self.context.charge(1)?;
        // What is computed can be made of what is computed, and so on.
        let value = stacker::maybe_grow(128 << 10, 2 << 20, || fields.field(name));
        let value = value.ok_or_else(|| EvalError::from(format!("no such key: {}", &**name)))?;
        Ok((value?, rest))
    }

    fn conditional(&mut self, parts: &'a (Node, Branch, Branch)) -> Answer<'a> {
        let (condition, yes, no) = parts;
        let branch = match self.eval(condition)? {
            Value::Bool(true) => yes,
            Value::Bool(false) => no,
            _ => return Err(EvalError::NoOverload),
        };
        match branch {
            Branch::Path(path) => self.resolve(path),
            Branch::Node(node) => self.eval(node),
        }
    }

    fn key(&mut self, step: &'a Step) -> Answer<'a> {
        match &step.by {
            By::Const(key) => Ok(key.clone()),
            By::Path(path) => self.resolve(path),
            By::Node(node) => self.eval(node),
        }
    }

    fn walk(&mut self, mut value: Value<'a>, steps: &'a [Step]) -> Answer<'a> {
        let mut is_optional = false;
        for step in steps {
            is_optional |= step.is_optional;
            if let Value::Optional(inner) = value {
                is_optional = true;
                match inner {
                    Some(inner) => value = (*inner).clone(),
                    None => return Ok(Value::Optional(None)),
                }
            }
            // Keys that are written down are the most frequent, and need not be copied.
            let found = match &step.by {
                By::Const(key) => stepped(&value, key, is_optional),
                _ => {
                    let key = self.key(step)?;
                    stepped(&value, &key, is_optional)
                }
            };
            if matches!(found, Ok(None)) {
                return Ok(Value::Optional(None));
            }
            // What leads nowhere costs as much as what leads somewhere.
            self.context.charge(1)?;
            value = found?.unwrap_or(Value::Null);
        }
        Ok(if is_optional { Value::some(value) } else { value })
    }

    /// Whether the last step leads to something.
    fn test(&mut self, path: &'a Path) -> Answer<'a> {
        let (value, steps) = self.base(path)?;
        let Some((last, before)) = steps.split_last() else { return Err(EvalError::NoOverload) };
        let value = match self.walk(value, before)? {
            Value::Optional(Some(value)) => (*value).clone(),
            Value::Optional(None) => return Ok(Value::Bool(false)),
            value => value,
        };
        let key = self.key(last)?;
        self.context.charge(1)?;
        match (&value, &key) {
            (Value::Map(map), key) => Ok(Value::Bool(map.contains(key))),
            (Value::Object(object), Value::String(name)) => Ok(Value::Bool(object.field(name).is_some())),
            _ => Err(EvalError::NoOverload),
        }
    }

    /// Both operands. If one fails the other one has been evaluated, and both have been looked at, all the same.
    fn both(&mut self, one: &'a Node, other: &'a Node) -> Result<(Value<'a>, Value<'a>), EvalError> {
        let one = self.eval(one);
        if let Err(error) = &one
            && error.is_final()
        {
            return Err(error.clone());
        }
        let other = self.eval(other);
        if one.is_err() || other.is_err() {
            self.context.charge(1)?;
        }
        Ok((one?, other?))
    }

    fn call(&mut self, call: &'a PlannedCall) -> Answer<'a> {
        match call.args.as_slice() {
            [one] => {
                let value = self.eval(one);
                if value.is_err() {
                    self.context.charge(1)?;
                }
                self.called(call, &[value?])
            }
            [one, two] => {
                let (one, two) = self.both(one, two)?;
                self.called(call, &[one, two])
            }
            args => {
                let args = args.iter().map(|arg| self.eval(arg)).collect::<Result<Vec<_>, _>>()?;
                self.called(call, &args)
            }
        }
    }

    fn called(&mut self, call: &'a PlannedCall, args: &[Value<'a>]) -> Answer<'a> {
        if call.pattern.is_some() {
            self.context.pattern.clone_from(&call.pattern);
        } else if self.context.pattern.is_some() {
            self.context.pattern = None;
        }
        if args.len() == 1 && &*call.function == "sum" {
            self.context.zero = call.zero.clone();
        }
        // An expensive function is not run only to find that it was too expensive.
        if is_expensive(&call.function) {
            let cost = charge::call(&call.function, call.overload, args, &Value::Null);
            if self.context.is_beyond(cost) {
                self.context.charge(cost)?;
            }
        }
        let result = (call.body)(&mut self.context, args)?;
        self.context.charge(charge::call(&call.function, call.overload, args, &result))?;
        Ok(result)
    }

    fn list(&mut self, elements: &'a [(Node, bool)]) -> Answer<'a> {
        let mut list = Vec::with_capacity(elements.len());
        for (node, is_optional) in elements {
            match self.eval(node)? {
                Value::Optional(value) if *is_optional => list.extend(value.map(|value| (*value).clone())),
                other if *is_optional => {
                    let name = other.type_name();
                    let message =
                        format!("cannot initialize optional list element from non-optional value {name}");
                    return Err(message.into());
                }
                value => list.push(value),
            }
        }
        self.context.charge(charge::LIST_MADE)?;
        self.context.allocate(list.len().saturating_mul(size_of::<Value<'_>>()))?;
        Ok(Value::list(list))
    }

    fn map(&mut self, entries: &'a [(Node, Node, bool)]) -> Answer<'a> {
        let mut by_key = std::collections::BTreeMap::new();
        for (key, value, is_optional) in entries {
            let key = self.eval(key)?;
            let Some(known) = key.key() else { return Err("unsupported key type".into()) };
            let value = match self.eval(value)? {
                Value::Optional(Some(value)) if *is_optional => (*value).clone(),
                Value::Optional(None) if *is_optional => {
                    by_key.remove(&known);
                    continue;
                }
                _ if *is_optional => {
                    return Err("cannot initialize optional entry from non-optional value".into());
                }
                value => value,
            };
            // As upstream, where the last of equal keys counts.
            by_key.insert(known, value);
        }
        self.context.charge(charge::MAP_MADE)?;
        self.context.allocate(by_key.len().saturating_mul(2 * size_of::<Value<'_>>()))?;
        Ok(Value::Map(Map::Shared(Arc::new(Entries { by_key, other: None }))))
    }

    fn made(&mut self, name: &Arc<str>, fields: &'a [(Arc<str>, Node, bool)]) -> Answer<'a> {
        let mut set = std::collections::BTreeMap::new();
        for (field, node, is_optional) in fields {
            let value = match self.eval(node)? {
                Value::Optional(Some(value)) if *is_optional => (*value).clone(),
                Value::Optional(None) if *is_optional => continue,
                value => value,
            };
            set.insert(field.clone(), value);
        }
        self.context.charge(charge::OBJECT_MADE)?;
        self.context.allocate(set.len().saturating_mul(2 * size_of::<Value<'_>>()))?;
        Ok(Value::Object(Object::Shared(Arc::new(Made { name: name.clone(), fields: set }))))
    }

    fn fold(&mut self, fold: &'a PlannedFold) -> Answer<'a> {
        let range = self.eval(&fold.range)?;
        let base = self.slots.len();
        let init = self.eval(&fold.init)?;
        self.slots.push(Slot::Ready(init));
        let outcome = match &range {
            Value::List(list) => self.over_list(fold, list, base),
            Value::Map(map) => self.over_entries(fold, map.entries(), base),
            Value::Object(object) => {
                let entries = object.entries().into_iter().map(|(name, value)| (Value::String(name), value));
                self.over_entries(fold, entries.collect(), base)
            }
            _ => Err(EvalError::NoOverload),
        };
        self.slots.truncate(base + 1);
        let result = outcome.and_then(|()| self.eval(&fold.result));
        self.slots.truncate(base);
        result
    }

    fn over_list(&mut self, fold: &'a PlannedFold, list: &List<'a>, base: usize) -> Result<(), EvalError> {
        for (round, element) in list.iter().enumerate() {
            if fold.has_two {
                self.slots.push(Slot::Ready(Value::Int(i64::try_from(round).unwrap_or(i64::MAX))));
            }
            self.slots.push(Slot::Ready(element));
            if !self.round(fold, base, round)? {
                break;
            }
        }
        Ok(())
    }

    fn over_entries(
        &mut self,
        fold: &'a PlannedFold,
        entries: Vec<(Value<'a>, Value<'a>)>,
        base: usize,
    ) -> Result<(), EvalError> {
        for (round, (key, value)) in entries.into_iter().enumerate() {
            self.slots.push(Slot::Ready(key));
            if fold.has_two {
                self.slots.push(Slot::Ready(value));
            }
            if !self.round(fold, base, round)? {
                break;
            }
        }
        Ok(())
    }

    /// One round; whether there shall be another one.
    fn round(&mut self, fold: &'a PlannedFold, base: usize, round: usize) -> Result<bool, EvalError> {
        match self.eval(&fold.condition) {
            Ok(Value::Bool(false)) => return Ok(false),
            Err(error) if error.is_final() => return Err(error),
            _ => {}
        }
        let next = match self.eval(&fold.step) {
            Ok(value) => Slot::Ready(value),
            Err(error) if error.is_final() => return Err(error),
            Err(error) => Slot::Failed(error),
        };
        if let Some(slot) = self.slots.get_mut(base) {
            *slot = next;
        }
        self.slots.truncate(base + 1);
        if round.is_multiple_of(CHECK_EVERY)
            && self.interrupted.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed))
        {
            return Err(EvalError::Interrupted);
        }
        Ok(true)
    }

    fn insert(&mut self, slot: usize, entry: &'a [Node]) -> Answer<'a> {
        let entry = entry.iter().map(|node| self.eval(node)).collect::<Result<Vec<_>, _>>()?;
        self.context.charge(2)?;
        let added = match <[Value<'a>; 2]>::try_from(entry) {
            Ok([key, value]) => vec![(key, value)],
            Err(entry) => match entry.into_iter().next() {
                Some(Value::Map(map)) => map.entries(),
                _ => return Err(EvalError::NoOverload),
            },
        };
        self.context.allocate(added.len().saturating_mul(2 * size_of::<Value<'_>>()))?;
        let taken = self.slots.get_mut(slot).map(|slot| std::mem::replace(slot, Slot::Ready(Value::Null)));
        let mut entries = match taken {
            Some(Slot::Ready(Value::Map(Map::Shared(entries)))) => entries,
            Some(Slot::Failed(error)) => return Err(error),
            _ => return Err(EvalError::NoOverload),
        };
        // Nobody else has the map, apart from the constant that it begins as.
        let by_key = &mut Arc::make_mut(&mut entries).by_key;
        for (key, value) in added {
            let Some(known) = key.key() else { return Err("unsupported key type".into()) };
            if by_key.insert(known, value).is_some() {
                return Err(format!("insert failed: key {} already exists", shown(&key)).into());
            }
        }
        Ok(Value::Map(Map::Shared(entries)))
    }

    fn append(&mut self, slot: usize, element: &'a Node, list_cost: u64) -> Answer<'a> {
        let element = self.eval(element)?;
        self.context.charge(2 + list_cost)?;
        self.context.allocate(size_of::<Value<'_>>())?;
        let taken = self.slots.get_mut(slot).map(|slot| std::mem::replace(slot, Slot::Ready(Value::Null)));
        match taken {
            Some(Slot::Ready(Value::List(List::Shared(mut list)))) => {
                // Nobody else has the list, apart from the constant that it begins as.
                Arc::make_mut(&mut list).push(element);
                Ok(Value::List(List::Shared(list)))
            }
            Some(Slot::Failed(error)) => Err(error),
            _ => Err(EvalError::NoOverload),
        }
    }
}

/// What a step leads to; `None` if it leads nowhere and may.
fn stepped<'a>(
    value: &Value<'a>,
    key: &Value<'a>,
    is_optional: bool,
) -> Result<Option<Value<'a>>, EvalError> {
    let found = match (value, key) {
        (Value::Object(object), Value::String(name)) => object.field(name),
        (Value::Map(map), key) if is_optional => return Ok(map.get(key)),
        (Value::List(list), Value::Int(slot)) if is_optional => {
            return Ok(usize::try_from(*slot).ok().and_then(|slot| list.get(slot)));
        }
        _ => None,
    };
    match found {
        Some(value) => Ok(Some(value)),
        None if is_optional && matches!(value, Value::Object(_)) => Ok(None),
        None => index(value, key),
    }
}

/// Whether a function can take much longer than its arguments are large.
fn is_expensive(function: &str) -> bool {
    matches!(
        function,
        "matches"
            | "find"
            | "findAll"
            | "distinct"
            | "sort"
            | "@sortByAssociatedKeys"
            | "sets.contains"
            | "sets.equivalent"
            | "sets.intersects"
            | "check"
    )
}
