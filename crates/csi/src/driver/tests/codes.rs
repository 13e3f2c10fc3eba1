//! What bad requests end with: a row per call and what is wrong with it. Source: the tables of errors in the CSI
//! specification 1.11; `pkg/sanity` of csi-test tries the same.

use super::*;

/// Rows of call, what is wrong, and the request; and the code that each is to end with.
macro_rules! check {
    ($client:ident: $($method:ident $wrong:literal $request:expr => $code:ident;)*) => {{
        let mut other = Vec::new();
        $(
            let got = $client.$method($request).await.map_or_else(|error| error.code(), |_| Code::Ok);
            if got != Code::$code {
                other.push(format!("{} {}: {got:?}", stringify!($method), $wrong));
            }
        )*
        assert_eq!(other, [""; 0]);
    }};
}

fn range(required_bytes: i64, limit_bytes: i64) -> Option<v1::CapacityRange> {
    Some(v1::CapacityRange { required_bytes, limit_bytes })
}

fn grow(id: &str, capacity_range: Option<v1::CapacityRange>) -> v1::ControllerExpandVolumeRequest {
    v1::ControllerExpandVolumeRequest { volume_id: id.into(), capacity_range, ..Default::default() }
}

fn grow_here(id: &str, path: &str) -> v1::NodeExpandVolumeRequest {
    v1::NodeExpandVolumeRequest { volume_id: id.into(), volume_path: path.into(), ..Default::default() }
}

fn stats_of(id: &str, path: &str) -> v1::NodeGetVolumeStatsRequest {
    v1::NodeGetVolumeStatsRequest { volume_id: id.into(), volume_path: path.into(), ..Default::default() }
}

fn validate(
    id: &str,
    volume_capabilities: Vec<v1::VolumeCapability>,
) -> v1::ValidateVolumeCapabilitiesRequest {
    v1::ValidateVolumeCapabilitiesRequest { volume_id: id.into(), volume_capabilities, ..Default::default() }
}

fn list(max_entries: i32, starting_token: &str) -> v1::ListVolumesRequest {
    v1::ListVolumesRequest { max_entries, starting_token: starting_token.into() }
}

fn modify(id: &str, parameter: &str) -> v1::ControllerModifyVolumeRequest {
    v1::ControllerModifyVolumeRequest {
        volume_id: id.into(),
        mutable_parameters: parameters(&[(parameter, "thin")]),
        ..Default::default()
    }
}

fn of_snapshot(name: &str) -> v1::CreateVolumeRequest {
    let source = v1::volume_content_source::SnapshotSource { snapshot_id: "s".into() };
    v1::CreateVolumeRequest {
        volume_content_source: Some(v1::VolumeContentSource {
            r#type: Some(v1::volume_content_source::Type::Snapshot(source)),
        }),
        ..create(name, 1, false)
    }
}

