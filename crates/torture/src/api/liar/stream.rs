//! Lies about watches, event by event.

use std::collections::VecDeque;

use bytes::Bytes;
use futures::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};

use super::super::lines::Lines;
use super::{Body, EVERY, Failure, Lie};

/// After so many events a watch goes to sleep.
const EVENTS_MAX: u64 = 5;

/// The same watch, told by a liar.
pub(super) fn told(body: Body, lie: Lie) -> Body {
    let teller = Teller { lie, count: 0, held: None, last: None, is_initial: true };
    let frames = stream::unfold((Lines::new(body), teller, VecDeque::new()), next);
    StreamBody::new(frames).boxed_unsync()
}

type Told = (Lines, Teller, VecDeque<Value>);

async fn next((mut lines, mut teller, mut ready): Told) -> Option<(Result<Frame<Bytes>, Failure>, Told)> {
    while ready.is_empty() {
        if teller.lie == Lie::StuckWatch && teller.count > EVENTS_MAX {
            std::future::pending::<()>().await;
        }
        match lines.next().await {
            Ok(Some(line)) => ready.extend(teller.tell(line)),
            Ok(None) => return None,
            Err(error) => return Some((Err(error), (lines, teller, ready))),
        }
    }
    let line = ready.pop_front()?;
    Some((Ok(Frame::data(format!("{line}\n").into())), (lines, teller, ready)))
}

/// What one watch needs to lie.
struct Teller {
    lie: Lie,
    count: u64,
    held: Option<Value>,
    last: Option<Value>,
    /// No bookmark has come yet.
    is_initial: bool,
}

impl Teller {
    fn tell(&mut self, mut line: Value) -> Vec<Value> {
        if line["type"] == "BOOKMARK" || line["type"] == "ERROR" {
            self.is_initial = false;
            return self.held.take().into_iter().chain([line]).collect();
        }
        self.count += 1;
        let is_lying = self.count.is_multiple_of(EVERY);
        let last = self.last.replace(line.clone());
        match self.lie {
            Lie::DroppedEvent if is_lying => return Vec::new(),
            Lie::DoubledEvent if is_lying => return vec![line.clone(), line],
            Lie::InitialEventMissing if self.is_initial && self.count == 2 => return Vec::new(),
            Lie::InitialEventsEndEarly if self.count == 2 => return vec![bookmark(&line), line],
            Lie::BookmarkAhead if is_lying => return vec![bookmark(&line), line],
            Lie::ReorderedEvents => match self.held.take() {
                Some(held) => return vec![line, held],
                None if is_lying => {
                    self.held = Some(line);
                    return Vec::new();
                }
                None => {}
            },
            Lie::ModifiedAsAdded if line["type"] == "MODIFIED" => line["type"] = json!("ADDED"),
            Lie::DeletedAsModified if line["type"] == "DELETED" => line["type"] = json!("MODIFIED"),
            Lie::WrongValue | Lie::OldVersion if is_lying => {
                let field =
                    if self.lie == Lie::WrongValue { "/data/value" } else { "/metadata/resourceVersion" };
                let other = last.and_then(|last| last["object"].pointer(field).cloned());
                if let (Some(value), Some(other)) = (line["object"].pointer_mut(field), other) {
                    *value = other;
                }
            }
            _ => {}
        }
        vec![line]
    }
}

/// It says that `event` has been told; also that this is all there was at the beginning.
fn bookmark(event: &Value) -> Value {
    let metadata = json!({
        "resourceVersion": event["object"]["metadata"]["resourceVersion"],
        "annotations": {"k8s.io/initial-events-end": "true"},
    });
    json!({"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}})
}
