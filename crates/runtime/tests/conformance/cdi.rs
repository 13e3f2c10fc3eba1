//! Devices by the names that drivers give them: CRI's `CDI_devices`, which the kubelet fills for claims and plugins.
#![allow(unreachable_pub)]

use std::sync::Arc;

use cri::v1;

use super::Spec;
use super::support::{Feature, Subject, container};

pub const SPECS: &[Spec] =
    &[("devices of CDI bring what their specification says", |it| Box::pin(named_devices(it)))];

/// Where subjects look for specifications, below their folders.
pub const FOLDER: &str = "cdi";

async fn named_devices(subject: Arc<Subject>) {
    if !subject.has(Feature::Cdi) {
        return;
    }
    let folder = subject.folder.join(FOLDER);
    std::fs::create_dir_all(&folder).unwrap();
    let spec = r#"{"cdiVersion": "0.6.0", "kind": "conformance.example.com/thing", "devices": [
        {"name": "one", "containerEdits": {"env": ["THING=one"],
            "deviceNodes": [{"path": "/dev/thing", "hostPath": "/dev/null", "permissions": "rw"}]}},
        {"name": "two", "containerEdits": {"env": ["OTHER=two"]}}]}"#;
    std::fs::write(folder.join("thing.json"), spec).unwrap();
    let named = |name: &str| v1::CdiDevice { name: format!("conformance.example.com/thing={name}") };
    let pod = subject.run().await;
    let mut config =
        container("main", "echo $THING $OTHER; echo text > /dev/thing && test -c /dev/thing && echo written");
    config.cdi_devices = vec![named("one"), named("two")];
    assert_eq!(pod.run(config).await, (0, "one two\nwritten".to_owned()));
    let mut config = container("missing", "true");
    config.cdi_devices = vec![named("three")];
    let error = pod.try_create(config).await.map(drop).unwrap_err().to_string();
    assert!(error.contains("unresolvable CDI devices conformance.example.com/thing=three"), "{error}");
    pod.remove().await;
}
