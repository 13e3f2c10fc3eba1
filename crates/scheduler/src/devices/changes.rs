//! News of claims, classes and slices, as the scheduler's loop takes them in.

use controller::Informers;
use controller::informer::Changes;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};

use super::Devices;

/// Changes of everything that the plugin for devices looks at.
pub(crate) struct DeviceChanges {
    claims: Changes<ResourceClaim>,
    classes: Changes<DeviceClass>,
    slices: Changes<ResourceSlice>,
}

/// Takes changes of one kind into what is known; says whether a Pod may gain by it.
pub(crate) type DeviceChange = Box<dyn FnOnce(&mut Devices) -> bool + Send>;

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
            changes = self.claims.next() => Box::new(|devices| devices.claims_changed(changes)),
            changes = self.classes.next() => Box::new(|devices| { devices.classes_changed(changes); true }),
            changes = self.slices.next() => Box::new(|devices| { devices.slices_changed(changes); true }),
        }
    }
}
