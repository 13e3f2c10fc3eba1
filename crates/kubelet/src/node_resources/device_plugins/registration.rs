//! The socket at which device plugins register.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use grpc::{Answer, Asked, Router};
use tonic::Status;

use super::api::{Empty, RegisterRequest};
use crate::node_resources::NodeResources;

const SOCKET: &str = "kubelet.sock";

/// Answers until the group of tasks stops. A new socket at every start tells plugins to register again.
pub(super) async fn serve(resources: &Arc<NodeResources>) {
    let path = resources.devices.folder.join(SOCKET);
    let listener = match grpc::bind(&path) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "there is no socket for device plugins");
            return;
        }
    };
    let router = Arc::new(Registration(resources.clone()));
    grpc::serve(listener, "device plugins", router, resources.tasks.clone()).await;
}

struct Registration(Arc<NodeResources>);

impl Router for Registration {
    fn answer(&self, path: &str, request: Asked) -> BoxFuture<'static, Answer> {
        let context = self.0.clone();
        match path {
            "/v1beta1.Registration/Register" => grpc::unary(request, move |asked: RegisterRequest| {
                async move {
                    super::register(&context, asked)
                        .map(|()| Empty {})
                        .map_err(|error| Status::unknown(error.to_string()))
                }
                .boxed()
            }),
            other => grpc::unknown(other),
        }
    }
}
