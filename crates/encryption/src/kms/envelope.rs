//! The stored form of a value under a KMS provider: the sealed value, and the seed as the plugin encrypted it.
//!
//! Source: upstream's `kmsv2/v2/api.proto`, `ValidateEncryptedObject`.

use std::collections::BTreeMap;

use prost::Message;

use crate::errors::EnvelopeError;

/// The longest encrypted seed.
const SOURCE_BYTES_MAX: usize = 1024;
/// The longest name of a plugin's key.
pub(crate) const KEY_ID_BYTES_MAX: usize = 1024;
/// All annotations together.
const ANNOTATIONS_BYTES_MAX: usize = 32 * 1024;

/// The longest part of a domain. Source: RFC 1123.
const LABEL_BYTES_MAX: usize = 63;

/// The source is an AES-GCM key: what servers before 1.29 wrote.
pub(crate) const AES_GCM_KEY: i32 = 0;
/// The source is a seed: what is written now.
pub(crate) const HKDF_SHA256_XNONCE_AES_GCM_SEED: i32 = 1;

/// `EncryptedObject`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct EncryptedObject {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) encrypted_data: Vec<u8>,
    #[prost(string, tag = "2")]
    pub(crate) key_id: String,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) encrypted_dek_source: Vec<u8>,
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub(crate) annotations: BTreeMap<String, Vec<u8>>,
    #[prost(int32, tag = "5")]
    pub(crate) encrypted_dek_source_type: i32,
}

/// What tells seeds apart: all of an envelope but the value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SeedId {
    source_type: i32,
    source: Vec<u8>,
    key_id: String,
    annotations: BTreeMap<String, Vec<u8>>,
}

impl EncryptedObject {
    /// Reads and checks what is stored.
    pub(crate) fn open(stored: &[u8]) -> Result<Self, EnvelopeError> {
        let object = Self::decode(stored).map_err(|_| EnvelopeError::Proto)?;
        if object.encrypted_data.is_empty() {
            return Err(EnvelopeError::Empty);
        }
        object.check_seed()?;
        Ok(object)
    }

    /// Checks all but the value.
    pub(crate) fn check_seed(&self) -> Result<(), EnvelopeError> {
        if ![AES_GCM_KEY, HKDF_SHA256_XNONCE_AES_GCM_SEED].contains(&self.encrypted_dek_source_type) {
            return Err(EnvelopeError::SourceType(self.encrypted_dek_source_type));
        }
        match self.encrypted_dek_source.len() {
            0 => return Err(EnvelopeError::NoSource),
            long if long > SOURCE_BYTES_MAX => return Err(EnvelopeError::LongSource(long)),
            _ => {}
        }
        check_key_id(&self.key_id)?;
        if let Some(name) = self.annotations.keys().find(|name| !is_qualified(name)) {
            return Err(EnvelopeError::Annotation(name.clone()));
        }
        let bytes: usize = self.annotations.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > ANNOTATIONS_BYTES_MAX {
            return Err(EnvelopeError::LongAnnotations(bytes));
        }
        Ok(())
    }

    pub(crate) fn seed_id(&self) -> SeedId {
        SeedId {
            source_type: self.encrypted_dek_source_type,
            source: self.encrypted_dek_source.clone(),
            key_id: self.key_id.clone(),
            annotations: self.annotations.clone(),
        }
    }
}

/// A plugin's key has a name that is not too long. Source: `ValidateKeyID`.
pub(crate) fn check_key_id(key_id: &str) -> Result<(), EnvelopeError> {
    match key_id.len() {
        0 => Err(EnvelopeError::NoKeyId),
        long if long > KEY_ID_BYTES_MAX => Err(EnvelopeError::LongKeyId(long)),
        _ => Ok(()),
    }
}

