//! YAML fixtures for the table tests: minimal objects in, plans as text out.

use std::fmt::Write;
use std::sync::Arc;

use controller::{Action, Change, Outcome, Plan};
use jiff::Timestamp;
use serde::de::DeserializeOwned;

/// Reads one YAML object.
pub(crate) fn parse<T: DeserializeOwned>(yaml: &str) -> Arc<T> {
    Arc::new(serde_saphyr::from_str(yaml).unwrap())
}

/// A change from one object to another; an empty text is none.
pub(crate) fn change<K: DeserializeOwned>(old: &str, new: &str) -> Change<K> {
    let read = |yaml: &str| (!yaml.is_empty()).then(|| parse(yaml));
    Change { key: "a".into(), old: read(old), new: read(new), revision: 1 }
}

/// Noon of a day long ago.
pub(crate) fn noon() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

/// A plan as text: a line per action, with a dash before the first of each step.
pub(crate) fn render(plan: &Plan) -> String {
    let mut text = String::new();
    for step in &plan.steps {
        for (number, action) in step.iter().enumerate() {
            text.push_str(if number == 0 { "- " } else { "  " });
            line(&mut text, action);
        }
    }
    for action in &plan.on_failure {
        text.push_str("if that fails: ");
        line(&mut text, action);
    }
    if let Some(delay) = plan.requeue_after {
        writeln!(text, "again after {delay:?}").unwrap();
    }
    text
}

/// The same of what has come of an operation.
pub(crate) fn render_outcome(outcome: &Outcome) -> String {
    let mut text = render(&outcome.plan);
    if let Some(failure) = &outcome.failure {
        writeln!(text, "failed: {}", failure.message).unwrap();
        if let Some(delay) = failure.retry_after {
            writeln!(text, "tried again after {delay:?}").unwrap();
        }
    }
    text
}

fn line(text: &mut String, action: &Action) {
    match action {
        Action::Operation(operation) => writeln!(text, "ask {}", operation.what()),
        Action::Event(event) => {
            writeln!(text, "{} {}: {}", event.event_type.as_str(), event.reason, event.message)
        }
        Action::Request(request) => {
            let slash = if request.subresource.is_empty() { "" } else { "/" };
            let place = format!("{}{slash}{}", request.resource.plural, request.subresource);
            writeln!(text, "{:?} {place} {} {}", request.verb, request.name, request.body)
        }
        Action::Count(_) => writeln!(text, "count"),
    }
    .unwrap();
}
