//! Label selectors: parsing the query form, reading `LabelSelector` objects, matching.
//!
//! Source: `k8s.io/apimachinery/pkg/labels` and `meta/v1.LabelSelector`.

use std::fmt;

use serde_json::{Map, Value};

use crate::names;

/// A conjunction of requirements; the empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
    is_nothing: bool,
}

/// One rule on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// The comparison for the label's value.
    pub operator: Operator,
}

/// A comparison for a label's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `key in (a,b)`; also `key=a`.
    In(Vec<String>),
    /// `key notin (a,b)`; also `key!=a`. A missing label matches.
    NotIn(Vec<String>),
    /// `key`.
    Exists,
    /// `!key`.
    DoesNotExist,
    /// `key>5`.
    GreaterThan(i64),
    /// `key<5`.
    LessThan(i64),
}

/// A selector that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

impl Selector {
    /// Matches everything.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Matches nothing.
    pub fn nothing() -> Self {
        Self { requirements: Vec::new(), is_nothing: true }
    }

    /// Reads the query form, such as `app=web,tier in (a,b),!legacy`.
    ///
    /// # Errors
    /// Names the first place that cannot be read, or the first key or value that breaks a rule.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut requirements = Parser { tokens: lex(text), next: 0 }.requirements()?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { requirements, is_nothing: false })
    }

    /// The selector that a `LabelSelector` object stands for: an absent one matches nothing, an empty one everything.
    ///
    /// # Errors
    /// When an operator is not one of `In`, `NotIn`, `Exists`, `DoesNotExist`.
    pub fn from_label_selector(selector: Option<&Value>) -> Result<Self, ParseError> {
        let Some(selector) = selector.and_then(Value::as_object) else { return Ok(Self::nothing()) };
        let mut requirements = match selector.get("matchLabels").and_then(Value::as_object) {
            Some(labels) => Self::from_labels(labels).requirements,
            None => Vec::new(),
        };
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            requirements.push(expression_requirement(expression)?);
        }
        Ok(Self { requirements, is_nothing: false })
    }

    /// The selector that asks for exactly each of `labels`, such as a Service's.
    pub fn from_labels(labels: &Map<String, Value>) -> Self {
        let requirements = labels.iter().map(|(key, value)| Requirement {
            key: key.clone(),
            operator: Operator::In(vec![value.as_str().unwrap_or_default().to_owned()]),
        });
        Self { requirements: requirements.collect(), is_nothing: false }
    }

    /// The selector that asks for exactly each of the pairs.
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let requirements = pairs.into_iter().map(|(key, value)| Requirement {
            key: key.to_owned(),
            operator: Operator::In(vec![value.to_owned()]),
        });
        Self { requirements: requirements.collect(), is_nothing: false }
    }

    /// The selector with these requirements.
    pub fn from_requirements(requirements: Vec<Requirement>) -> Self {
        Self { requirements, is_nothing: false }
    }

    /// The requirements, all of which must hold.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// `true` if everything matches.
    pub fn is_everything(&self) -> bool {
        !self.is_nothing && self.requirements.is_empty()
    }

    /// `true` if the labels of an object's JSON form fulfil every requirement.
    pub fn matches(&self, labels: Option<&Map<String, Value>>) -> bool {
        self.matches_with(|key| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str))
    }

    /// `true` if labels, read by `get`, fulfil every requirement.
    pub fn matches_with<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.is_nothing && self.requirements.iter().all(|r| r.operator.matches(get(&r.key)))
    }
}

impl Operator {
    /// `true` if a label with this value, or none, passes.
    pub fn matches(&self, value: Option<&str>) -> bool {
        match self {
            Self::In(values) => value.is_some_and(|v| values.iter().any(|x| x == v)),
            Self::NotIn(values) => !value.is_some_and(|v| values.iter().any(|x| x == v)),
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::GreaterThan(bound) => number(value).is_some_and(|n| n > *bound),
            Self::LessThan(bound) => number(value).is_some_and(|n| n < *bound),
        }
    }
}

