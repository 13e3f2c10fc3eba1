//! Calls a driver behind a unix socket. It reconnects by itself after the driver was restarted.

use std::path::Path;
use std::time::Duration;

use tonic::transport::Channel;

use crate::Result;
use crate::calls::{controller_calls, identity_calls, node_calls, registration_calls};

/// How long a call may take. Source: `csiTimeout` of upstream's kubelet.
const CALL_MAX: Duration = Duration::from_secs(120);

/// A driver, or the registration side of one. Cloning shares the connection.
#[derive(Clone, Debug)]
pub struct Client {
    channel: Channel,
}

impl Client {
    /// A client of the plugin at `socket`, which is connected to when something is called.
    pub fn new(socket: &Path) -> Self {
        Self { channel: grpc::channel(socket) }
    }
}

macro_rules! call {
    ($trait:ident $service:literal $module:ident $($name:literal $method:ident $request:ident $response:ident;)*) => {
        impl Client {
            $(
                #[doc = concat!("Source: `", $service, "/", $name, "`.")]
                ///
                /// # Errors
                /// What the driver said, or that it is not there.
                pub async fn $method(&self, request: crate::$module::$request) -> Result<crate::$module::$response> {
                    let path = concat!("/", $service, "/", $name);
                    grpc::call(&self.channel, path, request, Some(CALL_MAX)).await
                }
            )*
        }
    };
}

identity_calls!(call);
controller_calls!(call);
node_calls!(call);
registration_calls!(call);
