//! Objects are shown and judged by a form of their definition that holds: not by one whose successor was answered, nor by
//! two at once. A kind is missing only where a form without it may hold, and so are its objects.

use super::{Breaches, Rule};
use crate::history::{History, Line};

pub(super) fn check(history: &History, breaches: &mut Breaches) {
    for line in &history.lines {
        let holds = match line {
            Line::Shown { forms, since, until, .. } => {
                matches!(forms.as_slice(), [form] if (since..=until).contains(&form))
            }
            Line::Judged { level, is_taken: true, since, .. } => level >= since,
            Line::Judged { level, is_taken: false, until, .. } => level < until,
            Line::Absent { forms, .. } => !forms.is_empty(),
            _ => true,
        };
        if !holds {
            breaches.add(Rule::DefinitionsHold, format!("{line:?}"));
        }
        if matches!(line, Line::Stored { is_defined: false, objects: 1.., .. }) {
            breaches.add(Rule::NoObjectOutlivesItsKind, format!("{line:?}"));
        }
    }
}
