//! A layer's tar into a directory that overlayfs can use.
//!
//! Nothing is ever written outside the directory: `..` is refused, links in a path are followed inside only.
//! Whiteouts become what overlayfs reads. Size, number and headers of entries are bounded, and so is what the layer may
//! take of the disk: some of it stays free for others.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, lchown};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use registry::digest::hex;
use sha2::{Digest, Sha256};
use tar::{Archive, Entry, EntryType};

use super::compression::decompress;
use super::sparse::{Sparse, copy_with_holes};
use super::{ImageError, broken, invalid};

/// Largest unpacked layer.
pub const LAYER_BYTES_MAX: u64 = 64 << 30;
/// Most entries in a layer.
pub const LAYER_ENTRIES_MAX: u64 = 4_000_000;
/// Most links followed in one path.
const LINKS_MAX: usize = 64;

/// Bytes of headers, names and records before one entry, at most.
const HEADER_BYTES_MAX: u64 = 4 << 20;
/// An image must leave this much of its file system free, in bytes.
const ROOM_MIN: u64 = 256 << 20;
/// How often that is looked at, in bytes.
const ROOM_STEP: u64 = 64 << 20;

/// An unpacked layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// Of the uncompressed tar, hexadecimal.
    pub digest: String,
    /// Sum of its files.
    pub size_bytes: u64,
    /// Number of its entries.
    pub inodes: u64,
    /// Directories that it has entries in but does not list, as paths from its root; those whose names are texts.
    pub implied: BTreeSet<PathBuf>,
}

/// Unpacks a tar, compressed or not, into the empty directory `root`.
pub fn unpack(reader: impl Read, root: &Path) -> Result<Unpacked, ImageError> {
    let meter = Rc::new(Cell::new(0));
    let inner = decompress(reader).map_err(broken)?;
    let mut archive = Archive::new(Metered { inner, hash: Sha256::new(), left: Rc::clone(&meter) });
    let mut entries = archive.entries().map_err(broken)?;
    let (mut size_bytes, mut inodes, mut looked_at) = (0_u64, 0, None);
    let (mut directories, mut parents) = (Vec::new(), BTreeSet::new());
    loop {
        meter.set(HEADER_BYTES_MAX);
        let Some(entry) = entries.next() else { break };
        meter.set(u64::MAX);
        let mut entry = entry.map_err(broken)?;
        size_bytes = size_bytes.saturating_add(entry.size());
        inodes += 1;
        if size_bytes > LAYER_BYTES_MAX || inodes > LAYER_ENTRIES_MAX {
            return Err(ImageError::TooLarge(LAYER_BYTES_MAX));
        }
        if looked_at != Some(size_bytes / ROOM_STEP) {
            looked_at = Some(size_bytes / ROOM_STEP);
            has_free_space(root, entry.size().min(LAYER_BYTES_MAX))?;
        }
        unpack_entry(&mut entry, root, &mut directories, &mut parents)?;
        // What is left of it does not count as the next one's header.
        io::copy(&mut entry, &mut io::sink()).map_err(broken)?;
    }
    // Last, since making entries in a directory changes its time.
    for (path, seconds) in directories.into_iter().rev() {
        parents.remove(&path);
        set_time(&path, seconds)?;
    }
    let implied = parents.into_iter().filter(|path| path.is_dir() && path.to_str().is_some());
    let implied = implied.filter_map(|path| path.strip_prefix(root).map(Path::to_owned).ok()).collect();
    meter.set(u64::MAX);
    let mut reader = archive.into_inner();
    io::copy(&mut reader, &mut io::sink()).map_err(broken)?;
    Ok(Unpacked { digest: hex(&reader.hash.finalize()), size_bytes, inodes, implied })
}

/// Whether `bytes` more fit, with some room left for others.
fn has_free_space(root: &Path, bytes: u64) -> Result<(), ImageError> {
    let stat = nix::sys::statvfs::statvfs(root)
        .map_err(|errno| ImageError::io("look how much room there is")(errno.into()))?;
    let free = stat.blocks_available().saturating_mul(stat.fragment_size());
    match free.checked_sub(bytes) {
        Some(left) if left >= ROOM_MIN => Ok(()),
        _ => Err(ImageError::io("unpack a layer")(io::Error::from_raw_os_error(nix::libc::ENOSPC))),
    }
}

