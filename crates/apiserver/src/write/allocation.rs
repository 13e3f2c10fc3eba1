//! Things that an object takes and no other may have: a Service's addresses and ports, and the room of a namespace's
//! quotas.
//!
//! The first are needed to validate a Service, the second is taken last, from what has passed all else. Both are written
//! down before the object is: a crash leaves too much taken, never too little. Whoever took something either commits it or
//! gives it back. A dry run takes nothing.

pub mod quota;
pub mod service;

use futures::future::BoxFuture;
use serde_json::Value;

use super::{Decoded, Writer};
use crate::admission::{self, Context};
use crate::cache::CachedObject;
use crate::kinds::{GroupVersionResource, Kind};
use crate::status::Result;

/// The server's writes on its own account, through all stages of the path that allocation is one of. What is not served
/// is not written.
pub trait Loopback: Send + Sync {
    /// Creates an object.
    fn create<'a>(
        &'a self,
        writer: &'a Writer,
        resource: GroupVersionResource<'a>,
        namespace: &'a str,
        object: Value,
    ) -> BoxFuture<'a, Result<()>>;

    /// Deletes an object.
    fn delete<'a>(
        &'a self,
        writer: &'a Writer,
        resource: GroupVersionResource<'a>,
        key: (&'a str, &'a str),
    ) -> BoxFuture<'a, Result<()>>;

    /// Changes the status of an object; answers its revision then.
    fn change_status<'a>(
        &'a self,
        writer: &'a Writer,
        resource: GroupVersionResource<'a>,
        key: (&'a str, &'a str),
        transform: &'a mut (dyn FnMut(&Value) -> Result<Decoded> + Send),
    ) -> BoxFuture<'a, Result<Option<u64>>>;
}

/// The things that one write has taken.
#[derive(Debug, Default)]
pub struct Allocated {
    addresses: Option<service::Allocation>,
    charged: Option<quota::Charged>,
}

impl Allocated {
    /// Takes what validation looks at: addresses and ports, which go into the object.
    ///
    /// # Errors
    /// 422 when something is taken or outside of its range; 500 when there is nothing left.
    pub(super) async fn before_validation(
        writer: &Writer,
        context: &Context<'_>,
        object: &mut Value,
    ) -> Result<Self> {
        let addresses = service::allocate(writer, context, object).await?;
        Ok(Self { addresses, charged: None })
    }

    /// Charges the quotas for what has passed validation, if there are to be any.
    ///
    /// # Errors
    /// 403 when one has no room for it.
    pub(super) async fn charge(
        &mut self,
        writer: &Writer,
        context: &Context<'_>,
        object: &Value,
    ) -> Result<()> {
        if admission::is_on(&writer.config.options.admission_plugins, admission::RESOURCE_QUOTA) {
            self.charged = quota::charge(writer, context, object).await?;
        }
        Ok(())
    }

    /// Gives back what the object no longer holds, now that it is stored.
    pub(super) async fn commit(&self, writer: &Writer) {
        if let Some(addresses) = &self.addresses {
            addresses.commit(writer).await;
        }
    }

    /// Gives back all that was taken: the object was not stored after all.
    pub(super) async fn undo(&self, writer: &Writer) {
        if let Some(charged) = &self.charged {
            charged.undo(writer);
        }
        if let Some(addresses) = &self.addresses {
            addresses.undo(writer).await;
        }
    }
}

/// Gives back what a deleted object held.
pub(super) async fn deleted(writer: &Writer, kind: &Kind, object: &CachedObject) {
    if kind.resource() == "services" && kind.group().is_empty() {
        service::deleted(writer, &object.value()).await;
    }
}
