//! Runtime handlers: the built-in one without a name, and binaries of other OCI runtimes by configuration.
//!
//! Source: CRI's `RunPodSandboxRequest.runtime_handler` and `StatusResponse.runtime_handlers`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cri::v1;
use serde::Deserialize;
use tokio::sync::OnceCell;

use crate::refusal::Refusal;

/// OCI runtimes that are taken up where they are installed, under these names.
const KNOWN: [&str; 3] = ["crun", "runc", "youki"];
/// Where they are looked for.
const PLACES: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The handlers of a runtime.
#[derive(Debug, Default)]
pub(crate) struct Handlers {
    binaries: BTreeMap<String, PathBuf>,
    /// Asked of the binaries when somebody wants to know.
    described: OnceCell<Vec<v1::RuntimeHandler>>,
}

/// OCI runtimes that are installed on this host, by name.
pub fn installed() -> BTreeMap<String, PathBuf> {
    let find =
        |name: &str| PLACES.iter().map(|place| Path::new(place).join(name)).find(|path| path.is_file());
    KNOWN.iter().filter_map(|name| Some(((*name).to_owned(), find(name)?))).collect()
}

impl Handlers {
    pub(crate) fn new(binaries: BTreeMap<String, PathBuf>) -> Self {
        Self { binaries, described: OnceCell::new() }
    }

    /// The binary of a handler; `None` is the built-in runtime.
    ///
    /// # Errors
    /// There is no such handler; the words are containerd's.
    pub(crate) fn binary(&self, name: &str) -> Result<Option<PathBuf>, Refusal> {
        if name.is_empty() {
            return Ok(None);
        }
        let unknown = || format!("failed to get sandbox runtime: no runtime for {name:?} is configured");
        self.binaries.get(name).cloned().map(Some).ok_or_else(|| Refusal::Missing(unknown()))
    }

    /// Every handler with what it can do.
    pub(crate) async fn describe(&self) -> Vec<v1::RuntimeHandler> {
        let describe = || async {
            let binaries = self.binaries.clone();
            let asked = tokio::task::spawn_blocking(move || {
                let described = |(name, binary): (&String, &PathBuf)| handler(name, features(binary));
                binaries.iter().map(described).collect::<Vec<_>>()
            });
            let built_in =
                v1::RuntimeHandlerFeatures { recursive_read_only_mounts: true, user_namespaces: true };
            let mut all = vec![handler("", built_in)];
            all.extend(asked.await.unwrap_or_default());
            all
        };
        self.described.get_or_init(describe).await.clone()
    }
}

fn handler(name: &str, features: v1::RuntimeHandlerFeatures) -> v1::RuntimeHandler {
    v1::RuntimeHandler { name: name.to_owned(), features: Some(features) }
}

/// What a binary says of itself. One that cannot say has no feature. Source: the OCI runtime specification, features.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Features {
    mount_options: Vec<String>,
    linux: LinuxFeatures,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LinuxFeatures {
    mount_extensions: MountExtensions,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MountExtensions {
    idmap: IdmapFeature,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct IdmapFeature {
    enabled: bool,
}

fn features(binary: &Path) -> v1::RuntimeHandlerFeatures {
    let asked = Command::new(binary).arg("features").stdin(Stdio::null()).stderr(Stdio::null()).output();
    let said = asked.ok().filter(|output| output.status.success());
    let said = said.and_then(|output| serde_json::from_slice::<Features>(&output.stdout).ok());
    said.map(|features| v1::RuntimeHandlerFeatures {
        recursive_read_only_mounts: features.mount_options.iter().any(|option| option == "rro"),
        user_namespaces: features.linux.mount_extensions.idmap.enabled,
    })
    .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_is_found_by_its_name() {
        let handlers = Handlers::new([("runc".to_owned(), PathBuf::from("/r"))].into());
        assert_eq!(handlers.binary("").unwrap(), None);
        assert_eq!(handlers.binary("runc").unwrap(), Some("/r".into()));
        let unknown = handlers.binary("kata").unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "failed to get sandbox runtime: no runtime for \"kata\" is configured"
        );
    }

    #[test]
    fn features_are_what_the_binary_says() {
        let dir = tempfile::tempdir().unwrap();
        let binary = dir.path().join("runtime");
        let check = |script: &str, expect: (bool, bool)| {
            std::fs::write(&binary, format!("#!/bin/sh\n{script}\n")).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&binary, mode).unwrap();
            let features = features(&binary);
            let found = (features.recursive_read_only_mounts, features.user_namespaces);
            assert_eq!(found, expect, "{script}");
        };
        check("exit 1", (false, false));
        check("echo '{\"mountOptions\": [\"ro\", \"rro\"]}'", (true, false));
        check(
            "echo '{\"mountOptions\": [], \"linux\": {\"mountExtensions\": {\"idmap\": {\"enabled\": true}}}}'",
            (false, true),
        );
    }
}
