//! The answers of others, kept for a while: bounded in number, and by keys that say nothing of what was asked.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A digest of a question.
pub(super) type Key = [u8; 32];

/// AnswerCache by question. The ones that were asked for longest ago make room.
#[derive(Debug)]
pub(super) struct AnswerCache<V> {
    kept: Mutex<Generations<V>>,
    entries_max: usize,
}

/// Whatever is asked for is young again; when there are too many young ones, the old ones go and they are old.
#[derive(Debug)]
struct Generations<V> {
    young: HashMap<Key, Kept<V>>,
    old: HashMap<Key, Kept<V>>,
}

#[derive(Debug)]
struct Kept<V> {
    answer: V,
    until: Instant,
}

impl<V: Clone> AnswerCache<V> {
    /// No answers; never more than this many.
    pub(super) fn new(entries_max: usize) -> Self {
        let kept = Generations { young: HashMap::new(), old: HashMap::new() };
        Self { kept: Mutex::new(kept), entries_max }
    }

    /// What was answered, if that still counts.
    pub(super) fn get(&self, key: &Key, now: Instant) -> Option<V> {
        let mut kept = self.kept.lock();
        if let Some(found) = kept.young.get(key) {
            return (now < found.until).then(|| found.answer.clone());
        }
        let found = kept.old.remove(key).filter(|found| now < found.until)?;
        let answer = found.answer.clone();
        kept.put(*key, found, self.entries_max);
        Some(answer)
    }

    /// Keeps an answer.
    pub(super) fn put(&self, key: Key, answer: V, until: Instant) {
        let mut kept = self.kept.lock();
        kept.old.remove(&key);
        kept.put(key, Kept { answer, until }, self.entries_max);
    }
}

impl<V> Generations<V> {
    fn put(&mut self, key: Key, kept: Kept<V>, entries_max: usize) {
        if self.young.len() >= (entries_max / 2).max(1) && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, kept);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn key(number: u16) -> Key {
        let mut key = [0; 32];
        key[..2].copy_from_slice(&number.to_be_bytes());
        key
    }

    #[test]
    fn an_answer_counts_until_its_time_is_over() {
        let (answers, now) = (AnswerCache::new(8), Instant::now());
        let second = Duration::from_secs(1);
        answers.put(key(1), 'a', now + second);
        assert_eq!(answers.get(&key(1), now), Some('a'));
        assert_eq!(answers.get(&key(1), now + second), None);
        assert_eq!(answers.get(&key(2), now), None);
        answers.put(key(1), 'b', now + 2 * second);
        assert_eq!(answers.get(&key(1), now + second), Some('b'));
    }

    #[test]
    fn there_are_never_too_many_and_what_is_asked_for_stays() {
        let (answers, now) = (AnswerCache::new(100), Instant::now());
        let until = now + Duration::from_secs(1);
        answers.put(key(0), 0, until);
        for number in 1..1000 {
            answers.put(key(number), number, until);
            assert_eq!(answers.get(&key(0), now), Some(0), "{number}");
            let kept = answers.kept.lock();
            assert!(kept.young.len() + kept.old.len() <= 100);
        }
        assert_eq!(answers.get(&key(998), now), Some(998));
        assert_eq!(answers.get(&key(1), now), None);
    }
}
