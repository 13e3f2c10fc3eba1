//! The folder in which a host shows its network namespaces under names, `/run/netns`, where `ip netns` and the daemons of
//! Pod networks look for them.
//!
//! Everybody on the host shares it: what is not named like ours is not ours. So that what comes later is seen through
//! mounts made earlier, it must be, or lie on, a shared mount; where it does not, it is bound on itself, as `ip netns`
//! does and under the same lock. Source: `ip-netns(8)`, iproute2's `create_netns_dir`.
//!
//! Folder and mount are taken back by the last of us if one of us has made them. Beside the folder stands another, in which
//! a file says what was made, and one for each of us who counts on it: mounts made of the folder in the meantime would see
//! nothing any more if another one were made in its place, though it be empty.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::mount::{self, BindOptions, Propagation};
use crate::{Doing, Error, Result};

/// Where everybody looks.
const HOSTS: &str = "/run/netns";
/// Another process may take the folder away whenever it is not locked; so often is it made again.
const TRIES: u32 = 10;
/// The file that is there if one of us has made the folder or its mount.
const MADE: &str = "made";
/// What it says if one of us has made the folder, too.
const MADE_FOLDER: &str = "folder";

/// A folder of names, as one of those sees it who share it.
#[derive(Debug)]
pub struct NetNsFolder {
    path: PathBuf,
    /// How the names of this one begin, and of no other.
    prefix: String,
    /// Whether what lies around it is shared, so that it need not be a mount of its own.
    lies_in_shared: OnceLock<bool>,
}

impl NetNsFolder {
    /// The one of this host, for somebody whose names alone begin with `prefix`.
    pub fn of_host(prefix: String) -> Self {
        Self::at(HOSTS.into(), prefix)
    }

    fn at(path: PathBuf, prefix: String) -> Self {
        Self { path, prefix, lies_in_shared: OnceLock::new() }
    }

    /// The path of a namespace of this name.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Makes the folder, and a shared mount of it, as far as need be. It stays until [`Self::leave`].
    pub fn share(&self) -> Result<()> {
        self.locked_and_shared().map(drop)
    }

    /// Shows the namespace that is kept at `namespace` under a name. May be repeated.
    pub fn show(&self, namespace: &Path, name: &str) -> Result<()> {
        let path = self.path_of(name);
        {
            let _lock = self.locked_and_shared()?;
            if mount::is_mounted(&path)? {
                return Ok(());
            }
            // From here on the folder is not empty.
            let doing = || format!("create {}", path.display());
            OpenOptions::new().write(true).create(true).truncate(false).open(&path).doing(doing)?;
        }
        mount::bind(namespace, &path, BindOptions::default())
    }

    /// Takes a name away. The namespace stays. No error if there is none of that name.
    pub fn hide(&self, name: &str) -> Result<()> {
        super::delete(&self.path_of(name))
    }

