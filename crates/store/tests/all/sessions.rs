//! Sessions with a store, in tables: what is asked line by line, and what it answers. Both stores pass all of them but those
//! of restarts.
//!
//! `- NAME` begins a session with nothing in the store; a line is a call, ` -> ` and what comes of it. Keys are below
//! `/registry/`, revisions are counted from where the store was; `<x*9>` is `x` nine times, `''` nothing, `!` the byte zero:
//! the key right behind another.
//!
//! `put KEY absent|@REVISION VALUE [relaxed] [while=KEY@REVISION]`, `delete KEY @REVISION|absent [..]`: the revision.
//! `get KEY`: `@REVISION/CREATED=VALUE`. `list FROM TO [at=REVISION] [limit=N]`: entries, `+N` for how many more there are,
//! and the revision of the picture. `watch NAME REVISION`; `next NAME N`: `+` of what came, `~` of what changed with what was
//! before, `-` of what went. `compact REVISION`, `revision`, `close` (and open again).

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::LocalBoxFuture;
use store::{Change, Durability, Entry, Event, Expect, Revision, Store, StoreError, Unchanged, Watch, Write};

use crate::writes::{events, put};

/// Opens the store, or opens it again with what is in it.
pub(crate) type Open<'f> = dyn Fn() -> LocalBoxFuture<'f, Arc<dyn Store>> + 'f;

const TABLES: [(&str, &str); 4] = [
    ("writes.txt", include_str!("sessions/writes.txt")),
    ("lists.txt", include_str!("sessions/lists.txt")),
    ("watches.txt", include_str!("sessions/watches.txt")),
    ("compaction.txt", include_str!("sessions/compaction.txt")),
];

/// The sessions of a table: each its name and its lines.
fn sessions(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut sessions: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with("//") && !line.is_empty()) {
        match line.strip_prefix("- ") {
            Some(name) => sessions.push((name, Vec::new())),
            None => sessions.last_mut().expect(line).1.push(line.trim()),
        }
    }
    sessions
}

/// All sessions that any store passes; `fresh` makes a store that is empty.
pub(crate) async fn pass(fresh: &Open<'_>) {
    for (file, text) in TABLES {
        for (name, lines) in sessions(text) {
            let store = fresh().await;
            Session::new(store).run(&format!("{file}: {name}"), &lines, fresh).await;
        }
    }
}

/// The sessions in which a store is closed and opened again; a folder for each.
pub(crate) async fn pass_restarts(folder_of: &dyn Fn() -> Box<Open<'static>>) {
    for (name, lines) in sessions(include_str!("sessions/restarts.txt")) {
        let open = folder_of();
        let store = open().await;
        Session::new(store).run(name, &lines, &*open).await;
    }
}

struct Session {
    store: Option<Arc<dyn Store>>,
    /// The revision that counts as 0.
    start: Revision,
    /// Revisions that the store has made on its own account, in order: etcd's writes down what is compacted. They do not count.
    own: Vec<Revision>,
    watches: BTreeMap<String, Watch>,
}

impl Session {
    fn new(store: Arc<dyn Store>) -> Self {
        let start = store.revision();
        Self { store: Some(store), start, own: Vec::new(), watches: BTreeMap::new() }
    }

    async fn run(mut self, name: &str, lines: &[&str], open: &Open<'_>) {
        assert!(!lines.is_empty(), "{name}");
        for (number, line) in lines.iter().enumerate() {
            let (call, expect) = line.split_once("->").unwrap_or_else(|| panic!("{name}: {line}"));
            let words: Vec<&str> = call.split_whitespace().collect();
            let found = match words[..] {
                ["close"] => {
                    self.watches.clear();
                    let store = self.store.take().unwrap();
                    store.close().await.unwrap();
                    drop(store);
                    self.store = Some(open().await);
                    String::new()
                }
                _ => self.call(&words).await,
            };
            assert_eq!(found, expect.trim(), "{name}, line {}: {call}", number + 1);
        }
        self.store.unwrap().close().await.unwrap();
    }

