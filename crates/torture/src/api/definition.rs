//! The definition of the workload's custom kind, and how it comes, changes and goes while its objects are written, read and
//! watched.
//!
//! Each form of it has a number. Its objects have one field that has the number in its name and is there by default, and a
//! level that has to be as high; discovery and OpenAPI name the number, too: so answers show which form they were made by.
//! Between two forms there also change the version in which objects are stored, the versions that are served, columns and the
//! fields to select by. Some numbers are of no form at all: the definition is deleted, and with it all objects.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::Random;
use http::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use store::{Store, StoreError};

use super::objects::Version;
use super::{AGAIN_AFTER, Client, Failure};
use crate::history::{Call, Id, Line, Outcome, Recorder};
use crate::workload;

/// Where the definition is.
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.torture.example.com";
/// The same in the store.
const KEY: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/things.torture.example.com";
/// Levels of a form.
const LEVELS: u64 = 1_000_000;
/// Between two changes.
const PAUSE_MILLIS_MAX: u64 = 800;
/// Between two looks at what the server tells of its kinds.
const LOOK_MILLIS_MAX: u64 = 1000;
/// How long a change may take, whatever happens to the server: where one of five requests to the store is lost, the end of a
/// definition, which takes ten of them in a row, is tried again every half a minute for a long time.
const CHANGE_MAX: Duration = Duration::from_secs(3600);
/// Documents that tell of the kind, and of which of its versions, if not of all.
const DOCUMENTS: [(&str, &str, Option<&str>); 6] = [
    ("/apis/torture.example.com/v1", "application/json", Some("v1")),
    ("/apis/torture.example.com/v2", "application/json", Some("v2")),
    ("/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", None),
    ("/openapi/v3/apis/torture.example.com/v1", "application/json", Some("v1")),
    ("/openapi/v3/apis/torture.example.com/v2", "application/json", Some("v2")),
    ("/openapi/v2", "application/json", None),
];

/// A step in the life of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// It changes.
    Changes,
    /// It goes now and then, and comes again.
    ComesAndGoes,
}

/// The servers of the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Servers {
    /// What is answered holds from then on.
    One,
    /// Others than the one that answered follow later, and so does one whose store hardly answers.
    Several,
}

/// A definition, over all lives of a server.
#[derive(Debug)]
pub struct Definition {
    course: Course,
    servers: Servers,
    /// The newest form that was asked for.
    asked: AtomicU64,
    /// The newest form whose change was answered.
    answered: AtomicU64,
    /// Makes levels unique: what did not change is not judged again.
    writes: AtomicU64,
    /// The end that has begun and was not seen: its name in the history.
    ending: Mutex<Option<Id>>,
}

impl Definition {
    /// Nothing is defined yet.
    #[must_use]
    pub fn new(course: Course, servers: Servers) -> Self {
        let (asked, answered, writes) = Default::default();
        Self { course, servers, asked, answered, writes, ending: Mutex::default() }
    }

    /// Sees to it that there is one.
    pub(super) async fn begin(&self, client: &Client, recorder: &Recorder) -> Result<(), Failure> {
        loop {
            self.change(client, recorder).await?;
            if !self.is_none(self.answered.load(Ordering::SeqCst)) {
                return Ok(());
            }
        }
    }

    /// Changes it, makes it or deletes it, and waits for the answer. What a crash has broken off is done first.
    async fn change(&self, client: &Client, recorder: &Recorder) -> Result<(), Failure> {
        let asked = self.asked.load(Ordering::SeqCst);
        let form = if self.ending.lock().is_some() { asked } else { asked + 1 };
        let changed = async {
            match self.is_none(form) {
                true => self.end(client, form, recorder).await,
                false => self.apply(client, form).await,
            }
        };
        match tokio::time::timeout(CHANGE_MAX, changed).await {
            Ok(changed) => changed?,
            Err(_) => {
                let there = client.ask(Method::GET, DEFINITION, None).await;
                let is_told_of = self.is_told_of(client).await;
                return Err(format!("form {form} takes too long; told of: {is_told_of}; {there:?}").into());
            }
        }
        self.answered.store(form, Ordering::SeqCst);
        Ok(())
    }

