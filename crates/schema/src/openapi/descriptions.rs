//! The descriptions of messages and fields, in upstream's words: taken from `k8s-openapi` at build time, kept
//! compressed.
//!
//! Unpacked for as long as a document is made.

use std::collections::HashMap;
use std::io::Read as _;
use std::sync::LazyLock;

use sha2::{Digest as _, Sha256};

static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptions.zlib"));

/// Changes when any text does: documents with other texts must not pass for the same.
pub(super) static FINGERPRINT: LazyLock<Vec<u8>> = LazyLock::new(|| Sha256::digest(PACKED).to_vec());

/// All descriptions.
pub(super) struct Descriptions(String);

/// Those of one document's making.
pub(super) struct Index<'t>(HashMap<(&'t str, &'t str), &'t str>);

impl Descriptions {
    /// Unpacks the texts. They are made with the program, so there is nothing in them that could fail.
    pub(super) fn unpack() -> Self {
        let mut text = String::new();
        match flate2::read::ZlibDecoder::new(PACKED).read_to_string(&mut text) {
            Ok(_) => Self(text),
            Err(_) => Self(String::new()),
        }
    }

    pub(super) fn index(&self) -> Index<'_> {
        let mut message = "";
        let mut index = HashMap::new();
        for (name, text) in self.0.lines().filter_map(|line| line.split_once('\t')) {
            match name.strip_prefix('=') {
                Some(name) => {
                    message = name;
                    index.insert((message, ""), text);
                }
                None => {
                    index.insert((message, name), text);
                }
            }
        }
        Index(index)
    }
}

impl Index<'_> {
    /// What a field is for; the message itself if `field` is empty.
    pub(super) fn get(&self, message: &str, field: &str) -> Option<String> {
        let text = self.0.get(&(message, field))?;
        Some(text.replace('\u{1}', "\n").replace('\u{2}', "\t"))
    }
}
