//! Flags of `backup` and `restore`.

use std::path::PathBuf;

use clap::Args;

use super::DataDirArgs;

/// Flags of `backup`.
///
/// All objects at one revision, and all that the cluster needs beside them: its authority, the keys that tokens and
/// Secrets stand on, and the certificates made with them. Whoever has the file has the cluster: it is readable for its
/// owner alone, and should stay so. Images, volumes and containers are not in it, nor are Leases and Events of the last
/// minutes. The state of a cluster on etcd is backed up by etcd: `etcdctl snapshot save`.
#[derive(Clone, Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct BackupArgs {
    /// The file to write; `-` is standard output
    pub file: PathBuf,
    /// Which cluster.
    #[command(flatten)]
    pub data: DataDirArgs,
    /// The cluster of this host that this kubeconfig is for, instead of --data-dir
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// Replace FILE if it is there
    #[arg(long)]
    pub force: bool,
    /// Leave out what is damaged, and say what that was, instead of giving up
    #[arg(long)]
    pub salvage: bool,
}

/// Flags of `restore`.
///
/// The cluster must not run. Every checksum of the file is looked at before anything is changed. Revisions go on far
/// above all that clients may have seen, and older ones are compacted away: whoever watches is told to list again.
/// The cluster is then started as ever, with the flags that it had.
#[derive(Clone, Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct RestoreArgs {
    /// The backup; `-` is standard input
    pub file: PathBuf,
    /// Which cluster.
    #[command(flatten)]
    pub data: DataDirArgs,
    /// Replace the objects and keys that the folder has
    #[arg(long)]
    pub force: bool,
}
