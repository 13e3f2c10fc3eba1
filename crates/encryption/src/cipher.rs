//! The cipher of one key over one value. The formats are those of upstream's `storage/value/encrypt`.
//!
//! A nonce is always random, from the operating system, and stands before what it was used for.

use std::borrow::Cow;

use aes::cipher::consts::U12;
use aes::cipher::{BlockDecryptMut, BlockEncryptMut, KeyInit, KeyIvInit};
use aes::{Aes128, Aes192, Aes256};
use aes_gcm::AesGcm;
use aes_gcm::aead::AeadInPlace;
use crypto_secretbox::XSalsa20Poly1305;
use ring::hkdf::{HKDF_SHA256, KeyType, Prk};
use ring::rand::{SecureRandom, SystemRandom};

use crate::PREFIX;
use crate::errors::{OpenError, SealError};

const BLOCK_BYTES: usize = 16;
const GCM_NONCE_BYTES: usize = 12;
const SECRETBOX_NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;
/// What stands before the nonce in values under a seed, and how long a seed and the keys from it are.
pub(crate) const SEED_BYTES: usize = 32;

/// Randomness from the operating system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], SealError> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| SealError::NoRandomness)?;
    Ok(bytes)
}

/// A key that values are encrypted with, or none.
pub(crate) enum Cipher {
    /// Values stay as they are.
    Identity,
    Cbc(Cbc),
    Gcm(Box<Gcm>),
    Secretbox(Box<XSalsa20Poly1305>),
}

impl Cipher {
    /// A key for NaCl's secretbox.
    pub(crate) fn secretbox(key: &[u8; 32]) -> Self {
        Self::Secretbox(Box::new(XSalsa20Poly1305::new(key.into())))
    }

    /// Appends what is to be stored. `place` is where: it can be opened nowhere else, if the cipher knows how.
    pub(crate) fn seal(&self, plain: &[u8], place: &[u8], out: &mut Vec<u8>) -> Result<(), SealError> {
        match self {
            Self::Identity => out.extend_from_slice(plain),
            Self::Cbc(key) => key.seal(plain, out)?,
            Self::Gcm(key) => key.seal(plain, place, out)?,
            Self::Secretbox(key) => {
                let nonce = random::<SECRETBOX_NONCE_BYTES>()?;
                out.extend_from_slice(&nonce);
                let tag_at = out.len();
                out.resize(tag_at + TAG_BYTES, 0);
                let start = out.len();
                out.extend_from_slice(plain);
                let sealed = out.get_mut(start..).unwrap_or_default();
                let tag = key
                    .encrypt_in_place_detached(&nonce.into(), b"", sealed)
                    .map_err(|_| SealError::TooLarge)?;
                if let Some(room) = out.get_mut(tag_at..start) {
                    room.copy_from_slice(&tag);
                }
            }
        }
        Ok(())
    }

    /// Takes back what [`Cipher::seal`] did.
    pub(crate) fn open<'a>(&self, stored: &'a [u8], place: &[u8]) -> Result<Cow<'a, [u8]>, OpenError> {
        match self {
            Self::Identity if stored.starts_with(PREFIX) => Err(OpenError::Encrypted),
            Self::Identity => Ok(Cow::Borrowed(stored)),
            Self::Cbc(key) => key.open(stored).map(Cow::Owned),
            Self::Gcm(key) => key.open(stored, place).map(Cow::Owned),
            Self::Secretbox(key) => {
                let (nonce, rest) =
                    stored.split_first_chunk::<SECRETBOX_NONCE_BYTES>().ok_or(OpenError::TooShort)?;
                let (tag, sealed) = rest.split_first_chunk::<TAG_BYTES>().ok_or(OpenError::TooShort)?;
                let mut plain = sealed.to_vec();
                key.decrypt_in_place_detached(nonce.into(), b"", &mut plain, tag.into())
                    .map_err(|_| OpenError::Authentication)?;
                Ok(Cow::Owned(plain))
            }
        }
    }
}

/// AES in CBC mode with PKCS#7 padding: the initial vector, then the blocks. It authenticates nothing.
pub(crate) enum Cbc {
    Aes128([u8; 16]),
    Aes192([u8; 24]),
    Aes256([u8; 32]),
}

