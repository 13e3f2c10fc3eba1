//! A store in a process of its own, with `strace` between it and the kernel: to kill it at a call, to have a call
//! fail, or to take down what it writes.

mod clock;

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use store::embedded::Threads;
use store::embedded::offline::Archive;
use store::{Revision, StoreError};

use crate::disk::Trace;
use crate::history::{History, Id, Line, State};
use crate::mutants::Lie;
use crate::value;

/// The name of the store's data file.
pub const DATA: &str = "data.mdb";
/// One system call may write so much.
const STRING_BYTES_MAX: &str = "67108864";

/// A fault of the process.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Nothing: the control.
    None,
    /// It is killed as it enters the n-th call of this name.
    KillAt(&'static str, usize),
    /// It is killed when it has printed so many lines.
    KillAfterLines(usize),
    /// From the n-th call of this name on, so many fail with this error.
    Error {
        /// The call.
        call: &'static str,
        /// The first that fails.
        nth: usize,
        /// How many fail; 0 for all that follow.
        count: usize,
        /// `EIO`
        error: &'static str,
    },
    /// Its calls are taken down.
    Record,
    /// It is stopped and goes on, so many times.
    StopAndGo(usize),
    /// Its clock leaps, so many times, forwards and back; what measures time spans goes on as ever.
    Leaps(usize),
    /// Each time that it has printed so many lines, its data is read as a backup does it: a harmless one.
    Pictures(usize),
}

/// Everything that a store held at a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Which.
    pub revision: Revision,
    /// Keys and what they held.
    pub states: Vec<(String, State)>,
}

/// The job of the process.
#[derive(Clone, Debug)]
pub struct Job {
    /// This binary: `torture`.
    pub binary: PathBuf,
    /// The store's folder.
    pub folder: PathBuf,
    /// Of the workload.
    pub seed: u64,
    /// Per client; 0 to take stock and write once.
    pub operations: u64,
    /// The threads of the store: in one thread every call has one number, whatever the machine does beside.
    pub threads: Threads,
    /// The lie that it tells.
    pub lie: Lie,
}

/// The end of a process.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// The history that it printed.
    pub history: History,
    /// `true` if it ended by itself, and well.
    pub is_clean: bool,
    /// Its text on standard error.
    pub complaints: String,
    /// The number of times that it was stopped.
    pub stops: usize,
    /// The number of times that its clock leapt.
    pub leaps: usize,
    /// Pictures of its data, in between.
    pub pictures: Vec<Picture>,
    /// The time until the store was open.
    pub until_open: Option<Duration>,
    /// The calls to the disk, if they were taken down.
    pub trace: Option<Trace>,
}

impl Job {
    /// Runs the process after what happened before, which tells it which names are taken.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn run(&self, before: &History, fault: &Fault) -> Result<Ran> {
        let log = tempfile::NamedTempFile::new()?;
        let mut command = self.command(before.last_id(), fault, log.path())?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = Instant::now();
        let mut child = command.spawn().context("start the store's process; is strace there?")?;
        let stdout = child.stdout.take().context("no output")?;
        let mut stderr = child.stderr.take().context("no output")?;
        let complaints = std::thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).map(|_| text)
        });
        let told = read(stdout, &mut child, &self.folder, log.path(), fault, started)?;
        let status = child.wait()?;
        let complaints = complaints.join().unwrap_or_else(|_| Ok(String::new()))?;
        let trace = match fault {
            Fault::Record => {
                let folder = self.folder.to_string_lossy();
                Some(Trace::read(&std::fs::read_to_string(log.path())?, &folder, DATA))
            }
            _ => None,
        };
        Ok(Ran {
            history: History::parse(&told.text),
            is_clean: status.success(),
            complaints,
            stops: told.stops,
            leaps: told.leaps,
            pictures: told.pictures,
            until_open: told.until_open,
            trace,
        })
    }

    /// The number of calls of a name that the process makes.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn count(&self, call: &str) -> Result<usize> {
        let log = tempfile::NamedTempFile::new()?;
        let options = vec!["-e".to_owned(), format!("trace={call}")];
        let mut command = strace(log.path(), options);
        let status = command.args(self.arguments(0)).stdin(Stdio::null()).stdout(Stdio::null()).status();
        let status = status.context("start the store's process; is strace there?")?;
        if !status.success() {
            bail!("the store's process failed without a fault: {status}");
        }
        let begins = format!(" {call}(");
        Ok(std::fs::read_to_string(log.path())?.lines().filter(|line| line.contains(&begins)).count())
    }

    fn command(&self, last_id: Id, fault: &Fault, log: &Path) -> Result<Command> {
        let arguments = self.arguments(last_id);
        let options = match fault {
            Fault::None
            | Fault::KillAfterLines(_)
            | Fault::StopAndGo(_)
            | Fault::Leaps(_)
            | Fault::Pictures(_) => {
                let mut plain = Command::new(&self.binary);
                plain.args(arguments.iter().skip(1));
                if matches!(fault, Fault::Leaps(_)) {
                    clock::lead(&mut plain, log)?;
                }
                return Ok(plain);
            }
            Fault::Record => {
                let trace = format!("trace={}", crate::disk::CALLS);
                ["-xx", "-s", STRING_BYTES_MAX, "-e", &trace].map(str::to_owned).to_vec()
            }
            Fault::KillAt(call, nth) => inject(call, &format!("signal=KILL:when={nth}")),
            Fault::Error { call, nth, count, error } => {
                let when = match count {
                    0 => format!("{nth}+"),
                    count => format!("{nth}..{}", nth + count - 1),
                };
                inject(call, &format!("error={error}:when={when}"))
            }
        };
        let mut command = strace(log, options);
        command.args(arguments);
        Ok(command)
    }

    /// The process's own command line.
    fn arguments(&self, last_id: Id) -> [OsString; 12] {
        let threads = if self.threads == Threads::Own { "--threads=own" } else { "--threads=none" };
        [
            self.binary.clone().into(),
            "child".into(),
            "--seed".into(),
            self.seed.to_string().into(),
            "--operations".into(),
            self.operations.to_string().into(),
            "--last-id".into(),
            last_id.to_string().into(),
            threads.into(),
            "--lie".into(),
            self.lie.name().into(),
            self.folder.clone().into(),
        ]
    }
}