fn unpack_entry<R: Read>(
    entry: &mut Entry<'_, R>,
    root: &Path,
    directories: &mut Vec<(PathBuf, u64)>,
    parents: &mut BTreeSet<PathBuf>,
) -> Result<(), ImageError> {
    let sparse = sparse_of(entry)?;
    let path = match sparse.as_ref().and_then(|sparse| sparse.name.as_deref()) {
        Some(name) => PathBuf::from(name),
        None => entry.path().map_err(broken)?.into_owned(),
    };
    let Some(target) = place(root, &path, parents)? else {
        return Ok(());
    };
    let name = target.file_name().map(OsStrExt::as_bytes).unwrap_or_default();
    if name == b".wh..wh..opq" {
        let dir = target.parent().unwrap_or(root);
        return Ok(sys::overlayfs::make_opaque(dir)?);
    }
    // What AUFS keeps for itself.
    if name.starts_with(b".wh..wh.") {
        return Ok(());
    }
    if let Some(hidden) = name.strip_prefix(b".wh.") {
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(invalid(&format!("{} hides nothing", path.display())));
        }
        return hide(&target.with_file_name(std::ffi::OsStr::from_bytes(hidden)));
    }
    let kind = entry.header().entry_type();
    let is_anew = kind.is_dir() && fs::symlink_metadata(&target).is_ok_and(|it| is_whiteout(&it));
    clear(&target, kind)?;
    if !make(entry, sparse, root, &mut *parents, &target)? {
        return Ok(());
    }
    let header = entry.header().clone();
    let number = |field: &[u8], result: io::Result<u64>| {
        u32::try_from(or_zero(field, result)?).map_err(|_| invalid("an id too large"))
    };
    let fields = header.as_old();
    let (uid, gid) = (number(&fields.uid, header.uid())?, number(&fields.gid, header.gid())?);
    let doing = || format!("unpack {}", path.display());
    lchown(&target, Some(uid), Some(gid)).map_err(ImageError::io(doing()))?;
    set_attributes(entry, &target)?;
    if kind.is_symlink() {
        return Ok(());
    }
    // After the owner, whose change clears the set-id bits.
    let mode = header.mode().map_err(broken)? & 0o7777;
    fs::set_permissions(&target, fs::Permissions::from_mode(mode)).map_err(ImageError::io(doing()))?;
    let seconds = or_zero(&fields.mtime, header.mtime())?;
    if kind.is_dir() {
        if is_anew {
            sys::overlayfs::make_opaque(&target)?;
        }
        directories.push((target, seconds));
        return Ok(());
    }
    set_time(&target, seconds)
}

/// Hides what the layers below have at a path. What this layer has there itself stays, whatever comes first. Source: OCI
/// image specification, "whiteouts".
fn hide(path: &Path) -> Result<(), ImageError> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(sys::overlayfs::make_opaque(path)?),
        Ok(_) => Ok(()),
        Err(_) => Ok(sys::overlayfs::whiteout(path)?),
    }
}

fn is_whiteout(metadata: &fs::Metadata) -> bool {
    metadata.file_type().is_char_device() && metadata.rdev() == 0
}

/// Fields that are left blank are zero, as other programs have it.
fn or_zero(field: &[u8], number: io::Result<u64>) -> Result<u64, ImageError> {
    match number {
        Err(_) if field.iter().all(|byte| matches!(byte, 0 | b' ')) => Ok(0),
        other => other.map_err(broken),
    }
}

