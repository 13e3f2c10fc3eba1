//! The readiness of the network: found out at start, when a folder of configurations or plugins changes, and when a
//! plugin has failed. Nobody asks plugins while all is well.
//!
//! A plugin that says it cannot attach Pods (CNI's STATUS) does not say when it can again: it is asked again, ever later.
//! What it speaks (VERSION) changes with its file only.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use base::{Backoff, Random, Tasks};
use sys::folder_watch::FolderWatch;
use tokio::sync::watch;
use tokio::time::timeout;

use super::Network;

const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(10);
/// So long may a file be half written before the network is not ready for it.
const SETTLING: Duration = Duration::from_millis(100);

impl Network {
    /// The reason why no Pod can be attached, if so, as far as is known.
    pub fn readiness(&self) -> watch::Receiver<Option<String>> {
        self.readiness.subscribe()
    }

    /// Keeps [`Network::readiness`] up to date until the tasks stop.
    ///
    /// # Errors
    /// The folders cannot be watched.
    pub fn follow(self: &Arc<Self>, random: Random, tasks: &Tasks) -> io::Result<()> {
        let folders = [&self.conf_dir].into_iter().chain(&self.builtin.bin_dirs);
        let watch = FolderWatch::of(folders.cloned().collect())?;
        tasks.spawn("pod network", Arc::clone(self).keep_up(watch, random));
        Ok(())
    }

    async fn keep_up(self: Arc<Self>, mut folders: FolderWatch, random: Random) {
        let mut backoff = Backoff::new(AGAIN_FIRST, AGAIN_MAX, 0.2);
        loop {
            let is_ready = self.readiness.borrow().is_none();
            let pause = if is_ready { Duration::MAX } else { backoff.next(&random) };
            tokio::select! {
                changed = folders.changed() => {
                    if let Err(error) = changed {
                        tracing::error!(%error, "the folders of the pod network are not watched any more");
                        return;
                    }
                    backoff.reset();
                    // A file that is being written is not judged.
                    if is_ready && self.look_from_task(Judgement::OnlyGood).await {
                        continue;
                    }
                    if is_ready && let Ok(Err(error)) = timeout(SETTLING, folders.changed()).await {
                        tracing::error!(%error, "the folders of the pod network are not watched any more");
                        return;
                    }
                }
                () = self.doubt.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
            self.look_from_task(Judgement::Any).await;
        }
    }

    async fn look_from_task(self: &Arc<Self>, judgement: Judgement) -> bool {
        let this = Arc::clone(self);
        let looked = tokio::task::spawn_blocking(move || this.look(judgement)).await;
        looked.unwrap_or_else(|error| {
            tracing::error!(%error, "cannot look at the pod network");
            false
        })
    }

    /// Finds out whether Pods can be attached, and says so.
    pub(super) fn look(&self, judgement: Judgement) -> bool {
        self.answers.forget_failures();
        let problem = self.status().err().map(|error| base::error_chain(&error));
        let is_ready = problem.is_none();
        if !is_ready && judgement == Judgement::OnlyGood {
            return false;
        }
        self.readiness.send_if_modified(|known| {
            if *known == problem {
                return false;
            }
            match &problem {
                Some(problem) => tracing::warn!(problem, "the pod network is not ready"),
                None => tracing::info!("the pod network is ready"),
            }
            known.clone_from(&problem);
            true
        });
        is_ready
    }
}

/// Which news are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    Any,
    OnlyGood,
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;
    use crate::attachment::{Attachment, BuiltinConfig};

    /// In the folders of a CNI that is not there yet.
    fn network(dir: &Path) -> Arc<Network> {
        let builtin = BuiltinConfig {
            cluster_id: "follow".into(),
            pod_cidrs: "10.42.0.0/24".parse().unwrap(),
            cluster_cidrs: "10.42.0.0/16".parse().unwrap(),
            mtu: None,
            state_dir: dir.join("state"),
            bin_dirs: vec![dir.join("opt/cni/bin")],
            own_bin_dir: None,
            is_fallback: false,
        };
        Arc::new(Network::load(&dir.join("etc/cni/net.d"), builtin).unwrap())
    }

