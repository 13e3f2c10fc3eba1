//! The type checker: types of all nodes, and which overloads are called.
//!
//! Source: cel-go's `checker`, whose messages are these.

pub(crate) mod unify;
mod validate;

use std::sync::Arc;

use crate::environment::Environment;
use crate::functions::{Function, Overload};
use crate::problem::Problem;
use crate::syntax::ast::{Call, Element, Entry, Expr, Field, Fold, Kind, Literal, Select};
use crate::types::Type;
use unify::{Mapping, is_equal_or_less_specific};

/// Parts of a type: `{x: x}` in a row doubles them every time.
const TYPE_PARTS_MAX: usize = 1000;

/// What a node refers to.
#[derive(Clone, Debug, Default)]
pub(crate) enum Reference {
    #[default]
    Nothing,
    /// A variable of the environment, by index.
    Variable(usize),
    /// A variable of a fold.
    Local,
    /// A type by name.
    Type(Arc<str>),
    /// A function by its whole name, which may be what looks like a member's; and the overloads that it can be.
    Function { is_qualified: bool, overloads: Vec<&'static Overload> },
}

/// An expression that has passed.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) root: Expr,
    /// By node.
    pub(crate) types: Vec<Type>,
    /// By node.
    pub(crate) references: Vec<Reference>,
}

/// Checks a parsed expression.
pub(crate) fn check(environment: &Environment, root: Expr, nodes: usize) -> Result<Checked, Vec<Problem>> {
    let mut checker = Checker {
        environment,
        types: vec![Type::Error; nodes],
        references: vec![Reference::Nothing; nodes],
        scopes: Vec::new(),
        mapping: Mapping::default(),
        problems: Vec::new(),
    };
    checker.check(&root);
    let Checker { mut types, references, mapping, mut problems, .. } = checker;
    for known in &mut types {
        *known = mapping.substitute(known, unify::Unbound::Dyn);
    }
    let checked = Checked { root, types, references };
    if problems.is_empty() {
        validate::validate(&checked, &mut problems);
    }
    if problems.is_empty() { Ok(checked) } else { Err(problems) }
}

struct Checker<'e> {
    environment: &'e Environment,
    types: Vec<Type>,
    references: Vec<Reference>,
    /// Variables of folds, innermost last.
    scopes: Vec<(Arc<str>, Type)>,
    mapping: Mapping,
    problems: Vec<Problem>,
}

