//! News of claims, classes and slices, as the scheduler's loop takes them in.

use std::time::Duration;

use controller::Informers;
use controller::informer::{Change, Changes};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use k8s_openapi::api::resource::v1alpha3::DeviceTaintRule;
use machinery::features::Feature;

use super::Devices;
use crate::events::{Event, Turn};

/// How long rules are waited for. Source: none; upstream waits for ever.
const RULES_SYNC_MAX: Duration = Duration::from_secs(30);

/// Changes of everything that the plugin for devices looks at.
pub(crate) struct DeviceChanges {
    claims: Changes<ResourceClaim>,
    classes: Changes<DeviceClass>,
    slices: Changes<ResourceSlice>,
    /// Where devices may be tainted by them.
    rules: Option<Changes<DeviceTaintRule>>,
}

/// Takes changes of one kind into what is known; gives what has happened that a Pod may gain by.
pub(crate) type DeviceChange = Box<dyn FnOnce(&mut Devices) -> Vec<Event> + Send>;

fn events<K>(changes: &[Change<K>], event: fn(Turn<K>) -> Event) -> Vec<Event> {
    changes.iter().map(|change| event(change.into())).collect()
}

impl DeviceChanges {
    /// Follows them. Nothing waits for the first lists: older API servers have none, and a Pod whose claims are not known
    /// yet is not scheduled; once they are, so is everything that claims have. Rules are waited for, but not for ever: without
    /// them a Pod would be given devices that it has to leave.
    pub(crate) async fn new(informers: &Informers) -> Self {
        let mut rules = None;
        if Feature::DraDeviceTaintRules.is_on() {
            let informer = informers.informer::<DeviceTaintRule>();
            rules = Some(informer.subscribe());
            if tokio::time::timeout(RULES_SYNC_MAX, informer.synced()).await.is_err() {
                tracing::warn!("devices are allocated without DeviceTaintRules, which cannot be listed");
            }
        }
        Self {
            claims: informers.informer().subscribe(),
            classes: informers.informer().subscribe(),
            slices: informers.informer().subscribe(),
            rules,
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
            changes = next_of(&mut self.rules) => Box::new(move |devices| {
                // As if the slice had the taints of rules.
                let slice = devices.rules_changed(&changes);
                let turn = slice.map(|slice| Turn { old: Some(slice.clone()), new: Some(slice) });
                turn.map(Event::DeviceSlice).into_iter().collect()
            }),
        }
    }
}

async fn next_of(rules: &mut Option<Changes<DeviceTaintRule>>) -> Vec<Change<DeviceTaintRule>> {
    match rules {
        Some(changes) => changes.next().await,
        None => std::future::pending().await,
    }
}
