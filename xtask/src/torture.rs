//! `cargo xtask torture [--minutes N] [--seed S]`: what the tests do to the store for a few seconds, for longer. What is
//! done, and how, is the crate `torture`; a failure prints its seed.

use std::process::Command;

use anyhow::Result;

use crate::bench::{step, target_directory};

pub(crate) fn run() -> Result<()> {
    let root = crate::tidy::root()?;
    // Alone: its simulations have a clock that the product must not have.
    step(Command::new("cargo").args(["build", "--release", "-p", "torture"]).current_dir(&root))?;
    let torture = target_directory(&root)?.join("release/torture");
    step(Command::new(torture).arg("run").args(std::env::args().skip(2)))
}
