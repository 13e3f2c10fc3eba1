//! Processes: handles that cannot be confused by a reused pid, privileges, reaping, and the size of file systems.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::ptr;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::{Doing, Result};

/// A handle on one process, whatever later gets its pid. Readable (poll, epoll, tokio's `AsyncFd`) once it ended.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

impl PidFd {
    /// Opens the process with this pid.
    ///
    /// # Errors
    /// `ESRCH` if there is none.
    pub fn open(pid: i32) -> Result<Self> {
        // SAFETY: the call takes two integers and returns a new descriptor or -1.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let fd = check(fd).doing(|| format!("open process {pid}"))?;
        // SAFETY: the kernel just made this descriptor for us; nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    /// Opens the process with this pid if it is the one that started at `start_time` (see [`start_time`]): a pid
    /// that was read from a file may be another process's by now. `None` if it is gone.
    pub fn open_same(pid: i32, start_time: u64) -> Result<Option<Self>> {
        let handle = match Self::open(pid) {
            Err(error) if error.is_not_found() => return Ok(None),
            other => other?,
        };
        // Read after the handle was opened: whatever has the pid now is what the handle is on.
        match self::start_time(pid) {
            Ok(found) => Ok((found == start_time).then_some(handle)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends a signal; no error if the process ended already.
    pub fn signal(&self, signal: i32) -> Result<()> {
        let no_info = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: a null siginfo is allowed and means what kill(2) would send.
        let sent =
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), signal, no_info, 0) };
        match check(sent) {
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => {
                Err(error).doing(|| format!("send signal {signal}"))
            }
            _ => Ok(()),
        }
    }

    /// Blocks until the process ended; false if `timeout` passed first.
    pub fn wait(&self, timeout: Duration) -> Result<bool> {
        let millis = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        loop {
            match poll(&mut fds, millis) {
                Err(Errno::EINTR) => {}
                other => return other.map(|ready| ready > 0).doing(|| "wait for a process".into()),
            }
        }
    }

    /// The wait status of a process that ended and need not be our child; `None` while it runs, or if nobody knows.
    ///
    /// Until its parent has reaped it, procfs says so, after that the handle (kernel 6.15 and newer).
    pub fn exit_status(&self) -> Option<i32> {
        self.status_of_zombie().or_else(|| self.status_when_reaped().ok().flatten())
    }

    /// Source: proc_pid_stat(5), field 52; proc_pid_fdinfo(5).
    fn status_of_zombie(&self) -> Option<i32> {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", self.0.as_raw_fd())).ok()?;
        let pid: i32 = info.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()?;
        let stat = stat(pid).ok()?;
        let mut fields = stat.split_whitespace();
        (fields.next()? == "Z").then_some(())?;
        fields.nth(48)?.parse().ok()
    }

    /// Source: pidfd_open(2), `PIDFD_GET_INFO` with `PIDFD_INFO_EXIT`.
    fn status_when_reaped(&self) -> Result<Option<i32>> {
        /// `struct pidfd_info`, first version.
        #[repr(C)]
        #[derive(Default)]
        struct Info {
            mask: u64,
            cgroup_id: u64,
            ids: [u32; 11],
            exit_code: i32,
        }
        const INFO_EXIT: u64 = 1 << 3;
        const GET_INFO: libc::c_ulong = (3 << 30) | (64 << 16) | (0xff << 8) | 11;
        let mut info = Info { mask: INFO_EXIT, ..Info::default() };
        // SAFETY: the request's size field says 64 bytes, which is the size of `Info`; the kernel writes no more.
        let got = unsafe { libc::ioctl(self.0.as_raw_fd(), GET_INFO as _, &raw mut info) };
        match check(libc::c_long::from(got)) {
            Ok(_) => Ok((info.mask & INFO_EXIT != 0).then_some(info.exit_code)),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
            Err(error) => Err(error).doing(|| "read a process's exit status".into()),
        }
    }
}

impl From<OwnedFd> for PidFd {
    /// Takes a descriptor that is a process handle.
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for PidFd {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// The start of the process, in clock ticks since the host's start: tells processes with the same pid apart.
///
/// Source: proc_pid_stat(5), field 22.
///
/// # Errors
/// `ENOENT` or `ESRCH` if there is no such process.
pub fn start_time(pid: i32) -> Result<u64> {
    let field = stat(pid)?.split_whitespace().nth(19).and_then(|field| field.parse().ok());
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    field.ok_or_else(invalid).doing(|| format!("read the start time of process {pid}"))
}

/// What procfs says of a process, from the third field on.
fn stat(pid: i32) -> Result<String> {
    let path = format!("/proc/{pid}/stat");
    let stat = std::fs::read_to_string(&path).doing(|| format!("read {path}"))?;
    // The second field is the program's name in parentheses, and may hold anything.
    Ok(stat.rsplit_once(')').map(|(_, rest)| rest.to_owned()).unwrap_or_default())
}

/// Gives the kernel at once what was freed, of all threads' arenas but what each thread keeps at hand. For after a burst: an
/// idle process, which frees nothing, would keep it. Does nothing in a program with another allocator.
/// Source: `arena.<i>.purge` in `jemalloc(3)`.
pub fn give_memory_back() {
    let name = c"arena.4096.purge";
    // SAFETY: the name ends in a zero, and nothing is read or written through the other pointers, which this name allows to
    // be null.
    let code = unsafe {
        tikv_jemalloc_sys::mallctl(name.as_ptr(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), 0)
    };
    if code != 0 {
        tracing::debug!(error = %io::Error::from_raw_os_error(code), "freed memory stays with the allocator");
    }
}

/// Pages of a mapped file go from this process, and from memory if nobody else has them mapped, until they are read again.
/// Nothing of what they hold is lost. No error if the file is not mapped.
///
/// # Errors
/// If there is no such file, this process may not know what it has mapped, or the kernel is older than 5.4 (`EINVAL`).
///
/// Source: `MADV_PAGEOUT` in `madvise(2)`.
pub fn page_out(file: &Path) -> Result<()> {
    let doing = || format!("give back the pages of {}", file.display());
    let inode = std::fs::metadata(file).doing(doing)?.ino();
    let maps = std::fs::read_to_string("/proc/self/maps").doing(doing)?;
    for (start, length) in mappings(&maps, inode) {
        // SAFETY: no memory is read or written, and whatever is at this address by now keeps what it holds.
        let done = unsafe { libc::madvise(start as *mut libc::c_void, length, libc::MADV_PAGEOUT) };
        Errno::result(done).doing(doing)?;
    }
    Ok(())
}

/// Start and length in bytes of the places where a file with this inode is mapped, of whatever device: what is paged out
/// too much only has to be read again. Source: `proc_pid_maps(5)`.
fn mappings(maps: &str, inode: u64) -> Vec<(usize, usize)> {
    let range = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let start = usize::from_str_radix(start, 16).ok()?;
        let length = usize::from_str_radix(end, 16).ok()?.checked_sub(start)?;
        (words.nth(3)?.parse() == Ok(inode)).then_some((start, length))
    };
    maps.lines().filter_map(range).collect()
}

/// Makes this process the one that orphaned descendants are handed to.
pub fn become_subreaper() -> Result<()> {
    prctl(libc::PR_SET_CHILD_SUBREAPER, 1).doing(|| "become a subreaper".into())
}

/// Has the kernel send `signal` to this process when the thread that started it ends.
pub fn die_with_parent(signal: i32) -> Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, signal as libc::c_ulong).doing(|| "tie this process to its parent".into())
}

