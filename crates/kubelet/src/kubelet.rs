//! The whole of a kubelet: what its desk, its workers and its own API stand on.

use std::ops::Deref;
use std::sync::Arc;

use crate::context::Context;
use crate::images::Images;
use crate::node_resources::NodeResources;
use crate::stats::Looks;
use crate::volumes::Volumes;

/// The rooms of one kubelet.
pub(crate) struct Kubelet {
    pub(crate) context: Arc<Context>,
    pub(crate) resources: Arc<NodeResources>,
    pub(crate) volumes: Arc<Volumes>,
    pub(crate) image_store: Arc<Images>,
    /// What everything used when somebody asked last.
    pub(crate) looks: Looks,
}

impl Deref for Kubelet {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}
