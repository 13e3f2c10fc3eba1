//! Bounds and multiples. Whole numbers are compared as such where both sides are, others as Go compares them.

use std::cmp::Ordering;

use serde_json::Value;

use super::report::Report;
use crate::go;
use crate::rules::format::Format;
use crate::rules::violation::{Problem, Violation};
use crate::rules::{Bound, Checks};
use crate::walk::path::{Path, Style};

/// A number, whole if it can be.
#[derive(Clone, Copy)]
enum Number {
    Whole(i64),
    Float(f64),
}

/// The bounds of a number, and what its type and the format, if it is looked at, can hold.
pub(super) fn check(
    checks: &Checks,
    format: Option<&Format>,
    value: &Value,
    path: Path<'_>,
    report: &mut Report,
) {
    let Value::Number(json) = value else { return };
    let Some(number) = json.as_i64().map(Number::Whole).or_else(|| json.as_f64().map(Number::Float)) else {
        return;
    };
    report.matched(2);
    let range = Range::of(checks, format);
    let at = || path.to_text(Style::Dotted);
    range.check("Checked", number, path, report);
    let Some(rules) = checks.number.as_deref() else { return };
    if let Some(factor) = rules.multiple_of {
        let factor = range.limit("MultipleOf", number, factor, path, report);
        if !factor.is_positive() {
            let detail =
                || format!("factor MultipleOf declared for {} must be positive: {}", at(), factor.text());
            report.push(|| Violation::new(at(), Problem::Invalid, factor.json(), detail()));
        } else if !is_multiple(number, factor) {
            let detail = || format!("{} in body should be a multiple of {}", at(), factor.text());
            report.push(|| Violation::new(at(), Problem::Invalid, value.clone(), detail()));
        }
    }
    let mut bounded = |bound: Option<Bound>, prefix: &str, words: &str, wrong: Ordering| {
        let Some(bound) = bound else { return };
        let limit = range.limit(prefix, number, bound.at, path, report);
        let order = compare(number, limit);
        if order == Some(wrong) || bound.is_exclusive && order == Some(Ordering::Equal) {
            let equal = if bound.is_exclusive { "" } else { " or equal to" };
            let detail = || format!("{} in body should be {words} than{equal} {}", at(), limit.text());
            report.push(|| Violation::new(at(), Problem::Invalid, value.clone(), detail()));
        }
    };
    bounded(rules.minimum, "Minimum boundary", "greater", Ordering::Less);
    bounded(rules.maximum, "Maximum boundary", "less", Ordering::Greater);
}

impl Number {
    fn of(float: f64) -> Self {
        whole(float).map_or(Self::Float(float), Self::Whole)
    }

    fn is_positive(self) -> bool {
        match self {
            Self::Whole(number) => number > 0,
            Self::Float(number) => number > 0.0,
        }
    }

    fn text(self) -> String {
        match self {
            Self::Whole(number) => number.to_string(),
            Self::Float(number) => go::float(number),
        }
    }

    fn json(self) -> Value {
        match self {
            Self::Whole(number) => number.into(),
            Self::Float(number) => number.into(),
        }
    }

    fn float(self) -> f64 {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "as Go compares whole numbers with others")]
            Self::Whole(number) => number as f64,
            Self::Float(number) => number,
        }
    }
}

/// The number as a whole one, if it is.
fn whole(float: f64) -> Option<i64> {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    #[expect(clippy::cast_possible_truncation, reason = "it has no fraction and is within the limits")]
    (float.fract() == 0.0 && (-LIMIT..LIMIT).contains(&float)).then_some(float as i64)
}

fn compare(number: Number, limit: Number) -> Option<Ordering> {
    match (number, limit) {
        (Number::Whole(number), Number::Whole(limit)) => Some(number.cmp(&limit)),
        _ => number.float().partial_cmp(&limit.float()),
    }
}

fn is_multiple(number: Number, factor: Number) -> bool {
    const EXACT_MAX: f64 = 9_007_199_254_740_991.0;
    const TOLERANCE: f64 = 1e-9;
    if let (Number::Whole(number), Number::Whole(factor)) = (number, factor) {
        return number.checked_rem(factor) == Some(0);
    }
    let (number, factor) = (number.float(), factor.float());
    let times = if factor < 1.0 { 1.0 / factor * number } else { number / factor };
    let off = (times - times.trunc()).abs();
    times.abs() <= EXACT_MAX && (off == 0.0 || off / (times.abs() + times.trunc().abs()) < TOLERANCE)
}

/// What a type and its format can hold.
struct Range<'c> {
    ty: &'static str,
    format: &'c str,
}

impl<'c> Range<'c> {
    fn of(checks: &Checks, format: Option<&'c Format>) -> Self {
        match checks.types {
            [ty @ ("integer" | "number")] => Self { ty, format: format.map_or("", |format| &format.name) },
            _ => Self { ty: "", format: "" },
        }
    }

    fn holds(&self, number: Number) -> bool {
        match (self.ty, self.format, number) {
            ("integer", "int32", Number::Whole(number)) => i32::try_from(number).is_ok(),
            ("integer", "int32", Number::Float(number)) => {
                whole(number).is_some_and(|number| i32::try_from(number).is_ok())
            }
            ("integer", _, Number::Float(number)) => whole(number).is_some(),
            ("number", "float", number) => number.float().abs() <= f64::from(f32::MAX),
            _ => true,
        }
    }

    /// What a number is compared with. For a whole one upstream drops the fraction, unless the type has none.
    fn limit(&self, prefix: &str, number: Number, limit: f64, path: Path<'_>, report: &mut Report) -> Number {
        let is_held = self.check(prefix, Number::of(limit), path, report);
        match (number, whole(limit.trunc())) {
            (Number::Whole(_), Some(limit)) if is_held => Number::Whole(limit),
            _ => Number::Float(limit),
        }
    }

    fn check(&self, prefix: &str, number: Number, path: Path<'_>, report: &mut Report) -> bool {
        if self.holds(number) {
            return true;
        }
        report.push(|| {
            let path = path.to_text(Style::Dotted);
            let format = match self.format {
                "" => "(default format)".to_owned(),
                format => format!("with format {format}"),
            };
            let detail = format!("{prefix} value must be of type {} {format} in {path}", self.ty);
            Violation::new(String::new(), Problem::Invalid, "".into(), detail)
        });
        false
    }
}
