//! Errors although types fit: literals that no function can read, lists of different types.
//!
//! Source: cel-go's `cel/validator.go`.

use machinery::duration;
use machinery::pattern::Pattern;

use super::Checked;
use crate::functions::printf;
use crate::problem::Problem;
use crate::syntax::ast::{Expr, Kind, Literal};
use crate::types::Type;
use crate::value::Moment;

pub(super) fn validate(checked: &Checked, problems: &mut Vec<Problem>) {
    let mut rest = vec![(&checked.root, false)];
    while let Some((expr, is_exempt)) = rest.pop() {
        literal_argument(expr, problems);
        format_call(checked, expr, problems);
        if !is_exempt {
            aggregate(checked, expr, problems);
        }
        // What is formatted may be of any type.
        let is_format = matches!(&expr.kind, Kind::Call(call) if &*call.function == "format");
        rest.extend(expr.children().into_iter().map(|child| (child, is_exempt || is_format)));
    }
}

/// `duration('x')`, `timestamp('x')`, `matches('(')`: what can be seen to fail.
fn literal_argument(expr: &Expr, problems: &mut Vec<Problem>) {
    let Kind::Call(call) = &expr.kind else { return };
    let Some(Expr { kind: Kind::Literal(literal), at, .. }) = call.args.first() else { return };
    let is_right = match (&*call.function, literal) {
        ("duration", Literal::String(text)) => duration::parse(text).is_ok(),
        ("timestamp", Literal::String(text)) => Moment::parse(text).is_some(),
        ("timestamp", Literal::Int(seconds)) => Moment::new(*seconds, 0).is_some(),
        ("matches", Literal::String(pattern)) => Pattern::new(pattern).is_ok(),
        _ => true,
    };
    if !is_right {
        problems.push(Problem::new(*at, format!("invalid {} argument", call.function)));
    }
}

/// `'%d'.format(['x'])`: a pattern and a list that are written there and do not fit.
fn format_call(checked: &Checked, expr: &Expr, problems: &mut Vec<Problem>) {
    let Kind::Call(call) = &expr.kind else { return };
    let Some(Kind::Literal(Literal::String(pattern))) = call.target.as_ref().map(|target| &target.kind)
    else {
        return;
    };
    let ("format", [Expr { kind: Kind::List(elements), .. }]) = (&*call.function, call.args.as_slice())
    else {
        return;
    };
    let mut rest = pattern.chars().peekable();
    let mut seen = 0;
    while let Some(character) = rest.next() {
        if character != '%' || rest.next_if_eq(&'%').is_some() {
            continue;
        }
        let clause = match elements.get(seen) {
            None if rest.peek().is_some() => Err(format!("index {seen} out of range")),
            element => printf::written(&mut rest).map(|(verb, _)| (verb, element)),
        };
        match clause {
            Ok((verb, Some(element))) => {
                if let Some(other) = unfit(checked, verb, &element.value) {
                    let name = other_name(checked, other);
                    problems.push(Problem::new(other.at, printf::refusal(verb, &name)));
                    return;
                }
            }
            Ok((_, None)) => {}
            Err(why) => {
                problems.push(Problem::new(expr.at, why));
                return;
            }
        }
        seen += 1;
    }
    if elements.len() > seen {
        let given = elements.len();
        let message = format!("too many arguments supplied to string.format (expected {seen}, got {given})");
        problems.push(Problem::new(expr.at, message));
    }
}

/// What of an expression a verb is not for; elements of lists and maps that are written there count for `%s`.
fn unfit<'e>(checked: &Checked, verb: char, expr: &'e Expr) -> Option<&'e Expr> {
    let is_fit = match checked.types.get(expr.id).unwrap_or(&Type::Error) {
        Type::Dyn => true,
        Type::Int | Type::Uint => verb != 'f' && verb != 'e',
        Type::Double => matches!(verb, 's' | 'f' | 'e'),
        Type::String => matches!(verb, 's' | 'f' | 'e' | 'x' | 'X'),
        Type::Bool => matches!(verb, 's' | 'b'),
        Type::Bytes => matches!(verb, 's' | 'x' | 'X'),
        Type::List(_) | Type::Map(..) | Type::Timestamp | Type::Duration | Type::Type(_) | Type::Null => {
            verb == 's'
        }
        _ => false,
    };
    if !is_fit {
        return Some(expr);
    }
    match &expr.kind {
        Kind::List(elements) => elements.iter().find_map(|element| unfit(checked, verb, &element.value)),
        Kind::Map(entries) => entries.iter().find_map(|entry| {
            unfit(checked, verb, &entry.key).or_else(|| unfit(checked, verb, &entry.value))
        }),
        _ => None,
    }
}

/// The name of an expression's type without what it is made of.
fn other_name(checked: &Checked, expr: &Expr) -> String {
    match checked.types.get(expr.id).unwrap_or(&Type::Error) {
        Type::Null => "null_type".to_owned(),
        other => {
            let name = other.declared_name();
            name.split('(').next().unwrap_or_default().to_owned()
        }
    }
}

fn aggregate(checked: &Checked, expr: &Expr, problems: &mut Vec<Problem>) {
    let type_of = |expr: &Expr, is_optional: bool| {
        let kind = checked.types.get(expr.id).unwrap_or(&Type::Error);
        kind.unwrap_optional().filter(|_| is_optional).unwrap_or(kind).clone()
    };
    let mut tell = |at: usize, expected: &Type, found: &Type| {
        problems.push(Problem::new(at, format!("expected type '{expected}' but found '{found}'")));
    };
    match &expr.kind {
        Kind::List(elements) => {
            let mut kinds =
                elements.iter().map(|element| (&element.value, type_of(&element.value, element.is_optional)));
            let Some((_, first)) = kinds.next() else { return };
            if let Some((value, other)) = kinds.find(|(_, kind)| *kind != first) {
                tell(value.at, &first, &other);
            }
        }
        Kind::Map(entries) => {
            let mut kinds = entries
                .iter()
                .map(|entry| (entry, type_of(&entry.key, false), type_of(&entry.value, entry.is_optional)));
            let Some((_, first_key, first_value)) = kinds.next() else { return };
            for (entry, key, value) in kinds {
                if key != first_key {
                    tell(entry.key.at, &first_key, &key);
                }
                if value != first_value {
                    tell(entry.value.at, &first_value, &value);
                }
            }
        }
        _ => {}
    }
}
