//! Conditions as they are written: with the time since when they are so.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::plan::Condition;

/// How many there may be. Source: `GatewayStatus.conditions` and the like.
const CONDITIONS_MAX: usize = 8;

/// What of a message is written, in letters: it may quote what users have written. Upstream's definitions take 32,768 bytes.
const MESSAGE_MAX: usize = 2048;

/// Those that are ours to say, also that they are not there any more.
const OURS: [&str; 5] = ["Accepted", "Conflicted", "PartiallyInvalid", "Programmed", "ResolvedRefs"];

/// When something is written, and of which generation of its object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Since {
    pub(super) now: Timestamp,
    pub(super) generation: i64,
}

impl Since {
    /// Conditions beside those of others, which stay. The time is of the last change of what is true.
    pub(super) fn conditions<'a>(
        self,
        before: Option<&Value>,
        wanted: impl IntoIterator<Item = &'a Condition>,
    ) -> Vec<Value> {
        let mut all = before.and_then(Value::as_array).cloned().unwrap_or_default();
        let mut ours = Vec::new();
        for condition in wanted {
            let is_it = |known: &Value| known.get("type").and_then(Value::as_str) == Some(condition.kind);
            let status = if condition.is_true { "True" } else { "False" };
            let known = all.iter().position(is_it).map(|index| all.remove(index));
            let same = known.filter(|known| known.get("status").and_then(Value::as_str) == Some(status));
            let time = same.and_then(|known| known.get("lastTransitionTime").cloned());
            ours.push(json!({
                "type": condition.kind,
                "status": status,
                "reason": condition.reason,
                "message": condition.message.chars().take(MESSAGE_MAX).collect::<String>(),
                "observedGeneration": self.generation,
                "lastTransitionTime": time.unwrap_or_else(|| json!(Time(self.now))),
            }));
        }
        let is_ours = |known: &Value| {
            known.get("type").and_then(Value::as_str).is_some_and(|kind| OURS.contains(&kind))
        };
        all.retain(|known| !is_ours(known));
        ours.extend(all);
        ours.truncate(CONDITIONS_MAX);
        ours
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_keeps_its_time_while_it_is_so_and_is_never_too_long() {
        let since = |now: &str| Since { now: now.parse().unwrap(), generation: 2 };
        let first = since("2026-01-01T12:00:00Z");
        let long = Condition::no("Accepted", "UnsupportedValue", "é".repeat(100_000));
        let written = Value::Array(first.conditions(None, [&long]));
        assert_eq!(written[0]["message"].as_str().map(str::len), Some(2 * MESSAGE_MAX));
        let later = since("2026-01-02T12:00:00Z");
        let other = Condition::no("Accepted", "NoMatchingParent", "");
        let same = later.conditions(Some(&written), [&other]);
        assert_eq!(same[0]["lastTransitionTime"], "2026-01-01T12:00:00Z");
        let now = later.conditions(Some(&written), [&Condition::yes("Accepted", "Accepted")]);
        assert_eq!((now.len(), &now[0]["lastTransitionTime"]), (1, &json!("2026-01-02T12:00:00Z")));
        let garbage = json!([{"type": 7}, "x", {"type": "PartiallyInvalid"}]);
        let kept = later.conditions(Some(&garbage), [&other]);
        assert_eq!(kept.len(), 3, "what others have written stays: {kept:?}");
    }
}
