//! The shim: one small process per Pod that owns the Pod's containers.
//!
//! The node process talks to it over a socket in the sandbox's directory. It is a fork of the [`zygote`], which the node
//! process starts as its own program once more. The shim is single-threaded and synchronous, because libcontainer
//! forks; it outlives the node process, reaps the containers, writes their logs and keeps their exit codes in files, so
//! that a new node process finds everything. It holds the Pod's network, IPC and UTS namespaces by being in them: its
//! containers inherit them.
//!
//! What is on disk: [`layout`]. What is said: [`protocol`].

mod container;
mod engine;
mod error;
mod executor;
pub mod layout;
pub mod logs;
mod namespaces;
mod pause;
mod program;
pub mod protocol;
mod server;
mod trace;
mod zygote;

pub(crate) use pause::end_left as end_pause;

use std::ffi::OsString;
use std::process::ExitCode;

/// What the command lines of the zygote, its shims and their helpers begin with.
pub(crate) const NAME: &str = "knarr";

/// Runs what is behind the runtime's processes. The binary calls this before any thread starts when its first argument
/// is `shim`; `args` is what follows: `zygote`, of which each shim is a fork, `pause`, which holds a shared PID
/// namespace, or `pack`, which compresses log files.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter();
    let ended = match args.next().as_deref().and_then(|first| first.to_str()) {
        Some("pause") => {
            take_name("knarr-pause");
            return pause::run(args);
        }
        Some("zygote") => {
            take_name("knarr-zygote");
            zygote::run().map_err(|error| base::error_chain(&error))
        }
        Some("pack") => {
            take_name("knarr-pack");
            logs::pack(args).map_err(|error| error.to_string())
        }
        _ => {
            eprintln!("shim: this is a part of knarr's container runtime, which starts it");
            return ExitCode::from(2);
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shim: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A process with the program's name works as well.
fn take_name(name: &str) {
    if let Err(error) = sys::process::set_name(name) {
        eprintln!("shim: {}", base::error_chain(&error));
    }
}