/// Makes the entry; false if there is nothing more to set on it.
fn make<R: Read>(
    entry: &mut Entry<'_, R>,
    sparse: Option<Sparse>,
    root: &Path,
    parents: &mut BTreeSet<PathBuf>,
    target: &Path,
) -> Result<bool, ImageError> {
    use nix::sys::stat::{Mode, SFlag, makedev, mknod};
    let kind = entry.header().entry_type();
    let doing = || format!("unpack {}", target.strip_prefix(root).unwrap_or(target).display());
    let link = || {
        entry
            .link_name()
            .map_err(broken)?
            .map(|it| it.into_owned())
            .ok_or_else(|| invalid("a link to nothing"))
    };
    let node = |flag: SFlag, header: &tar::Header| -> Result<(), ImageError> {
        let number = |number: io::Result<Option<u32>>| -> Result<u64, ImageError> {
            Ok(number.map_err(broken)?.unwrap_or_default().into())
        };
        let device = match flag {
            SFlag::S_IFIFO => 0,
            _ => makedev(number(header.device_major())?, number(header.device_minor())?),
        };
        mknod(target, flag, Mode::empty(), device).map_err(|errno| ImageError::io(doing())(errno.into()))
    };
    match kind {
        EntryType::Directory => match fs::create_dir(target) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => other.map_err(ImageError::io(doing()))?,
        },
        EntryType::Symlink => std::os::unix::fs::symlink(link()?, target).map_err(ImageError::io(doing()))?,
        EntryType::Link => {
            let source = place(root, &link()?, parents)?.ok_or_else(|| invalid("a hard link to the root"))?;
            fs::hard_link(source, target).map_err(ImageError::io(doing()))?;
            return Ok(false);
        }
        EntryType::Char => node(SFlag::S_IFCHR, entry.header())?,
        EntryType::Block => node(SFlag::S_IFBLK, entry.header())?,
        EntryType::Fifo => node(SFlag::S_IFIFO, entry.header())?,
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
            let mut file = fs::File::options()
                .write(true)
                .create_new(true)
                .open(target)
                .map_err(ImageError::io(doing()))?;
            match sparse {
                Some(sparse) => sparse.write(entry, &mut file)?,
                None if kind == EntryType::GNUSparse => {
                    copy_with_holes(entry, &mut file).map_err(ImageError::io(doing()))?;
                }
                None => drop(io::copy(entry, &mut file).map_err(ImageError::io(doing()))?),
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Where an entry belongs: its parent exists and is inside `root`; directories that are `made` for that are noted. `None`
/// is the root itself.
fn place(root: &Path, path: &Path, made: &mut BTreeSet<PathBuf>) -> Result<Option<PathBuf>, ImageError> {
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part),
            Component::ParentDir => {
                return Err(invalid(&format!("the path {} leaves the layer", path.display())));
            }
            _ => {}
        }
    }
    let Some(name) = parts.pop() else { return Ok(None) };
    let mut links = 0;
    let mut parent = root.to_owned();
    for part in parts {
        parent = enter(root, &parent, Path::new(part), &mut links, &mut *made)?;
    }
    Ok(Some(parent.join(name)))
}

/// The directory `part` of `dir`, made if it is not there; links are followed as if `root` were the root.
fn enter(
    root: &Path,
    dir: &Path,
    part: &Path,
    links: &mut usize,
    made: &mut BTreeSet<PathBuf>,
) -> Result<PathBuf, ImageError> {
    let mut at = dir.to_owned();
    for component in part.components() {
        match component {
            Component::RootDir => root.clone_into(&mut at),
            Component::ParentDir if at != root => drop(at.pop()),
            Component::Normal(name) => {
                let next = at.join(name);
                at = match fs::symlink_metadata(&next) {
                    Ok(metadata) if metadata.is_symlink() => {
                        *links += 1;
                        if *links > LINKS_MAX {
                            return Err(invalid("too many links in a path"));
                        }
                        let link = fs::read_link(&next).map_err(ImageError::io("read a link"))?;
                        enter(root, &at, &link, &mut *links, &mut *made)?
                    }
                    Ok(metadata) if metadata.is_dir() => next,
                    Ok(metadata) if is_whiteout(&metadata) => {
                        fs::remove_file(&next)
                            .and_then(|()| fs::create_dir(&next))
                            .map_err(ImageError::io("create a directory"))?;
                        sys::overlayfs::make_opaque(&next)?;
                        made.insert(next.clone());
                        next
                    }
                    Ok(_) => return Err(invalid("a file is used as a directory")),
                    Err(_) => {
                        fs::create_dir(&next).map_err(ImageError::io("create a directory"))?;
                        made.insert(next.clone());
                        next
                    }
                };
            }
            _ => {}
        }
    }
    Ok(at)
}

