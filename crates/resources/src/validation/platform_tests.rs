//! One case per rule of the kinds that workloads stand on; the objects are as they are after defaulting.

mod admission;
mod certificates;
mod device_taints;
mod devices;
mod extension;
mod flow_control;
mod networking;
mod reviews;
mod storage;

use expect_test::{Expect, expect};

use super::*;

type Kind = (&'static str, &'static str);

fn row((group, plural): Kind) -> &'static Resource {
    crate::table().iter().find(|row| (&*row.group, &*row.plural) == (group, plural)).unwrap()
}

fn parse(yaml: &str) -> Value {
    serde_saphyr::from_str(yaml).unwrap()
}

fn shown(errors: FieldErrors) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Checks an object as a new one of the kind, with its metadata filled in.
fn check(kind: Kind, object: &str, expect: Expect) {
    expect.assert_eq(&shown(row(kind).validate_create(&named(kind, parse(object)))));
}

fn check_update(kind: Kind, old: &str, new: &str, expect: Expect) {
    let (old, new) = (named(kind, parse(old)), named(kind, parse(new)));
    expect.assert_eq(&shown(row(kind).validate_update(&new, &old)));
}

fn named(kind: Kind, mut object: Value) -> Value {
    let map = object.as_object_mut().unwrap();
    let metadata = map.entry("metadata").or_insert_with(|| serde_json::json!({}));
    let metadata = metadata.as_object_mut().unwrap();
    metadata.entry("name").or_insert_with(|| "a".into());
    if row(kind).is_namespaced() {
        metadata.insert("namespace".into(), "default".into());
    }
    object
}

const PV: Kind = ("", "persistentvolumes");
const PVC: Kind = ("", "persistentvolumeclaims");
const CLASS: Kind = ("storage.k8s.io", "storageclasses");
const DRIVER: Kind = ("storage.k8s.io", "csidrivers");
const NODE: Kind = ("storage.k8s.io", "csinodes");
const ATTACHMENT: Kind = ("storage.k8s.io", "volumeattachments");
const ATTRIBUTES: Kind = ("storage.k8s.io", "volumeattributesclasses");
const INGRESS: Kind = ("networking.k8s.io", "ingresses");
const INGRESS_CLASS: Kind = ("networking.k8s.io", "ingressclasses");
const POLICY: Kind = ("networking.k8s.io", "networkpolicies");
const IP: Kind = ("networking.k8s.io", "ipaddresses");
const CIDR: Kind = ("networking.k8s.io", "servicecidrs");
const SLICE: Kind = ("discovery.k8s.io", "endpointslices");
const CSR: Kind = ("certificates.k8s.io", "certificatesigningrequests");
const BUNDLE: Kind = ("certificates.k8s.io", "clustertrustbundles");
const WEBHOOK: Kind = ("admissionregistration.k8s.io", "validatingwebhookconfigurations");
const VAP: Kind = ("admissionregistration.k8s.io", "validatingadmissionpolicies");
const BINDING: Kind = ("admissionregistration.k8s.io", "validatingadmissionpolicybindings");
const CRD: Kind = ("apiextensions.k8s.io", "customresourcedefinitions");
const API_SERVICE: Kind = ("apiregistration.k8s.io", "apiservices");
const FLOW: Kind = ("flowcontrol.apiserver.k8s.io", "flowschemas");
const LEVEL: Kind = ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations");
const CLAIM: Kind = ("resource.k8s.io", "resourceclaims");
const DEVICE_CLASS: Kind = ("resource.k8s.io", "deviceclasses");
const DEVICES: Kind = ("resource.k8s.io", "resourceslices");

const VOLUME: &str = "{spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, persistentVolumeReclaimPolicy: Retain, volumeMode: Filesystem, hostPath: {path: /data}}}";
