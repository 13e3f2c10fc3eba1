//! Manifests and indexes, of OCI and of Docker's schema 2: two spellings of the same.
//!
//! Source: OCI image specification, `manifest.md` and `image-index.md`; Docker Image Manifest V2, Schema 2.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::digest::Digest;
use crate::error::Error;

/// Largest manifest or index. Source: OCI distribution specification, "pushing manifests".
pub const MANIFEST_BYTES_MAX: u64 = 4 << 20;
/// Most layers of an image.
pub const LAYERS_MAX: usize = 512;
/// How much worse an image is that the machine runs in its mode for older programs.
const OLDER: u32 = 1000;
/// Deepest nesting of indexes.
pub const INDEX_DEPTH_MAX: usize = 4;

/// The accepted types of a manifest, best first.
pub const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, \
    application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json";

/// A thing by its digest.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// The media type.
    #[serde(default)]
    pub media_type: String,
    /// Its name.
    pub digest: Digest,
    /// In bytes; 0 if it does not say.
    #[serde(default)]
    pub size: u64,
    /// Of a manifest in an index: for which machine it is.
    #[serde(default)]
    pub platform: Option<Platform>,
    /// Notes.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// The addresses of a layer that no registry may serve (foreign layers).
    #[serde(default)]
    pub urls: Vec<String>,
}

impl Descriptor {
    /// `true` if it is an index and not a manifest, by what it says.
    pub fn is_index(&self) -> bool {
        self.media_type.ends_with("image.index.v1+json") || self.media_type.ends_with("manifest.list.v2+json")
    }
}

/// A kind of machine.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Platform {
    /// Go's name of the architecture.
    #[serde(default)]
    pub architecture: String,
    /// Go's name of the system.
    #[serde(default)]
    pub os: String,
    /// Of the architecture, such as `v7`.
    #[serde(default)]
    pub variant: String,
}

impl Platform {
    /// This machine.
    pub fn host() -> Self {
        let (architecture, variant) = match std::env::consts::ARCH {
            "x86_64" => ("amd64", ""),
            "x86" => ("386", ""),
            "aarch64" => ("arm64", "v8"),
            "arm" => ("arm", "v7"),
            "powerpc64" => ("ppc64le", ""),
            other => (other, ""),
        };
        Self { architecture: architecture.into(), os: "linux".into(), variant: variant.into() }
    }

    /// How well an image for `other` runs here: smaller is better, `None` is not at all.
    ///
    /// Source: containerd's `platforms.Only`: a variant runs all that came before it, and 64 bits run 32.
    fn rank(&self, other: &Self) -> Option<u32> {
        let number = |variant: &str| variant.trim_start_matches('v').parse::<u32>().ok();
        if other.os != self.os {
            return None;
        }
        match (self.architecture.as_str(), other.architecture.as_str()) {
            ("amd64", "386") => return Some(OLDER),
            ("arm64", "arm") => return Some(OLDER + 8_u32.checked_sub(number(&other.variant).unwrap_or(7))?),
            (ours, theirs) if ours != theirs => return None,
            _ => {}
        }
        match (number(&self.variant), number(&other.variant)) {
            (Some(ours), Some(theirs)) => ours.checked_sub(theirs),
            _ if self.architecture == "amd64" && matches!(other.variant.as_str(), "v2" | "v3" | "v4") => None,
            _ => Some(0),
        }
    }
}

/// An image: its configuration and its layers, lowest first.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Manifest {
    /// Its configuration.
    pub config: Descriptor,
    /// Its layers.
    pub layers: Vec<Descriptor>,
}

/// Images for several machines.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Index {
    /// One each.
    pub manifests: Vec<Descriptor>,
}

/// The document at a manifest's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// An image.
    Manifest(Manifest),
    /// A choice of images.
    Index(Index),
}

