//! YAML fixtures for the table tests: minimal objects in, a plan as text out.

pub(crate) mod world;

use std::any::TypeId;
use std::fmt::Write;
use std::sync::Arc;

use controller::informer::known;
use controller::pod::Pod;
use controller::request::{ApiRequest, Verb};
use controller::{Action, AskError, Plan, Question};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use serde::de::DeserializeOwned;

/// Reads one YAML value; of Pods what controllers know of them.
pub(crate) fn parse<T: DeserializeOwned + 'static>(yaml: &str) -> T {
    let value: serde_json::Value = serde_saphyr::from_str(yaml).unwrap();
    let (kind, pods) = (TypeId::of::<T>(), [TypeId::of::<Pod>(), TypeId::of::<Vec<Pod>>()]);
    if pods.contains(&kind) {
        return known(&value.to_string(), &crate::transform::of_pods()).unwrap();
    }
    serde_json::from_value(value).unwrap()
}

/// Reads a YAML list of objects.
pub(crate) fn list<T: DeserializeOwned + 'static>(yaml: &str) -> Vec<Arc<T>> {
    parse::<Vec<T>>(yaml).into_iter().map(Arc::new).collect()
}

/// What a server says that does not answer.
pub(crate) fn unanswered(why: &str) -> AskError {
    AskError::Refused { code: 503, message: why.to_owned() }
}

/// What a server says that does not do what it is asked for.
pub(crate) fn refused(why: &str) -> Status {
    Status { message: Some(why.to_owned()), ..Status::default() }
}

/// Noon of a day long ago.
pub(crate) fn noon() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

/// A plan as text: a block of lines per step.
pub(crate) fn render(plan: &Plan) -> String {
    let mut text = String::new();
    for step in &plan.steps {
        if step.iter().all(|action| matches!(action, Action::Count(_))) {
            continue;
        }
        text.push_str("step\n");
        for action in step {
            match action {
                Action::Count(_) => {}
                Action::Operation(operation) => writeln!(text, "  {}", operation.what()).unwrap(),
                Action::Request(request) => writeln!(text, "  {}", line(request)).unwrap(),
                Action::Event(event) => {
                    writeln!(text, "  {} {}: {}", event.event_type.as_str(), event.reason, event.message)
                        .unwrap();
                }
            }
        }
    }
    for question in &plan.questions {
        text.push_str(&match question {
            Question::Resources => "ask which resources there are\n".to_owned(),
            Question::Content(resource, namespace) => {
                format!("ask which {} there are in {namespace}\n", resource.plural)
            }
            Question::Object(resource, _, name, _) => format!("ask for {} {name}\n", resource.plural),
            Question::Scale(resource, _, name) => {
                format!("ask for the scale of {} {name}\n", resource.plural)
            }
            Question::Document(path) => format!("ask for {path}\n"),
        });
    }
    if let Some(delay) = plan.requeue_after {
        writeln!(text, "again after {delay:?}").unwrap();
    }
    text
}

fn line(request: &ApiRequest) -> String {
    let (verb, shows_body) = match request.verb {
        Verb::Create => ("create", false),
        Verb::Update => ("update", true),
        Verb::Patch(_) => ("patch", true),
        Verb::RequireAbsent => ("require no", false),
        Verb::RequireAllowed => ("require allowed", true),
        Verb::Delete => ("delete", false),
    };
    let slash = if request.subresource.is_empty() { "" } else { "/" };
    let name = if request.name.is_empty() { "(generated)" } else { &request.name };
    let body = match (shows_body, request.verb, request.subresource) {
        (false, ..) => String::new(),
        // Of what else is sent, a server takes nothing but annotations.
        (true, Verb::Update, "status") => {
            let annotations = request.body.pointer("/metadata/annotations");
            let annotations = annotations.map(|all| format!(" annotations {all}")).unwrap_or_default();
            format!("{annotations} {}", request.body["status"])
        }
        (true, Verb::Update, "scale") => format!(" {}", request.body["spec"]),
        (true, ..) => format!(" {}", request.body),
    };
    format!("{verb} {}{slash}{} {name}{body}", request.resource.plural, request.subresource)
}
