//! A defect of an expression, as clients of cel-go know it: place, text, and the line with a mark below.

use std::fmt;

/// Problems that are told; more are counted.
const PROBLEMS_MAX: usize = 100;
/// Characters of a line that is shown.
const SNIPPET_MAX: usize = 16384;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The place, in characters from the beginning; `None` if nowhere in particular.
    pub at: Option<usize>,
    /// The message.
    pub message: String,
}

impl Problem {
    pub(crate) fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at: Some(at), message: message.into() }
    }

    pub(crate) fn nowhere(message: impl Into<String>) -> Self {
        Self { at: None, message: message.into() }
    }
}

/// All that is wrong with an expression. `Display` is cel-go's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problems {
    text: String,
    /// Those that are told, by place.
    problems: Vec<Problem>,
    /// How many more there are.
    more: usize,
}

impl Problems {
    pub(crate) fn new(source: &str, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| problem.at.map_or(0, |at| at.saturating_add(1)));
        let more = problems.len().saturating_sub(PROBLEMS_MAX);
        problems.truncate(PROBLEMS_MAX);
        Self { text: source.to_owned(), problems, more }
    }

    /// Each of those that are told, by place.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                writeln!(formatter)?;
            }
            show(formatter, &self.text, problem)?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(formatter, "\n{more} more errors were truncated"),
        }
    }
}

fn show(formatter: &mut fmt::Formatter<'_>, source: &str, problem: &Problem) -> fmt::Result {
    let Some(at) = problem.at else {
        return write!(formatter, "ERROR: <input>:-1:0: {}", problem.message);
    };
    let (mut line, mut column, mut begin) = (1, 0, 0);
    for (count, (index, character)) in source.char_indices().enumerate() {
        if count == at {
            break;
        }
        column += 1;
        if character == '\n' {
            (line, column, begin) = (line + 1, 0, index + 1);
        }
    }
    write!(formatter, "ERROR: <input>:{line}:{}: {}", column + 1, problem.message)?;
    let text = source.get(begin..).and_then(|rest| rest.split('\n').next()).unwrap_or_default();
    if text.len() > SNIPPET_MAX {
        return Ok(());
    }
    write!(formatter, "\n | {}\n | ", text.replace('\t', " "))?;
    let mut characters = text.chars();
    for _ in 0..column {
        match characters.next() {
            Some(character) if !character.is_ascii() => formatter.write_str("\u{ff0e}")?,
            Some(_) => formatter.write_str(".")?,
            None => break,
        }
    }
    let is_wide = characters.next().is_some_and(|character| !character.is_ascii());
    formatter.write_str(if is_wide { "\u{ff3e}" } else { "^" })
}
