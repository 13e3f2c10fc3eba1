//! The process that holds a shared PID namespace: its first process, which reaps what others leave.

use std::process::ExitCode;

use nix::sys::signal::{SigSet, Signal};

/// Reaps until it is killed or told to end.
pub(super) fn run() -> ExitCode {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT] {
        signals.add(signal);
    }
    if signals.thread_block().is_err() {
        return ExitCode::FAILURE;
    }
    loop {
        match signals.wait() {
            Ok(Signal::SIGCHLD) => drop(sys::process::reap()),
            _ => return ExitCode::SUCCESS,
        }
    }
}
