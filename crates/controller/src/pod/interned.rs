//! Parts that Pods of one template have in common, kept once: interned.
//!
//! A template's containers, tolerations and affinity are in all of its Pods, and are a good part of what is kept of them.
//! A decoder compares what it has read with the last different values of the same type, and hands out the one that is there
//! already. Pods of a template come one after the other: when they are made, and in lists, which are ordered by name.

use std::borrow::Borrow;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;
use std::thread::LocalKey;

use k8s_openapi::api::core::v1::{Affinity, Toleration, TopologySpreadConstraint};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Container;

/// Different values of a type that a thread remembers.
const RECENT_MAX: usize = 32;

/// A value, or a list, that other Pods may have a share in.
#[derive(Debug)]
pub struct Interned<T: ?Sized>(Arc<T>);

/// The last values of a type, the latest first.
pub type Recent<T> = RefCell<VecDeque<Arc<T>>>;

/// A type that whole templates of Pods have the same value of.
pub trait Repeated: PartialEq + 'static {
    /// The form that it is decoded in.
    type Read: Borrow<Self> + Into<Arc<Self>>;

    /// The values that this thread has seen last.
    fn recent() -> &'static LocalKey<Recent<Self>>;
}

macro_rules! repeated {
    ($($type:ty, read as $read:ty;)*) => {$(
        impl Repeated for $type {
            type Read = $read;

            fn recent() -> &'static LocalKey<Recent<Self>> {
                thread_local! {
                    static RECENT: Recent<$type> = const { RefCell::new(VecDeque::new()) };
                }
                &RECENT
            }
        }
    )*};
}

repeated! {
    Affinity, read as Affinity;
    [Container], read as Vec<Container>;
    [Toleration], read as Vec<Toleration>;
    [TopologySpreadConstraint], read as Vec<TopologySpreadConstraint>;
    str, read as String;
}

impl<T: Repeated + ?Sized> Interned<T> {
    /// The value, or the one of the last that is equal to it.
    pub fn of(read: T::Read) -> Self {
        T::recent().with_borrow_mut(|recent| {
            let known = recent.iter().position(|known| **known == *read.borrow());
            let value = known.and_then(|at| recent.remove(at)).unwrap_or_else(|| read.into());
            recent.truncate(RECENT_MAX - 1);
            recent.push_front(value.clone());
            Self(value)
        })
    }
}

impl<T: ?Sized> Deref for Interned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized> Clone for Interned<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: PartialEq + ?Sized> PartialEq for Interned<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || *self.0 == *other.0
    }
}

impl<T: Repeated + ?Sized> Default for Interned<T>
where
    T::Read: Default,
{
    fn default() -> Self {
        Self::of(T::Read::default())
    }
}

impl<'a, T> IntoIterator for &'a Interned<[T]> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<T: Serialize + ?Sized> Serialize for Interned<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl<'de, T: Repeated + ?Sized> Deserialize<'de> for Interned<T>
where
    T::Read: Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        T::Read::deserialize(from).map(Self::of)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Pod;
    use super::*;

    fn pod(name: &str, image: &str) -> Pod {
        let text = format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{"containers":[{{"name":"c","image":"{image}"}}],
                "tolerations":[{{"key":"k","operator":"Exists"}}],"affinity":{{"nodeAffinity":{{}}}}}}}}"#
        );
        serde_json::from_str(&text).expect("a Pod")
    }

    fn containers(pod: &Pod) -> &Interned<[Container]> {
        &pod.spec.as_ref().expect("a spec").containers
    }

    #[test]
    fn pods_of_one_template_share_its_parts_and_others_do_not() {
        let (one, two, other) = (pod("one", "i"), pod("two", "i"), pod("other", "j"));
        assert!(Arc::ptr_eq(&containers(&one).0, &containers(&two).0));
        assert!(!Arc::ptr_eq(&containers(&one).0, &containers(&other).0));
        let [one, other] = [one, other].map(|pod| pod.spec.expect("a spec"));
        assert_eq!(other.containers[0].image.as_deref(), Some("j"));
        let [mine, theirs] = [&one, &other].map(|spec| spec.tolerations.as_ref().expect("tolerations"));
        assert!(Arc::ptr_eq(&mine.0, &theirs.0), "tolerations are the same whatever runs");
        let [mine, theirs] = [&one, &other].map(|spec| spec.affinity.as_ref().expect("affinity"));
        assert!(Arc::ptr_eq(&mine.0, &theirs.0));
    }

    #[test]
    fn what_was_not_seen_for_long_is_forgotten_and_what_comes_again_is_not() {
        let first = pod("first", "often");
        let rare = pod("rare", "rare");
        for number in 0..2 * RECENT_MAX {
            pod("other", &number.to_string());
            assert!(Arc::ptr_eq(&containers(&first).0, &containers(&pod("again", "often")).0));
        }
        assert!(!Arc::ptr_eq(&containers(&rare).0, &containers(&pod("rare", "rare")).0));
        assert_eq!(containers(&rare), containers(&pod("rare", "rare")), "the value is what counts");
        assert_eq!(<[Container]>::recent().with_borrow(VecDeque::len), RECENT_MAX);
    }
}