    /// A plugin that says in `status` whether it is ready, and counts in `asked` how often it was asked.
    fn install(dir: &Path) {
        let (bin, net) = (dir.join("opt/cni/bin"), dir.join("etc/cni/net.d"));
        fs::create_dir_all(&bin).unwrap();
        fs::create_dir_all(&net).unwrap();
        let script = format!(
            "#!/bin/sh\ncat > /dev/null\necho $CNI_COMMAND >> {0}/asked\n\
             if [ $CNI_COMMAND = VERSION ]; then [ -e {0}/mute ] && exit 3; \
             echo '{{\"cniVersion\": \"1.1.0\", \"supportedVersions\": [\"0.4.0\", \"1.1.0\"]}}'; fi\n\
             if [ $CNI_COMMAND = STATUS ] && [ -e {0}/broken ]; then echo '{{\"code\": 50, \"msg\": \"no datastore\"}}'; exit 1; fi\n\
             if [ $CNI_COMMAND = ADD ]; then echo '{{\"code\": 11, \"msg\": \"later\"}}'; exit 1; fi\n",
            dir.display()
        );
        fs::write(dir.join("plugin"), script).unwrap();
        fs::set_permissions(dir.join("plugin"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::copy(dir.join("plugin"), bin.join("x")).unwrap();
        fs::write(dir.join("list"), r#"{"cniVersion": "1.1.0", "name": "x", "plugins": [{"type": "x"}]}"#)
            .unwrap();
    }

    async fn until(readiness: &mut watch::Receiver<Option<String>>, expect: Option<&str>) {
        let found = readiness.wait_for(|problem| match (problem, expect) {
            (Some(problem), Some(expect)) => problem.contains(expect),
            (problem, expect) => problem.is_none() == expect.is_none(),
        });
        assert!(found.await.is_ok());
    }

    #[tokio::test]
    async fn a_network_is_ready_as_soon_as_it_is_installed_and_not_when_it_is_gone() {
        let root = tempfile::tempdir().unwrap();
        let (dir, tasks) = (root.path(), Tasks::new());
        let network = network(dir);
        network.follow(Random::seeded(1), &tasks).unwrap();
        let mut readiness = network.readiness();
        until(&mut readiness, Some("cni plugin not initialized")).await;
        install(dir);
        fs::rename(dir.join("list"), dir.join("etc/cni/net.d/10-x.conflist")).unwrap();
        until(&mut readiness, None).await;
        // Renamed, as Cilium does with those of others.
        let (on, off) =
            (dir.join("etc/cni/net.d/10-x.conflist"), dir.join("etc/cni/net.d/10-x.conflist.bak"));
        fs::rename(&on, &off).unwrap();
        until(&mut readiness, Some("not initialized")).await;
        fs::rename(&off, &on).unwrap();
        until(&mut readiness, None).await;
        // One that comes before it, half of which is there for a while.
        let (other, text) = (dir.join("etc/cni/net.d/05-y.conflist"), fs::read_to_string(&on).unwrap());
        let text = text.replace(r#""name": "x""#, r#""name": "y""#);
        fs::write(&other, &text[..text.len() / 2]).unwrap();
        until(&mut readiness, Some("05-y.conflist")).await;
        fs::write(&other, &text).unwrap();
        until(&mut readiness, None).await;
        assert_eq!(network.name().unwrap(), "y");
        fs::remove_file(&other).unwrap();
        assert_eq!(network.name().unwrap(), "x");
        fs::remove_file(dir.join("opt/cni/bin/x")).unwrap();
        until(&mut readiness, Some("failed to find plugin \"x\"")).await;
        fs::copy(dir.join("plugin"), dir.join("opt/cni/bin/x")).unwrap();
        until(&mut readiness, None).await;
        fs::remove_dir_all(dir.join("etc/cni")).unwrap();
        until(&mut readiness, Some("not initialized")).await;
        tasks.stop_and_wait().await;
    }

    #[tokio::test]
    async fn a_plugin_is_asked_for_its_status_when_something_failed_and_until_it_is_well() {
        let root = tempfile::tempdir().unwrap();
        let (dir, tasks) = (root.path(), Tasks::new());
        install(dir);
        fs::rename(dir.join("list"), dir.join("etc/cni/net.d/10-x.conflist")).unwrap();
        let network = network(dir);
        network.follow(Random::seeded(1), &tasks).unwrap();
        let mut readiness = network.readiness();
        until(&mut readiness, None).await;
        assert_eq!(fs::read_to_string(dir.join("asked")).unwrap(), "VERSION\nSTATUS\n");
        fs::write(dir.join("broken"), "").unwrap();
        let (failing, pod) =
            (Arc::clone(&network), Attachment { container_id: "c".into(), ..Attachment::default() });
        let failed = tokio::task::spawn_blocking(move || failing.add(&pod)).await.unwrap().unwrap_err();
        assert_eq!(failed.to_string(), "plugin type=\"x\" name=\"x\" failed (add): later");
        until(&mut readiness, Some("failed (status): no datastore")).await;
        fs::remove_file(dir.join("broken")).unwrap();
        until(&mut readiness, None).await;
        tasks.stop_and_wait().await;
    }
    /// How often the plugin was asked for what it speaks.
    fn asked_for_version(dir: &Path) -> usize {
        let asked = fs::read_to_string(dir.join("asked")).unwrap_or_default();
        asked.lines().filter(|line| *line == "VERSION").count()
    }

    async fn add(network: &Arc<Network>) -> String {
        let network = Arc::clone(network);
        let pod = Attachment { container_id: "c".into(), ..Attachment::default() };
        tokio::task::spawn_blocking(move || network.add(&pod)).await.unwrap().unwrap_err().to_string()
    }

    #[tokio::test]
    async fn what_a_plugin_speaks_is_asked_once_for_each_file_and_never_for_a_pod() {
        let root = tempfile::tempdir().unwrap();
        let (dir, tasks) = (root.path(), Tasks::new());
        let (binary, list) = (dir.join("opt/cni/bin/x"), dir.join("etc/cni/net.d/10-x.conflist"));
        install(dir);
        fs::rename(dir.join("list"), &list).unwrap();
        let network = network(dir);
        network.follow(Random::seeded(1), &tasks).unwrap();
        let mut readiness = network.readiness();
        until(&mut readiness, None).await;
        for _ in 0..3 {
            assert_eq!(add(&network).await, "plugin type=\"x\" name=\"x\" failed (add): later");
        }
        assert_eq!(asked_for_version(dir), 1);
        // Another file, of a plugin from former times.
        let old = fs::read_to_string(&binary).unwrap().replace(r#", "1.1.0"]"#, "]");
        fs::write(dir.join("old"), old).unwrap();
        fs::set_permissions(dir.join("old"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(dir.join("old"), &binary).unwrap();
        let lacks = "plugin x does not support config version \"1.1.0\" (it speaks 0.4.0)";
        until(&mut readiness, Some(lacks)).await;
        for _ in 0..3 {
            assert_eq!(add(&network).await, lacks);
        }
        assert_eq!(asked_for_version(dir), 2);
        // A configuration that can be used in either version: the plugin is still the same.
        let both =
            r#"{"cniVersion": "1.1.0", "cniVersions": ["0.4.0"], "name": "x", "plugins": [{"type": "x"}]}"#;
        fs::write(&list, both).unwrap();
        until(&mut readiness, None).await;
        assert_eq!(asked_for_version(dir), 2);
        // A broken one.
        fs::write(dir.join("mute"), "").unwrap();
        fs::remove_file(&binary).unwrap();
        until(&mut readiness, Some("failed to find plugin")).await;
        fs::copy(dir.join("plugin"), &binary).unwrap();
        until(
            &mut readiness,
            Some("failed (version): netplugin failed with no error message: exit status: 3"),
        )
        .await;
        let before = asked_for_version(dir);
        assert!(add(&network).await.contains("failed (version)"));
        assert!(before > 2, "{before}");
        fs::remove_file(dir.join("mute")).unwrap();
        fs::copy(dir.join("plugin"), &binary).unwrap();
        until(&mut readiness, None).await;
        tasks.stop_and_wait().await;
    }
}
