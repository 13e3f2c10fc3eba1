//! Values that cannot be read or written, with the reason; the texts are upstream's where it has some.

use std::fmt;

use tonic::Status;

/// The reason why stored bytes could not be opened.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenError {
    /// Not even nonce and tag.
    #[error("the stored data was shorter than the required size")]
    TooShort,
    /// AES-CBC: no whole blocks.
    #[error("the stored data is not a multiple of the block size")]
    BlockSize,
    /// AES-CBC: the last byte is no length of a padding.
    #[error("invalid PKCS7 data (empty or not padded)")]
    NotPadded,
    /// AES-CBC: the padding is not what its length says.
    #[error("invalid padding on input")]
    Padding,
    /// Another key, another place, or changed bytes.
    #[error("cipher: message authentication failed")]
    Authentication,
    /// The value is encrypted, and the configuration has no provider for its kind.
    #[error("identity transformer tried to read encrypted data")]
    Encrypted,
    /// No provider, or no key of a provider, is meant by the value's beginning.
    #[error("{none}{}", written_with(.found))]
    NoMatch {
        /// Upstream's words.
        none: &'static str,
        /// How the value begins, if that says who wrote it.
        found: Option<String>,
    },
    /// The envelope of a KMS provider is broken.
    #[error("{0}")]
    Envelope(EnvelopeError),
    /// The KMS plugin did not decrypt the seed.
    #[error("failed to decrypt DEK, error: {0}")]
    Plugin(Rpc),
    /// The KMS provider has never been well.
    #[error("got unexpected nil transformer")]
    NotReady,
    /// Several providers or keys were meant, and none fits.
    #[error("{}", bracketed(.0))]
    Several(Vec<Self>),
}

/// The reason why a value could not be made ready for the store.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SealError {
    /// The operating system gave no randomness.
    #[error("unable to read sufficient random bytes")]
    NoRandomness,
    /// The value is larger than the cipher takes.
    #[error("the value is too large to be encrypted")]
    TooLarge,
    /// The KMS provider has never been well.
    #[error("got unexpected nil transformer")]
    NotReady,
    /// The KMS provider has not been well for too long.
    #[error("encryptedDEKSource with keyID hash {key_id_hash:?} expired at {at} (current time is {now})")]
    Expired {
        /// Which key of the plugin's.
        key_id_hash: String,
        /// When it ended.
        at: String,
        /// Now.
        now: String,
    },
}

/// The defect of an envelope. Source: `kmsv2.ValidateEncryptedObject`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// No such message.
    #[error("proto: cannot parse invalid wire-format data")]
    Proto,
    /// A later version's.
    #[error("unknown encryptedDEKSourceType: {0}")]
    SourceType(i32),
    /// There is nothing in it.
    #[error("encrypted data is empty")]
    Empty,
    /// There is no seed.
    #[error("failed to validate encrypted DEK source: encrypted DEK source is empty")]
    NoSource,
    /// The seed is too long.
    #[error(
        "failed to validate encrypted DEK source: encrypted DEK source is {0} bytes, which exceeds the max size of \
         1024"
    )]
    LongSource(usize),
    /// No key is named.
    #[error("failed to validate key id: keyID is empty")]
    NoKeyId,
    /// The key's name is too long.
    #[error("failed to validate key id: keyID is {0} bytes, which exceeds the max size of 1024")]
    LongKeyId(usize),
    /// Names of annotations must be domains.
    #[error(
        "failed to validate annotations: annotations: Invalid value: {0:?}: should be a domain with at least two \
         segments separated by dots"
    )]
    Annotation(String),
    /// Annotations are too long.
    #[error(
        "failed to validate annotations: total size of annotations is {0}, which exceeds the max size of 32768"
    )]
    LongAnnotations(usize),
    /// A decrypted text that is no seed or key.
    #[error("invalid seed length {0} used for key generation")]
    Seed(usize),
}

impl From<EnvelopeError> for OpenError {
    fn from(error: EnvelopeError) -> Self {
        Self::Envelope(error)
    }
}

/// A failed call of a KMS plugin, printed as gRPC libraries do.
#[derive(Clone, Debug)]
pub struct Rpc {
    pub(crate) code: tonic::Code,
    message: String,
}

impl From<&Status> for Rpc {
    fn from(status: &Status) -> Self {
        Self { code: status.code(), message: status.message().to_owned() }
    }
}

impl fmt::Display for Rpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rpc error: code = {} desc = {}", crate::metrics::code_name(self.code), self.message)
    }
}

impl OpenError {
    /// The `status` that failures are counted under. Source: `value.getErrorCode`.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Plugin(rpc) => crate::metrics::code_name(rpc.code),
            _ => "unknown-non-grpc",
        }
    }
}

fn written_with(found: &Option<String>) -> String {
    found.as_ref().map(|found| format!(": the value begins with {found:?}")).unwrap_or_default()
}

fn bracketed(errors: &[OpenError]) -> String {
    let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
    format!("[{}]", texts.join(", "))
}
