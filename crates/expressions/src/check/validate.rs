//! Errors although types fit: literals that no function can read, lists of different types.
//!
//! Source: cel-go's `cel/validator.go`.

use machinery::duration;
use machinery::pattern::Pattern;

use super::Checked;
use crate::problem::Problem;
use crate::syntax::ast::{Expr, Kind, Literal};
use crate::types::Type;
use crate::value::Moment;

pub(super) fn validate(checked: &Checked, problems: &mut Vec<Problem>) {
    let mut rest = vec![(&checked.root, false)];
    while let Some((expr, is_exempt)) = rest.pop() {
        literal_argument(expr, problems);
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
