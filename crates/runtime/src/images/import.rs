//! Images from files: docker-archive, OCI layout (tar or directory), root file system tar; gzip or not.
//!
//! A stream is spooled to disk first: `manifest.json` may be its last entry.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::unpack::{gunzip, hex, make_root, unpack};
use super::{Image, ImageConfig, ImageError, ImageStore, reference};

/// Largest archive that is accepted.
pub const ARCHIVE_BYTES_MAX: u64 = 64 << 30;
/// Largest JSON document in an archive.
const DOCUMENT_BYTES_MAX: u64 = 4 << 20;
/// Deepest nesting of OCI indexes.
const INDEX_DEPTH_MAX: usize = 4;

/// What the importer says about an image that does not say it itself.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// A name for it, instead of those in the archive.
    pub name: Option<String>,
    /// The configuration of a root file system.
    pub config: ImageConfig,
    /// Keeps it from garbage collection.
    pub is_pinned: bool,
}

/// Imports every image in `reader`.
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
    let mut reader = gunzip(reader)?.take(ARCHIVE_BYTES_MAX + 1);
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
        let broken = |error: io::Error| ImageError::Invalid(format!("the archive cannot be read: {error}"));
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
    fn blob(&self, digest: &str) -> Result<Vec<u8>, ImageError> {
        let bytes = self.read(&blob_path(digest)?)?;
        if format!("sha256:{}", hex(&Sha256::digest(&bytes))) != digest {
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

fn blob_path(digest: &str) -> Result<String, ImageError> {
    match digest.split_once(':') {
        Some(("sha256", hex)) if hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()) => {
            Ok(format!("blobs/sha256/{hex}"))
        }
        _ => Err(ImageError::Invalid(format!("unsupported digest {digest:?}"))),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerManifest {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

#[derive(Deserialize)]
struct OciIndex {
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct OciManifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    digest: String,
    #[serde(default)]
    media_type: String,
    #[serde(default)]
    platform: Option<Platform>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Platform {
    architecture: String,
    os: String,
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
        images.push(assemble(store, source, &config, &manifest.layers, names, hints, random)?);
    }
    Ok(images)
}

fn oci_layout(
    store: &ImageStore,
    source: &Source,
    hints: &Hints,
    random: &base::Random,
) -> Result<Vec<Image>, ImageError> {
    let index: OciIndex = source.json("index.json")?;
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
        let layers =
            manifest.layers.iter().map(|layer| blob_path(&layer.digest)).collect::<Result<Vec<_>, _>>()?;
        // A bare tag as ref.name is no name by itself.
        let said = annotation.filter(|name| name.contains(['/', ':'])).into_iter().collect();
        images.push(assemble(store, source, &config, &layers, names(hints, said)?, hints, random)?);
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
) -> Result<Option<OciManifest>, ImageError> {
    if depth > INDEX_DEPTH_MAX {
        return Err(ImageError::Invalid("indexes nested too deeply".into()));
    }
    if descriptor.platform.as_ref().is_some_and(|it| it.os != "linux" || it.architecture != architecture()) {
        return Ok(None);
    }
    let bytes = source.blob(&descriptor.digest)?;
    if !descriptor.media_type.contains("index") && !descriptor.media_type.contains("manifest.list") {
        return parse("manifest", &bytes).map(Some);
    }
    let index: OciIndex = parse("index", &bytes)?;
    for nested in &index.manifests {
        if let Some(found) = find_manifest(source, nested, depth + 1)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn names(hints: &Hints, said: Vec<String>) -> Result<BTreeSet<String>, ImageError> {
    let said = hints.name.clone().map_or(said, |name| vec![name]);
    let full = |name: &String| {
        reference::normalize(name)
            .ok_or_else(|| ImageError::Invalid(format!("{name:?} is no image reference")))
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
    hints: &Hints,
    random: &base::Random,
) -> Result<Image, ImageError> {
    let document: ConfigDocument = parse("the image's configuration", config)?;
    let digests: Vec<String> =
        document.rootfs.diff_ids.iter().map(|id| id.trim_start_matches("sha256:").to_owned()).collect();
    if digests.len() != layers.len() {
        return Err(ImageError::Invalid(format!("{} layers but {} digests", layers.len(), digests.len())));
    }
    let mut size_bytes = 0;
    for (digest, layer) in digests.iter().zip(layers) {
        if let Some(size) = store.layer_size(digest) {
            size_bytes += size;
            continue;
        }
        let root = store.temporary(random);
        make_root(&root)?;
        let unpacked = unpack(source.open(layer)?, &root)?;
        if unpacked.digest != *digest {
            fs::remove_dir_all(&root).map_err(ImageError::io("remove a damaged layer"))?;
            return Err(ImageError::Invalid(format!("the layer {layer} is damaged")));
        }
        size_bytes += unpacked.size_bytes;
        sync(&root)?;
        store.adopt_layer(&root, digest, unpacked.size_bytes)?;
    }
    store.add(Image {
        id: format!("sha256:{}", hex(&Sha256::digest(config))),
        names,
        layers: digests,
        config: document.config.unwrap_or_default(),
        size_bytes,
        is_pinned: hints.is_pinned,
    })
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
    let names = names(hints, Vec::new())?;
    if names.is_empty() {
        return Err(ImageError::Invalid("a root file system needs a name".into()));
    }
    let root = store.temporary(random);
    make_root(&root)?;
    let file = fs::File::open(path).map_err(ImageError::io("open an archive"))?;
    let unpacked = unpack(io::BufReader::new(file), &root)?;
    sync(&root)?;
    store.adopt_layer(&root, &unpacked.digest, unpacked.size_bytes)?;
    add_single_layer(store, unpacked.digest, unpacked.size_bytes, names, hints)
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
        "architecture": architecture(),
        "os": "linux",
        "config": hints.config,
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer}")] },
    });
    let id = format!("sha256:{}", hex(&Sha256::digest(document.to_string().as_bytes())));
    let (config, is_pinned) = (hints.config.clone(), hints.is_pinned);
    store.add(Image { id, names, layers: vec![layer], config, size_bytes, is_pinned })
}
