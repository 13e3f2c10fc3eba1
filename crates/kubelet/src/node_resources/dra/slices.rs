//! Devices that this node offers although nobody is here who could prepare them: their slices are deleted.
//!
//! Drivers publish slices themselves, and do it again when they are back.
//! Source: `wipeResourceSlices` of `pkg/kubelet/cm/dra/plugin`.

use std::time::Duration;

use base::Backoff;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::Resource;
use kube::api::{DeleteParams, ListParams};

use crate::node_resources::NodeResources;

/// How long a driver may be away, as for an update. Source: `defaultWipingDelay`.
pub(super) const GRACE: Duration = Duration::from_secs(30);
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// Deletes the slices of this node's devices, of one driver or of all, as soon as the API server takes it.
pub(super) async fn wipe(resources: &NodeResources, driver: Option<&str>) {
    let node = &resources.config.node_name;
    let selector = match driver {
        Some(driver) => format!("spec.driver={driver},spec.nodeName={node}"),
        None => format!("spec.nodeName={node}"),
    };
    let slices = kube::core::Request::new(ResourceSlice::url_path(&(), None));
    let which = ListParams::default().fields(&selector);
    let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX, 0.1);
    loop {
        let deletion = slices.delete_collection(&DeleteParams::default(), &which);
        let deletion = match deletion {
            Ok(deletion) => deletion,
            Err(error) => {
                tracing::warn!(%error, selector, "slices of devices cannot be asked to go");
                return;
            }
        };
        match resources.client.request_text(deletion).await {
            Ok(_) => return,
            Err(kube::Error::Api(status)) if status.code == 404 => return,
            Err(error) => tracing::debug!(%error, selector, "slices of devices were not deleted yet"),
        }
        tokio::time::sleep(backoff.next(&resources.random)).await;
        if driver.is_some_and(|driver| resources.dra.driver(driver).is_ok()) {
            return;
        }
    }
}
