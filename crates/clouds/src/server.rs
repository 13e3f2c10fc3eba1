//! The other side: a provider behind a unix socket, for those that are written in Rust.

#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;
use std::sync::Arc;

use base::Tasks;
use futures::FutureExt;
use futures::future::BoxFuture;
use grpc::{Answer, Asked, Router};
use tonic::Status;

use crate::calls::calls;
use crate::provider::Provider;
use crate::v1;

/// Answers at `socket` until the tasks end. Only the socket's owner may connect.
///
/// # Errors
/// The socket cannot be made.
pub fn start(provider: Arc<dyn Provider>, socket: &Path, tasks: &Tasks) -> io::Result<()> {
    let listener = grpc::bind(socket)?;
    let serving = grpc::serve(listener, "cloud provider", Arc::new(Served(provider)), tasks.clone());
    tasks.spawn("cloud provider", serving);
    Ok(())
}

struct Served(Arc<dyn Provider>);

macro_rules! server {
    ($($name:literal $method:ident $request:ident $response:ident $seconds:literal;)*) => {
        impl Router for Served {
            fn answer(&self, path: &str, request: Asked) -> BoxFuture<'static, Answer> {
                let provider = self.0.clone();
                match path.strip_prefix("/knarr.cloud.v1.Cloud/") {
                    $(Some($name) => {
                        let method = move |asked| async move { provider.$method(asked).await }.boxed();
                        grpc::unary::<v1::$request, v1::$response, Status>(request, method)
                    })*
                    _ => grpc::unknown(path),
                }
            }
        }
    };
}

calls!(server);
