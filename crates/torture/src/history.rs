//! What clients and watchers were told, in the order in which they were told it.
//!
//! A history is a list of lines, one per call, answer and event, so that a process that is killed leaves all of it
//! but a half line. The place of a line is its time: an answer before a call came before it in real time too.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use store::Revision;
use tokio::sync::watch as cell;

/// Names an operation.
pub type Id = u64;

/// The state of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The tag of the value, see [`crate::value`].
    pub value: String,
    /// The key's last change.
    pub revision: Revision,
    /// The revision at which the key came to be, if whoever was asked says so.
    pub created: Option<Revision>,
}

/// The durability that is asked for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keep {
    /// Nothing may lose it once it is acknowledged.
    Durably,
    /// A crash may lose it, with everything that came after it.
    Loosely,
    /// It goes by itself after a time.
    ForAWhile,
}

/// A call of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call {
    /// Sets a key that must not be there.
    Create {
        /// Which.
        key: String,
        /// Unique in the history.
        value: String,
        /// What is promised.
        keep: Keep,
    },
    /// Sets a key whose last change must be `expect`.
    Update {
        /// Which.
        key: String,
        /// Unique in the history.
        value: String,
        /// The condition.
        expect: Revision,
        /// What is promised.
        keep: Keep,
    },
    /// Removes a key whose last change must be `expect`.
    Delete {
        /// Which.
        key: String,
        /// The condition.
        expect: Revision,
        /// What is promised.
        keep: Keep,
    },
    /// Reads a key.
    Get {
        /// Which.
        key: String,
    },
    /// Reads the keys in `[start, end)`.
    List {
        /// The first.
        start: String,
        /// The first that is not asked for.
        end: String,
        /// As they were then; now, if `None`.
        at: Option<Revision>,
        /// At most so many; 0 for all.
        limit: usize,
    },
    /// Asks for the newest revision.
    Newest,
    /// Forgets what is older.
    Compact {
        /// Than this.
        revision: Revision,
    },
    /// Ends the kind of the keys in `[start, end)`: each of them goes, and the answer is a revision at which none is there.
    End {
        /// The first key.
        start: String,
        /// The first key of another kind.
        end: String,
        /// The newest revision before it was asked for.
        after: Revision,
    },
}

/// The outcome that a client was told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The write is made.
    Wrote(Revision),
    /// The condition did not hold: this is there instead.
    Refused(Option<State>),
    /// The condition did not hold, and what is there was not said.
    RefusedBlindly,
    /// What a key holds.
    Got(Option<State>),
    /// What the keys hold, in order.
    Listed {
        /// The revision of the picture.
        revision: Revision,
        /// The rows.
        states: Vec<(String, State)>,
        /// How many come after them, if that was said.
        remaining: Option<u64>,
    },
    /// The newest revision.
    Newest(Revision),
    /// Done, whatever it was.
    Done,
    /// The revision asked for is forgotten.
    Gone,
    /// It was not done, and never will be.
    NotDone(String),
    /// Nobody knows.
    Unknown(String),
}

