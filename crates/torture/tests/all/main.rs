//! Stores in trouble: what is honest comes through, what lies is caught.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod etcd;
mod mutants;
mod process;
mod simulation;
mod spoiled;
