//! The image `knarr.local/hello`, made from this very program and the libraries that it has loaded.
//!
//! Made at start and only if the program changed: its layer is named after the program's build.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use registry::digest::hex;
use sha2::{Digest, Sha256};

use super::import::{Hints, add_single_layer};
use super::unpack::{Unpacked, make_root};
use super::{Image, ImageConfig, ImageError, ImageStore};

/// The name of the built-in image.
pub const HELLO: &str = "knarr.local/hello";
/// About as many files it has.
const FILES: u64 = 32;

/// Makes the image if it is not there yet. `in_use` are the layers that containers have.
pub fn ensure(
    store: &ImageStore,
    in_use: &BTreeSet<String>,
    random: &base::Random,
) -> Result<Image, ImageError> {
    let doing = || "make the built-in image".to_owned();
    let program = fs::canonicalize("/proc/self/exe").unwrap_or_else(|_| PathBuf::from("/proc/self/exe"));
    let maps = fs::read_to_string("/proc/self/maps").map_err(ImageError::io(doing()))?;
    let libraries = libraries(&maps, &program);
    let digest = identity(&libraries).map_err(ImageError::io(doing()))?;
    let old = store.find(HELLO);
    if let Some(image) = old.clone().filter(|image| image.layers == [digest.clone()]) {
        return Ok(image);
    }
    let layers = store.work()?;
    let size_bytes = match store.layer_size(&digest) {
        Some(size) => size,
        None => {
            let root = store.temporary(random);
            make_root(&root)?;
            let size = fill(&root, &libraries).map_err(ImageError::io(doing()))?;
            let unpacked =
                Unpacked { digest: digest.clone(), size_bytes: size, inodes: FILES, ..Unpacked::default() };
            store.adopt_layer(&root, &digest, &unpacked)?;
            size
        }
    };
    let hints = Hints {
        config: ImageConfig {
            entrypoint: vec!["/knarr".into(), "hello-server".into()],
            working_dir: "/".into(),
            ..ImageConfig::default()
        },
        ..Hints::default()
    };
    let names = BTreeSet::from([format!("{HELLO}:latest")]);
    let image = add_single_layer(store, digest, size_bytes, names, &hints)?;
    drop(layers);
    // What an earlier build left; it has no name any more.
    if let Some(old) = old {
        store.remove(&old.id, in_use)?;
    }
    Ok(image)
}

/// Files that are mapped into this process and are not the program: its libraries and the interpreter.
fn libraries(maps: &str, program: &Path) -> Vec<PathBuf> {
    let mapped =
        maps.lines().filter_map(|line| line.split_whitespace().nth(5)).filter(|path| path.starts_with('/'));
    let paths: BTreeSet<PathBuf> = mapped.map(PathBuf::from).collect();
    paths.into_iter().filter(|path| path != program && is_library(path)).collect()
}

fn is_library(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.contains(".so"))
}

/// Names what goes in: path, size and time of each file.
fn identity(libraries: &[PathBuf]) -> io::Result<String> {
    use std::os::unix::fs::MetadataExt;
    let mut hash = Sha256::new();
    let program = PathBuf::from("/proc/self/exe");
    for path in libraries.iter().chain([&program]) {
        let metadata = fs::metadata(path)?;
        hash.update(format!(
            "{} {} {}.{}\n",
            path.display(),
            metadata.len(),
            metadata.mtime(),
            metadata.mtime_nsec()
        ));
    }
    Ok(hex(&hash.finalize()))
}

fn fill(root: &Path, libraries: &[PathBuf]) -> io::Result<u64> {
    let mut size = copy(Path::new("/proc/self/exe"), &root.join("knarr"))?;
    for library in libraries {
        size += place(root, library)?;
    }
    if let Some(interpreter) = interpreter(Path::new("/proc/self/exe"))?
        && !inside(root, &interpreter).exists()
    {
        size += place(root, &interpreter)?;
    }
    for dir in ["tmp", "etc", "proc", "sys", "dev"] {
        fs::create_dir_all(root.join(dir))?;
    }
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/:/knarr\nnobody:x:65534:65534:nobody:/:/knarr\n")?;
    fs::write(root.join("etc/group"), "root:x:0:\nnogroup:x:65534:\n")?;
    Ok(size)
}

/// Copies a file and brings it to disk.
fn copy(from: &Path, to: &Path) -> io::Result<u64> {
    let size = fs::copy(from, to)?;
    fs::File::open(to)?.sync_all()?;
    Ok(size)
}

fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Copies a library to where the program's interpreter looks: its own path and the directories of `/lib`.
fn place(root: &Path, library: &Path) -> io::Result<u64> {
    let target = inside(root, library);
    fs::create_dir_all(target.parent().unwrap_or(root))?;
    let size = copy(library, &target)?;
    // On hosts with a merged /usr the maps say /usr/lib, while the interpreter is asked for as /lib64.
    if let Some(other) = library.to_str().and_then(|path| path.strip_prefix("/usr/")) {
        let link = root.join(other);
        fs::create_dir_all(link.parent().unwrap_or(root))?;
        if !link.exists() {
            fs::hard_link(&target, link)?;
        }
    }
    Ok(size)
}

/// The path that an ELF program names as its interpreter. Source: elf(5), `PT_INTERP`, 64 bit little endian.
fn interpreter(program: &Path) -> io::Result<Option<PathBuf>> {
    const PT_INTERP: u32 = 3;
    let mut head = Vec::new();
    fs::File::open(program)?.take(4096).read_to_end(&mut head)?;
    let number = |at: usize, len: usize| -> Option<usize> {
        let bytes = head.get(at..at + len)?;
        Some(bytes.iter().rev().fold(0, |sum, byte| (sum << 8) | usize::from(*byte)))
    };
    let found = || {
        let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        let headers = (0..count).map(|n| table + n * size);
        let header = headers.into_iter().find(|at| number(*at, 4) == Some(PT_INTERP as usize))?;
        let (offset, len) = (number(header + 8, 8)?, number(header + 32, 8)?);
        let path = head.get(offset..offset + len.saturating_sub(1))?;
        Some(PathBuf::from(String::from_utf8(path.to_vec()).ok()?))
    };
    Ok(found())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_builtin_rootfs_can_run_this_program() {
        let dir = tempfile::tempdir().unwrap();
        let store = ImageStore::open(dir.path()).unwrap();
        let random = base::Random::seeded(1);
        let image = ensure(&store, &BTreeSet::new(), &random).unwrap();
        assert_eq!(ensure(&store, &BTreeSet::new(), &random).unwrap(), image);
        let root = store.lower_dirs(&image).remove(0);
        assert!(root.join("knarr").exists());
        if let Some(interpreter) = interpreter(Path::new("/proc/self/exe")).unwrap() {
            assert!(inside(&root, &interpreter).exists(), "{}", interpreter.display());
        }
        assert_eq!(store.find("knarr.local/hello").unwrap().id, image.id);
    }
}
