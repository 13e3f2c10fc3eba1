//! The hint of the plugin that has gangs wait for each other.

use controller::pod::Pod;

use crate::events::Event;
use crate::gangs::GangKey;
use crate::node_info::Snapshot;

/// Another of the gang has come, or its Workload.
pub(super) fn gang_scheduling(event: &Event, pod: &Pod, _: &Snapshot) -> bool {
    let Some(gang) = GangKey::of(pod) else { return false };
    match event {
        Event::Newcomer(other) => GangKey::of(other).as_ref() == Some(&gang),
        Event::Pod(turn) if turn.is_new() => turn.now().and_then(GangKey::of).as_ref() == Some(&gang),
        Event::Workload(turn) if turn.is_new() => turn.now().is_some_and(|workload| gang.is_of(workload)),
        _ => false,
    }
}
