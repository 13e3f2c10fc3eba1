//! Watchers of the API, as informers are: from a revision, or with the state at the beginning sent along.

use std::time::Duration;

use base::Tasks;
use bytes::Bytes;
use http::Request;
use serde_json::Value;
use store::Revision;
use tokio::sync::watch as cell;

use super::definition::Window;
use super::lines::Lines;
use super::objects::{Objects, SELECTOR, version};
use super::{AGAIN_AFTER, Client, Failure};
use crate::history::{Call, Event, Id, Line, Outcome, Recorder, State};

/// After so many events a restless watcher begins again.
const RESTLESS_EVENTS: usize = 40;

/// How a watcher begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// From a revision; it goes on where it was.
    Steady,
    /// The same, from revisions of the past, again and again.
    Restless,
    /// With what is there (`sendInitialEvents`), again and again.
    Listing,
}

impl Manner {
    pub(super) fn of(number: u64) -> Self {
        match number % 3 {
            0 => Self::Steady,
            1 => Self::Restless,
            _ => Self::Listing,
        }
    }
}

/// A watcher at work.
pub(super) struct Watching(cell::Receiver<(Id, Revision)>);

pub(super) fn spawn(
    client: &Client,
    recorder: &Recorder,
    tasks: &Tasks,
    manner: Manner,
    start: Revision,
) -> Watching {
    let (progress, at) = cell::channel((0, start));
    let watcher = Watcher { client: client.clone(), recorder: recorder.clone(), manner, progress };
    tasks.spawn("watcher", watcher.run(start));
    Watching(at)
}

impl Watching {
    pub(super) async fn finish(mut self, newest: Revision, timeout: Duration, recorder: &Recorder) {
        let seen = self.0.wait_for(|(_, upto)| *upto >= newest);
        if tokio::time::timeout(timeout, seen).await.is_err() {
            let (watch, _) = *self.0.borrow();
            recorder.note(Line::Due(watch, newest));
        }
    }
}

struct Watcher {
    client: Client,
    recorder: Recorder,
    manner: Manner,
    progress: cell::Sender<(Id, Revision)>,
}

/// Why a watch ended.
enum Ended {
    Forgotten,
    Broken,
    Restless,
}

impl Watcher {
    async fn run(self, start: Revision) {
        let mut after = start;
        loop {
            let ended = match self.manner {
                Manner::Listing => self.list_and_watch().await,
                _ => self.watch(after).await,
            };
            let at = self.progress.borrow().1;
            let newest = match ended {
                Ok(Ended::Forgotten) => self.newest().await,
                Ok(Ended::Restless) => Some(at.saturating_sub(20).max(start)),
                Ok(Ended::Broken) | Err(_) => None,
            };
            if newest.is_none() {
                tokio::time::sleep(AGAIN_AFTER).await;
            }
            after = newest.unwrap_or(at);
        }
    }

    /// A client that was cut lists, and begins there.
    async fn newest(&self) -> Option<Revision> {
        let (start, end) = self.client.objects.range();
        let call = Call::List { start, end, at: None, limit: 0 };
        match crate::workload::ask(&self.client, &self.recorder, call).await {
            Outcome::Listed { revision, .. } => {
                self.progress.send_modify(|at| at.1 = at.1.max(revision));
                Some(revision)
            }
            _ => None,
        }
    }

    async fn watch(&self, after: Revision) -> Result<Ended, Failure> {
        let from = format!("resourceVersion={after}&allowWatchBookmarks=true");
        let window = self.window();
        let mut lines = open(&self.client, &from).await?;
        let watch = self.begin(after);
        self.follow(watch, &mut lines, window).await
    }

    /// What is there at the beginning is a list like any other: as new as whatever was acknowledged before.
    async fn list_and_watch(&self) -> Result<Ended, Failure> {
        let id = self.recorder.id();
        let (start, end) = self.client.objects.range();
        self.recorder.note(Line::Invoke(id, Call::List { start, end, at: None, limit: 0 }));
        let from = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        let window = self.window();
        let mut lines = open(&self.client, from).await?;
        let mut states: Vec<(String, State)> = Vec::new();
        let revision = loop {
            let Some(line) = lines.next().await? else { return Ok(Ended::Broken) };
            match line["type"].as_str() {
                Some("ADDED") => {
                    window.iter().for_each(|window| window.show("a watch", &line["object"], &self.recorder));
                    states.extend(self.client.objects.state(&line["object"]));
                }
                Some("BOOKMARK") => break version(&line["object"]).unwrap_or(0),
                _ => return Ok(Ended::Broken),
            }
        };
        states.sort_by(|a, b| a.0.cmp(&b.0));
        self.recorder.note(Line::Return(id, Outcome::Listed { revision, states, remaining: None }));
        let watch = self.begin(revision);
        self.progress.send_modify(|at| at.1 = at.1.max(revision));
        self.follow(watch, &mut lines, window).await
    }

    fn window(&self) -> Option<Window<'_>> {
        self.client.definition.as_deref().map(Window::open)
    }

    fn begin(&self, after: Revision) -> Id {
        let watch = self.recorder.id();
        let (start, end) = self.client.objects.range();
        self.recorder.note(Line::Watch { watch, start, end, after });
        self.progress.send_modify(|at| at.0 = watch);
        watch
    }

    async fn follow(
        &self,
        watch: Id,
        lines: &mut Lines,
        window: Option<Window<'_>>,
    ) -> Result<Ended, Failure> {
        let mut count = 0;
        while let Some(line) = lines.next().await? {
            let kind = line["type"].as_str().unwrap_or_default();
            if kind == "ERROR" {
                self.recorder.note(Line::Cut(watch));
                return Ok(Ended::Forgotten);
            }
            let revision = version(&line["object"]).ok_or("an event has no revision")?;
            if kind != "BOOKMARK" {
                window.iter().for_each(|window| window.show("a watch", &line["object"], &self.recorder));
                let event =
                    event(&self.client.objects, kind, &line["object"]).ok_or("an event cannot be read")?;
                self.recorder.note(Line::Event(watch, event));
            }
            // Events come in order: whatever was before this one has been told.
            self.recorder.note(Line::Upto(watch, revision));
            self.progress.send_modify(|at| at.1 = at.1.max(revision));
            count += 1;
            if self.manner != Manner::Steady && count >= RESTLESS_EVENTS {
                return Ok(Ended::Restless);
            }
        }
        Ok(Ended::Broken)
    }
}

/// What an event says; the type tells whether there was something before.
fn event(objects: &Objects, kind: &str, object: &Value) -> Option<Event> {
    let (key, state) = objects.state(object)?;
    let revision = state.revision;
    let previous = (kind == "ADDED").then_some(None);
    Some(Event { revision, key, state: (kind != "DELETED").then_some(state), previous })
}

async fn open(client: &Client, from: &str) -> Result<Lines, Failure> {
    let path =
        format!("{}?watch=true&{SELECTOR}&{from}", client.objects.collection(client.objects.version(), ""));
    let request = Request::get(path).header("accept", "application/json").body(Bytes::new())?;
    let response = tokio::time::timeout(super::REQUEST_MAX, client.server.send(request)).await??;
    if !response.status().is_success() {
        return Err(format!("a watch was refused with {}", response.status()).into());
    }
    Ok(Lines::new(response.into_body()))
}
