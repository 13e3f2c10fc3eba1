//! Unified diffs, line by line, three lines of context: those of Python's `difflib`, which upstream's are a port of.
//!
//! Which of several equally good diffs is shown follows from the algorithm: the longest run of equal lines first, then
//! on both sides of it; lines that stand everywhere in a long text begin no run.
//! Source: `github.com/pmezard/go-difflib/difflib`.

use std::collections::HashMap;
use std::ops::Range;

const CONTEXT: usize = 3;
/// From this many lines on, lines that occur in more than a hundredth of them are too common to begin a run.
const LONG: usize = 200;

/// A run of equal lines: where in the first, where in the second, how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    old: usize,
    new: usize,
    len: usize,
}

/// One step: lines of the first that become lines of the second.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    is_equal: bool,
    old: Range<usize>,
    new: Range<usize>,
}

/// What changes between two texts; empty if nothing does.
pub(super) fn unified(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.split('\n').collect(), new.split('\n').collect());
    let mut out = String::new();
    for group in grouped(steps(&old, &new)) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let (before, after) = (first.old.start..last.old.end, first.new.start..last.new.end);
        out.push_str(&format!("@@ -{} +{} @@\n", shown(&before), shown(&after)));
        for step in group {
            if step.is_equal {
                lines(' ', &old, step.old, &mut out);
            } else {
                lines('-', &old, step.old, &mut out);
                lines('+', &new, step.new, &mut out);
            }
        }
    }
    out
}

fn lines(mark: char, of: &[&str], range: Range<usize>, out: &mut String) {
    for line in of.get(range).unwrap_or_default() {
        out.push(mark);
        out.push_str(line);
        out.push('\n');
    }
}

/// A range of lines as headers have it: from 1, with its length unless that is 1.
fn shown(range: &Range<usize>) -> String {
    match range.len() {
        1 => (range.start + 1).to_string(),
        0 => format!("{},0", range.start),
        len => format!("{},{len}", range.start + 1),
    }
}

fn steps(old: &[&str], new: &[&str]) -> Vec<Step> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, line) in new.iter().enumerate() {
        places.entry(line).or_default().push(at);
    }
    if new.len() >= LONG {
        places.retain(|_, at| at.len() <= new.len() / 100 + 1);
    }
    let mut runs = Vec::new();
    // What is still to be looked at, the last first, so that runs come in order.
    let mut open = vec![Ok((0..old.len(), 0..new.len()))];
    while let Some(next) = open.pop() {
        let (in_old, in_new) = match next {
            Err(run) => {
                runs.push(run);
                continue;
            }
            Ok(ranges) => ranges,
        };
        let run = longest(old, new, &places, &in_old, &in_new);
        if run.len > 0 {
            open.push(Ok((run.old + run.len..in_old.end, run.new + run.len..in_new.end)));
            open.push(Err(run));
            open.push(Ok((in_old.start..run.old, in_new.start..run.new)));
        }
    }
    runs.push(Run { old: old.len(), new: new.len(), len: 0 });
    between(&runs)
}

/// The longest run within these ranges, of several the one that begins first in the old text, then in the new one.
fn longest(
    old: &[&str],
    new: &[&str],
    places: &HashMap<&str, Vec<usize>>,
    in_old: &Range<usize>,
    in_new: &Range<usize>,
) -> Run {
    let mut best = Run { old: in_old.start, new: in_new.start, len: 0 };
    if in_old.is_empty() || in_new.is_empty() {
        return best;
    }
    // How long the run is that ends at a line of the new text.
    let mut ending: HashMap<usize, usize> = HashMap::new();
    for i in in_old.clone() {
        let mut next = HashMap::new();
        let at = old.get(i).and_then(|line| places.get(line)).map(Vec::as_slice).unwrap_or_default();
        for j in at.iter().copied().filter(|j| in_new.contains(j)) {
            let len = 1 + j.checked_sub(1).and_then(|before| ending.get(&before)).copied().unwrap_or(0);
            next.insert(j, len);
            if len > best.len {
                best = Run { old: i + 1 - len, new: j + 1 - len, len };
            }
        }
        ending = next;
    }
    // Common lines may make it longer.
    while best.old > in_old.start && best.new > in_new.start && old.get(best.old - 1) == new.get(best.new - 1)
    {
        best = Run { old: best.old - 1, new: best.new - 1, len: best.len + 1 };
    }
    while best.old + best.len < in_old.end
        && best.new + best.len < in_new.end
        && old.get(best.old + best.len) == new.get(best.new + best.len)
    {
        best.len += 1;
    }
    best
}

