//! The parts of a supervisor that was killed: they die with it, but not at once, and until then hold the store and the
//! ports. Whoever starts the cluster next waits for their end.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sys::process::{PidFd, start_time};

use crate::layout::Layout;

/// A part that was killed needs no longer.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Notes which processes are this cluster's parts.
pub(super) fn note(layout: &Layout, pids: impl Iterator<Item = i32>) -> std::io::Result<()> {
    let lines = pids.filter_map(|pid| Some(format!("{pid} {}\n", start_time(pid).ok()?)));
    std::fs::write(layout.parts(), lines.collect::<String>())
}

/// Waits until none of the parts that were noted last is left. The folder's lock is ours, so nobody looks after them.
///
/// # Errors
/// If one does not end.
pub(crate) fn wait_for_its_end(layout: &Layout) -> Result<()> {
    let started = Instant::now();
    for (pid, start_time) in noted(&std::fs::read_to_string(layout.parts()).unwrap_or_default()) {
        let Some(process) = PidFd::open_same(pid, start_time)? else { continue };
        let left = WAIT_MAX.saturating_sub(started.elapsed());
        if !process.wait(left).with_context(|| format!("wait for process {pid}"))? {
            bail!("process {pid} is left of the cluster's last run and does not end; end it and try again");
        }
    }
    Ok(())
}

/// Process ids and when they started; what cannot be read was not written to the end.
fn noted(text: &str) -> Vec<(i32, u64)> {
    let number = |line: &str| {
        let (pid, start_time) = line.split_once(' ')?;
        Some((pid.parse().ok()?, start_time.parse().ok()?))
    };
    text.lines().filter_map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_read() {
        assert_eq!(noted("12 3456\n13 3460\n"), [(12, 3456), (13, 3460)]);
        assert_eq!(noted("12 3456\n13"), [(12, 3456)]);
        assert_eq!(noted(""), []);
    }

    #[test]
    fn the_end_of_a_part_that_was_noted_is_waited_for() {
        let dir = tempfile::tempdir().expect("a folder");
        let layout = Layout::new(dir.path()).expect("a layout");
        wait_for_its_end(&layout).expect("nothing was noted");
        let mut part = std::process::Command::new("sleep").arg("0.3").spawn().expect("a part");
        let pid = i32::try_from(part.id()).expect("a pid");
        note(&layout, [pid].into_iter()).expect("noted");
        let start = start_time(pid).expect("it runs");
        wait_for_its_end(&layout).expect("it ends");
        let ended = PidFd::open_same(pid, start).expect("not reaped yet").expect("the same");
        assert!(ended.wait(Duration::ZERO).expect("asked"), "it still runs");
        part.wait().expect("reaped");
    }
}