impl Cbc {
    /// `None` unless the key has 16, 24 or 32 bytes.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        let of = |key: &[u8]| match key.len() {
            16 => key.try_into().ok().map(Self::Aes128),
            24 => key.try_into().ok().map(Self::Aes192),
            _ => key.try_into().ok().map(Self::Aes256),
        };
        of(key)
    }

    fn seal(&self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), SealError> {
        use cbc::Encryptor;
        use cbc::cipher::block_padding::Pkcs7;
        let iv = random::<BLOCK_BYTES>()?;
        out.extend_from_slice(&iv);
        let start = out.len();
        out.extend_from_slice(plain);
        out.resize(start + (plain.len() / BLOCK_BYTES + 1) * BLOCK_BYTES, 0);
        let room = out.get_mut(start..).unwrap_or_default();
        let (iv, length) = (&iv.into(), plain.len());
        let sealed = match self {
            Self::Aes128(key) => Encryptor::<Aes128>::new(key.into(), iv)
                .encrypt_padded_mut::<Pkcs7>(room, length)
                .map(<[u8]>::len),
            Self::Aes192(key) => Encryptor::<Aes192>::new(key.into(), iv)
                .encrypt_padded_mut::<Pkcs7>(room, length)
                .map(<[u8]>::len),
            Self::Aes256(key) => Encryptor::<Aes256>::new(key.into(), iv)
                .encrypt_padded_mut::<Pkcs7>(room, length)
                .map(<[u8]>::len),
        };
        sealed.map(drop).map_err(|_| SealError::TooLarge)
    }

    fn open(&self, stored: &[u8]) -> Result<Vec<u8>, OpenError> {
        use cbc::Decryptor;
        use cbc::cipher::block_padding::NoPadding;
        let (iv, sealed) = stored.split_first_chunk::<BLOCK_BYTES>().ok_or(OpenError::TooShort)?;
        if sealed.len() % BLOCK_BYTES != 0 {
            return Err(OpenError::BlockSize);
        }
        let mut plain = sealed.to_vec();
        let iv = iv.into();
        let opened = match self {
            Self::Aes128(key) => Decryptor::<Aes128>::new(key.into(), iv)
                .decrypt_padded_mut::<NoPadding>(&mut plain)
                .map(<[u8]>::len),
            Self::Aes192(key) => Decryptor::<Aes192>::new(key.into(), iv)
                .decrypt_padded_mut::<NoPadding>(&mut plain)
                .map(<[u8]>::len),
            Self::Aes256(key) => Decryptor::<Aes256>::new(key.into(), iv)
                .decrypt_padded_mut::<NoPadding>(&mut plain)
                .map(<[u8]>::len),
        };
        opened.map_err(|_| OpenError::BlockSize)?;
        let length = unpadded(&plain)?;
        plain.truncate(length);
        Ok(plain)
    }
}

/// How long what stands before the padding is.
fn unpadded(padded: &[u8]) -> Result<usize, OpenError> {
    let last = *padded.last().ok_or(OpenError::NotPadded)?;
    let length =
        padded.len().checked_sub(usize::from(last)).filter(|_| last != 0).ok_or(OpenError::NotPadded)?;
    let padding = padded.get(length..).unwrap_or_default();
    if padding.iter().any(|byte| *byte != last) { Err(OpenError::Padding) } else { Ok(length) }
}

/// AES in Galois/Counter mode with a nonce of 12 bytes: the nonce, what is sealed, the tag.
pub(crate) enum Gcm {
    Aes128(AesGcm<Aes128, U12>),
    Aes192(AesGcm<Aes192, U12>),
    Aes256(AesGcm<Aes256, U12>),
}

impl Gcm {
    /// `None` unless the key has 16, 24 or 32 bytes.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        match key.len() {
            16 => AesGcm::new_from_slice(key).ok().map(Self::Aes128),
            24 => AesGcm::new_from_slice(key).ok().map(Self::Aes192),
            _ => AesGcm::new_from_slice(key).ok().map(Self::Aes256),
        }
    }

    fn seal(&self, plain: &[u8], place: &[u8], out: &mut Vec<u8>) -> Result<(), SealError> {
        let nonce = random::<GCM_NONCE_BYTES>()?;
        out.extend_from_slice(&nonce);
        let start = out.len();
        out.extend_from_slice(plain);
        let sealed = out.get_mut(start..).unwrap_or_default();
        let nonce = &nonce.into();
        let tag = match self {
            Self::Aes128(key) => key.encrypt_in_place_detached(nonce, place, sealed),
            Self::Aes192(key) => key.encrypt_in_place_detached(nonce, place, sealed),
            Self::Aes256(key) => key.encrypt_in_place_detached(nonce, place, sealed),
        };
        out.extend_from_slice(&tag.map_err(|_| SealError::TooLarge)?);
        Ok(())
    }

    pub(crate) fn open(&self, stored: &[u8], place: &[u8]) -> Result<Vec<u8>, OpenError> {
        let (nonce, rest) = stored.split_first_chunk::<GCM_NONCE_BYTES>().ok_or(OpenError::TooShort)?;
        let (sealed, tag) = rest.split_last_chunk::<TAG_BYTES>().ok_or(OpenError::Authentication)?;
        let mut plain = sealed.to_vec();
        let (nonce, tag) = (nonce.into(), tag.into());
        let opened = match self {
            Self::Aes128(key) => key.decrypt_in_place_detached(nonce, place, &mut plain, tag),
            Self::Aes192(key) => key.decrypt_in_place_detached(nonce, place, &mut plain, tag),
            Self::Aes256(key) => key.decrypt_in_place_detached(nonce, place, &mut plain, tag),
        };
        opened.map_err(|_| OpenError::Authentication)?;
        Ok(plain)
    }
}

