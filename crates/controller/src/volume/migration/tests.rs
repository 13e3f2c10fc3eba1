mod translations;

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;

fn parse<T: serde::de::DeserializeOwned>(yaml: &str) -> T {
    serde_saphyr::from_str(yaml).expect("valid YAML")
}

/// The translation's spec, and what it is called.
fn shown(translated: Option<Result<PersistentVolume, TranslationError>>) -> String {
    match translated {
        None => "not migrated".to_owned(),
        Some(Err(error)) => error.to_string(),
        Some(Ok(volume)) => {
            let name = volume.metadata.name.unwrap_or_default();
            let mut spec = json!(volume.spec);
            let csi = spec["csi"].take();
            spec.as_object_mut().unwrap().remove("csi");
            format!("{name}\n{csi}\n{spec}")
        }
    }
}

/// A PersistentVolume `pv` with this in its spec, and this beside its name.
fn check(spec: &str, meta: &str, expect: Expect) {
    let volume = parse(&format!("{{metadata: {{name: pv{meta}}}, spec: {{{spec}}}}}"));
    expect.assert_eq(&shown(persistent(&volume)));
}

/// A Pod's own volume `v` with this in it, in the namespace `web`.
fn check_inline(source: &str, expect: Expect) {
    expect.assert_eq(&shown(inline(&parse(&format!("{{name: v, {source}}}")), "web")));
}

/// What is called of a volume with these labels and this affinity.
fn check_topology(source: &str, labels: &str, terms: &str, expect: Value) {
    let volume: PersistentVolume = parse(&format!(
        "{{metadata: {{name: pv, labels: {{{labels}}}}}, spec: {{{source}, nodeAffinity: {{required: {{nodeSelectorTerms: [{terms}]}}}}}}}}"
    ));
    let new = persistent(&volume).unwrap().unwrap();
    assert_eq!(new.metadata, volume.metadata, "labels stay");
    let wanted = new.spec.unwrap().node_affinity.and_then(|affinity| affinity.required);
    let terms = wanted.into_iter().flat_map(|all| all.node_selector_terms);
    let asked: Vec<Value> = terms
        .map(|term| {
            term.match_expressions.into_iter().flatten().map(|one| json!([one.key, one.values])).collect()
        })
        .collect();
    assert_eq!(json!(asked), expect, "{source} {labels} {terms:?}", terms = asked);
}

