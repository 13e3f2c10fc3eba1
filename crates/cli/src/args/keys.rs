//! Flags of `token` and `secrets`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::DataDirArgs;
use crate::duration::duration;

/// `knarr token`.
#[derive(Clone, Debug, Args)]
pub struct TokenArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: TokenCommand,
}

/// What to do with tokens.
#[derive(Clone, Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token and print it
    Create {
        /// How long it is good for, such as 24h; 0s for ever
        #[arg(long, default_value = "24h", value_parser = duration, value_name = "DURATION")]
        ttl: Duration,
        /// What it is for
        #[arg(long)]
        description: Option<String>,
        /// Which cluster.
        #[command(flatten)]
        data: DataDirArgs,
    },
    /// List the tokens, without their secrets
    List(DataDirArgs),
    /// Remove a token: nobody joins with it any more
    Delete {
        /// The token or its id
        token: String,
        /// Which cluster.
        #[command(flatten)]
        data: DataDirArgs,
    },
}

/// `knarr secrets`.
#[derive(Clone, Debug, Args)]
pub struct SecretsArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: SecretsCommand,
}

/// What to do with stored Secrets.
#[derive(Clone, Debug, Subcommand)]
pub enum SecretsCommand {
    /// Store everything under the newest key that is not yet; when it is interrupted, call it again
    Reencrypt(ReencryptArgs),
}

/// Flags of `secrets reencrypt`.
#[derive(Clone, Debug, Args)]
pub struct ReencryptArgs {
    /// What to store again, such as secrets or deployments.apps: repeated, or with commas
    #[arg(long, value_delimiter = ',', default_value = "secrets")]
    pub resource: Vec<String>,
    /// Which cluster.
    #[command(flatten)]
    pub data: DataDirArgs,
    /// How to reach the API server, if it is not this host's
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
}
