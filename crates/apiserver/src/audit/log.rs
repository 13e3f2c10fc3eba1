//! The audit log's file: one event per line, in a task of its own behind a bounded queue.
//!
//! Source: `--audit-log-path`, `--audit-log-maxage`, `--audit-log-maxbackup`, `--audit-log-maxsize`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Clock, Tasks};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tracing::warn;

/// How many events may wait for the disk; more are dropped and counted.
const WAITING_MAX: usize = 10_000;
/// How long they may be together: clients choose what is in them, and a policy may want all that was sent.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// The file of the log and how much of it is kept; 0 is no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogFile {
    /// `-` is standard output.
    pub path: PathBuf,
    /// Files older than this many days are removed.
    pub days_max: u32,
    /// The number of old files that are kept.
    pub files_max: usize,
    /// A file that grows beyond so many megabytes is put aside.
    pub megabytes_max: u64,
}

/// An event that waits for the disk, and the room that it takes.
struct Line {
    text: String,
    _bytes: OwnedSemaphorePermit,
}

/// The queue's near end.
#[derive(Clone)]
pub(super) struct Lines {
    sender: mpsc::Sender<Line>,
    bytes: Arc<Semaphore>,
}

impl Lines {
    /// Sends a line to be written; says whether there was room for it.
    pub(super) fn send(&self, text: String) -> bool {
        let bytes =
            u32::try_from(text.len()).map(|length| Arc::clone(&self.bytes).try_acquire_many_owned(length));
        let Ok(Ok(bytes)) = bytes else { return false };
        self.sender.try_send(Line { text, _bytes: bytes }).is_ok()
    }
}

/// Starts the writer; what is sent is written as one line each.
///
/// # Errors
/// If the file cannot be opened.
pub(super) fn start(file: LogFile, tasks: &Tasks, clock: Clock) -> std::io::Result<Lines> {
    let (sender, mut receiver) = mpsc::channel::<Line>(WAITING_MAX);
    let mut writer = Writer { out: None, written: 0, file, clock };
    writer.open()?;
    let stopping = tasks.clone();
    tasks.spawn_to_end("audit-log", async move {
        let mut lines = Vec::new();
        loop {
            tokio::select! {
                count = receiver.recv_many(&mut lines, 256) => if count == 0 { return },
                () = stopping.stopping() => {
                    // What was said before the end is written, what comes later belongs to nobody.
                    while let Ok(line) = receiver.try_recv() {
                        lines.push(line);
                    }
                    writer.write(&lines);
                    return;
                }
            }
            let batch = std::mem::take(&mut lines);
            let moved = tokio::task::spawn_blocking(move || {
                writer.write(&batch);
                writer
            });
            match moved.await {
                Ok(back) => writer = back,
                Err(failure) => return warn!(%failure, "the audit log has ended"),
            }
        }
    });
    Ok(Lines { sender, bytes: Arc::new(Semaphore::new(WAITING_BYTES_MAX)) })
}

struct Writer {
    out: Option<std::fs::File>,
    written: u64,
    file: LogFile,
    clock: Clock,
}