    async fn call(&mut self, words: &[&str]) -> String {
        let store = Arc::clone(self.store.as_ref().unwrap());
        match *words {
            ["put", key, expect, value, ref options @ ..] => {
                let write = put(&full(key), self.expect(expect), &text(value));
                self.committed(&store, self.with(write, options)).await
            }
            ["delete", key, expect, ref options @ ..] => {
                let write = put(&full(key), self.expect(expect), "");
                let write = Write { change: Change::Delete, ..write };
                self.committed(&store, self.with(write, options)).await
            }
            ["get", key] => match store.get(&full(key)).await {
                Ok(entry) => self.shown(entry.as_ref()),
                Err(error) => self.failed(&error),
            },
            ["list", from, to, ref options @ ..] => {
                let option = |name: &str| options.iter().find_map(|option| option.strip_prefix(name));
                let at = option("at=").map(|at| self.absolute(at));
                let limit = option("limit=").map_or(0, |limit| limit.parse().unwrap());
                match store.range(&full(from), &full(to), at, limit).await {
                    Ok(page) => {
                        let mut words: Vec<String> = page.entries.iter().map(pair).collect();
                        if page.remaining > 0 {
                            words.push(format!("+{}", page.remaining));
                        }
                        words.push(self.relative(page.revision));
                        words.join(" ")
                    }
                    Err(error) => self.failed(&error),
                }
            }
            ["watch", name, after] => match store.watch(self.absolute(after)).await {
                Ok(watch) => {
                    self.watches.insert(name.to_owned(), watch);
                    String::new()
                }
                Err(error) => self.failed(&error),
            },
            ["next", name, count] => {
                let watch = self.watches.get_mut(name).unwrap();
                let events = events(watch, count.parse().unwrap()).await;
                let events: Vec<String> = events.iter().map(|event| self.told(event)).collect();
                events.join(" ")
            }
            ["compact", revision] => {
                let before = store.newest().await.unwrap();
                let compacted = store.compact(self.absolute(revision)).await;
                self.own.extend(before + 1..=store.newest().await.unwrap());
                compacted.map_or_else(|error| self.failed(&error), |()| String::new())
            }
            ["revision"] => self.relative(store.revision()),
            ["newest"] => self.relative(store.newest().await.unwrap()),
            _ => panic!("{words:?}"),
        }
    }

    fn absolute(&self, revision: &str) -> Revision {
        let counted = self.start + revision.trim_start_matches('@').parse::<Revision>().unwrap();
        self.own.iter().fold(counted, |revision, own| revision + u64::from(*own <= revision))
    }

    fn relative(&self, revision: Revision) -> String {
        let own = self.own.iter().filter(|own| **own <= revision).count();
        format!("@{}", i128::from(revision) - i128::from(self.start) - own as i128)
    }

    fn expect(&self, word: &str) -> Expect {
        if word == "absent" { Expect::Absent } else { Expect::Revision(self.absolute(word)) }
    }

    fn with(&self, mut write: Write, options: &[&str]) -> Write {
        for option in options {
            match option.strip_prefix("while=").map(|it| it.split_once('@').unwrap()) {
                Some((key, at)) => {
                    write.only_while = Some(Unchanged { key: full(key), revision: self.absolute(at) });
                }
                None if *option == "relaxed" => write.durability = Durability::Relaxed,
                None => panic!("{option}"),
            }
        }
        write
    }

    async fn committed(&self, store: &Arc<dyn Store>, write: Write) -> String {
        match store.commit(write).await {
            Ok(revision) => self.relative(revision),
            Err(StoreError::Conflict { current }) => format!("conflict {}", self.shown(current.as_ref())),
            Err(error) => self.failed(&error),
        }
    }

    fn shown(&self, entry: Option<&Entry>) -> String {
        entry.map_or("nothing".to_owned(), |entry| {
            let created = self.relative(entry.create_revision);
            format!("{}/{}={}", self.relative(entry.revision), &created[1..], value(entry))
        })
    }

    fn told(&self, event: &Event) -> String {
        let at = self.relative(event.revision);
        let key = event.key.trim_start_matches("/registry/");
        if let Some(entry) = &event.entry {
            assert_eq!((&entry.key, entry.revision), (&event.key, event.revision));
            assert_eq!(event.cause, format!("cause of {}", String::from_utf8_lossy(&entry.value)));
        }
        match (&event.previous, &event.entry) {
            (None, Some(entry)) => format!("+{key}={}{at}", value(entry)),
            (Some(before), Some(entry)) => format!("~{key}={}>{}{at}", value(before), value(entry)),
            (Some(before), None) => format!("-{key}={}{at}", value(before)),
            (None, None) => format!("-{key}{at}"),
        }
    }

    fn failed(&self, error: &StoreError) -> String {
        match error {
            StoreError::Compacted { .. } => "compacted".to_owned(),
            StoreError::Future { newest, .. } => format!("future {}", self.relative(*newest)),
            StoreError::Overtaken => "overtaken".to_owned(),
            other => format!("{other:?}"),
        }
    }
}

fn full(key: &str) -> String {
    format!("/registry/{}", if key == "''" { "" } else { key }.replace('!', "\0"))
}

/// With what is repeated in full.
fn text(value: &str) -> String {
    let repeated = value.strip_prefix('<').and_then(|it| it.strip_suffix('>')?.split_once('*'));
    match repeated {
        Some((text, times)) => text.repeat(times.parse().unwrap()),
        None if value == "''" => String::new(),
        None => value.to_owned(),
    }
}

/// A long one by its length.
fn value(entry: &Entry) -> String {
    let text = String::from_utf8_lossy(&entry.value);
    if text.len() > 100 { format!("<{} bytes>", text.len()) } else { text.into_owned() }
}

fn pair(entry: &Entry) -> String {
    format!("{}={}", entry.key.trim_start_matches("/registry/"), value(entry))
}
