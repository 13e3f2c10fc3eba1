use std::sync::Arc;

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
        tokens: BTreeMap::new(),
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
    let error = prepare(&input).unwrap_err();
    assert_eq!(error, "MountVolume.SetUp failed for volume \"conf\" : configmap \"conf\" not found");
}