#[test]
fn a_disk_of_amazon_goes_by_its_id() {
    check(
        "awsElasticBlockStore: {volumeID: vol-1, fsType: ext4, partition: 2, readOnly: true}, accessModes: [ReadWriteOnce], storageClassName: gp2",
        "",
        expect![[r#"
            pv
            {"driver":"ebs.csi.aws.com","fsType":"ext4","readOnly":true,"volumeAttributes":{"partition":"2"},"volumeHandle":"vol-1"}
            {"accessModes":["ReadWriteOnce"],"storageClassName":"gp2"}"#]],
    );
    check(
        "awsElasticBlockStore: {volumeID: 'aws:///vol-1'}",
        "",
        expect![[r#"
        pv
        {"driver":"ebs.csi.aws.com","volumeAttributes":{"partition":"0"},"volumeHandle":"vol-1"}
        {}"#]],
    );
    check(
        "awsElasticBlockStore: {volumeID: 'aws://us-east-1a/vol-1'}",
        "",
        expect![[r#"
        pv
        {"driver":"ebs.csi.aws.com","volumeAttributes":{"partition":"0"},"volumeHandle":"vol-1"}
        {}"#]],
    );
    check(
        "awsElasticBlockStore: {volumeID: 'aws://us-east-1a/x/vol-1'}",
        "",
        expect![
            "failed to translate in-tree pv to CSI: failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume (aws://us-east-1a/x/vol-1)"
        ],
    );
    check_inline(
        "awsElasticBlockStore: {volumeID: 'aws://us-east-1a/vol-1'}",
        expect![[r#"
        ebs.csi.aws.com-vol-1
        {"driver":"ebs.csi.aws.com","volumeAttributes":{"partition":"0"},"volumeHandle":"vol-1"}
        {"accessModes":["ReadWriteOnce"],"volumeMode":"Filesystem"}"#]],
    );
}

#[test]
fn a_disk_of_google_goes_by_its_zone_or_region() {
    let disk = "gcePersistentDisk: {pdName: d, partition: 1}, accessModes: [ReadOnlyMany, ReadWriteMany]";
    check(
        disk,
        "",
        expect![[r#"
        pv
        {"driver":"pd.csi.storage.gke.io","volumeAttributes":{"partition":"1"},"volumeHandle":"projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"}
        {"accessModes":["ReadWriteOnce"]}"#]],
    );
    let zone = ", labels: {failure-domain.beta.kubernetes.io/zone: us-east1-a}";
    check(
        disk,
        zone,
        expect![[r#"
        pv
        {"driver":"pd.csi.storage.gke.io","volumeAttributes":{"partition":"1"},"volumeHandle":"projects/UNSPECIFIED/zones/us-east1-a/disks/d"}
        {"accessModes":["ReadWriteOnce"],"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"topology.gke.io/zone","operator":"In","values":["us-east1-a"]}]}]}}}"#]],
    );
    let zones = ", labels: {topology.kubernetes.io/zone: us-east1-b__us-east1-a}";
    check(
        disk,
        zones,
        expect![[r#"
        pv
        {"driver":"pd.csi.storage.gke.io","volumeAttributes":{"partition":"1"},"volumeHandle":"projects/UNSPECIFIED/regions/us-east1/disks/d"}
        {"accessModes":["ReadWriteOnce"],"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"topology.gke.io/zone","operator":"In","values":["us-east1-a","us-east1-b"]}]}]}}}"#]],
    );
    check(
        disk,
        ", labels: {topology.kubernetes.io/zone: a__b}",
        expect![
            "failed to translate in-tree pv to CSI: failed to get region from zones: zone in unexpected format, expected: {locale}-{region}-{zone}, got: a"
        ],
    );
    check(
        disk,
        ", labels: {topology.kubernetes.io/zone: a-b-c__d-e-f}",
        expect![[
            r#"failed to translate in-tree pv to CSI: failed to get region from zones: multiple or no regions gotten from zones, got: {"a-b", "d-e"}"#
        ]],
    );
    check(
        "gcePersistentDisk: {pdName: d, readOnly: true}, accessModes: [ReadOnlyMany]",
        "",
        expect![[r#"
            pv
            {"driver":"pd.csi.storage.gke.io","readOnly":true,"volumeAttributes":{"partition":""},"volumeHandle":"projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"}
            {"accessModes":["ReadOnlyMany"]}"#]],
    );
    check_inline(
        "gcePersistentDisk: {pdName: d, readOnly: true}",
        expect![[r#"
        pd.csi.storage.gke.io-d
        {"driver":"pd.csi.storage.gke.io","readOnly":true,"volumeAttributes":{"partition":""},"volumeHandle":"projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"}
        {"accessModes":["ReadOnlyMany"],"volumeMode":"Filesystem"}"#]],
    );
}

#[test]
fn a_disk_of_azure_is_managed() {
    let source = "azureDisk: {diskName: d, diskURI: /subscriptions/s/d, cachingMode: None, fsType: xfs, kind: Managed, readOnly: false}";
    check(
        source,
        "",
        expect![[r#"
        pv
        {"driver":"disk.csi.azure.com","fsType":"xfs","readOnly":false,"volumeAttributes":{"cachingmode":"None","fstype":"xfs","kind":"Managed"},"volumeHandle":"/subscriptions/s/d"}
        {}"#]],
    );
    check(
        "azureDisk: {diskName: d, diskURI: u, kind: Dedicated}",
        "",
        expect!["failed to translate in-tree pv to CSI: kind(Dedicated) is not supported in csi migration"],
    );
    check_inline(
        source,
        expect![[r#"
            /subscriptions/s/d
            {"driver":"disk.csi.azure.com","fsType":"xfs","readOnly":false,"volumeAttributes":{"cachingmode":"None","fstype":"xfs","kind":"Managed"},"volumeHandle":"/subscriptions/s/d"}
            {"accessModes":["ReadWriteOnce"],"volumeMode":"Filesystem"}"#]],
    );
}

#[test]
fn a_share_of_azure_brings_its_secret() {
    let group = ", annotations: {kubernetes.io/azure-file-resource-group: rg}";
    check(
        "azureFile: {secretName: azure-storage-account-acc-secret, shareName: s, secretNamespace: n}",
        group,
        expect![[r#"
            pv
            {"driver":"file.csi.azure.com","nodeStageSecretRef":{"name":"azure-storage-account-acc-secret","namespace":"n"},"volumeAttributes":{"sharename":"s"},"volumeHandle":"rg#acc#s#pv#n"}
            {}"#]],
    );
    check(
        "azureFile: {secretName: mine, shareName: s}, claimRef: {namespace: web, name: c}",
        "",
        expect![[r##"
            pv
            {"driver":"file.csi.azure.com","nodeStageSecretRef":{"name":"mine","namespace":"web"},"volumeAttributes":{"sharename":"s"},"volumeHandle":"#mine#s#pv#web"}
            {"claimRef":{"name":"c","namespace":"web"}}"##]],
    );
    check(
        "azureFile: {secretName: mine, shareName: s}",
        "",
        expect![
            "failed to translate in-tree pv to CSI: could not find a secret namespace in PersistentVolumeSource or ClaimRef"
        ],
    );
    check_inline(
        "azureFile: {secretName: mine, shareName: s, readOnly: true}",
        expect![[r##"
        #mine#s#v#web
        {"driver":"file.csi.azure.com","nodeStageSecretRef":{"name":"mine","namespace":"web"},"readOnly":true,"volumeAttributes":{"sharename":"s"},"volumeHandle":"#mine#s#v#web"}
        {"accessModes":["ReadWriteMany"],"volumeMode":"Filesystem"}"##]],
    );
}

#[test]
fn disks_of_openstack_vsphere_and_portworx_go_by_their_ids() {
    check(
        "cinder: {volumeID: id, fsType: ext4}",
        "",
        expect![[r#"
        pv
        {"driver":"cinder.csi.openstack.org","fsType":"ext4","volumeHandle":"id"}
        {}"#]],
    );
    check_inline(
        "cinder: {volumeID: id}",
        expect![[r#"
        cinder.csi.openstack.org-id
        {"driver":"cinder.csi.openstack.org","volumeHandle":"id"}
        {"accessModes":["ReadWriteOnce"],"volumeMode":"Filesystem"}"#]],
    );
    check(
        "vsphereVolume: {volumePath: '[d] a/b.vmdk', storagePolicyName: gold}",
        "",
        expect![[r#"
        pv
        {"driver":"csi.vsphere.vmware.com","volumeAttributes":{"storagepolicyname":"gold"},"volumeHandle":"[d] a/b.vmdk"}
        {}"#]],
    );
    check_inline(
        "vsphereVolume: {volumePath: '[d] a/b.vmdk'}",
        expect![[r#"
        csi.vsphere.vmware.com-[d] a/b.vmdk
        {"driver":"csi.vsphere.vmware.com","volumeHandle":"[d] a/b.vmdk"}
        {"accessModes":["ReadWriteOnce"],"volumeMode":"Filesystem"}"#]],
    );
    let secret =
        ", annotations: {openstorage.io/auth-secret-name: s, openstorage.io/auth-secret-namespace: n}";
    check(
        "portworxVolume: {volumeID: id, fsType: ext4, readOnly: true}",
        secret,
        expect![[r#"
        pv
        {"controllerExpandSecretRef":{"name":"s","namespace":"n"},"controllerPublishSecretRef":{"name":"s","namespace":"n"},"driver":"pxd.portworx.com","fsType":"ext4","nodeExpandSecretRef":{"name":"s","namespace":"n"},"nodePublishSecretRef":{"name":"s","namespace":"n"},"nodeStageSecretRef":{"name":"s","namespace":"n"},"volumeHandle":"id"}
        {}"#]],
    );
    check_inline(
        "portworxVolume: {volumeID: id, readOnly: true}",
        expect![[r#"
        pxd.portworx.com-id
        {"driver":"pxd.portworx.com","volumeHandle":"id"}
        {"accessModes":["ReadOnlyMany"],"volumeMode":"Filesystem"}"#]],
    );
}

#[test]
fn what_drivers_have_not_taken_over_stays_as_it_is() {
    check("nfs: {server: s, path: /}", "", expect!["not migrated"]);
    check("csi: {driver: ebs.csi.aws.com, volumeHandle: vol-1}", "", expect!["not migrated"]);
    check("rbd: {monitors: [m], image: i}", "", expect!["not migrated"]);
    check_inline("emptyDir: {}", expect!["not migrated"]);
}

#[test]
fn places_are_called_what_the_driver_calls_them() {
    let aws = "awsElasticBlockStore: {volumeID: vol-1}";
    let term = |key: &str| format!("{{matchExpressions: [{{key: {key}, operator: In, values: [a]}}]}}");
    let (ga, beta) = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone");
    let own = "topology.ebs.csi.aws.com/zone";
    check_topology(aws, "", "", json!([]));
    check_topology(aws, "", &term(ga), json!([[[own, ["a"]]]]));
    check_topology(aws, "", &term(beta), json!([[[own, ["a"]]]]));
    check_topology(aws, &format!("{ga}: b__a"), "", json!([[[own, ["a", "b"]]]]));
    check_topology(aws, &format!("{beta}: c"), "", json!([[[own, ["c"]]]]));
    // Both terms have to be in the zone; what the affinity says comes before labels.
    let two = format!("{}, {}", term("x"), term("y"));
    check_topology(
        aws,
        &format!("{ga}: b"),
        &two,
        json!([[["x", ["a"]], [own, ["b"]]], [["y", ["a"]], [own, ["b"]]]]),
    );
    check_topology(aws, &format!("{ga}: b"), &term(ga), json!([[[own, ["a"]]]]));
    let region = format!("{}, {}", term(beta), term("failure-domain.beta.kubernetes.io/region"));
    check_topology(aws, "", &region, json!([[[own, ["a"]]], [["topology.kubernetes.io/region", ["a"]]]]));
    let vsphere = "vsphereVolume: {volumePath: p}";
    check_topology(
        vsphere,
        &format!("{ga}: z, topology.kubernetes.io/region: r"),
        "",
        json!([[["topology.csi.vmware.com/zone", ["z"]], ["topology.csi.vmware.com/region", ["r"]]]]),
    );
    check_topology(
        "cinder: {volumeID: v}",
        "",
        &term(ga),
        json!([[["topology.cinder.csi.openstack.org/zone", ["a"]]]]),
    );
    check_topology("azureDisk: {diskName: d, diskURI: u}", "", &term(ga), json!([[[ga, ["a"]]]]));
}

#[test]
fn plugins_have_drivers() {
    let all = plugins();
    let shown: Vec<_> =
        all.split(',').map(|plugin| format!("{plugin}: {}", driver_of(plugin).unwrap())).collect();
    expect![[r#"
        kubernetes.io/aws-ebs: ebs.csi.aws.com
        kubernetes.io/azure-disk: disk.csi.azure.com
        kubernetes.io/azure-file: file.csi.azure.com
        kubernetes.io/cinder: cinder.csi.openstack.org
        kubernetes.io/gce-pd: pd.csi.storage.gke.io
        kubernetes.io/portworx-volume: pxd.portworx.com
        kubernetes.io/vsphere-volume: csi.vsphere.vmware.com"#]]
    .assert_eq(&shown.join("\n"));
    assert!(plugins().split(',').is_sorted());
    assert_eq!(driver_of("kubernetes.io/no-provisioner"), None);
    assert_eq!(plugin_of(&parse("{spec: {cinder: {volumeID: v}}}")), Some("kubernetes.io/cinder"));
    assert!(is_migrated(&parse("{name: v, azureFile: {secretName: s, shareName: s}}")));
    assert!(!is_migrated(&parse("{name: v, hostPath: {path: /}}")));
}
