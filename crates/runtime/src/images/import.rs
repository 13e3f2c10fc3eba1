//! Images from files: docker-archive, OCI layout (tar or directory), root file system tar; compressed or not.
//!
//! A stream is spooled to disk first: `manifest.json` may be its last entry.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use registry::Digest;
use registry::document::{Descriptor, Document, INDEX_DEPTH_MAX, Index, Manifest, Platform};
use serde::Deserialize;

use super::compression::decompress;
use super::unpack::{Unpacked, make_root, unpack};
use super::{Image, ImageConfig, ImageError, ImageStore, broken};

/// Largest archive that is accepted.
pub const ARCHIVE_BYTES_MAX: u64 = 64 << 30;
/// Largest JSON document in an archive.
const DOCUMENT_BYTES_MAX: u64 = 4 << 20;

/// The importer's statements about an image that does not make them itself.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// A name for it, instead of those in the archive.
    pub name: Option<String>,
    /// A name for a root file system, which has none.
    pub root_name: Option<String>,
    /// The configuration of a root file system.
    pub config: ImageConfig,
}

/// Imports every image in `reader`. They are pinned: no registry may have them, so garbage collection leaves them alone.
pub fn import(
    store: &ImageStore,
    reader: impl Read,
    hints: &Hints,
    random: &base::Random,
) -> Result<Vec<Image>, ImageError> {
    let _alone = store.work()?;
    let spool = store.temporary(random);
    let result = spool_to(reader, &spool).and_then(|()| import_spooled(store, &spool, hints, random));
    fs::remove_file(&spool).map_err(ImageError::io("remove a spooled archive"))?;
    result
}

/// Imports every image in the OCI layout at `dir`.
pub fn import_dir(
    store: &ImageStore,
    dir: &Path,
    hints: &Hints,
    random: &base::Random,
) -> Result<Vec<Image>, ImageError> {
    let _alone = store.work()?;
    oci_layout(store, &Source::Dir(dir.to_owned()), hints, random)
}

fn spool_to(reader: impl Read, path: &Path) -> Result<(), ImageError> {
    let mut file = fs::File::create(path).map_err(ImageError::io("spool an archive"))?;
    let mut reader = decompress(reader).map_err(broken)?.take(ARCHIVE_BYTES_MAX + 1);
    let len = io::copy(&mut reader, &mut file).map_err(ImageError::io("spool an archive"))?;
    if len > ARCHIVE_BYTES_MAX {
        return Err(ImageError::TooLarge(ARCHIVE_BYTES_MAX));
    }
    Ok(())
}

fn import_spooled(
    store: &ImageStore,
    path: &Path,
    hints: &Hints,
    random: &base::Random,
) -> Result<Vec<Image>, ImageError> {
    let source = Source::tar(path)?;
    if source.has("manifest.json") && !source.has("index.json") {
        return docker_archive(store, &source, hints, random);
    }
    if source.has("oci-layout") || source.has("index.json") {
        return oci_layout(store, &source, hints, random);
    }
    root_file_system(store, path, hints, random).map(|image| vec![image])
}

/// Named files, in a directory or in a tar that was indexed.
enum Source {
    Dir(PathBuf),
    Tar { path: PathBuf, entries: BTreeMap<String, (u64, u64)> },
}

impl Source {
    fn tar(path: &Path) -> Result<Self, ImageError> {
        let file = fs::File::open(path).map_err(ImageError::io("open an archive"))?;
        let mut archive = tar::Archive::new(io::BufReader::new(file));
        let mut entries = BTreeMap::new();
        let mut links = Vec::new();
        for entry in archive.entries_with_seek().map_err(broken)? {
            let entry = entry.map_err(broken)?;
            let name = clean(&entry.path().map_err(broken)?);
            let kind = entry.header().entry_type();
            if kind.is_file() {
                entries.insert(name, (entry.raw_file_position(), entry.size()));
            } else if let Some(target) =
                entry.link_name().map_err(broken)?.filter(|_| kind.is_symlink() || kind.is_hard_link())
            {
                links.push((
                    name.clone(),
                    if kind.is_symlink() { beside(&name, &target) } else { clean(&target) },
                ));
            }
        }
        for (name, target) in links {
            if let Some(at) = entries.get(&target).copied() {
                entries.insert(name, at);
            }
        }
        Ok(Self::Tar { path: path.to_owned(), entries })
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Self::Dir(dir) => dir.join(name).is_file(),
            Self::Tar { entries, .. } => entries.contains_key(name),
        }
    }

    fn open(&self, name: &str) -> Result<Box<dyn Read>, ImageError> {
        let doing = || format!("open {name} in the archive");
        let name = clean(Path::new(name));
        match self {
            Self::Dir(dir) => {
                let file = fs::File::open(dir.join(&name)).map_err(ImageError::io(doing()))?;
                Ok(Box::new(io::BufReader::new(file)))
            }
            Self::Tar { path, entries } => {
                let missing = || ImageError::Invalid(format!("the archive has no {name}"));
                let (offset, len) = *entries.get(&name).ok_or_else(missing)?;
                let mut file = fs::File::open(path).map_err(ImageError::io(doing()))?;
                file.seek(SeekFrom::Start(offset)).map_err(ImageError::io(doing()))?;
                Ok(Box::new(io::BufReader::new(file.take(len))))
            }
        }
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, ImageError> {
        let mut bytes = Vec::new();
        let mut reader = self.open(name)?.take(DOCUMENT_BYTES_MAX + 1);
        reader.read_to_end(&mut bytes).map_err(ImageError::io(format!("read {name}")))?;
        if bytes.len() as u64 > DOCUMENT_BYTES_MAX {
            return Err(ImageError::TooLarge(DOCUMENT_BYTES_MAX));
        }
        Ok(bytes)
    }

    fn json<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Result<T, ImageError> {
        parse(name, &self.read(name)?)
    }

    /// A blob of an OCI layout, checked against its digest.
    fn blob(&self, digest: &Digest) -> Result<Vec<u8>, ImageError> {
        let bytes = self.read(&digest.layout_path())?;
        if !digest.is_of(&bytes) {
            return Err(ImageError::Invalid(format!("the blob {digest} is damaged")));
        }
        Ok(bytes)
    }
}

