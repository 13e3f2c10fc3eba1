//! Log files in CRI format: `<time> <stdout|stderr> <P|F> <content>`, a line each.
//!
//! `P` marks a part of a longer line: no line end follows it. Lines are read as they are written; a line that
//! is not complete yet waits for its rest.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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

/// A reader that remembers where it is in a container's log: the files that were rotated away, oldest first, and
/// the one that is written.
pub(super) struct LogReader {
    /// The first is being read. Never empty.
    files: VecDeque<BufReader<File>>,
    path: PathBuf,
    pending: Vec<u8>,
    wanted: Wanted,
    left: u64,
}

/// Bytes that one read collects at most.
const CHUNK: usize = 64 * 1024;

impl LogReader {
    /// Opens the log that is written at `path` and finds where to begin.
    pub(super) fn open(path: &Path, wanted: Wanted) -> std::io::Result<Self> {
        let mut files = VecDeque::new();
        let mut lines_left = wanted.tail_lines;
        for mut file in all_files(path)?.into_iter().rev() {
            if wanted.since.is_some_and(|since| ended_before(&file, since)) && !files.is_empty() {
                break;
            }
            if let Some(lines) = lines_left {
                let (start, found) = tail_start(&mut file, lines)?;
                file.seek(SeekFrom::Start(start))?;
                lines_left = Some(lines - found);
            }
            files.push_front(BufReader::new(file));
            if lines_left == Some(0) {
                break;
            }
        }
        let left = wanted.limit_bytes.unwrap_or(u64::MAX);
        Ok(Self { files, path: path.to_owned(), pending: Vec::new(), wanted, left })
    }

    /// Goes on with the files that have come after the last known one: it was rotated away.
    pub(super) fn follow_rotation(&mut self) -> std::io::Result<()> {
        let known = self.files.back().map(|file| identity(file.get_ref())).transpose()?;
        let mut newer = Vec::new();
        for file in all_files(&self.path)?.into_iter().rev() {
            if Some(identity(&file)?) == known {
                break;
            }
            newer.push(file);
        }
        self.files.extend(newer.into_iter().rev().map(BufReader::new));
        Ok(())
    }

    /// Whether the byte limit is reached.
    pub(super) fn is_exhausted(&self) -> bool {
        self.left == 0
    }

    /// The next output; empty at the end of what is there now.
    pub(super) fn read(&mut self) -> std::io::Result<Vec<u8>> {
        let mut out = Vec::new();
        while out.len() < CHUNK && self.left > 0 {
            let Some(file) = self.files.front_mut() else { break };
            if file.read_until(b'\n', &mut self.pending)? == 0 || self.pending.last() != Some(&b'\n') {
                if self.files.len() < 2 {
                    break;
                }
                // Nothing is written any more to what was rotated away.
                self.pending.clear();
                self.files.pop_front();
                continue;
            }
            let line = std::mem::take(&mut self.pending);
            let before = out.len();
            render(&line, &self.wanted, &mut out);
            let added = (out.len() - before) as u64;
            if added > self.left {
                out.truncate(before + usize::try_from(self.left).unwrap_or(0));
            }
            self.left = self.left.saturating_sub(added);
        }
        Ok(out)
    }
}

/// The log's files, oldest first, all of them open: one that is removed meanwhile is read all the same.
fn all_files(path: &Path) -> std::io::Result<Vec<File>> {
    let mut rotated = Vec::new();
    if let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) {
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let file_name = entry.file_name();
            let suffix = file_name.to_str().and_then(|it| it.strip_prefix(name)?.strip_prefix('.'));
            let is_rotated = |suffix: &str| suffix.starts_with(|c: char| c.is_ascii_digit());
            if suffix.is_some_and(|it| is_rotated(it) && !it.ends_with(".gz") && !it.ends_with(".tmp")) {
                rotated.push(entry.path());
            }
        }
    }
    rotated.sort();
    // The newest first: a rotation meanwhile makes a file seen twice, never one missed.
    let newest = File::open(path)?;
    let mut seen = BTreeSet::from([identity(&newest)?]);
    let mut files = vec![newest];
    for path in rotated.iter().rev() {
        match File::open(path) {
            Ok(file) if seen.insert(identity(&file)?) => files.push(file),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    files.reverse();
    Ok(files)
}

fn identity(file: &File) -> std::io::Result<(u64, u64)> {
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Whether the last line is older than `since`.
fn ended_before(file: &File, since: Timestamp) -> bool {
    let modified = file.metadata().and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| Timestamp::try_from(modified).is_ok_and(|modified| modified < since))
}

/// Adds what is shown of one line.
fn render(line: &[u8], wanted: &Wanted, out: &mut Vec<u8>) {
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
    if wanted.timestamps {
        out.extend_from_slice(time.as_bytes());
        out.push(b' ');
    }
    out.extend_from_slice(content);
    if tag != b"P" {
        out.push(b'\n');
    }
}

/// Where the last `lines` lines begin, and how many there are.
fn tail_start(file: &mut File, lines: usize) -> std::io::Result<(u64, usize)> {
    let total = file.seek(SeekFrom::End(0))?;
    if lines == 0 {
        return Ok((total, 0));
    }
    let mut end = total;
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
                    return Ok((end + index as u64 + 1, lines));
                }
                seen += 1;
            }
        }
    }
    Ok((0, seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "2026-01-01T00:00:01Z stdout F one\n2026-01-01T00:00:02Z stderr F two\n2026-01-01T00:00:03Z stdout P thr\n2026-01-01T00:00:03Z stdout F ee\n";

    fn check(wanted: Wanted, expect: &str) {
        for rotated_lines in 0..3 {
            let dir = tempfile::tempdir().unwrap();
            let path = log(&dir, rotated_lines);
            let mut reader = LogReader::open(&path, wanted.clone()).unwrap();
            let text = String::from_utf8(reader.read().unwrap()).unwrap();
            assert_eq!(text, expect, "with {rotated_lines} lines rotated away");
        }
    }

    /// [`LOG`], the first lines of which were rotated away, each into a file of its own.
    fn log(dir: &tempfile::TempDir, rotated_lines: usize) -> PathBuf {
        let path = dir.path().join("0.log");
        let lines: Vec<&str> = LOG.split_inclusive('\n').collect();
        for (number, line) in lines.iter().take(rotated_lines).enumerate() {
            std::fs::write(dir.path().join(format!("0.log.2026010{number}-000000")), line).unwrap();
        }
        std::fs::write(&path, lines[rotated_lines..].concat()).unwrap();
        path
    }

    #[test]
    fn nothing_is_missed_however_often_the_log_is_rotated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let rotate = |name: &str| std::fs::rename(&path, dir.path().join(format!("0.log.{name}"))).unwrap();
        let write =
            |text: &str| std::fs::write(&path, format!("2026-01-01T00:00:01Z stdout F {text}\n")).unwrap();
        write("a");
        let mut reader = LogReader::open(&path, Wanted::default()).unwrap();
        assert_eq!(reader.read().unwrap(), b"a\n");
        rotate("20260101-000000");
        write("b");
        rotate("20260102-000000");
        write("c");
        reader.follow_rotation().unwrap();
        assert_eq!(reader.read().unwrap(), b"b\nc\n");
        reader.follow_rotation().unwrap();
        assert_eq!(reader.read().unwrap(), b"");
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
