//! What processes use, from `/proc`. Source: proc(5).

use std::time::Duration;

use anyhow::{Context, Result};

/// Linux counts CPU time for user space in hundredths of a second on every architecture (`USER_HZ`).
const TICK: Duration = Duration::from_millis(10);

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
        sum.cpu += TICK * cpu_ticks(&read(*process, "stat")?).context("read CPU time")?;
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

/// User and system time of all threads; the command's name before them may hold blanks and parentheses.
fn cpu_ticks(stat: &str) -> Option<u32> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let (user, system): (u32, u32) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
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
    fn cpu_time_stands_behind_a_name_with_blanks() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 10 20 0 0 300 45 1 2 20 0 9 0 100";
        assert_eq!(cpu_ticks(stat), Some(345));
        assert_eq!(cpu_ticks("7 (a) S 1"), None);
    }

    #[test]
    fn numbers_are_found_by_the_start_of_their_line() {
        assert_eq!(number("Rss: 9 kB\nPss:   12 kB\nPss_Dirty: 3 kB\n", "Pss:"), Some(12));
        assert_eq!(number("cancelled_write_bytes: 1\n", "write_bytes:"), None);
    }
}
