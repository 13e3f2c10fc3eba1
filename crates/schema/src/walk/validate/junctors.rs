//! Several ways in which a value must be right. If it is right in none, the way that got furthest says why.

use super::report::Report;
use super::{Parts, Seen, Walk};
use crate::go::quote;
use crate::rules::violation::{Problem, Violation};
use crate::rules::{Junctors, Nested};
use crate::walk::path::{Path, Style};

impl<'a, 'v> Walk<'a, 'v> {
    pub(super) fn junctors(
        &mut self,
        junctors: &'a Junctors,
        value: Seen<'a, 'v>,
        path: Path<'_>,
        report: &mut Report,
    ) {
        self.any_of(&junctors.any_of, value, path, report);
        self.one_of(&junctors.one_of, value, path, report);
        self.all_of(&junctors.all_of, value, path, report);
        if let Some(not) = &junctors.not
            && self.way(not, value, path).is_valid()
        {
            say(report, path, "must not validate the schema (not)");
        }
    }

    fn way(&mut self, way: &'a Nested, value: Seen<'a, 'v>, path: Path<'_>) -> Report {
        let mut report = Report::default();
        // Of its parts upstream does not ask whether they are as they were: only the whole value may be.
        self.check(&way.checks, Parts::Nested(way), Seen::new(value.new), path, &mut report);
        report
    }

    fn any_of(&mut self, ways: &'a [Nested], value: Seen<'a, 'v>, path: Path<'_>, report: &mut Report) {
        let mut best = None;
        for way in ways {
            let found = self.way(way, value, path);
            if found.is_valid() {
                report.merge(found);
                return;
            }
            best = better(best, found);
        }
        if let Some(best) = best {
            say(report, path, "must validate at least one schema (anyOf)");
            report.merge(best);
        }
    }

    fn one_of(&mut self, ways: &'a [Nested], value: Seen<'a, 'v>, path: Path<'_>, report: &mut Report) {
        let (mut best, mut first, mut valid) = (None, None, 0usize);
        for way in ways {
            let found = self.way(way, value, path);
            if found.is_valid() {
                valid += 1;
                first = first.or(Some(found));
            } else {
                best = better(best, found);
            }
        }
        let why = match (valid, best) {
            (0, None) => return,
            (0, Some(best)) => {
                say(report, path, "must validate one and only one schema (oneOf). Found none valid");
                return report.merge(best);
            }
            (1, _) => return first.into_iter().for_each(|first| report.merge(first)),
            (valid, _) => format!("Found {valid} valid alternatives"),
        };
        say(report, path, &format!("must validate one and only one schema (oneOf). {why}"));
    }

    fn all_of(&mut self, ways: &'a [Nested], value: Seen<'a, 'v>, path: Path<'_>, report: &mut Report) {
        let mut valid = 0;
        for way in ways {
            let found = self.way(way, value, path);
            valid += usize::from(found.is_valid());
            report.merge(found);
        }
        if valid < ways.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            say(report, path, &format!("must validate all the schemas (allOf){none}"));
        }
    }
}

fn better(best: Option<Report>, found: Report) -> Option<Report> {
    match best {
        Some(best) if best.matches() >= found.matches() => Some(best),
        _ => Some(found),
    }
}

/// Says it of no field: several ways concern several.
fn say(report: &mut Report, path: Path<'_>, what: &str) {
    report.push(|| {
        let detail = format!("{} {what}", quote(&path.to_text(Style::Dotted)));
        Violation::new(String::new(), Problem::Invalid, "".into(), detail)
    });
}