    async fn apply(&self, client: &Client, form: u64) -> Result<(), Failure> {
        self.asked.store(form, Ordering::SeqCst);
        let path = format!("{DEFINITION}?fieldManager=torture&force=true");
        loop {
            match client.ask(Method::PATCH, &path, Some(definition(form))).await {
                Ok((code, _)) if code.is_success() => return Ok(()),
                Ok((code, body)) if code.is_client_error() && !is_passing(code) => {
                    return Err(format!("form {form} is refused: {body}").into());
                }
                _ => tokio::time::sleep(AGAIN_AFTER).await,
            }
        }
    }

    /// Deletes it, waits until it is gone, and then takes down when that was.
    async fn end(&self, client: &Client, form: u64, recorder: &Recorder) -> Result<(), Failure> {
        let begun = *self.ending.lock();
        let id = match begun {
            Some(id) => id,
            None => {
                let after = client.newest(CHANGE_MAX).await?;
                let (id, (start, end)) = (recorder.id(), client.objects.range());
                recorder.note(Line::Invoke(id, Call::End { start, end, after }));
                *self.ending.lock() = Some(id);
                self.asked.store(form, Ordering::SeqCst);
                id
            }
        };
        loop {
            match client.ask(Method::GET, DEFINITION, None).await {
                Ok((StatusCode::NOT_FOUND, _)) => break,
                Ok((StatusCode::OK, there)) if there.pointer("/metadata/deletionTimestamp").is_none() => {
                    // A request that comes late must not end the next one.
                    let uid = there.pointer("/metadata/uid");
                    let options = json!({"preconditions": {"uid": uid}});
                    drop(client.ask(Method::DELETE, DEFINITION, Some(options)).await);
                }
                _ => {}
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
        // Whoever served the kind follows without having been asked.
        while self.is_told_of(client).await {
            tokio::time::sleep(AGAIN_AFTER).await;
        }
        let gone = client.newest(CHANGE_MAX).await?;
        recorder.note(Line::Return(id, Outcome::Newest(gone)));
        *self.ending.lock() = None;
        Ok(())
    }

    /// Whether discovery still has the kind, or nobody says.
    async fn is_told_of(&self, client: &Client) -> bool {
        let (path, accept, _) = DOCUMENTS[0];
        !matches!(client.text(path, accept).await, Ok((StatusCode::NOT_FOUND, _)))
    }

    /// Changes it again and again until `work` is done, and looks at what the server tells of it.
    pub(super) async fn keep_changing<T>(
        &self,
        client: &Client,
        (seed, recorder): (u64, &Recorder),
        work: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        let random = Random::seeded(seed);
        let changing = async {
            loop {
                tokio::time::sleep(Duration::from_millis(random.below(PAUSE_MILLIS_MAX))).await;
                self.change(client, recorder).await?;
            }
        };
        let looking = async {
            for turn in 0.. {
                tokio::time::sleep(Duration::from_millis(random.below(LOOK_MILLIS_MAX))).await;
                self.look(client, turn, recorder).await;
            }
        };
        let done = tokio::select! {
            done = work => done,
            failed = changing => return failed,
            () = looking => return Err("nobody looks any more".into()),
        };
        // What was broken off is finished: whoever reads and writes on needs the kind.
        self.begin(client, recorder).await?;
        Ok(done)
    }

    /// Takes down which form one of the documents tells of.
    async fn look(&self, client: &Client, turn: usize, recorder: &Recorder) {
        let Some((path, accept, version)) = DOCUMENTS.get(turn % DOCUMENTS.len()) else { return };
        let window = Window::open(self);
        let Ok((code, bytes)) = client.text(path, accept).await else { return };
        let forms = forms_in(&String::from_utf8_lossy(&bytes));
        if code.is_success() && !forms.is_empty() {
            window.note(path, forms, recorder);
        } else if code.is_success() || code == StatusCode::NOT_FOUND {
            let lacks = |form| version.is_some_and(|version| !serves(form, version));
            window.miss(format!("{code} to {path}"), lacks, recorder);
        }
    }

    fn is_none(&self, form: u64) -> bool {
        form == 0 || self.course == Course::ComesAndGoes && form.is_multiple_of(4)
    }
}

/// Whether a form, if it is one, has a version that is served.
fn serves(form: u64, version: &str) -> bool {
    version == "v1" || !form.is_multiple_of(3)
}

/// The numbers of forms that a text names.
fn forms_in(text: &str) -> Vec<u64> {
    let named = text.split("\"form").skip(1);
    let named = named.filter_map(|rest| rest.split_once('"')?.0.parse().ok());
    named.collect::<BTreeSet<u64>>().into_iter().collect()
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
        let mut version = json!({"name": name, "served": serves(form, name), "storage": name == stored,
            "schema": schema, "additionalPrinterColumns": [column]});
        if form % 4 == 1 {
            version["selectableFields"] = json!([{"jsonPath": ".spec.value"}]);
        }
        version
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.torture.example.com"},
        "spec": {"group": "torture.example.com", "scope": "Namespaced", "versions": [version(stored), version(other)],
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList",
                "categories": [format!("form{form}")]}}})
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
        let since = match definition.servers {
            Servers::One => definition.answered.load(Ordering::SeqCst),
            Servers::Several => 0,
        };
        let write = definition.writes.fetch_add(1, Ordering::SeqCst);
        let form = definition.asked.load(Ordering::SeqCst).saturating_sub(u64::from(write.is_multiple_of(5)));
        Self { definition, since, level: form * LEVELS + write % LEVELS }
    }

    /// Takes down which forms an answer shows.
    pub(super) fn close(
        &self,
        call: &Call,
        version: Version,
        code: StatusCode,
        body: &Value,
        recorder: &Recorder,
    ) {
        let is_taken = code.is_success();
        let is_judged = is_taken || code == StatusCode::UNPROCESSABLE_ENTITY;
        if matches!(call, Call::Create { .. } | Call::Update { .. }) && is_judged {
            let level = self.level / LEVELS;
            recorder.note(Line::Judged { level, is_taken, since: self.since, until: self.until() });
        }
        let is_named = body.pointer("/details/name").is_some();
        match (call, body.get("items").and_then(Value::as_array)) {
            (_, _) if code == StatusCode::NOT_FOUND && !is_named => {
                let asked = format!("{call:?} of {}: {body}", version.name());
                self.miss(asked, |form| !serves(form, version.name()), recorder);
            }
            (Call::Create { .. }, _) if code == StatusCode::METHOD_NOT_ALLOWED => {
                self.miss(format!("{call:?}: {body}"), |_| false, recorder);
            }
            (Call::Delete { .. }, _) => {}
            (_, Some(items)) => items.iter().for_each(|item| self.show("a list", item, recorder)),
            (_, None) => self.show(&format!("{call:?}"), body, recorder),
        }
    }

    /// Takes down by which form an object is shown.
    pub(super) fn show(&self, by: &str, object: &Value, recorder: &Recorder) {
        let Some(spec) = object.get("spec").and_then(Value::as_object) else { return };
        let forms = spec.keys().filter_map(|name| name.strip_prefix("form")?.parse().ok()).collect();
        self.note(by, forms, recorder);
    }

    fn note(&self, by: &str, forms: Vec<u64>, recorder: &Recorder) {
        recorder.note(Line::Shown { by: by.to_owned(), forms, since: self.since, until: self.until() });
    }

    /// Takes down that the kind is not there, as is right where there is no definition, or one that `lacks` what was asked for.
    fn miss(&self, asked: String, lacks: impl Fn(u64) -> bool, recorder: &Recorder) {
        let (since, until) = (self.since, self.until());
        let forms = (since..=until).filter(|form| self.definition.is_none(*form) || lacks(*form)).collect();
        recorder.note(Line::Absent { asked, forms, since, until });
    }

    fn until(&self) -> u64 {
        self.definition.asked.load(Ordering::SeqCst)
    }
}

/// Takes down what a store has had of the kind at each of the revisions that it remembers.
///
/// # Errors
/// If it cannot be read.
pub async fn take_stock(store: &dyn Store, recorder: &Recorder) -> Result<(), StoreError> {
    let (first, end) = super::objects::custom().range();
    let left = workload::remembered(store, store.newest().await?).await?;
    let (mut is_defined, mut objects) = (false, BTreeSet::new());
    if left.after > 0 {
        is_defined = !store.range(KEY, &format!("{KEY}0"), Some(left.after), 0).await?.entries.is_empty();
        let there = store.range(&first, &end, Some(left.after), 0).await?.entries;
        objects.extend(there.into_iter().map(|entry| entry.key));
    }
    for event in left.events {
        let (is_there, key) = (event.entry.is_some(), event.key);
        if key == KEY {
            is_defined = is_there;
        } else if (&first..&end).contains(&&key) {
            if is_there {
                objects.insert(key)
            } else {
                objects.remove(&key)
            };
        } else {
            continue;
        }
        recorder.note(Line::Stored { revision: event.revision, is_defined, objects: objects.len() });
    }
    Ok(())
}
