//! Objects are shown and judged by a form of their definition that holds: not by one whose successor was answered, nor by
//! two at once.

use super::{Breaches, Rule};
use crate::history::{History, Line};

pub(super) fn check(history: &History, breaches: &mut Breaches) {
    for line in &history.lines {
        let holds = match line {
            Line::Shown { forms, since, until } => {
                matches!(forms.as_slice(), [form] if (since..=until).contains(&form))
            }
            Line::Judged { level, is_taken: true, since, .. } => level >= since,
            Line::Judged { level, is_taken: false, until, .. } => level < until,
            _ => true,
        };
        if !holds {
            breaches.add(Rule::DefinitionsHold, format!("{line:?}"));
        }
    }
}