impl Document {
    /// Reads a document by what it has, which must agree with what it says.
    ///
    /// # Errors
    /// It is none, or of a kind that is not supported, or could be read as both.
    pub fn parse(what: &str, bytes: &[u8]) -> Result<Self, Error> {
        let wrong = |why: &str| Error::invalid(what, why);
        let value: Value = serde_json::from_slice(bytes).map_err(|error| Error::invalid(what, error))?;
        if value.get("schemaVersion").and_then(Value::as_u64) == Some(1) {
            return Err(wrong("Docker's schema 1 is not supported"));
        }
        let media_type = value.get("mediaType").and_then(Value::as_str).unwrap_or_default();
        let says_index = media_type.contains("index") || media_type.contains("manifest.list");
        match (value.get("manifests").is_some(), value.get("layers").is_some()) {
            (true, true) => Err(wrong("it has both manifests and layers")),
            (true, false) if !media_type.is_empty() && !says_index => {
                Err(wrong("an index that says it is something else"))
            }
            (false, true) if says_index => Err(wrong("a manifest that says it is an index")),
            (true, false) => from_value(what, value).map(Self::Index),
            _ => {
                let manifest: Manifest = from_value(what, value)?;
                if manifest.layers.len() > LAYERS_MAX {
                    return Err(wrong(&format!("it has more than {LAYERS_MAX} layers")));
                }
                Ok(Self::Manifest(manifest))
            }
        }
    }
}

fn from_value<T: for<'de> Deserialize<'de>>(what: &str, value: Value) -> Result<T, Error> {
    serde_json::from_value(value).map_err(|error| Error::invalid(what, error))
}