impl Writer {
    fn open(&mut self) -> std::io::Result<()> {
        if self.file.path != Path::new("-") {
            if let Some(folder) = self.file.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                let mut folders = std::fs::DirBuilder::new();
                std::os::unix::fs::DirBuilderExt::mode(&mut folders, 0o700);
                folders.recursive(true).create(folder)?;
            }
            let mut options = std::fs::OpenOptions::new();
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            let out = options.create(true).append(true).open(&self.file.path)?;
            self.written = out.metadata()?.len();
            self.out = Some(out);
        }
        Ok(())
    }

    fn write(&mut self, lines: &[Line]) {
        let mut text = String::with_capacity(lines.iter().map(|line| line.text.len() + 1).sum());
        for line in lines {
            text.push_str(&line.text);
            text.push('\n');
        }
        let result = match &mut self.out {
            Some(out) => out.write_all(text.as_bytes()),
            None => std::io::stdout().write_all(text.as_bytes()),
        };
        self.written += text.len() as u64;
        let limit = self.file.megabytes_max.saturating_mul(1 << 20);
        let is_full = self.out.is_some() && limit > 0 && self.written >= limit;
        if let Err(failure) = result.and_then(|()| if is_full { self.rotate() } else { Ok(()) }) {
            warn!(%failure, "cannot write the audit log");
        }
    }

    /// Puts the file aside as `audit-<time>.log`, and removes what is too old or too much.
    fn rotate(&mut self) -> std::io::Result<()> {
        let now = self.clock.now();
        std::fs::rename(&self.file.path, aside(&self.file.path, now))?;
        self.open()?;
        let Some(folder) = self.file.path.parent() else { return Ok(()) };
        let prefix = format!("{}-", stem(&self.file.path));
        let mut old: Vec<PathBuf> =
            std::fs::read_dir(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })?
                .filter_map(|entry| Some(entry.ok()?.path()))
                .filter(|path| stem(path).starts_with(&prefix))
                .collect();
        old.sort();
        old.reverse();
        let oldest =
            aside(&self.file.path, now - SignedDuration::from_hours(24 * i64::from(self.file.days_max)));
        for (number, path) in old.iter().enumerate() {
            let is_surplus = self.file.files_max > 0 && number >= self.file.files_max;
            if is_surplus || (self.file.days_max > 0 && *path < oldest) {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

fn stem(path: &Path) -> String {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The name of a file that was put aside: names sort by time.
fn aside(path: &Path, at: Timestamp) -> PathBuf {
    let extension = path.extension().map(|e| format!(".{}", e.to_string_lossy())).unwrap_or_default();
    path.with_file_name(format!("{}-{}{extension}", stem(path), at.strftime("%Y-%m-%dT%H-%M-%S.%3f")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: String) -> Line {
        let bytes = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        Line { text, _bytes: bytes }
    }

    /// Nothing is written before the test waits.
    #[tokio::test]
    async fn what_waits_for_the_disk_has_a_length_and_gives_its_room_back() {
        let dir = tempfile::tempdir().unwrap();
        let file = LogFile { path: dir.path().join("audit.log"), ..LogFile::default() };
        let tasks = Tasks::new();
        let lines = start(file.clone(), &tasks, Clock::system()).unwrap();
        let long = "x".repeat(1 << 20);
        let taken = (0..100).filter(|_| lines.send(long.clone())).count();
        assert_eq!(taken, WAITING_BYTES_MAX >> 20);
        assert!(!lines.send("short".to_owned()));
        let all = u32::try_from(WAITING_BYTES_MAX).unwrap();
        drop(lines.bytes.acquire_many(all).await.unwrap());
        let taken = (0..2 * WAITING_MAX).filter(|_| lines.send("short".to_owned())).count();
        assert_eq!(taken, WAITING_MAX);
        tasks.stop_and_wait().await;
        let written = std::fs::metadata(&file.path).unwrap().len();
        assert_eq!(written, ((WAITING_BYTES_MAX >> 20) * (long.len() + 1) + WAITING_MAX * 6) as u64);
    }

    #[test]
    fn a_full_file_is_put_aside_and_few_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/audit.log");
        let file = LogFile { path: path.clone(), ..LogFile::default() };
        Writer { out: None, written: 0, file, clock: Clock::system() }.open().unwrap();
        let mode =
            |path: &Path| std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
        assert_eq!((mode(&path) & 0o777, mode(path.parent().unwrap()) & 0o777), (0o600, 0o700));
        for old in ["2020-01-01T00-00-00.000", "2021-01-01T00-00-00.000"] {
            std::fs::write(dir.path().join(format!("new/audit-{old}.log")), "old").unwrap();
        }
        let file = LogFile { path: path.clone(), files_max: 2, megabytes_max: 1, ..LogFile::default() };
        let mut writer = Writer { out: None, written: 0, file, clock: Clock::system() };
        writer.open().unwrap();
        writer.write(&[line("x".repeat(1 << 20))]);
        writer.write(&[line("next".to_owned())]);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "next\n");
        let mut names: Vec<String> = std::fs::read_dir(dir.path().join("new"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names.len(), 3, "{names:?}");
        assert!(names[0].starts_with("audit-2021"), "the oldest went: {names:?}");
    }
}
