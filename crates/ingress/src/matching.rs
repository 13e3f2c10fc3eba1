//! The conditions of a row on a request beside host and path: its method, its headers, its query.
//!
//! Regular expressions are of RE2's kind: they take time in proportion to what they are matched against. How large one may
//! become is bounded, and so is how many are kept.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use http::{HeaderMap, Method};
use parking_lot::Mutex;
use regex::bytes::{Regex, RegexBuilder};

/// What a compiled expression may take, in bytes; and what is kept while it is matched.
const COMPILED_BYTES_MAX: usize = 64 << 10;
const MATCHING_BYTES_MAX: usize = 128 << 10;
/// How deep one may be nested.
const NESTED_MAX: u32 = 32;
/// Expressions that are remembered.
const KEPT_MAX: usize = 4096;
/// Parameters of a query that are looked at.
const PARAMETERS_MAX: usize = 256;

/// A regular expression that nothing is matched by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it must be a regular expression in RE2's syntax, of moderate size")]
pub struct BadPattern;

/// A regular expression for whole texts.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: Arc<str>,
    regex: Regex,
}

impl Pattern {
    /// The pattern that a text means.
    ///
    /// # Errors
    /// If it is no expression, or too large.
    pub fn new(text: &str) -> Result<Self, BadPattern> {
        let compiled = |text: &str| {
            RegexBuilder::new(text)
                .unicode(false)
                .size_limit(COMPILED_BYTES_MAX)
                .dfa_size_limit(MATCHING_BYTES_MAX)
                .nest_limit(NESTED_MAX)
                .build()
                .map_err(|_| BadPattern)
        };
        // What is none by itself, such as `a)|(b`, is not one in brackets.
        compiled(text)?;
        Ok(Self { text: text.into(), regex: compiled(&format!("^(?:{text})$"))? })
    }

    /// `true` if it is the whole of a text.
    pub fn is_match(&self, text: &[u8]) -> bool {
        self.regex.is_match(text)
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl Hash for Pattern {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl PartialOrd for Pattern {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Pattern {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

/// Expressions that were compiled, so that no plan does it again. Cloning shares them.
#[derive(Clone, Debug, Default)]
pub struct Patterns(Arc<Mutex<HashMap<String, Result<Pattern, BadPattern>>>>);

impl Patterns {
    /// The pattern that a text means.
    ///
    /// # Errors
    /// If it is no expression, or too large.
    pub fn of(&self, text: &str) -> Result<Pattern, BadPattern> {
        let mut known = self.0.lock();
        if let Some(known) = known.get(text) {
            return known.clone();
        }
        if known.len() == KEPT_MAX {
            known.clear();
        }
        let made = Pattern::new(text);
        known.insert(text.to_owned(), made.clone());
        made
    }
}

/// The condition on a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Text {
    /// This.
    Exact(String),
    /// Something like this.
    Pattern(Pattern),
}

impl Text {
    fn is_met(&self, value: &[u8]) -> bool {
        match self {
            Self::Exact(text) => text.as_bytes() == value,
            Self::Pattern(pattern) => pattern.is_match(value),
        }
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(text) => write!(f, "={text}"),
            Self::Pattern(pattern) => write!(f, "~{}", pattern.as_str()),
        }
    }
}

/// The conditions of a row, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct When {
    /// In capitals.
    pub method: Option<String>,
    /// By name in lowercase, each once.
    pub headers: Vec<(String, Text)>,
    /// By name, each once.
    pub queries: Vec<(String, Text)>,
}

impl When {
    /// `true` if a request is so.
    pub fn is_met(&self, facts: &Facts<'_>) -> bool {
        self.method.as_deref().is_none_or(|method| method == facts.method.as_str())
            && self.headers.iter().all(|(name, text)| header(facts.headers, name, text))
            && (self.queries.is_empty() || {
                let known = facts.parameters();
                let is_met = |(name, text): &(String, Text)| {
                    known.get(name.as_str()).is_some_and(|value| text.is_met(value.as_bytes()))
                };
                self.queries.iter().all(is_met)
            })
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(method) = &self.method {
            write!(f, " {method}")?;
        }
        self.headers.iter().try_for_each(|(name, text)| write!(f, " {name}{text}"))?;
        self.queries.iter().try_for_each(|(name, text)| write!(f, " ?{name}{text}"))
    }
}

/// Of several headers of a name the values count as one list.
fn header(headers: &HeaderMap, name: &str, text: &Text) -> bool {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => false,
        (Some(value), None) => text.is_met(value.as_bytes()),
        _ => {
            let all: Vec<&[u8]> = headers.get_all(name).iter().map(http::HeaderValue::as_bytes).collect();
            text.is_met(&all.join(&b","[..]))
        }
    }
}

/// A request, as rows look at it.
#[derive(Debug)]
pub struct Facts<'a> {
    method: &'a Method,
    headers: &'a HeaderMap,
    query: &'a str,
    parameters: OnceCell<HashMap<Cow<'a, str>, Cow<'a, str>>>,
}

impl<'a> Facts<'a> {
    /// Of a request's head.
    pub fn of(method: &'a Method, headers: &'a HeaderMap, query: Option<&'a str>) -> Self {
        Self { method, headers, query: query.unwrap_or_default(), parameters: OnceCell::new() }
    }

