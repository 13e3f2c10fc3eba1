//! `knarr backup`: all objects and keys of a cluster in one file, also while it runs.
//!
//! It reads the data file itself, in a read transaction of its own, rather than asking the API server: that needs no
//! server that answers, takes none of its memory, and shows one revision however long it lasts. What is encrypted at
//! rest stays so. See `docs/adr/0006-backups.md`.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, IsTerminal, Write, stdout};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use base::Clock;
use cli::args::BackupArgs;
use kube::config::Kubeconfig;
use store::backup::{self, Head, Item};
use store::embedded::offline::{Archive, Picture};
use store::{Revision, StoreError};

use crate::commands::cluster;
use crate::components::{self, Settings};
use crate::layout::Layout;

/// Writes the backup.
pub(crate) fn run(args: &BackupArgs) -> Result<()> {
    let layout = match &args.kubeconfig {
        Some(kubeconfig) => of_kubeconfig(kubeconfig)?,
        None => Layout::new(&args.data.data_dir)?,
    };
    if Settings::load(&layout)?.args.datastore.datastore_endpoint.is_some() {
        bail!("the state of this cluster is on etcd; back it up there with `etcdctl snapshot save`");
    }
    let made = if args.file == Path::new("-") {
        if stdout().is_terminal() {
            bail!("a backup is no text; send it to a file or to another command");
        }
        make(&layout, args.salvage, stdout())?.1
    } else {
        if !args.force && args.file.symlink_metadata().is_ok() {
            bail!(
                "{} is there already, maybe an earlier backup; name another file, or say --force to replace it",
                args.file.display()
            );
        }
        to_file(&args.file, |file| make(&layout, args.salvage, file))?
    };
    eprintln!("backed up {} objects at revision {}", made.records, made.revision);
    if made.damaged > 0 {
        eprintln!("{} objects are damaged and left out", made.damaged);
    }
    Ok(())
}

/// What a backup has.
struct Made {
    records: u64,
    revision: Revision,
    damaged: u64,
}

/// Writes the backup. Root reads nothing for it that the control plane could not: its files may be links by now.
fn make<W: Write + Send>(layout: &Layout, salvage: bool, out: W) -> Result<(BufWriter<W>, Made)> {
    components::as_control_plane(|| {
        let archive = Archive::open(&layout.db()).context("open the store")?;
        let picture = archive.picture().context("read the store")?;
        let damaged = if salvage { damaged(&picture)? } else { 0 };
        let head = Head {
            revision: picture.revision,
            seen: picture.seen,
            created: Clock::system().now().to_string(),
            writer: env!("CARGO_PKG_VERSION").to_owned(),
            left_out: damaged,
        };
        let (out, records) = write(BufWriter::new(out), &head, layout, &picture)?;
        Ok((out, Made { records, revision: picture.revision, damaged }))
    })
}

/// The cluster of this host whose authority the file names.
fn of_kubeconfig(file: &Path) -> Result<Layout> {
    let config = Kubeconfig::read_from(file).with_context(|| format!("read {}", file.display()))?;
    if let Some(layout) = cluster::of_authority(config) {
        return Ok(layout);
    }
    bail!("{} is for no cluster of this host; name its folder with --data-dir", file.display());
}

/// Says what cannot be read, and counts it.
fn damaged(picture: &Picture<'_>) -> Result<u64> {
    let mut count = 0;
    for record in picture.records()? {
        match record {
            Ok(_) => {}
            Err(error @ StoreError::Damaged(_)) => {
                eprintln!("left out: {error}");
                count += 1;
            }
            Err(error) => return Err(error).context("read the store"),
        }
    }
    Ok(count)
}

fn write<W: Write>(out: W, head: &Head, layout: &Layout, picture: &Picture<'_>) -> Result<(W, u64)> {
    let mut writer = backup::Writer::new(out, head).context("write the backup")?;
    for path in files(&layout.server(), &layout.db())? {
        let content = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        let mode = path.metadata()?.permissions().mode() & 0o777;
        let path = path.strip_prefix(layout.root())?.to_str().context("a file's name is not UTF-8")?;
        let file = backup::File { path: path.to_owned(), mode, content: content.into() };
        writer.add(&Item::File(file)).context("write the backup")?;
    }
    for record in picture.records().context("read the store")? {
        match record {
            Ok(record) => writer.add(&Item::Record(record)).context("write the backup")?,
            Err(StoreError::Damaged(_)) if head.left_out > 0 => {}
            Err(error) => return Err(error).context("read the store"),
        }
    }
    writer.finish().context("write the backup")
}

/// Everything below `dir` but the store and the logs, in order of name.
fn files(dir: &Path, db: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(|| format!("read {}", dir.display()))? {
        let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
        // What was done to the cluster is no part of it, and long.
        let is_log = path == dir.join("logs");
        if kind.is_dir() && path.with_extension("") != db && !is_log {
            found.extend(files(&path, db)?);
        } else if kind.is_file() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Writes a file that is there whole or not at all, for its owner alone.
fn to_file(path: &Path, fill: impl FnOnce(File) -> Result<(BufWriter<File>, Made)>) -> Result<Made> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let written = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&partial)
        .with_context(|| format!("create {}", partial.display()))
        .and_then(fill)
        .and_then(|(out, made)| {
            out.into_inner().map_err(|error| error.into_error())?.sync_all()?;
            std::fs::rename(&partial, path).with_context(|| format!("write {}", path.display()))?;
            Ok(made)
        });
    if written.is_err()
        && let Err(error) = std::fs::remove_file(&partial)
    {
        tracing::debug!(%error, "nothing was begun");
    }
    written
}
