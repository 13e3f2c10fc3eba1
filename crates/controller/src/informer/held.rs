//! Informers of kinds that come and go: each runs as long as somebody holds it.
//!
//! With the last holder go its connection, its objects and its index. Such a kind is dynamic: that it cannot be followed is
//! in the log, and no reason to call the part that follows it unwell.

use std::sync::{Arc, Weak};

use base::Tasks;
use jiff::Timestamp;
use prometheus_client::metrics::gauge::Gauge;

use super::object::ObjectType;
use super::reflector::{Form, Reflector};
use super::shared::Shared;
use super::{Informer, Informers, PartialObject, Scope};
use crate::follower::Follower;
use crate::resource_ref::ResourceRef;

/// An informer of the metadata of a kind's objects, and the right to it.
pub struct Held {
    resource: ResourceRef,
    informer: Informer<PartialObject>,
    since: Timestamp,
    /// What it runs in, unless it runs for others anyway.
    own: Option<Tasks>,
}

impl Held {
    /// The resource of its objects.
    pub fn resource(&self) -> &ResourceRef {
        &self.resource
    }

    /// The informer of their metadata.
    pub fn informer(&self) -> &Informer<PartialObject> {
        &self.informer
    }

    /// Since when it runs.
    pub fn since(&self) -> Timestamp {
        self.since
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(tasks) = &self.own {
            tasks.stop();
        }
    }
}

impl Informers {
    /// The informer of the metadata of a kind that may go; it stops when nobody holds it any more.
    pub fn held(&self, resource: &ResourceRef) -> Arc<Held> {
        let mut all = self.0.held.lock();
        if let Some(held) = all.get(resource).and_then(Weak::upgrade) {
            return held;
        }
        let since = self.clock().now();
        let (informer, own) = match self.running_metadata(resource) {
            Some(informer) => (informer, None),
            None => {
                let (informer, tasks) = self.start_own(resource);
                (informer, Some(tasks))
            }
        };
        let held = Arc::new(Held { resource: resource.clone(), informer, since, own });
        all.retain(|_, known| known.strong_count() > 0);
        all.insert(resource.clone(), Arc::downgrade(&held));
        held
    }

    /// Every informer that somebody holds, in the order of their resources.
    pub fn all_held(&self) -> Vec<Arc<Held>> {
        self.0.held.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// The informer that somebody holds of a resource.
    pub fn find_held(&self, resource: &ResourceRef) -> Option<Arc<Held>> {
        self.0.held.lock().get(resource).and_then(Weak::upgrade)
    }

    fn start_own(&self, resource: &ResourceRef) -> (Informer<PartialObject>, Tasks) {
        let scope = Scope::default();
        // A gauge by its name would stay when the kind is gone; the log and an event tell of what is left out.
        let undecodable = self.undecodable(resource, Gauge::default());
        let follower = Arc::new(Follower::new(resource.full_name()));
        let shared = Arc::new(Shared::of(ObjectType::of::<PartialObject>(), undecodable, None));
        let (sender, sink) = (self.sender(), shared.clone());
        let reflector = Reflector::new(sender, resource, &scope, Form::MetadataOnly, sink, follower);
        let tasks = self.tasks().child();
        tasks.spawn("informer", Box::pin(reflector.run(self.random().clone())));
        (Informer::over(shared), tasks)
    }
}
