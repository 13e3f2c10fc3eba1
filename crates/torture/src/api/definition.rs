//! The definition of the workload's custom kind, and how it changes while its objects are written, read and watched.
//!
//! Each form of it has a number. Its objects have one field that has the number in its name and is there by default, and a
//! level that has to be as high: so answers show which form they were made by. Between two forms there also change the
//! version in which objects are stored, the versions that are served, columns and the fields to select by.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::Random;
use http::{Method, StatusCode};
use serde_json::{Map, Value, json};

use super::{AGAIN_AFTER, Client, Failure};
use crate::history::{Call, Line, Recorder};

/// Where the definition is.
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.torture.example.com";
/// Levels of a form.
const LEVELS: u64 = 1_000_000;
/// Between two changes.
const PAUSE_MILLIS_MAX: u64 = 800;
/// How long a change may take, whatever happens to the server.
const CHANGE_MAX: Duration = Duration::from_secs(120);

/// A definition, over all lives of a server.
#[derive(Debug, Default)]
pub struct Definition {
    /// The newest form that was asked for.
    asked: AtomicU64,
    /// The newest form whose change was answered.
    answered: AtomicU64,
    /// Makes levels unique: what did not change is not judged again.
    writes: AtomicU64,
}

impl Definition {
    /// Changes it, or makes it, and waits for the answer.
    pub(super) async fn change(&self, client: &Client) -> Result<(), Failure> {
        let form = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let path = format!("{DEFINITION}?fieldManager=torture&force=true");
        let changed = async {
            loop {
                match client.ask(Method::PATCH, &path, Some(definition(form))).await {
                    Ok((code, _)) if code.is_success() => return Ok::<(), Failure>(()),
                    Ok((code, body)) if code.is_client_error() && !is_passing(code) => {
                        return Err(format!("form {form} is refused: {body}").into());
                    }
                    _ => tokio::time::sleep(AGAIN_AFTER).await,
                }
            }
        };
        tokio::time::timeout(CHANGE_MAX, changed).await??;
        self.answered.store(form, Ordering::SeqCst);
        Ok(())
    }

    /// Changes it again and again until `work` is done.
    pub(super) async fn keep_changing<T>(
        &self,
        client: &Client,
        seed: u64,
        work: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        let random = Random::seeded(seed);
        let changing = async {
            loop {
                tokio::time::sleep(Duration::from_millis(random.below(PAUSE_MILLIS_MAX))).await;
                self.change(client).await?;
            }
        };
        tokio::select! {
            done = work => Ok(done),
            failed = changing => failed,
        }
    }
}

/// Whether a refusal may be none the next time.
fn is_passing(code: StatusCode) -> bool {
    matches!(code, StatusCode::TOO_MANY_REQUESTS | StatusCode::CONFLICT)
}

/// A form of the definition.
fn definition(form: u64) -> Value {
    let (stored, other) = if (form / 2).is_multiple_of(2) { ("v1", "v2") } else { ("v2", "v1") };
    let mut properties = Map::new();
    properties.insert("value".to_owned(), json!({"type": "string"}));
    properties.insert("level".to_owned(), json!({"type": "integer", "minimum": form * LEVELS}));
    properties.insert(format!("form{form}"), json!({"type": "boolean", "default": true}));
    let spec = json!({"type": "object", "default": {}, "properties": properties});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    let column = json!({"name": "Level", "type": "integer", "jsonPath": ".spec.level", "priority": form % 2});
    let version = |name: &str| {
        let mut version = json!({"name": name, "served": name == "v1" || !form.is_multiple_of(3), "storage": name == stored,
            "schema": schema, "additionalPrinterColumns": [column]});
        if form % 4 == 1 {
            version["selectableFields"] = json!([{"jsonPath": ".spec.value"}]);
        }
        version
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.torture.example.com"},
        "spec": {"group": "torture.example.com", "scope": "Namespaced", "versions": [version(stored), version(other)],
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}}})
}

/// What is known of the definition from when something was asked for.
pub(super) struct Window<'d> {
    definition: &'d Definition,
    since: u64,
    /// The level of what is written; now and then too low.
    pub(super) level: u64,
}

impl<'d> Window<'d> {
    /// Begins before something is asked for.
    pub(super) fn open(definition: &'d Definition) -> Self {
        let since = definition.answered.load(Ordering::SeqCst);
        let write = definition.writes.fetch_add(1, Ordering::SeqCst);
        let form = definition.asked.load(Ordering::SeqCst).saturating_sub(u64::from(write.is_multiple_of(5)));
        Self { definition, since, level: form * LEVELS + write % LEVELS }
    }

    /// Takes down which forms an answer shows.
    pub(super) fn close(&self, call: &Call, (code, body): (StatusCode, &Value), recorder: &Recorder) {
        let is_taken = code.is_success();
        let is_judged = is_taken || code == StatusCode::UNPROCESSABLE_ENTITY;
        if matches!(call, Call::Create { .. } | Call::Update { .. }) && is_judged {
            let level = self.level / LEVELS;
            recorder.note(Line::Judged { level, is_taken, since: self.since, until: self.until() });
        }
        match (call, body.get("items").and_then(Value::as_array)) {
            (Call::Delete { .. }, _) => {}
            (_, Some(items)) => items.iter().for_each(|item| self.show(item, recorder)),
            (_, None) => self.show(body, recorder),
        }
    }

    /// Takes down by which form an object is shown.
    pub(super) fn show(&self, object: &Value, recorder: &Recorder) {
        let Some(spec) = object.get("spec").and_then(Value::as_object) else { return };
        let forms = spec.keys().filter_map(|name| name.strip_prefix("form")?.parse().ok()).collect();
        recorder.note(Line::Shown { forms, since: self.since, until: self.until() });
    }

    fn until(&self) -> u64 {
        self.definition.asked.load(Ordering::SeqCst)
    }
}
