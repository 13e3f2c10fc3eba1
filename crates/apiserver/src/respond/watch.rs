//! Events of a watch in the form the client asked for.

use std::sync::atomic::{AtomicBool, Ordering};

use base::Clock;
use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Value, json};

use super::table::{self, Form};
use super::{partial_json, protobuf};
use crate::cache::{CachedObject, EventType};
use crate::codec;
use crate::kinds::Kind;
use crate::negotiate::{Accept, Format, View};
use crate::request::Request;
use crate::status::Error;

/// An encoder of events as frames.
#[derive(Debug)]
pub struct Encoder {
    kind: Kind,
    accept: Accept,
    is_protobuf: bool,
    form: Form,
    /// Ages in tables are since creation.
    clock: Clock,
    /// Columns are described once per watch.
    columns_sent: AtomicBool,
}

impl Encoder {
    /// The encoder that a request asks for.
    pub fn new(request: &Request, clock: Clock) -> Self {
        Self {
            clock,
            kind: request.kind.clone(),
            accept: request.accept,
            is_protobuf: request.accept.format == Format::Protobuf,
            form: Form::of(request),
            columns_sent: AtomicBool::new(false),
        }
    }

    /// One event. A DELETED that a selector makes carries the event's revision.
    pub fn event(&self, event_type: EventType, object: &CachedObject, revision: u64) -> Bytes {
        let moved;
        let object = if event_type == EventType::Deleted && object.revision != revision {
            moved = object.at_revision(revision);
            &moved
        } else {
            object
        };
        if self.is_protobuf
            && let Some(body) = protobuf::object(&self.kind, self.accept, object)
        {
            return codec::protobuf_watch_event(event_type.as_str(), &body);
        }
        match self.accept.view {
            View::Object => json_event(event_type.as_str(), &self.kind.json(object)),
            View::Metadata | View::MetadataList => {
                json_event(event_type.as_str(), partial_json(object, self.accept.meta_version).as_bytes())
            }
            View::Table => {
                let row = table::row(&self.kind, self.kind.value(object), self.form, self.clock.now());
                json_event(event_type.as_str(), self.table(vec![row], object.revision).to_string().as_bytes())
            }
        }
    }

    /// A bookmark: everything up to `revision` was delivered.
    pub fn bookmark(&self, revision: u64) -> Bytes {
        self.bookmark_with(revision, json!({"resourceVersion": revision.to_string()}))
    }

    /// The bookmark after the last of the initial events. Source: KEP-3157.
    pub fn initial_events_end(&self, revision: u64) -> Bytes {
        let annotations = json!({"k8s.io/initial-events-end": "true"});
        let metadata = json!({"resourceVersion": revision.to_string(), "annotations": annotations});
        self.bookmark_with(revision, metadata)
    }

    fn bookmark_with(&self, revision: u64, metadata: Value) -> Bytes {
        let object = match self.accept.view {
            View::Object => {
                json!({"kind": self.kind.kind(), "apiVersion": self.kind.api_version(), "metadata": metadata})
            }
            View::Metadata | View::MetadataList => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": self.form.meta_version, "metadata": metadata})
            }
            View::Table => {
                let object = json!({
                    "kind": "PartialObjectMetadata", "apiVersion": self.form.meta_version, "metadata": metadata,
                });
                self.table(vec![json!({"cells": [], "object": object})], revision)
            }
        };
        self.encode("BOOKMARK", &object)
    }

    /// The end of the stream, with its reason.
    pub fn error(&self, error: &Error) -> Bytes {
        self.encode("ERROR", &error.status())
    }

    fn encode(&self, event_type: &str, object: &Value) -> Bytes {
        if self.is_protobuf
            && let Some(bytes) = codec::encode_protobuf(object)
        {
            return codec::protobuf_watch_event(event_type, &bytes);
        }
        json_event(event_type, object.to_string().as_bytes())
    }

    fn table(&self, rows: Vec<Value>, revision: u64) -> Value {
        let is_first = !self.columns_sent.swap(true, Ordering::Relaxed);
        table::table(&self.kind, self.form, rows, json!({"resourceVersion": revision.to_string()}), is_first)
    }
}

fn json_event(event_type: &str, object: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(object.len() + 40);
    out.put_slice(br#"{"type":""#);
    out.put_slice(event_type.as_bytes());
    out.put_slice(br#"","object":"#);
    out.put_slice(object);
    out.put_slice(b"}\n");
    out.freeze()
}
