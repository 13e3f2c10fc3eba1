//! Log files: what was printed, in records of a line each.
//!
//! A part of a longer line has no line end after it. Records are read as they are written; one that is not complete
//! yet waits for its rest. Files that were rotated away may be compressed meanwhile.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use cri::logs::Record;
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
                if lines + parted == 0 && !files.is_empty() {
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
        let tags = last.split(|byte| *byte == b' ').nth(2).unwrap_or_default();
        Ok(tags.split(|byte| *byte == b':').next() == Some(b"P"))
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
    let Some(record) = Record::parse(line) else { return };
    if wanted.stream.as_ref().is_some_and(|only| *only != record.stream)
        || wanted.since.is_some_and(|since| record.at < since)
    {
        return;
    }
    if wanted.timestamps && !*is_inside_line {
        out.extend_from_slice(record.shown_time().as_bytes());
        out.push(b' ');
    }
    out.extend_from_slice(&record.content);
    *is_inside_line = !record.ends_line();
}

/// Where the last `lines` complete lines begin, and how many there are.
fn tail_start(file: &mut File, lines: usize) -> std::io::Result<(u64, usize)> {
    let total = file.seek(SeekFrom::End(0))?;
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
mod tests;
