//! Flags of `image`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::DataDirArgs;
use super::inspect::Output;
use super::secret::Secret;

/// `knarr image`.
#[derive(Clone, Debug, Args)]
pub struct ImageArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ImageCommand,
}

/// What to do with images.
#[derive(Clone, Debug, Subcommand)]
pub enum ImageCommand {
    /// Pull an image from its registry
    Pull(ImagePullArgs),
    /// Import a docker-archive, an OCI layout or a rootfs tar
    Import {
        /// The file; `-` is standard input
        file: String,
        /// The name for an image that does not bring one
        #[arg(long)]
        name: Option<String>,
        /// How the result looks
        #[arg(long, short = 'o', value_enum, default_value = "text")]
        output: Output,
        /// Which cluster.
        #[command(flatten)]
        data: DataDirArgs,
    },
    /// List images
    #[command(alias = "ls")]
    List {
        /// How the result looks
        #[arg(long, short = 'o', value_enum, default_value = "text")]
        output: Output,
        /// Which cluster.
        #[command(flatten)]
        data: DataDirArgs,
    },
    /// Remove images; what containers are made of stays until they go
    Rm {
        /// Their names or ids
        #[arg(required = true)]
        names: Vec<String>,
        /// Which cluster.
        #[command(flatten)]
        data: DataDirArgs,
    },
}

/// Flags of `image pull`.
#[derive(Clone, Debug, Args)]
pub struct ImagePullArgs {
    /// The image, such as docker.io/library/busybox:1.37
    pub name: String,
    /// USERNAME:PASSWORD for the registry; better given in the environment, where other users do not see it
    #[arg(long, env = "KNARR_CREDS", hide_env_values = true)]
    pub creds: Option<Secret>,
    /// How registries are reached; the cluster's if not given
    #[arg(long, env = "KNARR_PRIVATE_REGISTRY", value_name = "FILE")]
    pub private_registry: Option<PathBuf>,
    /// How the result looks
    #[arg(long, short = 'o', value_enum, default_value = "text")]
    pub output: Output,
    /// Which cluster.
    #[command(flatten)]
    pub data: DataDirArgs,
}

/// The file of registries' settings if nobody names another.
pub fn default_private_registry() -> PathBuf {
    DEFAULT_PRIVATE_REGISTRY.into()
}

pub(super) const DEFAULT_PRIVATE_REGISTRY: &str = "/etc/knarr/registries.yaml";
