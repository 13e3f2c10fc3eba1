//! Container output as CRI log lines: `<RFC3339Nano> <stream> <F|P> <text>`.
//!
//! A line longer than [`LINE_BYTES_MAX`] is written in parts tagged `P`, the last one `F`; a last line without an end is `P`.
//! Source: the log format
//! that the kubelet reads (CRI, kuberuntime logs). A file that has grown to its limit is rotated ([`rotation`]).

mod rotation;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use jiff::Timestamp;

use super::layout::LogLimits;

/// Longest text in one record, as containerd's default.
pub const LINE_BYTES_MAX: usize = 16 << 10;

/// One of a container's output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Also everything that comes from a terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// A container's log file.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
    bytes: u64,
    limits: Option<LogLimits>,
}

impl Log {
    /// Opens the file for appending; it is made if it is not there.
    pub fn open(path: &Path, limits: Option<LogLimits>) -> io::Result<Self> {
        let file = rotation::open(path)?;
        Ok(Self { path: path.to_owned(), bytes: file.metadata()?.len(), file, limits })
    }

    /// Opens the file anew, after the old one was renamed.
    pub fn reopen(&mut self) -> io::Result<()> {
        *self = Self::open(&self.path, self.limits)?;
        Ok(())
    }

    /// Appends whole records, and rotates the file if it has grown to its limit.
    pub fn write(&mut self, records: &[u8]) -> io::Result<()> {
        self.file.write_all(records)?;
        self.bytes = self.bytes.saturating_add(records.len() as u64);
        let Some(limits) = self.limits.filter(|limits| self.bytes >= limits.file_bytes_max) else {
            return Ok(());
        };
        // Also if it fails: it is tried again a whole file later, not at every line.
        self.bytes = 0;
        let (file, older) = rotation::rotate(&self.path, limits, Timestamp::now())?;
        self.file = file;
        if older.is_empty() { Ok(()) } else { start_packing(&older) }
    }
}

/// Compresses files in a process of its own, which the shim reaps like any other.
fn start_packing(files: &[PathBuf]) -> io::Result<()> {
    let mut packing = Command::new("/proc/self/exe");
    packing.arg0(super::NAME).args(["shim", "pack"]).args(files);
    packing.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(drop)
}

/// What that process does.
pub(super) fn pack(files: impl IntoIterator<Item = OsString>) -> io::Result<()> {
    files.into_iter().try_for_each(|file| cri::logs::pack(Path::new(&file)))
}

/// A cutter of one stream into lines. It holds at most [`LINE_BYTES_MAX`] bytes.
#[derive(Debug)]
pub struct Lines {
    stream: Stream,
    pending: Vec<u8>,
}

impl Lines {
    /// For a stream that has just started.
    pub fn new(stream: Stream) -> Self {
        Self { stream, pending: Vec::new() }
    }

    /// Appends to `out` the records that `chunk` completes.
    pub fn push(&mut self, mut chunk: &[u8], now: Timestamp, out: &mut Vec<u8>) {
        while let Some(end) = chunk.iter().position(|&byte| byte == b'\n') {
            let (line, rest) = chunk.split_at(end);
            self.extend(line, now, out);
            self.record("F", now, out);
            chunk = rest.get(1..).unwrap_or_default();
        }
        self.extend(chunk, now, out);
    }

    /// Appends what is left of a last line without an end: a part, so that nobody reads an end that was not written.
    pub fn finish(&mut self, now: Timestamp, out: &mut Vec<u8>) {
        if !self.pending.is_empty() {
            self.record("P", now, out);
        }
    }

    fn extend(&mut self, mut text: &[u8], now: Timestamp, out: &mut Vec<u8>) {
        while self.pending.len() + text.len() > LINE_BYTES_MAX {
            let (now_part, later) = text.split_at(LINE_BYTES_MAX - self.pending.len());
            self.pending.extend_from_slice(now_part);
            self.record("P", now, out);
            text = later;
        }
        self.pending.extend_from_slice(text);
    }

    fn record(&mut self, tag: &str, now: Timestamp, out: &mut Vec<u8>) {
        let time = now.strftime("%Y-%m-%dT%H:%M:%S%.9fZ");
        out.extend_from_slice(format!("{time} {} {tag} ", self.stream.name()).as_bytes());
        out.append(&mut self.pending);
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(chunks: &[&str], expect: &str) {
        let now = Timestamp::from_nanosecond(1_700_000_000_000_000_120).unwrap();
        let mut lines = Lines::new(Stream::Stderr);
        let mut out = Vec::new();
        for chunk in chunks {
            lines.push(chunk.as_bytes(), now, &mut out);
        }
        lines.finish(now, &mut out);
        let text = String::from_utf8(out).unwrap();
        let text = text.replace("2023-11-14T22:13:20.000000120Z stderr ", "");
        assert_eq!(text, expect);
    }

    #[test]
    fn lines_are_records_whatever_chunks_they_come_in() {
        check(&["a\nb", "c\n", "\n"], "F a\nF bc\nF \n");
    }

    #[test]
    fn a_last_line_without_an_end_is_a_part() {
        check(&["a\nb"], "F a\nP b\n");
        check(&[], "");
    }

    #[test]
    fn a_long_line_is_cut_into_parts() {
        let long = "x".repeat(LINE_BYTES_MAX + 1);
        check(&[&long, "\n"], &format!("P {}\nF x\n", "x".repeat(LINE_BYTES_MAX)));
    }
}
