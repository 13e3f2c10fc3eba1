//! A storage driver that needs everything: attaching, staging, growing on the node. It can be told to fail.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use base::Tasks;
use csi::{Code, Status, server, v1};
use parking_lot::Mutex;
use tokio::sync::watch;
use v1::node_service_capability::{Rpc, Type, rpc};

pub(super) const NAME: &str = "fake.example.com";

#[derive(Default)]
struct State {
    calls: Vec<String>,
    failures: BTreeMap<&'static str, (Code, &'static str)>,
    volumes_max: i64,
    used: i64,
}

/// The driver. What it was called with is written down.
pub(super) struct FakeDriver {
    state: Mutex<State>,
    changes: watch::Sender<usize>,
}

impl FakeDriver {
    /// Serves it, and tells the kubelet whose folder that is.
    pub(super) fn start(root: &Path, tasks: &Tasks) -> Arc<Self> {
        let driver = Arc::new(Self {
            state: Mutex::new(State { volumes_max: 7, ..State::default() }),
            changes: watch::channel(0).0,
        });
        let socket = root.join("plugins").join(NAME).join("csi.sock");
        server::serve(driver.clone(), &socket, tasks).unwrap();
        server::register(NAME, &socket, &root.join("plugins_registry").join("fake-reg.sock"), tasks).unwrap();
        driver
    }

    /// Has calls of that name fail from now on, or not.
    pub(super) fn fail(&self, call: &'static str, failure: Option<(Code, &'static str)>) {
        let mut state = self.state.lock();
        match failure {
            Some(failure) => state.failures.insert(call, failure),
            None => state.failures.remove(call),
        };
    }

    pub(super) fn set_volumes_max(&self, count: i64) {
        self.state.lock().volumes_max = count;
    }

    /// What was done with volumes.
    pub(super) fn calls(&self) -> Vec<String> {
        let state = self.state.lock();
        state.calls.iter().filter(|call| !call.starts_with("info")).cloned().collect()
    }

    /// Waits until something like that has been called so often.
    pub(super) async fn until(&self, what: &str, times: usize) {
        let mut changes = self.changes.subscribe();
        let called = async {
            while self.state.lock().calls.iter().filter(|call| call.contains(what)).count() < times {
                changes.changed().await.unwrap();
            }
        };
        if tokio::time::timeout(super::DEADLINE, called).await.is_err() {
            panic!("`{what}` was not called {times} times: {:#?}", self.calls());
        }
    }

    fn called(&self, call: &'static str, with: String) -> Result<(), Status> {
        let mut state = self.state.lock();
        state.calls.push(format!("{call} {with}"));
        let failure = state.failures.get(call).copied();
        drop(state);
        self.changes.send_modify(|count| *count += 1);
        match failure {
            Some((code, why)) => Err(Status::new(code, why)),
            None => Ok(()),
        }
    }
}

/// What of a map is worth telling, in order.
fn told(map: &std::collections::HashMap<String, String>) -> String {
    let sorted: BTreeMap<_, _> = map.iter().collect();
    sorted.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

impl server::Identity for FakeDriver {}
impl server::Controller for FakeDriver {}

#[async_trait]
impl server::Node for FakeDriver {
    async fn node_stage_volume(
        &self,
        request: v1::NodeStageVolumeRequest,
    ) -> csi::Result<v1::NodeStageVolumeResponse> {
        self.called("stage", format!("{} [{}]", request.volume_id, told(&request.publish_context)))?;
        Ok(v1::NodeStageVolumeResponse {})
    }

    async fn node_unstage_volume(
        &self,
        request: v1::NodeUnstageVolumeRequest,
    ) -> csi::Result<v1::NodeUnstageVolumeResponse> {
        self.called("unstage", request.volume_id)?;
        Ok(v1::NodeUnstageVolumeResponse {})
    }

    async fn node_publish_volume(
        &self,
        request: v1::NodePublishVolumeRequest,
    ) -> csi::Result<v1::NodePublishVolumeResponse> {
        let secrets = match request.secrets.is_empty() {
            true => String::new(),
            false => format!(" secrets [{}]", told(&request.secrets)),
        };
        let with = format!("{} [{}]{secrets}", request.volume_id, told(&request.volume_context));
        self.called("publish", with)?;
        let target = Path::new(&request.target_path);
        std::fs::create_dir_all(target).unwrap();
        if !sys::mount::is_mounted(&target.canonicalize().unwrap()).unwrap() {
            sys::mount::tmpfs(target, Some(1 << 20), 0o755).unwrap();
        }
        Ok(v1::NodePublishVolumeResponse {})
    }

    async fn node_unpublish_volume(
        &self,
        request: v1::NodeUnpublishVolumeRequest,
    ) -> csi::Result<v1::NodeUnpublishVolumeResponse> {
        self.called("unpublish", request.volume_id)?;
        let target = Path::new(&request.target_path);
        sys::mount::unmount(target).unwrap();
        if target.exists() {
            std::fs::remove_dir(target).unwrap();
        }
        Ok(v1::NodeUnpublishVolumeResponse {})
    }

    async fn node_expand_volume(
        &self,
        request: v1::NodeExpandVolumeRequest,
    ) -> csi::Result<v1::NodeExpandVolumeResponse> {
        let bytes = request.capacity_range.map_or(0, |range| range.required_bytes);
        let is_staged = !request.staging_target_path.is_empty();
        let is_there = Path::new(&request.volume_path).exists();
        self.called(
            "expand",
            format!("{} to {bytes} staged {is_staged} there {is_there}", request.volume_id),
        )?;
        Ok(v1::NodeExpandVolumeResponse { capacity_bytes: bytes })
    }

    async fn node_get_capabilities(
        &self,
        _: v1::NodeGetCapabilitiesRequest,
    ) -> csi::Result<v1::NodeGetCapabilitiesResponse> {
        let kinds = [rpc::Type::StageUnstageVolume, rpc::Type::ExpandVolume, rpc::Type::GetVolumeStats];
        let capability = |kind: rpc::Type| v1::NodeServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: kind.into() })),
        };
        Ok(v1::NodeGetCapabilitiesResponse { capabilities: kinds.map(capability).into() })
    }

    async fn node_get_volume_stats(
        &self,
        _: v1::NodeGetVolumeStatsRequest,
    ) -> csi::Result<v1::NodeGetVolumeStatsResponse> {
        let used = self.state.lock().used;
        let usage = v1::VolumeUsage {
            used,
            total: 10,
            available: 10 - used,
            unit: v1::volume_usage::Unit::Bytes.into(),
        };
        Ok(v1::NodeGetVolumeStatsResponse { usage: vec![usage], volume_condition: None })
    }

    async fn node_get_info(&self, _: v1::NodeGetInfoRequest) -> csi::Result<v1::NodeGetInfoResponse> {
        self.called("info", String::new())?;
        let max_volumes_per_node = self.state.lock().volumes_max;
        Ok(v1::NodeGetInfoResponse {
            node_id: "fake-n1".into(),
            max_volumes_per_node,
            accessible_topology: None,
        })
    }
}
