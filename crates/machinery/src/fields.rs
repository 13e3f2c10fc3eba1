//! Field selectors: `metadata.name=a,spec.nodeName!=b`.
//!
//! Which fields a kind offers is told by its row in the resource table.
//! Source: `k8s.io/apimachinery/pkg/fields`.

/// A conjunction of terms; the empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// All of them must hold.
    pub terms: Vec<Term>,
}

/// `field = value` or `field != value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The field's label, such as `spec.nodeName`.
    pub field: String,
    /// The value that is compared.
    pub value: String,
    /// `!=` instead of `=`.
    pub is_negated: bool,
}

/// A selector that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// A term has no operator.
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    Term {
        /// The whole text.
        selector: String,
        /// The part without an operator.
        term: String,
    },
    /// A backslash stands before something other than `\`, `,` or `=`.
    #[error("invalid field selector: invalid escape sequence: {0}")]
    Escape(String),
    /// A `=` stands in a value without a backslash; upstream tells its number.
    #[error("invalid field selector: unescaped character in value: {}", u32::from(*.0))]
    Unescaped(char),
}

impl Selector {
    /// Reads the query form; `\` escapes `\`, `,` and `=`.
    ///
    /// # Errors
    /// When a term has no operator or an escape is unknown.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut terms = Vec::new();
        let mut parts = split_terms(text);
        // As upstream does, so that of several errors the same one is told.
        parts.sort_unstable();
        for part in parts {
            if part.is_empty() {
                continue;
            }
            let Some((field, value, is_negated)) = split_operator(part) else {
                return Err(ParseError::Term { selector: text.to_owned(), term: part.to_owned() });
            };
            terms.push(Term { field: field.to_owned(), value: unescape(value)?, is_negated });
        }
        Ok(Self { terms })
    }

    /// `true` if everything matches.
    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// `true` if an object, whose fields are read by `get`, fulfils every term.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> std::borrow::Cow<'a, str>) -> bool {
        self.terms.iter().all(|term| (get(&term.field) == term.value.as_str()) != term.is_negated)
    }

    /// The value that `field` must have, if one term asks for exactly one.
    pub fn required(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|t| t.field == field && !t.is_negated).map(|t| t.value.as_str())
    }
}

fn split_terms(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut escaped) = (Vec::new(), 0, false);
    for (i, b) in text.bytes().enumerate() {
        match b {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                parts.extend(text.get(start..i));
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.extend(text.get(start..));
    parts
}

fn split_operator(term: &str) -> Option<(&str, &str, bool)> {
    let at = (0..term.len()).find(|&i| term.is_char_boundary(i) && is_operator(term, i))?;
    let (field, rest) = term.split_at(at);
    let operators = [("!=", true), ("==", false), ("=", false)];
    operators.iter().find_map(|(op, negated)| rest.strip_prefix(op).map(|value| (field, value, *negated)))
}

fn is_operator(term: &str, at: usize) -> bool {
    let rest = term.get(at..).unwrap_or_default();
    rest.starts_with('=') || rest.starts_with("!=")
}

fn unescape(value: &str) -> Result<String, ParseError> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                other => {
                    return Err(ParseError::Escape(format!(
                        "\\{}",
                        other.map_or(String::new(), String::from)
                    )));
                }
            },
            '=' => return Err(ParseError::Unescaped(c)),
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