    /// Takes all our names away, and the folder itself if nobody is left in it and one of us has made it.
    pub fn leave(&self) -> Result<()> {
        for name in names(&self.path)?.iter().filter(|name| name.starts_with(&self.prefix)) {
            self.hide(name)?;
        }
        let lock = self.lock()?;
        let users = self.users()?;
        let doing = || format!("take back {}", self.path.display());
        for users in self.users_everywhere()? {
            match fs::remove_file(users.join(&self.prefix)) {
                // Where nothing can be written nothing is ours.
                Err(error)
                    if !matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::ReadOnlyFilesystem
                    ) =>
                {
                    return Err(error).doing(doing);
                }
                // Of a mount namespace that may be gone, with all that was made in it.
                _ => drop(fs::remove_dir(users)),
            }
        }
        let left = names(&users)?;
        if left.iter().any(|name| name != MADE) {
            return Ok(());
        }
        if lock.is_some() && !left.is_empty() {
            if !names(&self.path)?.is_empty() {
                return Ok(());
            }
            let made = fs::read_to_string(users.join(MADE)).doing(doing)?;
            // The lock lies on what is unmounted.
            mount::detach(&self.path)?;
            if made == MADE_FOLDER {
                fs::remove_dir(&self.path).doing(doing)?;
            }
        }
        match fs::remove_dir_all(&users) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).doing(doing),
            _ => Ok(()),
        }
    }

    /// The folder that says who of us counts on this one in this mount namespace.
    fn users(&self) -> Result<PathBuf> {
        let link = "/proc/thread-self/ns/mnt";
        let namespace = fs::metadata(link).doing(|| format!("read {link}"))?;
        Ok(self.path.with_extension(format!("knarr-{}", namespace.ino())))
    }

    /// The same of all mount namespaces that see the folder.
    fn users_everywhere(&self) -> Result<Vec<PathBuf>> {
        let (Some(around), Some(name)) = (self.path.parent(), self.path.file_name()) else {
            return Ok(Vec::new());
        };
        let prefix = format!("{}.knarr-", name.display());
        let names = names(around)?.into_iter().filter(|name| name.starts_with(&prefix));
        Ok(names.map(|name| around.join(name)).collect())
    }

    fn locked_and_shared(&self) -> Result<File> {
        let doing = || format!("make {}", self.path.display());
        for _ in 0..TRIES {
            let made = match fs::create_dir(&self.path) {
                Ok(()) => true,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
                Err(error) => return Err(error).doing(doing),
            };
            let Some(lock) = self.lock()? else { continue };
            self.share_locked(made)?;
            return Ok(lock);
        }
        Err(Error::other(doing(), "others take it away again and again"))
    }

    fn share_locked(&self, made: bool) -> Result<()> {
        let users = self.users()?;
        let doing = || format!("write {}", users.display());
        fs::create_dir_all(&users).doing(doing)?;
        fs::write(users.join(&self.prefix), "").doing(doing)?;
        if mount::is_mounted(&self.path)? {
            return mount::set_propagation(&self.path, Propagation::Shared);
        }
        let lies_in_shared = match self.lies_in_shared.get() {
            Some(known) => *known,
            None => *self.lies_in_shared.get_or_init(|| lies_in_shared(&self.path)),
        };
        if lies_in_shared && !made {
            return Ok(());
        }
        fs::write(users.join(MADE), if made { MADE_FOLDER } else { "" }).doing(doing)?;
        if lies_in_shared {
            return Ok(());
        }
        mount::bind(&self.path, &self.path, BindOptions { recursive: true, ..BindOptions::default() })?;
        mount::set_propagation(&self.path, Propagation::Shared)
    }

    /// The folder's lock, which goes with the file. `None` if there is no such folder, or another one since.
    fn lock(&self) -> Result<Option<File>> {
        let doing = || format!("lock {}", self.path.display());
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.doing(doing)?,
        };
        file.lock().doing(doing)?;
        let is_same = |now: fs::Metadata| file.metadata().is_ok_and(|then| then.ino() == now.ino());
        Ok(fs::metadata(&self.path).is_ok_and(is_same).then_some(file))
    }
}

/// What is in a folder. Nothing if it is not there.
fn names(folder: &Path) -> Result<Vec<String>> {
    let doing = || format!("read {}", folder.display());
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.doing(doing)?,
    };
    entries.map(|entry| Ok(entry.doing(doing)?.file_name().to_string_lossy().into_owned())).collect()
}