/// AES-GCM with a key of its own for each value, derived from a seed and 32 random bytes that stand before the nonce.
/// It wears out no key. Source: `aes.NewHKDFExtendedNonceGCMTransformer`.
pub(crate) struct Seed(Prk);

struct DerivedKey;

impl KeyType for DerivedKey {
    fn len(&self) -> usize {
        SEED_BYTES
    }
}

impl Seed {
    /// `None` if it is shorter than 32 bytes.
    pub(crate) fn new(seed: &[u8]) -> Option<Self> {
        (seed.len() >= SEED_BYTES).then(|| Self(Prk::new_less_safe(HKDF_SHA256, seed)))
    }

    /// HKDF-Expand; `None` never happens for one block of output.
    fn key(&self, info: &[u8]) -> Option<Gcm> {
        let mut key = [0; SEED_BYTES];
        self.0.expand(&[info], DerivedKey).and_then(|derived| derived.fill(&mut key)).ok()?;
        Gcm::new(&key)
    }

    pub(crate) fn seal(&self, plain: &[u8], place: &[u8], out: &mut Vec<u8>) -> Result<(), SealError> {
        let info = random::<SEED_BYTES>()?;
        let key = self.key(&info).ok_or(SealError::TooLarge)?;
        out.extend_from_slice(&info);
        key.seal(plain, place, out)
    }

