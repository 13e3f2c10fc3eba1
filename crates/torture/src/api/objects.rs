//! What objects keys stand for.

use std::sync::atomic::{AtomicUsize, Ordering};

use http::StatusCode;
use serde_json::{Value, json};
use store::Revision;

use crate::history::{Call, Outcome, State};
use crate::value;
use crate::workload::{CUSTOM_OBJECTS, OBJECTS, World};

/// What the workload's objects are told from others by.
pub(super) const SELECTOR: &str = "labelSelector=torture%3Dyes";

/// A version of a kind: where it is served, and what its objects call it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Version {
    root: &'static str,
    pub(super) api_version: &'static str,
}

impl Version {
    /// Without its group.
    pub(super) fn name(self) -> &'static str {
        self.api_version.rsplit('/').next().unwrap_or_default()
    }
}

/// A kind of objects.
pub(super) struct Objects {
    pub(super) world: &'static World,
    /// What all keys begin with.
    pub(super) prefix: &'static str,
    versions: &'static [Version],
    plural: &'static str,
    kind: &'static str,
    /// Where the value is.
    value: &'static str,
    /// How many requests there were.
    requests: AtomicUsize,
}

pub(super) fn config_maps() -> Objects {
    Objects {
        world: &OBJECTS,
        prefix: "/registry/configmaps/",
        versions: &[Version { root: "/api/v1", api_version: "v1" }],
        plural: "configmaps",
        kind: "ConfigMap",
        value: "/data/value",
        requests: AtomicUsize::new(0),
    }
}

pub(super) fn custom() -> Objects {
    Objects {
        world: &CUSTOM_OBJECTS,
        prefix: "/registry/torture.example.com/things/",
        versions: &[
            Version { root: "/apis/torture.example.com/v1", api_version: "torture.example.com/v1" },
            Version { root: "/apis/torture.example.com/v2", api_version: "torture.example.com/v2" },
        ],
        plural: "things",
        kind: "Thing",
        value: "/spec/value",
        requests: AtomicUsize::new(0),
    }
}

impl Objects {
    /// Namespace and name.
    pub(super) fn place<'k>(&self, key: &'k str) -> (&'k str, &'k str) {
        key.strip_prefix(self.prefix).unwrap_or(key).split_once('/').unwrap_or_default()
    }

    /// The first key, and the first that is another kind's.
    pub(super) fn range(&self) -> (String, String) {
        (self.prefix.to_owned(), format!("{}0", self.prefix.trim_end_matches('/')))
    }

    /// Now the one, now the other, with no rhythm that whoever asks in turns could fall into.
    pub(super) fn version(&self) -> Version {
        let number = self.requests.fetch_add(1, Ordering::Relaxed).count_ones() as usize;
        self.versions.get(number % self.versions.len()).copied().unwrap_or_default()
    }

    /// Where the objects of a namespace are, or all of them if it is none.
    pub(super) fn collection(&self, version: Version, namespace: &str) -> String {
        match namespace {
            "" => format!("{}/{}", version.root, self.plural),
            namespace => format!("{}/namespaces/{namespace}/{}", version.root, self.plural),
        }
    }

    /// Where an object is.
    pub(super) fn path(&self, version: Version, key: &str) -> String {
        let (namespace, name) = self.place(key);
        format!("{}/{name}", self.collection(version, namespace))
    }

    pub(super) fn object(&self, name: &str, tag: &str, level: Option<u64>, version: Version) -> Value {
        let value = String::from_utf8_lossy(&value::encode(tag)).into_owned();
        let metadata = json!({"name": name, "labels": {"torture": "yes"}});
        let mut object = json!({"apiVersion": version.api_version, "kind": self.kind, "metadata": metadata});
        match level {
            None => object["data"] = json!({"value": value}),
            Some(level) => object["spec"] = json!({"value": value, "level": level}),
        }
        object
    }

    /// Key and state of an object.
    pub(super) fn state(&self, object: &Value) -> Option<(String, State)> {
        let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
        let key = format!("{}{}/{}", self.prefix, text("/metadata/namespace")?, text("/metadata/name")?);
        let value = value::decode(text(self.value)?.as_bytes());
        Some((key, State { value, revision: version(object)?, created: None }))
    }

    /// What an answer says about a call.
    pub(super) fn read(&self, call: &Call, code: StatusCode, body: &Value) -> Outcome {
        let unclear = || Outcome::Unknown(format!("{code}: {body:.200}"));
        match (call, code) {
            // Of a kind that is not served nothing is said about any object.
            (_, StatusCode::NOT_FOUND) if body.pointer("/details/name").is_none() => {
                Outcome::NotDone(format!("{code}: {body}"))
            }
            (Call::Create { .. } | Call::Update { .. }, StatusCode::OK | StatusCode::CREATED) => {
                version(body).map_or_else(unclear, Outcome::Wrote)
            }
            (Call::Delete { .. }, StatusCode::OK) => Outcome::Done,
            (Call::Get { .. }, StatusCode::OK) => {
                self.state(body).map_or_else(unclear, |(_, state)| Outcome::Got(Some(state)))
            }
            (Call::Get { .. }, StatusCode::NOT_FOUND) => Outcome::Got(None),
            (Call::List { .. }, StatusCode::OK) => {
                let items = body["items"].as_array().map(|items| items.iter().map(|item| self.state(item)));
                let states = items.map_or(Some(Vec::new()), Iterator::collect);
                match (version(body), states) {
                    (Some(revision), Some(states)) => Outcome::Listed { revision, states, remaining: None },
                    _ => unclear(),
                }
            }
            (Call::List { .. }, StatusCode::GONE) => Outcome::Gone,
            (Call::Update { .. } | Call::Delete { .. }, StatusCode::NOT_FOUND) => Outcome::Refused(None),
            (Call::Create { .. } | Call::Update { .. } | Call::Delete { .. }, StatusCode::CONFLICT) => {
                Outcome::RefusedBlindly
            }
            (_, code) if code.is_client_error() && code != StatusCode::TOO_MANY_REQUESTS => {
                Outcome::NotDone(format!("{code}: {body}"))
            }
            _ => unclear(),
        }
    }
}

pub(super) fn version(object: &Value) -> Option<Revision> {
    object.pointer("/metadata/resourceVersion")?.as_str()?.parse().ok()
}