impl Checker<'_> {
    fn check(&mut self, expr: &Expr) -> Type {
        let checked = stacker::maybe_grow(128 << 10, 2 << 20, || match &expr.kind {
            Kind::Literal(literal) => literal_type(literal),
            Kind::Ident(name) => self.ident(expr, name),
            Kind::Select(select) => self.select(expr, select),
            Kind::Call(call) => self.call(expr, call),
            Kind::List(elements) => self.list(elements),
            Kind::Map(entries) => self.map(entries),
            Kind::Struct(name, fields) => self.made(expr, name, fields),
            Kind::Fold(fold) => self.fold(fold),
        });
        let checked = if checked.is_larger_than(TYPE_PARTS_MAX) {
            self.report(expr.at, format!("type has more than {TYPE_PARTS_MAX} parts"));
            Type::Error
        } else {
            checked
        };
        if let Some(known) = self.types.get_mut(expr.id) {
            *known = checked.clone();
        }
        checked
    }

    fn refer(&mut self, expr: &Expr, reference: Reference) {
        if let Some(known) = self.references.get_mut(expr.id) {
            *known = reference;
        }
    }

    fn report(&mut self, at: usize, message: String) {
        self.problems.push(Problem::new(at, message));
    }

    fn undeclared(&mut self, at: usize, name: &str) -> Type {
        self.report(at, format!("undeclared reference to '{name}' (in container '')"));
        Type::Error
    }

    fn mismatch(&mut self, at: usize, expected: &Type, found: &Type) {
        self.report(at, format!("expected type '{expected}' but found '{found}'"));
    }

    /// What a name stands for: the innermost variable, or a type.
    fn find(&self, name: &str) -> Option<(Type, Reference)> {
        let name = name.strip_prefix('.').unwrap_or(name);
        if let Some((_, kind)) = self.scopes.iter().rev().find(|(known, _)| &**known == name) {
            return Some((kind.clone(), Reference::Local));
        }
        if let Some(index) = self.environment.find_variable(name) {
            let variable = self.environment.variables().get(index)?;
            return Some((variable.kind.clone(), Reference::Variable(index)));
        }
        let known = self.environment.find_type(name)?;
        Some((Type::Type(Some(Arc::new(known))), Reference::Type(name.into())))
    }

    fn ident(&mut self, expr: &Expr, name: &str) -> Type {
        match self.find(name) {
            Some((kind, reference)) => {
                self.refer(expr, reference);
                kind
            }
            None => self.undeclared(expr.at, name),
        }
    }

    fn select(&mut self, expr: &Expr, select: &Select) -> Type {
        if let Some(name) = expr.qualified_name()
            && let Some((kind, reference)) = self.find(&name)
        {
            self.refer(expr, reference);
            return kind;
        }
        let kind = self.field(expr.at, &select.operand, &select.field, Presence::Required);
        if select.is_test { Type::Bool } else { self.mapping.substitute(&kind, unify::Unbound::Kept) }
    }

    fn field(&mut self, at: usize, operand: &Expr, field: &str, presence: Presence) -> Type {
        let operand = self.check(operand);
        let operand = self.mapping.substitute(&operand, unify::Unbound::Kept);
        let inner = operand.unwrap_optional();
        let kind = match inner.unwrap_or(&operand) {
            Type::Map(_, value) => (**value).clone(),
            Type::Object(object) => {
                let declared = object.declared().and_then(|declared| declared.member(field));
                let found = match declared {
                    Some(member) => Some(member.declared.checked()),
                    None => self.environment.made_field(object.name(), field).flatten(),
                };
                found.unwrap_or_else(|| {
                    self.report(at, format!("undefined field '{field}'"));
                    Type::Error
                })
            }
            target @ Type::Param(_) => {
                self.mapping.is_assignable(&Type::Dyn, target);
                Type::Dyn
            }
            target => {
                if !target.is_dyn_or_error() {
                    self.report(at, format!("type '{target}' does not support field selection"));
                }
                Type::Dyn
            }
        };
        if inner.is_some() || presence == Presence::Optional { Type::optional(kind) } else { kind }
    }

    fn call(&mut self, expr: &Expr, call: &Call) -> Type {
        if &*call.function == "_?._"
            && let [operand, Expr { kind: Kind::Literal(Literal::String(field)), .. }] = call.args.as_slice()
        {
            let kind = self.field(expr.at, operand, field, Presence::Optional);
            self.refer(expr, Reference::Function { is_qualified: false, overloads: self.first("_?._") });
            return self.mapping.substitute(&kind, unify::Unbound::Kept);
        }
        for arg in &call.args {
            self.check(arg);
        }
        let function = call.function.strip_prefix('.').unwrap_or(&call.function);
        let Some(target) = call.target.as_deref() else {
            return self.overloaded(expr, call, function, Style::Global);
        };
        if let Some(prefix) = target.qualified_name() {
            let whole = format!("{}.{function}", prefix.strip_prefix('.').unwrap_or(&prefix));
            if self.environment.find_functions(&whole).next().is_some() {
                return self.overloaded(expr, call, &whole, Style::Qualified);
            }
        }
        self.check(target);
        self.overloaded(expr, call, function, Style::Member)
    }

    fn first(&self, name: &str) -> Vec<&'static Overload> {
        self.environment.find_functions(name).flat_map(|function| function.overloads.first()).collect()
    }

    fn overloaded(&mut self, expr: &Expr, call: &Call, name: &str, style: Style) -> Type {
        let functions: Vec<&'static Function> = self.environment.find_functions(name).collect();
        if functions.is_empty() {
            return self.undeclared(expr.at, name);
        }
        let target = call.target.as_deref().filter(|_| style == Style::Member);
        let operands: Vec<&Expr> = target.into_iter().chain(&call.args).collect();
        let args: Vec<Type> =
            operands.iter().map(|arg| self.types.get(arg.id).cloned().unwrap_or(Type::Error)).collect();
        if matches!(name, "_&&_" | "_||_") {
            return self.logic(expr, name, &operands, &args);
        }
        let (mut result, mut overloads): (Option<Type>, Vec<&'static Overload>) = (None, Vec::new());
        for overload in functions.iter().flat_map(|function| &function.overloads) {
            if overload.is_member != target.is_some() || overload.args.len() != args.len() {
                continue;
            }
            let fresh = self.mapping.freshen(overload);
            let Some((kind, candidates)) = fresh.split_first() else { continue };
            if !self.mapping.are_assignable(&args, candidates) {
                continue;
            }
            overloads.push(overload);
            let kind = self.mapping.substitute(kind, unify::Unbound::Kept);
            result = Some(match result {
                None => kind,
                Some(known) if known.is_dyn() || known == kind => known,
                Some(_) => Type::Dyn,
            });
        }
        let Some(result) = result else {
            let shown: Vec<String> = args
                .iter()
                .map(|arg| self.mapping.substitute(arg, unify::Unbound::Dyn).to_string())
                .collect();
            let signature = match shown.split_first().filter(|_| target.is_some()) {
                Some((target, rest)) => format!("{target}.({})", rest.join(", ")),
                None => format!("({})", shown.join(", ")),
            };
            self.report(expr.at, format!("found no matching overload for '{name}' applied to '{signature}'"));
            return Type::Error;
        };
        self.refer(expr, Reference::Function { is_qualified: style == Style::Qualified, overloads });
        result
    }

    fn logic(&mut self, expr: &Expr, name: &str, operands: &[&Expr], args: &[Type]) -> Type {
        let mut result = Type::Bool;
        for (operand, arg) in operands.iter().zip(args) {
            if !self.mapping.is_assignable(arg, &Type::Bool) {
                self.mismatch(operand.at, &Type::Bool, arg);
                result = Type::Error;
            }
        }
        let overloads = self.first(name);
        self.refer(expr, Reference::Function { is_qualified: false, overloads });
        result
    }

    /// The type of what is there if an optional is.
    fn unwrapped(&mut self, at: usize, kind: Type) -> Type {
        if let Some(inner) = kind.unwrap_optional() {
            return inner.clone();
        }
        if !kind.is_dyn() {
            self.mismatch(at, &Type::optional(kind.clone()), &kind);
        }
        kind
    }

    fn list(&mut self, elements: &[Element]) -> Type {
        let mut joined = None;
        for element in elements {
            let mut kind = self.check(&element.value);
            if element.is_optional {
                kind = self.unwrapped(element.value.at, kind);
            }
            joined = Some(self.join(joined, kind));
        }
        Type::list(joined.unwrap_or_else(|| self.mapping.fresh()))
    }

    fn map(&mut self, entries: &[Entry]) -> Type {
        let (mut keys, mut values) = (None, None);
        for entry in entries {
            let key = self.check(&entry.key);
            keys = Some(self.join(keys, key));
            let mut value = self.check(&entry.value);
            if entry.is_optional {
                value = self.unwrapped(entry.value.at, value);
            }
            values = Some(self.join(values, value));
        }
        let key = keys.unwrap_or_else(|| self.mapping.fresh());
        Type::map(key, values.unwrap_or_else(|| self.mapping.fresh()))
    }

    /// The type of elements that are of both.
    fn join(&mut self, previous: Option<Type>, current: Type) -> Type {
        let Some(previous) = previous else { return current };
        if self.mapping.is_assignable(&previous, &current) {
            return if is_equal_or_less_specific(&previous, &current) { previous } else { current };
        }
        // Whether that may be is for the validation to say, which knows what it is for.
        Type::Dyn
    }

    fn made(&mut self, expr: &Expr, name: &str, fields: &[Field]) -> Type {
        let Some((Type::Type(Some(kind)), reference)) = self.find(name) else {
            if self.find(name).is_some() {
                self.report(expr.at, format!("'{name}' is not a type"));
                return Type::Error;
            }
            return self.undeclared(expr.at, name);
        };
        let Type::Object(object) = &*kind else {
            self.report(expr.at, format!("'{}' is not a message type", kind.name()));
            return Type::Error;
        };
        self.refer(expr, reference);
        for field in fields {
            let mut value = self.check(&field.value);
            if field.is_optional {
                value = self.unwrapped(field.value.at, value);
            }
            match self.environment.made_field(object.name(), &field.name).flatten() {
                None => self.report(field.at, format!("undefined field '{}'", field.name)),
                Some(expected) if !self.mapping.is_assignable(&expected, &value) => {
                    let name = &field.name;
                    let message = format!(
                        "expected type of field '{name}' is '{expected}' but provided type is '{value}'"
                    );
                    self.report(field.at, message);
                }
                Some(_) => {}
            }
        }
        (*kind).clone()
    }

    fn fold(&mut self, fold: &Fold) -> Type {
        let range = self.check(&fold.range);
        let accu = self.check(&fold.init);
        let range = self.mapping.substitute(&range, unify::Unbound::Kept);
        let (one, two) = match &range {
            Type::List(element) => match fold.second {
                Some(_) => (Type::Int, (**element).clone()),
                None => ((**element).clone(), Type::Error),
            },
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            Type::Dyn | Type::Any | Type::Error | Type::Param(_) => {
                self.mapping.is_assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.report(fold.range.at, message);
                (Type::Error, Type::Error)
            }
        };
        let outside = self.scopes.len();
        self.scopes.push((fold.accu.clone(), accu.clone()));
        self.scopes.push((fold.variable.clone(), one));
        self.scopes.extend(fold.second.iter().map(|second| (second.clone(), two.clone())));
        for (part, expected) in [(&fold.condition, Type::Bool), (&fold.step, accu)] {
            let found = self.check(part);
            if !self.mapping.is_assignable(&expected, &found) {
                self.mismatch(part.at, &expected, &found);
            }
        }
        self.scopes.truncate(outside + 1);
        let result = self.check(&fold.result);
        self.scopes.truncate(outside);
        self.mapping.substitute(&result, unify::Unbound::Kept)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Required,
    Optional,
}

/// How a function is called.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Global,
    /// As a member, but what looks like its target is the first part of its name.
    Qualified,
    Member,
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}
