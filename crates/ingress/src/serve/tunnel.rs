//! A connection that is a WebSocket from here on: bytes, both ways, until either side ends.

use std::sync::Arc;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::plane::Plane;

/// Joins the two sides once both have switched.
pub(super) fn start(plane: &Arc<Plane>, client: OnUpgrade, backend: OnUpgrade) {
    let counted = plane.metrics.tunnel();
    plane.tasks.spawn("ingress tunnel", async move {
        let _counted = counted;
        match tokio::try_join!(client, backend) {
            Ok((client, backend)) => {
                let (mut client, mut backend) = (TokioIo::new(client), TokioIo::new(backend));
                let copied = tokio::io::copy_bidirectional(&mut client, &mut backend).await;
                if let Err(error) = copied {
                    tracing::debug!(%error, "a tunnel broke");
                }
            }
            Err(error) => tracing::debug!(%error, "a side did not switch protocols"),
        }
    });
}
