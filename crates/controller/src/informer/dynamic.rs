//! Informers of the whole objects of kinds that come and go: each is empty before somebody starts its reflector.
//!
//! Such a kind is dynamic: that it cannot be followed is no reason to call the part that follows it unwell.

use std::any::TypeId;
use std::sync::Arc;

use base::Tasks;
use prometheus_client::metrics::gauge::Gauge;

use super::object::ObjectType;
use super::reflector::{Form, Reflector};
use super::shared::Shared;
use super::{Informer, Informers, Kind, Scope};
use crate::follower::Follower;
use crate::resource_ref::ResourceRef;

/// The reflector of an informer, to be started whenever the kind is served.
pub(crate) struct DynamicReflector {
    informers: Informers,
    shared: Arc<Shared>,
    follower: Arc<Follower>,
}

impl DynamicReflector {
    /// Fills the informer from this resource until the tasks are told to stop.
    pub(crate) fn start(&self, resource: &ResourceRef) -> Tasks {
        let (sender, scope) = (self.informers.sender(), Scope::default());
        let (sink, follower) = (self.shared.clone(), self.follower.clone());
        let reflector = Reflector::new(sender, resource, &scope, Form::Whole, sink, follower);
        let tasks = self.informers.tasks().child();
        tasks.spawn("informer", Box::pin(reflector.run(self.informers.random().clone())));
        tasks
    }
}

impl Informers {
    /// The informer of a kind that comes and goes; whoever asks first gets its reflector, and has to start it.
    pub(crate) fn dynamic<K: Kind>(&self) -> (Informer<K>, Option<DynamicReflector>) {
        let mut running = self.0.running.lock();
        let resource = ResourceRef::of::<K>();
        if let Some(known) = running.kinds.get(&TypeId::of::<K>()) {
            return (Informer::over(known.clone()), None);
        }
        // A gauge by its name would stay when the kind is gone; the log and an event tell of what is left out.
        let undecodable = self.undecodable(&resource, Gauge::default());
        let follower = Arc::new(Follower::new(resource.full_name()));
        let transform = self.0.transforms.lock().get(&resource).cloned();
        let shared = Arc::new(Shared::of(ObjectType::of::<K>(), undecodable, transform));
        running.kinds.insert(TypeId::of::<K>(), shared.clone());
        running.follow(&resource, shared.clone());
        drop(running);
        let reflector = DynamicReflector { informers: self.clone(), shared: shared.clone(), follower };
        (Informer::over(shared), Some(reflector))
    }
}