/// The steps of a child between fork and exec.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChildSetup {
    /// The signal that the child gets when the thread that started it ends.
    pub parent_death_signal: Option<i32>,
    /// Starts a session of its own: no terminal, and no signals meant for the parent's group.
    pub new_session: bool,
    /// Runs as this user and group, without capabilities, without supplementary groups and without a way back.
    pub user: Option<(u32, u32)>,
    /// Runs in this network namespace: a descriptor that stays open until the child is started.
    pub network: Option<RawFd>,
}

/// Arranges `setup` for when `command` is spawned.
pub fn set_up_child(command: &mut Command, setup: ChildSetup) {
    let parent = std::process::id();
    // SAFETY: the closure runs between fork and exec and makes only system calls: no allocation, no locks.
    unsafe {
        command.pre_exec(move || {
            if setup.new_session {
                check(libc::c_long::from(libc::setsid()))?;
            }
            // As root still.
            if let Some(network) = setup.network {
                check(libc::c_long::from(libc::setns(network, libc::CLONE_NEWNET)))?;
            }
            if let Some((uid, gid)) = setup.user {
                drop_privileges_raw(uid, gid)?;
            }
            // After the change of user, which clears it.
            if let Some(signal) = setup.parent_death_signal {
                prctl(libc::PR_SET_PDEATHSIG, signal as libc::c_ulong)?;
                if libc::getppid() as u32 != parent {
                    return Err(io::Error::from_raw_os_error(libc::ESRCH));
                }
            }
            Ok(())
        });
    }
}

/// Becomes `uid` and `gid` for good: no supplementary groups, no capabilities, nothing to gain by exec.
///
/// For a process with one thread.
pub fn drop_privileges(uid: u32, gid: u32) -> Result<()> {
    drop_privileges_raw(uid, gid).doing(|| format!("become user {uid} and group {gid}"))
}

