use std::path::Path;

use super::*;
use crate::client::Client;
use crate::{Code, v1};
use v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode};

fn capability(is_block: bool, mode: Mode) -> v1::VolumeCapability {
    let access_type =
        if is_block { AccessType::Block(BlockVolume {}) } else { AccessType::Mount(MountVolume::default()) };
    v1::VolumeCapability {
        access_type: Some(access_type),
        access_mode: Some(AccessMode { mode: mode.into() }),
    }
}

fn create(name: &str, bytes: i64, is_block: bool) -> v1::CreateVolumeRequest {
    v1::CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(v1::CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
        volume_capabilities: vec![capability(is_block, Mode::SingleNodeWriter)],
        ..v1::CreateVolumeRequest::default()
    }
}

/// A driver over its real socket.
struct Rig {
    dir: tempfile::TempDir,
    tasks: Tasks,
}

impl Rig {
    fn new() -> Self {
        assert!(nix::unistd::geteuid().is_root(), "these tests mount: run them as root");
        Self { dir: tempfile::tempdir().unwrap(), tasks: Tasks::new() }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().canonicalize().unwrap().join(name).display().to_string()
    }

    /// Starts the driver anew, as after a kill.
    fn start(&mut self) -> Client {
        self.tasks.stop();
        self.tasks = Tasks::new();
        let config = Config {
            node_id: "one".into(),
            folder: self.dir.path().join("state"),
            socket: self.dir.path().join("csi.sock"),
            registration_socket: None,
            volumes_max: 0,
        };
        start(&config, &self.tasks).unwrap();
        Client::new(&config.socket)
    }

    fn stage(&self, id: &str, is_block: bool) -> v1::NodeStageVolumeRequest {
        v1::NodeStageVolumeRequest {
            volume_id: id.into(),
            staging_target_path: self.path("stage"),
            volume_capability: Some(capability(is_block, Mode::SingleNodeWriter)),
            ..Default::default()
        }
    }

    fn publish(&self, id: &str, is_block: bool, target: &str) -> v1::NodePublishVolumeRequest {
        v1::NodePublishVolumeRequest {
            volume_id: id.into(),
            staging_target_path: self.path("stage"),
            target_path: self.path(target),
            volume_capability: Some(capability(is_block, Mode::SingleNodeWriter)),
            ..Default::default()
        }
    }

    fn unpublish(&self, id: &str, target: &str) -> v1::NodeUnpublishVolumeRequest {
        v1::NodeUnpublishVolumeRequest { volume_id: id.into(), target_path: self.path(target) }
    }

    fn unstage(&self, id: &str) -> v1::NodeUnstageVolumeRequest {
        v1::NodeUnstageVolumeRequest { volume_id: id.into(), staging_target_path: self.path("stage") }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let folder = self.dir.path().canonicalize().unwrap();
        sys::mount::detach_below(&folder).unwrap();
        sys::loop_device::detach_below(&folder).unwrap();
    }
}