impl Index {
    /// The entries that `host` can use, best first; those that say nothing come last.
    pub fn for_platform(&self, host: &Platform) -> Vec<&Descriptor> {
        let rank = |entry: &&Descriptor| match &entry.platform {
            Some(platform) => host.rank(platform),
            None => Some(u32::MAX),
        };
        let mut fitting: Vec<(u32, &Descriptor)> =
            self.manifests.iter().filter_map(|entry| Some((rank(&entry)?, entry))).collect();
        fitting.sort_by_key(|(rank, _)| *rank);
        fitting.into_iter().map(|(_, entry)| entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(n: usize) -> String {
        format!("sha256:{n:064}")
    }

    fn choose(host: (&str, &str), entries: &[Option<(&str, &str, &str)>]) -> Option<usize> {
        let manifests: Vec<Value> = entries
            .iter()
            .enumerate()
            .map(|(n, entry)| match entry {
                Some((os, architecture, variant)) => serde_json::json!({"digest": digest(n),
                    "platform": {"os": os, "architecture": architecture, "variant": variant}}),
                None => serde_json::json!({"digest": digest(n)}),
            })
            .collect();
        let index: Index = serde_json::from_value(serde_json::json!({ "manifests": manifests })).unwrap();
        let host = Platform { os: "linux".into(), architecture: host.0.into(), variant: host.1.into() };
        let found = index.for_platform(&host).first().map(|entry| entry.digest.to_string());
        found.map(|found| (0..entries.len()).find(|n| digest(*n) == found).unwrap())
    }

    #[test]
    fn an_index_gives_what_fits_the_machine_best() {
        let amd = ("amd64", "");
        for (name, host, entries, expect) in [
            (
                "architecture",
                amd,
                &[Some(("linux", "arm64", "v8")), Some(("linux", "amd64", ""))][..],
                Some(1),
            ),
            ("system", amd, &[Some(("windows", "amd64", "")), Some(("linux", "amd64", ""))], Some(1)),
            ("nothing fits", amd, &[Some(("linux", "s390x", "")), Some(("unknown", "unknown", ""))], None),
            ("too new a variant", amd, &[Some(("linux", "amd64", "v3"))], None),
            ("no platform is the last choice", amd, &[None, Some(("linux", "amd64", ""))], Some(1)),
            ("no platform is a choice", amd, &[None], Some(0)),
            (
                "the best variant",
                ("arm", "v7"),
                &[Some(("linux", "arm", "v5")), Some(("linux", "arm", "v7")), Some(("linux", "arm", "v8"))],
                Some(1),
            ),
            ("arm64 with and without v8", ("arm64", "v8"), &[Some(("linux", "arm64", ""))], Some(0)),
            // Source: TestOnly of containerd's `platforms/compare_test.go`.
            ("older programs if there is nothing else", amd, &[Some(("linux", "386", ""))], Some(0)),
            (
                "older programs only then",
                amd,
                &[Some(("linux", "386", "")), Some(("linux", "amd64", ""))],
                Some(1),
            ),
            ("no newer programs", ("386", ""), &[Some(("linux", "amd64", ""))], None),
            ("the first variant is none", amd, &[Some(("linux", "amd64", "v1"))], Some(0)),
            (
                "of older programs the newest",
                ("arm64", "v8"),
                &[Some(("linux", "arm", "v5")), Some(("linux", "arm", "v6")), Some(("linux", "arm", "v7"))],
                Some(2),
            ),
            ("older programs without variant", ("arm64", "v8"), &[Some(("linux", "arm", ""))], Some(0)),
            (
                "not a variant that comes later",
                ("arm64", "v8"),
                &[Some(("linux", "arm64", "v9")), Some(("linux", "arm", "v9"))],
                None,
            ),
            ("not for 64 bits", ("arm", "v7"), &[Some(("linux", "arm64", "v8"))], None),
            (
                "variants that came before",
                ("arm", "v6"),
                &[Some(("linux", "arm", "v7")), Some(("linux", "arm", "v5"))],
                Some(1),
            ),
            ("another system", amd, &[Some(("darwin", "amd64", "")), Some(("freebsd", "amd64", ""))], None),
            (
                "the first of two that are as good",
                amd,
                &[Some(("linux", "amd64", "")), Some(("linux", "amd64", ""))],
                Some(0),
            ),
            (
                "attestations are for no machine",
                amd,
                &[
                    Some(("unknown", "unknown", "")),
                    Some(("linux", "amd64", "")),
                    Some(("unknown", "unknown", "")),
                ],
                Some(1),
            ),
        ] {
            assert_eq!(choose(host, entries), expect, "{name}");
        }
    }

    #[test]
    fn documents_are_what_they_have_and_nothing_in_between() {
        let descriptor = format!(r#"{{"digest":"{}","size":1}}"#, digest(1));
        let layers = format!(r#""config":{descriptor},"layers":[{descriptor}]"#);
        let manifests = format!(r#""manifests":[{descriptor}]"#);
        let is_error = |text: String| Document::parse("x", text.as_bytes()).is_err();
        assert!(matches!(
            Document::parse("x", format!("{{{layers}}}").as_bytes()),
            Ok(Document::Manifest(_))
        ));
        assert!(matches!(
            Document::parse("x", format!("{{{manifests}}}").as_bytes()),
            Ok(Document::Index(_))
        ));
        assert!(is_error(format!("{{{layers},{manifests}}}")));
        assert!(is_error(format!(
            r#"{{"mediaType":"application/vnd.oci.image.manifest.v1+json",{manifests}}}"#
        )));
        assert!(is_error(format!(r#"{{"mediaType":"application/vnd.oci.image.index.v1+json",{layers}}}"#)));
        assert!(is_error(r#"{"schemaVersion":1,"fsLayers":[]}"#.into()));
        assert!(is_error("{}".into()));
        assert!(is_error("no JSON".into()));
        for (name, text) in [
            ("a digest that is none", r#"{"config":{"digest":"sha256:abc"},"layers":[]}"#.to_owned()),
            (
                "a digest of another algorithm",
                format!(r#"{{"config":{{"digest":"md5:{}"}},"layers":[]}}"#, "0".repeat(32)),
            ),
            (
                "a digest that leads elsewhere",
                format!(r#"{{"config":{{"digest":"sha256:../{}"}},"layers":[]}}"#, "a".repeat(61)),
            ),
            (
                "a size below nothing",
                format!(r#"{{"config":{{"digest":"{}","size":-1}},"layers":[]}}"#, digest(1)),
            ),
            (
                "a size that is no number",
                format!(r#"{{"config":{{"digest":"{}","size":"1"}},"layers":[]}}"#, digest(1)),
            ),
            ("no configuration", r#"{"layers":[]}"#.to_owned()),
            ("layers that are no list", format!(r#"{{"config":{descriptor},"layers":{{}}}}"#)),
            ("manifests that are no list", r#"{"manifests":{}}"#.to_owned()),
            ("a list", "[]".to_owned()),
            ("nothing", "null".to_owned()),
            ("more behind it", format!("{{{layers}}}{{}}")),
            ("cut off", format!("{{{layers}")),
            ("nested without end", "[".repeat(100_000)),
        ] {
            assert!(is_error(text), "{name}");
        }
        assert!(is_error(format!(
            r#"{{"config":{descriptor},"layers":[{}]}}"#,
            vec![descriptor.clone(); LAYERS_MAX + 1].join(",")
        )));
    }
}