fn drop_privileges_raw(uid: u32, gid: u32) -> io::Result<()> {
    const LAST_CAPABILITY: libc::c_ulong = 63;
    for capability in 0..=LAST_CAPABILITY {
        match prctl(libc::PR_CAPBSET_DROP, capability) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
            other => other?,
        }
    }
    // SAFETY: plain system calls with integers; a count of 0 makes the null pointer fine.
    unsafe {
        check(libc::c_long::from(libc::setgroups(0, std::ptr::null())))?;
        check(libc::c_long::from(libc::setresgid(gid, gid, gid)))?;
        check(libc::c_long::from(libc::setresuid(uid, uid, uid)))?;
    }
    clear_capabilities()?;
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1)
}

/// Of the calling thread.
pub(crate) fn clear_capabilities() -> io::Result<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let header = Header { version: VERSION_3, pid: 0 };
    let none = [[0u32; 3]; 2];
    // SAFETY: version 3 takes this header and two triples of u32, which is what is passed.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) })?;
    Ok(())
}

/// The side of a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fork {
    /// The parent, which reaps the child ([`reap`]).
    Parent,
    /// The child.
    Child,
}

/// Makes a copy of this process.
///
/// # Errors
/// `EDEADLK` if there is more than one thread: the others would be missing in the copy, with whatever they hold.
pub fn fork() -> Result<Fork> {
    let doing = || "fork".to_owned();
    alone().doing(doing)?;
    // SAFETY: there is one thread, so that the copy has everything that this process has.
    let child = check(libc::c_long::from(unsafe { libc::fork() })).doing(doing)?;
    Ok(if child == 0 { Fork::Child } else { Fork::Parent })
}

/// Changes what `ps` and `/proc/PID/cmdline` show of this process, in the room that its first arguments have. From then
/// on [`std::env::args`] gives these.
///
/// # Errors
/// `ENAMETOOLONG` if there is less room; `EDEADLK` if there is more than one thread.
pub fn set_arguments(arguments: &[&str]) -> Result<()> {
    let doing = || "change the arguments that others see".to_owned();
    let mut bytes: Vec<u8> = arguments.iter().flat_map(|argument| argument.bytes().chain([0])).collect();
    let stat = std::fs::read_to_string("/proc/self/stat").doing(doing)?;
    let (start, end) =
        arguments_of(&stat).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData)).doing(doing)?;
    let room = end.saturating_sub(start);
    if bytes.len() > room {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG)).doing(doing);
    }
    alone().doing(doing)?;
    bytes.resize(room, 0);
    // SAFETY: the kernel has put this process's arguments there, in memory that may be written to. No other thread reads
    // them, and each argument's address still leads to a text that ends before the room does.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start as *mut u8, room) };
    Ok(())
}

/// Sets the name by which `ps -o comm`, `top` and `pgrep` know this thread, and those that it starts from then on. The
/// kernel keeps 15 bytes.
///
/// # Errors
/// The name has a zero byte.
pub fn set_name(name: &str) -> Result<()> {
    let doing = || format!("take the name {name}");
    let text = std::ffi::CString::new(name).doing(doing)?;
    nix::sys::prctl::set_name(&text).doing(doing)
}

/// Where a process's arguments begin and end, by its `stat`. Source: proc_pid_stat(5), `arg_start`.
fn arguments_of(stat: &str) -> Option<(usize, usize)> {
    // The second field, the name in parentheses, may have anything in it.
    let mut rest = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(45);
    Some((rest.next()?.parse().ok()?, rest.next()?.parse().ok()?))
}

/// An error if this process has more than one thread.
fn alone() -> io::Result<()> {
    let mut threads = std::fs::read_dir("/proc/self/task")?;
    threads.nth(1).map_or(Ok(()), |_| Err(io::Error::from_raw_os_error(libc::EDEADLK)))
}

/// Reaps every child that ended: pid and wait status of each. Never blocks.
pub fn reap() -> Vec<(i32, i32)> {
    let mut reaped = Vec::new();
    loop {
        let mut status = 0;
        // SAFETY: `status` is a valid place for the result.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        if pid <= 0 {
            return reaped;
        }
        reaped.push((pid, status));
    }
}

/// Sends a signal to a child that is not reaped yet, whose pid can therefore be nobody else's; no error if it ended.
pub fn kill(pid: i32, signal: i32) -> Result<()> {
    // SAFETY: the call takes two integers.
    match check(libc::c_long::from(unsafe { libc::kill(pid, signal) })) {
        Err(error) if error.raw_os_error() != Some(libc::ESRCH) => {
            Err(error).doing(|| format!("send signal {signal} to process {pid}"))
        }
        _ => Ok(()),
    }
}

/// Closes every descriptor from `first` on: what a long-lived child must not inherit.
pub fn close_from(first: u32) -> Result<()> {
    // SAFETY: the caller says that nobody in this process uses these descriptors any more; the kernel checks the rest.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    check(closed).map(drop).doing(|| format!("close descriptors from {first} on"))
}