/// A domain of two labels or more. Source: `validation.IsFullyQualifiedDomainName`.
fn is_qualified(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_label = |label: &str| {
        let of_label = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && label.chars().all(of_label)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.contains('.') && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> EncryptedObject {
        EncryptedObject {
            encrypted_data: vec![1],
            key_id: "key".into(),
            encrypted_dek_source: vec![2],
            annotations: BTreeMap::from([("a.example.com".into(), vec![3])]),
            encrypted_dek_source_type: 1,
        }
    }

    fn check(change: impl FnOnce(&mut EncryptedObject), expect: &str) {
        let mut object = sound();
        change(&mut object);
        let opened = EncryptedObject::open(&object.encode_to_vec());
        assert_eq!(opened.err().map(|failure| failure.to_string()).unwrap_or_default(), expect);
    }

    #[test]
    fn an_envelope_keeps_upstreams_rules() {
        check(|_| {}, "");
        check(|object| object.encrypted_data.clear(), "encrypted data is empty");
        check(
            |object| object.encrypted_dek_source.clear(),
            "failed to validate encrypted DEK source: encrypted DEK source is empty",
        );
        check(
            |object| object.encrypted_dek_source = vec![0; 1025],
            "failed to validate encrypted DEK source: encrypted DEK source is 1025 bytes, which exceeds the max size of 1024",
        );
        check(|object| object.key_id.clear(), "failed to validate key id: keyID is empty");
        check(
            |object| object.key_id = "k".repeat(1025),
            "failed to validate key id: keyID is 1025 bytes, which exceeds the max size of 1024",
        );
        check(
            |object| object.annotations = BTreeMap::from([("nodots".into(), vec![])]),
            r#"failed to validate annotations: annotations: Invalid value: "nodots": should be a domain with at least two segments separated by dots"#,
        );
        check(
            |object| object.annotations = BTreeMap::from([("a.b".into(), vec![0; 32 * 1024])]),
            "failed to validate annotations: total size of annotations is 32771, which exceeds the max size of 32768",
        );
        check(|object| object.encrypted_dek_source_type = 2, "unknown encryptedDEKSourceType: 2");
    }

    /// Source: `TestValidateAnnotations` of upstream's `kmsv2`, and `IsFullyQualifiedDomainName`.
    #[test]
    fn names_of_annotations_are_domains() {
        let (long, longer) = ("a".repeat(63), "a".repeat(64));
        let wide = vec!["a".repeat(61); 4].join(".");
        for (name, expect) in [
            ("foo.com", true),
            ("foo.com.", true),
            ("azure.kms.key-name.1", true),
            (&format!("{long}.com"), true),
            (&format!("{longer}.com"), false),
            (&format!("{wide}.abcde"), true),
            (&format!("{wide}.abcdef"), false),
            ("", false),
            (".", false),
            ("com", false),
            ("com.", false),
            ("foo.com..", false),
            (".foo.com", false),
            ("foo..com", false),
            ("Foo.com", false),
            ("foo.com/key", false),
            ("foo_bar.com", false),
            ("-foo.com", false),
            ("foo-.com", false),
            ("foo.\u{e9}", false),
            ("foo .com", false),
        ] {
            assert_eq!(is_qualified(name), expect, "{name}");
        }
    }

    #[test]
    fn bounds_are_the_last_that_fits() {
        check(|object| object.encrypted_dek_source = vec![0; 1024], "");
        check(|object| object.key_id = "k".repeat(1024), "");
        check(|object| object.annotations.clear(), "");
        check(|object| object.annotations = BTreeMap::from([("a.b".into(), vec![0; 32 * 1024 - 3])]), "");
        check(|object| object.encrypted_dek_source_type = -1, "unknown encryptedDEKSourceType: -1");
        // The first thing that is wrong is told of.
        check(
            |object| {
                object.encrypted_data.clear();
                object.key_id.clear();
            },
            "encrypted data is empty",
        );
    }

    #[test]
    fn what_is_no_envelope_is_refused() {
        let sound = sound().encode_to_vec();
        for (name, bytes) in [
            ("nothing", &b""[..]),
            ("a field without its value", b"\x0a"),
            ("a length beyond the end", b"\x0a\xff\x01x"),
            ("a length beyond everything", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
            ("a number without an end", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
            ("field zero", b"\x00\x00"),
            ("a name that is no text", b"\x0a\x01x\x12\x02\xff\xfe\x1a\x01x"),
            ("another type of field", b"\x08\x01"),
            ("JSON", br#"{"kind": "Secret"}"#),
        ] {
            assert!(EncryptedObject::open(bytes).is_err(), "{name}");
        }
        // Fields of later versions are passed over.
        let later = [&sound[..], b"\x7a\x01x"].concat();
        assert!(EncryptedObject::open(&later).is_ok());
    }
}
