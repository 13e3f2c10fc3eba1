//! The objects that an informer has left out.
//!
//! An object that cannot be decoded stops nobody: it is left out alone, told once for each of its versions, in the log and
//! as an event on the object, and tried again when it changes.

use std::collections::BTreeMap;
use std::fmt::Display;

use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;

use super::decode::Identity;

/// Tells of an object that was left out, and why.
pub(super) type Tell = Box<dyn Fn(&Identity, &str) + Send + Sync>;

/// See the module.
pub(super) struct Undecodable {
    /// Such as `services` or `deployments.apps`.
    resource: String,
    /// By key, with the version that could not be decoded.
    objects: Mutex<BTreeMap<String, u64>>,
    /// What all informers of this resource in this part have left out.
    meter: Gauge,
    tell: Tell,
}

impl Undecodable {
    pub(super) fn new(resource: String, meter: Gauge, tell: Tell) -> Self {
        Self { resource, objects: Mutex::default(), meter, tell }
    }

    /// Those of fixed objects, of which nobody hears.
    pub(super) fn untold() -> Self {
        Self::new(String::new(), Gauge::default(), Box::new(|_, _| {}))
    }

    /// Leaves out this version of an object.
    pub(super) fn leave_out(&self, identity: &Identity, cause: &dyn Display) {
        let before = self.objects.lock().insert(identity.key(), identity.revision);
        match before {
            Some(revision) if revision == identity.revision => return,
            Some(_) => {}
            None => {
                self.meter.inc();
            }
        }
        let (key, revision) = (identity.key(), identity.revision);
        tracing::warn!(resource = %self.resource, key, revision, %cause, "an object cannot be decoded");
        (self.tell)(identity, &cause.to_string());
    }

    /// The object under `key` was decoded, or is gone.
    pub(super) fn take_in(&self, key: &str) {
        let mut objects = self.objects.lock();
        if !objects.is_empty() && objects.remove(key).is_some() {
            self.meter.dec();
        }
    }

    /// Of what was left out, only these are there.
    pub(super) fn retain(&self, is_there: impl Fn(&str) -> bool) {
        let mut objects = self.objects.lock();
        let before = objects.len();
        objects.retain(|key, _| is_there(key));
        self.meter.dec_by(count(before - objects.len()));
    }
}

impl Drop for Undecodable {
    fn drop(&mut self) {
        self.meter.dec_by(count(self.objects.get_mut().len()));
    }
}

fn count(objects: usize) -> i64 {
    i64::try_from(objects).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn an_object_is_told_once_for_each_version() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let teller = told.clone();
        let tell: Tell = Box::new(move |identity, cause| {
            teller.lock().push((identity.key(), identity.revision, cause.to_owned()));
        });
        let meter = Gauge::default();
        let objects = Undecodable::new("pods".into(), meter.clone(), tell);
        let version =
            |name: &str, revision| Identity { name: name.to_owned(), revision, ..Identity::default() };
        for (name, revision) in [("a", 1), ("a", 1), ("b", 1), ("a", 2)] {
            objects.leave_out(&version(name, revision), &"why");
        }
        let expect = [("a", 1), ("b", 1), ("a", 2)].map(|(key, at)| (key.to_owned(), at, "why".to_owned()));
        assert_eq!((told.lock().as_slice(), meter.get()), (expect.as_slice(), 2));
        objects.take_in("a");
        objects.take_in("c");
        assert_eq!(meter.get(), 1);
        objects.leave_out(&version("c", 3), &"why");
        objects.retain(|key| key == "c");
        assert_eq!(meter.get(), 1);
        drop(objects);
        assert_eq!(meter.get(), 0);
    }
}