/// Removes what an entry replaces; a directory stays for a directory.
fn clear(target: &Path, kind: EntryType) -> Result<(), ImageError> {
    let removed = match fs::symlink_metadata(target) {
        Ok(metadata) if metadata.is_dir() && kind.is_dir() => return Ok(()),
        Ok(metadata) if metadata.is_dir() => sys::tree::remove(target),
        Ok(_) => fs::remove_file(target),
        Err(_) => return Ok(()),
    };
    removed.map_err(ImageError::io(format!("replace {}", target.display())))
}

/// What the entry's PAX records say of holes.
fn sparse_of<R: Read>(entry: &mut Entry<'_, R>) -> Result<Option<Sparse>, ImageError> {
    let Some(extensions) = entry.pax_extensions().map_err(broken)? else { return Ok(None) };
    let extensions = extensions.collect::<Result<Vec<_>, _>>().map_err(broken)?;
    let sparse = Sparse::read(extensions.iter().filter_map(|it| Some((it.key().ok()?, it.value().ok()?))))?;
    match &sparse {
        Some(sparse) if sparse.size > LAYER_BYTES_MAX => Err(ImageError::TooLarge(LAYER_BYTES_MAX)),
        _ => Ok(sparse),
    }
}

/// Extended attributes such as file capabilities, from PAX records. Those that the file system does not have are left
/// out, as other runtimes do.
fn set_attributes<R: Read>(entry: &mut Entry<'_, R>, target: &Path) -> Result<(), ImageError> {
    let Some(extensions) = entry.pax_extensions().map_err(broken)? else { return Ok(()) };
    for extension in extensions {
        let extension = extension.map_err(broken)?;
        let name = extension.key().ok().and_then(|key| key.strip_prefix("SCHILY.xattr."));
        let Some(name) = name.filter(|name| !name.starts_with("trusted.overlay.")) else { continue };
        match sys::overlayfs::set_attribute(target, name, extension.value_bytes()) {
            Err(error) if is_unsupported(&error, name) => {
                tracing::debug!(path = %target.display(), name, "an extended attribute is left out");
            }
            other => other?,
        }
    }
    Ok(())
}

fn is_unsupported(error: &sys::Error, name: &str) -> bool {
    match error.raw_os_error() {
        Some(nix::libc::EOPNOTSUPP) => true,
        // Only files and directories have attributes of users.
        Some(nix::libc::EPERM) => name.starts_with("user."),
        _ => false,
    }
}

fn set_time(path: &Path, seconds: u64) -> Result<(), ImageError> {
    use nix::sys::stat::{UtimensatFlags, utimensat};
    use nix::sys::time::TimeSpec;
    let time = TimeSpec::new(i64::try_from(seconds).unwrap_or_default(), 0);
    utimensat(nix::fcntl::AT_FDCWD, path, &time, &time, UtimensatFlags::NoFollowSymlink)
        .map_err(|errno| ImageError::io(format!("set the time of {}", path.display()))(errno.into()))
}

/// Makes the directory of a layer, open to all as an image's root is.
pub(crate) fn make_root(path: &Path) -> Result<(), ImageError> {
    let made = fs::create_dir(path)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o755)))
        .and_then(|()| chown(path, Some(0), Some(0)));
    made.map_err(ImageError::io("create a layer"))
}

/// Counts down what may be read, and makes the digest of it.
struct Metered<R> {
    inner: R,
    hash: Sha256,
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.left.get();
        if left == 0 {
            return Err(io::Error::other("an entry's header is too large"));
        }
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let len = self.inner.read(buffer.get_mut(..most).unwrap_or_default())?;
        self.hash.update(buffer.get(..len).unwrap_or_default());
        if left != u64::MAX {
            self.left.set(left - len as u64);
        }
        Ok(len)
    }
}
