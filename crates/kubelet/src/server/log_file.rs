//! Log files in CRI format: `<time> <stdout|stderr> <P|F> <content>`, a line each.
//!
//! `P` marks a part of a longer line: no line end follows it. Lines are read as they are written; a line that
//! is not complete yet waits for its rest. Files that were rotated away may be compressed meanwhile.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
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
    files: VecDeque<Opened>,
    path: PathBuf,
    pending: Vec<u8>,
    wanted: Wanted,
    left: u64,
    /// Whether the last thing shown was a part of a line whose rest is to come.
    is_inside_line: bool,
}

/// More than what stands before a line's content.
const PREFIX_BYTES: u64 = 80;
/// Bytes that one read collects at most.
const CHUNK: usize = 64 * 1024;

impl LogReader {
    /// Opens the log that is written at `path` and finds where to begin.
    pub(super) fn open(path: &Path, wanted: Wanted) -> std::io::Result<Self> {
        let mut files = VecDeque::new();
        let mut lines_left = wanted.tail_lines;
        for mut file in all_files(path)?.into_iter().rev() {
            if wanted.since.is_some_and(|since| ended_before(&file.file, since)) && !files.is_empty() {
                break;
            }
            if let Some(lines) = lines_left {
                // A line that a rotation has parted counts where it ends.
                let parted = usize::from(!files.is_empty() && file.ends_with_part()?);
                if lines + parted == 0 {
                    break;
                }
                let (found, is_whole) = file.seek_to_last(lines + parted)?;
                lines_left = Some(lines - found.saturating_sub(parted));
                if !is_whole {
                    // What the file before it ends with is not followed by what is shown of this one.
                    files.push_front(file);
                    break;
                }
            }
            files.push_front(file);
        }
        let left = wanted.limit_bytes.unwrap_or(u64::MAX);
        Ok(Self { files, path: path.to_owned(), pending: Vec::new(), wanted, left, is_inside_line: false })
    }

