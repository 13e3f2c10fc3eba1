//! What a terminal can show: its width, whether colours are wanted, and text that is wrapped to it.

use std::io::IsTerminal;

/// Text on something that is no terminal is not wrapped.
const UNBOUNDED: usize = usize::MAX;
/// A narrower terminal is taken for one of this width.
const WIDTH_MIN: usize = 40;

/// The width of standard output, in columns.
#[must_use]
pub fn width() -> usize {
    if !std::io::stdout().is_terminal() {
        return UNBOUNDED;
    }
    let size = terminal_size::terminal_size();
    size.map_or(UNBOUNDED, |(width, _)| usize::from(width.0).max(WIDTH_MIN))
}

/// `true` if a stream is to have colours. Source: no-color.org; terminals named `dumb` have none.
#[must_use]
pub fn has_colours(is_terminal: bool, variable: &dyn Fn(&str) -> Option<String>) -> bool {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    is_terminal && !is_set("NO_COLOR") && variable("TERM").as_deref() != Some("dumb")
}

/// The words of `text` in lines of at most `width` columns: the first begins with `first`, the others with as many
/// blanks. Longer words have a line of their own.
#[must_use]
pub fn wrapped(first: &str, text: &str, width: usize) -> String {
    let indent = first.chars().count();
    let (mut out, mut column) = (first.to_owned(), indent);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > indent && column.saturating_add(length).saturating_add(1) > width {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
        }
        if column > indent {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_wrapped_between_words() {
        assert_eq!(wrapped("  a  ", "one two three", 12), "  a  one two\n     three\n");
        assert_eq!(wrapped("> ", "a-very-long-word b", 6), "> a-very-long-word\n  b\n");
        assert_eq!(wrapped("", "one  two\nthree", UNBOUNDED), "one two three\n");
    }

    #[test]
    fn colours_are_for_terminals_that_want_them() {
        let check = |is_terminal, (name, value): (&str, &str), expected| {
            let variable = |asked: &str| (asked == name).then(|| value.to_owned());
            assert_eq!(has_colours(is_terminal, &variable), expected, "{name}={value}");
        };
        check(true, ("TERM", "xterm"), true);
        check(true, ("NO_COLOR", ""), true);
        check(true, ("NO_COLOR", "1"), false);
        check(true, ("TERM", "dumb"), false);
        check(false, ("TERM", "xterm"), false);
    }
}