fn number(value: Option<&str>) -> Option<i64> {
    value?.parse().ok()
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Requirement { key, operator }) in self.requirements.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            match operator {
                Operator::In(values) if values.len() == 1 => write!(f, "{key}={}", values.concat())?,
                Operator::In(values) => write!(f, "{key} in ({})", values.join(","))?,
                Operator::NotIn(values) if values.len() == 1 => write!(f, "{key}!={}", values.concat())?,
                Operator::NotIn(values) => write!(f, "{key} notin ({})", values.join(","))?,
                Operator::Exists => f.write_str(key)?,
                Operator::DoesNotExist => write!(f, "!{key}")?,
                Operator::GreaterThan(n) => write!(f, "{key}>{n}")?,
                Operator::LessThan(n) => write!(f, "{key}<{n}")?,
            }
        }
        Ok(())
    }
}

fn expression_requirement(expression: &Value) -> Result<Requirement, ParseError> {
    let key = expression.get("key").and_then(Value::as_str).unwrap_or_default().to_owned();
    let values = || {
        let list = expression.get("values").and_then(Value::as_array);
        let mut values: Vec<_> =
            list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        values.sort();
        values
    };
    let operator = match expression.get("operator").and_then(Value::as_str).unwrap_or_default() {
        "In" => Operator::In(values()),
        "NotIn" => Operator::NotIn(values()),
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        other => return Err(ParseError(format!("\"{other}\" is not a valid label selector operator"))),
    };
    Ok(Requirement { key, operator })
}

/// The texts name no field for a key: upstream gives none either.
fn check_key(key: &str) -> Result<(), ParseError> {
    let broken = names::qualified_name(key);
    if broken.is_empty() {
        return Ok(());
    }
    let key = crate::field::quote(key);
    Err(ParseError(format!("<nil>: Invalid value: {key}: {}", broken.join("; "))))
}

/// All that is wrong with a requirement's values.
fn check_values(key: &str, values: &[String]) -> Vec<String> {
    let rows = values.iter().enumerate().map(|(i, value)| (i, value, names::label_value(value)));
    let broken = rows.filter(|(.., broken)| !broken.is_empty());
    let texts = broken.map(|(i, value, broken)| {
        let value = crate::field::quote(value);
        format!("values[{i}][{key}]: Invalid value: {value}: {}", broken.join("; "))
    });
    texts.collect()
}

/// One error, or a list of them. Source: `Aggregate.Error`.
fn together(errors: &[String]) -> Result<(), ParseError> {
    match errors {
        [] => Ok(()),
        [only] => Err(ParseError(only.clone())),
        many => Err(ParseError(format!("[{}]", many.join(", ")))),
    }
}

fn lex(text: &str) -> Vec<String> {
    const SYMBOLS: &str = "()!,=<>";
    let is_space = |c: &char| matches!(c, ' ' | '\t' | '\r' | '\n');
    let mut tokens: Vec<String> = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if is_space(&c) {
            continue;
        }
        let mut token = String::from(c);
        if SYMBOLS.contains(c) {
            if matches!(c, '=' | '!') && chars.peek() == Some(&'=') {
                token.extend(chars.next());
            }
        } else {
            while let Some(c) = chars.next_if(|c| !is_space(c) && !SYMBOLS.contains(*c)) {
                token.push(c);
            }
        }
        tokens.push(token);
    }
    tokens
}

struct Parser {
    tokens: Vec<String>,
    next: usize,
}

impl Parser {
    fn peek(&self) -> &str {
        self.tokens.get(self.next).map_or("", String::as_str)
    }

    fn take(&mut self) -> String {
        let token = self.peek().to_owned();
        self.next += 1;
        token
    }

    fn is_identifier(token: &str) -> bool {
        !token.is_empty() && !token.starts_with(['(', ')', '!', ',', '=', '<', '>'])
    }

