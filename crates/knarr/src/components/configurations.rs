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
use base::error_chain;
use futures::future::select_all;
use tracing::{error, info, warn};

use super::changes::Changes;
use super::configuration::{Bundle, Configuration, Reader, read_named, read_text};
use super::hand_over::as_control_plane;
use super::{Settings, authentication, authorization, scheduler_config};
use crate::layout::Layout;

/// All that there are.
const ALL: [&Configuration; 3] =
    [&authentication::CONFIGURATION, &authorization::CONFIGURATION, &scheduler_config::CONFIGURATION];

/// What a file comes to.
struct Collected {
    bundle: Bundle,
    /// The files that it names, also those that cannot be read.
    named: BTreeSet<PathBuf>,
    /// Why it cannot be used.
    failure: Option<anyhow::Error>,
}

/// Reads a configuration with all that it names.
fn collect(path: &Path, check: impl FnOnce(&str, &Reader<'_>) -> Result<()>) -> Result<Collected> {
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
            anyhow::bail!("{flag}: {}", error_chain(failure.as_ref()));
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
                        let failure = error_chain(failure.as_ref());
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
            Authorization::parse(text, |file: &str| Ok(read(file)?))?;
            Ok(())
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
        assert!(failure.is_none(), "{failure:?}");
        assert_eq!(bundle.files.len(), 2);
        assert_eq!(named, BTreeSet::from([at("hook"), at("token")]));
        std::fs::write(at("token"), "another\n").unwrap();
        assert_ne!(collected(&at("config")).unwrap().bundle, bundle, "what it names counts, too");
        std::fs::remove_file(at("token")).unwrap();
        let parsed = Authorization::parse(&bundle.text, |file: &str| Ok(bundle.read(file)?));
        assert_eq!(parsed.unwrap().authorizers.len(), 1, "nothing else is needed");
        let Collected { named, failure, .. } = collected(&at("config")).unwrap();
        assert!(error_chain(failure.unwrap().as_ref()).contains("token"));
        assert!(named.contains(&at("token")), "it is heard of when it comes back");
        std::fs::write(at("hook"), vec![b' '; 2 << 20]).unwrap();
        let failure = collected(&at("config")).unwrap().failure.unwrap();
        assert!(error_chain(failure.as_ref()).contains("longer than 1048576 bytes"));
        assert!(collected(&at("gone")).is_err());
    }
}
