//! A provider behind a unix socket. It is connected to when something is asked, and again when it was lost.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use tonic::Status;
use tonic::transport::Channel;

use crate::calls::calls;
use crate::provider::Provider;
use crate::v1;

/// The client of a provider. Cloning shares the connection.
#[derive(Clone, Debug)]
pub struct Client {
    channel: Channel,
}

impl Client {
    /// A client of the provider at `socket`.
    pub fn new(socket: &Path) -> Self {
        Self { channel: grpc::channel(socket) }
    }
}

macro_rules! client {
    ($($name:literal $method:ident $request:ident $response:ident $seconds:literal;)*) => {
        #[async_trait]
        impl Provider for Client {
            $(
                async fn $method(&self, request: v1::$request) -> Result<v1::$response, Status> {
                    let (path, limit) = (concat!("/knarr.cloud.v1.Cloud/", $name), Duration::from_secs($seconds));
                    grpc::call(&self.channel, path, request, Some(limit)).await
                }
            )*
        }
    };
}

calls!(client);
