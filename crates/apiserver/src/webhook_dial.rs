//! The connection to webhooks: by URL, or by a Service's ready endpoints.
//!
//! A URL is an administrator's, who may name whatever this host reaches but the API servers themselves. What is behind a
//! Service may be written by others: there the server goes only where it goes for anybody.

use std::sync::{Arc, OnceLock, Weak};

use futures::future::BoxFuture;
use tunnel::Connection;

use crate::api::Api;
use crate::backend;
use crate::connection_error::ConnectionError;
use crate::dial::Destination;
use crate::service_reference;
use crate::webhooks::client::{Dial, ServiceReference};

/// Reaches webhooks for a server, from when it is there.
#[derive(Default)]
pub(crate) struct Dialer(OnceLock<Weak<Api>>);

impl Dialer {
    /// The server, as soon as there is one.
    pub(crate) fn is_for(&self, api: &Arc<Api>) {
        self.0.get_or_init(|| Arc::downgrade(api));
    }

    fn api(&self) -> Result<Arc<Api>, ConnectionError> {
        self.0.get().and_then(Weak::upgrade).ok_or(ConnectionError::NoServer)
    }
}

impl Dial for Dialer {
    fn host<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, Result<Connection, ConnectionError>> {
        Box::pin(async move {
            backend::connect(&Destination::of_administrator(&*self.api()?, host, port).await?).await
        })
    }

    fn service<'a>(
        &'a self,
        service: &'a ServiceReference,
    ) -> BoxFuture<'a, Result<Connection, ConnectionError>> {
        Box::pin(async move {
            let ServiceReference { namespace, name, port } = service.clone();
            let reference = service_reference::ServiceReference { namespace, name, port };
            backend::connect(&reference.resolve(&*self.api()?).await?).await
        })
    }
}