    fn requirements(&mut self) -> Result<Vec<Requirement>, ParseError> {
        let mut requirements = Vec::new();
        while self.next < self.tokens.len() {
            let start = self.peek();
            if start != "!" && !Self::is_identifier(start) {
                return Err(ParseError(format!(
                    "found '{start}', expected: !, identifier, or 'end of string'"
                )));
            }
            let requirement = self.requirement();
            requirements.push(
                requirement
                    .map_err(|ParseError(why)| ParseError(format!("unable to parse requirement: {why}")))?,
            );
            match self.take().as_str() {
                "" => break,
                "," if Self::is_identifier(self.peek()) || self.peek() == "!" => {}
                "," => {
                    return Err(ParseError(format!(
                        "found '{}', expected: identifier after ','",
                        self.peek()
                    )));
                }
                other => {
                    return Err(ParseError(format!("found '{other}', expected: ',' or 'end of string'")));
                }
            }
        }
        Ok(requirements)
    }

    fn requirement(&mut self) -> Result<Requirement, ParseError> {
        let is_negated = self.peek() == "!";
        if is_negated {
            self.take();
        }
        let key = self.take();
        if !Self::is_identifier(&key) {
            return Err(ParseError(format!("found '{key}', expected: identifier")));
        }
        check_key(&key)?;
        if is_negated {
            return Ok(Requirement { key, operator: Operator::DoesNotExist });
        }
        if matches!(self.peek(), "" | ",") {
            return Ok(Requirement { key, operator: Operator::Exists });
        }
        let operator = match self.take().as_str() {
            "in" => Operator::In(self.values()?),
            "notin" => Operator::NotIn(self.values()?),
            "=" | "==" => Operator::In(vec![self.exact_value()?]),
            "!=" => Operator::NotIn(vec![self.exact_value()?]),
            ">" => Operator::GreaterThan(self.bound(&key)?),
            "<" => Operator::LessThan(self.bound(&key)?),
            other => {
                return Err(ParseError(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")));
            }
        };
        if let Operator::In(values) | Operator::NotIn(values) = &operator {
            together(&check_values(&key, values))?;
        }
        Ok(Requirement { key, operator })
    }

    fn exact_value(&mut self) -> Result<String, ParseError> {
        match self.peek() {
            "" | "," => Ok(String::new()),
            token if Self::is_identifier(token) => Ok(self.take()),
            token => Err(ParseError(format!("found '{token}', expected: identifier"))),
        }
    }

    fn bound(&mut self, key: &str) -> Result<i64, ParseError> {
        let value = self.exact_value()?;
        value.parse().or_else(|_| {
            let why = "for 'Gt', 'Lt' operators, the value must be an integer";
            let mut errors =
                vec![format!("values[0]: Invalid value: {}: {why}", crate::field::quote(&value))];
            errors.extend(check_values(key, std::slice::from_ref(&value)));
            together(&errors).map(|()| 0)
        })
    }

    fn values(&mut self) -> Result<Vec<String>, ParseError> {
        let open = self.take();
        if open != "(" {
            return Err(ParseError(format!("found '{open}' expected: '('")));
        }
        if !Self::is_identifier(self.peek()) && !matches!(self.peek(), "," | ")") {
            return Err(ParseError(format!("found '{}', expected: ',', ')' or identifier", self.peek())));
        }
        let mut values = Vec::new();
        loop {
            let is_named = Self::is_identifier(self.peek());
            if is_named {
                values.push(self.take());
            } else if matches!(self.peek(), "," | ")") {
                // A missing value stands for the empty one, also upstream.
                values.push(String::new());
            }
            match self.take().as_str() {
                "," => {}
                ")" => break,
                other => {
                    let expected = if is_named { "',' or ')'" } else { "',', or identifier" };
                    return Err(ParseError(format!("found '{other}', expected: {expected}")));
                }
            }
        }
        values.sort();
        values.dedup();
        Ok(values)
    }
}

#[cfg(test)]
mod tests;
