//! News of claims, classes and slices, as the scheduler's loop takes them in.

use controller::Informers;
use controller::informer::{Change, Changes};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};

use super::Devices;
use crate::events::{Event, Turn};

/// Changes of everything that the plugin for devices looks at.
pub(crate) struct DeviceChanges {
    claims: Changes<ResourceClaim>,
    classes: Changes<DeviceClass>,
    slices: Changes<ResourceSlice>,
}

/// Takes changes of one kind into what is known; gives what has happened that a Pod may gain by.
pub(crate) type DeviceChange = Box<dyn FnOnce(&mut Devices) -> Vec<Event> + Send>;

fn events<K>(changes: &[Change<K>], event: fn(Turn<K>) -> Event) -> Vec<Event> {
    changes.iter().map(|change| event(change.into())).collect()
}

impl DeviceChanges {
    /// Follows them. Nothing waits for the first lists: older API servers have none, and a Pod whose claims are not known
    /// yet is not scheduled; once they are, so is everything that claims have.
    pub(crate) fn new(informers: &Informers) -> Self {
        Self {
            claims: informers.informer().subscribe(),
            classes: informers.informer().subscribe(),
            slices: informers.informer().subscribe(),
        }
    }

    /// The next change, once there is one.
    pub(crate) async fn next(&mut self) -> DeviceChange {
        tokio::select! {
            biased;
            changes = self.claims.next() => Box::new(|devices| {
                let events = events(&changes, Event::DeviceClaim);
                if devices.claims_changed(changes) { events } else { Vec::new() }
            }),
            changes = self.classes.next() => Box::new(|devices| {
                let events = events(&changes, Event::DeviceClass);
                devices.classes_changed(changes);
                events
            }),
            changes = self.slices.next() => Box::new(|devices| {
                let events = events(&changes, Event::DeviceSlice);
                devices.slices_changed(changes);
                events
            }),
        }
    }
}