    /// Goes on with the files that have come after the last known one: it was rotated away.
    pub(super) fn follow_rotation(&mut self) -> std::io::Result<()> {
        let mut newer = Vec::new();
        for file in all_files(&self.path)?.into_iter().rev() {
            if let Some(known) = self.files.back()
                && known.is_same(&file)?
            {
                break;
            }
            newer.push(file);
        }
        self.files.extend(newer.into_iter().rev());
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
            if file.content.read_until(b'\n', &mut self.pending)? == 0 || self.pending.last() != Some(&b'\n')
            {
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

/// One of a log's files.
struct Opened {
    /// As it lies there: it keeps its inode while it is renamed.
    file: File,
    is_packed: bool,
    content: Box<dyn BufRead + Send>,
}

impl Opened {
    fn plain(file: File) -> std::io::Result<Self> {
        let content = Box::new(BufReader::new(file.try_clone()?));
        Ok(Self { file, is_packed: false, content })
    }

    fn packed(file: File) -> std::io::Result<Self> {
        let content = Box::new(BufReader::new(GzDecoder::new(BufReader::new(file.try_clone()?))));
        Ok(Self { file, is_packed: true, content })
    }

    /// The file at `path`, or what it has become.
    fn rotated(path: &Path) -> std::io::Result<Option<Self>> {
        let opened = match File::open(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                File::open(with_suffix(path, PACKED)).and_then(Self::packed)
            }
            opened => opened.and_then(Self::plain),
        };
        match opened {
            Ok(opened) => Ok(Some(opened)),
            // It was the oldest, and there were too many.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether both are the same log, whatever it has become: packing keeps the time of the last line, and notes the
    /// length.
    fn is_same(&self, other: &Self) -> std::io::Result<bool> {
        let (own, others) = (self.file.metadata()?, other.file.metadata()?);
        if self.is_packed == other.is_packed {
            return Ok((own.dev(), own.ino()) == (others.dev(), others.ino()));
        }
        Ok(own.modified()? == others.modified()? && self.length()? == other.length()?)
    }

    /// The length of what was written, modulo 2^32. Source: RFC 1952, `ISIZE`.
    fn length(&self) -> std::io::Result<u32> {
        let length = self.file.metadata()?.len();
        let mut bytes = length.to_le_bytes();
        if self.is_packed {
            self.file.read_exact_at(&mut bytes[..4], length.saturating_sub(4))?;
        }
        let [a, b, c, d, ..] = bytes;
        Ok(u32::from_le_bytes([a, b, c, d]))
    }

    /// Whether the rest of its last line is in the next file. containerd parts lines so when a log is rotated.
    fn ends_with_part(&mut self) -> std::io::Result<bool> {
        let mut last = Vec::new();
        if self.is_packed {
            let mut line = Vec::new();
            while self.content.read_until(b'\n', &mut line)? > 0 {
                last = std::mem::take(&mut line);
            }
            self.file.seek(SeekFrom::Start(0))?;
            *self = Self::packed(self.file.try_clone()?)?;
        } else {
            let (start, _) = tail_start(&mut self.file, 1)?;
            self.file.seek(SeekFrom::Start(start))?;
            (&mut self.file).take(PREFIX_BYTES).read_to_end(&mut last)?;
        }
        Ok(last.split(|byte| *byte == b' ').nth(2) == Some(b"P"))
    }

    /// Goes to where the last `lines` lines begin; says how many there are, and whether that is the file's beginning.
    fn seek_to_last(&mut self, lines: usize) -> std::io::Result<(usize, bool)> {
        if !self.is_packed {
            let (start, found) = tail_start(&mut self.file, lines)?;
            // The content's descriptor is a copy of this one: they share their place.
            self.file.seek(SeekFrom::Start(start))?;
            return Ok((found, start == 0));
        }
        let mut total = 0;
        while skip_line(&mut self.content)? {
            total += 1;
        }
        self.file.seek(SeekFrom::Start(0))?;
        *self = Self::packed(self.file.try_clone()?)?;
        for _ in lines..total {
            skip_line(&mut self.content)?;
        }
        Ok((total.min(lines), total <= lines))
    }
}

/// Reads past a line's end; `false` if there is none any more.
fn skip_line(content: &mut impl BufRead) -> std::io::Result<bool> {
    loop {
        let buffer = content.fill_buf()?;
        if buffer.is_empty() {
            return Ok(false);
        }
        if let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            content.consume(end + 1);
            return Ok(true);
        }
        let length = buffer.len();
        content.consume(length);
    }
}

/// What the name of a compressed file ends with.
const PACKED: &str = ".gz";

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// The log's files, oldest first, all of them open: one that is removed meanwhile is read all the same.
fn all_files(path: &Path) -> std::io::Result<Vec<Opened>> {
    // The newest first: a rotation meanwhile makes a file seen twice, never one missed.
    let newest = Opened::plain(File::open(path)?)?;
    let mut rotated = BTreeSet::new();
    if let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) {
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?.file_name();
            let Some(entry) = entry.to_str().filter(|entry| !entry.ends_with(".tmp")) else { continue };
            let entry = entry.strip_suffix(PACKED).unwrap_or(entry);
            let suffix = entry.strip_prefix(name).and_then(|rest| rest.strip_prefix('.'));
            if suffix.is_some_and(|suffix| suffix.starts_with(|c: char| c.is_ascii_digit())) {
                rotated.insert(dir.join(entry));
            }
        }
    }
    let mut files = Vec::new();
    for path in &rotated {
        if let Some(file) = Opened::rotated(path)?
            && (file.is_packed || !file.is_same(&newest)?)
        {
            files.push(file);
        }
    }
    files.push(newest);
    Ok(files)
}

/// Whether the last line is older than `since`.
fn ended_before(file: &File, since: Timestamp) -> bool {
    let modified = file.metadata().and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| Timestamp::try_from(modified).is_ok_and(|modified| modified < since))
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
        for (rotated_lines, packed_lines) in [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1), (2, 2)] {
            let dir = tempfile::tempdir().unwrap();
            let path = log(&dir, rotated_lines);
            (0..packed_lines).for_each(|number| pack(&dir.path().join(rotated(number))));
            let mut reader = LogReader::open(&path, wanted.clone()).unwrap();
            let text = String::from_utf8(reader.read().unwrap()).unwrap();
            assert_eq!(text, expect, "with {rotated_lines} lines rotated away, {packed_lines} packed");
        }
    }

    #[test]
    fn a_line_that_a_rotation_has_parted_counts_once() {
        for (packed_lines, lines, expect) in [
            (0, 1, "three\n"),
            (0, 2, "two\nthree\n"),
            (3, 1, "three\n"),
            (3, 2, "two\nthree\n"),
            (3, 9, "one\ntwo\nthree\n"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let path = log(&dir, 3);
            (0..packed_lines).for_each(|number| pack(&dir.path().join(rotated(number))));
            let wanted = Wanted { tail_lines: Some(lines), ..Wanted::default() };
            let text = LogReader::open(&path, wanted).unwrap().read().unwrap();
            assert_eq!(String::from_utf8(text).unwrap(), expect, "{packed_lines} packed, the last {lines}");
        }
    }

    #[test]
    fn a_parted_line_that_is_not_among_the_last_is_not_shown() {
        let older = "2026-01-01T00:00:01Z stdout F one\n2026-01-01T00:00:02Z stdout P tw\n";
        let newer = "2026-01-01T00:00:02Z stdout F o\n2026-01-01T00:00:03Z stdout F three\n2026-01-01T00:00:04Z stdout F four\n";
        for is_packed in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("0.log");
            std::fs::write(dir.path().join(rotated(0)), older).unwrap();
            std::fs::write(&path, newer).unwrap();
            if is_packed {
                pack(&dir.path().join(rotated(0)));
            }
            for (lines, expect) in [
                (0, ""),
                (1, "four\n"),
                (2, "three\nfour\n"),
                (3, "two\nthree\nfour\n"),
                (4, "one\ntwo\nthree\nfour\n"),
            ] {
                let wanted = Wanted { tail_lines: Some(lines), ..Wanted::default() };
                let text = LogReader::open(&path, wanted).unwrap().read().unwrap();
                assert_eq!(String::from_utf8(text).unwrap(), expect, "packed: {is_packed}, the last {lines}");
            }
        }
    }

    fn rotated(number: usize) -> String {
        format!("0.log.2026010{number}-000000")
    }

    /// As the container runtime does.
    fn pack(path: &Path) {
        let plain = File::open(path).unwrap();
        let packed = File::create(with_suffix(path, PACKED)).unwrap();
        let mut encoder = flate2::write::GzEncoder::new(packed, flate2::Compression::default());
        std::io::copy(&mut &plain, &mut encoder).unwrap();
        let packed = encoder.finish().unwrap();
        packed.set_modified(plain.metadata().unwrap().modified().unwrap()).unwrap();
        std::fs::remove_file(path).unwrap();
    }

    /// [`LOG`], the first lines of which were rotated away, each into a file of its own.
    fn log(dir: &tempfile::TempDir, rotated_lines: usize) -> PathBuf {
        let path = dir.path().join("0.log");
        let lines: Vec<&str> = LOG.split_inclusive('\n').collect();
        for (number, line) in lines.iter().take(rotated_lines).enumerate() {
            std::fs::write(dir.path().join(rotated(number)), line).unwrap();
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
        // The reader knows what it has read, also in another form.
        pack(&dir.path().join("0.log.20260101-000000"));
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