/// Whether the mount that a folder lies on is in a peer group. No if nobody can tell.
fn lies_in_shared(path: &Path) -> bool {
    let around = |mounts: Vec<mount::MountEntry>| {
        let around = mounts.into_iter().filter(|mount| path.starts_with(&mount.target));
        // Of several at one place the last one counts; none of the others is nearer.
        around.max_by_key(|mount| mount.target.components().count()).is_some_and(|mount| mount.is_shared)
    };
    mount::mounts().map(around).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::NetNs;

    /// In a mount namespace of the test's own, on a mount with this propagation.
    fn check(around: Propagation, test: impl FnOnce(&Path) + Send) {
        assert!(nix::unistd::geteuid().is_root(), "this test mounts: run it as root");
        std::thread::scope(|scope| {
            let in_namespace = || {
                mount::own_namespace().unwrap();
                let dir = tempfile::tempdir().unwrap();
                mount::tmpfs(dir.path(), None, 0o755).unwrap();
                mount::set_propagation(dir.path(), around).unwrap();
                test(dir.path());
                mount::detach_below(dir.path()).unwrap();
            };
            scope.spawn(in_namespace).join().unwrap();
        });
    }

    /// What a daemon sees that has had the folder mounted before.
    fn seen_by_daemon(run: &Path) -> PathBuf {
        let daemon = run.join("daemon");
        fs::create_dir(&daemon).unwrap();
        mount::bind(&run.join("netns"), &daemon, BindOptions { recursive: true, ..BindOptions::default() })
            .unwrap();
        mount::set_propagation_of_all(&daemon, Propagation::Slave).unwrap();
        daemon
    }

    fn sorted_names(folder: &Path) -> Vec<String> {
        let mut names = names(folder).unwrap();
        names.sort();
        names
    }

    #[test]
    fn a_name_is_seen_by_those_who_mounted_the_folder_before_and_the_last_takes_it_back() {
        for around in [Propagation::Private, Propagation::Shared] {
            check(around, |run| {
                let at = |prefix: &str| NetNsFolder::at(run.join("netns"), prefix.into());
                let (one, other) = (at("cni-one-"), at("cni-other-"));
                one.share().unwrap();
                other.share().unwrap();
                let is_mounted = || mount::is_mounted(&run.join("netns")).unwrap();
                assert_eq!(is_mounted(), around == Propagation::Private);
                let daemon = seen_by_daemon(run);
                // One who has no names goes, and one who has never been there.
                one.leave().unwrap();
                at("cni-third-").leave().unwrap();
                one.share().unwrap();
                let kept = run.join("kept");
                drop(NetNs::create(&kept).unwrap());
                for _ in 0..2 {
                    one.show(&kept, "cni-one-a").unwrap();
                }
                other.show(&kept, "cni-other-a").unwrap();
                let inode = |path: &Path| fs::metadata(path).unwrap().ino();
                assert_eq!(inode(&daemon.join("cni-one-a")), inode(&kept));
                assert_eq!(inode(&one.path_of("cni-one-a")), inode(&kept));
                one.leave().unwrap();
                assert_eq!(sorted_names(&run.join("netns")), ["cni-other-a"]);
                assert_eq!(sorted_names(&daemon), ["cni-other-a"]);
                other.hide("cni-other-a").unwrap();
                other.hide("cni-other-a").unwrap();
                mount::detach(&daemon).unwrap();
                super::super::delete(&kept).unwrap();
                other.leave().unwrap();
                assert_eq!(sorted_names(run), ["daemon"]);
                one.leave().unwrap();
                one.share().unwrap();
                assert_eq!(is_mounted(), around == Propagation::Private);
            });
        }
    }

    #[test]
    fn what_was_there_before_stays_as_it_was() {
        check(Propagation::Private, |run| {
            let path = run.join("netns");
            let folder = NetNsFolder::at(path.clone(), "cni-one-".into());
            fs::create_dir(&path).unwrap();
            folder.share().unwrap();
            fs::write(path.join("of-ip"), "").unwrap();
            folder.leave().unwrap();
            assert!(mount::is_mounted(&path).unwrap(), "somebody uses it now");
            fs::remove_file(path.join("of-ip")).unwrap();
            folder.leave().unwrap();
            assert!(!mount::is_mounted(&path).unwrap() && path.exists());
            // As `ip netns` leaves it.
            mount::bind(&path, &path, BindOptions::default()).unwrap();
            folder.share().unwrap();
            folder.leave().unwrap();
            assert!(mount::is_mounted(&path).unwrap());
            // Somebody takes it away whole. Of another mount namespace there is a note, too.
            folder.share().unwrap();
            fs::create_dir(path.with_extension("knarr-1")).unwrap();
            fs::write(path.with_extension("knarr-1").join("cni-one-"), "").unwrap();
            mount::detach(&path).unwrap();
            fs::remove_dir(&path).unwrap();
            folder.leave().unwrap();
            assert!(sorted_names(run).is_empty());
        });
    }
}
