//! Configuration files of the control plane, which are handed on when they change, or when a file changes that they name:
//! the API server's count again at once.
//!
//! The supervisor, which is root, hands what is in use to the control plane, which is not, together with what it names:
//! kubeconfigs, keys, certificates. A file that cannot be used is told at the start; later on, the one before it stays in
//! use, and the control plane gets the broken one too, so that it is counted there.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use apiserver::ApiServer;
use futures::future::{BoxFuture, select_all};
use serde::{Deserialize, Serialize};
use tracing::{error, info, warn};

use super::changes::Changes;
use super::encryption::hand_over;
use super::hand_over::as_control_plane;
use super::{Settings, authentication, authorization, scheduler_config};
use crate::layout::Layout;

/// The longest file that is handed over, of those that a configuration names, or is one.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// All that there are.
const ALL: [&Configuration; 3] =
    [&authentication::CONFIGURATION, &authorization::CONFIGURATION, &scheduler_config::CONFIGURATION];

/// A file, by what tells it from others.
pub(super) struct Configuration {
    /// What it is called in the log.
    pub(super) what: &'static str,
    /// What counts, in the server's folder.
    pub(super) good: &'static str,
    /// What was meant to count, and cannot be used.
    pub(super) broken: &'static str,
    /// The file, and the flag that names it.
    pub(super) named: fn(&Settings) -> Option<(&'static str, &Path)>,
    /// What is wrong with what it says.
    pub(super) check: fn(&Settings, &str, &Reader<'_>) -> Result<(), String>,
    /// Has it count; says whether it is another one than before.
    pub(super) reload:
        for<'a> fn(&'a Settings, &'a ApiServer, &'a Bundle) -> BoxFuture<'a, Result<bool, String>>,
}

/// Reads a file that a configuration names.
pub(super) type Reader<'a> = dyn Fn(&str) -> Result<String, String> + 'a;

/// A configuration, and all files that it names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bundle {
    pub(super) text: String,
    files: BTreeMap<String, String>,
}

/// What a file comes to.
struct Collected {
    bundle: Bundle,
    /// The files that it names, also those that cannot be read.
    named: BTreeSet<PathBuf>,
    /// Why it cannot be used.
    failure: Option<String>,
}

impl Bundle {
    /// A file that the configuration names.
    pub(super) fn read(&self, path: &str) -> Result<String, String> {
        self.files.get(path).cloned().ok_or_else(|| format!("open {path}: it was not handed over"))
    }

    /// What [`prepare`] has left; `folder` is the server's.
    pub(super) fn of(configuration: &Configuration, folder: &Path) -> Result<Self> {
        let path = folder.join(configuration.good);
        as_control_plane(|| Self::load(&path))
    }

    /// What was handed over.
    pub(super) fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("read {}", path.display()))
    }

    fn hand_over(&self, path: &Path) -> Result<()> {
        hand_over(&serde_json::to_vec(self)?, path)
    }
}

