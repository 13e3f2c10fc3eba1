//! Prefixes choose who opens a value; the first of a list seals. Source: upstream's `storage/value/transformer.go`.
//!
//! There are two levels of them: the providers of a kind (`k8s:enc:aescbc:v1:`), and the keys of a provider (`key1:`).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use crate::PREFIX;
use crate::cipher::Cipher;
use crate::errors::{OpenError, SealError};
use crate::kms::provider::{Blocked, Provider};
use crate::metrics::{Direction, LinkMetrics};

/// How much of an unknown prefix is told.
const FOUND_BYTES_MAX: usize = 256;

/// A value as it was before it was sealed.
#[derive(Debug)]
pub(crate) struct Opened<'a> {
    pub(crate) plain: Cow<'a, [u8]>,
    /// Whether it would be sealed in another way today.
    pub(crate) is_stale: bool,
}

/// What follows a prefix.
pub(crate) enum Target {
    Cipher(Cipher),
    Keys(Chain),
    Kms(Arc<Provider>),
}

/// A prefix and what follows it.
pub(crate) struct Link {
    prefix: Vec<u8>,
    target: Target,
    metrics: LinkMetrics,
}

impl Link {
    pub(crate) fn new(prefix: &str, target: Target, metrics: LinkMetrics) -> Self {
        Self { prefix: prefix.as_bytes().to_vec(), target, metrics }
    }

    fn open<'a>(&self, stored: &'a [u8], place: &[u8]) -> Result<Opened<'a>, Blocked> {
        match &self.target {
            Target::Cipher(cipher) => Ok(Opened { plain: cipher.open(stored, place)?, is_stale: false }),
            Target::Keys(keys) => keys.open(stored, place),
            Target::Kms(provider) => {
                let (plain, is_stale) = provider.open(stored, place)?;
                Ok(Opened { plain: Cow::Owned(plain), is_stale })
            }
        }
    }

    fn seal(&self, plain: &[u8], place: &[u8], out: &mut Vec<u8>) -> Result<(), SealError> {
        out.extend_from_slice(&self.prefix);
        match &self.target {
            Target::Cipher(cipher) => cipher.seal(plain, place, out),
            Target::Keys(keys) => keys.seal(plain, place, out),
            Target::Kms(provider) => provider.seal(plain, place, out),
        }
    }
}

/// Prefixes, in order.
pub(crate) struct Chain {
    links: Vec<Link>,
    /// What is said when none matches.
    none: &'static str,
    unknown: LinkMetrics,
}

impl Chain {
    pub(crate) fn new(links: Vec<Link>, none: &'static str, unknown: LinkMetrics) -> Self {
        Self { links, none, unknown }
    }

    /// Appends what is to be stored.
    pub(crate) fn seal(&self, plain: &[u8], place: &[u8], out: &mut Vec<u8>) -> Result<(), SealError> {
        let Some(link) = self.links.first() else {
            out.extend_from_slice(plain);
            return Ok(());
        };
        let started = Instant::now();
        let sealed = link.seal(plain, place, out);
        let code = if sealed.is_ok() { None } else { Some("unknown-non-grpc") };
        link.metrics.record(Direction::ToStorage, started, code);
        sealed
    }

    /// Opens what is stored at `place`.
    pub(crate) fn open<'a>(&self, stored: &'a [u8], place: &[u8]) -> Result<Opened<'a>, Blocked> {
        let started = Instant::now();
        let mut failures = Vec::new();
        for (at, link) in self.links.iter().enumerate() {
            let Some(rest) = stored.strip_prefix(link.prefix.as_slice()) else { continue };
            match link.open(rest, place) {
                Ok(opened) => {
                    link.metrics.record(Direction::FromStorage, started, None);
                    return Ok(Opened { is_stale: opened.is_stale || at != 0, ..opened });
                }
                Err(blocked @ Blocked::Seed(..)) => return Err(blocked),
                // The identity provider may stand before those that can open the value.
                Err(Blocked::Failed(_)) if link.prefix.is_empty() => {}
                // Keys of the same name may stand in several places: another one may fit.
                Err(Blocked::Failed(failure)) => {
                    link.metrics.record(Direction::FromStorage, started, Some(failure.code()));
                    failures.push(failure);
                }
            }
        }
        if failures.len() > 1 {
            return Err(OpenError::Several(failures).into());
        }
        let failure = failures.pop().unwrap_or_else(|| {
            let none = OpenError::NoMatch { none: self.none, found: beginning(stored) };
            self.unknown.record(Direction::FromStorage, started, Some(none.code()));
            none
        });
        Err(failure.into())
    }
}

/// The part of a value that says who wrote it: provider and key of an encrypted one, the key where the provider is
/// known. `None` for plain values, which must not get into messages.
fn beginning(stored: &[u8]) -> Option<String> {
    let colons = if stored.starts_with(PREFIX) { 5 } else { 1 };
    let end = stored.iter().enumerate().filter(|(_, byte)| **byte == b':').nth(colons - 1)?.0;
    let text = stored.get(..=end).filter(|text| text.len() <= FOUND_BYTES_MAX)?;
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b":-_.".contains(byte);
    text.iter().all(is_name).then(|| String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_says_who_wrote_a_value_is_told() {
        let check = |stored: &str, expect: Option<&str>| {
            assert_eq!(beginning(stored.as_bytes()).as_deref(), expect, "{stored}");
        };
        check("k8s:enc:aescbc:v1:old:\u{1}\u{2}", Some("k8s:enc:aescbc:v1:old:"));
        check("old:\u{1}", Some("old:"));
        check(r#"{"metadata":{"name":"x"}}"#, None);
        check("k8s\u{0}\n\u{2}v1\u{12}Secret", None);
        check("k8s:enc:", None);
        check("", None);
    }
}
