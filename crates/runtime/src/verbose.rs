//! The answer to `verbose`: facts for people who debug, as JSON under containerd's keys, which `crictl` shows.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::images::Image;
use crate::shim::layout::{self, Started};
use crate::state::{Container, Inner, Sandbox, Status};

impl Inner {
    /// Of a sandbox: its shim, and where its network namespace is.
    pub(crate) fn sandbox_info(&self, sandbox: &Sandbox) -> HashMap<String, String> {
        let dir = self.sandbox_dir(&sandbox.id);
        let shim: Option<Started> = layout::read_json(&dir.join(layout::SHIM)).ok().flatten();
        let is_stopped = sandbox.record.is_stopped;
        info(&json!({
            "pid": shim.filter(|_| !is_stopped).map_or(0, |shim| shim.pid),
            "processStatus": if is_stopped { "deleted" } else { "running" },
            "netNamespaceClosed": is_stopped,
            "netNamespace": sandbox.record.netns.as_ref().map(|_| self.shown_netns(sandbox)),
            "runtimeHandler": sandbox.record.handler,
            "runtimeType": "knarr",
            "directory": dir,
            "resources": sandbox.config.linux.as_ref().and_then(|it| it.resources.as_ref()).map(crate::oci::limits),
        }))
    }

    /// Of a container: its first process, and the document that it was made from.
    pub(crate) fn container_info(&self, container: &Container) -> HashMap<String, String> {
        let dir = self.container_dir(container);
        let spec: Option<Value> = layout::read_json(&dir.join(layout::SPEC)).ok().flatten();
        let pid = match &*container.status.borrow() {
            Status::Running(started) => started.pid,
            Status::Created | Status::Exited { .. } => 0,
        };
        info(&json!({
            "sandboxID": container.sandbox,
            "pid": pid,
            "removing": false,
            "snapshotKey": container.id,
            "snapshotter": "overlayfs",
            "runtimeType": "knarr",
            "runtimeSpec": spec,
            "directory": dir,
        }))
    }

    /// Of the runtime itself.
    pub(crate) fn runtime_info(&self) -> HashMap<String, String> {
        let config = json!({
            "dataDir": self.config.data_dir,
            "cgroupRoot": self.config.cgroup_root,
            "runtimes": self.config.handlers,
        });
        HashMap::from([("config".to_owned(), config.to_string())])
    }
}

/// Of an image: what it says about its process, and what it is made of.
pub(crate) fn image_info(image: &Image) -> HashMap<String, String> {
    let layers = image.layers.iter().filter(|layer| !layer.starts_with(crate::images::parents::PREFIX));
    let layers = layers.map(|layer| format!("sha256:{layer}"));
    info(&json!({
        "imageSpec": {
            "config": image.config,
            "rootfs": { "type": "layers", "diff_ids": layers.collect::<Vec<_>>() },
        },
    }))
}

fn info(value: &Value) -> HashMap<String, String> {
    HashMap::from([("info".to_owned(), value.to_string())])
}