    /// Of a query; of several of a name the first counts.
    fn parameters(&self) -> &HashMap<Cow<'a, str>, Cow<'a, str>> {
        self.parameters.get_or_init(|| {
            let mut known = HashMap::new();
            for pair in self.query.split('&').take(PARAMETERS_MAX) {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                known.entry(decoded(name)).or_insert_with(|| decoded(value));
            }
            known
        })
    }
}

/// Escapes are what they stand for, and a plus is a space; what is no escape stays.
fn decoded(text: &str) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text);
    }
    let (mut plain, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match (byte, digits.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (b'%', Some(escaped)) => {
                plain.push(escaped);
                rest = after.get(2..).unwrap_or_default();
                continue;
            }
            (b'+', _) => plain.push(b' '),
            (byte, _) => plain.push(byte),
        }
        rest = after;
    }
    Cow::Owned(String::from_utf8_lossy(&plain).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(text: &str) -> Text {
        Text::Exact(text.to_owned())
    }

    fn pattern(text: &str) -> Text {
        Text::Pattern(Pattern::new(text).unwrap())
    }

    fn check(when: &When, method: &Method, headers: &[(&'static str, &str)], query: &str) -> bool {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        when.is_met(&Facts::of(method, &map, Some(query)))
    }

    #[test]
    fn all_that_is_asked_for_must_be_so() {
        let when = When {
            method: Some("GET".to_owned()),
            headers: vec![("version".to_owned(), exact("two")), ("color".to_owned(), pattern("red|blue"))],
            queries: vec![("animal".to_owned(), exact("big whale")), ("n".to_owned(), pattern("[0-9]+"))],
        };
        let headers = [("version", "two"), ("color", "blue")];
        assert!(check(&when, &Method::GET, &headers, "n=12&animal=big+whale"));
        assert!(check(&when, &Method::GET, &headers, "animal=big%20whale&n=1&animal=x"));
        for (method, headers, query) in [
            (Method::POST, &headers[..], "n=12&animal=big+whale"),
            (Method::GET, &headers[..1], "n=12&animal=big+whale"),
            (Method::GET, &[("version", "two"), ("color", "blueish")][..], "n=12&animal=big+whale"),
            (
                Method::GET,
                &[("version", "two"), ("version", "one"), ("color", "red")][..],
                "n=1&animal=big+whale",
            ),
            (Method::GET, &headers[..], "n=12"),
            (Method::GET, &headers[..], "n=12&animal=x&animal=big+whale"),
            (Method::GET, &headers[..], "n=12x&animal=big+whale"),
        ] {
            assert!(!check(&when, &method, headers, query), "{method} {headers:?} {query}");
        }
        assert!(check(&When::default(), &Method::PUT, &[], ""));
        let list = When { headers: vec![("a".to_owned(), exact("1,2"))], ..When::default() };
        assert!(check(&list, &Method::GET, &[("a", "1"), ("a", "2")], ""));
    }

    #[test]
    fn a_query_is_read_as_forms_write_it() {
        for (text, expected) in
            [("a", "a"), ("a+b", "a b"), ("%41%2b", "A+"), ("%", "%"), ("%4", "%4"), ("%zz+", "%zz ")]
        {
            assert_eq!(decoded(text), expected);
        }
        assert_eq!(decoded("%ff"), "\u{fffd}");
    }

    #[test]
    fn an_expression_is_one_by_itself_for_the_whole_text_and_of_moderate_size() {
        let bomb = "(a{1000}){1000}";
        let deep = format!("{}a{}", "(".repeat(5000), ")".repeat(5000));
        for bad in ["(", "a)|(b", "(?=a)", r"(a)\1", "*", bomb, "((a{100}){100}){100}", &deep, "(?x)a #"] {
            assert_eq!(Pattern::new(bad).err(), Some(BadPattern), "{bad}");
        }
        let rows = [
            ("/prefix/[a-z]+/suffix", "/prefix/abc/suffix", true),
            ("/prefix/[a-z]+/suffix", "/prefix/abc/suffix/more", false),
            ("a|b", "ab", false),
            ("(?i)abc", "ABC", true),
            ("é.*", "émile", true),
            ("", "", true),
            ("", "a", false),
        ];
        for (text, value, expected) in rows {
            assert_eq!(Pattern::new(text).unwrap().is_match(value.as_bytes()), expected, "{text} {value}");
        }
    }

    /// What takes other engines for ever.
    #[test]
    fn no_text_takes_an_expression_long() {
        let nested = Pattern::new("(a+)+b").unwrap();
        assert!(!nested.is_match("a".repeat(64 << 10).as_bytes()));
        let optional = Pattern::new(&format!("{}{}", "a?".repeat(100), "a".repeat(100))).unwrap();
        assert!(optional.is_match("a".repeat(100).as_bytes()));
    }

    #[test]
    fn what_was_compiled_is_kept_within_a_bound() {
        let patterns = Patterns::default();
        for number in 0..=KEPT_MAX {
            patterns.of(&number.to_string()).unwrap();
        }
        assert_eq!(patterns.0.lock().len(), 1);
        assert_eq!((patterns.of("(").err(), patterns.of("(").err()), (Some(BadPattern), Some(BadPattern)));
    }
}
