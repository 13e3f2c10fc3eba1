//! A server elsewhere that is attended to.

use std::sync::Arc;

use tokio::sync::Notify;

use super::link::Link;
use super::registration::Registration;

/// See the module.
#[derive(Clone)]
pub(super) struct Served {
    /// What the APIService says.
    pub(super) registration: Registration,
    /// The way there.
    pub(super) link: Arc<Link>,
    /// That it became available, or is not any more.
    pub(super) turned: Arc<Notify>,
}
