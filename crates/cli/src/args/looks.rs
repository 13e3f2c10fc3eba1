//! Flags of the commands that only look: `status`, `trace`, `why`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::DataDirArgs;

/// Flags of `trace`.
#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    /// KIND/NAME, such as deployment/web
    pub object: String,
    /// The object's namespace
    #[arg(long, short, default_value = "default")]
    pub namespace: String,
    /// Which cluster.
    #[command(flatten)]
    pub data: DataDirArgs,
    /// How to print
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// How results look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// For machines.
    Json,
}

/// Flags of `status`.
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    /// Which cluster.
    #[command(flatten)]
    pub data: DataDirArgs,
    /// How to print
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// Flags of `why`.
#[derive(Clone, Debug, Args)]
pub struct WhyArgs {
    /// KIND/NAME, such as deployment/web or pod/web-7d4b9
    pub object: String,
    /// The object's namespace
    #[arg(long, short, default_value = "default")]
    pub namespace: String,
    /// Which cluster.
    #[command(flatten)]
    pub data: DataDirArgs,
    /// How to reach the API server, if it is not this host's
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// How to print
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}