fn strace(log: &Path, options: Vec<String>) -> Command {
    let mut command = Command::new("strace");
    // Not with --seccomp-bpf: strace 6.1 sends no signals then.
    command.args(["-f", "-qq", "-o"]).arg(log).args(options);
    command
}

fn inject(call: &str, what: &str) -> Vec<String> {
    let trace = ["-e".to_owned(), format!("trace={call}")];
    let inject = ["-e".to_owned(), format!("inject={call}:{what}")];
    [trace, inject].concat()
}

/// What came of reading what a process prints.
#[derive(Default)]
struct Told {
    text: String,
    until_open: Option<Duration>,
    stops: usize,
    leaps: usize,
    pictures: Vec<Picture>,
}

/// Reads what the process prints, and kills or stops it when its time has come.
fn read(
    stdout: impl Read,
    child: &mut Child,
    folder: &Path,
    log: &Path,
    fault: &Fault,
    started: Instant,
) -> Result<Told> {
    let (mut told, mut output, mut lines) = (Told::default(), BufReader::new(stdout), 0);
    while output.read_line(&mut told.text)? > 0 {
        lines += 1;
        told.until_open.get_or_insert_with(|| started.elapsed());
        match fault {
            Fault::KillAfterLines(count) if lines == *count => child.kill()?,
            Fault::StopAndGo(times) if lines % 100 == 0 && told.stops < *times => {
                stop_and_go(child)?;
                told.stops += 1;
            }
            Fault::Leaps(times) if lines % 50 == 0 && told.leaps < *times => {
                clock::leap(child.id(), log, told.leaps)?;
                told.leaps += 1;
            }
            Fault::Pictures(every) if lines % every == 0 => told.pictures.push(picture(folder)?),
            _ => {}
        }
    }
    Ok(told)
}

/// What is on disk, while somebody writes there.
fn picture(folder: &Path) -> Result<Picture> {
    let archive = Archive::open(folder)?;
    let picture = archive.picture()?;
    let states = picture.records()?.map(|record| {
        let record = record?;
        let created = Some(record.create_revision);
        let state = State { value: value::decode(&record.value), revision: record.revision, created };
        Ok((record.key, state))
    });
    Ok(Picture { revision: picture.revision, states: states.collect::<Result<_, StoreError>>()? })
}

/// Stops the process for a while, which is what the fault is.
fn stop_and_go(child: &Child) -> Result<()> {
    use nix::sys::signal::{Signal, kill};
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id())?);
    kill(pid, Signal::SIGSTOP)?;
    std::thread::sleep(Duration::from_millis(200));
    kill(pid, Signal::SIGCONT)?;
    Ok(())
}

/// Appends what a process printed. Whoever comes next begins after it.
pub fn append(history: &mut History, more: &History) {
    history.lines.extend(more.lines.iter().cloned());
}

/// Of a trace, the history that had been printed at a step.
#[must_use]
pub fn printed(trace: &Trace, steps: usize) -> History {
    let steps = trace.steps.get(..steps).unwrap_or_default();
    let bytes = steps.iter().filter_map(|step| match step {
        crate::disk::Step::Print(bytes) => Some(bytes.as_slice()),
        _ => None,
    });
    History::parse(&String::from_utf8_lossy(&bytes.collect::<Vec<_>>().concat()))
}

/// Takes stock of a folder in a process of its own, which may well die of what it finds.
///
/// # Errors
/// If it does; what it said is in the error.
pub fn take_stock(binary: &Path, folder: &Path, before: &History) -> Result<(History, Duration)> {
    let job = Job {
        binary: binary.to_owned(),
        folder: folder.to_owned(),
        seed: 0,
        operations: 0,
        threads: Threads::Own,
        lie: Lie::None,
    };
    let ran = job.run(before, &Fault::None)?;
    let is_open = ran.history.lines.iter().any(|line| matches!(line, Line::Restart { .. }));
    if !ran.is_clean || !is_open {
        bail!("the store does not open: {}", ran.complaints.trim());
    }
    Ok((ran.history, ran.until_open.unwrap_or_default()))
}
