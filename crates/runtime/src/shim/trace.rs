//! The messages of libcontainer when it fails: its errors say less than its log.
//!
//! Only errors are kept. They go to the shim's log by a descriptor of its own, since a container's first process
//! has its standard error redirected long before it is done.

use std::fmt::{Debug, Write as _};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::Path;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Most of the log that is read back.
const TAIL_BYTES_MAX: u64 = 8 << 10;

/// Writes errors to the shim's standard error as it is now.
struct Errors(File);

/// Sends errors to the log from now on.
pub(super) fn install() -> io::Result<()> {
    let file = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    tracing::subscriber::set_global_default(Errors(file)).map_err(io::Error::other)
}

/// Length of the log, to read from there later.
pub(super) fn mark(log: &Path) -> u64 {
    std::fs::metadata(log).map(|metadata| metadata.len()).unwrap_or_default()
}

/// The innermost reason: the first line written since `mark`.
pub(super) fn first_since(log: &Path, mark: u64) -> Option<String> {
    let mut file = File::open(log).ok()?;
    file.seek(SeekFrom::Start(mark)).ok()?;
    let mut text = String::new();
    file.take(TAIL_BYTES_MAX).read_to_string(&mut text).ok()?;
    text.lines().next().map(|line| line.trim_start_matches("libcontainer: ").to_owned())
}

impl Subscriber for Errors {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::from("libcontainer:"));
        event.record(&mut line);
        line.0.push('\n');
        if (&self.0).write_all(line.0.as_bytes()).is_err() {
            // The disk is full or gone; there is no other place to say so.
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let written = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
        debug_assert!(written.is_ok(), "a string takes all that is written");
    }
}