/// A change as a watcher sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The change's revision.
    pub revision: Revision,
    /// The key that changed.
    pub key: String,
    /// To what; `None` if it was removed.
    pub state: Option<State>,
    /// The state before, if that was said: `Some(None)` says that nothing was there.
    pub previous: Option<Option<State>>,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Line {
    /// A client asks.
    Invoke(Id, Call),
    /// A client is told.
    Return(Id, Outcome),
    /// A watcher of the keys in `[start, end)` begins after a revision.
    Watch {
        /// Its name.
        watch: Id,
        /// The first key.
        start: String,
        /// The first key that is not its own.
        end: String,
        /// It wants what comes after this.
        after: Revision,
    },
    /// A watcher is told of a change.
    Event(Id, Event),
    /// A watcher is told that it has seen everything up to a revision.
    Upto(Id, Revision),
    /// A watcher is told that what comes next is forgotten.
    Cut(Id),
    /// A watcher should have been told of everything up to a revision by now.
    Due(Id, Revision),
    /// An object was shown as some forms of its definition have it: one, if all is well. The newest whose change was
    /// answered before somebody asked was `since`, and `until` the newest that was asked for when the answer came.
    Shown {
        /// What showed it.
        by: String,
        /// Which.
        forms: Vec<u64>,
        /// The oldest that may be.
        since: u64,
        /// The newest that may be.
        until: u64,
    },
    /// A write was judged that suits forms of its definition up to `level`; `since` and `until` as above.
    Judged {
        /// Up to which.
        level: u64,
        /// Whether it was found right.
        is_taken: bool,
        /// The oldest form that may have judged it.
        since: u64,
        /// The newest.
        until: u64,
    },
    /// A kind was said not to be there, or to take nothing new because it goes. `forms`: of the forms of its definition that
    /// may hold, as above, those of which that is so.
    Absent {
        /// What was asked for.
        asked: String,
        /// Which.
        forms: Vec<u64>,
        /// The oldest that may hold.
        since: u64,
        /// The newest.
        until: u64,
    },
    /// What the store had of a custom kind at a revision.
    Stored {
        /// When.
        revision: Revision,
        /// Whether its definition was there.
        is_defined: bool,
        /// How many objects there were.
        objects: usize,
    },
    /// The store was opened again after a crash; it counts on from `newest`, and of what was there before nothing
    /// after `kept` is left.
    Restart {
        /// The newest revision.
        newest: Revision,
        /// The last that survived.
        kept: Revision,
    },
}

/// An operation with its place in time.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The call.
    pub call: Call,
    /// The outcome; [`Outcome::Unknown`] if nothing was told.
    pub outcome: Outcome,
    /// The line of the call.
    pub invoked: usize,
    /// The line of the answer.
    pub returned: Option<usize>,
}

impl Call {
    /// The key that it is about, if it is about one.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Create { key, .. }
            | Self::Update { key, .. }
            | Self::Delete { key, .. }
            | Self::Get { key } => Some(key),
            _ => None,
        }
    }

    /// The durability that a write promises.
    #[must_use]
    pub fn keep(&self) -> Option<Keep> {
        match self {
            Self::Create { keep, .. } | Self::Update { keep, .. } | Self::Delete { keep, .. } => Some(*keep),
            _ => None,
        }
    }

    /// The value that a write puts there.
    #[must_use]
    pub fn value(&self) -> Option<&str> {
        match self {
            Self::Create { value, .. } | Self::Update { value, .. } => Some(value),
            _ => None,
        }
    }
}

/// Everything that happened.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// In order.
    pub lines: Vec<Line>,
}

