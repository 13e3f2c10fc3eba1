//! Log files in CRI format: `<time> <stdout|stderr> <P|F> <content>`, a line each.
//!
//! `P` marks a part of a longer line: no line end follows it. Lines are read as they are written; a line that
//! is not complete yet waits for its rest.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use jiff::Timestamp;

/// Which lines are wanted and how they are shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    /// Only the last so many.
    pub(super) tail_lines: Option<usize>,
    /// Only later ones.
    pub(super) since: Option<Timestamp>,
    /// With their time stamps.
    pub(super) timestamps: bool,
    /// Only of one stream.
    pub(super) stream: Option<String>,
    /// No more bytes than that.
    pub(super) limit_bytes: Option<u64>,
}

/// A reader that remembers where it is.
pub(super) struct LogReader {
    file: BufReader<File>,
    pending: Vec<u8>,
    wanted: Wanted,
    left: u64,
    /// Whether the last thing shown was a part of a line whose rest is to come.
    is_inside_line: bool,
}

/// Bytes that one read collects at most.
const CHUNK: usize = 64 * 1024;

impl LogReader {
    /// Opens the file and finds where to begin.
    pub(super) fn open(path: &Path, wanted: Wanted) -> std::io::Result<Self> {
        let mut file = File::open(path)?;
        if let Some(lines) = wanted.tail_lines {
            let start = tail_start(&mut file, lines)?;
            file.seek(SeekFrom::Start(start))?;
        }
        let left = wanted.limit_bytes.unwrap_or(u64::MAX);
        Ok(Self { file: BufReader::new(file), pending: Vec::new(), wanted, left, is_inside_line: false })
    }

    /// Whether the byte limit is reached.
    pub(super) fn is_exhausted(&self) -> bool {
        self.left == 0
    }

    /// The next output; empty at the end of what is there now.
    pub(super) fn read(&mut self) -> std::io::Result<Vec<u8>> {
        let mut out = Vec::new();
        while out.len() < CHUNK && self.left > 0 {
            if self.file.read_until(b'\n', &mut self.pending)? == 0 || self.pending.last() != Some(&b'\n') {
                break;
            }
            let line = std::mem::take(&mut self.pending);
            let before = out.len();
            render(&line, &self.wanted, &mut self.is_inside_line, &mut out);
            let added = (out.len() - before) as u64;
            if added > self.left {
                out.truncate(before + usize::try_from(self.left).unwrap_or(0));
            }
            self.left = self.left.saturating_sub(added);
        }
        Ok(out)
    }
}

/// Adds what is shown of one line; a line in parts has the time of its first.
fn render(line: &[u8], wanted: &Wanted, is_inside_line: &mut bool, out: &mut Vec<u8>) {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let (Some(time), Some(stream), Some(tag)) = (parts.next(), parts.next(), parts.next()) else { return };
    let content = parts.next().unwrap_or_default();
    let time = String::from_utf8_lossy(time);
    if wanted.stream.as_ref().is_some_and(|only| only.as_bytes() != stream) {
        return;
    }
    if let Some(since) = wanted.since
        && time.parse::<Timestamp>().is_ok_and(|time| time < since)
    {
        return;
    }
    if wanted.timestamps && !*is_inside_line {
        out.extend_from_slice(time.as_bytes());
        out.push(b' ');
    }
    out.extend_from_slice(content);
    *is_inside_line = tag == b"P";
    if !*is_inside_line {
        out.push(b'\n');
    }
}

/// Where the last `lines` lines begin.
fn tail_start(file: &mut File, lines: usize) -> std::io::Result<u64> {
    let mut end = file.seek(SeekFrom::End(0))?;
    let total = end;
    let mut seen = 0;
    let mut buffer = vec![0; CHUNK];
    while end > 0 {
        let size = end.min(CHUNK as u64);
        end -= size;
        file.seek(SeekFrom::Start(end))?;
        let chunk = &mut buffer[..usize::try_from(size).unwrap_or(CHUNK)];
        file.read_exact(chunk)?;
        for (index, byte) in chunk.iter().enumerate().rev() {
            if *byte == b'\n' {
                // The line end before the first wanted line is one more than there are lines.
                if seen == lines {
                    return Ok(end + index as u64 + 1);
                }
                seen += 1;
            }
        }
    }
    Ok(if lines == 0 { total } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "2026-01-01T00:00:01Z stdout F one\n2026-01-01T00:00:02Z stderr F two\n2026-01-01T00:00:03Z stdout P thr\n2026-01-01T00:00:03Z stdout F ee\n";

    fn check(wanted: Wanted, expect: &str) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), LOG).unwrap();
        let mut reader = LogReader::open(file.path(), wanted).unwrap();
        assert_eq!(String::from_utf8(reader.read().unwrap()).unwrap(), expect);
    }

    #[test]
    fn lines_are_joined_cut_and_filtered() {
        check(Wanted::default(), "one\ntwo\nthree\n");
        check(Wanted { tail_lines: Some(3), ..Wanted::default() }, "two\nthree\n");
        check(Wanted { tail_lines: Some(0), ..Wanted::default() }, "");
        check(Wanted { tail_lines: Some(9), ..Wanted::default() }, "one\ntwo\nthree\n");
        check(Wanted { since: "2026-01-01T00:00:02Z".parse().ok(), ..Wanted::default() }, "two\nthree\n");
        check(
            Wanted { stream: Some("stderr".into()), timestamps: true, ..Wanted::default() },
            "2026-01-01T00:00:02Z two\n",
        );
        check(
            Wanted { tail_lines: Some(2), timestamps: true, ..Wanted::default() },
            "2026-01-01T00:00:03Z three\n",
        );
        check(Wanted { limit_bytes: Some(5), ..Wanted::default() }, "one\nt");
    }

    #[test]
    fn a_line_that_is_being_written_waits_for_its_rest() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "2026-01-01T00:00:01Z stdout F on").unwrap();
        let mut reader = LogReader::open(file.path(), Wanted::default()).unwrap();
        assert!(reader.read().unwrap().is_empty());
        std::fs::write(file.path(), "2026-01-01T00:00:01Z stdout F one\n").unwrap();
        assert_eq!(reader.read().unwrap(), b"one\n");
    }
}
