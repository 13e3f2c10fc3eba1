//! Who is asked whether somebody may: the file of `--authorization-config`, which counts again when it changes.
//!
//! The supervisor, which is root, hands the file in use to the control plane, which is not, together with what it names:
//! kubeconfigs, keys, certificates. A file that cannot be used is told at the start; later on, the one before it stays in
//! use, and the control plane gets the broken one too, so that it is counted there.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use apiserver::ApiServer;
use apiserver::authorization_config::{Authorization, Flags};
use cli::api_server::{ApiServerArgs, AuthorityArgs};
use serde::{Deserialize, Serialize};
use tracing::{error, info, warn};

use super::Settings;
use super::changes::Changes;
use super::encryption::hand_over;
use super::hand_over::as_control_plane;
use crate::layout::Layout;

const FLAG: &str = "--authorization-config";
/// What counts, in the server's folder.
const GOOD: &str = "cred/authorization-config.json";
/// What was meant to count, and cannot be used.
const BROKEN: &str = "cred/authorization-config-broken.json";
/// The longest file that is handed over, of those that a configuration names.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A configuration, and all files that it names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Bundle {
    text: String,
    files: BTreeMap<String, String>,
}

impl Bundle {
    /// A file that the configuration names.
    fn read(&self, path: &str) -> Result<String, String> {
        self.files.get(path).cloned().ok_or_else(|| format!("open {path}: it was not handed over"))
    }

    /// Reads a configuration with all that it names; the error says why it cannot be used.
    fn collect(path: &Path) -> Result<(Self, Option<String>)> {
        let text = read_text(path)?;
        let files = RefCell::new(BTreeMap::new());
        let parsed = Authorization::parse(&text, |file: &str| {
            let content = read_named(file)?;
            files.borrow_mut().insert(file.to_owned(), content.clone());
            Ok(content)
        });
        Ok((Self { text, files: files.into_inner() }, parsed.err()))
    }

    fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("read {}", path.display()))
    }

    fn hand_over(&self, path: &Path) -> Result<()> {
        hand_over(&serde_json::to_vec(self)?, path)
    }
}

