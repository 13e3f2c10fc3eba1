//! Takes a Pod's directory back: first every mount below it, then the files.

use std::fs;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, umount2};

use super::describe;

/// Unmounts everything below `pod_dir` and removes it. Blocking.
///
/// Nothing is removed while a mount is left: what is mounted belongs to someone else.
///
/// # Errors
/// A text that says what could not be taken back.
pub(crate) fn tear_down(pod_dir: &Path) -> Result<(), String> {
    let mut mounts = mounts_below(pod_dir)?;
    // The deepest first, and the newest of those at one place first.
    mounts.reverse();
    mounts.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
    for path in &mounts {
        umount2(path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW)
            .map_err(|e| describe("unmount", path, &e))?;
    }
    if let Some(left) = mounts_below(pod_dir)?.first() {
        return Err(format!("{} is still mounted", left.display()));
    }
    match sys::tree::remove(pod_dir) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(describe("remove", pod_dir, &error)),
    }
}

fn mounts_below(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let path = Path::new("/proc/self/mountinfo");
    let text = fs::read_to_string(path).map_err(|e| describe("read", path, &e))?;
    let points = text.lines().filter_map(|line| line.split(' ').nth(4)).map(unescape);
    Ok(points.map(PathBuf::from).filter(|point| point.starts_with(dir)).collect())
}

/// The kernel writes blanks and backslashes as `\040` and the like.
fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let code = text.get(at + 1..at + 4).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (byte, code) {
            (b'\\', Some(code)) => {
                out.push(code);
                at += 4;
            }
            _ => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
