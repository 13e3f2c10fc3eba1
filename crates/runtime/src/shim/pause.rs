//! The process that holds a shared PID namespace: its first process, which reaps what others leave.
//!
//! Containers see it, and one that may trace others may make it do anything: it has nothing. Its root is an empty folder
//! in a mount namespace of its own, it is nobody and has no capabilities; that of a Pod with a user namespace is in there.
//!
//! It outlives the shim that started it; the next one finds it by what is written down. Until that is so it does not:
//! it waits for a word of whoever started it, and ends with them.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use nix::libc::SIGKILL;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Gid, Uid, chdir, pivot_root, setgroups, setresgid, setresuid};
use sys::process::{Fork, PidFd};

use super::layout::{self, Started};

/// How long it may take to end: longer means that the kernel does not let it.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// What the process is told when it is written down.
const STAY: &[u8] = b"1";
/// The argument of the program that makes one.
const MAKE: &str = "make";
/// Whom it runs as outside of user namespaces: as upstream's pause image.
const NOBODY: u32 = 65535;

/// A handle on the Pod's pause process.
pub(super) struct Pause(PidFd);

impl Pause {
    /// The one that an earlier shim started, if it runs.
    pub(super) fn find(sandbox: &Path) -> io::Result<Option<Self>> {
        let started: Option<Started> = layout::read_json(&sandbox.join(layout::PAUSE))?;
        let Some(process) = started.and_then(|started| started.process()) else { return Ok(None) };
        let has_ended = process.wait(Duration::ZERO).map_err(io::Error::other)?;
        Ok((!has_ended).then_some(Self(process)))
    }

    /// Starts one in a PID namespace of its own, which belongs to the user namespace if there is one, and names that PID
    /// namespace for containers to enter.
    pub(super) fn start(sandbox: &Path, userns: Option<&Path>) -> io::Result<Self> {
        // The shim's own: it cannot be written to.
        let mut maker = Command::new("/proc/self/exe")
            .arg0(super::NAME)
            .args(["shim", "pause", MAKE])
            .args(userns)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let missing = || io::Error::other("the pause process does not listen");
        let mut said = String::new();
        maker.stdout.take().ok_or_else(missing)?.read_to_string(&mut said)?;
        let stdin = maker.stdin.take();
        maker.wait()?;
        let pid: i32 = said.parse().map_err(|_| io::Error::other("the pause process could not be made"))?;
        let process = PidFd::open(pid).map_err(io::Error::other)?;
        let name = sandbox.join(layout::PID_NAMESPACE);
        match userns {
            Some(_) => sys::userns::keep_pid_namespace(pid, &name).map_err(io::Error::other)?,
            None => link(&format!("/proc/{pid}/ns/pid"), &name)?,
        }
        // Who finds this finds the name too.
        layout::write_json(&sandbox.join(layout::PAUSE), &Started::now(pid))?;
        stdin.ok_or_else(missing)?.write_all(STAY)?;
        Ok(Self(process))
    }

    /// A handle of its own on the process.
    pub(super) fn handle(&self) -> io::Result<PidFd> {
        Ok(self.0.as_fd().try_clone_to_owned()?.into())
    }

    /// Kills the process, and with it everything in its namespace, and waits for that. Whose child it is reaps it.
    pub(super) fn end(&self) -> sys::Result<()> {
        self.0.signal(SIGKILL)?;
        self.0.wait(KILL_TIMEOUT).map(drop)
    }
}

/// Ends the pause process that a killed shim left in a sandbox, if there is one.
pub(crate) fn end_left(sandbox: &Path) -> io::Result<()> {
    Pause::find(sandbox)?.map_or(Ok(()), |pause| pause.end().map_err(io::Error::other))
}

/// Makes `link` lead to `target`, wherever it led before.
fn link(target: &str, link: &Path) -> io::Result<()> {
    match std::fs::remove_file(link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::os::unix::fs::symlink(target, link)
}

/// The program: with arguments it makes a pause process, which says who it is; without any it is one, of no namespace.
pub(super) fn run(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    if args.next().is_none_or(|first| first != MAKE) {
        return stay();
    }
    match make(args.next().as_deref().map(Path::new)) {
        Ok(Fork::Parent) => ExitCode::SUCCESS,
        Ok(Fork::Child) => stay(),
        Err(error) => {
            eprintln!("shim: cannot make the pause process: {}", base::error_chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// Forks the first process of a PID namespace, which comes back without rights.
fn make(userns: Option<&Path>) -> io::Result<Fork> {
    if let Some(userns) = userns {
        setns(File::open(userns)?, CloneFlags::CLONE_NEWUSER)?;
        // Its root, who may do what follows.
        let (root, group) = (Uid::from_raw(0), Gid::from_raw(0));
        setgroups(&[])?;
        setresgid(group, group, group)?;
        setresuid(root, root, root)?;
    }
    unshare(CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS)?;
    let side = sys::process::fork().map_err(io::Error::other)?;
    if side == Fork::Child {
        let null = File::options().read(true).write(true).open("/dev/null")?;
        // As the host sees it: this is still the host's view of processes.
        let pid = std::fs::read_link("/proc/self")?;
        isolate()?;
        let nobody = if userns.is_some() { 0 } else { NOBODY };
        sys::process::drop_privileges(nobody, nobody).map_err(io::Error::other)?;
        nix::unistd::dup2_stderr(&null)?;
        let mut stdout = io::stdout();
        write!(stdout, "{}", pid.display())?;
        stdout.flush()?;
        nix::unistd::dup2_stdout(&null)?;
    }
    Ok(side)
}

/// Leaves the host's files for an empty folder.
fn isolate() -> io::Result<()> {
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    // Any folder that every host has.
    mount(Some("tmpfs"), "/proc", Some("tmpfs"), flags, Some("size=4k,mode=555"))?;
    chdir("/proc")?;
    pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    Ok(chdir("/")?)
}

/// Waits until it is written down, or ends with whoever would do that; then reaps until it is killed or told to end.
fn stay() -> ExitCode {
    if io::stdin().read_exact(&mut [0; STAY.len()]).is_err() {
        return ExitCode::FAILURE;
    }
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT] {
        signals.add(signal);
    }
    if signals.thread_block().is_err() {
        return ExitCode::FAILURE;
    }
    loop {
        match signals.wait() {
            Ok(Signal::SIGCHLD) => drop(sys::process::reap()),
            _ => return ExitCode::SUCCESS,
        }
    }
}
