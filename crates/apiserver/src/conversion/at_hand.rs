//! Conversions that a walk wants which cannot wait: managed fields are walked in all versions in which they are kept.
//!
//! What is not at hand is noted. When the walk is over it is fetched, and the walk is done again from the beginning, until it
//! has wanted nothing that was not there.

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::Conversion;
use crate::status::{Error, Result};

/// How often a walk may want more.
const ROUNDS_MAX: usize = 16;

/// Conversions at hand for a request; shared by its copies.
#[derive(Debug, Default)]
pub struct AtHand(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// Objects, versions, and what they are in those.
    known: Vec<(Value, String, Value)>,
    wanted: Vec<(Value, String)>,
    rounds: usize,
    is_given_up: bool,
}

impl AtHand {
    /// Forgets everything.
    pub fn clear(&self) {
        *self.0.lock() = Kept::default();
    }

    /// An object in a version, if that is at hand.
    pub fn find(&self, object: &Value, to: &str) -> Option<Value> {
        let mut kept = self.0.lock();
        if kept.is_given_up {
            return Some(json!({}));
        }
        let known = kept.known.iter().find(|(known, version, _)| version == to && known == object);
        if let Some((_, _, converted)) = known {
            return Some(converted.clone());
        }
        kept.wanted.push((object.clone(), to.to_owned()));
        None
    }

    /// Fetches what was wanted; says whether anything was.
    ///
    /// # Errors
    /// 500 if something cannot be converted.
    pub async fn fetch(&self, conversion: &Conversion) -> Result<bool> {
        let wanted = {
            let mut kept = self.0.lock();
            kept.rounds += 1;
            if kept.rounds > ROUNDS_MAX {
                return Err(Error::internal("managed fields are kept in too many versions"));
            }
            std::mem::take(&mut kept.wanted)
        };
        if wanted.is_empty() {
            return Ok(false);
        }
        for (object, to) in wanted {
            let is_known = |(known, version, _): &(Value, String, Value)| *version == to && *known == object;
            if self.0.lock().known.iter().any(is_known) {
                continue;
            }
            let converted = conversion.value(object.clone(), &to).await?;
            self.0.lock().known.push((object, to, converted));
        }
        Ok(true)
    }

    /// Takes every object for the same from now on: nobody who owns fields in other versions gains or loses any.
    pub fn give_up(&self) {
        *self.0.lock() = Kept { is_given_up: true, ..Kept::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_at_hand_is_noted_and_what_is_given_up_is_all_the_same() {
        let (all, object) = (AtHand::default(), json!({"apiVersion": "a.b/v1", "x": 1}));
        assert!(all.find(&object, "a.b/v2").is_none());
        assert_eq!(all.0.lock().wanted.len(), 1);
        all.0.lock().known.push((object.clone(), "a.b/v2".to_owned(), json!({"y": 1})));
        assert_eq!(all.find(&object, "a.b/v2"), Some(json!({"y": 1})));
        assert!(all.find(&json!({"x": 2}), "a.b/v2").is_none() && all.find(&object, "a.b/v3").is_none());
        all.give_up();
        assert_eq!(all.find(&object, "a.b/v3"), all.find(&json!({"x": 2}), "a.b/v2"));
        assert!(all.0.lock().wanted.is_empty());
    }
}
