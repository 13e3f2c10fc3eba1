mod codes;

use std::path::Path;

use parking_lot::{Mutex, MutexGuard};

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

/// A process that is being started has all that this one has open until it has begun, and holds what that is on: one test
/// after the other starts some.
static TURN: Mutex<()> = Mutex::new(());

/// A driver over its real socket, with mounts of its own: whoever makes a mount namespace from the machine's meanwhile, as
/// containers do, has no copy of them.
struct Rig {
    dir: tempfile::TempDir,
    tasks: Tasks,
    _turn: MutexGuard<'static, ()>,
}

impl Rig {
    fn new() -> Self {
        assert!(nix::unistd::geteuid().is_root(), "these tests mount: run them as root");
        let turn = TURN.lock();
        // This thread's and those that it starts, which is all of a test.
        sys::mount::own_namespace().unwrap();
        Self { dir: tempfile::tempdir().unwrap(), tasks: Tasks::new(), _turn: turn }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().canonicalize().unwrap().join(name).display().to_string()
    }

    /// Starts the driver anew, as after a kill.
    fn start(&mut self) -> Client {
        self.tasks.stop();
        self.tasks = Tasks::new();
        let config = Config {
            name: NAME.into(),
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

    /// Until the volume has no device: one in use goes with its last user, and the host may look at it, as udev does.
    async fn until_detached(&self, id: &str) {
        let image = self.dir.path().join(format!("state/volumes/{id}/disk.img"));
        let detached = async {
            while sys::loop_device::of(&image).unwrap().is_some() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), detached).await.expect("it is detached");
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
    rig.until_detached("pvc-2").await;
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
            requisite: vec![v1::Topology {
                segments: [("topology.hostpath.csi.knarr.io/node".to_owned(), "two".to_owned())].into(),
            }],
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
        ("more than there is", create("pvc-4", 1 << 60, false), Code::ResourceExhausted),
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

fn parameters(all: &[(&str, &str)]) -> std::collections::HashMap<String, String> {
    all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn image(name: &str, bytes: i64) -> v1::CreateVolumeRequest {
    v1::CreateVolumeRequest { parameters: parameters(&[("backing", "image")]), ..create(name, bytes, false) }
}

fn copy(name: &str, of: &str, bytes: i64) -> v1::CreateVolumeRequest {
    let source = v1::volume_content_source::VolumeSource { volume_id: of.to_owned() };
    v1::CreateVolumeRequest {
        volume_content_source: Some(v1::VolumeContentSource {
            r#type: Some(v1::volume_content_source::Type::Volume(source)),
        }),
        ..create(name, bytes, false)
    }
}

async fn stats(client: &Client, id: &str, path: String) -> (v1::VolumeUsage, v1::VolumeCondition) {
    let request = v1::NodeGetVolumeStatsRequest {
        volume_id: id.into(),
        volume_path: path,
        ..v1::NodeGetVolumeStatsRequest::default()
    };
    let found = client.node_get_volume_stats(request).await.unwrap();
    (found.usage[0], found.volume_condition.unwrap())
}

#[tokio::test]
async fn an_image_holds_as_much_as_it_is_large_and_grows_while_it_is_used() {
    let mut rig = Rig::new();
    let client = rig.start();
    for _ in 0..2 {
        client.create_volume(image("pvc-5", 16 << 20)).await.unwrap();
        client.node_stage_volume(rig.stage("pvc-5", false)).await.unwrap();
        client.node_publish_volume(rig.publish("pvc-5", false, "pod/mount")).await.unwrap();
    }
    let file = rig.path("pod/mount/file");
    let full = std::fs::write(&file, vec![1; 20 << 20]).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    let (before, condition) = stats(&client, "pvc-5", rig.path("pod/mount")).await;
    assert!(before.total <= 16 << 20 && before.available < 4 << 20, "{before:?}");
    assert!(!condition.abnormal, "{condition:?}");
    let range = Some(v1::CapacityRange { required_bytes: 64 << 20, limit_bytes: 0 });
    let request = v1::ControllerExpandVolumeRequest {
        volume_id: "pvc-5".into(),
        capacity_range: range,
        ..Default::default()
    };
    assert!(client.controller_expand_volume(request).await.unwrap().node_expansion_required);
    let request = v1::NodeExpandVolumeRequest {
        volume_id: "pvc-5".into(),
        volume_path: rig.path("pod/mount"),
        ..Default::default()
    };
    if let Err(error) = client.node_expand_volume(request.clone()).await {
        // Not everywhere may root resize what is mounted (CAP_SYS_RESOURCE): then it grows when it is next mounted.
        assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
        client.node_unpublish_volume(rig.unpublish("pvc-5", "pod/mount")).await.unwrap();
        client.node_unstage_volume(rig.unstage("pvc-5")).await.unwrap();
        client.node_stage_volume(rig.stage("pvc-5", false)).await.unwrap();
        client.node_publish_volume(rig.publish("pvc-5", false, "pod/mount")).await.unwrap();
        client.node_expand_volume(request).await.unwrap();
    }
    std::fs::write(&file, vec![1; 20 << 20]).unwrap();
    let (after, _) = stats(&client, "pvc-5", rig.path("pod/mount")).await;
    assert!(after.total > 32 << 20 && after.used > 20 << 20, "{after:?}");
    client.node_unpublish_volume(rig.unpublish("pvc-5", "pod/mount")).await.unwrap();
    client.node_unstage_volume(rig.unstage("pvc-5")).await.unwrap();
    rig.until_detached("pvc-5").await;
}

#[tokio::test]
async fn a_copy_has_what_its_original_had() {
    let mut rig = Rig::new();
    let client = rig.start();
    client.create_volume(create("pvc-6", 1 << 20, false)).await.unwrap();
    std::fs::write(rig.path("state/volumes/pvc-6/data/file"), "kept").unwrap();
    for _ in 0..2 {
        let made = client.create_volume(copy("pvc-7", "pvc-6", 2 << 20)).await.unwrap().volume.unwrap();
        assert!(made.content_source.is_some());
    }
    assert_eq!(std::fs::read_to_string(rig.path("state/volumes/pvc-7/data/file")).unwrap(), "kept");
    for (why, request, code) in [
        ("of nothing", copy("pvc-8", "nobody", 1 << 20), Code::NotFound),
        ("smaller", copy("pvc-8", "pvc-6", 1 << 10), Code::OutOfRange),
        (
            "of another kind",
            v1::CreateVolumeRequest {
                parameters: parameters(&[("backing", "image")]),
                ..copy("pvc-8", "pvc-6", 1 << 20)
            },
            Code::InvalidArgument,
        ),
    ] {
        assert_eq!(client.create_volume(request).await.unwrap_err().code(), code, "{why}");
    }
    assert_eq!(std::fs::read_dir(rig.path("state/volumes")).unwrap().count(), 2, "nothing half made is left");
}

/// Folders in folders until their path is longer than a path can be, the last of which has many files.
fn deeper_than_a_path(root: &Path) {
    use nix::fcntl::{AT_FDCWD, OFlag, openat};
    use nix::sys::stat::{Mode, mkdirat};
    let (name, flags) = ("d".repeat(250), OFlag::O_RDONLY | OFlag::O_DIRECTORY);
    let mut at = openat(AT_FDCWD, root, flags, Mode::empty()).unwrap();
    for _ in 0..20 {
        mkdirat(&at, name.as_str(), Mode::S_IRWXU).unwrap();
        at = openat(&at, name.as_str(), flags, Mode::empty()).unwrap();
    }
    // Each is worth a complaint, which has its path in it.
    let beside = root.join([name.as_str(); 15].join("/"));
    for number in 0..200 {
        std::fs::create_dir(beside.join(format!("{number:0>250}"))).unwrap();
    }
}

#[tokio::test]
async fn a_folder_that_nobody_can_copy_costs_little_and_leaves_nothing() {
    let mut rig = Rig::new();
    let client = rig.start();
    client.create_volume(create("pvc-20", 1 << 20, false)).await.unwrap();
    deeper_than_a_path(Path::new(&rig.path("state/volumes/pvc-20/data")));
    let used = stats(&client, "pvc-20", rig.path("state/volumes/pvc-20/data")).await.0;
    assert!(used.used >= 221 * 4096, "{used:?}: it is all counted");
    let failed = client.create_volume(copy("pvc-21", "pvc-20", 1 << 20)).await.unwrap_err();
    assert!(failed.message().contains("File name too long"), "{failed}");
    assert!(failed.message().len() < 10 << 10, "{} bytes", failed.message().len());
    let left: Vec<_> = std::fs::read_dir(rig.path("state/volumes")).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    let delete = v1::DeleteVolumeRequest { volume_id: "pvc-20".into(), ..Default::default() };
    client.delete_volume(delete).await.unwrap();
    assert_eq!(std::fs::read_dir(rig.path("state/volumes")).unwrap().count(), 0);
}

#[tokio::test]
async fn what_a_volume_is_allotted_can_be_changed() {
    use std::os::unix::fs::MetadataExt;
    let mut rig = Rig::new();
    let client = rig.start();
    client.create_volume(create("pvc-9", 8 << 20, true)).await.unwrap();
    client.create_volume(create("pvc-10", 8 << 20, false)).await.unwrap();
    let modify = |id: &str, value: &str| v1::ControllerModifyVolumeRequest {
        volume_id: id.into(),
        mutable_parameters: parameters(&[("allocation", value)]),
        ..Default::default()
    };
    let taken = || std::fs::metadata(rig.path("state/volumes/pvc-9/disk.img")).unwrap().blocks() * 512;
    client.controller_modify_volume(modify("pvc-9", "thick")).await.unwrap();
    assert!(taken() >= 8 << 20);
    client.controller_modify_volume(modify("pvc-9", "thin")).await.unwrap();
    assert!(taken() < 1 << 20);
    for (id, value, code) in [
        ("pvc-9", "huge", Code::InvalidArgument),
        ("pvc-10", "thick", Code::InvalidArgument),
        ("nobody", "thin", Code::NotFound),
    ] {
        assert_eq!(
            client.controller_modify_volume(modify(id, value)).await.unwrap_err().code(),
            code,
            "{id} {value}"
        );
    }
}

#[tokio::test]
async fn a_volume_whose_files_are_gone_says_so() {
    let mut rig = Rig::new();
    let client = rig.start();
    client.create_volume(create("pvc-11", 1 << 20, false)).await.unwrap();
    let path = rig.path("state/volumes/pvc-11");
    assert!(!stats(&client, "pvc-11", path.clone()).await.1.abnormal);
    std::fs::remove_dir(rig.path("state/volumes/pvc-11/data")).unwrap();
    let (_, condition) = stats(&client, "pvc-11", path).await;
    assert_eq!((condition.abnormal, condition.message.as_str()), (true, "the volume's files are gone"));
}

#[tokio::test]
async fn a_volume_for_a_single_writer_is_published_once() {
    let mut rig = Rig::new();
    let client = rig.start();
    for (id, made) in [
        ("pvc-12", create("pvc-12", 1 << 20, false)),
        ("pvc-13", create("pvc-13", 1 << 20, true)),
        ("pvc-14", image("pvc-14", 16 << 20)),
    ] {
        let is_block = id == "pvc-13";
        let single = Some(capability(is_block, Mode::SingleNodeSingleWriter));
        client.create_volume(made).await.unwrap();
        let stage = v1::NodeStageVolumeRequest {
            volume_capability: single.clone(),
            staging_target_path: rig.path(id),
            ..rig.stage(id, is_block)
        };
        client.node_stage_volume(stage).await.unwrap();
        let publish = |target: &str| v1::NodePublishVolumeRequest {
            volume_capability: single.clone(),
            staging_target_path: rig.path(id),
            ..rig.publish(id, is_block, &format!("{id}-{target}"))
        };
        for _ in 0..2 {
            client.node_publish_volume(publish("here")).await.unwrap();
        }
        let second = client.node_publish_volume(publish("there")).await.unwrap_err();
        assert_eq!(second.code(), Code::FailedPrecondition, "{id}");
        client.node_unpublish_volume(rig.unpublish(id, &format!("{id}-here"))).await.unwrap();
        client.node_publish_volume(publish("there")).await.unwrap();
    }
}

#[tokio::test]
async fn a_volume_that_is_being_made_is_not_removed_meanwhile() {
    let mut rig = Rig::new();
    let client = rig.start();
    let volumes = Volumes::open(&rig.dir.path().join("other")).unwrap();
    let making = volumes.begin("pvc-15").unwrap();
    assert_eq!(volumes.begin("pvc-15").err().map(|error| error.code()), Some(Code::Aborted));
    drop(making);
    volumes.begin("pvc-15").unwrap();
    // A large volume's file system takes its time: whichever comes first, nothing is left.
    let made = tokio::spawn({
        let client = client.clone();
        async move { client.create_volume(image("pvc-15", 1 << 30)).await }
    });
    let delete = || v1::DeleteVolumeRequest { volume_id: "pvc-15".into(), ..Default::default() };
    while !made.is_finished() {
        if let Err(error) = client.delete_volume(delete()).await {
            assert_eq!(error.code(), Code::Aborted, "{error}");
        }
    }
    let made = made.await.unwrap();
    assert!(made.is_ok() || made.is_err_and(|error| error.code() == Code::Aborted));
    client.delete_volume(delete()).await.unwrap();
    assert_eq!(std::fs::read_dir(rig.path("state/volumes")).unwrap().count(), 0);
}

/// A process with a copy of all mounts, as containers are while they start.
struct Holder(std::process::Child);

impl Holder {
    fn new() -> Self {
        use std::io::Read;
        let mut command = std::process::Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", "echo held; exec sleep 1000"]);
        let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
        Self(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[tokio::test]
async fn a_file_system_grows_when_it_is_mounted_although_a_container_that_starts_still_holds_it() {
    let mut rig = Rig::new();
    let client = rig.start();
    client.create_volume(image("pvc-16", 16 << 20)).await.unwrap();
    client.node_stage_volume(rig.stage("pvc-16", false)).await.unwrap();
    let holder = Holder::new();
    client.node_unstage_volume(rig.unstage("pvc-16")).await.unwrap();
    let request = v1::ControllerExpandVolumeRequest {
        volume_id: "pvc-16".into(),
        capacity_range: Some(v1::CapacityRange { required_bytes: 64 << 20, limit_bytes: 0 }),
        ..Default::default()
    };
    client.controller_expand_volume(request).await.unwrap();
    let staged = tokio::spawn({
        let (client, stage) = (client.clone(), rig.stage("pvc-16", false));
        async move { client.node_stage_volume(stage).await }
    });
    // The call is on its way, and the device is held: growing has to wait.
    let listed = client.list_volumes(v1::ListVolumesRequest::default()).await.unwrap();
    assert_eq!(listed.entries.len(), 1);
    drop(holder);
    staged.await.unwrap().unwrap();
    let (after, _) = stats(&client, "pvc-16", rig.path("stage")).await;
    assert!(after.total > 32 << 20, "{after:?}");
}
