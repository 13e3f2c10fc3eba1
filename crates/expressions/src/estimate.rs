//! The estimated cost of an expression, judged by its text, its types, and how large values can be.
//!
//! An expression that could cost too much is refused before anything is stored that it would be evaluated for, so this is
//! upstream's reckoning, quirks included. Source: cel-go's `checker/cost.go`.

mod calls;
mod range;

use std::sync::Arc;

pub use range::CostEstimate;
pub(crate) use range::SizeEstimate;

use crate::charge::{LIST_MADE, MAP_MADE, OBJECT_MADE};
use crate::check::{Checked, Reference};
use crate::environment::Environment;
use crate::syntax::ast::{Call, Expr, Fold, Kind, Literal};
use crate::types::Type;

/// The way to a value from a variable: fields, `@items`, `@keys`, `@values`.
type Path = Vec<Arc<str>>;

/// Estimates the cost of an expression.
pub(crate) fn cost(environment: &Environment, checked: &Checked) -> CostEstimate {
    let nodes = checked.types.len();
    let mut estimator = Estimator {
        environment,
        checked,
        paths: vec![Path::new(); nodes],
        sizes: vec![None; nodes],
        entries: vec![None; nodes],
        locals: Vec::new(),
    };
    estimator.cost(&checked.root)
}

/// Sizes of a container's keys and values.
#[derive(Clone, Copy, Debug)]
struct EntrySizes {
    is_list: bool,
    key: SizeEstimate,
    value: SizeEstimate,
}

/// What is known of a variable of a fold.
#[derive(Clone, Debug)]
struct Local {
    name: Arc<str>,
    path: Path,
    size: Option<SizeEstimate>,
    entries: Option<EntrySizes>,
}

struct Estimator<'e> {
    environment: &'e Environment,
    checked: &'e Checked,
    /// By node, as all of these.
    paths: Vec<Path>,
    sizes: Vec<Option<SizeEstimate>>,
    entries: Vec<Option<EntrySizes>>,
    locals: Vec<Local>,
}

impl<'e> Estimator<'e> {
    fn cost(&mut self, expr: &'e Expr) -> CostEstimate {
        stacker::maybe_grow(128 << 10, 2 << 20, || match &expr.kind {
            Kind::Literal(_) => CostEstimate::fixed(0),
            Kind::Ident(name) => {
                let path = self.local(name).map_or_else(|| vec![name.clone()], |local| local.path.clone());
                self.set_path(expr, path);
                CostEstimate::fixed(1)
            }
            Kind::Select(select) => {
                if !matches!(self.reference(expr), Reference::Nothing) {
                    let name = expr.qualified_name().unwrap_or_default();
                    self.set_path(expr, vec![name.into()]);
                    return CostEstimate::fixed(1);
                }
                let cost = self.cost(&select.operand);
                if select.is_test {
                    return cost;
                }
                let step = match self.kind(&select.operand) {
                    Type::Map(..) | Type::Object(_) | Type::Param(_) => 1,
                    _ => 0,
                };
                let path = self.extended(&select.operand, &select.field);
                self.set_path(expr, path);
                cost + CostEstimate::fixed(step)
            }
            Kind::Call(call) => self.call(expr, call),
            Kind::List(elements) => {
                let values: Vec<&Expr> = elements.iter().map(|element| &element.value).collect();
                let (cost, value) = self.all(&values);
                let sizes = EntrySizes { is_list: true, key: SizeEstimate::fixed(1), value };
                self.set_entries(expr, Some(sizes));
                cost + CostEstimate::fixed(LIST_MADE)
            }
            Kind::Map(entries) => {
                let keys: Vec<&Expr> = entries.iter().map(|entry| &entry.key).collect();
                let values: Vec<&Expr> = entries.iter().map(|entry| &entry.value).collect();
                let ((first, key), (second, value)) = (self.all(&keys), self.all(&values));
                self.set_entries(expr, Some(EntrySizes { is_list: false, key, value }));
                first + second + CostEstimate::fixed(MAP_MADE)
            }
            Kind::Struct(_, fields) => {
                let values: Vec<&Expr> = fields.iter().map(|field| &field.value).collect();
                self.all(&values).0 + CostEstimate::fixed(OBJECT_MADE)
            }
            Kind::Fold(fold) if fold.is_binding() => self.binding(expr, fold),
            Kind::Fold(fold) => self.fold(expr, fold),
        })
    }

