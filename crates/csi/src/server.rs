//! A driver behind a unix socket, and the socket through which a kubelet learns of it.
//!
//! Only the sockets' owner may connect: whoever reaches a storage driver is root on its host.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use base::Tasks;
use futures::FutureExt;
use futures::future::BoxFuture;
use grpc::{Answer, Asked, Router};

use crate::calls::{controller_calls, identity_calls, node_calls, registration_calls};
use crate::{CSI_PLUGIN, Result, Status, registration};

#[cfg(test)]
mod tests;

macro_rules! service {
    ($trait:ident $service:literal $module:ident $($name:literal $method:ident $request:ident $response:ident;)*) => {
        #[doc = concat!("Source: `service ", $service, "`. A call without an implementation is unimplemented.")]
        #[async_trait]
        #[allow(missing_docs)]
        pub trait $trait: Send + Sync + 'static {
            $(
                async fn $method(&self, _: crate::$module::$request) -> Result<crate::$module::$response> {
                    Err(Status::unimplemented(concat!($name, " is not supported")))
                }
            )*
        }

        impl<T: $trait> Answers<dyn $trait> for Arc<T> {
            fn answer(&self, path: &str, request: Asked) -> Option<BoxFuture<'static, Answer>> {
                let service = self.clone();
                match path.strip_prefix(concat!("/", $service, "/"))? {
                    $($name => {
                        let method = move |asked| async move { service.$method(asked).await }.boxed();
                        Some(grpc::unary::<crate::$module::$request, crate::$module::$response, Status>(request, method))
                    })*
                    _ => None,
                }
            }
        }
    };
}

/// One service's part of a router; `S` names the service.
trait Answers<S: ?Sized> {
    fn answer(&self, path: &str, request: Asked) -> Option<BoxFuture<'static, Answer>>;
}

identity_calls!(service);
controller_calls!(service);
node_calls!(service);
registration_calls!(service);

struct Plugin<T>(Arc<T>);

impl<T: Identity + Controller + Node> Router for Plugin<T> {
    fn answer(&self, path: &str, request: Asked) -> BoxFuture<'static, Answer> {
        let found = match path.rsplit_once('/') {
            Some(("/csi.v1.Identity", _)) => Answers::<dyn Identity>::answer(&self.0, path, request),
            Some(("/csi.v1.Controller", _)) => Answers::<dyn Controller>::answer(&self.0, path, request),
            Some(("/csi.v1.Node", _)) => Answers::<dyn Node>::answer(&self.0, path, request),
            _ => None,
        };
        found.unwrap_or_else(|| grpc::unknown(path))
    }
}

struct Registrar {
    name: String,
    endpoint: PathBuf,
}

#[async_trait]
impl Registration for Registrar {
    async fn get_info(&self, _: registration::InfoRequest) -> Result<registration::PluginInfo> {
        Ok(registration::PluginInfo {
            r#type: CSI_PLUGIN.to_owned(),
            name: self.name.clone(),
            endpoint: self.endpoint.display().to_string(),
            supported_versions: vec!["1.0.0".to_owned()],
        })
    }

    async fn notify_registration_status(
        &self,
        status: registration::RegistrationStatus,
    ) -> Result<registration::RegistrationStatusResponse> {
        if status.plugin_registered {
            tracing::info!(driver = self.name, "the kubelet has registered the driver");
        } else {
            tracing::warn!(driver = self.name, error = status.error, "the kubelet has refused the driver");
        }
        Ok(registration::RegistrationStatusResponse {})
    }
}

struct Registers(Arc<Registrar>);

impl Router for Registers {
    fn answer(&self, path: &str, request: Asked) -> BoxFuture<'static, Answer> {
        let found = Answers::<dyn Registration>::answer(&self.0, path, request);
        found.unwrap_or_else(|| grpc::unknown(path))
    }
}

/// Serves `driver` at `socket` until the tasks end.
///
/// # Errors
/// The socket cannot be made.
pub fn serve<T: Identity + Controller + Node>(
    driver: Arc<T>,
    socket: &Path,
    tasks: &Tasks,
) -> io::Result<()> {
    let listener = grpc::bind(socket)?;
    tasks.spawn("csi driver", grpc::serve(listener, "CSI driver", Arc::new(Plugin(driver)), tasks.clone()));
    Ok(())
}

/// Tells a kubelet that watches the folder of `socket` of the driver `name` at `endpoint`, until the tasks end.
///
/// # Errors
/// The socket cannot be made.
pub fn register(name: &str, endpoint: &Path, socket: &Path, tasks: &Tasks) -> io::Result<()> {
    let listener = grpc::bind(socket)?;
    let registrar = Registrar { name: name.to_owned(), endpoint: endpoint.to_owned() };
    let router = Arc::new(Registers(Arc::new(registrar)));
    tasks.spawn("csi registration", grpc::serve(listener, "CSI registration", router, tasks.clone()));
    Ok(())
}
