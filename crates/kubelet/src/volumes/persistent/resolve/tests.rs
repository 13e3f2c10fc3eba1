use super::*;

fn yaml<T: serde::de::DeserializeOwned>(text: &str) -> T {
    serde_saphyr::from_str(text).unwrap()
}

/// Source: `getPVCExtractPV` of upstream's `pkg/kubelet/volumemanager/populator`, `TestFindAndAddNewPods_*` there.
#[test]
fn a_claim_is_of_use_once_it_is_bound() {
    const ANNOTATED: &str = "annotations: {pv.kubernetes.io/bind-completed: 'yes'}";
    for (name, metadata, spec, status, expect) in [
        ("bound", "", "volumeName: pv", "phase: Bound", Ok("pv")),
        ("bound by hand", ANNOTATED, "volumeName: pv", "phase: Bound", Ok("pv")),
        (
            "the binder is through, and the status is to follow",
            ANNOTATED,
            "volumeName: pv",
            "phase: Pending",
            Ok("pv"),
        ),
        ("without any status yet", ANNOTATED, "volumeName: pv", "", Ok("pv")),
        ("a volume is asked for", "", "volumeName: pv", "phase: Pending", Err("PVC is not bound")),
        ("nothing is known", "", "", "", Err("PVC is not bound")),
        ("its volume is gone", ANNOTATED, "volumeName: pv", "phase: Lost", Err("PVC is not bound")),
        ("bound to nothing", "", "", "phase: Bound", Err("PVC has empty pvc.Spec.VolumeName")),
        (
            "it is being deleted",
            "deletionTimestamp: '2026-01-01T00:00:00Z'",
            "volumeName: pv",
            "phase: Bound",
            Err("PVC is being deleted"),
        ),
    ] {
        let claim: PersistentVolumeClaim =
            yaml(&format!("{{metadata: {{{metadata}}}, spec: {{{spec}}}, status: {{{status}}}}}"));
        let found = bound_to(&claim).map_err(|error| error.to_string());
        assert_eq!(found, expect.map_err(str::to_owned), "{name}");
    }
}

/// Source: `getPVSpec` of upstream's `pkg/kubelet/volumemanager/populator`.
#[test]
fn a_volume_must_say_that_it_is_for_the_claim() {
    let claim: PersistentVolumeClaim = yaml("{metadata: {name: data, namespace: shop, uid: c1}}");
    for (name, spec, expect) in [
        ("it does", "claimRef: {name: data, namespace: shop, uid: c1}", ""),
        (
            "for nobody",
            "",
            "found PV object pv but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim",
        ),
        (
            "for an earlier claim of that name",
            "claimRef: {name: data, namespace: shop, uid: c0}",
            "found PV object pv but its pv.Spec.ClaimRef.UID c0 does not point to claim.UID c1",
        ),
        (
            "kept for one of that name",
            "claimRef: {name: data, namespace: shop}",
            "found PV object pv but its pv.Spec.ClaimRef.UID  does not point to claim.UID c1",
        ),
    ] {
        let volume: PersistentVolume = yaml(&format!("{{metadata: {{name: pv}}, spec: {{{spec}}}}}"));
        let found = check_reference(&volume, &claim).map_err(|error| error.to_string());
        assert_eq!(found.err().unwrap_or_default(), expect, "{name}");
    }
}

/// Source: `TestCreateVolumeSpec_*` of upstream's `pkg/kubelet/volumemanager/populator`.
#[test]
fn folders_are_mounted_and_devices_are_not() {
    const MOUNT: &str = "volumeMounts: [{name: v, mountPath: /mnt}]";
    const DEVICE: &str = "volumeDevices: [{name: v, devicePath: /dev/sdb}]";
    const IN_MOUNTS: &str = "volume v has volumeMode Block, but is specified in volumeMounts";
    const IN_DEVICES: &str = "volume v has volumeMode Filesystem, but is specified in volumeDevices";
    for (name, mode, container, init, expect) in [
        ("a folder that is mounted", "volumeMode: Filesystem", MOUNT, "", ""),
        ("of a volume that does not say", "", MOUNT, "", ""),
        ("a device", "volumeMode: Block", DEVICE, "", ""),
        ("a folder as a device", "volumeMode: Filesystem", DEVICE, "", IN_DEVICES),
        ("of a volume that does not say, as a device", "", DEVICE, "", IN_DEVICES),
        ("a device that is mounted", "volumeMode: Block", MOUNT, "", IN_MOUNTS),
        ("a device that an init container mounts", "volumeMode: Block", DEVICE, MOUNT, IN_MOUNTS),
        ("a folder that is a device of an init container", "", MOUNT, DEVICE, IN_DEVICES),
        ("nobody has it", "volumeMode: Block", "tty: true", "", ""),
        (
            "another volume is mounted",
            "volumeMode: Block",
            "volumeMounts: [{name: w, mountPath: /mnt}]",
            "",
            "",
        ),
    ] {
        let pod: Pod = yaml(&format!(
            "{{spec: {{containers: [{{name: a, {container}}}], initContainers: [{{name: i, {init}}}]}}}}"
        ));
        let volume: PersistentVolume = yaml(&format!("{{spec: {{{mode}}}}}"));
        let found = check_mode(&pod, &yaml("{name: v}"), &volume).map_err(|error| error.to_string());
        assert_eq!(found.err().unwrap_or_default(), expect, "{name}");
    }
}

