//! The owner of a host, where several could have it.
//!
//! Gateways of one port share the Node's addresses, with each other and with Ingresses. A host that two of them name is
//! whose route, or Ingress, was there first: nobody gets requests for somebody else's host by a path of their own.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::host::Host;
use crate::table::Listener;

/// Who may have a host: all Ingresses together, or the routes of a Gateway.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Party {
    Ingresses,
    /// By `namespace/name`.
    Gateway(String),
}

/// What makes somebody the first: the time, then the name.
pub(super) type Since = (Option<Timestamp>, String);

/// Who has which host of which listener.
#[derive(Debug, Default)]
pub(super) struct Owners(BTreeMap<(Listener, Host), (Since, Party)>);

/// For this purpose wildcards are the same.
fn place(listener: &Listener, host: &Host) -> (Listener, Host) {
    let host = match host {
        Host::Wildcard(rest) => Host::Below(rest.clone()),
        host => host.clone(),
    };
    (listener.clone(), host)
}

impl Owners {
    /// Somebody asks for a host.
    pub(super) fn claim(&mut self, listener: &Listener, host: &Host, since: &Since, party: &Party) {
        let owner = self.0.entry(place(listener, host)).or_insert_with(|| (since.clone(), party.clone()));
        if *since < owner.0 {
            *owner = (since.clone(), party.clone());
        }
    }

    /// Whether nobody else has it.
    pub(super) fn has(&self, listener: &Listener, host: &Host, party: &Party) -> bool {
        self.0.get(&place(listener, host)).is_none_or(|(_, owner)| owner == party)
    }
}
