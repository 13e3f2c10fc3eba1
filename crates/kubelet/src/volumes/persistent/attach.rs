//! Waits until a volume is attached to the node, or the node turns out to be full.

use std::time::Duration;

use controller::request;
use controller::volume::{attachment_name, unique_name};
use csi::{Code, v1};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, Node};
use k8s_openapi::api::storage::v1::VolumeAttachment;

use super::prepared::Phase;
use super::resolve::Resolved;
use super::wishes::Wishes;
use crate::volumes::Volumes;
use crate::volumes::csi::{Driver, registration};
use crate::volumes::error::{Specific, VolumeError};

/// The Node says that the volume is attached, and the attachment does not.
#[derive(Debug, thiserror::Error)]
#[error("volume attachment {0} is not attached")]
struct NotAttached(String);

impl Specific for NotAttached {}

/// How long one try waits for the attacher.
const ATTACH_MAX: Duration = Duration::from_secs(20);
/// How long a volume may wait for room on its node. Source: `podAttachAndMountTimeout`.
const ROOM_MAX: SignedDuration = SignedDuration::from_secs(123);

/// The volume's attachment, once the Node says that it is attached.
pub(super) async fn attached(
    volumes: &Volumes,
    resolved: &Resolved,
    source: &CSIPersistentVolumeSource,
    driver: &Driver,
    wishes: &Wishes,
) -> Result<VolumeAttachment, VolumeError> {
    let if_not =
        async { if wishes.counts_again { refuse_if_full(volumes, source, driver).await } else { Ok(()) } };
    until_attached(volumes, &resolved.name, &unique_name(source), if_not).await?;
    attachment(volumes, source).await.map_err(Phase::Attach.failed(resolved))
}

/// Has the Node say that it uses a volume, and waits until it says that it is attached; what is to be looked at before
/// that is `if_not`.
pub(super) async fn until_attached(
    volumes: &Volumes,
    name: &str,
    unique: &str,
    if_not: impl Future<Output = Result<(), VolumeError>>,
) -> Result<(), VolumeError> {
    volumes.csi.set_in_use(volumes, unique, true).await?;
    let own = controller::Scope {
        field_selector: Some(format!("metadata.name={}", volumes.config.node_name)),
        ..controller::Scope::default()
    };
    let node = volumes.informers.scoped::<Node>(own);
    let mut changes = node.subscribe();
    let is_attached = || {
        let known = node.get(&volumes.config.node_name);
        let attached = known.as_ref().and_then(|node| node.status.as_ref()?.volumes_attached.as_ref());
        attached.is_some_and(|all| all.iter().any(|one| one.name == unique))
    };
    if !is_attached() {
        if_not.await?;
    }
    let waiting = async {
        while !is_attached() {
            changes.next().await;
        }
    };
    let waited = tokio::time::timeout(ATTACH_MAX, waiting).await;
    waited.map_err(|_late| VolumeError::NotAttached(name.to_owned()))
}

/// Has a Pod fail whose volume the node has had no room for since long: its owner makes another one, which goes where there
/// is room, for the node says by then how much it has. Source: `VerifyExhaustedResource`, KEP-4876.
async fn refuse_if_full(
    volumes: &Volumes,
    source: &CSIPersistentVolumeSource,
    driver: &Driver,
) -> Result<(), VolumeError> {
    let name = attachment_name(source, &volumes.config.node_name);
    let found = request::find::<VolumeAttachment>(&volumes.client, "", &name).await?;
    if !found.is_some_and(|found| is_exhausted(&found, volumes.clock.now())) {
        return Ok(());
    }
    let told = async {
        let info = driver.client.node_get_info(v1::NodeGetInfoRequest {}).await?;
        registration::update_count(volumes, &source.driver, info.max_volumes_per_node).await?;
        Ok::<_, VolumeError>(())
    };
    if let Err(error) = told.await {
        tracing::info!(%error, driver = source.driver, "the node did not say how many volumes it may have");
    }
    Err(VolumeError::AttachmentLimit)
}

/// Whether a volume has been wanted for long, and the node has no room for it.
fn is_exhausted(attachment: &VolumeAttachment, now: Timestamp) -> bool {
    let error = attachment.status.as_ref().and_then(|status| status.attach_error.as_ref());
    let since = attachment.metadata.creation_timestamp.as_ref();
    error.and_then(|error| error.error_code) == Some(Code::ResourceExhausted as i32)
        && since.is_some_and(|since| now.duration_since(since.0) >= ROOM_MAX)
}

/// The volume's attachment to this node, which must be attached.
pub(super) async fn attachment(
    volumes: &Volumes,
    source: &CSIPersistentVolumeSource,
) -> Result<VolumeAttachment, VolumeError> {
    let name = attachment_name(source, &volumes.config.node_name);
    let found = request::get::<VolumeAttachment>(&volumes.client, "", &name).await?;
    match found.status.as_ref().is_some_and(|status| status.attached) {
        true => Ok(found),
        false => Err(NotAttached(name).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_full_when_a_volume_has_waited_for_room() {
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
        for (created, error, expect) in [
            ("2026-01-01T00:07:57Z", "{errorCode: 8}", true),
            ("2026-01-01T00:07:58Z", "{errorCode: 8}", false),
            ("2026-01-01T00:00:00Z", "{errorCode: 14}", false),
            ("2026-01-01T00:00:00Z", "{message: full}", false),
            ("2026-01-01T00:00:00Z", "null", false),
        ] {
            let text = format!(
                "{{metadata: {{creationTimestamp: '{created}'}}, status: {{attached: false, attachError: {error}}}}}"
            );
            let attachment = serde_saphyr::from_str(&text).unwrap();
            assert_eq!(is_exhausted(&attachment, now), expect, "{created} {error}");
        }
    }
}