impl History {
    /// Reads what a process printed; a last line without an end is none, and so is what is no line of a history.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let whole = text.rfind('\n').map_or("", |end| text.get(..end).unwrap_or_default());
        Self { lines: whole.lines().filter_map(|line| serde_json::from_str(line).ok()).collect() }
    }

    /// The operations, in the order in which they were called.
    #[must_use]
    pub fn operations(&self) -> Vec<Operation> {
        let mut all: Vec<Operation> = Vec::new();
        let mut open: BTreeMap<Id, usize> = BTreeMap::new();
        for (at, line) in self.lines.iter().enumerate() {
            match line {
                Line::Invoke(id, call) => {
                    open.insert(*id, all.len());
                    let outcome = Outcome::Unknown("no answer".to_owned());
                    all.push(Operation { call: call.clone(), outcome, invoked: at, returned: None });
                }
                Line::Return(id, outcome) => {
                    let Some(operation) = open.remove(id).and_then(|index| all.get_mut(index)) else {
                        continue;
                    };
                    operation.outcome = outcome.clone();
                    operation.returned = Some(at);
                }
                _ => {}
            }
        }
        all
    }

    /// The number of durable writes that were acknowledged.
    #[must_use]
    pub fn acknowledged(&self) -> usize {
        let is_one = |operation: &&Operation| {
            let is_told = matches!(operation.outcome, Outcome::Wrote(_) | Outcome::Done);
            operation.call.keep() == Some(Keep::Durably) && is_told
        };
        self.operations().iter().filter(is_one).count()
    }

    /// The number of times that history was compacted.
    #[must_use]
    pub fn compactions(&self) -> usize {
        let is_one = |operation: &&Operation| {
            matches!(operation.call, Call::Compact { .. }) && operation.outcome == Outcome::Done
        };
        self.operations().iter().filter(is_one).count()
    }

    /// The number of times that a kind was to end.
    #[must_use]
    pub fn ends(&self) -> usize {
        let is_one = |line: &&Line| matches!(line, Line::Invoke(_, Call::End { .. }));
        self.lines.iter().filter(is_one).count()
    }

    /// The number of acknowledged writes that crashes have cut off, as they may.
    #[must_use]
    pub fn cut_off(&self) -> usize {
        let restarts = self.lines.iter().enumerate().filter_map(|(at, line)| match line {
            Line::Restart { newest, kept } => Some((at, *kept..*newest)),
            _ => None,
        });
        let restarts: Vec<_> = restarts.collect();
        let is_cut = |operation: &Operation| {
            let Outcome::Wrote(revision) = operation.outcome else { return false };
            let within = |lost: &std::ops::Range<Revision>| lost.start < revision && revision <= lost.end;
            restarts.iter().any(|(at, lost)| within(lost) && operation.returned.is_some_and(|it| it < *at))
        };
        self.operations().iter().filter(|operation| is_cut(operation)).count()
    }

    /// The highest name that was given to an operation or a watch.
    #[must_use]
    pub fn last_id(&self) -> Id {
        let ids = self.lines.iter().map(|line| match line {
            Line::Invoke(id, _) | Line::Watch { watch: id, .. } => *id,
            _ => 0,
        });
        ids.max().unwrap_or(0)
    }
}

/// The recorder of a history's lines. Cloning shares it.
#[derive(Clone)]
pub struct Recorder(Arc<Inner>);

struct Inner {
    /// `None`: they are printed.
    lines: Option<Mutex<Vec<Line>>>,
    next_id: Mutex<Id>,
    answers: cell::Sender<u64>,
}

impl Recorder {
    /// Keeps them.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::new(Some(Mutex::default()), 1)
    }

    /// Prints them, each at once and whole; names begin after `last_id`.
    #[must_use]
    pub fn to_stdout(last_id: Id) -> Self {
        Self::new(None, last_id + 1)
    }

    fn new(lines: Option<Mutex<Vec<Line>>>, next_id: Id) -> Self {
        Self(Arc::new(Inner { lines, next_id: Mutex::new(next_id), answers: cell::Sender::new(0) }))
    }

    /// The number of answers that were taken down so far, to look at and to wait for.
    #[must_use]
    pub fn answers(&self) -> cell::Receiver<u64> {
        self.0.answers.subscribe()
    }

    /// A name that no other has.
    #[must_use]
    pub fn id(&self) -> Id {
        let mut next = self.0.next_id.lock();
        *next += 1;
        *next - 1
    }

    /// Takes down a line.
    ///
    /// # Panics
    /// If it cannot be printed: whoever reads has gone away, and nothing that follows would count.
    #[expect(clippy::expect_used, reason = "a history that is not written down proves nothing")]
    pub fn note(&self, line: Line) {
        if matches!(line, Line::Return(..)) {
            self.0.answers.send_modify(|count| *count += 1);
        }
        match &self.0.lines {
            Some(lines) => lines.lock().push(line),
            None => {
                let mut text = serde_json::to_string(&line).expect("lines are plain data");
                text.push('\n');
                std::io::stdout().lock().write_all(text.as_bytes()).expect("somebody reads");
            }
        }
    }

    /// The history that was taken down so far.
    #[must_use]
    pub fn history(&self) -> History {
        History { lines: self.0.lines.as_ref().map(|lines| lines.lock().clone()).unwrap_or_default() }
    }
}
