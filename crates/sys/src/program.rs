//! This program, as those execute it who become or enter containers: what they are is never the host's file to write to.
//!
//! A process that is about to be a payload is this program, and `/proc/PID/exe` leads to it, also when it runs code of the
//! container's (CVE-2019-5736). So it is executed from a mount of its own that is read-only and in nobody's namespace: the
//! file's pages are the same, and whoever opens it through such a process cannot write, whether it runs or not.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl};
use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::{Doing, Result};

/// A program that may be executed and not be changed.
#[derive(Debug)]
pub struct ReadOnlyProgram(OwnedFd);

impl ReadOnlyProgram {
    /// Of the program at `path`, which may be `/proc/self/exe`: a mount that costs no memory, or, where the kernel cannot
    /// make that (before 5.12, or a file that lies in no mount of this namespace), a sealed copy in memory.
    ///
    /// # Errors
    /// Neither can be had.
    pub fn of(path: &Path) -> Result<Self> {
        let doing = || format!("make {} read-only for containers", path.display());
        let file = File::open(path).doing(doing)?;
        match mounted(&file, path) {
            Ok(mounted) => Ok(Self(mounted)),
            Err(error) => {
                tracing::debug!(%error, "no mount of the program: containers are made by a copy of it");
                copied(file).map(Self).doing(doing)
            }
        }
    }

    /// The path by which this process, and a child of it up to its execve(2), finds it.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

/// The mount at `path`, or at where that link leads: what this namespace has is mounted there.
fn mounted(file: &File, path: &Path) -> io::Result<OwnedFd> {
    let wanted = file.metadata()?;
    let tree =
        clone_mount(path).or_else(|error| clone_mount(&std::fs::read_link(path).map_err(|_| error)?))?;
    let found = std::fs::metadata(format!("/proc/self/fd/{}", tree.as_raw_fd()))?;
    if (found.dev(), found.ino()) != (wanted.dev(), wanted.ino()) {
        return Err(io::Error::other("another file lies there now"));
    }
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: libc::MS_PRIVATE,
        userns_fd: 0,
    };
    // SAFETY: a descriptor, an empty string, a flag, and a structure with its size, which the kernel only reads.
    let set = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            std::mem::size_of::<libc::mount_attr>(),
        )
    };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(tree) }
}

/// A mount of one file, which is nowhere.
fn clone_mount(path: &Path) -> io::Result<OwnedFd> {
    let flags = libc::OPEN_TREE_CLONE as libc::c_uint | libc::OPEN_TREE_CLOEXEC as libc::c_uint;
    let text = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a string that ends with zero, and flags; the result is checked.
    let tree = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, text.as_ptr(), flags) };
    if tree < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(tree as libc::c_int) })
}

/// A copy that nobody can change any more.
fn copied(mut file: File) -> io::Result<OwnedFd> {
    const EXECUTABLE: MFdFlags = MFdFlags::from_bits_retain(0x10);
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    // Before kernel 6.3 there is no such flag, and all can be executed.
    let memory = memfd_create("knarr", flags | EXECUTABLE).or_else(|_| memfd_create("knarr", flags))?;
    let mut memory = File::from(memory);
    file.seek(SeekFrom::Start(0))?;
    io::copy(&mut file, &mut memory)?;
    let seals =
        SealFlag::F_SEAL_SEAL | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_WRITE;
    fcntl(&memory, FcntlArg::F_ADD_SEALS(seals))?;
    // The kernel executes nothing that is open for writing.
    let read_only = nix::fcntl::open(
        format!("/proc/self/fd/{}", memory.as_raw_fd()).as_str(),
        OFlag::O_RDONLY | OFlag::O_CLOEXEC,
        nix::sys::stat::Mode::empty(),
    )?;
    Ok(read_only)
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    /// Starts the program, a copy of `cat`, keeps hold of it by its process, and tries to write to it while it runs and after.
    fn check(program: &ReadOnlyProgram, original: &Path) {
        let before = std::fs::read(original).unwrap();
        let mut child = Command::new(program.path()).stdin(Stdio::piped()).spawn().unwrap();
        let exe = format!("/proc/{}/exe", child.id());
        let held =
            nix::fcntl::open(exe.as_str(), OFlag::O_PATH | OFlag::O_CLOEXEC, nix::sys::stat::Mode::empty())
                .unwrap();
        let held = format!("/proc/self/fd/{}", held.as_raw_fd());
        // Nothing of the host's may be what this test tries to write to.
        let own = std::fs::metadata(program.path()).unwrap();
        assert_eq!(std::fs::metadata(&held).unwrap().ino(), own.ino());
        let spoil = |path: &str, truncate: bool| {
            let mut file = OpenOptions::new().write(true).truncate(truncate).open(path)?;
            file.write_all(b"spoiled")
        };
        for truncate in [true, false] {
            spoil(&exe, truncate).unwrap_err();
            spoil(&held, truncate).unwrap_err();
        }
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
        for truncate in [true, false] {
            let error = spoil(&held, truncate).unwrap_err().raw_os_error();
            assert!(matches!(error, Some(libc::EROFS | libc::EPERM)), "{error:?}");
        }
        assert!(std::fs::read(original).unwrap() == before, "it was changed");
    }

    fn program() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        std::fs::copy("/bin/cat", &path).unwrap();
        (folder, path)
    }

    #[test]
    fn a_mounted_program_is_not_written_to_by_whoever_holds_its_process() {
        assert!(nix::unistd::geteuid().is_root(), "this test makes mounts: run it as root");
        let (_folder, path) = program();
        let program = ReadOnlyProgram(mounted(&File::open(&path).unwrap(), &path).unwrap());
        check(&program, &path);
        // The file itself is as it was.
        OpenOptions::new().append(true).open(&path).unwrap();
    }

    #[test]
    fn a_copied_program_is_not_written_to_by_whoever_holds_its_process() {
        let (_folder, path) = program();
        check(&ReadOnlyProgram(copied(File::open(&path).unwrap()).unwrap()), &path);
    }

    #[test]
    fn a_file_that_took_the_programs_place_is_not_taken_for_it() {
        let (_folder, path) = program();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "other").unwrap();
        assert!(mounted(&file, &path).is_err());
    }

    #[test]
    fn this_program_may_name_itself_by_procfs() {
        let program = ReadOnlyProgram::of(Path::new("/proc/self/exe")).unwrap();
        let found = std::fs::metadata(program.path()).unwrap();
        assert_eq!(found.ino(), std::fs::metadata("/proc/self/exe").unwrap().ino());
    }
}
