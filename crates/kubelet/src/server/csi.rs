//! Calls of the controller's side of a driver on this node, for the API server alone.
//!
//! A driver whose volumes stay on their node has its controller's side there too; whoever makes volumes of it reaches it
//! through `nodes/csi`. Answers are a Status, as of the API server.

use std::collections::HashMap;

use csi::v1;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::json;
use v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};

use super::{Body, Refusal, Server, full};
use crate::kubelet::Kubelet;
use crate::volumes::persistent;

/// Most bytes of a request.
const BODY_BYTES_MAX: usize = 1 << 20;

/// One call.
#[derive(Debug, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "one at a time, which is moved once")]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "call", deny_unknown_fields)]
enum Call {
    #[serde(rename = "CreateVolume")]
    Create {
        driver: String,
        name: String,
        required_bytes: i64,
        limit_bytes: i64,
        volume_mode: String,
        access_modes: Vec<String>,
        fs_type: Option<String>,
        parameters: HashMap<String, String>,
        mutable_parameters: HashMap<String, String>,
        topology: HashMap<String, String>,
        /// The volume to copy.
        source_volume_id: Option<String>,
    },
    #[serde(rename = "DeleteVolume")]
    Delete { driver: String, volume_id: String },
    #[serde(rename = "ControllerExpandVolume")]
    Expand { driver: String, volume_id: String, required_bytes: i64 },
    #[serde(rename = "ControllerModifyVolume")]
    Modify { driver: String, volume_id: String, mutable_parameters: HashMap<String, String> },
}

impl Call {
    fn driver(&self) -> &str {
        match self {
            Self::Create { driver, .. }
            | Self::Delete { driver, .. }
            | Self::Expand { driver, .. }
            | Self::Modify { driver, .. } => driver,
        }
    }
}

/// Makes the call.
pub(super) async fn call(
    server: &Server,
    request: http::Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    if request.method() != http::Method::POST {
        return Err(Refusal(StatusCode::METHOD_NOT_ALLOWED, "405 method not allowed".into()));
    }
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await;
    let body = body.map_err(|error| Refusal::bad_request(error.to_string()))?.to_bytes();
    let call: Call =
        serde_json::from_slice(&body).map_err(|error| Refusal::bad_request(error.to_string()))?;
    // A driver that is not here is the caller's mistake, or has yet to come: nothing failed.
    let failed = match server.context.volumes.csi.get(call.driver()) {
        Ok(_) => StatusCode::INTERNAL_SERVER_ERROR,
        Err(_) => StatusCode::BAD_REQUEST,
    };
    let made = make(&server.context, call).await;
    server.context.volumes.csi.upkeep.notify_one();
    let (code, status) = told(made, failed);
    let mut response = Response::new(full(status.to_string()));
    *response.status_mut() = code;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    Ok(response)
}

/// A Status, and the code that it is sent with; `failed` is that of a failure.
fn told(made: Result<(), csi::Status>, failed: StatusCode) -> (StatusCode, serde_json::Value) {
    let Err(status) = made else {
        let success = json!({"kind": "Status", "apiVersion": "v1", "status": "Success"});
        return (StatusCode::CREATED, success);
    };
    let message = format!("rpc error: code = {:?} desc = {}", status.code(), status.message());
    let reason = if failed.is_client_error() { "BadRequest" } else { "InternalError" };
    let failure = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "message": message, "reason": reason, "code": failed.as_u16(),
    });
    (failed, failure)
}

