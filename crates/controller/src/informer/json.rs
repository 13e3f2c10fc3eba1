//! A reader of JSON, token by token: what is the same for all types, compiled once.
//!
//! What it does not know by a look it has `serde_json` read: escapes, fractions, and values that are passed over.

use std::borrow::Cow;
use std::fmt::Display;

use serde::de::{Error as _, Expected, IgnoredAny, Unexpected};
use serde_json::{Error, Number};

/// How deep values may lie in each other. Source: the bound of `serde_json`.
const DEPTH_MAX: u8 = 127;

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Null,
    True,
    False,
    Number,
    String,
    List,
    Object,
}

/// A place in a text.
pub(super) struct Reader<'de> {
    text: &'de str,
    at: usize,
    depth: u8,
    /// Where a list or an object was left before its end.
    left_at: Option<usize>,
}

impl<'de> Reader<'de> {
    pub(super) fn new(text: &'de str) -> Self {
        Self { text, at: 0, depth: 0, left_at: None }
    }

    /// What begins here.
    pub(super) fn token(&mut self) -> Result<Token, Error> {
        Ok(match self.peek() {
            Some(b'n') => Token::Null,
            Some(b't') => Token::True,
            Some(b'f') => Token::False,
            Some(b'-' | b'0'..=b'9') => Token::Number,
            Some(b'"') => Token::String,
            Some(b'[') => Token::List,
            Some(b'{') => Token::Object,
            Some(_) => return Err(self.error("expected value")),
            None => return Err(self.error("EOF while parsing a value")),
        })
    }