    pub(crate) fn open(&self, stored: &[u8], place: &[u8]) -> Result<Vec<u8>, OpenError> {
        let (info, rest) = stored.split_first_chunk::<SEED_BYTES>().ok_or(OpenError::TooShort)?;
        self.key(info).ok_or(OpenError::TooShort)?.open(rest, place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [7; 32];

    fn ciphers() -> Vec<(&'static str, Cipher)> {
        vec![
            ("cbc", Cipher::Cbc(Cbc::new(&KEY).unwrap())),
            ("gcm", Cipher::Gcm(Box::new(Gcm::new(&KEY).unwrap()))),
            ("secretbox", Cipher::secretbox(&KEY)),
        ]
    }

    /// Source: PKCS#7 (RFC 5652, section 6.3); the end of `cbc.TransformFromStorage` of upstream.
    #[test]
    fn padding_is_as_long_as_it_says_and_says_so_in_every_byte() {
        let padded = |plain: &[u8], padding: &[u8]| unpadded(&[plain, padding].concat());
        let told = |plain: &[u8], padding: &[u8]| padded(plain, padding).unwrap_err().to_string();
        for length in 1..=16_u8 {
            let plain = vec![b'x'; 16 - usize::from(length)];
            assert_eq!(padded(&plain, &vec![length; usize::from(length)]).unwrap(), plain.len(), "{length}");
        }
        // Longer than a block it is still one, as upstream takes it.
        assert_eq!(padded(b"", &[32; 32]).unwrap(), 0);
        let (none, broken) = ("invalid PKCS7 data (empty or not padded)", "invalid padding on input");
        assert_eq!(told(b"", b""), none);
        assert_eq!(told(b"fifteen letters", &[0]), none);
        assert_eq!(told(b"fifteen letters", &[17]), none);
        assert_eq!(told(b"fifteen letters", &[255]), none);
        assert_eq!(told(b"fifteen letters", &[2]), broken);
        assert_eq!(told(b"twelve bytes", &[4, 4, 3, 4]), broken);
        assert_eq!(told(b"twelve bytes", &[3, 4, 4, 4]), broken);
    }

    #[test]
    fn what_is_too_short_is_told_from_what_is_forged() {
        let (short, forged) =
            ("the stored data was shorter than the required size", "cipher: message authentication failed");
        let blocks = "the stored data is not a multiple of the block size";
        for (name, cipher) in ciphers() {
            let told = |length: usize| cipher.open(&vec![0; length], b"place").unwrap_err().to_string();
            let rows: &[(usize, &str)] = match name {
                "cbc" => &[(0, short), (15, short), (17, blocks), (31, blocks), (33, blocks)],
                "gcm" => &[(0, short), (11, short), (12, forged), (27, forged), (28, forged), (100, forged)],
                _ => &[(0, short), (23, short), (24, short), (39, short), (40, forged), (100, forged)],
            };
            for (length, expect) in rows {
                assert_eq!(told(*length), *expect, "{name}, {length} bytes");
            }
        }
        let cbc = Cipher::Cbc(Cbc::new(&KEY).unwrap());
        let nothing = cbc.open(&[0; 16], b"").unwrap_err().to_string();
        assert_eq!(nothing, "invalid PKCS7 data (empty or not padded)", "a vector and no block");
    }

    /// Source: `TestGCMDataStable`, `TestCBCDataStable` and the key rotations of upstream's `aes_test.go` and
    /// `secretbox_test.go`.
    #[test]
    fn another_key_or_another_place_opens_nothing() {
        for (name, cipher) in ciphers() {
            for plain in [&b""[..], b"a", b"exactly 16 bytes", &[0; 1000]] {
                let mut sealed = b"before".to_vec();
                cipher.seal(plain, b"place", &mut sealed).unwrap();
                let sealed = sealed.strip_prefix(b"before").unwrap();
                assert_eq!(&*cipher.open(sealed, b"place").unwrap(), plain, "{name}");
                assert_eq!(cipher.open(sealed, b"elsewhere").is_err(), name == "gcm", "{name}");
                let other = [8; 32];
                let other = match name {
                    "cbc" => Cipher::Cbc(Cbc::new(&other).unwrap()),
                    "gcm" => Cipher::Gcm(Box::new(Gcm::new(&other).unwrap())),
                    _ => Cipher::secretbox(&other),
                };
                // AES-CBC authenticates nothing: what comes out is noise, if it happens to end as a padding does.
                let opened = other.open(sealed, b"place");
                assert!(opened.is_err() || (name == "cbc" && opened.is_ok_and(|it| &*it != plain)), "{name}");
            }
        }
    }

    #[test]
    fn keys_have_one_of_three_lengths() {
        for length in 0..=40 {
            let key = vec![1; length];
            let is_one = [16, 24, 32].contains(&length);
            assert_eq!((Cbc::new(&key).is_some(), Gcm::new(&key).is_some()), (is_one, is_one), "{length}");
            assert_eq!(Seed::new(&key).is_some(), length >= SEED_BYTES, "a seed of {length}");
        }
    }

    #[test]
    fn a_seed_makes_another_key_for_each_value() {
        let seed = Seed::new(&KEY).unwrap();
        let seal = |plain: &[u8]| {
            let mut out = Vec::new();
            seed.seal(plain, b"place", &mut out).unwrap();
            out
        };
        let (one, two) = (seal(b"value"), seal(b"value"));
        assert_ne!(one[..SEED_BYTES], two[..SEED_BYTES]);
        assert_eq!(seed.open(&one, b"place").unwrap(), b"value");
        // Neither the beginning of another value nor another place will do.
        let mixed = [&one[..SEED_BYTES], &two[SEED_BYTES..]].concat();
        assert!(seed.open(&mixed, b"place").is_err() && seed.open(&one, b"elsewhere").is_err());
        for cut in 0..one.len() {
            assert!(seed.open(&one[..cut], b"place").is_err(), "cut at {cut}");
        }
        assert!(Seed::new(&[8; 32]).unwrap().open(&one, b"place").is_err());
    }

    #[test]
    fn values_that_are_stored_as_they_are_never_look_encrypted() {
        for (stored, is_plain) in [
            (&b"plain"[..], true),
            (b"", true),
            (b"k8s:en", true),
            (b"k8s:enc", true),
            (b"k8s:enc:", false),
            (b"k8s:enc:x", false),
        ] {
            let opened = Cipher::Identity.open(stored, b"");
            assert_eq!(opened.is_ok(), is_plain, "{}", stored.escape_ascii());
        }
    }
}
