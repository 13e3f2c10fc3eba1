//! Characters to tokens.

use std::sync::Arc;

use super::ast::Literal;
use super::unescape::unescape;
use crate::problem::Problem;

/// A token, and the characters it covers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) at: usize,
    pub(super) end: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum TokenKind {
    Ident(Arc<str>),
    /// A name between backticks.
    Escaped(Arc<str>),
    /// Operators, brackets and the word `in`.
    Sign(&'static str),
    Literal(Literal),
    /// A number without its sign, which may make it fit.
    Int(String, u32),
    /// A literal that is none; the reason is told where it stands.
    Wrong(&'static str),
    End,
}

/// Longest first.
const SIGNS: &[&str] = &[
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":",
    "+", "*", "/", "%",
];

/// The tokens of a text, the last of which is `End`; what belongs to none is left out, and told.
pub(super) fn tokens(text: &[char]) -> (Vec<Token>, Vec<Problem>) {
    let mut lexer = Lexer { text, at: 0 };
    let (mut tokens, mut problems) = (Vec::new(), Vec::new());
    loop {
        lexer.skip_blank();
        let at = lexer.at;
        let Some(first) = lexer.peek(0) else {
            tokens.push(Token { kind: TokenKind::End, at, end: at });
            break;
        };
        match lexer.token(first) {
            Some(kind) => tokens.push(Token { kind, at, end: lexer.at }),
            None => {
                lexer.at = lexer.at.max(at + 1);
                let part: String = text.get(at..lexer.at).unwrap_or_default().iter().collect();
                problems
                    .push(Problem::new(at, format!("Syntax error: token recognition error at: '{part}'")));
            }
        }
    }
    (tokens, problems)
}

struct Lexer<'t> {
    text: &'t [char],
    at: usize,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.text.get(self.at + ahead).copied()
    }

    fn skip_blank(&mut self) {
        loop {
            match self.peek(0) {
                Some(' ' | '\t' | '\r' | '\n' | '\u{c}') => self.at += 1,
                Some('/') if self.peek(1) == Some('/') => self.skip(|character| character != '\n'),
                _ => return,
            }
        }
    }

    fn skip(&mut self, is_part: impl Fn(char) -> bool) {
        while self.peek(0).is_some_and(&is_part) {
            self.at += 1;
        }
    }

    fn since(&self, begin: usize) -> String {
        self.text.get(begin..self.at).unwrap_or_default().iter().collect()
    }

    fn token(&mut self, first: char) -> Option<TokenKind> {
        if first.is_ascii_digit() || (first == '.' && self.peek(1).is_some_and(|next| next.is_ascii_digit()))
        {
            return Some(self.number());
        }
        if let Some(prefix) = self.quoted_prefix() {
            return self.quoted(prefix);
        }
        if first.is_ascii_alphabetic() || first == '_' {
            let begin = self.at;
            self.skip(|part| part.is_ascii_alphanumeric() || part == '_');
            let name = self.since(begin);
            return Some(match name.as_str() {
                "in" => TokenKind::Sign("in"),
                "true" => TokenKind::Literal(Literal::Bool(true)),
                "false" => TokenKind::Literal(Literal::Bool(false)),
                "null" => TokenKind::Literal(Literal::Null),
                _ => TokenKind::Ident(name.into()),
            });
        }
        if first == '`' {
            return self.escaped();
        }
        let sign =
            SIGNS.iter().find(|sign| sign.chars().enumerate().all(|(n, part)| self.peek(n) == Some(part)));
        if let Some(sign) = sign {
            self.at += sign.len();
            return Some(TokenKind::Sign(sign));
        }
        // As upstream's lexer, which sees by the second character that it is none of these, and skips both.
        if matches!(first, '=' | '|' | '&') {
            self.at = (self.at + 2).min(self.text.len());
        }
        None
    }

    /// A name between backticks: letters, digits and `_.-/ `.
    fn escaped(&mut self) -> Option<TokenKind> {
        let begin = self.at + 1;
        self.at = begin;
        self.skip(|part| part.is_ascii_alphanumeric() || "_.-/ ".contains(part));
        let name = self.since(begin);
        if self.peek(0) != Some('`') || name.is_empty() {
            return None;
        }
        self.at += 1;
        Some(TokenKind::Escaped(name.into()))
    }

    /// The letters before a quote, if there are such and nothing else: `r`, `b`, both.
    fn quoted_prefix(&self) -> Option<usize> {
        (0..=2).find(|count| {
            let letters: Option<String> =
                (0..*count).map(|n| self.peek(n).map(|letter| letter.to_ascii_lowercase())).collect();
            matches!(letters.as_deref(), Some("" | "r" | "b" | "br" | "rb"))
                && matches!(self.peek(*count), Some('\'' | '"'))
        })
    }

    fn quoted(&mut self, prefix: usize) -> Option<TokenKind> {
        let has =
            |letter: char| (0..prefix).any(|n| self.peek(n).is_some_and(|c| c.eq_ignore_ascii_case(&letter)));
        let (is_raw, is_bytes) = (has('r'), has('b'));
        self.at += prefix;
        let quote = self.peek(0)?;
        let is_long = self.peek(1) == Some(quote) && self.peek(2) == Some(quote);
        let marks = if is_long { 3 } else { 1 };
        self.at += marks;
        let begin = self.at;
        loop {
            match self.peek(0) {
                None => return None,
                Some('\n' | '\r') if !is_long => return None,
                Some('\\') if !is_raw => self.escape()?,
                Some(mark) if mark == quote && (0..marks).all(|n| self.peek(n) == Some(quote)) => break,
                Some(_) => self.at += 1,
            }
        }
        let inner = self.text.get(begin..self.at)?;
        let inner = &newlines(inner);
        self.at += marks;
        let bytes = if is_raw {
            Some(inner.iter().collect::<String>().into_bytes())
        } else {
            unescape(inner, is_bytes)
        };
        let Some(bytes) = bytes else {
            let why = if is_bytes { "unable to unescape string" } else { "invalid unicode code point" };
            return Some(TokenKind::Wrong(why));
        };
        if is_bytes {
            return Some(TokenKind::Literal(Literal::Bytes(bytes.into())));
        }
        let text = String::from_utf8(bytes).ok()?;
        Some(TokenKind::Literal(Literal::String(text.into())))
    }

    /// Goes past an escape sequence, or past the first character by which it is none.
    fn escape(&mut self) -> Option<()> {
        let (digits, base) = match self.peek(1) {
            Some('a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`') => (0, 8),
            Some('0'..='3') => (2, 8),
            Some('x' | 'X') => (2, 16),
            Some('u') => (4, 16),
            Some('U') => (8, 16),
            _ => {
                self.at = (self.at + 2).min(self.text.len());
                return None;
            }
        };
        self.at += 2;
        for _ in 0..digits {
            let digit = self.peek(0)?;
            self.at += 1;
            digit.to_digit(base)?;
        }
        Some(())
    }

    fn number(&mut self) -> TokenKind {
        let begin = self.at;
        if self.peek(0) == Some('0')
            && self.peek(1) == Some('x')
            && self.peek(2).is_some_and(|d| d.is_ascii_hexdigit())
        {
            self.at += 2;
            self.skip(|digit| digit.is_ascii_hexdigit());
            return self.whole(begin + 2, 16);
        }
        self.skip(|digit| digit.is_ascii_digit());
        let mut is_whole = true;
        if self.peek(0) == Some('.') && self.peek(1).is_some_and(|digit| digit.is_ascii_digit()) {
            is_whole = false;
            self.at += 1;
            self.skip(|digit| digit.is_ascii_digit());
        }
        if matches!(self.peek(0), Some('e' | 'E')) {
            let signs = usize::from(matches!(self.peek(1), Some('+' | '-')));
            if self.peek(1 + signs).is_some_and(|digit| digit.is_ascii_digit()) {
                is_whole = false;
                self.at += 1 + signs;
                self.skip(|digit| digit.is_ascii_digit());
            }
        }
        if is_whole {
            return self.whole(begin, 10);
        }
        match self.since(begin).parse::<f64>() {
            Ok(number) if number.is_finite() => TokenKind::Literal(Literal::Double(number)),
            _ => TokenKind::Wrong("invalid double literal"),
        }
    }

    fn whole(&mut self, begin: usize, base: u32) -> TokenKind {
        let digits = self.since(begin);
        if !matches!(self.peek(0), Some('u' | 'U')) {
            return TokenKind::Int(digits, base);
        }
        self.at += 1;
        match u64::from_str_radix(&digits, base) {
            Ok(number) => TokenKind::Literal(Literal::Uint(number)),
            Err(_) => TokenKind::Wrong("invalid uint literal"),
        }
    }
}

/// Characters of a literal, whose lines end alike however they were written.
fn newlines(text: &[char]) -> Vec<char> {
    let is_first = |n: usize| n.checked_sub(1).and_then(|before| text.get(before)) != Some(&'\r');
    let lines = text.iter().enumerate().filter(|(n, character)| **character != '\n' || is_first(*n));
    lines.map(|(_, character)| if *character == '\r' { '\n' } else { *character }).collect()
}