#[tokio::test]
async fn calls_of_the_controller_say_what_is_wrong_with_a_request() {
    let mut rig = Rig::new();
    let client = rig.start();
    client.create_volume(create("known", 1 << 20, false)).await.unwrap();
    let no_mode = v1::VolumeCapability { access_mode: None, ..capability(false, Mode::SingleNodeWriter) };
    let no_type = v1::VolumeCapability { access_type: None, ..capability(false, Mode::SingleNodeWriter) };
    let with =
        |volume_capabilities| v1::CreateVolumeRequest { volume_capabilities, ..create("new", 1, false) };
    let sized = |capacity_range| v1::CreateVolumeRequest { capacity_range, ..create("new", 1, false) };
    let parameter =
        |name| v1::CreateVolumeRequest { parameters: parameters(&[(name, "x")]), ..create("new", 1, false) };
    let mutable = |name| v1::CreateVolumeRequest {
        mutable_parameters: parameters(&[(name, "thin")]),
        ..create("new", 1, false)
    };
    let both = vec![capability(false, Mode::SingleNodeWriter), capability(true, Mode::SingleNodeWriter)];
    check!(client:
        create_volume "no name" create("", 1, false) => InvalidArgument;
        create_volume "a name that is too long" create(&"n".repeat(129), 1, false) => InvalidArgument;
        create_volume "the longest name" create(&"n".repeat(128), 1, false) => Ok;
        create_volume "no capabilities" with(Vec::new()) => InvalidArgument;
        create_volume "no access mode" with(vec![no_mode]) => InvalidArgument;
        create_volume "no access type" with(vec![no_type]) => InvalidArgument;
        create_volume "both access types" with(both) => InvalidArgument;
        create_volume "for readers on many nodes" with(vec![capability(false, Mode::MultiNodeReaderOnly)]) => InvalidArgument;
        create_volume "a negative size" sized(range(-1, 0)) => InvalidArgument;
        create_volume "larger than its limit" sized(range(2 << 20, 1 << 20)) => OutOfRange;
        create_volume "an unknown parameter" parameter("colour") => InvalidArgument;
        create_volume "an unknown mutable parameter" mutable("colour") => InvalidArgument;
        create_volume "the same again" create("known", 1 << 20, false) => Ok;
        create_volume "the same, larger" create("known", 1 << 30, false) => AlreadyExists;
        create_volume "a copy of nothing" copy("new", "", 1) => InvalidArgument;
        create_volume "a copy of what is not there" copy("new", "gone", 1) => NotFound;
        create_volume "of a snapshot" of_snapshot("new") => InvalidArgument;
        delete_volume "no id" v1::DeleteVolumeRequest::default() => InvalidArgument;
        delete_volume "not there" v1::DeleteVolumeRequest { volume_id: "gone".into(), ..Default::default() } => Ok;
        delete_volume "a path" v1::DeleteVolumeRequest { volume_id: "../known".into(), ..Default::default() } => Ok;
        validate_volume_capabilities "no id" validate("", vec![capability(false, Mode::SingleNodeWriter)]) => InvalidArgument;
        validate_volume_capabilities "no capabilities" validate("known", Vec::new()) => InvalidArgument;
        validate_volume_capabilities "not there" validate("gone", vec![capability(false, Mode::SingleNodeWriter)]) => NotFound;
        list_volumes "a token of others" list(0, "invalid-token") => Aborted;
        list_volumes "a negative number" list(-1, "") => InvalidArgument;
        controller_expand_volume "no id" grow("", range(1, 0)) => InvalidArgument;
        controller_expand_volume "no range" grow("known", None) => InvalidArgument;
        controller_expand_volume "not there" grow("gone", range(1, 0)) => NotFound;
        controller_expand_volume "larger than its limit" grow("known", range(2 << 20, 1 << 20)) => OutOfRange;
        controller_get_volume "no id" v1::ControllerGetVolumeRequest::default() => InvalidArgument;
        controller_get_volume "not there" v1::ControllerGetVolumeRequest { volume_id: "gone".into() } => NotFound;
        controller_modify_volume "no id" modify("", "allocation") => InvalidArgument;
        controller_modify_volume "not there" modify("gone", "allocation") => NotFound;
        controller_modify_volume "an unknown parameter" modify("known", "colour") => InvalidArgument;
        controller_publish_volume "not what it can" v1::ControllerPublishVolumeRequest::default() => Unimplemented;
        controller_unpublish_volume "not what it can" v1::ControllerUnpublishVolumeRequest::default() => Unimplemented;
        delete_snapshot "not what it can" v1::DeleteSnapshotRequest::default() => Unimplemented;
        list_snapshots "not what it can" v1::ListSnapshotsRequest::default() => Unimplemented;
    );
    let fits = validate("known", vec![capability(false, Mode::SingleNodeWriter)]);
    assert!(client.validate_volume_capabilities(fits).await.unwrap().confirmed.is_some());
    let shared = validate("known", vec![capability(false, Mode::MultiNodeMultiWriter)]);
    let answer = client.validate_volume_capabilities(shared).await.unwrap();
    assert!(answer.confirmed.is_none() && !answer.message.is_empty(), "{answer:?}");
    let first = client.list_volumes(list(1, "")).await.unwrap();
    let second = client.list_volumes(list(1, &first.next_token)).await.unwrap();
    assert_eq!((first.entries.len(), second.entries.len(), second.next_token.as_str()), (1, 1, ""));
}

