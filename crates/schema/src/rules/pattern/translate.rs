//! Go's syntax into that of the engine. Groups capture nothing: only whether there is a match is of interest.

use std::iter::Peekable;
use std::str::CharIndices;

use super::class;
use super::error::{PatternError, Rule};
use super::escape::{Escaped, escaped};

/// How often something may be repeated.
const REPEAT_MAX: u32 = 1000;

/// The expression that matches what `source` matches in Go.
pub(super) fn from_go(source: &str) -> Result<String, PatternError> {
    let mut translation = Translation {
        source,
        chars: source.char_indices().peekable(),
        out: String::with_capacity(source.len() + 16),
        last: Last::Nothing,
        depth: 0,
        names: Vec::new(),
    };
    while let Some((at, c)) = translation.chars.next() {
        translation.step(at, c)?;
    }
    match translation.depth {
        0 => Ok(translation.out),
        _ => Err(Rule::Parenthesis.broken(source)),
    }
}

/// What a repetition would repeat.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Nothing,
    Atom,
    /// A repetition, from there.
    Repetition(usize),
}

struct Translation<'s> {
    source: &'s str,
    chars: Peekable<CharIndices<'s>>,
    out: String,
    last: Last,
    depth: usize,
    names: Vec<&'s str>,
}

impl<'s> Translation<'s> {
    fn step(&mut self, at: usize, c: char) -> Result<(), PatternError> {
        match c {
            '\\' => self.escape(at),
            '[' => {
                let end = class::translate(self.source, at, &mut self.out)?;
                self.skip_to(end);
                self.atom("")
            }
            '(' => self.open(at),
            ')' if self.depth == 0 => Err(Rule::UnexpectedParenthesis.broken(self.source)),
            ')' => {
                self.depth -= 1;
                self.atom(")")
            }
            '*' | '+' | '?' => self.repeat(at, at + 1),
            '{' => match repetition(self.rest(at)) {
                Some((counts, length)) => {
                    let text = &self.source[at..at + length];
                    let (min, max) = counts;
                    if min > REPEAT_MAX || max.is_some_and(|max| max > REPEAT_MAX || max < min) {
                        return Err(Rule::RepeatCount.broken(text));
                    }
                    self.repeat(at, at + length)
                }
                None => self.atom("\\{"),
            },
            '|' => {
                self.out.push('|');
                self.last = Last::Nothing;
                Ok(())
            }
            '^' | '$' | '.' => self.atom(c.encode_utf8(&mut [0; 4])),
            literal => self.literal(literal),
        }
    }

    fn rest(&self, at: usize) -> &'s str {
        self.source.get(at..).unwrap_or_default()
    }

    fn skip_to(&mut self, end: usize) {
        while self.chars.next_if(|(at, _)| *at < end).is_some() {}
    }

    fn atom(&mut self, translated: &str) -> Result<(), PatternError> {
        self.out.push_str(translated);
        self.last = Last::Atom;
        Ok(())
    }

    fn literal(&mut self, c: char) -> Result<(), PatternError> {
        let escaped = regex::escape(c.encode_utf8(&mut [0; 4]));
        self.atom(&escaped)
    }

    fn repeat(&mut self, at: usize, end: usize) -> Result<(), PatternError> {
        self.skip_to(end);
        let is_lazy = self.chars.next_if(|(_, c)| *c == '?').is_some();
        let end = end + usize::from(is_lazy);
        let text = self.source.get(at..end).unwrap_or_default();
        match self.last {
            Last::Nothing => return Err(Rule::RepetitionArgument.broken(text)),
            Last::Repetition(from) => {
                let text = self.source.get(from..end).unwrap_or_default();
                return Err(Rule::NestedRepetition.broken(text));
            }
            Last::Atom => {}
        }
        self.out.push_str(text);
        self.last = Last::Repetition(at);
        Ok(())
    }

    fn open(&mut self, at: usize) -> Result<(), PatternError> {
        let rest = self.rest(at);
        let Some(inner) = rest.strip_prefix("(?") else {
            self.depth += 1;
            self.out.push_str("(?:");
            self.last = Last::Nothing;
            return Ok(());
        };
        if let Some(named) = inner.strip_prefix("P<").or_else(|| inner.strip_prefix('<')) {
            let name = named.split_once('>').map(|(name, _)| name).unwrap_or_default();
            let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            let shown = rest.find('>').map_or(rest, |end| &rest[..=end]);
            if !is_name {
                return Err(Rule::NamedCapture.broken(shown));
            }
            if self.names.contains(&name) {
                return Err(Rule::DuplicateName.broken(name));
            }
            self.names.push(name);
            self.depth += 1;
            self.out.push_str("(?:");
            self.last = Last::Nothing;
            self.skip_to(at + shown.len());
            return Ok(());
        }
        self.flags(at, rest)
    }

    /// `(?i)` and `(?i:`.
    fn flags(&mut self, at: usize, rest: &str) -> Result<(), PatternError> {
        let length = rest.bytes().skip(2).take_while(|byte| b"imsU-".contains(byte)).count() + 2;
        let shown: String = rest.chars().take(length + 1).collect();
        let is_well_formed = !shown[2..].contains("-)") && !shown[2..].contains("-:");
        match shown.chars().last() {
            Some(end @ (':' | ')')) if is_well_formed && shown.matches('-').count() < 2 && shown != "(?)" => {
                self.out.push_str(&shown);
                self.skip_to(at + shown.len());
                if end == ':' {
                    self.depth += 1;
                    self.last = Last::Nothing;
                }
                Ok(())
            }
            _ => Err(Rule::PerlSyntax.broken(shown)),
        }
    }

    fn escape(&mut self, at: usize) -> Result<(), PatternError> {
        let rest = self.rest(at);
        if let Some(quoted) = rest.strip_prefix("\\Q") {
            let text = quoted.split_once("\\E").map_or(quoted, |(text, _)| text);
            text.chars().try_for_each(|c| self.literal(c))?;
            self.skip_to(at + 2 + text.len() + 2);
            return Ok(());
        }
        let boundary = match rest.chars().nth(1) {
            Some('A') => Some("\\A"),
            Some('z') => Some("\\z"),
            Some('b') => Some("(?-u:\\b)"),
            Some('B') => Some("(?-u:\\B)"),
            _ => None,
        };
        if let Some(boundary) = boundary {
            self.skip_to(at + 2);
            return self.atom(boundary);
        }
        let (escaped, length) = escaped(rest)?;
        self.skip_to(at + length);
        match escaped {
            Escaped::Char(c) => self.literal(c),
            Escaped::Class(class) => self.atom(&format!("(?-i:[{class}])")),
            Escaped::Unicode(class) => self.atom(&class),
        }
    }
}

type Counts = (u32, Option<u32>);

/// `{2}`, `{2,}` and `{2,3}` at the beginning, and how many bytes that takes; `None` if the brace is itself.
fn repetition(text: &str) -> Option<(Counts, usize)> {
    let (inner, _) = text.strip_prefix('{')?.split_once('}')?;
    let count = |digits: &str| {
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let is_canonical = digits == "0" || !digits.starts_with('0');
        (is_number && is_canonical).then(|| digits.parse().unwrap_or(u32::MAX))
    };
    let counts = match inner.split_once(',') {
        None => {
            let exact = count(inner)?;
            (exact, Some(exact))
        }
        Some((min, "")) => (count(min)?, None),
        Some((min, max)) => (count(min)?, Some(count(max)?)),
    };
    Some((counts, inner.len() + 2))
}
