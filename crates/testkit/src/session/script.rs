//! Reading a session's text, and comparing output with what it expects.

use anyhow::{Result, bail};

/// How a step must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(i32),
    Any,
}

/// A command line and what it must print.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) line: usize,
    pub(crate) command: String,
    pub(crate) expected: Vec<String>,
    pub(crate) exit: Exit,
}

impl Step {
    pub(crate) fn holds(&self, exit: i32, output: &str) -> bool {
        let ended_well = match self.exit {
            Exit::Any => true,
            Exit::Code(code) => code == exit,
        };
        let lines: Vec<String> =
            output.lines().filter(|line| !is_of_ending(line)).map(blanks_joined).collect();
        let lines = trimmed(&lines);
        let expected: Vec<String> = self.expected.iter().map(|line| blanks_joined(line)).collect();
        ended_well && lines_match(trimmed(&expected), lines)
    }
}

/// Reads a session's steps.
pub(crate) fn parse(script: &str) -> Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    for (index, text) in script.lines().enumerate() {
        if text.starts_with('#') {
            continue;
        }
        if let Some(command) = text.strip_prefix("$ ") {
            let command = command.to_owned();
            steps.push(Step { line: index + 1, command, expected: Vec::new(), exit: Exit::Code(0) });
            continue;
        }
        let Some(step) = steps.last_mut() else {
            if text.trim().is_empty() {
                continue;
            }
            bail!("line {}: output before the first command", index + 1);
        };
        match (text.strip_prefix("> "), text.strip_prefix("? ")) {
            (Some(more), _) if step.expected.is_empty() => {
                step.command.push('\n');
                step.command.push_str(more);
            }
            (_, Some("*")) => step.exit = Exit::Any,
            (_, Some(code)) => step.exit = Exit::Code(code.trim().parse()?),
            _ if text == ">" && step.expected.is_empty() => step.command.push('\n'),
            _ => step.expected.push(text.to_owned()),
        }
    }
    Ok(steps)
}

/// Whether it is what client-go sometimes says when it ends its own watch because it has seen what it waited for.
fn is_of_ending(line: &str) -> bool {
    line.contains("Warning: watch ended with error") && line.contains("context canceled")
}

fn blanks_joined(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Without empty lines at the end.
fn trimmed(mut lines: &[String]) -> &[String] {
    while let [before @ .., last] = lines
        && last.is_empty()
    {
        lines = before;
    }
    lines
}

fn lines_match(expected: &[String], lines: &[String]) -> bool {
    match expected {
        [] => lines.is_empty(),
        [any, rest @ ..] if any == "..." => (0..=lines.len()).any(|skip| lines_match(rest, &lines[skip..])),
        [first, rest @ ..] => lines
            .split_first()
            .is_some_and(|(line, more)| line_matches(first, line) && lines_match(rest, more)),
    }
}

fn line_matches(pattern: &str, line: &str) -> bool {
    let Some((before, rest)) = pattern.split_once("[..]") else { return pattern == line };
    let Some(line) = line.strip_prefix(before) else { return false };
    let starts = line.char_indices().map(|(at, _)| at).chain([line.len()]);
    starts.into_iter().any(|at| line_matches(rest, &line[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_read_into_steps() {
        let steps = parse("# words\n$ one <<E\n> two\n> E\nout\n\n$ three\n? 1\n").unwrap();
        assert_eq!(steps.len(), 2);
        assert_eq!((steps[0].command.as_str(), steps[0].line), ("one <<E\ntwo\nE", 2));
        assert_eq!(steps[0].expected, ["out", ""]);
        assert_eq!(steps[1].exit, Exit::Code(1));
    }

    #[test]
    fn output_is_compared_line_by_line() {
        let cases = [
            ("the same", "a\nb", "a\nb\n", true),
            ("another", "a", "b", false),
            ("a part of a line", "pod/web-[..] deleted", "pod/web-1 deleted", true),
            ("two parts", "[..]x[..]", "axbxc", true),
            ("any lines", "a\n...\nd", "a\nb\nc\nd", true),
            ("no lines", "a\n...", "a", true),
            ("runs of blanks", "NAME   AGE", "NAME AGE", true),
            ("nothing is expected", "", "a", false),
            ("nothing comes", "a", "", false),
            (
                "a watch that its client ended",
                "a",
                "I1 reflector.go:664] \"Warning: watch ended with error\" err=\"(\\\"context canceled\\\")\"\na",
                true,
            ),
        ];
        for (name, expected, output, holds) in cases {
            let step = Step {
                line: 1,
                command: String::new(),
                expected: expected.lines().map(str::to_owned).collect(),
                exit: Exit::Code(0),
            };
            assert_eq!(step.holds(0, output), holds, "{name}");
            assert!(!step.holds(1, output), "{name}: a wrong exit code");
        }
    }
}
