//! The protocol between node process and shim: one JSON document per packet, some with file descriptors.
//!
//! Anything large goes by file. The shim answers every request on the connection it came from, in order; exits of
//! containers go to every connection, exits of execs to the one that asked for them.

use serde::{Deserialize, Serialize};

use super::layout::Exited;

/// Largest packet in bytes.
pub const PACKET_BYTES_MAX: usize = 128 << 10;

/// Largest [`Birth`] in bytes.
pub const BIRTH_BYTES_MAX: usize = 8 << 10;

/// A request to the zygote for a shim. Descriptors: its first connection, its listening socket, its log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Birth {
    /// The sandbox's directory.
    pub sandbox: std::path::PathBuf,
}

/// A request with the number that its answer carries.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// Chosen by the asker.
    pub id: u64,
    /// The call.
    pub call: Call,
}

/// The calls of the shim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Call {
    /// Creates and starts the container whose plan and specification lie in its directory.
    Start {
        /// The container's id.
        container: String,
    },
    /// Takes over a container that an earlier shim started. Descriptors: a handle on its first process if that is
    /// known, then the writing end of its stdin or the controlling end of its terminal, if it has one.
    Adopt {
        /// The container's id.
        container: String,
        /// Whether the handle is there.
        process: bool,
    },
    /// Sends a signal to the container's first process, or to all that it has.
    Kill {
        /// The container's id.
        container: String,
        /// The signal's number.
        signal: i32,
        /// Whether every process gets it.
        everyone: bool,
    },
    /// Forgets an ended container and removes its cgroup.
    Delete {
        /// The container's id.
        container: String,
    },
    /// Runs one more process in the container. Descriptors: stdin, stdout, stderr, those that are wanted, in this
    /// order. With a terminal none; its controlling end comes back instead.
    Exec {
        /// The container's id.
        container: String,
        /// The OCI `process` document, a file.
        process: std::path::PathBuf,
        /// With a terminal.
        tty: bool,
        /// Which of the three descriptors are there.
        streams: [bool; 3],
    },
    /// Sends a signal to a process started by `Exec`.
    KillExec {
        /// The number of the `Exec` request.
        exec: u64,
        /// The signal's number.
        signal: i32,
    },
    /// Copies the container's output to the given descriptors (stdout, stderr, those that are wanted) from now on.
    /// What comes back: the writing end of stdin, or the controlling end of the terminal, if there is one.
    Attach {
        /// The container's id.
        container: String,
        /// Which of stdout and stderr are there.
        streams: [bool; 2],
    },
    /// Closes the shim's own end of the container's stdin.
    CloseStdin {
        /// The container's id.
        container: String,
    },
    /// Opens the log file anew after it was renamed.
    ReopenLog {
        /// The container's id.
        container: String,
    },
    /// Has an external OCI runtime change what a container may use.
    Update {
        /// The container's id.
        container: String,
        /// The OCI `linux.resources` document, a file.
        resources: std::path::PathBuf,
    },
    /// Asks which containers run.
    State,
    /// Ends the shim; its containers are killed.
    Shutdown,
}

/// A message from the shim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Message {
    /// The answer to a request.
    Answer {
        /// The request's number.
        id: u64,
        /// What was done, or why not.
        result: Result<Done, Refused>,
    },
    /// A container ended.
    ContainerExited {
        /// The container's id.
        container: String,
        /// How.
        exited: Exited,
    },
    /// There is no shim and would be none if it was asked for again. Said on the first connection only.
    Failed {
        /// Why, for people.
        message: String,
    },
    /// A process started by `Exec` ended.
    ExecExited {
        /// The number of the `Exec` request.
        exec: u64,
        /// Its exit code.
        code: i32,
    },
}

/// The result of a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Done {
    /// Nothing to say.
    Ok,
    /// A process was started.
    Started {
        /// As the host sees it.
        pid: i32,
        /// Unix nanoseconds.
        at: i64,
        /// See [`sys::process::start_time`].
        ticks: u64,
    },
    /// Ids of the containers that run.
    Running(Vec<String>),
}

/// The reason why the shim did not do what it was asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Refused {
    /// `true` if what was named does not exist or runs no more.
    pub not_found: bool,
    /// For people.
    pub message: String,
}