    /// Passes over a word, such as `null`.
    pub(super) fn word(&mut self, word: &str) -> Result<(), Error> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        if !rest.starts_with(word) {
            return Err(self.error("expected ident"));
        }
        self.at += word.len();
        Ok(())
    }

    pub(super) fn number(&mut self) -> Result<Number, Error> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        let text = rest.get(..rest.bytes().take_while(is_part).count()).unwrap_or_default();
        let is_plain =
            text == "0" || !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
        let plain = is_plain.then(|| text.parse::<u64>().ok()).flatten().map(Number::from);
        let number = match plain {
            Some(number) => number,
            None => serde_json::from_str(text).map_err(|_| self.error("invalid number"))?,
        };
        self.at += text.len();
        Ok(number)
    }

    pub(super) fn string(&mut self) -> Result<Cow<'de, str>, Error> {
        let start = self.at;
        let rest = self.text.get(start + 1..).unwrap_or_default();
        let ends = |byte: u8| byte == b'"' || byte == b'\\' || byte < 0x20;
        let length = rest.bytes().position(ends).unwrap_or(rest.len());
        if rest.as_bytes().get(length) == Some(&b'"') {
            self.at = start + length + 2;
            return Ok(Cow::Borrowed(&rest[..length]));
        }
        let mut is_escaped = false;
        let is_end = |byte: u8| {
            let is_end = byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            is_end
        };
        let Some(length) = rest.bytes().position(is_end) else {
            return Err(self.error("EOF while parsing a string"));
        };
        let quoted = &self.text[start..start + length + 2];
        let string = serde_json::from_str::<String>(quoted).map_err(|_| self.error("invalid string"))?;
        self.at = start + quoted.len();
        Ok(Cow::Owned(string))
    }

    /// Passes over a value, whose text it returns.
    pub(super) fn skip(&mut self) -> Result<&'de str, Error> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
        match values.next() {
            Some(Ok(_)) => {}
            Some(Err(_)) => return Err(self.error("invalid value")),
            None => return Err(self.error("EOF while parsing a value")),
        }
        let length = values.byte_offset();
        self.at += length;
        Ok(rest.get(..length).unwrap_or_default())
    }

    /// Enters a list or an object: how deep it lies.
    pub(super) fn open(&mut self) -> Result<u8, Error> {
        if self.depth == DEPTH_MAX {
            return Err(self.error("recursion limit exceeded"));
        }
        self.depth += 1;
        self.at += 1;
        Ok(self.depth)
    }

    /// Leaves what lies at this depth, unless [`Reader::has_more`] has. Something may be left of it, which
    /// [`Reader::end`] tells: here a value would have to be dropped, for each type.
    pub(super) fn leave(&mut self, depth: u8, close: u8) {
        if self.depth >= depth && !matches!(self.has_more(close, true), Ok(false)) {
            self.left_at.get_or_insert(self.at);
        }
    }

    /// Whether there is one more item, of which this is the first or not: the reader stands before it then, else behind the
    /// list or object.
    pub(super) fn has_more(&mut self, close: u8, is_first: bool) -> Result<bool, Error> {
        match self.peek() {
            Some(byte) if byte == close => {
                // A visitor may ask once more behind the end.
                self.depth = self.depth.saturating_sub(1);
                self.at += 1;
                Ok(false)
            }
            Some(_) if is_first => Ok(true),
            Some(b',') => {
                self.at += 1;
                match self.peek() {
                    Some(byte) if byte == close => Err(self.error("trailing comma")),
                    _ => Ok(true),
                }
            }
            Some(_) => Err(self.error("expected `,` or the end")),
            None => Err(self.error("EOF while parsing a list or an object")),
        }
    }

    /// The name of a field, and what is between it and its value.
    pub(super) fn name(&mut self) -> Result<Cow<'de, str>, Error> {
        if self.peek() != Some(b'"') {
            return Err(self.error("key must be a string"));
        }
        let name = self.string()?;
        if self.peek() != Some(b':') {
            return Err(self.error("expected `:`"));
        }
        self.at += 1;
        Ok(name)
    }

    /// The end of the text.
    pub(super) fn end(&mut self) -> Result<(), Error> {
        let rest = self.peek();
        self.at = self.left_at.unwrap_or(self.at);
        if rest.is_none() && self.left_at.is_none() { Ok(()) } else { Err(self.error("trailing characters")) }
    }

    /// The error of a value that is not what is expected.
    pub(super) fn unexpected(&mut self, expected: &dyn Expected) -> Error {
        let token = match self.token() {
            Ok(token) => token,
            Err(error) => return error,
        };
        let (text, number);
        let found = match token {
            Token::Null => Unexpected::Unit,
            Token::True => Unexpected::Bool(true),
            Token::False => Unexpected::Bool(false),
            Token::List => Unexpected::Seq,
            Token::Object => Unexpected::Map,
            Token::String => match self.string() {
                Ok(found) => {
                    text = found;
                    Unexpected::Str(&text)
                }
                Err(error) => return error,
            },
            Token::Number => match self.number() {
                Ok(found) => {
                    number = found;
                    match (number.as_u64(), number.as_i64()) {
                        (Some(number), _) => Unexpected::Unsigned(number),
                        (None, Some(number)) => Unexpected::Signed(number),
                        (None, None) => Unexpected::Float(number.as_f64().unwrap_or_default()),
                    }
                }
                Err(error) => return error,
            },
        };
        self.placed(Error::invalid_type(found, expected))
    }

    /// The error with this place, unless it has one.
    pub(super) fn placed(&self, error: Error) -> Error {
        if error.line() == 0 { self.error(error) } else { error }
    }

    fn error(&self, what: impl Display) -> Error {
        let before = self.text.get(..self.at).unwrap_or_default();
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let column = before.len() - before.rfind('\n').map_or(0, |end| end + 1);
        // `serde_json` takes the place out of the text.
        Error::custom(format_args!("{what} at line {line} column {column}"))
    }

    fn peek(&mut self) -> Option<u8> {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        let space = rest.iter().position(|byte| !matches!(byte, b' ' | b'\n' | b'\t' | b'\r'));
        self.at += space.unwrap_or(rest.len());
        rest.get(space?).copied()
    }

    /// Goes back to where a value began.
    pub(super) fn back(&mut self, skipped: &str) {
        self.at -= skipped.len();
    }
}