fn parse<T: for<'de> Deserialize<'de>>(name: &str, bytes: &[u8]) -> Result<T, ImageError> {
    serde_json::from_slice(bytes).map_err(|error| ImageError::Invalid(format!("{name}: {error}")))
}

/// A path without `./`, `..` and a leading slash.
fn clean(path: &Path) -> String {
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            std::path::Component::Normal(part) => parts.push(part.to_string_lossy().into_owned()),
            std::path::Component::ParentDir => drop(parts.pop()),
            _ => {}
        }
    }
    parts.join("/")
}

fn beside(name: &str, link: &Path) -> String {
    clean(&Path::new(name).parent().unwrap_or(Path::new("")).join(link))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerManifest {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// An image's configuration, as far as a node needs it.
pub(crate) struct ImageDocument {
    pub(crate) config: ImageConfig,
    /// Digests of the uncompressed layers, hexadecimal, lowest first.
    pub(crate) layers: Vec<String>,
}

impl ImageDocument {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, ImageError> {
        let document: ConfigDocument = parse("the image's configuration", bytes)?;
        let digest = |id: String| match id.parse::<Digest>() {
            Ok(digest) if id.starts_with("sha256:") => Ok(digest.hex().to_owned()),
            _ => Err(ImageError::Invalid(format!("unsupported digest {id:?}"))),
        };
        let layers = document.rootfs.diff_ids.into_iter().map(digest).collect::<Result<_, _>>()?;
        Ok(Self { config: document.config.unwrap_or_default(), layers })
    }
}

#[derive(Deserialize)]
struct ConfigDocument {
    #[serde(default)]
    config: Option<ImageConfig>,
    rootfs: RootFs,
}

#[derive(Deserialize)]
struct RootFs {
    diff_ids: Vec<String>,
}

fn docker_archive(
    store: &ImageStore,
    source: &Source,
    hints: &Hints,
    random: &base::Random,
) -> Result<Vec<Image>, ImageError> {
    let manifests: Vec<DockerManifest> = source.json("manifest.json")?;
    let mut images = Vec::new();
    for manifest in manifests {
        let names = names(hints, manifest.repo_tags.unwrap_or_default())?;
        let config = source.read(&manifest.config)?;
        images.push(assemble(store, source, &config, &manifest.layers, names, random)?);
    }
    Ok(images)
}

fn oci_layout(
    store: &ImageStore,
    source: &Source,
    hints: &Hints,
    random: &base::Random,
) -> Result<Vec<Image>, ImageError> {
    let index: Index = source.json("index.json")?;
    let mut images = Vec::new();
    for descriptor in &index.manifests {
        let annotation = ["io.containerd.image.name", "org.opencontainers.image.ref.name"]
            .iter()
            .find_map(|key| descriptor.annotations.get(*key).cloned());
        let manifest = match find_manifest(source, descriptor, 0)? {
            Some(manifest) => manifest,
            None => continue,
        };
        let config = source.blob(&manifest.config.digest)?;
        let layers: Vec<String> = manifest.layers.iter().map(|layer| layer.digest.layout_path()).collect();
        // A bare tag as ref.name is no name by itself.
        let said = annotation.filter(|name| name.contains(['/', ':'])).into_iter().collect();
        images.push(assemble(store, source, &config, &layers, names(hints, said)?, random)?);
    }
    if images.is_empty() {
        return Err(ImageError::Invalid("no image for this platform in the OCI layout".into()));
    }
    Ok(images)
}

/// The manifest for this platform, through nested indexes.
fn find_manifest(
    source: &Source,
    descriptor: &Descriptor,
    depth: usize,
) -> Result<Option<Manifest>, ImageError> {
    let fits = |it: &Platform| it.os == "linux" && it.architecture == Platform::host().architecture;
    if depth > INDEX_DEPTH_MAX {
        return Err(ImageError::Invalid("indexes nested too deeply".into()));
    }
    if descriptor.platform.as_ref().is_some_and(|it| !fits(it)) {
        return Ok(None);
    }
    let bytes = source.blob(&descriptor.digest)?;
    let document = Document::parse("manifest", &bytes);
    match document.map_err(|error| ImageError::Invalid(error.to_string()))? {
        Document::Manifest(manifest) => Ok(Some(manifest)),
        Document::Index(index) => {
            for nested in index.for_platform(&Platform::host()) {
                if let Some(found) = find_manifest(source, nested, depth + 1)? {
                    return Ok(Some(found));
                }
            }
            Ok(None)
        }
    }
}

fn names(hints: &Hints, said: Vec<String>) -> Result<BTreeSet<String>, ImageError> {
    let said = hints.name.clone().map_or(said, |name| vec![name]);
    let full = |name: &String| {
        super::full_name(name).ok_or_else(|| ImageError::Invalid(format!("{name:?} is no image reference")))
    };
    said.iter().map(full).collect()
}

/// Unpacks the layers that are not there yet and adds the image.
fn assemble(
    store: &ImageStore,
    source: &Source,
    config: &[u8],
    layers: &[String],
    names: BTreeSet<String>,
    random: &base::Random,
) -> Result<Image, ImageError> {
    let ImageDocument { config: process, layers: digests } = ImageDocument::parse(config)?;
    if digests.len() != layers.len() {
        return Err(ImageError::Invalid(format!("{} layers but {} digests", layers.len(), digests.len())));
    }
    let mut size_bytes = 0;
    for (digest, layer) in digests.iter().zip(layers) {
        size_bytes += match store.layer_size(digest) {
            Some(size) => size,
            None => add_layer(store, source.open(layer)?, digest, random)?,
        };
    }
    store.add(Image {
        id: Digest::of(config).to_string(),
        names,
        pulled: BTreeSet::new(),
        layers: digests,
        config: process,
        size_bytes,
        is_pinned: true,
    })
}

/// Unpacks a layer that must have this digest uncompressed, and keeps it. Returns its size.
pub(crate) fn add_layer(
    store: &ImageStore,
    reader: impl Read,
    digest: &str,
    random: &base::Random,
) -> Result<u64, ImageError> {
    let root = store.temporary(random);
    make_root(&root)?;
    let result = unpack(reader, &root).and_then(|unpacked| {
        if unpacked.digest != *digest {
            return Err(ImageError::Invalid(format!("the layer {digest} is damaged")));
        }
        sync(&root)?;
        store.adopt_layer(&root, digest, &unpacked)?;
        Ok(unpacked.size_bytes)
    });
    if result.is_err() {
        sys::tree::remove(&root).map_err(ImageError::io("remove a damaged layer"))?;
    }
    result
}

/// Brings an unpacked layer to disk: its whole file system at once, since layers have thousands of files.
fn sync(root: &Path) -> Result<(), ImageError> {
    let file = fs::File::open(root).map_err(ImageError::io("open an unpacked layer"))?;
    nix::unistd::syncfs(&file).map_err(|errno| ImageError::io("sync a layer")(errno.into()))
}

/// A tar that is the root file system itself: one layer, and the configuration from the hints.
fn root_file_system(
    store: &ImageStore,
    path: &Path,
    hints: &Hints,
    random: &base::Random,
) -> Result<Image, ImageError> {
    let names = names(hints, hints.root_name.iter().cloned().collect())?;
    if names.is_empty() {
        return Err(ImageError::Invalid("a root file system needs a name: give one with --name".into()));
    }
    let root = store.temporary(random);
    make_root(&root)?;
    let file = fs::File::open(path).map_err(ImageError::io("open an archive"))?;
    let unpacked = unpack(io::BufReader::new(file), &root).and_then(|unpacked| {
        sync(&root)?;
        store.adopt_layer(&root, &unpacked.digest, &unpacked)?;
        Ok(unpacked)
    });
    if unpacked.is_err() {
        sys::tree::remove(&root).map_err(ImageError::io("remove a damaged layer"))?;
    }
    let Unpacked { digest, size_bytes, .. } = unpacked?;
    add_single_layer(store, digest, size_bytes, names, hints)
}

/// Adds an image of one layer that is there, configured by the hints.
pub(crate) fn add_single_layer(
    store: &ImageStore,
    layer: String,
    size_bytes: u64,
    names: BTreeSet<String>,
    hints: &Hints,
) -> Result<Image, ImageError> {
    let document = serde_json::json!({
        "architecture": Platform::host().architecture,
        "os": "linux",
        "config": hints.config,
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer}")] },
    });
    let id = Digest::of(document.to_string().as_bytes()).to_string();
    let (config, pulled) = (hints.config.clone(), BTreeSet::new());
    store.add(Image { id, names, pulled, layers: vec![layer], config, size_bytes, is_pinned: true })
}
