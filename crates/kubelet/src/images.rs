//! Images: which are pulled and who may use them, and which go when the disk fills up.

pub(crate) mod image_gc;
pub(crate) mod pull;

use std::ops::Deref;
use std::sync::Arc;

use crate::context::Context;

/// What pulls and the collection of images share.
pub(crate) struct Images {
    pub(crate) context: Arc<Context>,
    /// Who wants unused images gone.
    pub(crate) image_requests: image_gc::collector::Requests,
    /// What pulls of images share.
    pub(crate) pulls: pull::Pulls,
}

impl Deref for Images {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}
