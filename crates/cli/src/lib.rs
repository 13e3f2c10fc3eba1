//!
//! Nothing here starts anything: `knarr` reads [`args::Cli`] and acts.

pub mod api_server;
pub mod args;
pub mod cloud_provider;
pub mod config;
pub mod controller_manager;
pub mod duration;
pub mod kubeconfig;
pub mod kubelet;
pub mod progress;
pub mod screen;
pub mod status;
mod switch;
mod taint;
#[cfg(test)]
mod tests;
pub mod trace;
pub mod usage_error;
pub mod validate;
pub mod value_error;
pub mod why;

pub use args::{Cli, Command};
pub use progress::Progress;

/// The completion script of a shell.
#[must_use]
pub fn completion(shell: args::Shell) -> Vec<u8> {
    use clap::CommandFactory;
    let generator = match shell {
        args::Shell::Bash => clap_complete::Shell::Bash,
        args::Shell::Zsh => clap_complete::Shell::Zsh,
        args::Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(generator, &mut Cli::command(), "knarr", &mut script);
    script
}
