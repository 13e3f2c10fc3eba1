use std::path::Path;
use std::sync::Arc;

use super::folder::set_mode;
use super::*;

fn input(dir: &Path, pod: &str, config: &str) -> VolumeInput {
    let config: k8s_openapi::api::core::v1::ConfigMap = serde_saphyr::from_str(config).unwrap();
    VolumeInput {
        pod_dir: dir.join("pod"),
        sources: EnvSources {
            pod: Arc::new(serde_saphyr::from_str(pod).unwrap()),
            config_maps: [("conf".to_owned(), Arc::new(config))].into(),
            ..EnvSources::default()
        },
        ..VolumeInput::default()
    }
}

const POD: &str = "{metadata: {name: web, labels: {app: web}}, spec: {containers: [{name: c}], volumes: [
    {name: conf, configMap: {name: conf}},
    {name: info, downwardAPI: {items: [{path: a/labels, fieldRef: {fieldPath: metadata.labels}}]}},
    {name: scratch, emptyDir: {}}]}}";

#[test]
fn files_appear_through_the_data_link_and_are_replaced_at_once() {
    let dir = tempfile::tempdir().unwrap();
    prepare(&input(dir.path(), POD, "{data: {a: one, b: two}}")).unwrap();
    let volume = dir.path().join("pod/volumes/kubernetes.io~configmap/conf");
    assert_eq!(std::fs::read_to_string(volume.join("a")).unwrap(), "one");
    assert_eq!(std::fs::read_link(volume.join("a")).unwrap(), Path::new("..data/a"));
    let before = std::fs::read_link(volume.join("..data")).unwrap();
    prepare(&input(dir.path(), POD, "{data: {a: one, b: two}}")).unwrap();
    assert_eq!(
        std::fs::read_link(volume.join("..data")).unwrap(),
        before,
        "nothing changed, nothing written"
    );
    prepare(&input(dir.path(), POD, "{data: {a: new}}")).unwrap();
    assert_eq!(std::fs::read_to_string(volume.join("a")).unwrap(), "new");
    assert!(!volume.join("b").exists() && !volume.join(before).exists());
    let info = dir.path().join("pod/volumes/kubernetes.io~downward-api/info/a/labels");
    assert_eq!(std::fs::read_to_string(info).unwrap(), "app=\"web\"");
    tear_down(&dir.path().join("pod")).unwrap();
    assert!(!dir.path().join("pod").exists());
}

#[test]
fn a_missing_source_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut input = input(dir.path(), POD, "{}");
    input.sources.config_maps.clear();
    let error = prepare(&input).unwrap_err().to_string();
    assert_eq!(error, "MountVolume.SetUp failed for volume \"conf\" : configmap \"conf\" not found");
}

#[test]
fn what_a_kill_left_of_a_write_is_finished() {
    let dir = tempfile::tempdir().unwrap();
    prepare(&input(dir.path(), POD, "{data: {a: one}}")).unwrap();
    let volume = dir.path().join("pod/volumes/kubernetes.io~configmap/conf");
    // It came before the links, or before what it had written was in use.
    std::fs::remove_file(volume.join("a")).unwrap();
    std::fs::create_dir(volume.join("..v7")).unwrap();
    prepare(&input(dir.path(), POD, "{data: {a: one}}")).unwrap();
    assert_eq!(std::fs::read_to_string(volume.join("a")).unwrap(), "one");
    assert!(!volume.join("..v7").exists());
}

#[test]
fn an_empty_dir_is_there_as_a_whole() {
    use std::os::unix::fs::MetadataExt;
    let pod = "{spec: {securityContext: {fsGroup: 2000}, containers: [{name: c}], volumes: [
        {name: disk, emptyDir: {}}, {name: memory, emptyDir: {medium: Memory}}]}}";
    let dir = tempfile::tempdir().unwrap();
    let volumes = dir.path().join("pod/volumes/kubernetes.io~empty-dir");
    // A kill came in the middle; after a reboot, nothing is mounted at what is there.
    std::fs::create_dir_all(volumes.join("disk~new")).unwrap();
    set_mode(&volumes.join("disk~new"), 0o700).unwrap();
    std::fs::create_dir(volumes.join("memory")).unwrap();
    for _ in 0..2 {
        prepare(&input(dir.path(), pod, "{}")).unwrap();
        for (name, mode) in [("disk", 0o2777), ("memory", 0o3777)] {
            let found = volumes.join(name).metadata().unwrap();
            assert_eq!((found.mode() & 0o7777, found.gid()), (mode, 2000), "{name}");
        }
    }
    assert!(!volumes.join("disk~new").exists());
    tear_down(&dir.path().join("pod")).unwrap();
}

#[test]
fn memory_is_for_all_users_and_each_removes_its_own_only() {
    use std::os::unix::fs::MetadataExt;
    let pod = "{spec: {containers: [{name: c}], volumes: [{name: memory, emptyDir: {medium: Memory}}]}}";
    let dir = tempfile::tempdir().unwrap();
    prepare(&input(dir.path(), pod, "{}")).unwrap();
    let path = dir.path().join("pod/volumes/kubernetes.io~empty-dir/memory");
    assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o1777);
    tear_down(&dir.path().join("pod")).unwrap();
}

#[test]
fn huge_pages_are_mounted_for_whoever_asks_for_them() {
    use std::os::unix::fs::MetadataExt;
    let pod = "{spec: {securityContext: {fsGroup: 2000}, containers: [{name: c, resources: {requests: {hugepages-2Mi: 4Mi}}}],
        volumes: [{name: pages, emptyDir: {medium: HugePages}}]}}";
    let dir = tempfile::tempdir().unwrap();
    if !Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB").exists() {
        let error = prepare(&input(dir.path(), pod, "{}")).unwrap_err().to_string();
        assert!(error.contains("mount hugetlbfs on"), "{error}");
        return;
    }
    for _ in 0..2 {
        prepare(&input(dir.path(), pod, "{}")).unwrap();
    }
    let path = dir.path().join("pod/volumes/kubernetes.io~empty-dir/pages");
    let mounts = sys::mount::mounts().unwrap();
    let mounts: Vec<_> = mounts.into_iter().filter(|mount| mount.target == path).collect();
    assert_eq!((mounts.len(), mounts[0].fs_type.as_str()), (1, "hugetlbfs"));
    assert!(mounts[0].super_options.contains("pagesize=2M"), "{:?}", mounts[0]);
    let found = path.metadata().unwrap();
    assert_eq!((found.mode() & 0o7777, found.gid()), (0o2777, 2000));
    tear_down(&dir.path().join("pod")).unwrap();
    assert!(!path.exists());
}
