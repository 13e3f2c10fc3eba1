//! The host-path driver: volumes are folders of the node, or files behind loop devices: raw blocks, and file systems of
//! their own for classes with `backing: image`.
//!
//! It keeps nothing in memory: what is on disk, what is mounted and which loop devices there are is all that it knows, so
//! that it may be killed at any point. A volume appears and vanishes by a rename. Every call may be made again. A
//! file's size is enforced; a folder's is written down and shown, but folders share their disk.

mod capability;
mod controller;
mod identity;
mod images;
mod node;
mod options;
mod volumes;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use base::Tasks;

use crate::{Status, server};
use volumes::Volumes;

/// The driver's name, as CSIDriver and StorageClasses have it.
pub const NAME: &str = "hostpath.csi.knarr.io";

/// The settings of a driver.
#[derive(Clone, Debug)]
pub struct Config {
    /// The name, which is [`NAME`] unless there are several on one node.
    pub name: String,
    /// The name of the Node that its volumes are on.
    pub node_id: String,
    /// Volumes are below.
    pub folder: PathBuf,
    /// The socket on which it listens.
    pub socket: PathBuf,
    /// In the kubelet's `plugins_registry`; `None` if no kubelet is to know.
    pub registration_socket: Option<PathBuf>,
    /// Most volumes on the node; 0 is any number.
    pub volumes_max: i64,
}

/// The driver.
struct Driver {
    name: String,
    node_id: String,
    volumes_max: i64,
    volumes: Arc<Volumes>,
}

/// Serves the driver until the tasks end.
///
/// # Errors
/// The folder or a socket cannot be made.
pub fn start(config: &Config, tasks: &Tasks) -> io::Result<()> {
    let volumes = Arc::new(Volumes::open(&config.folder)?);
    let driver = Driver {
        name: config.name.clone(),
        node_id: config.node_id.clone(),
        volumes_max: config.volumes_max,
        volumes,
    };
    server::serve(Arc::new(driver), &config.socket, tasks)?;
    match &config.registration_socket {
        Some(socket) => server::register(&config.name, &config.socket, socket, tasks),
        None => Ok(()),
    }
}

impl Driver {
    /// The label of a Node that says which one it is to the driver.
    fn topology_key(&self) -> String {
        format!("topology.{}/node", self.name)
    }

    /// Runs what may block away from the tasks that answer.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Volumes) -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        let volumes = self.volumes.clone();
        let done = tokio::task::spawn_blocking(move || {
            // One at a time: calls for one volume may come twice.
            let _turn = volumes.turn();
            work(&volumes)
        });
        done.await.map_err(|error| Status::internal(error.to_string()))?
    }

    /// The same for what may take long and changes nothing that others look at meanwhile.
    async fn unhurried<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Volumes) -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        let volumes = self.volumes.clone();
        let done = tokio::task::spawn_blocking(move || work(&volumes));
        done.await.map_err(|error| Status::internal(error.to_string()))?
    }
}

/// A failure of the disk: one that is full is the caller's to know.
fn failed(error: io::Error) -> Status {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Status::resource_exhausted(format!("the node's disk has no room for it: {error}"))
        }
        _ => internal(error),
    }
}

fn require(value: &str, what: &str) -> Result<(), Status> {
    match value {
        "" => Err(Status::invalid_argument(format!("{what} missing in request"))),
        _ => Ok(()),
    }
}

fn internal(error: impl std::error::Error) -> Status {
    Status::internal(base::error_chain(&error))
}

/// The refusal of a request that cannot be.
fn invalid<T>(why: impl Into<String>) -> crate::Result<T> {
    Err(Status::invalid_argument(why))
}

#[cfg(test)]
mod tests;