#[test]
fn a_volume_is_what_its_spec_has() {
    for (name, spec, asked, expect) in [
        ("a driver's", "csi: {driver: d, volumeHandle: h}", false, "Csi"),
        ("only to be read", "csi: {driver: d, volumeHandle: h, readOnly: true}", false, "Csi read-only"),
        ("only read by this Pod", "csi: {driver: d, volumeHandle: h}", true, "Csi read-only"),
        ("a folder of the node", "local: {path: /disks/1}", false, "Local"),
        ("a path of the node", "hostPath: {path: /data}", false, "HostPath"),
        ("a server's", "nfs: {server: s, path: /}", false, "Nfs"),
        ("a server's, only to be read", "nfs: {server: s, path: /, readOnly: true}", false, "Nfs read-only"),
        (
            "a server's disk",
            "iscsi: {targetPortal: t, iqn: i, lun: 0, readOnly: true}",
            false,
            "Iscsi read-only",
        ),
        ("none of these", "{}", false, "no volume plugin matched for PersistentVolume pv"),
    ] {
        let spec = if spec == "{}" { "tty: 1" } else { spec };
        let volume: PersistentVolume = yaml(&format!("{{metadata: {{name: pv}}, spec: {{{spec}}}}}"));
        let found = match of_volume("data", None, volume, asked) {
            Err(error) => error.to_string(),
            Ok(found) => {
                let kind = format!("{:?}", found.source);
                let kind = kind.split(['(', ' ']).next().unwrap_or_default();
                assert_eq!((found.name.as_str(), found.own_name.as_str()), ("pv", "data"), "{name}");
                format!("{kind}{}", if found.read_only { " read-only" } else { "" })
            }
        };
        assert_eq!(found, expect, "{name}");
    }
}

#[test]
fn a_pods_own_volume_is_told_from_every_other() {
    let pod =
        |uid: &str| -> Pod { yaml(&format!("{{metadata: {{name: web, namespace: shop, uid: {uid}}}}}")) };
    let volume = |name: &str| -> Volume {
        yaml(&format!(
            "{{name: {name}, csi: {{driver: d, fsType: ext4, nodePublishSecretRef: {{name: s}}, volumeAttributes: {{a: b}}}}}}"
        ))
    };
    let of = |uid: &str, name: &str| {
        let volume = volume(name);
        inline_source(&pod(uid), &volume, volume.csi.as_ref().unwrap())
    };
    let found = of("u1", "v");
    assert_eq!((found.driver.as_str(), found.fs_type.as_deref()), ("d", Some("ext4")));
    assert_eq!(found.volume_attributes.as_ref().unwrap()["a"], "b");
    let secret = found.node_publish_secret_ref.clone().unwrap();
    assert_eq!((secret.name.as_deref(), secret.namespace.as_deref()), (Some("s"), Some("shop")));
    assert!(found.volume_handle.starts_with("csi-"), "{}", found.volume_handle);
    assert_eq!(found.volume_handle, of("u1", "v").volume_handle, "the same whenever it is asked");
    assert_ne!(found.volume_handle, of("u2", "v").volume_handle);
    assert_ne!(found.volume_handle, of("u1", "w").volume_handle);
    let disk: ISCSIVolumeSource =
        yaml("{targetPortal: t, iqn: i, lun: 3, secretRef: {name: chap}, portals: [p]}");
    let disk = inline_disk(&disk, "shop");
    let secret = disk.secret_ref.clone().unwrap();
    assert_eq!((secret.name.as_deref(), secret.namespace.as_deref()), (Some("chap"), Some("shop")));
    assert_eq!((disk.lun, disk.portals.as_deref()), (3, Some(&["p".to_owned()][..])));
}

/// Source: `TestGetExtraSupplementalGroupsForPod` of upstream's `pkg/kubelet/volumemanager`.
#[test]
fn a_volume_may_say_which_group_its_files_are_for() {
    for (annotations, expect) in [
        ("{pv.beta.kubernetes.io/gid: '777'}", Some(777)),
        ("{pv.beta.kubernetes.io/gid: a}", None),
        ("{pv.beta.kubernetes.io/gid: ''}", None),
        ("{pv.kubernetes.io/gid: '777'}", None),
        ("{}", None),
    ] {
        let volume = yaml(&format!(
            "{{metadata: {{name: pv, annotations: {annotations}}}, spec: {{hostPath: {{path: /a}}}}}}"
        ));
        assert_eq!(of_volume("data", None, volume, false).unwrap().group(), expect, "{annotations}");
    }
}