async fn make(context: &Kubelet, call: Call) -> Result<(), csi::Status> {
    let client =
        |driver: &str| Ok::<_, csi::Status>(context.volumes.csi.get(driver).map(|driver| driver.client)?);
    match call {
        Call::Create {
            driver,
            name,
            required_bytes,
            limit_bytes,
            volume_mode,
            access_modes,
            fs_type,
            parameters,
            mutable_parameters,
            topology,
            source_volume_id,
        } => {
            let fs_type = fs_type.unwrap_or_default();
            let access_type = || match volume_mode.as_str() {
                "Block" => AccessType::Block(BlockVolume {}),
                _ => AccessType::Mount(MountVolume { fs_type: fs_type.clone(), ..MountVolume::default() }),
            };
            let capability = |mode: &String| v1::VolumeCapability {
                access_type: Some(access_type()),
                access_mode: Some(AccessMode { mode: persistent::access_mode(Some(mode), true).into() }),
            };
            let topology = vec![v1::Topology { segments: topology }];
            let request = v1::CreateVolumeRequest {
                name,
                capacity_range: Some(v1::CapacityRange { required_bytes, limit_bytes }),
                volume_capabilities: access_modes.iter().map(capability).collect(),
                parameters,
                mutable_parameters,
                volume_content_source: source_volume_id.map(copy_of),
                accessibility_requirements: Some(v1::TopologyRequirement {
                    requisite: topology.clone(),
                    preferred: topology,
                }),
                ..v1::CreateVolumeRequest::default()
            };
            client(&driver)?.create_volume(request).await.map(drop)
        }
        Call::Delete { driver, volume_id } => {
            let request = v1::DeleteVolumeRequest { volume_id, ..v1::DeleteVolumeRequest::default() };
            client(&driver)?.delete_volume(request).await.map(drop)
        }
        Call::Expand { driver, volume_id, required_bytes } => {
            let request = v1::ControllerExpandVolumeRequest {
                volume_id: volume_id.clone(),
                capacity_range: Some(v1::CapacityRange { required_bytes, limit_bytes: 0 }),
                ..v1::ControllerExpandVolumeRequest::default()
            };
            let grown = client(&driver)?.controller_expand_volume(request).await?;
            if grown.node_expansion_required {
                persistent::grow(&context.volumes, &driver, &volume_id, grown.capacity_bytes).await?;
            }
            Ok(())
        }
        Call::Modify { driver, volume_id, mutable_parameters } => {
            let request = v1::ControllerModifyVolumeRequest {
                volume_id,
                mutable_parameters,
                ..v1::ControllerModifyVolumeRequest::default()
            };
            client(&driver)?.controller_modify_volume(request).await.map(drop)
        }
    }
}

fn copy_of(volume_id: String) -> v1::VolumeContentSource {
    let source = v1::volume_content_source::VolumeSource { volume_id };
    v1::VolumeContentSource { r#type: Some(v1::volume_content_source::Type::Volume(source)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_with_its_code() {
        let (code, status) = told(Err(csi::Status::unavailable("no driver")), StatusCode::BAD_REQUEST);
        assert_eq!((code, &status["code"], &status["reason"]), (code, &400.into(), &"BadRequest".into()));
        assert_eq!(status["message"], "rpc error: code = Unavailable desc = no driver");
        let (code, status) = told(Err(csi::Status::unavailable("gone")), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!((code.as_u16(), &status["reason"]), (500, &"InternalError".into()));
        assert_eq!(told(Ok(()), StatusCode::BAD_REQUEST).0, StatusCode::CREATED);
    }

    #[test]
    fn calls_are_what_they_say_and_nothing_else() {
        for (text, expect) in [
            (r#"{"call": "DeleteVolume", "driver": "d", "volumeId": "v"}"#, Some("d")),
            (
                r#"{"call": "ControllerExpandVolume", "driver": "d", "volumeId": "v", "requiredBytes": 1}"#,
                Some("d"),
            ),
            (
                r#"{"call": "ControllerModifyVolume", "driver": "d", "volumeId": "v", "mutableParameters": {}}"#,
                Some("d"),
            ),
            (
                r#"{"call": "CreateVolume", "driver": "e", "name": "n", "requiredBytes": 1, "limitBytes": 0,
                    "volumeMode": "Block", "accessModes": [], "fsType": null, "parameters": {"a": "b"},
                    "mutableParameters": {}, "topology": {}, "sourceVolumeId": "s"}"#,
                Some("e"),
            ),
            (r#"{"call": "DeleteVolume", "driver": "d"}"#, None),
            (r#"{"call": "DeleteVolume", "driver": "d", "volumeId": "v", "other": 1}"#, None),
            (r#"{"call": "DeleteVolume", "driver": "d", "volume_id": "v"}"#, None),
            (
                r#"{"call": "ControllerExpandVolume", "driver": "d", "volumeId": "v", "requiredBytes": "1"}"#,
                None,
            ),
            (r#"{"call": "NodePublishVolume", "driver": "d", "volumeId": "v"}"#, None),
            (r#"{"driver": "d", "volumeId": "v"}"#, None),
            ("[]", None),
            ("", None),
        ] {
            let call = serde_json::from_str::<Call>(text).ok();
            assert_eq!(call.as_ref().map(Call::driver), expect, "{text}");
        }
    }

    #[test]
    fn a_copy_is_of_a_volume() {
        let source = copy_of("v1".into());
        let v1::volume_content_source::Type::Volume(volume) = source.r#type.unwrap() else {
            panic!("it is of something else");
        };
        assert_eq!(volume.volume_id, "v1");
    }
}