/// Room on the file system that holds a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsStats {
    /// Size.
    pub capacity_bytes: u64,
    /// The space that an unprivileged process can still write.
    pub available_bytes: u64,
    /// Inodes, 0 if the file system does not count them.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
}

/// Room on the file system that holds `path`.
pub fn fs_stats(path: &Path) -> Result<FsStats> {
    let stats = nix::sys::statvfs::statvfs(path).doing(|| format!("read the size of {}", path.display()))?;
    let block = stats.fragment_size();
    Ok(FsStats {
        capacity_bytes: stats.blocks() * block,
        available_bytes: stats.blocks_available() * block,
        inodes: stats.files(),
        inodes_free: stats.files_free(),
    })
}

fn prctl(option: i32, value: libc::c_ulong) -> io::Result<()> {
    let zero: libc::c_ulong = 0;
    // SAFETY: only options that take integers are passed.
    check(libc::c_long::from(unsafe { libc::prctl(option, value, zero, zero, zero) })).map(drop)
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_processs_arguments_is_found_whatever_its_name() {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let (start, end) = arguments_of(&stat).unwrap();
        assert_eq!(end - start, std::fs::read("/proc/self/cmdline").unwrap().len());
        let (name, rest) = (stat.find('(').unwrap(), stat.rfind(')').unwrap());
        let odd = format!("{}(a) b (c) {}", &stat[..name], &stat[rest + 1..]);
        assert_eq!(arguments_of(&odd), Some((start, end)));
        assert_eq!(arguments_of("1 (a) S 1"), None);
    }

    #[test]
    fn a_file_is_found_where_it_is_mapped_and_its_pages_hold_what_they_held() {
        let maps = "1000-3000 r--p 00000000 fe:00 7  /a b\n3000-4000 rw-p 00000000 00:00 0\n\
                    4000-5000 r--s 00001000 fe:00 7  /a b\n5000-6000 r--s 00000000 fe:00 8  /7\nz-1 r 0 0 7 /a b\n\n";
        assert_eq!(mappings(maps, 7), [(0x1000, 0x2000), (0x4000, 0x1000)]);
        page_out(&std::env::current_exe().unwrap()).unwrap();
        assert_eq!(std::hint::black_box(TEXT).len(), 25);
        assert!(page_out(Path::new("/not/there")).unwrap_err().is_not_found());
    }

    const TEXT: &str = "of the program's own file";

    #[test]
    fn arguments_are_changed_by_a_process_with_one_thread_only() {
        assert!(set_arguments(&["a"]).unwrap_err().to_string().contains("arguments"));
    }

    #[test]
    fn a_killed_process_is_seen_through_its_handle() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let handle = PidFd::open(child.id() as i32).unwrap();
        assert!(!handle.wait(Duration::ZERO).unwrap());
        handle.signal(libc::SIGKILL).unwrap();
        assert!(handle.wait(Duration::from_secs(60)).unwrap());
        child.wait().unwrap();
        handle.signal(libc::SIGKILL).unwrap();
    }

    #[test]
    fn a_process_with_the_pid_of_another_is_not_taken_for_it() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        let started = start_time(pid).unwrap();
        assert!(PidFd::open_same(pid, started).unwrap().is_some());
        assert!(PidFd::open_same(pid, started + 1).unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(PidFd::open_same(pid, started).unwrap().is_none());
    }

    #[test]
    fn the_exit_status_is_known_before_and_after_the_process_is_reaped() {
        let mut child = Command::new("sh").args(["-c", "exit 7"]).spawn().unwrap();
        let handle = PidFd::open(child.id() as i32).unwrap();
        assert!(handle.wait(Duration::from_secs(60)).unwrap());
        assert_eq!(handle.exit_status(), Some(7 << 8));
        child.wait().unwrap();
        // An older kernel does not say; then it must not say anything wrong.
        assert!(handle.exit_status().is_none_or(|status| status == 7 << 8));
    }

    #[test]
    fn a_child_set_up_as_another_user_has_no_capabilities_left() {
        assert!(nix::unistd::geteuid().is_root(), "this test changes users: run it as root");
        let mut command = Command::new("cat");
        command.arg("/proc/self/status");
        let parent_death_signal = Some(libc::SIGKILL);
        set_up_child(
            &mut command,
            ChildSetup {
                user: Some((65534, 65534)),
                new_session: true,
                parent_death_signal,
                ..ChildSetup::default()
            },
        );
        let status = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_once(':').unwrap().1.trim().to_owned()
        };
        assert_eq!(field("Uid"), "65534\t65534\t65534\t65534");
        assert_eq!(field("Groups"), "");
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(field(set), "0000000000000000", "{set}");
        }
        assert_eq!(field("NoNewPrivs"), "1");
    }
}
