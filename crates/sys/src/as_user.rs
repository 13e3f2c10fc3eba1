//! Work on files of somebody who is not trusted, with that user's own rights.
//!
//! Root that follows a path through a folder of another user follows whatever links that user puts there. A thread that
//! meets files as that user does can do no more harm with them than the user could.

use std::io;

use nix::libc;

use crate::process::clear_capabilities;
use crate::{Doing, Error, Result};

/// Does `work` as `uid` and `gid` as far as files are concerned: no other groups, no capabilities. A thread that does not
/// meet files as root does it with the rights it has.
///
/// The work has a thread of its own, whose rights are never given back; signals still reach the process as before.
/// Source: setfsuid(2), which network file servers serve their clients with.
///
/// # Errors
/// If the thread cannot become that user; the work has not begun then.
pub fn as_user<T: Send>(uid: u32, gid: u32, work: impl FnOnce() -> T + Send) -> Result<T> {
    // SAFETY: plain system calls with integers. There is no such user: nothing is changed, and the present one told.
    if unsafe { libc::syscall(libc::SYS_setfsuid, u32::MAX) } != 0 {
        return Ok(work());
    }
    let doing = || format!("work as user {uid} and group {gid}");
    let worker = move || {
        become_user(uid, gid)?;
        Ok::<T, io::Error>(work())
    };
    let done = std::thread::scope(|scope| scope.spawn(worker).join());
    match done {
        Ok(done) => done.doing(doing),
        Err(_) => Err(Error::other(doing(), "it panicked")),
    }
}

/// For this thread alone: the C library's functions would do it for all of them.
fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: plain system calls with integers; a count of 0 makes the null pointer fine.
    let told = unsafe {
        if libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()) != 0 {
            return Err(io::Error::last_os_error());
        }
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsuid, uid);
        // They tell no errors: what is in force is what the next call finds.
        (libc::syscall(libc::SYS_setfsuid, u32::MAX), libc::syscall(libc::SYS_setfsgid, u32::MAX))
    };
    if told != (i64::from(uid), i64::from(gid)) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    clear_capabilities()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

    use super::*;

    const USER: u32 = 64_250;

    #[test]
    fn a_thread_has_no_more_rights_than_the_user_whose_folder_it_works_in() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let (theirs, secret) = (dir.path().join("theirs"), dir.path().join("secret"));
        fs::create_dir(&theirs).unwrap();
        chown(&theirs, Some(USER), Some(USER)).unwrap();
        fs::write(&secret, "root's").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o660)).unwrap();
        symlink(&secret, theirs.join("link")).unwrap();
        let tried = as_user(USER, USER, || {
            [
                fs::read(theirs.join("link")).map(drop),
                fs::write(theirs.join("link"), "taken"),
                chown(theirs.join("link"), Some(USER), None),
                fs::write(dir.path().join("beside"), "x"),
                fs::write(theirs.join("own"), "fine"),
            ]
            .map(|tried| tried.map_err(|error| error.kind()))
        })
        .unwrap();
        let denied = Err(io::ErrorKind::PermissionDenied);
        assert_eq!(tried, [denied, denied, denied, denied, Ok(())]);
        let own = fs::metadata(theirs.join("own")).unwrap();
        assert_eq!((own.uid(), own.gid()), (USER, USER));
        let nested = as_user(USER, USER, || as_user(USER, USER, || fs::read(theirs.join("link")).is_ok()));
        assert!(!nested.unwrap().unwrap());
        // The rest of the process is what it was.
        assert_eq!(fs::read(&secret).unwrap(), b"root's");
        fs::write(dir.path().join("beside"), "x").unwrap();
    }
}