    /// The cost of all, and the size that each can have.
    fn all(&mut self, exprs: &[&'e Expr]) -> (CostEstimate, SizeEstimate) {
        let none = SizeEstimate { min: if exprs.is_empty() { 0 } else { u64::MAX }, max: 0 };
        exprs.iter().fold((CostEstimate::fixed(0), none), |(cost, size), expr| {
            let cost = cost + self.cost(expr);
            (cost, size.union(self.size_or_unknown(expr)))
        })
    }

    fn reference(&self, expr: &Expr) -> &'e Reference {
        self.checked.references.get(expr.id).unwrap_or(&Reference::Nothing)
    }

    fn kind(&self, expr: &Expr) -> &'e Type {
        self.checked.types.get(expr.id).unwrap_or(&Type::Error)
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|local| &*local.name == name)
    }

    fn set_path(&mut self, expr: &Expr, path: Path) {
        if let Some(known) = self.paths.get_mut(expr.id) {
            *known = path;
        }
    }

    fn path(&self, expr: &Expr) -> Path {
        if let Kind::Ident(name) = &expr.kind
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(expr.id).cloned().unwrap_or_default()
    }

    fn extended(&self, expr: &Expr, step: &str) -> Path {
        let mut path = self.path(expr);
        path.push(step.into());
        path
    }

    fn set_size(&mut self, expr: &Expr, size: Option<SizeEstimate>) {
        if let (Some(known), Some(_)) = (self.sizes.get_mut(expr.id), size) {
            *known = size;
        }
    }

    fn set_entries(&mut self, expr: &Expr, sizes: Option<EntrySizes>) {
        if let (Some(known), Some(_)) = (self.entries.get_mut(expr.id), sizes) {
            *known = sizes;
        }
    }

    /// The size that is declared for what a path leads to.
    fn declared_size(&self, path: &Path) -> Option<SizeEstimate> {
        let (first, steps) = path.split_first()?;
        let mut variables =
            self.environment.variables().iter().filter(|variable| variable.declared.is_some());
        let named = variables.clone().find(|variable| variable.name == *first);
        // As upstream, where in rules of custom kinds every path begins at the one root, whatever it says.
        let root =
            named.or_else(|| variables.find(|variable| &*variable.name == "self"))?.declared.clone()?;
        let found = steps.iter().try_fold(root, |declared, step| declared.below(step))?;
        Some(SizeEstimate { min: 0, max: found.elements_max() })
    }

    /// The size of a value, if anything is known of it.
    fn size(&self, expr: &Expr) -> Option<SizeEstimate> {
        if let Some(Some(size)) = self.sizes.get(expr.id) {
            return Some(*size);
        }
        let written = match &expr.kind {
            Kind::Literal(Literal::String(text)) => Some(text.chars().count()),
            Kind::Literal(Literal::Bytes(bytes)) => Some(bytes.len()),
            Kind::Literal(_) => Some(1),
            Kind::List(elements) => Some(elements.len()),
            Kind::Map(entries) => Some(entries.len()),
            _ => None,
        };
        if let Some(size) = written {
            return Some(SizeEstimate::fixed(u64::try_from(size).unwrap_or(u64::MAX)));
        }
        let path = self.path(expr);
        self.declared_size(&path).or_else(|| type_size(self.kind(expr))).or_else(|| match &expr.kind {
            Kind::Ident(name) => self.local(name)?.size,
            _ => None,
        })
    }

    fn size_or_unknown(&self, expr: &Expr) -> SizeEstimate {
        self.size(expr).unwrap_or(SizeEstimate::UNKNOWN)
    }

    fn entry_sizes(&self, expr: &Expr) -> Option<EntrySizes> {
        if let Some(Some(sizes)) = self.entries.get(expr.id) {
            return Some(*sizes);
        }
        match &expr.kind {
            Kind::Ident(name) => self.local(name)?.entries,
            _ => None,
        }
    }

    fn call(&mut self, expr: &'e Expr, call: &'e Call) -> CostEstimate {
        if &*call.function == "dyn"
            && let [arg] = call.args.as_slice()
        {
            let cost = self.cost(arg);
            self.set_size(expr, self.size(arg));
            self.set_entries(expr, self.entry_sizes(arg));
            return cost + CostEstimate::fixed(1);
        }
        if call.args.len() > 2 && matches!(&*call.function, "_&&_" | "_||_") {
            let costs: Vec<CostEstimate> = call.args.iter().map(|arg| self.cost(arg)).collect();
            let min = costs.first().map_or(0, |first| first.min);
            let max = costs.iter().fold(0_u64, |sum, cost| sum.saturating_add(cost.max));
            return CostEstimate { min, max };
        }
        let costs: Vec<CostEstimate> = call.args.iter().map(|arg| self.cost(arg)).collect();
        let Reference::Function { is_qualified, overloads } = self.reference(expr) else {
            return CostEstimate::fixed(0);
        };
        let target = call.target.as_deref().filter(|_| !is_qualified);
        let of_target = target.map_or(CostEstimate::fixed(0), |target| self.cost(target));
        let mut cost = CostEstimate { min: u64::MAX, max: 0 };
        let mut result: Option<SizeEstimate> = None;
        let function = qualified(call, *is_qualified);
        for overload in overloads {
            let called =
                calls::Called { expr, function: &function, overload: overload.id, target, args: &call.args };
            let (of_call, size) = self.function(&called, &costs);
            cost = cost.union(of_call);
            result = match (result, size) {
                (Some(one), Some(other)) => Some(one.union(other)),
                (one, other) => one.or(other),
            };
            let below = match overload.id {
                "index_list" => Some("@items"),
                "index_map" => Some("@values"),
                _ => None,
            };
            if let (Some(below), Some(container)) = (below, call.args.first()) {
                result = self.entry_sizes(container).map(|sizes| sizes.value);
                let path = self.extended(container, below);
                self.set_path(expr, path);
            }
            result = result.or_else(|| self.size(expr));
        }
        self.set_size(expr, result);
        of_target + cost
    }

    fn push(&mut self, name: &Arc<str>, path: Path, size: Option<SizeEstimate>, entries: Option<EntrySizes>) {
        self.locals.push(Local { name: name.clone(), path, size, entries });
    }

    fn push_value(&mut self, name: &Arc<str>, expr: &Expr) {
        let (path, size, entries) = (self.path(expr), self.size(expr), self.entry_sizes(expr));
        self.push(name, path, size, entries);
    }

    fn fold(&mut self, expr: &'e Expr, fold: &'e Fold) -> CostEstimate {
        let before = self.cost(&fold.range) + self.cost(&fold.init);
        let outside = self.locals.len();
        self.push_value(&fold.accu, &fold.init);
        let sizes = self.entry_sizes(&fold.range);
        let is_list =
            sizes.map_or_else(|| matches!(self.kind(&fold.range), Type::List(_)), |sizes| sizes.is_list);
        let (key, value) = (sizes.map(|sizes| sizes.key), sizes.map(|sizes| sizes.value));
        match &fold.second {
            None if is_list => self.push(&fold.variable, self.extended(&fold.range, "@items"), value, None),
            None => self.push(&fold.variable, self.extended(&fold.range, "@keys"), key, None),
            Some(second) => {
                let (first_step, second_step) =
                    if is_list { ("@indices", "@items") } else { ("@keys", "@values") };
                self.push(&fold.variable, self.extended(&fold.range, first_step), key, None);
                self.push(second, self.extended(&fold.range, second_step), value, None);
            }
        }
        let round = self.cost(&fold.condition) + self.cost(&fold.step);
        // Sizes of the step are asked for while its variables are known.
        let step_entries = self.entry_sizes(&fold.step);
        self.locals.truncate(outside + 1);
        let result = self.cost(&fold.result);
        self.locals.truncate(outside);
        let rounds = self.size_or_unknown(&fold.range);
        match &fold.init.kind {
            Kind::Literal(_) => self.set_size(expr, self.size(&fold.init)),
            Kind::List(_) | Kind::Map(_) => {
                self.set_size(expr, Some(rounds));
                self.set_entries(expr, step_entries);
            }
            _ => {}
        }
        before + result + rounds.times_cost(round)
    }

    fn binding(&mut self, expr: &'e Expr, fold: &'e Fold) -> CostEstimate {
        let before = self.cost(&fold.range) + self.cost(&fold.init);
        let outside = self.locals.len();
        self.push_value(&fold.accu, &fold.init);
        let result = self.cost(&fold.result);
        let (size, entries) = (self.size(&fold.result), self.entry_sizes(&fold.result));
        self.locals.truncate(outside);
        self.set_size(expr, size);
        self.set_entries(expr, entries);
        before + result
    }
}

fn qualified(call: &Call, is_qualified: bool) -> String {
    let function = call.function.strip_prefix('.').unwrap_or(&call.function);
    match call.target.as_ref().filter(|_| is_qualified).and_then(|target| target.qualified_name()) {
        Some(prefix) => format!("{prefix}.{function}"),
        None => function.to_owned(),
    }
}

/// The size of values of a type that all have the same.
fn type_size(kind: &Type) -> Option<SizeEstimate> {
    match kind {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => {
            Some(SizeEstimate::fixed(1))
        }
        other => type_size(other.unwrap_optional()?),
    }
}
