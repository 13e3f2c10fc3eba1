//! Which volumes this kubelet knows, where they are, and whose content they have: as upstream's plugins in `pkg/volume`.

use super::*;

fn volume(source: &str) -> Volume {
    serde_saphyr::from_str(&format!("{{name: data{source}}}")).unwrap()
}

#[test]
fn every_kind_has_its_place_and_its_owner() {
    use Content::{Foreign, Managed, Scratch};
    let own = |plugin: &str| Some(format!("/pods/u/volumes/{plugin}/data"));
    for (source, content_of, path) in [
        (", emptyDir: {}", Scratch, own("kubernetes.io~empty-dir")),
        (", emptyDir: {medium: Memory}", Scratch, own("kubernetes.io~empty-dir")),
        (", configMap: {name: c}", Managed, own("kubernetes.io~configmap")),
        (", secret: {secretName: s}", Managed, own("kubernetes.io~secret")),
        (", downwardAPI: {}", Managed, own("kubernetes.io~downward-api")),
        (", projected: {}", Managed, own("kubernetes.io~projected")),
        (", hostPath: {path: /var/log}", Foreign, Some("/var/log".to_owned())),
        (", image: {reference: a}", Foreign, None),
        (", persistentVolumeClaim: {claimName: c}", Foreign, None),
        (", ephemeral: {}", Foreign, None),
        (", csi: {driver: d}", Foreign, None),
        (", nfs: {server: s, path: /}", Foreign, None),
        (", iscsi: {targetPortal: t, iqn: i, lun: 0}", Foreign, None),
        // Nobody knows these any more, or yet.
        (", flexVolume: {driver: d}", Foreign, None),
        (", rbd: {monitors: [m], image: i}", Foreign, None),
        (", gitRepo: {repository: r}", Foreign, None),
        ("", Foreign, None),
    ] {
        let volume = volume(source);
        assert_eq!(content(&volume), content_of, "{source}");
        let found = volume_path(Path::new("/pods/u"), &volume).map(|path| path.display().to_string());
        assert_eq!(found, path, "{source}");
    }
}

#[test]
fn a_volume_that_nobody_knows_is_refused() {
    let input = VolumeInput {
        pod_dir: "/none".into(),
        sources: crate::pod::env::EnvSources::default(),
        tokens: std::collections::BTreeMap::new(),
        certificates: std::collections::BTreeMap::new(),
    };
    for source in ["", ", flexVolume: {driver: d}", ", glusterfs: {endpoints: e, path: p}"] {
        let told = prepare(&input, &volume(source)).unwrap_err().to_string();
        assert!(told.contains("no volume plugin matched"), "{told}");
    }
    // What the runtime mounts is nobody's to make.
    prepare(&input, &volume(", image: {reference: a}")).unwrap();
}
