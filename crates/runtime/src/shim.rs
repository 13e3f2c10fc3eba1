//! The shim: one small process per Pod that owns the Pod's containers.
//!
//! The node process re-executes itself as `shim` and talks to it over a socket in the sandbox's directory. The shim
//! is single-threaded and synchronous, because libcontainer forks; it outlives the node process, reaps the
//! containers, writes their logs and keeps their exit codes in files, so that a new node process finds everything.
//! It holds the Pod's network, IPC and UTS namespaces by being in them: its containers inherit them.
//!
//! What is on disk: [`layout`]. What is said: [`protocol`].

mod container;
mod engine;
mod executor;
pub mod layout;
pub mod logs;
mod namespaces;
mod pause;
pub mod protocol;
mod server;
mod trace;

pub(crate) use executor::WAY_THERE;
pub(crate) use pause::end_left as end_pause;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs a shim until it is told to end. The binary calls this before any thread starts when its first argument is
/// `shim`; `args` is what follows.
///
/// `pause` as first argument is the process that holds a shared PID namespace, `pack` one that compresses log files.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter();
    let Some(first) = args.next() else {
        eprintln!("shim: no sandbox directory given; it is started by knarr's container runtime");
        return ExitCode::from(2);
    };
    if first == "pause" {
        return pause::run();
    }
    let ended = if first == "pack" {
        logs::pack(args).map_err(|error| error.to_string())
    } else {
        server::run(&PathBuf::from(first)).map_err(|error| crate::error_chain(&error))
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shim: {error}");
            ExitCode::FAILURE
        }
    }
}
