//! Proof by fault injection: workloads that write down what they were told, faults, and a checker that finds every
//! lie in what was told.
//!
//! Invariants: the checker knows nothing of how the store works, only what it promises; every fault comes from a
//! seed, which a failure prints; for each kind of lie there is a mutant that tells it and a test that catches it.
//! Nothing here is part of the product: mutants are wrappers around it, never switches in it.

pub mod history;
pub mod value;

pub mod check;

pub mod api;
pub mod workload;

pub mod flaky;
pub mod mutants;

pub mod simulation;

pub mod disk;
pub mod process;
pub mod scenario;

pub mod members;
pub mod several;

pub mod node;
pub mod workloads;

mod seeds;

pub use check::check;
pub use history::{History, Recorder};
pub use seeds::seeds;

use std::path::Path;

/// A folder for a store that nobody kills: in memory, where the machine has that, so that disks are left alone.
///
/// # Errors
/// If it cannot be made.
pub fn folder() -> std::io::Result<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }
}
