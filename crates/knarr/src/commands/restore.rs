//! `knarr restore`: makes a cluster of a backup.
//!
//! The whole file is checked before anything is changed. The new store is made beside the old one and takes its place
//! in one step, so that a restore that is cut off has changed no object; it can be repeated. What is on etcd is etcd's to
//! restore: revisions are its own, and cannot be set.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom, stdin};
use std::path::{Component, Path};

use anyhow::{Context, Result, bail};
use cli::args::RestoreArgs;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use store::Revision;
use store::backup::{Head, Item, Reader};
use store::embedded::offline::{Archive, Restored};

use crate::components::{AUTHORITY_FILES, Settings, as_control_plane, prepare_server};
use crate::host::data_dir;
use crate::layout::Layout;
use crate::preflight::checks;
use crate::supervisor;

/// How far revisions leap: above all that may have been given out since the backup. Source: the example of etcd's
/// `etcdutl snapshot restore --bump-revision`.
const BUMP: Revision = 1_000_000_000;

/// Restores.
pub(crate) fn run(args: &RestoreArgs) -> Result<()> {
    checks::root()?;
    let layout = Layout::new(&args.data.data_dir)?;
    if Settings::load(&layout).is_ok_and(|last| last.args.datastore.datastore_endpoint.is_some()) {
        bail!(
            "the state of the cluster in {} is on etcd, and a backup cannot be brought there: restore etcd with \
             `etcdutl snapshot restore`, or name another folder with --data-dir",
            layout.root().display()
        );
    }
    let name = args.file.display();
    let mut backup = open(&args.file).with_context(|| format!("open {name}"))?;
    let head = check(&mut backup).with_context(|| format!("{name} cannot be restored"))?;
    data_dir::claim(&layout)?;
    let lock = supervisor::lock(&layout)?;
    let root = layout.root().display();
    let has_objects = prepare_server(&layout)
        .and_then(|()| as_control_plane(|| Ok(layout.db().join("data.mdb").exists())))?;
    if has_objects && !args.force {
        bail!("{root} has objects already, nothing was changed; --force replaces them");
    }
    // All of it with the control plane's own rights: what is in its folder may be links.
    let (records, revision) = as_control_plane(|| {
        // What is there may have gone further than the backup.
        let older = Archive::open(&layout.db()).ok();
        let seen = older.and_then(|older| older.picture().ok().map(|picture| picture.seen)).unwrap_or(0);
        let revision = seen.max(head.seen) + BUMP;
        let records = fill(&layout, &mut backup, revision).with_context(|| format!("restore {name}"))?;
        Ok((records, revision))
    })?;
    drop(lock);
    eprintln!("restored {records} objects of {}; revisions go on above {revision}", head.created);
    if head.left_out > 0 {
        eprintln!("{} objects were damaged when the backup was made and are not in it", head.left_out);
    }
    eprintln!("start the cluster with `knarr up --data-dir {root}` and the flags that it had");
    Ok(())
}

/// The backup as a file, which is read twice.
fn open(path: &Path) -> Result<BufReader<File>> {
    if path != Path::new("-") {
        return Ok(BufReader::new(File::open(path)?));
    }
    let mut file =
        nix::sys::memfd::memfd_create(c"backup", nix::sys::memfd::MFdFlags::MFD_CLOEXEC).map(File::from)?;
    std::io::copy(&mut stdin().lock(), &mut file).context("read standard input")?;
    file.rewind()?;
    Ok(BufReader::new(file))
}

/// Reads all of it, changing nothing.
fn check(backup: &mut (impl Read + Seek)) -> Result<Head> {
    let (mut reader, head) = Reader::new(&mut *backup)?;
    while let Some(item) = reader.next_item()? {
        if let Item::File(file) = item
            && !is_ours(Path::new(&file.path))
        {
            bail!("it is damaged: a cluster has no file {:?}", file.path);
        }
    }
    backup.seek(SeekFrom::Start(0))?;
    Ok(head)
}

/// Whether a path is one below the control plane's folder, and not the store.
fn is_ours(path: &Path) -> bool {
    let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    is_plain && path.starts_with("server") && !path.starts_with("server/db")
}

fn fill(layout: &Layout, backup: &mut impl Read, revision: Revision) -> Result<u64> {
    let (db, new) = (layout.db(), layout.db().with_extension("restoring"));
    if new.exists() {
        std::fs::remove_dir_all(&new)?;
    }
    let mut store = Restored::begin(&new)?;
    let (mut reader, _) = Reader::new(backup)?;
    let (mut records, mut files) = (0, Vec::new());
    while let Some(item) = reader.next_item()? {
        match item {
            Item::File(file) => files.push(file),
            Item::Record(record) => {
                store.add(record)?;
                records += 1;
            }
        }
    }
    store.finish(revision)?;
    // Authorities of another cluster, or of a later time, do not belong to these objects.
    for (name, _) in AUTHORITY_FILES {
        let path = layout.server().join(name);
        if path.exists() && !files.iter().any(|file| layout.root().join(&file.path) == path) {
            std::fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
        }
    }
    for file in files {
        let path = layout.root().join(&file.path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        auth::pki::write_file(&path, &file.content, file.mode)?;
    }
    if db.exists() {
        renameat2(AT_FDCWD, &new, AT_FDCWD, &db, RenameFlags::RENAME_EXCHANGE)
            .context("put the store in place")?;
        std::fs::remove_dir_all(&new)?;
    } else {
        std::fs::rename(&new, &db).context("put the store in place")?;
    }
    File::open(layout.server())?.sync_all()?;
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_writes_nowhere_but_beside_the_store() {
        let check = |path: &str, expected: bool| assert_eq!(is_ours(Path::new(path)), expected, "{path}");
        check("server/tls/ca.key", true);
        check("server/cred/scheduler.kubeconfig", true);
        check("server/db/data.mdb", false);
        check("server/../../etc/passwd", false);
        check("/etc/passwd", false);
        check("agent/tls/kubelet.key", false);
    }
}
