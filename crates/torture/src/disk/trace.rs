//! Reads what `strace -f -xx` wrote: the writes to one file, its flushes, and what was printed between them.

use std::collections::BTreeMap;

/// The calls that have to be traced.
pub const CALLS: &str = "openat,close,write,pwrite64,pwritev,writev,lseek,fallocate,fdatasync,fsync,ftruncate,mmap,msync,rename,renameat";

/// What the engine of the store writes at once.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// The folder in which the file is made.
pub const NEW: &str = "new";

/// A call to the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Bytes at a place of the file.
    Write {
        /// Where.
        offset: u64,
        /// What.
        bytes: Vec<u8>,
        /// Whether the bytes are on disk when the call returns (`O_DSYNC`).
        is_synced: bool,
    },
    /// A hole is made: zeros, as far as anybody can see.
    Hole {
        /// Where.
        offset: u64,
        /// How long.
        bytes: u64,
    },
    /// Everything that was written before it.
    Flush,
    /// The file gets its name: it is made under it, or moved there from where it was made.
    Name,
    /// The folder's entries.
    FlushFolder,
}

/// One moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The call with this number begins.
    Begin(usize),
    /// It returns, having done its work or not.
    End(usize, bool),
    /// The process prints.
    Print(Vec<u8>),
}

/// The calls of a process to one file.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// By number.
    pub calls: Vec<Call>,
    /// In order.
    pub steps: Vec<Step>,
}

/// An open file.
#[derive(Clone, Copy)]
struct Open {
    what: File,
    is_synced: bool,
    place: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum File {
    Data,
    Folder,
}

/// A call under way, by thread.
struct Begun {
    text: String,
    number: Option<usize>,
}

/// Reads lines.
struct Reader<'a> {
    data: &'a str,
    folder: &'a str,
    trace: Trace,
    open: BTreeMap<i64, Open>,
    begun: BTreeMap<u32, Begun>,
}

impl Trace {
    /// Reads a trace for the file `data`; `folder` is where it is.
    #[must_use]
    pub fn read(text: &str, folder: &str, data: &str) -> Self {
        let mut reader =
            Reader { data, folder, trace: Self::default(), open: BTreeMap::new(), begun: BTreeMap::new() };
        text.lines().for_each(|line| reader.line(line));
        reader.trace
    }

    /// The number of holes that were made.
    #[must_use]
    pub fn holes(&self) -> usize {
        self.calls.iter().filter(|call| matches!(call, Call::Hole { .. })).count()
    }

    /// The negative control of a process that makes holes where something is: each lies a page too early.
    #[must_use]
    pub fn holes_elsewhere(mut self) -> Self {
        for call in &mut self.calls {
            if let Call::Hole { offset, .. } = call {
                *offset = offset.saturating_sub(PAGE_BYTES);
            }
        }
        self
    }

    /// The negative control of a process that gives space back before what freed it is on disk: each hole is made so many
    /// flushes early.
    #[must_use]
    pub fn holes_early(mut self, flushes: usize) -> Self {
        let mut steps: Vec<Step> = Vec::with_capacity(self.steps.len());
        // Where each flush begins, without the holes before it.
        let (mut begins, mut moved) = (Vec::new(), Vec::new());
        for step in self.steps {
            let call = match &step {
                Step::Begin(call) | Step::End(call, _) => self.calls.get(*call),
                Step::Print(_) => None,
            };
            match (call, &step) {
                (Some(Call::Hole { .. }), _) => {
                    let at = begins.iter().rev().nth(flushes.saturating_sub(1)).copied().unwrap_or(0);
                    moved.push((at, step));
                    continue;
                }
                (Some(Call::Flush), Step::Begin(_)) => begins.push(steps.len()),
                _ => {}
            }
            steps.push(step);
        }
        for (at, step) in moved.into_iter().rev() {
            steps.insert(at, step);
        }
        self.steps = steps;
        self
    }

    /// The negative control of a process that says what is done before it is: each line is printed before the flush
    /// that it waited for.
    #[must_use]
    pub fn acknowledged_early(mut self) -> Self {
        let mut steps: Vec<Step> = Vec::with_capacity(self.steps.len());
        let mut flush = 0;
        for step in self.steps {
            match &step {
                Step::Begin(call) if self.calls.get(*call) == Some(&Call::Flush) => {
                    flush = steps.len();
                    steps.push(step);
                }
                Step::Print(_) => {
                    steps.insert(flush, step);
                    flush += 1;
                }
                _ => steps.push(step),
            }
        }
        self.steps = steps;
        self
    }
}