/// Runs, and what is between them. Runs that meet are one.
fn between(runs: &[Run]) -> Vec<Step> {
    let (mut at_old, mut at_new) = (0, 0);
    let mut steps: Vec<Step> = Vec::new();
    for run in runs {
        if at_old < run.old || at_new < run.new {
            steps.push(Step { is_equal: false, old: at_old..run.old, new: at_new..run.new });
        }
        (at_old, at_new) = (run.old + run.len, run.new + run.len);
        match steps.last_mut() {
            _ if run.len == 0 => {}
            Some(last) if last.is_equal => (last.old.end, last.new.end) = (at_old, at_new),
            _ => steps.push(Step { is_equal: true, old: run.old..at_old, new: run.new..at_new }),
        }
    }
    steps
}

/// Changes that are near each other, with their context.
fn grouped(mut steps: Vec<Step>) -> Vec<Vec<Step>> {
    if let Some(first) = steps.first_mut().filter(|step| step.is_equal) {
        first.old.start = first.old.start.max(first.old.end.saturating_sub(CONTEXT));
        first.new.start = first.new.start.max(first.new.end.saturating_sub(CONTEXT));
    }
    if let Some(last) = steps.last_mut().filter(|step| step.is_equal) {
        last.old.end = last.old.end.min(last.old.start + CONTEXT);
        last.new.end = last.new.end.min(last.new.start + CONTEXT);
    }
    let mut groups = Vec::new();
    let mut group: Vec<Step> = Vec::new();
    for step in steps {
        if step.is_equal && step.old.len() > 2 * CONTEXT {
            let end = |range: &Range<usize>| range.start..range.start + CONTEXT;
            group.push(Step { is_equal: true, old: end(&step.old), new: end(&step.new) });
            groups.push(std::mem::take(&mut group));
            let start = |range: &Range<usize>| range.end - CONTEXT..range.end;
            group.push(Step { is_equal: true, old: start(&step.old), new: start(&step.new) });
        } else {
            group.push(step);
        }
    }
    if !matches!(group.as_slice(), [] | [Step { is_equal: true, .. }]) {
        groups.push(group);
    }
    groups
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(old: &str, new: &str, expect: Expect) {
        expect.assert_eq(&unified(&old.replace(' ', "\n"), &new.replace(' ', "\n")));
    }

    #[test]
    fn equal_texts_differ_in_nothing() {
        check("a b c", "a b c", expect![""]);
    }

    #[test]
    fn changes_have_three_lines_around_them() {
        check(
            "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15",
            "1 2 3 4 x 6 7 8 9 10 11 12 13 14 15 16",
            expect![[r#"
                @@ -2,7 +2,7 @@
                 2
                 3
                 4
                -5
                +x
                 6
                 7
                 8
                @@ -13,3 +13,4 @@
                 13
                 14
                 15
                +16
            "#]],
        );
    }

    #[test]
    fn lines_come_and_go() {
        check(
            "a b",
            "b",
            expect![[r#"
                @@ -1,2 +1 @@
                -a
                 b
            "#]],
        );
        check(
            "a",
            "b",
            expect![[r#"
                @@ -1 +1 @@
                -a
                +b
            "#]],
        );
    }
}