/// Reads a configuration with all that it names.
fn collect(path: &Path, check: impl FnOnce(&str, &Reader<'_>) -> Result<(), String>) -> Result<Collected> {
    let text = read_text(path)?;
    let (files, named) = (RefCell::new(BTreeMap::new()), RefCell::new(BTreeSet::new()));
    let failure = check(&text, &|file: &str| {
        named.borrow_mut().insert(PathBuf::from(file));
        let content = read_named(file)?;
        files.borrow_mut().insert(file.to_owned(), content.clone());
        Ok(content)
    });
    let bundle = Bundle { text, files: files.into_inner() };
    Ok(Collected { bundle, named: named.into_inner(), failure: failure.err() })
}

/// Reads a file of bounded length.
pub(super) fn read_text(path: &Path) -> Result<String> {
    let length = path.metadata().with_context(|| format!("look at {}", path.display()))?.len();
    anyhow::ensure!(length <= FILE_BYTES_MAX, "{} is longer than {FILE_BYTES_MAX} bytes", path.display());
    std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}

/// Reads a file that a configuration names, in upstream's words if that fails.
pub(super) fn read_named(path: &str) -> Result<String, String> {
    let file = Path::new(path);
    match file.metadata() {
        Ok(is) if !is.is_file() => return Err("must be a regular file".to_owned()),
        Ok(_) => {}
        Err(failure) => return Err(format!("stat {path}: {failure}")),
    }
    read_text(file).map_err(|failure| format!("{failure:#}"))
}

/// Hands the user's files over.
///
/// # Errors
/// If one cannot be read or used, or nothing can be written.
pub(super) fn prepare(settings: &Settings, layout: &Layout) -> Result<()> {
    let folder = layout.server();
    for configuration in ALL {
        let Some((flag, path)) = (configuration.named)(settings) else { continue };
        let check = |text: &str, read: &Reader<'_>| (configuration.check)(settings, text, read);
        let Collected { bundle, failure, .. } = collect(path, check).context(flag)?;
        if let Some(failure) = failure {
            anyhow::bail!("{flag}: {failure}");
        }
        as_control_plane(|| {
            std::fs::create_dir_all(folder.join("cred")).context("make the folder of credentials")
        })?;
        bundle.hand_over(&folder.join(configuration.good))?;
    }
    Ok(())
}

/// In the control plane: takes every change of the files in use. Never ends.
pub(super) async fn follow(settings: &Settings, server: &ApiServer) {
    let used = ALL.into_iter().filter(|configuration| (configuration.named)(settings).is_some());
    let followed = used.map(|configuration| {
        Box::pin(async move {
            if let Err(failure) = configuration.follow(settings, server).await {
                configuration.unheard(&failure);
            }
            std::future::pending::<()>().await;
        })
    });
    for_ever(followed.collect()).await;
}

/// In the supervisor: hands every change on to the control plane. Never ends.
pub(crate) async fn hand_on(settings: &Settings, layout: &Layout) {
    let used = ALL.into_iter().filter_map(|one| Some((one, (one.named)(settings)?.1)));
    let handed_on = used.map(|(configuration, path)| {
        Box::pin(async move {
            if let Err(failure) = configuration.hand_on(settings, path, layout).await {
                configuration.unheard(&failure);
            }
            std::future::pending::<()>().await;
        })
    });
    for_ever(handed_on.collect()).await;
}

async fn for_ever<F: Future<Output = ()> + Unpin>(all: Vec<F>) {
    match all.is_empty() {
        true => std::future::pending().await,
        false => drop(select_all(all).await),
    }
}

impl Configuration {
    fn unheard(&self, failure: &anyhow::Error) {
        let (failure, what) = (format!("{failure:#}"), self.what);
        error!(failure, what, "changes of a configuration count after a restart only");
    }

    async fn follow(&self, settings: &Settings, server: &ApiServer) -> Result<()> {
        let (good, broken) = (Path::new(self.good), Path::new(self.broken));
        let what = self.what;
        let mut changes = Changes::of(good)?;
        let mut seen = [Bundle::default(), Bundle::load(broken).unwrap_or_default()];
        loop {
            for (path, seen) in [good, broken].into_iter().zip(&mut seen) {
                // There is a broken one only sometimes.
                let Ok(bundle) = Bundle::load(path) else { continue };
                if bundle == *seen {
                    continue;
                }
                match (self.reload)(settings, server, &bundle).await {
                    Ok(true) => info!(what, "a changed configuration counts"),
                    Ok(false) => {}
                    Err(failure) => {
                        error!(failure, what, "a changed configuration cannot be used; the old one stays");
                    }
                }
                *seen = bundle;
            }
            changes.next().await?;
        }
    }

    async fn hand_on(&self, settings: &Settings, path: &Path, layout: &Layout) -> Result<()> {
        let changes = &mut Changes::of(path)?;
        let folder = layout.server();
        let mut handed_on = Bundle::of(self, &folder)?;
        let mut watched = BTreeSet::new();
        loop {
            match collect(path, |text, read| (self.check)(settings, text, read)) {
                Ok(Collected { named, .. }) if !named.is_subset(&watched) => {
                    for new in named {
                        if let Err(failure) = changes.also_of(&new) {
                            warn!(failure = format!("{failure:#}"), "changes of a file are not heard of");
                        }
                        watched.insert(new);
                    }
                    // They may have changed before.
                    continue;
                }
                Ok(Collected { bundle, .. }) if bundle == handed_on => {}
                Ok(Collected { bundle, failure, .. }) => {
                    let target = folder.join(if failure.is_none() { self.good } else { self.broken });
                    match bundle.hand_over(&target) {
                        Ok(()) => handed_on = bundle,
                        Err(failure) => {
                            error!(failure = format!("{failure:#}"), "the control plane did not get it");
                        }
                    }
                }
                Err(failure) => {
                    warn!(failure = format!("{failure:#}"), what = self.what, "a configuration is not there");
                }
            }
            changes.next().await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use apiserver::authorization_config::Authorization;

    use super::*;

    const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n";

    fn collected(path: &Path) -> Result<Collected> {
        collect(path, |text, read| {
            let parsed = Authorization::parse(text, |file: &str| Ok(read(file)?));
            parsed.map(drop).map_err(|why| base::error_chain(&why))
        })
    }

    #[test]
    fn a_configuration_is_handed_over_with_all_that_it_names() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("token"), "secret\n").unwrap();
        let kubeconfig = "{current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}], \
                          clusters: [{name: k, cluster: {server: 'https://authz.example'}}], \
                          users: [{name: u, user: {tokenFile: token}}]}";
        std::fs::write(at("hook"), kubeconfig).unwrap();
        let text = format!(
            "{HEAD}authorizers: [{{type: Webhook, name: hook, webhook: {{timeout: 3s, subjectAccessReviewVersion: v1, \
             failurePolicy: Deny, connectionInfo: {{type: KubeConfigFile, kubeConfigFile: {}}}}}}}]",
            at("hook").display()
        );
        std::fs::write(at("config"), &text).unwrap();
        let Collected { bundle, named, failure } = collected(&at("config")).unwrap();
        assert_eq!(failure, None);
        assert_eq!(bundle.files.len(), 2);
        assert_eq!(named, BTreeSet::from([at("hook"), at("token")]));
        std::fs::write(at("token"), "another\n").unwrap();
        assert_ne!(collected(&at("config")).unwrap().bundle, bundle, "what it names counts, too");
        std::fs::remove_file(at("token")).unwrap();
        let parsed = Authorization::parse(&bundle.text, |file: &str| Ok(bundle.read(file)?));
        assert_eq!(parsed.unwrap().authorizers.len(), 1, "nothing else is needed");
        let Collected { named, failure, .. } = collected(&at("config")).unwrap();
        assert!(failure.unwrap().contains("token"));
        assert!(named.contains(&at("token")), "it is heard of when it comes back");
        std::fs::write(at("hook"), vec![b' '; 2 << 20]).unwrap();
        assert!(collected(&at("config")).unwrap().failure.unwrap().contains("longer than 1048576 bytes"));
        assert!(collected(&at("gone")).is_err());
    }
}
