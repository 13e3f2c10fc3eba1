//! Macros: what is written as a call and becomes a test or a fold.
//!
//! What a macro becomes decides what it costs, so shapes are cel-go's. Source: cel-go's `parser/macro.go`,
//! `ext/{comprehensions,bindings,lists}.go`, `cel/library.go` (`optMap`).

use std::sync::Arc;

use super::Dialect;
use super::ast::{Expr, Fold, Kind, Literal, Select};
use super::factory::Factory;
use crate::problem::Problem;

/// The name of a macro's running result, which nobody can write.
pub(crate) const ACCUMULATOR: &str = "@result";
const UNUSED: &str = "#unused";
const SORT_INPUT: &str = "@__sortBy_input__";

/// A member call as it was written.
pub(super) struct Written {
    pub(super) at: usize,
    pub(super) name: Arc<str>,
    pub(super) target: Expr,
    pub(super) args: Vec<Expr>,
}

/// What is gone over, and the names of what is met.
struct Loop {
    at: usize,
    range: Expr,
    variable: Arc<str>,
    second: Option<Arc<str>>,
}

/// `name(args)`.
pub(super) fn global(factory: &mut Factory, at: usize, name: &str, args: Vec<Expr>) -> Result<Expr, Problem> {
    if name != "has" || args.len() != 1 {
        return Ok(factory.call(at, name, args));
    }
    match args.into_iter().next() {
        Some(Expr { kind: Kind::Select(select), .. }) if !select.is_test => {
            Ok(factory.node(at, Kind::Select(Select { is_test: true, ..select })))
        }
        argument => {
            Err(Problem::new(argument.map_or(at, |argument| argument.at), "invalid argument to has() macro"))
        }
    }
}

/// `target.name(args)`.
pub(super) fn member(factory: &mut Factory, dialect: Dialect, written: Written) -> Result<Expr, Problem> {
    let count = written.args.len();
    match (&*written.name, count) {
        ("all" | "exists" | "exists_one" | "existsOne" | "map" | "filter", 2) | ("map", 3) => {
            one(factory, written)
        }
        ("all" | "exists" | "exists_one" | "existsOne", 3)
        | ("transformList" | "transformMap" | "transformMapEntry", 3 | 4) => two(factory, written),
        ("optMap" | "optFlatMap", 2) => optional(factory, written),
        ("sortBy", 2) => sort_by(factory, written),
        ("bind", 3)
            if dialect.has_bindings
                && matches!(&written.target.kind, Kind::Ident(name) if &**name == "cel") =>
        {
            let Written { at, args, .. } = written;
            let Ok([name, value, result]) = <[Expr; 3]>::try_from(args) else {
                return Err(Problem::new(at, "cel.bind() takes three arguments"));
            };
            let name = simple(&name, "cel.bind() variable names must be simple identifiers")?;
            Ok(bind(factory, at, name, value, result))
        }
        _ => Ok(factory.member(written.at, &written.name, written.target, written.args)),
    }
}

fn simple(expr: &Expr, message: &str) -> Result<Arc<str>, Problem> {
    match &expr.kind {
        Kind::Ident(name) => Ok(name.clone()),
        _ => Err(Problem::new(expr.at, message)),
    }
}

/// A variable of a loop; nobody may write to what a macro counts with.
fn variable(expr: &Expr, message: &str) -> Result<Arc<str>, Problem> {
    let name = simple(expr, message)?;
    if matches!(&*name, "__result__" | ACCUMULATOR) {
        return Err(Problem::new(expr.at, "iteration variable overwrites accumulator variable"));
    }
    Ok(name)
}

/// Macros with a variable for elements or keys.
fn one(factory: &mut Factory, written: Written) -> Result<Expr, Problem> {
    let Written { at, name, target, args } = written;
    let mut args = args.into_iter();
    let (Some(named), Some(first)) = (args.next(), args.next()) else {
        return Err(Problem::new(at, "argument is missing"));
    };
    let message = if matches!(&*name, "map" | "filter") {
        "argument is not an identifier"
    } else {
        "argument must be a simple name"
    };
    let over = Loop { at, range: target, variable: variable(&named, message)?, second: None };
    Ok(match &*name {
        "filter" => collected(factory, over, Some(first), named),
        "map" => match args.next() {
            Some(second) => collected(factory, over, Some(first), second),
            None => collected(factory, over, None, first),
        },
        quantifier => quantified(factory, over, quantifier, first),
    })
}

/// Macros with variables for index and element, or key and value.
fn two(factory: &mut Factory, written: Written) -> Result<Expr, Problem> {
    let Written { at, name, target, args } = written;
    let mut args = args.into_iter();
    let (Some(first), Some(second), Some(body)) = (args.next(), args.next(), args.next()) else {
        return Err(Problem::new(at, "argument is missing"));
    };
    let message = "argument must be a simple name";
    let names = (simple(&first, message)?, simple(&second, message)?);
    if names.0 == names.1 {
        return Err(Problem::new(second.at, format!("duplicate variable name: {}", names.0)));
    }
    let over = Loop {
        at,
        range: target,
        variable: variable(&first, message)?,
        second: Some(variable(&second, message)?),
    };
    let (filter, body) = match args.next() {
        Some(transform) => (Some(body), transform),
        None => (None, body),
    };
    Ok(match &*name {
        "transformList" => collected(factory, over, filter, body),
        "transformMap" => {
            let key = factory.ident(at, &over.variable);
            inserted(factory, over, filter, vec![key, body])
        }
        "transformMapEntry" => inserted(factory, over, filter, vec![body]),
        quantifier => quantified(factory, over, quantifier, body),
    })
}

fn accumulator(factory: &mut Factory, at: usize) -> Expr {
    factory.ident(at, ACCUMULATOR)
}