#[tokio::test]
async fn a_folder_goes_through_its_life_twice_over_with_kills_between() {
    let mut rig = Rig::new();
    for step in 0..2 {
        let client = rig.start();
        let volume = client.create_volume(create("pvc-1", 1 << 20, false)).await.unwrap().volume.unwrap();
        assert_eq!((volume.volume_id.as_str(), volume.capacity_bytes), ("pvc-1", 1 << 20), "step {step}");
        client.node_stage_volume(rig.stage("pvc-1", false)).await.unwrap();
    }
    for _ in 0..2 {
        let client = rig.start();
        client.node_publish_volume(rig.publish("pvc-1", false, "pod/mount")).await.unwrap();
        let read_only = v1::NodePublishVolumeRequest { readonly: true, ..rig.publish("pvc-1", false, "ro") };
        client.node_publish_volume(read_only).await.unwrap();
    }
    std::fs::write(rig.path("pod/mount/file"), "kept").unwrap();
    assert_eq!(std::fs::read_to_string(rig.path("ro/file")).unwrap(), "kept");
    assert!(std::fs::write(rig.path("ro/other"), "").is_err(), "a read-only volume takes no writes");
    let client = rig.start();
    let busy =
        client.delete_volume(v1::DeleteVolumeRequest { volume_id: "pvc-1".into(), ..Default::default() });
    assert_eq!(busy.await.unwrap_err().code(), Code::FailedPrecondition);
    for _ in 0..2 {
        let client = rig.start();
        client.node_unpublish_volume(rig.unpublish("pvc-1", "pod/mount")).await.unwrap();
        client.node_unpublish_volume(rig.unpublish("pvc-1", "ro")).await.unwrap();
        client.node_unstage_volume(rig.unstage("pvc-1")).await.unwrap();
    }
    assert!(!Path::new(&rig.path("pod/mount")).exists());
    for _ in 0..2 {
        let client = rig.start();
        let request = v1::DeleteVolumeRequest { volume_id: "pvc-1".into(), ..Default::default() };
        client.delete_volume(request).await.unwrap();
    }
    assert_eq!(std::fs::read_dir(rig.path("state/volumes")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_block_volume_is_a_device_that_grows() {
    let mut rig = Rig::new();
    let client = rig.start();
    client.create_volume(create("pvc-2", 1 << 20, true)).await.unwrap();
    for _ in 0..2 {
        client.node_stage_volume(rig.stage("pvc-2", true)).await.unwrap();
        client.node_publish_volume(rig.publish("pvc-2", true, "dev")).await.unwrap();
    }
    let size = |path: &str| {
        use std::io::Seek;
        std::fs::File::open(path).unwrap().seek(std::io::SeekFrom::End(0)).unwrap()
    };
    assert_eq!(size(&rig.path("dev")), 1 << 20);
    let range = Some(v1::CapacityRange { required_bytes: 2 << 20, limit_bytes: 0 });
    let request = v1::ControllerExpandVolumeRequest {
        volume_id: "pvc-2".into(),
        capacity_range: range,
        ..Default::default()
    };
    let grown = client.controller_expand_volume(request).await.unwrap();
    assert_eq!((grown.capacity_bytes, grown.node_expansion_required), (2 << 20, true));
    let request = v1::NodeExpandVolumeRequest {
        volume_id: "pvc-2".into(),
        volume_path: rig.path("dev"),
        capacity_range: range,
        ..Default::default()
    };
    client.node_expand_volume(request).await.unwrap();
    assert_eq!(size(&rig.path("dev")), 2 << 20);
    for _ in 0..2 {
        client.node_unpublish_volume(rig.unpublish("pvc-2", "dev")).await.unwrap();
        client.node_unstage_volume(rig.unstage("pvc-2")).await.unwrap();
    }
    let image = rig.dir.path().join("state/volumes/pvc-2/disk.img");
    assert_eq!(sys::loop_device::of(&image).unwrap(), None);
}

#[tokio::test]
async fn what_cannot_be_is_refused_with_the_right_code() {
    let mut rig = Rig::new();
    let client = rig.start();
    client.create_volume(create("pvc-3", 1 << 20, false)).await.unwrap();
    let shared = v1::CreateVolumeRequest {
        volume_capabilities: vec![capability(false, Mode::MultiNodeMultiWriter)],
        ..create("pvc-4", 1, false)
    };
    let elsewhere = v1::CreateVolumeRequest {
        accessibility_requirements: Some(v1::TopologyRequirement {
            requisite: vec![v1::Topology { segments: [(TOPOLOGY_KEY.to_owned(), "two".to_owned())].into() }],
            preferred: Vec::new(),
        }),
        ..create("pvc-4", 1, false)
    };
    for (why, request, code) in [
        ("larger than it is", create("pvc-3", 2 << 20, false), Code::AlreadyExists),
        ("of another kind", create("pvc-3", 1 << 20, true), Code::AlreadyExists),
        ("no name", create("", 1, false), Code::InvalidArgument),
        ("a path as a name", create("../x", 1, false), Code::InvalidArgument),
        ("for several nodes", shared, Code::InvalidArgument),
        ("on another node", elsewhere, Code::ResourceExhausted),
    ] {
        assert_eq!(client.create_volume(request).await.unwrap_err().code(), code, "{why}");
    }
    let missing = client.node_stage_volume(rig.stage("nobody", false)).await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
    let early = client.node_publish_volume(rig.publish("pvc-3", false, "early")).await.unwrap_err();
    assert_eq!(early.code(), Code::FailedPrecondition);
    assert_eq!(client.create_snapshot(Default::default()).await.unwrap_err().code(), Code::Unimplemented);
}

#[tokio::test]
async fn an_ephemeral_volume_comes_and_goes_with_its_pod() {
    let mut rig = Rig::new();
    let client = rig.start();
    let request = v1::NodePublishVolumeRequest {
        volume_context: [("csi.storage.k8s.io/ephemeral".to_owned(), "true".to_owned())].into(),
        ..rig.publish("csi-1", false, "inline")
    };
    client.node_publish_volume(request).await.unwrap();
    std::fs::write(rig.path("inline/file"), "").unwrap();
    client.node_unpublish_volume(rig.unpublish("csi-1", "inline")).await.unwrap();
    assert_eq!(std::fs::read_dir(rig.path("state/volumes")).unwrap().count(), 0);
}
