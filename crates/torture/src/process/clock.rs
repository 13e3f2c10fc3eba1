//! A clock that leaps, for one process: `libfaketime` reads from a file how far it is from the right one.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

const LIBRARY: &str = "faketime/libfaketimeMT.so.1";
const DAY_SECONDS: i64 = 86_400;
/// By how much it is wrong after each leap, in turn.
const OFFSETS: [i64; 6] = [DAY_SECONDS, -DAY_SECONDS, 30 * DAY_SECONDS, 2, -365 * DAY_SECONDS, 0];

/// Has a process that is yet to start follow the clock that `file` sets.
///
/// # Errors
/// If the library is not installed.
pub(super) fn lead(command: &mut Command, file: &Path) -> Result<()> {
    std::fs::write(file, "+0")?;
    command.env("LD_PRELOAD", library().context("find libfaketime; is the package faketime there?")?);
    command.env("FAKETIME_TIMESTAMP_FILE", file).env("FAKETIME_NO_CACHE", "1");
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
    Ok(())
}

/// Sets the clock of a process for the n-th time.
///
/// # Errors
/// If the process does not follow.
pub(super) fn leap(pid: u32, file: &Path, nth: usize) -> Result<()> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    // A process that has just ended has none.
    ensure!(maps.is_empty() || maps.contains("libfaketime"), "the process has its own clock");
    let offset = OFFSETS.get(nth % OFFSETS.len()).copied().unwrap_or(0);
    std::fs::write(file, format!("{offset:+}"))?;
    Ok(())
}

/// Below `/usr/lib/<the machine's name>`.
fn library() -> Option<PathBuf> {
    let machines = std::fs::read_dir("/usr/lib").ok()?;
    machines.filter_map(|machine| Some(machine.ok()?.path().join(LIBRARY))).find(|path| path.exists())
}
