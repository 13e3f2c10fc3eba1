//! Code that was copied: the same tokens, at least so many in a row, in two functions or twice in one.
//!
//! A window slides over every function and its hash is looked up among those before it; a hit is compared token by
//! token and extended as far as the two agree, so that each copy is reported once and whole.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::functions::Function;

/// Shorter runs are idiom rather than copies: ten lines, more or less.
pub(super) const TOKENS_MIN: usize = 95;

/// Multiplier of the rolling hash; odd, so that no bit of a token is lost.
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

/// Two places that say the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Copy {
    first: Place,
    second: Place,
    tokens: usize,
}

/// Where, as people and editors read it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    file: String,
    first_line: usize,
    last_line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}-{}", self.file, self.first_line, self.last_line)
    }
}

impl fmt::Display for Copy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: says the same as {} ({} tokens)", self.second, self.first, self.tokens)
    }
}

/// A token in a function: which function, which token.
type Position = (usize, usize);

/// Every copy of at least `tokens_min` tokens, in the order of the functions.
pub(super) fn find(functions: &[Function], tokens_min: usize) -> Vec<Copy> {
    let hashed: Vec<Vec<u64>> = functions.iter().map(hashes).collect();
    let mut seen: HashMap<u64, Vec<Position>> = HashMap::new();
    let mut copies = Vec::new();
    for (function, tokens) in hashed.iter().enumerate() {
        let windows = windows(tokens, tokens_min);
        let mut reported_to = 0;
        for (start, window) in windows.into_iter().enumerate() {
            let before = seen.entry(window).or_default();
            if start >= reported_to
                && let Some((at, length)) = longest(&hashed, before, (function, start), tokens_min)
            {
                copies.push(Copy {
                    first: place(&functions[at.0], at.1, length),
                    second: place(&functions[function], start, length),
                    tokens: length,
                });
                reported_to = start + length;
            }
            before.push((function, start));
        }
    }
    copies
}

/// The place in `before` that agrees longest with what stands at `here`, and for how many tokens.
fn longest(
    hashed: &[Vec<u64>],
    before: &[Position],
    here: Position,
    tokens_min: usize,
) -> Option<(Position, usize)> {
    let rest = hashed.get(here.0)?.get(here.1..)?;
    let agreed = before.iter().filter_map(|&at| {
        let other = hashed.get(at.0)?.get(at.1..)?;
        // A run that overlaps itself is repetition within one expression.
        let room = if at.0 == here.0 { here.1 - at.1 } else { usize::MAX };
        let length = rest.iter().zip(other).take(room).take_while(|(a, b)| a == b).count();
        (length >= tokens_min).then_some((at, length))
    });
    agreed.max_by_key(|(at, length)| (*length, std::cmp::Reverse(*at)))
}

fn hashes(function: &Function) -> Vec<u64> {
    let hash = |text: &str| {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        hasher.finish()
    };
    function.tokens.iter().map(|token| hash(&token.text)).collect()
}

/// The rolling hash of every window of `length` tokens.
fn windows(tokens: &[u64], length: usize) -> Vec<u64> {
    if length == 0 || tokens.len() < length {
        return Vec::new();
    }
    let first_weight = (1..length).fold(1_u64, |weight, _| weight.wrapping_mul(BASE));
    let add = |hash: u64, token: &u64| hash.wrapping_mul(BASE).wrapping_add(*token);
    let (head, tail) = tokens.split_at(length);
    let mut hash = head.iter().fold(0, add);
    let mut all = vec![hash];
    for (leaving, entering) in tokens.iter().zip(tail) {
        hash = add(hash.wrapping_sub(leaving.wrapping_mul(first_weight)), entering);
        all.push(hash);
    }
    all
}

fn place(function: &Function, start: usize, length: usize) -> Place {
    let line = |index: usize| function.tokens.get(index).map_or(0, |token| token.line);
    Place {
        file: function.file.clone(),
        first_line: line(start),
        last_line: line((start + length).saturating_sub(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::functions;

    /// Files in the order given; a copy is twelve tokens or more.
    fn check(files: &[(&str, &str)], expect: &[&str]) {
        let functions: Vec<Function> = files
            .iter()
            .flat_map(|(name, text)| functions::of_file(name, text).expect("valid Rust"))
            .collect();
        let found: Vec<String> = find(&functions, 12).iter().map(ToString::to_string).collect();
        assert_eq!(found, expect);
    }

    const SUM: &str = "fn sum(all: &[u8]) {\n let mut n = 0;\n for one in all {\n n += one;\n }\n}";
    const RENAMED: &str = "fn total(list: &[u8]) {\n let mut k = 7;\n for x in list {\n k += x;\n }\n}";

    #[test]
    fn a_copy_is_found_whatever_its_variables_are_called() {
        check(&[("a.rs", SUM), ("b.rs", RENAMED)], &["b.rs:1-6: says the same as a.rs:1-6 (19 tokens)"]);
    }

    #[test]
    fn calling_something_else_is_no_copy() {
        check(&[("a.rs", "fn f() { a(b(c(d(e())))) }"), ("b.rs", "fn f() { a(b(x(d(e())))) }")], &[]);
    }

    #[test]
    fn a_copy_within_a_longer_function_has_its_own_lines() {
        let first = "fn f(all: &[u8]) {\n other();\n let mut n = 0;\n for one in all {\n n += one;\n }\n}";
        let second =
            "fn g(list: &[u8]) {\n\n start();\n let mut k = 7;\n for x in list {\n k += x;\n }\n end();\n}";
        check(&[("a.rs", first), ("b.rs", second)], &["b.rs:3-7: says the same as a.rs:2-6 (20 tokens)"]);
    }

    #[test]
    fn the_second_of_two_copies_in_one_function_is_found() {
        let twice = "fn f() {\n go(a(1), b(2), c(3));\n stop();\n go(a(4), b(5), c(6));\n}";
        check(&[("a.rs", twice)], &["a.rs:4-4: says the same as a.rs:2-2 (18 tokens)"]);
    }

    #[test]
    fn repetition_that_overlaps_itself_is_no_copy() {
        check(&[("a.rs", "fn f() { [1, 1, 1, 1, 1, 1, 1, 1] }")], &[]);
    }
}
