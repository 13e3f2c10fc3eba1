//! What processes use, from the kernel's clocks and `/proc`. Source: clock_getcpuclockid(3), proc(5).

use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{self, Signal};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// What processes have used since they started.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) cpu: Duration,
    pub(crate) written_bytes: u64,
}

/// The sum over `processes`, all of which must be alive.
pub(crate) fn usage(processes: &[i32]) -> Result<Usage> {
    let mut sum = Usage::default();
    for process in processes {
        let clock = clock_getcpuclockid(Pid::from_raw(*process)).context("read CPU time")?;
        sum.cpu += Duration::from(clock_gettime(clock).context("read CPU time")?);
        sum.written_bytes += number(&read(*process, "io")?, "write_bytes:").context("read bytes written")?;
    }
    Ok(sum)
}

/// The memory of `processes`, shared pages divided among those that share them.
pub(crate) fn pss_bytes(processes: &[i32]) -> Result<u64> {
    let mut sum = 0;
    for process in processes {
        sum += number(&read(*process, "smaps_rollup")?, "Pss:").context("read PSS")? << 10;
    }
    Ok(sum)
}

/// Those of `processes` that are a Pod's shim.
pub(crate) fn shims(processes: &[i32]) -> Result<Vec<i32>> {
    let mut found = Vec::new();
    for process in processes {
        if read(*process, "cmdline")?.split('\0').nth(1) == Some("shim") {
            found.push(*process);
        }
    }
    Ok(found)
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
