//! The files that servers of one cluster share before they can ask each other, sealed under the cluster's token.
//!
//! The key is PBKDF2-HMAC-SHA256 of the token with a salt of its own, the seal AES-256-GCM. Whoever has the store but
//! not the token learns nothing from it, and cannot change it without being found out. Source: k3s' bootstrap data.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::pbkdf2;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

/// What this version writes.
const VERSION: u32 = 1;
/// Rounds of PBKDF2. Tokens that are generated need none; those that people think of should be long.
const ROUNDS: NonZeroU32 = NonZeroU32::MIN.saturating_add(99_999);
/// A bundle that asks for more is not read: it would only cost time.
const ROUNDS_MAX: u32 = 10_000_000;
const SALT_BYTES: usize = 16;
const KEY_BYTES: usize = 32;
/// What a seal is for; another use of the same token has another text.
const PURPOSE: &[u8] = b"knarr bootstrap data";

/// Names to contents of files.
pub type Files = BTreeMap<String, Vec<u8>>;

/// A bundle that cannot be read or made, with the reason.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BundleError {
    /// The token does not fit, or somebody has changed the data.
    #[error("the token is not the one that the bootstrap data was sealed with")]
    WrongToken,
    /// No bundle, or one of a later version.
    #[error("the bootstrap data cannot be read: {0}")]
    Unreadable(String),
    /// The operating system gives no randomness.
    #[error("no randomness can be had")]
    NoRandomness,
}

/// A bundle as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct Sealed {
    version: u32,
    rounds: u32,
    salt: String,
    nonce: String,
    data: String,
}

/// Seals files under a token.
///
/// # Errors
/// [`BundleError::NoRandomness`].
pub fn seal(files: &Files, token: &str) -> Result<Vec<u8>, BundleError> {
    let (salt, nonce): ([u8; SALT_BYTES], [u8; NONCE_LEN]) = (random()?, random()?);
    let texts: BTreeMap<&str, String> =
        files.iter().map(|(name, content)| (name.as_str(), STANDARD.encode(content))).collect();
    let mut data = serde_json::to_vec(&texts).map_err(unreadable)?;
    key(token, &salt, ROUNDS)
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(PURPOSE), &mut data)
        .map_err(|_| BundleError::Unreadable("it is too large".to_owned()))?;
    let sealed = Sealed {
        version: VERSION,
        rounds: ROUNDS.get(),
        salt: STANDARD.encode(salt),
        nonce: STANDARD.encode(nonce),
        data: STANDARD.encode(data),
    };
    serde_json::to_vec(&sealed).map_err(unreadable)
}

/// Opens what [`seal`] made.
///
/// # Errors
/// As [`BundleError`].
pub fn open(sealed: &[u8], token: &str) -> Result<Files, BundleError> {
    let sealed: Sealed = serde_json::from_slice(sealed).map_err(unreadable)?;
    let rounds = NonZeroU32::new(sealed.rounds).filter(|rounds| rounds.get() <= ROUNDS_MAX);
    let (VERSION, Some(rounds)) = (sealed.version, rounds) else {
        return Err(BundleError::Unreadable(format!("it is of version {}", sealed.version)));
    };
    let salt = STANDARD.decode(sealed.salt).map_err(unreadable)?;
    let nonce = STANDARD.decode(sealed.nonce).map_err(unreadable)?;
    let nonce = Nonce::try_assume_unique_for_key(&nonce)
        .map_err(|_| BundleError::Unreadable("its nonce is no nonce".to_owned()))?;
    let mut data = STANDARD.decode(sealed.data).map_err(unreadable)?;
    let opened = key(token, &salt, rounds)
        .open_in_place(nonce, Aad::from(PURPOSE), &mut data)
        .map_err(|_| BundleError::WrongToken)?;
    let texts: BTreeMap<String, String> = serde_json::from_slice(opened).map_err(unreadable)?;
    texts.into_iter().map(|(name, text)| Ok((name, STANDARD.decode(text).map_err(unreadable)?))).collect()
}

/// A token that nobody can guess: 128 bits in hexadecimal.
///
/// # Errors
/// [`BundleError::NoRandomness`].
pub fn new_token() -> Result<String, BundleError> {
    let bytes: [u8; 16] = random()?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A SHA-256 in hexadecimal.
pub fn sha256(content: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, content);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn key(token: &str, salt: &[u8], rounds: NonZeroU32) -> LessSafeKey {
    let mut bytes = [0; KEY_BYTES];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, salt, token.as_bytes(), &mut bytes);
    #[expect(clippy::expect_used, reason = "the key has the length that the algorithm asks for")]
    let key = UnboundKey::new(&AES_256_GCM, &bytes).expect("a key of 32 bytes");
    LessSafeKey::new(key)
}

fn random<const N: usize>() -> Result<[u8; N], BundleError> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| BundleError::NoRandomness)?;
    Ok(bytes)
}

fn unreadable(error: impl std::fmt::Display) -> BundleError {
    BundleError::Unreadable(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Files {
        BTreeMap::from([
            ("ca.crt".to_owned(), b"certificate".to_vec()),
            ("key".to_owned(), vec![0, 159, 146]),
        ])
    }

    #[test]
    fn what_was_sealed_is_opened_by_the_same_token_only() {
        let sealed = seal(&files(), "secret").unwrap();
        assert_eq!(open(&sealed, "secret"), Ok(files()));
        assert_eq!(open(&sealed, "Secret"), Err(BundleError::WrongToken));
        assert_ne!(seal(&files(), "secret").unwrap(), sealed, "salt and nonce are never used again");
        let text = String::from_utf8(sealed).unwrap();
        assert!(!text.contains("certificate") && !text.contains(&STANDARD.encode("certificate")));
    }

    #[test]
    fn what_was_changed_is_found_out() {
        let sealed: Sealed = serde_json::from_slice(&seal(&files(), "secret").unwrap()).unwrap();
        let check = |change: fn(&mut Sealed), expected: &str| {
            let mut changed = Sealed {
                salt: sealed.salt.clone(),
                nonce: sealed.nonce.clone(),
                data: sealed.data.clone(),
                ..sealed
            };
            change(&mut changed);
            let error = open(&serde_json::to_vec(&changed).unwrap(), "secret").unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(|s| s.data = STANDARD.encode([7; 40]), "the token is not the one");
        check(|s| s.salt = STANDARD.encode([7; SALT_BYTES]), "the token is not the one");
        check(|s| s.nonce = STANDARD.encode([7; 3]), "its nonce is no nonce");
        check(|s| s.version = 2, "it is of version 2");
        check(|s| s.rounds = u32::MAX, "cannot be read");
        check(|s| s.data = "?".to_owned(), "cannot be read");
        assert!(matches!(open(b"nothing", "secret"), Err(BundleError::Unreadable(_))));
    }

    #[test]
    fn tokens_are_long_and_new() {
        let (one, other) = (new_token().unwrap(), new_token().unwrap());
        assert_eq!(one.len(), 32);
        assert_ne!(one, other);
    }
}
