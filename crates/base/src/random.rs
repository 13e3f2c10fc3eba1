//! Chance from one seed: jitter, name suffixes, tie breaks.
//!
//! Never for keys or tokens: those come from the operating system through `ring`.

use std::sync::{Arc, Mutex, PoisonError};

/// A seeded generator. Cloning shares the sequence.
#[derive(Clone, Debug)]
pub struct Random(Arc<Mutex<fastrand::Rng>>);

impl Random {
    /// A generator whose whole sequence follows from `seed`.
    pub fn seeded(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))))
    }

    /// A generator seeded by the operating system.
    pub fn from_system() -> Self {
        Self(Arc::new(Mutex::new(fastrand::Rng::new())))
    }

    /// A number below `bound`; 0 when `bound` is 0.
    pub fn below(&self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        self.with(|rng| rng.u64(..bound))
    }

    /// A number in `0.0..1.0`.
    pub fn unit(&self) -> f64 {
        self.with(fastrand::Rng::f64)
    }

    /// `len` characters of the alphabet upstream uses for generated names (no vowels, no look-alikes).
    ///
    /// Source: `k8s.io/apimachinery/pkg/util/rand`.
    pub fn name_suffix(&self, len: usize) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        self.with(|rng| (0..len).filter_map(|_| rng.choice(ALPHABET)).map(|&b| char::from(b)).collect())
    }

    /// A version 4 UUID in its usual text form.
    pub fn uuid(&self) -> String {
        let bits = self.with(|rng| rng.u128(..));
        let bits = (bits & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
        let hex = format!("{bits:032x}");
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    fn with<T>(&self, f: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_names() {
        let (a, b) = (Random::seeded(7), Random::seeded(7));
        assert_eq!(a.name_suffix(5), b.name_suffix(5));
        assert_eq!(a.uuid(), b.uuid());
    }

    /// Source: `TestString` of upstream's `apimachinery/pkg/util/rand`.
    #[test]
    fn suffixes_have_their_length_and_no_other_letters() {
        let random = Random::seeded(3);
        for len in [0, 1, 2, 10, 123] {
            let suffix = random.name_suffix(len);
            assert_eq!(suffix.len(), len);
            let is_odd = |letter: char| !"bcdfghjklmnpqrstvwxz2456789".contains(letter);
            assert!(!suffix.contains(is_odd), "{suffix}");
        }
        assert_ne!(random.name_suffix(10), random.name_suffix(10), "the sequence goes on");
        let shared = random.clone();
        assert_ne!(shared.name_suffix(10), Random::seeded(3).name_suffix(10), "for whoever shares it, too");
    }

    #[test]
    fn numbers_are_below_their_bound_and_all_of_them_come() {
        let random = Random::seeded(5);
        assert_eq!([random.below(0), random.below(1)], [0, 0]);
        let found: std::collections::BTreeSet<u64> = (0..200).map(|_| random.below(3)).collect();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
        assert!((0..200).all(|_| (0.0..1.0).contains(&random.unit())));
    }

    #[test]
    fn a_uuid_has_its_version_and_variant() {
        let uuid = Random::seeded(1).uuid();
        assert_eq!(uuid.len(), 36);
        assert_eq!(&uuid[14..15], "4");
        assert!("89ab".contains(&uuid[19..20]), "{uuid}");
    }
}
