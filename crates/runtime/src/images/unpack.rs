//! A layer's tar into a directory that overlayfs can use.
//!
//! Nothing is ever written outside the directory: `..` is refused, links in a path are followed inside only.
//! Whiteouts become what overlayfs reads. Size and number of entries are bounded.

use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown, lchown};
use std::path::{Component, Path, PathBuf};

use sha2::{Digest, Sha256};
use tar::{Archive, Entry, EntryType};

use super::ImageError;

/// Largest unpacked layer.
pub const LAYER_BYTES_MAX: u64 = 64 << 30;
/// Most entries in a layer.
pub const LAYER_ENTRIES_MAX: u64 = 4_000_000;
/// Most links followed in one path.
const LINKS_MAX: usize = 64;

/// An unpacked layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpacked {
    /// Of the uncompressed tar, hexadecimal.
    pub digest: String,
    /// Sum of its files.
    pub size_bytes: u64,
}

/// Unpacks a tar, compressed by gzip or not, into the empty directory `root`.
pub fn unpack(reader: impl Read, root: &Path) -> Result<Unpacked, ImageError> {
    let reader = Hashing { inner: gunzip(reader)?, hash: Sha256::new() };
    let mut archive = Archive::new(reader);
    let mut size_bytes = 0;
    let mut count = 0;
    let mut directories = Vec::new();
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        size_bytes += entry.size();
        count += 1;
        if size_bytes > LAYER_BYTES_MAX || count > LAYER_ENTRIES_MAX {
            return Err(ImageError::TooLarge(LAYER_BYTES_MAX));
        }
        unpack_entry(&mut entry, root, &mut directories)?;
    }
    // Last, since making entries in a directory changes its time.
    for (path, seconds) in directories.into_iter().rev() {
        set_time(&path, seconds)?;
    }
    let mut reader = archive.into_inner();
    io::copy(&mut reader, &mut io::sink()).map_err(broken)?;
    Ok(Unpacked { digest: hex(&reader.hash.finalize()), size_bytes })
}

fn unpack_entry<R: Read>(
    entry: &mut Entry<'_, R>,
    root: &Path,
    directories: &mut Vec<(PathBuf, u64)>,
) -> Result<(), ImageError> {
    let path = entry.path().map_err(broken)?.into_owned();
    let Some(target) = place(root, &path)? else {
        return Ok(());
    };
    let name = target.file_name().map(OsStrExt::as_bytes).unwrap_or_default();
    if name == b".wh..wh..opq" {
        let dir = target.parent().unwrap_or(root);
        return Ok(sys::overlayfs::make_opaque(dir)?);
    }
    if let Some(hidden) = name.strip_prefix(b".wh.") {
        let hidden = target.with_file_name(std::ffi::OsStr::from_bytes(hidden));
        clear(&hidden, EntryType::Regular)?;
        return Ok(sys::overlayfs::whiteout(&hidden)?);
    }
    let kind = entry.header().entry_type();
    clear(&target, kind)?;
    if !make(entry, kind, root, &target)? {
        return Ok(());
    }
    let header = entry.header().clone();
    let number = |result: io::Result<u64>| {
        u32::try_from(result.map_err(broken)?).map_err(|_| invalid("an id too large"))
    };
    let (uid, gid) = (number(header.uid())?, number(header.gid())?);
    let doing = || format!("unpack {}", path.display());
    lchown(&target, Some(uid), Some(gid)).map_err(ImageError::io(doing()))?;
    set_attributes(entry, &target)?;
    if kind.is_symlink() {
        return Ok(());
    }
    // After the owner, whose change clears the set-id bits.
    let mode = header.mode().map_err(broken)? & 0o7777;
    fs::set_permissions(&target, fs::Permissions::from_mode(mode)).map_err(ImageError::io(doing()))?;
    let seconds = header.mtime().map_err(broken)?;
    if kind.is_dir() {
        directories.push((target, seconds));
        return Ok(());
    }
    set_time(&target, seconds)
}

