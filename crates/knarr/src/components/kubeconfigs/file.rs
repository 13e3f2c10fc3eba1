//! Edits one kubeconfig as whoever this process is. The file is replaced as a whole, with its mode and its owner, or
//! not at all.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use cli::kubeconfig;
use nix::libc::O_NOFOLLOW;

use super::{Edit, Made, Outcome, Request};

/// A larger file is no kubeconfig.
const BYTES_MAX: u64 = 16 << 20;

/// A file as it is now.
struct Found {
    text: String,
    mode: u32,
    owner: (u32, u32),
}

/// Does what was asked for.
pub(super) fn edit(request: &Request) -> Result<Outcome> {
    let path = really(&request.path)?;
    match &request.edit {
        Edit::Add { entry, current, mode } => {
            let made = Made { folder: make_folder(&path)?, file: false };
            let found = find(&path)?;
            let text = found.as_ref().map(|found| found.text.as_str()).unwrap_or_default();
            let edited = kubeconfig::add(text, entry, *current)?;
            if edited.text != text {
                replace(&path, &edited.text, found.as_ref(), *mode)?;
            }
            let made = Made { file: found.is_none(), ..made };
            Ok(Outcome { context: edited.name, is_current: edited.is_current, made })
        }
        Edit::TakeBack { authority, made } => {
            take_back(&path, authority, *made)?;
            Ok(Outcome::default())
        }
    }
}

fn take_back(path: &Path, authority: &str, made: Made) -> Result<()> {
    let Some(found) = find(path)? else { return Ok(()) };
    let Some(left) = kubeconfig::take_back(&found.text, authority)? else { return Ok(()) };
    if !(made.file && kubeconfig::is_empty(&left)) {
        return replace(path, &left, Some(&found), found.mode);
    }
    fs::remove_file(path)?;
    if made.folder
        && let Some(folder) = path.parent()
    {
        match fs::remove_dir(folder) {
            Err(error) if error.kind() != ErrorKind::DirectoryNotEmpty => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

/// Where the file is: a user's links are followed, for that user has become this process. Root follows none.
fn really(path: &Path) -> Result<PathBuf> {
    let is_link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    if !is_link {
        return Ok(path.to_owned());
    }
    if nix::unistd::geteuid().is_root() {
        bail!("it is a link; name the file that it leads to");
    }
    Ok(fs::canonicalize(path)?)
}

fn make_folder(path: &Path) -> Result<bool> {
    let Some(folder) = path.parent().filter(|folder| !folder.exists()) else { return Ok(false) };
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    Ok(true)
}

fn find(path: &Path) -> Result<Option<Found>> {
    let file = match OpenOptions::new().read(true).custom_flags(O_NOFOLLOW).open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let about = file.metadata()?;
    if !about.is_file() || about.len() > BYTES_MAX {
        bail!("it is no kubeconfig");
    }
    let text = std::io::read_to_string(file).context("it is no text")?;
    Ok(Some(Found { text, mode: about.mode() & 0o7777, owner: (about.uid(), about.gid()) }))
}

fn replace(path: &Path, text: &str, before: Option<&Found>, mode: u32) -> Result<()> {
    let name = path.file_name().context("it has no name")?.to_string_lossy().into_owned();
    let new = path.with_file_name(format!(".{name}.knarr"));
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    // Nobody else sees it before it has its mode.
    let mut file: File =
        OpenOptions::new().write(true).create_new(true).custom_flags(O_NOFOLLOW).mode(0o600).open(&new)?;
    let mut put = || -> std::io::Result<()> {
        file.write_all(text.as_bytes())?;
        if let Some((uid, gid)) = before.map(|before| before.owner)
            && nix::unistd::geteuid().is_root()
        {
            fchown(&file, Some(uid), Some(gid))?;
        }
        file.set_permissions(Permissions::from_mode(before.map_or(mode, |before| before.mode)))?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    put().inspect_err(|_| drop(fs::remove_file(&new)))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cli::kubeconfig::{Current, Entry};

    fn add(path: &Path) -> Result<Outcome> {
        let word = || "QQ==".to_owned();
        let entry = Entry { server: "https://a".into(), authority: word(), certificate: word(), key: word() };
        let edit = Edit::Add { entry, current: Current::IfNone, mode: 0o640 };
        super::edit(&Request { path: path.to_owned(), edit })
    }

    fn back(path: &Path, made: Made) -> Result<Outcome> {
        let edit = Edit::TakeBack { authority: "QQ==".into(), made };
        super::edit(&Request { path: path.to_owned(), edit })
    }

    #[test]
    fn a_file_that_was_made_goes_again_and_its_folder_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".kube/config");
        let made = add(&path).unwrap().made;
        assert_eq!(
            (made, fs::metadata(&path).unwrap().mode() & 0o777),
            (Made { file: true, folder: true }, 0o640)
        );
        assert_eq!(add(&path).unwrap().made, Made::default());
        back(&path, made).unwrap();
        assert!(!dir.path().join(".kube").exists());
        back(&path, made).unwrap();
    }

    #[test]
    fn somebody_elses_file_keeps_its_content_mode_and_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        let text = "users:\n- name: me\n  user:\n    token: t\n";
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o604)).unwrap();
        std::os::unix::fs::chown(&path, Some(4711), Some(4712)).unwrap();
        let about = || fs::metadata(&path).map(|it| (it.mode() & 0o777, it.uid(), it.gid())).unwrap();
        let made = add(&path).unwrap().made;
        assert!(fs::read_to_string(&path).unwrap().starts_with(text) && made == Made::default());
        assert_eq!(about(), (0o604, 4711, 4712));
        back(&path, made).unwrap();
        let left = "clusters: []\ncontexts: []\ncurrent-context: \"\"\n";
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{text}{left}"));
        assert_eq!(about(), (0o604, 4711, 4712));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing lies beside it");
    }

    #[test]
    fn root_follows_no_link_and_damages_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (link, target) = (dir.path().join("link"), dir.path().join("target"));
        fs::write(&target, "not: [closed").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(add(&link).err().unwrap().to_string().contains("is a link"));
        assert!(add(&target).err().unwrap().to_string().contains("it is no kubeconfig"));
        assert_eq!(fs::read_to_string(&target).unwrap(), "not: [closed");
        assert!(add(dir.path()).is_err());
    }
}