#[tokio::test]
async fn calls_of_the_node_say_what_is_wrong_with_a_request() {
    let mut rig = Rig::new();
    let client = rig.start();
    client.create_volume(create("known", 1 << 20, false)).await.unwrap();
    let stage = |id: &str| rig.stage(id, false);
    let publish = |id: &str| rig.publish(id, false, "target");
    let nowhere = String::new;
    check!(client:
        node_stage_volume "no id" stage("") => InvalidArgument;
        node_stage_volume "no path" v1::NodeStageVolumeRequest { staging_target_path: nowhere(), ..stage("known") } => InvalidArgument;
        node_stage_volume "no capability" v1::NodeStageVolumeRequest { volume_capability: None, ..stage("known") } => InvalidArgument;
        node_stage_volume "another access type" rig.stage("known", true) => InvalidArgument;
        node_stage_volume "not there" stage("gone") => NotFound;
        node_publish_volume "no id" publish("") => InvalidArgument;
        node_publish_volume "no target" v1::NodePublishVolumeRequest { target_path: nowhere(), ..publish("known") } => InvalidArgument;
        node_publish_volume "no capability" v1::NodePublishVolumeRequest { volume_capability: None, ..publish("known") } => InvalidArgument;
        node_publish_volume "not there" publish("gone") => NotFound;
        node_publish_volume "no staging path" v1::NodePublishVolumeRequest { staging_target_path: nowhere(), ..publish("known") } => FailedPrecondition;
        node_publish_volume "not staged" publish("known") => FailedPrecondition;
        node_stage_volume "as it should be" stage("known") => Ok;
        node_publish_volume "as it should be" publish("known") => Ok;
        node_publish_volume "the same again" publish("known") => Ok;
        node_publish_volume "the same, read-only" v1::NodePublishVolumeRequest { readonly: true, ..publish("known") } => AlreadyExists;
        node_get_volume_stats "no id" stats_of("", &rig.path("target")) => InvalidArgument;
        node_get_volume_stats "no path" stats_of("known", "") => InvalidArgument;
        node_get_volume_stats "not there" stats_of("gone", &rig.path("target")) => NotFound;
        node_get_volume_stats "not at that path" stats_of("known", &rig.path("elsewhere")) => NotFound;
        node_expand_volume "no id" grow_here("", &rig.path("target")) => InvalidArgument;
        node_expand_volume "no path" grow_here("known", "") => InvalidArgument;
        node_expand_volume "not there" grow_here("gone", &rig.path("target")) => NotFound;
        node_unpublish_volume "no id" rig.unpublish("", "target") => InvalidArgument;
        node_unpublish_volume "no target" v1::NodeUnpublishVolumeRequest { volume_id: "known".into(), target_path: nowhere() } => InvalidArgument;
        node_unstage_volume "no id" rig.unstage("") => InvalidArgument;
        node_unstage_volume "no path" v1::NodeUnstageVolumeRequest { volume_id: "known".into(), staging_target_path: nowhere() } => InvalidArgument;
        node_unpublish_volume "as it should be" rig.unpublish("known", "target") => Ok;
        node_unpublish_volume "not there any more" rig.unpublish("known", "target") => Ok;
        node_unstage_volume "as it should be" rig.unstage("known") => Ok;
        node_unstage_volume "not there any more" rig.unstage("known") => Ok;
    );
}

#[tokio::test]
async fn the_driver_says_who_it_is_and_what_it_can() {
    let mut rig = Rig::new();
    let client = rig.start();
    let info = client.get_plugin_info(v1::GetPluginInfoRequest {}).await.unwrap();
    assert_eq!((info.name.as_str(), info.vendor_version.is_empty()), (NAME, false));
    assert_eq!(client.probe(v1::ProbeRequest {}).await.unwrap().ready, Some(true));
    let node = client.node_get_info(v1::NodeGetInfoRequest {}).await.unwrap();
    let place = node.accessible_topology.unwrap().segments;
    assert_eq!(place.get("topology.hostpath.csi.knarr.io/node").map(String::as_str), Some("one"));
    let can = client.get_plugin_capabilities(v1::GetPluginCapabilitiesRequest {}).await.unwrap();
    assert!(!can.capabilities.is_empty());
    // What it says that it can do, it does not call unimplemented, and the other way round: the rows above.
    let can = client.controller_get_capabilities(v1::ControllerGetCapabilitiesRequest {}).await.unwrap();
    let can = format!("{:?}", can.capabilities);
    assert!(!can.contains("PublishUnpublishVolume") && !can.contains("Snapshot"), "{can}");
}