fn read_text(path: &Path) -> Result<String> {
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

/// Hands the user's file over, if there is one.
///
/// # Errors
/// If it cannot be read or used, or nothing can be written.
pub(super) fn prepare(args: &ApiServerArgs, layout: &Layout) -> Result<()> {
    let Some(path) = &args.authorities.authorization_config else { return Ok(()) };
    let (bundle, failure) = Bundle::collect(path).context(FLAG)?;
    if let Some(failure) = failure {
        anyhow::bail!("{FLAG}: {failure}");
    }
    let folder = layout.server();
    as_control_plane(|| {
        std::fs::create_dir_all(folder.join("cred")).context("make the folder of credentials")
    })?;
    bundle.hand_over(&folder.join(GOOD))
}

/// What the flags come to; `server_folder` is where [`prepare`] has left the file.
///
/// # Errors
/// If it cannot be used.
pub(super) fn load(args: &AuthorityArgs, server_folder: &Path) -> Result<Authorization> {
    if args.authorization_config.is_some() {
        let path = server_folder.join(GOOD);
        let bundle = as_control_plane(|| Bundle::load(&path))?;
        return Authorization::parse(&bundle.text, |file: &str| bundle.read(file))
            .map_err(|why| anyhow::anyhow!("{FLAG}: {why}"));
    }
    let file = args.authorization_webhook_config_file.as_deref();
    let file = file.map(|path| path.to_str().context("--authorization-webhook-config-file is no text"));
    let seconds = |given: Option<cli::duration::GoDuration>, default: u64| {
        given.map_or(std::time::Duration::from_secs(default), |given| given.0)
    };
    let flags = Flags {
        modes: &args.authorization_mode,
        webhook_config_file: file.transpose()?,
        webhook_version: args.authorization_webhook_version.as_deref().unwrap_or("v1beta1"),
        authorized_ttl: seconds(args.authorization_webhook_cache_authorized_ttl, 300),
        unauthorized_ttl: seconds(args.authorization_webhook_cache_unauthorized_ttl, 30),
    };
    Authorization::of_flags(&flags, read_named).map_err(anyhow::Error::msg)
}

/// In the control plane: takes every change of the file in use. Ends only if it cannot be followed.
///
/// # Errors
/// That the kernel does not tell of changes.
pub(super) async fn follow(args: &AuthorityArgs, server: &ApiServer) -> Result<()> {
    if args.authorization_config.is_none() {
        return Ok(());
    }
    let (good, broken) = (Path::new(GOOD), Path::new(BROKEN));
    let mut changes = Changes::of(good)?;
    let mut seen = [Bundle::default(), Bundle::load(broken).unwrap_or_default()];
    loop {
        for (path, seen) in [good, broken].into_iter().zip(&mut seen) {
            // There is a broken one only sometimes.
            let Ok(bundle) = Bundle::load(path) else { continue };
            if bundle == *seen {
                continue;
            }
            match server.reload_authorization(&bundle.text, |file: &str| bundle.read(file)) {
                Ok(true) => info!("the changed authorization configuration counts"),
                Ok(false) => {}
                Err(failure) => {
                    error!(
                        failure,
                        "the changed authorization configuration cannot be used; the old one stays"
                    );
                }
            }
            *seen = bundle;
        }
        changes.next().await?;
    }
}

/// In the supervisor: hands every change on to the control plane. Never ends.
pub(crate) async fn hand_on(settings: &Settings, layout: &Layout) {
    if let Some(path) = &settings.args.api_server.authorities.authorization_config
        && let Err(failure) = hand_on_changes(path, layout).await
    {
        let failure = format!("{failure:#}");
        error!(failure, "changes of the authorization configuration count after a restart only");
    }
    std::future::pending().await
}

async fn hand_on_changes(path: &Path, layout: &Layout) -> Result<()> {
    let mut changes = Changes::of(path)?;
    let folder = layout.server();
    let mut handed_on = as_control_plane(|| Bundle::load(&folder.join(GOOD)))?;
    loop {
        match Bundle::collect(path) {
            Ok((bundle, _)) if bundle == handed_on => {}
            Ok((bundle, failure)) => {
                let target = folder.join(if failure.is_none() { GOOD } else { BROKEN });
                match bundle.hand_over(&target) {
                    Ok(()) => handed_on = bundle,
                    Err(failure) => {
                        error!(failure = format!("{failure:#}"), "the control plane did not get it");
                    }
                }
            }
            Err(failure) => {
                warn!(failure = format!("{failure:#}"), "the authorization configuration is not there");
            }
        }
        changes.next().await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n";

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
        let (bundle, failure) = Bundle::collect(&at("config")).unwrap();
        assert_eq!(failure, None);
        assert_eq!(bundle.files.len(), 2);
        std::fs::remove_file(at("token")).unwrap();
        let parsed = Authorization::parse(&bundle.text, |file: &str| bundle.read(file));
        assert_eq!(parsed.unwrap().authorizers.len(), 1, "nothing else is needed");
        let (_, failure) = Bundle::collect(&at("config")).unwrap();
        assert!(failure.unwrap().contains("token"));
        std::fs::write(at("hook"), vec![b' '; 2 << 20]).unwrap();
        let (_, failure) = Bundle::collect(&at("config")).unwrap();
        assert!(failure.unwrap().contains("longer than 1048576 bytes"));
        assert!(Bundle::collect(&at("gone")).is_err());
    }

    #[test]
    fn flags_without_a_file_mean_nodes_and_roles() {
        let load = |args: &AuthorityArgs| load(args, Path::new("/")).map_err(|why| why.to_string());
        assert_eq!(load(&AuthorityArgs::default()), Ok(Authorization::default()));
        let webhook = AuthorityArgs {
            authorization_mode: vec!["Webhook".to_owned()],
            authorization_webhook_config_file: Some("/gone".into()),
            ..AuthorityArgs::default()
        };
        assert!(load(&webhook).unwrap_err().starts_with("/gone: stat /gone: "));
    }
}