impl Reader<'_> {
    fn line(&mut self, line: &str) {
        let Some((thread, rest)) = line.split_once(' ') else { return };
        let Ok(thread) = thread.parse() else { return };
        let rest = rest.trim_start();
        if let Some(resumed) = rest.strip_prefix("<... ") {
            let Some((_, tail)) = resumed.split_once(" resumed>") else { return };
            let Some(begun) = self.begun.remove(&thread) else { return };
            self.end(&format!("{}{tail}", begun.text), begun.number);
        } else if let Some(text) = rest.strip_suffix(" <unfinished ...>") {
            let number = self.begin(text);
            self.begun.insert(thread, Begun { text: text.to_owned(), number });
        } else {
            let number = self.begin(rest);
            self.end(rest, number);
        }
    }

    /// A call begins: its bytes may reach the disk from now on.
    fn begin(&mut self, text: &str) -> Option<usize> {
        let (name, arguments) = text.split_once('(')?;
        if name.starts_with("rename") {
            let moved = strings(arguments);
            let (from, to) = (moved.first()?, moved.get(1)?);
            let is_ours = self.is_made(from) && self.name_of(to) == Some(self.data);
            return is_ours.then(|| self.called(Call::Name));
        }
        let file = self.open.get(&number(arguments)?).copied();
        if name == "write" && number(arguments) == Some(1) {
            self.trace.steps.push(Step::Print(strings(arguments).concat()));
            return None;
        }
        let file = file?;
        let call = match name {
            "fdatasync" | "fsync" if file.what == File::Folder => Call::FlushFolder,
            "fdatasync" | "fsync" => Call::Flush,
            "write" | "writev" => Call::Write {
                offset: file.place,
                bytes: strings(arguments).concat(),
                is_synced: file.is_synced,
            },
            "pwrite64" | "pwritev" => Call::Write {
                offset: u64::try_from(last_number(arguments)?).ok()?,
                bytes: strings(arguments).concat(),
                is_synced: file.is_synced,
            },
            "fallocate" => {
                let mut numbers = arguments.split(", ").skip(2).filter_map(number);
                let mut next = || u64::try_from(numbers.next()?).ok();
                Call::Hole { offset: next()?, bytes: next()? }
            }
            _ => return None,
        };
        Some(self.called(call))
    }

    fn called(&mut self, call: Call) -> usize {
        let number = self.trace.calls.len();
        self.trace.calls.push(call);
        self.trace.steps.push(Step::Begin(number));
        number
    }

    /// A path within the folder; empty for the folder itself.
    fn name_of<'p>(&self, path: &'p [u8]) -> Option<&'p str> {
        let rest = std::str::from_utf8(path).ok()?.strip_prefix(self.folder)?;
        Some(rest.trim_start_matches('/'))
    }

    /// Whether this is where the file is before it gets its name.
    fn is_made(&self, path: &[u8]) -> bool {
        self.name_of(path).and_then(|name| name.strip_prefix(NEW)?.strip_prefix('/')) == Some(self.data)
    }

    /// A call returns.
    fn end(&mut self, text: &str, call: Option<usize>) {
        let Some((head, result)) = text.rsplit_once(" = ") else { return };
        let result = number(result).unwrap_or(-1);
        if let Some(call) = call {
            self.trace.steps.push(Step::End(call, result >= 0));
        }
        let Some((name, arguments)) = head.split_once('(') else { return };
        match name {
            "openat" if result >= 0 => self.opened(arguments, result),
            "close" => {
                self.open.remove(&number(arguments).unwrap_or(-1));
            }
            "lseek" => {
                if let Some(file) = self.open.get_mut(&number(arguments).unwrap_or(-1)) {
                    file.place = u64::try_from(result).unwrap_or(0);
                }
            }
            _ => {}
        }
    }

    fn opened(&mut self, arguments: &str, fd: i64) {
        let path = strings(arguments).concat();
        let what = match self.name_of(&path) {
            Some("") => File::Folder,
            Some(name) if name == self.data => {
                let number = self.called(Call::Name);
                self.trace.steps.push(Step::End(number, true));
                File::Data
            }
            Some(_) if self.is_made(&path) => File::Data,
            _ => return,
        };
        let is_synced = arguments.contains("O_DSYNC") || arguments.contains("O_SYNC");
        self.open.insert(fd, Open { what, is_synced, place: 0 });
    }
}

/// The number that a text begins with.
fn number(text: &str) -> Option<i64> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

