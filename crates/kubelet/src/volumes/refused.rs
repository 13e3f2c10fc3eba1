//! Kinds of volumes that no kubelet has any more, or this one has not, and what to do instead.
//!
//! Source: the plugins that `cmd/kubelet/app/plugins.go` of v1.35 has and has not.

use k8s_openapi::api::core::v1::{PersistentVolume, Volume};
use serde_json::Value;

use super::error::{Specific, VolumeError};

/// Kinds that nobody mounts, or that take tools of a host which only drivers bring along.
const GONE: [&str; 11] = [
    "cephfs",
    "fc",
    "flexVolume",
    "flocker",
    "gitRepo",
    "glusterfs",
    "photonPersistentDisk",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
];

/// A kind that is not, and what to do instead.
#[derive(Debug, thiserror::Error)]
#[error("failed to get Plugin from volumeSpec for volume {name:?} err=no volume plugin matched: {instead}")]
pub(super) struct Refused {
    name: String,
    instead: String,
}

impl Specific for Refused {}

/// Refuses a Pod's own volume if it cannot be.
pub(super) fn inline(volume: &Volume) -> Result<(), VolumeError> {
    let source = serde_json::to_value(volume).unwrap_or_default();
    match why(&source, &volume.name) {
        Some(refused) => Err(VolumeError::process(&volume.name)(refused)),
        None => Ok(()),
    }
}

/// Why a PersistentVolume cannot be used; none if it can.
pub(super) fn persistent(volume: &PersistentVolume) -> Option<Refused> {
    let source = serde_json::to_value(&volume.spec).unwrap_or_default();
    why(&source, volume.metadata.name.as_deref().unwrap_or_default())
}

fn why(source: &Value, name: &str) -> Option<Refused> {
    let is = |kind: &str| source.get(kind).is_some();
    let instead = if is("gitRepo") {
        "git-repo volume plugin has been disabled: clone in an init container, into an emptyDir".to_owned()
    } else {
        let kind = GONE.iter().find(|kind| is(kind))?;
        format!("{kind} needs a CSI driver")
    };
    Some(Refused { name: name.to_owned(), instead })
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_cannot_be_is_refused_with_what_can() {
        let told = |source: Value| {
            let mut volume = source;
            volume["name"] = json!("v");
            let refused = inline(&serde_json::from_value(volume).unwrap());
            refused.err().map(|error| error.to_string()).unwrap_or_default()
        };
        let all = [
            told(json!({"gitRepo": {"repository": "x"}})),
            told(json!({"rbd": {"monitors": ["x"], "image": "x"}})),
            told(json!({"fc": {}})),
            told(json!({"emptyDir": {}})),
        ];
        expect![[r#"
            Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: failed to get Plugin from volumeSpec for volume "v" err=no volume plugin matched: git-repo volume plugin has been disabled: clone in an init container, into an emptyDir
            Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: failed to get Plugin from volumeSpec for volume "v" err=no volume plugin matched: rbd needs a CSI driver
            Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: failed to get Plugin from volumeSpec for volume "v" err=no volume plugin matched: fc needs a CSI driver
        "#]].assert_eq(&all.join("\n"));
        // A driver has taken it over.
        assert_eq!(told(json!({"awsElasticBlockStore": {"volumeID": "x"}})), "");
        let volume =
            json!({"metadata": {"name": "pv"}, "spec": {"glusterfs": {"endpoints": "e", "path": "p"}}});
        expect![[r#"failed to get Plugin from volumeSpec for volume "pv" err=no volume plugin matched: glusterfs needs a CSI driver"#]].assert_eq(&persistent(&serde_json::from_value(volume).unwrap()).unwrap().to_string());
    }

    #[test]
    fn every_kind_that_is_refused_is_a_kind() {
        for kind in GONE {
            let schema = serde_json::to_value(refused_of_every_kind()).unwrap();
            assert!(schema.get(kind).is_some(), "{kind}");
        }
    }

    /// A volume of all of them at once, by the names that Rust knows them by.
    fn refused_of_every_kind() -> Volume {
        Volume {
            cephfs: Some(Default::default()),
            fc: Some(Default::default()),
            flex_volume: Some(Default::default()),
            flocker: Some(Default::default()),
            git_repo: Some(Default::default()),
            glusterfs: Some(Default::default()),
            photon_persistent_disk: Some(Default::default()),
            quobyte: Some(Default::default()),
            rbd: Some(Default::default()),
            scale_io: Some(Default::default()),
            storageos: Some(Default::default()),
            ..Volume::default()
        }
    }
}
