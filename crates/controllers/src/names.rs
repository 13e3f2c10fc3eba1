//! Names of new objects: what the API server would generate, but decided here.
//!
//! A name follows from the owner, from the newest revision seen and from a counter. The same decision made
//! twice on the same picture gives the same names; once anything changed, the names are new ones.

use std::collections::HashSet;

use controller::metadata::{name, uid};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sha2::{Digest, Sha256};

/// Source: `k8s.io/apiserver/pkg/storage/names`: 63 characters less the suffix.
pub(crate) const NAME_BASE_CHARS_MAX: usize = 58;
const SUFFIX_CHARS: usize = 5;
/// Source: `k8s.io/apimachinery/pkg/util/rand`.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// As many names as are wanted, none of which is in `taken`, for what `owner` makes.
pub(crate) fn names(
    owner: &ObjectMeta,
    taken: HashSet<String>,
    revision: u64,
) -> impl Iterator<Item = String> {
    let (prefix, mut names) = (generate_name(owner), Names::new(owner, taken, revision));
    std::iter::repeat_with(move || names.next(&prefix))
}

/// Names of what one owner makes that begin differently.
pub(crate) struct Names {
    uid: String,
    taken: HashSet<String>,
    revision: u64,
    counter: u64,
}

impl Names {
    /// Names that are not in `taken`, of what `owner` makes.
    pub(crate) fn new(owner: &ObjectMeta, taken: HashSet<String>, revision: u64) -> Self {
        Self { uid: uid(owner).to_owned(), taken, revision, counter: 0 }
    }

    /// The next one that begins with `prefix`.
    pub(crate) fn next(&mut self, prefix: &str) -> String {
        loop {
            let base: String = prefix.chars().take(NAME_BASE_CHARS_MAX).collect();
            let name = format!("{base}{}", suffix(&self.uid, self.revision, self.counter));
            self.counter += 1;
            if self.taken.insert(name.clone()) {
                return name;
            }
        }
    }
}

/// `metadata.generateName` of what `owner` makes.
pub(crate) fn generate_name(owner: &ObjectMeta) -> String {
    format!("{}-", name(owner))
}

/// `text` in characters that make no words.
pub(crate) fn safe_encode(text: &str) -> String {
    text.bytes()
        .filter_map(|byte| ALPHABET.get(usize::from(byte) % ALPHABET.len()))
        .map(|&b| char::from(b))
        .collect()
}

fn suffix(uid: &str, revision: u64, counter: u64) -> String {
    let mut hash = Sha256::new();
    hash.update(uid);
    hash.update(revision.to_le_bytes());
    hash.update(counter.to_le_bytes());
    let digest = hash.finalize();
    let letters = digest.iter().filter_map(|byte| ALPHABET.get(usize::from(*byte) % ALPHABET.len()));
    letters.take(SUFFIX_CHARS).map(|&letter| char::from(letter)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::parse;

    fn check(name: &str, revision: u64, count: usize) -> Vec<String> {
        let owner: ObjectMeta = parse(&format!("{{name: {name}, uid: u1}}"));
        names(&owner, HashSet::new(), revision).take(count).collect()
    }

    #[test]
    fn names_are_distinct_and_repeat_only_for_the_same_picture() {
        let many = check("web", 7, 5_000);
        assert_eq!(many.iter().collect::<HashSet<_>>().len(), 5_000);
        assert_eq!(check("web", 7, 3), many[..3]);
        assert_ne!(check("web", 8, 3), many[..3]);
    }

    #[test]
    fn encoding_is_that_of_upstream() {
        assert_eq!(safe_encode("0123456789"), "456789bcdf");
    }

    #[test]
    fn a_long_name_is_cut_as_the_api_server_does() {
        assert_eq!(check(&"a".repeat(80), 1, 1)[0].len(), NAME_BASE_CHARS_MAX + SUFFIX_CHARS);
    }
}
