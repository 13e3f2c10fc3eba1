//! Volumes that are a file: made, formatted, mounted, grown, and their space taken or given back.
//!
//! File systems are made and grown by the host's own tools; without them the error says which one is missing.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag, fallocate};
use nix::unistd::{Whence, lseek64};

use super::options::Allocation;

/// A file system's type if nobody asks for one.
pub(super) const FS_TYPE_DEFAULT: &str = "ext4";

/// Most of a tool's complaints that is told, in bytes.
const SAID_BYTES_MAX: u64 = 8 << 10;

/// Gives the file this size, unless it is larger, and takes the disk's space for it if that is wanted.
pub(super) fn resize(image: &Path, bytes: i64, allocation: Allocation) -> io::Result<()> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(image)?;
    let bytes = u64::try_from(bytes).unwrap_or(0);
    if file.metadata()?.len() < bytes {
        file.set_len(bytes)?;
    }
    fs::set_permissions(image, fs::Permissions::from_mode(0o600))?;
    allocate(image, allocation)?;
    file.sync_all()
}

/// Takes the disk's space for the whole file, or gives back what was never written.
pub(super) fn allocate(image: &Path, allocation: Allocation) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(image)?;
    let length = i64::try_from(file.metadata()?.len()).unwrap_or(i64::MAX);
    match allocation {
        Allocation::Thick if length > 0 => Ok(fallocate(&file, FallocateFlags::empty(), 0, length)?),
        Allocation::Thick => Ok(()),
        Allocation::Thin => give_back(&file, length),
    }
}

/// Makes holes of what was taken but not written.
fn give_back(file: &File, length: i64) -> io::Result<()> {
    let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let mut at = 0;
    while at < length {
        let start = lseek64(file, at, Whence::SeekHole)?;
        let end = match lseek64(file, start, Whence::SeekData) {
            Ok(end) => end,
            // No data follows.
            Err(Errno::ENXIO) => length,
            Err(error) => return Err(error.into()),
        };
        if end > start {
            fallocate(file, hole, start, end - start)?;
        }
        at = end.max(start + 1);
    }
    Ok(())
}

/// Makes a file system in the file.
pub(super) fn format(image: &Path, fs_type: &str) -> io::Result<()> {
    let mut command = Command::new(format!("mkfs.{fs_type}"));
    match fs_type {
        "xfs" => command.args(["-q", "-f"]),
        _ => command.args(["-q", "-F", "-m", "0"]),
    };
    run(command.arg(image))
}

/// Mounts the file system on `device`.
pub(super) fn mount(device: &Path, fs_type: &str, options: &[String], target: &Path) -> io::Result<()> {
    let mut command = Command::new("mount");
    command.args(["-t", fs_type]);
    if !options.is_empty() {
        command.args(["-o", &options.join(",")]);
    }
    run(command.arg(device).arg(target))
}

/// How often, and with what pause, a device is asked for that was in use a moment ago: five seconds in all,
/// in which a busy machine starts a container.
const FREE_TRIES_MAX: u32 = 100;
const FREE_PAUSE: Duration = Duration::from_millis(50);

/// Waits until no file system is mounted from `device`.
///
/// A process that gets a mount namespace of its own, as those of every container do, has a copy of all mounts until it
/// has let go of the host's root: what is unmounted here meanwhile is still mounted there, and the kernel tells nobody
/// when that ends.
fn free(device: &Path) -> io::Result<()> {
    let mut tries = 1;
    loop {
        match OpenOptions::new().read(true).custom_flags(OFlag::O_EXCL.bits()).open(device) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy && tries < FREE_TRIES_MAX => {
                tries += 1;
                std::thread::sleep(FREE_PAUSE);
            }
            opened => return opened.map(drop),
        }
    }
}

/// Has the file system on `device`, which is mounted nowhere, take all of it, if it is of a type that can.
pub(super) fn grow_unmounted(device: &Path, fs_type: &str) -> io::Result<()> {
    if fs_type == "xfs" {
        return Ok(());
    }
    free(device)?;
    let checked = Command::new("e2fsck").args(["-f", "-p"]).arg(device).output()?;
    // 1 says that something was mended.
    if !matches!(checked.status.code(), Some(0 | 1)) {
        let said = String::from_utf8_lossy(&checked.stdout);
        return Err(io::Error::other(format!("e2fsck failed: {}: {}", checked.status, said.trim())));
    }
    run(Command::new("resize2fs").arg(device))
}

/// Has the file system on `device`, which is mounted at `target`, take all of it.
pub(super) fn grow(device: &Path, fs_type: &str, target: &Path) -> io::Result<()> {
    match fs_type {
        "xfs" => run(Command::new("xfs_growfs").arg(target)),
        _ => run(Command::new("resize2fs").arg(device)),
    }
}

/// Copies a file or all that is in a folder, with owners, modes, links and holes.
pub(super) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let from = if from.is_dir() { from.join(".") } else { from.to_owned() };
    run(Command::new("cp").args(["-a", "--reflink=auto", "--sparse=always"]).arg(from).arg(to))
}

/// Runs a tool to its end, or until it has said [`SAID_BYTES_MAX`] about what is wrong: a folder can have more in it that
/// cannot be copied than anybody wants to read.
fn run(command: &mut Command) -> io::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => io::Error::other(format!("{name}: executable file not found in $PATH")),
        _ => error,
    })?;
    let mut said = Vec::new();
    // Whoever goes on complaining ends with SIGPIPE.
    let read = child.stderr.take().map(|stderr| stderr.take(SAID_BYTES_MAX).read_to_end(&mut said));
    let status = child.wait()?;
    read.transpose()?;
    if status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&said);
    Err(io::Error::other(format!("{name} failed: {status}: {}", said.trim())))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn space_is_taken_and_given_back_but_what_was_written_stays() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        let blocks = || fs::metadata(&image).unwrap().blocks() * 512;
        resize(&image, 4 << 20, Allocation::Thin).unwrap();
        let thin = blocks();
        allocate(&image, Allocation::Thick).unwrap();
        assert!(blocks() >= 4 << 20, "thin {thin}, thick {}", blocks());
        let mut file = OpenOptions::new().write(true).open(&image).unwrap();
        file.write_all(&[7; 65536]).unwrap();
        file.sync_all().unwrap();
        allocate(&image, Allocation::Thin).unwrap();
        assert!(blocks() < 1 << 20, "{}", blocks());
        let text = fs::read(&image).unwrap();
        assert_eq!((text.len(), text[65535], text[65536]), (4 << 20, 7, 0));
    }
}