/// The last argument.
fn last_number(arguments: &str) -> Option<i64> {
    let inside = arguments.rsplit_once(')').map_or(arguments, |(inside, _)| inside);
    number(inside.rsplit_once(", ")?.1)
}

/// The bytes of every string in the arguments: `"\x61\x62"`.
fn strings(arguments: &str) -> Vec<Vec<u8>> {
    let inside = arguments.split('"').skip(1).step_by(2);
    let byte = |hex: &str| u8::from_str_radix(hex.get(..2)?, 16).ok();
    inside.map(|text| text.split("\\x").filter_map(byte).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Step::{Begin, End, Print};

    #[test]
    fn writes_flushes_and_prints_are_read_in_order() {
        let text = r#"7 openat(AT_FDCWD, "\x2f\x64\x2f\x66", O_RDWR|O_CREAT, 0600) = 3
7 openat(AT_FDCWD, "\x2f\x64\x2f\x66", O_RDWR|O_DSYNC) = 4
7 openat(AT_FDCWD, "\x2f\x64\x2f\x67", O_RDWR) = 5
7 openat(AT_FDCWD, "\x2f\x64", O_RDONLY) = 6
7 pwritev(3, [{iov_base="\x01\x02", iov_len=2}, {iov_base="\x03", iov_len=1}], 2, 4096) = 3
7 fdatasync(3 <unfinished ...>
8 write(1, "\x6f\x6b", 2) = 2
7 <... fdatasync resumed>) = 0
7 pwrite64(4, "\x09", 1, 16) = -1 EIO (Input/output error) (INJECTED)
7 pwrite64(5, "\x09", 1, 16) = 1
7 lseek(3, 512, SEEK_SET) = 512
7 writev(3, [{iov_base="\x05", iov_len=1}], 1) = 1
7 fallocate(3, FALLOC_FL_KEEP_SIZE|FALLOC_FL_PUNCH_HOLE, 8192, 4096) = 0
7 fsync(6) = 0
7 +++ exited with 0 +++
"#;
        let trace = Trace::read(text, "/d", "f");
        let write =
            |offset, bytes: &[u8], is_synced| Call::Write { offset, bytes: bytes.to_vec(), is_synced };
        let calls = [
            Call::Name,
            Call::Name,
            write(4096, &[1, 2, 3], false),
            Call::Flush,
            write(16, &[9], true),
            write(512, &[5], false),
            Call::Hole { offset: 8192, bytes: 4096 },
            Call::FlushFolder,
        ];
        assert_eq!(trace.calls, calls);
        let steps = [
            Begin(0),
            End(0, true),
            Begin(1),
            End(1, true),
            Begin(2),
            End(2, true),
            Begin(3),
            Print(b"ok".to_vec()),
            End(3, true),
            Begin(4),
            End(4, false),
            Begin(5),
            End(5, true),
            Begin(6),
            End(6, true),
            Begin(7),
            End(7, true),
        ];
        assert_eq!(trace.steps, steps);
    }

    #[test]
    fn a_file_that_is_made_aside_has_its_name_when_it_is_moved() {
        let text = r#"7 openat(AT_FDCWD, "\x2f\x64\x2f\x6e\x65\x77\x2f\x66", O_RDWR|O_CREAT, 0600) = 3
7 pwrite64(3, "\x09", 1, 16) = 1
7 rename("\x2f\x64\x2f\x6e\x65\x77\x2f\x66", "\x2f\x64\x2f\x66") = 0
"#;
        let write = Call::Write { offset: 16, bytes: vec![9], is_synced: false };
        assert_eq!(Trace::read(text, "/d", "f").calls, [write, Call::Name]);
    }

    #[test]
    fn a_hole_is_moved_before_the_flushes_that_it_waited_for() {
        let hole = Call::Hole { offset: 0, bytes: 4096 };
        let trace = Trace {
            calls: vec![Call::Flush, Call::Flush, hole.clone(), Call::Flush, hole],
            steps: (0..5).flat_map(|call| [Begin(call), End(call, true)]).collect(),
        };
        let order = |flushes| {
            let steps = trace.clone().holes_early(flushes).steps;
            let begun =
                steps.iter().filter_map(|step| if let Begin(call) = step { Some(*call) } else { None });
            begun.collect::<Vec<_>>()
        };
        assert_eq!(order(1), [0, 2, 1, 4, 3]);
        assert_eq!(order(2), [2, 0, 4, 1, 3]);
        assert_eq!(order(9), [2, 4, 0, 1, 3]);
    }
}
