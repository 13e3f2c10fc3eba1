//! What processes use, from the kernel's clocks and `/proc`. Source: clock_getcpuclockid(3), proc(5).

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{self, Signal};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// What processes have used since they started.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) cpu: Duration,
    /// What the kernel holds them to have made dirty: at least what goes to disk, and up to a large folio for each page
    /// of it.
    pub(crate) written_bytes: u64,
}

/// The sum over `processes`, all of which must be alive.
pub(crate) fn usage(processes: &[i32]) -> Result<Usage> {
    let mut sum = Usage::default();
    for process in processes {
        let clock = clock_getcpuclockid(Pid::from_raw(*process)).context("read CPU time")?;
        sum.cpu += Duration::from(clock_gettime(clock).context("read CPU time")?);
        let io = read(*process, "io")?;
        sum.written_bytes += number(&io, "write_bytes:").context("read bytes written")?;
    }
    Ok(sum)
}

/// The memory of `processes`, shared pages divided among those that share them; of those that are there.
pub(crate) fn pss_bytes(processes: &[i32]) -> Result<u64> {
    let mut sum = 0;
    for process in processes {
        // It may have ended meanwhile.
        let Ok(memory) = read(*process, "smaps_rollup") else { continue };
        sum += number(&memory, "Pss:").context("read PSS")? << 10;
    }
    Ok(sum)
}

/// The memory of a process that is in use.
pub(crate) fn rss_bytes(process: i32) -> Result<u64> {
    Ok(number(&read(process, "status")?, "VmRSS:").context("read RSS")? << 10)
}

/// How many descriptors a process has open.
pub(crate) fn descriptors(process: i32) -> Result<usize> {
    Ok(std::fs::read_dir(format!("/proc/{process}/fd")).context("list descriptors")?.count())
}

/// Those of `processes` that are a Pod's shim.
pub(crate) fn shims(processes: &[i32]) -> Result<Vec<i32>> {
    let mut found = Vec::new();
    for process in processes {
        let command = read(*process, "cmdline")?;
        let mut words = command.split('\0').skip(1);
        // The others are named by what they do, a shim by its Pod's folder.
        if words.next() == Some("shim") && words.next().is_some_and(|folder| folder.starts_with('/')) {
            found.push(*process);
        }
    }
    Ok(found)
}

/// Each process' parent.
pub(crate) fn parents() -> Result<HashMap<i32, i32>> {
    let mut parents = HashMap::new();
    for entry in std::fs::read_dir("/proc").context("read /proc")? {
        let Some(process) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // It may have ended meanwhile.
        let Ok(status) = read(process, "status") else { continue };
        let parent = number(&status, "PPid:").context("a process has no parent")?;
        parents.insert(process, i32::try_from(parent)?);
    }
    Ok(parents)
}

/// kill -9.
pub(crate) fn kill(process: i32) -> Result<()> {
    signal::kill(Pid::from_raw(process), Signal::SIGKILL).with_context(|| format!("kill {process}"))
}

#[expect(clippy::cast_precision_loss, reason = "sizes below 2^53 bytes are exact")]
pub(crate) fn kibibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 10)
}

#[expect(clippy::cast_precision_loss, reason = "sizes below 2^53 bytes are exact")]
pub(crate) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[expect(clippy::cast_precision_loss, reason = "sizes below 2^53 bytes are exact")]
pub(crate) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn read(process: i32, file: &str) -> Result<String> {
    let path = format!("/proc/{process}/{file}");
    std::fs::read_to_string(&path).with_context(|| format!("read {path}"))
}

/// The number behind `name` at the start of a line.
fn number(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_the_start_of_their_line() {
        assert_eq!(number("Rss: 9 kB\nPss:   12 kB\nPss_Dirty: 3 kB\n", "Pss:"), Some(12));
        assert_eq!(number("cancelled_write_bytes: 1\n", "write_bytes:"), None);
    }
}