/// Makes the entry; false if there is nothing more to set on it.
fn make<R: Read>(
    entry: &mut Entry<'_, R>,
    kind: EntryType,
    root: &Path,
    target: &Path,
) -> Result<bool, ImageError> {
    use nix::sys::stat::{Mode, SFlag, makedev, mknod};
    let doing = || format!("unpack {}", target.strip_prefix(root).unwrap_or(target).display());
    let link = || {
        entry
            .link_name()
            .map_err(broken)?
            .map(|it| it.into_owned())
            .ok_or_else(|| invalid("a link to nothing"))
    };
    let node = |flag: SFlag, header: &tar::Header| -> Result<(), ImageError> {
        let major = header.device_major().map_err(broken)?.unwrap_or_default();
        let minor = header.device_minor().map_err(broken)?.unwrap_or_default();
        let device = makedev(u64::from(major), u64::from(minor));
        mknod(target, flag, Mode::empty(), device).map_err(|errno| ImageError::io(doing())(errno.into()))
    };
    match kind {
        EntryType::Directory => match fs::create_dir(target) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => other.map_err(ImageError::io(doing()))?,
        },
        EntryType::Symlink => std::os::unix::fs::symlink(link()?, target).map_err(ImageError::io(doing()))?,
        EntryType::Link => {
            let source = place(root, &link()?)?.ok_or_else(|| invalid("a hard link to the root"))?;
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
            io::copy(entry, &mut file).map_err(ImageError::io(doing()))?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Where an entry belongs: its parent exists and is inside `root`. `None` is the root itself.
fn place(root: &Path, path: &Path) -> Result<Option<PathBuf>, ImageError> {
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
        parent = enter(root, &parent, Path::new(part), &mut links)?;
    }
    Ok(Some(parent.join(name)))
}

/// The directory `part` of `dir`, made if it is not there; links are followed as if `root` were the root.
fn enter(root: &Path, dir: &Path, part: &Path, links: &mut usize) -> Result<PathBuf, ImageError> {
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
                        enter(root, &at, &link, links)?
                    }
                    Ok(metadata) if metadata.is_dir() => next,
                    Ok(_) => return Err(invalid("a file is used as a directory")),
                    Err(_) => {
                        fs::create_dir(&next).map_err(ImageError::io("create a directory"))?;
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
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(target),
        Ok(_) => fs::remove_file(target),
        Err(_) => return Ok(()),
    };
    removed.map_err(ImageError::io(format!("replace {}", target.display())))
}

/// Extended attributes such as file capabilities, from PAX records.
fn set_attributes<R: Read>(entry: &mut Entry<'_, R>, target: &Path) -> Result<(), ImageError> {
    let Some(extensions) = entry.pax_extensions().map_err(broken)? else { return Ok(()) };
    for extension in extensions {
        let extension = extension.map_err(broken)?;
        let name = extension.key().ok().and_then(|key| key.strip_prefix("SCHILY.xattr."));
        if let Some(name) = name.filter(|name| !name.starts_with("trusted.overlay.")) {
            sys::overlayfs::set_attribute(target, name, extension.value_bytes())?;
        }
    }
    Ok(())
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

/// The reader, decompressed if it starts as gzip does.
pub(crate) fn gunzip<'a>(mut reader: impl Read + 'a) -> Result<Box<dyn Read + 'a>, ImageError> {
    let mut magic = [0; 2];
    let mut have = 0;
    while have < magic.len() {
        match reader.read(magic.get_mut(have..).unwrap_or_default()).map_err(broken)? {
            0 => break,
            len => have += len,
        }
    }
    let start = io::Cursor::new(magic.get(..have).unwrap_or_default().to_vec());
    let whole = start.chain(reader);
    if magic == [0x1f, 0x8b] {
        return Ok(Box::new(flate2::read::MultiGzDecoder::new(whole)));
    }
    if magic == [0x28, 0xb5] {
        return Err(invalid("layers compressed by zstd are not supported"));
    }
    Ok(Box::new(whole))
}

struct Hashing<R> {
    inner: R,
    hash: Sha256,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.inner.read(buffer)?;
        self.hash.update(buffer.get(..len).unwrap_or_default());
        Ok(len)
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn broken(error: io::Error) -> ImageError {
    ImageError::Invalid(format!("the archive cannot be read: {error}"))
}

fn invalid(message: &str) -> ImageError {
    ImageError::Invalid(message.to_owned())
}
