//! JSONPath as Kubernetes has it: what columns, selectable fields and `kubectl -o jsonpath` find in an object.
//!
//! Only what stands between one pair of braces: no text around it, no ranges. Lengths, nesting and the number of results are
//! bounded.
//! Source: `k8s.io/client-go/util/jsonpath`.

mod find;
mod parse;

use serde_json::Value;

/// How long a path may be.
const BYTES_MAX: usize = 10 * 1024;
/// How deep filters and unions may nest.
const DEPTH_MAX: usize = 8;
/// How many values a step may lead to.
const RESULTS_MAX: usize = 10_000;

/// A path that was parsed.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

/// Where a path goes next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// To a field.
    Field(String),
    /// To all elements or fields.
    Wildcard,
    /// To everything below that has parts, itself included.
    Recursive,
    /// To some elements of a list.
    Slice(Slice),
    /// To where each of several paths leads.
    Union(Vec<Vec<Step>>),
    /// To the elements of a list that a comparison holds for.
    Filter(Vec<Step>, Comparison, Vec<Step>),
    /// To a value of its own.
    Literal(Value),
}

/// Elements of a list; negative numbers count from the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    start: Option<i64>,
    end: Option<i64>,
    /// Whether the end was not written, because one element is meant.
    is_one: bool,
    step: Option<i64>,
}

/// What a filter asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Exists,
    Less,
    Greater,
    Equal,
    NotEqual,
    AtMost,
    AtLeast,
}

/// The reason why a text is no path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

/// The path leads nowhere: an element that is not there, a comparison that cannot be made, or too many values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the path cannot be followed")]
pub struct FindError;

impl JsonPath {
    /// Reads a path such as `.status.conditions[?(@.type=="Ready")].status`, without braces around it.
    ///
    /// # Errors
    /// What is wrong with it, in upstream's words where it has any.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        parse::parse(text).map(|steps| Self { steps })
    }

    /// The names of the fields, if the path consists of nothing else.
    pub fn fields(&self) -> Option<Vec<&str>> {
        let name = |step: &'_ Step| matches!(step, Step::Field(_));
        self.steps.iter().all(name).then(|| self.steps.iter().filter_map(Step::field).collect())
    }

    /// The first value that the path leads to in `value`, if there is one.
    ///
    /// # Errors
    /// As [`FindError`].
    pub fn first(&self, value: &Value) -> Result<Option<Value>, FindError> {
        find::follow(&self.steps, value).map(|found| found.into_iter().next().map(|found| found.into_owned()))
    }
}

impl Step {
    fn field(&self) -> Option<&str> {
        match self {
            Self::Field(name) => Some(name),
            _ => None,
        }
    }
}

/// A value as a path's results are printed: texts as they are, lists and objects as JSON.
pub fn printed(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) => float_text(float),
            None => number.to_string(),
        },
        other => other.to_string(),
    }
}

/// A floating-point number as Go's `%v` has it: with an exponent from a million on, or if it is very small.
fn float_text(number: f64) -> String {
    let size = number.abs();
    if size != 0.0 && !(1e-4..1e6).contains(&size) {
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    number.to_string()
}

#[cfg(test)]
mod tests;
