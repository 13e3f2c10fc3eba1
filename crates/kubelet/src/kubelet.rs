//! The whole of a kubelet: the rooms that it has, the desk that takes Pods in, and a worker for each.
//!
//! What is decided is decided in [`crate::pod`]; what is given away, made or pulled is the business of the rooms below. Nothing in
//! here answers requests: the kubelet's own API stands on this, not the other way round.

pub(crate) mod cleanup;
pub(crate) mod handlers;
pub(crate) mod mirror;
pub(crate) mod orphans;
pub(crate) mod pods;
pub(crate) mod probes;
pub(crate) mod runtime_class;
pub(crate) mod static_pods;
pub(crate) mod step_error;
pub(crate) mod termination_reasons;
pub(crate) mod userns;
pub(crate) mod worker;

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