fn literal(factory: &mut Factory, at: usize, literal: Literal) -> Expr {
    factory.node(at, Kind::Literal(literal))
}

/// `all`, `exists`, `existsOne`.
fn quantified(factory: &mut Factory, over: Loop, quantifier: &str, body: Expr) -> Expr {
    let at = over.at;
    let accu = accumulator(factory, at);
    match quantifier {
        "all" | "exists" => {
            let is_all = quantifier == "all";
            let init = literal(factory, at, Literal::Bool(is_all));
            let condition = if is_all { accu } else { factory.call(at, "!_", vec![accu]) };
            let condition = factory.call(at, "@not_strictly_false", vec![condition]);
            let before = accumulator(factory, at);
            let step = factory.call(at, if is_all { "_&&_" } else { "_||_" }, vec![before, body]);
            let result = accumulator(factory, at);
            fold(factory, over, [init, condition, step, result])
        }
        _ => {
            let init = literal(factory, at, Literal::Int(0));
            let condition = literal(factory, at, Literal::Bool(true));
            let unit = literal(factory, at, Literal::Int(1));
            let more = factory.call(at, "_+_", vec![accu, unit]);
            let same = accumulator(factory, at);
            let step = factory.call(at, "_?_:_", vec![body, more, same]);
            let (count, unit) = (accumulator(factory, at), literal(factory, at, Literal::Int(1)));
            let result = factory.call(at, "_==_", vec![count, unit]);
            fold(factory, over, [init, condition, step, result])
        }
    }
}

/// `map`, `filter`, `transformList`.
fn collected(factory: &mut Factory, over: Loop, filter: Option<Expr>, body: Expr) -> Expr {
    let at = over.at;
    let init = factory.node(at, Kind::List(Vec::new()));
    let accu = accumulator(factory, at);
    let element = super::ast::Element { value: body, is_optional: false };
    let list = factory.node(at, Kind::List(vec![element]));
    let step = factory.call(at, "_+_", vec![accu, list]);
    filtered(factory, over, filter, init, step)
}

/// `transformMap`, `transformMapEntry`.
fn inserted(factory: &mut Factory, over: Loop, filter: Option<Expr>, entry: Vec<Expr>) -> Expr {
    let at = over.at;
    let init = factory.node(at, Kind::Map(Vec::new()));
    let accu = accumulator(factory, at);
    let step = factory.call(at, "cel.@mapInsert", std::iter::once(accu).chain(entry).collect());
    filtered(factory, over, filter, init, step)
}

fn filtered(factory: &mut Factory, over: Loop, filter: Option<Expr>, init: Expr, step: Expr) -> Expr {
    let at = over.at;
    let condition = literal(factory, at, Literal::Bool(true));
    let step = match filter {
        Some(filter) => {
            let same = accumulator(factory, at);
            factory.call(at, "_?_:_", vec![filter, step, same])
        }
        None => step,
    };
    let result = accumulator(factory, at);
    fold(factory, over, [init, condition, step, result])
}

fn fold(factory: &mut Factory, over: Loop, [init, condition, step, result]: [Expr; 4]) -> Expr {
    let Loop { at, range, variable, second } = over;
    let accu = ACCUMULATOR.into();
    factory
        .node(at, Kind::Fold(Box::new(Fold { range, variable, second, accu, init, condition, step, result })))
}

/// A fold over nothing that starts with the value.
fn bind(factory: &mut Factory, at: usize, name: Arc<str>, init: Expr, result: Expr) -> Expr {
    let range = factory.node(at, Kind::List(Vec::new()));
    let condition = literal(factory, at, Literal::Bool(false));
    let step = factory.ident(at, &name);
    let fold =
        Fold { range, variable: UNUSED.into(), second: None, accu: name, init, condition, step, result };
    factory.node(at, Kind::Fold(Box::new(fold)))
}

/// `target.optMap(name, expression)`, `optFlatMap`.
fn optional(factory: &mut Factory, written: Written) -> Result<Expr, Problem> {
    let Written { at, name, target, args } = written;
    let Ok([named, body]) = <[Expr; 2]>::try_from(args) else {
        return Err(Problem::new(at, "argument is missing"));
    };
    let variable = simple(&named, &format!("{name}() variable name must be a simple identifier"))?;
    let again = factory.copy(&target)?;
    let condition = factory.member(at, "hasValue", target, Vec::new());
    let value = factory.member(at, "value", again, Vec::new());
    let bound = bind(factory, at, variable, value, body);
    let yes = if &*name == "optMap" { of_optional(factory, at, "of", vec![bound]) } else { bound };
    let no = of_optional(factory, at, "none", Vec::new());
    Ok(factory.call(at, "_?_:_", vec![condition, yes, no]))
}

fn of_optional(factory: &mut Factory, at: usize, name: &str, args: Vec<Expr>) -> Expr {
    factory.call(at, &format!("optional.{name}"), args)
}

/// `target.sortBy(name, key)`: the keys of all elements are computed first.
fn sort_by(factory: &mut Factory, written: Written) -> Result<Expr, Problem> {
    let Written { at, target, args, .. } = written;
    if matches!(target.kind, Kind::Literal(_) | Kind::Map(_) | Kind::Struct(..)) {
        let message =
            "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
        return Err(Problem::new(target.at, message));
    }
    let input = factory.ident(at, SORT_INPUT);
    let keys = one(factory, Written { at, name: "map".into(), target: input, args })?;
    let input = factory.ident(at, SORT_INPUT);
    let sorted = factory.member(at, "@sortByAssociatedKeys", input, vec![keys]);
    Ok(bind(factory, at, SORT_INPUT.into(), target, sorted))
}
