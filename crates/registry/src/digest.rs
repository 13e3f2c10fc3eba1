//! Content digests: `sha256:`, `sha384:` or `sha512:` and hexadecimal digits.
//!
//! Source: OCI image specification, "descriptor", section Digests; the algorithms of `opencontainers/go-digest`.

use std::fmt;
use std::str::FromStr;

use sha2::Digest as _;

/// A digest of a registered algorithm.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest {
    algorithm: Algorithm,
    hex: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Algorithm {
    Sha256,
    Sha384,
    Sha512,
}

/// The text is no digest of a supported algorithm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unsupported digest {0:?}")]
pub struct DigestError(pub String);

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let wrong = || DigestError(text.chars().take(160).collect());
        let (algorithm, hex) = text.split_once(':').ok_or_else(wrong)?;
        let (algorithm, len) = match algorithm {
            "sha256" => (Algorithm::Sha256, 64),
            "sha384" => (Algorithm::Sha384, 96),
            "sha512" => (Algorithm::Sha512, 128),
            _ => return Err(wrong()),
        };
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if hex.len() != len || !hex.bytes().all(is_digit) {
            return Err(wrong());
        }
        Ok(Self { algorithm, hex: hex.to_owned() })
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let algorithm = match self.algorithm {
            Algorithm::Sha256 => "sha256",
            Algorithm::Sha384 => "sha384",
            Algorithm::Sha512 => "sha512",
        };
        write!(f, "{algorithm}:{}", self.hex)
    }
}

impl<'de> serde::Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Digest {
    /// The SHA-256 of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self { algorithm: Algorithm::Sha256, hex: hex(&sha2::Sha256::digest(bytes)) }
    }

    /// The digits alone.
    pub fn hex(&self) -> &str {
        &self.hex
    }

    /// The path of a blob of this digest in an OCI layout.
    pub fn layout_path(&self) -> String {
        format!("blobs/{}", self.to_string().replace(':', "/"))
    }

    /// `true` if `bytes` are what the digest is of.
    pub fn is_of(&self, bytes: &[u8]) -> bool {
        let mut hasher = self.hasher();
        hasher.update(bytes);
        hasher.finish() == *self
    }

    /// Something that takes bytes and gives a digest of the same algorithm.
    pub fn hasher(&self) -> Hasher {
        match self.algorithm {
            Algorithm::Sha256 => Hasher::Sha256(sha2::Sha256::new()),
            Algorithm::Sha384 => Hasher::Sha384(sha2::Sha384::new()),
            Algorithm::Sha512 => Hasher::Sha512(sha2::Sha512::new()),
        }
    }
}

/// A hasher of bytes that come in parts.
pub enum Hasher {
    /// For `sha256:`.
    Sha256(sha2::Sha256),
    /// For `sha384:`.
    Sha384(sha2::Sha384),
    /// For `sha512:`.
    Sha512(sha2::Sha512),
}

impl Hasher {
    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hash) => hash.update(bytes),
            Self::Sha384(hash) => hash.update(bytes),
            Self::Sha512(hash) => hash.update(bytes),
        }
    }

    /// The digest of all that was taken.
    pub fn finish(self) -> Digest {
        match self {
            Self::Sha256(hash) => Digest { algorithm: Algorithm::Sha256, hex: hex(&hash.finalize()) },
            Self::Sha384(hash) => Digest { algorithm: Algorithm::Sha384, hex: hex(&hash.finalize()) },
            Self::Sha512(hash) => Digest { algorithm: Algorithm::Sha512, hex: hex(&hash.finalize()) },
        }
    }
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_checked_by_form_and_by_content() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let digest: Digest = empty.parse().unwrap();
        assert!(digest.is_of(b"") && !digest.is_of(b"x"));
        assert_eq!((digest.to_string().as_str(), &digest), (empty, &Digest::of(b"")));
        let long = format!("sha512:{}", "0".repeat(128));
        assert!(!long.parse::<Digest>().unwrap().is_of(b""));
        for wrong in ["", "sha256", "sha256:", "sha256:abc", "md5:d41d8cd98f00b204e9800998ecf8427e"] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
        assert!(empty.to_uppercase().parse::<Digest>().is_err());
        assert!(format!("sha256:../{}", "a".repeat(61)).parse::<Digest>().is_err());
    }

    /// Source: the table of `github.com/opencontainers/go-digest`, `digest_test.go`.
    #[test]
    fn what_is_no_digest_is_refused() {
        let sha256 = "e58fcf7418d4390dec8e8fb69d88c06ec07039d651fedd3aa72af9972e7d046b";
        let sha384 = "d3fc7881460b7e22e3d172954463dddd7866d17597e7248453c48b3e9d26d9596bf9c4a9cf8072c9d5bad76e19af801d";
        for (algorithm, digits) in [("sha256", sha256), ("sha384", sha384)] {
            let text = format!("{algorithm}:{digits}");
            let digest: Digest = text.parse().unwrap();
            assert_eq!((digest.hex(), digest.to_string()), (digits, text));
        }
        for (name, wrong) in [
            ("no algorithm", format!(":{sha256}")),
            ("no digits", "sha256:".to_owned()),
            ("another algorithm", format!("sha1:{}", &sha256[..40])),
            ("not all digits of a long one", format!("sha384:{}", &sha384[..95])),
            ("an unknown algorithm", format!("foo:{sha256}")),
            ("an algorithm with parts", format!("sha256+b64:{sha256}")),
            ("letters that are no digits", format!("sha256:{}g", &sha256[..63])),
            ("capitals", format!("sha256:{}", sha256.to_uppercase())),
            ("capitals of the algorithm", format!("SHA256:{sha256}")),
            ("a digit less", format!("sha256:{}", &sha256[..63])),
            ("a digit more", format!("sha256:{sha256}0")),
            ("the digits of another algorithm", format!("sha512:{sha256}")),
            ("a space before", format!(" sha256:{sha256}")),
            ("a line behind", format!("sha256:{sha256}\n")),
            ("two of them", format!("sha256:{sha256}:{sha256}")),
            ("other digits", format!("sha256:{}", "\u{ff10}".repeat(64))),
        ] {
            assert!(wrong.parse::<Digest>().is_err(), "{name}");
        }
    }

    /// Source: FIPS 180-4's example of one block, "abc".
    #[test]
    fn content_is_hashed_by_the_algorithm_that_is_named() {
        for text in [
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            "sha384:cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed\
             8086072ba1e7cc2358baeca134c825a7",
            "sha512:ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
             2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        ] {
            let digest: Digest = text.parse().unwrap();
            assert!(digest.is_of(b"abc") && !digest.is_of(b"abd"), "{text}");
            assert_eq!(digest.layout_path(), format!("blobs/{}", text.replace(':', "/")));
        }
    }

    #[test]
    fn bytes_in_parts_have_the_digest_of_the_whole() {
        let whole = b"layers, in parts";
        for at in 0..whole.len() {
            let mut hasher = Digest::of(whole).hasher();
            hasher.update(&whole[..at]);
            hasher.update(&whole[at..]);
            assert_eq!(hasher.finish(), Digest::of(whole), "{at}");
            assert!(!Digest::of(whole).is_of(&whole[..at]));
        }
    }
}
