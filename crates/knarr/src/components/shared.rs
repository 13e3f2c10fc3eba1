//! What the servers of one cluster must have in common before any of them can serve: the authorities, the key that
//! signs ServiceAccount tokens, and how Secrets are encrypted. It lies on the etcd cluster, sealed under the token.
//!
//! The first server makes it; of several that start at once, etcd says who was first, and the others take what is
//! there. What is there wins over what a server has in its folder, but for the encryption, whose keys an administrator
//! changes in any server's file: see [`encryption_file`] and `docs/adr/0009-what-servers-share.md`.

mod encryption_file;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use auth::bundle::{self, BundleError, Files};
use auth::pki;
use base::Random;
use jiff::Timestamp;
use store::Revision;
use store::etcd::Etcd;
use tokio::sync::watch;

pub(super) use self::encryption_file::ENCRYPTION;
use self::encryption_file::Which;
use super::authorities::{self, Authorities};
use super::hand_over::as_control_plane;
use super::{Settings, datastore};
use crate::async_runtime::AsyncRuntime;
use crate::layout::Layout;

const AUTHORITY: &str = "tls/ca.crt";
/// What is shared, in the server's folder, and how the control plane may read it.
fn shared_files() -> impl Iterator<Item = (&'static str, u32)> {
    authorities::FILES.into_iter().chain([("tls/service-account.key", 0o600)])
}

/// How often somebody else may be quicker. Each time, what they wrote has more in it.
const ROUNDS_MAX: usize = 8;

/// Agrees with the other servers, present and past; what is shared is in the server's folder afterwards.
///
/// # Errors
/// If the token is not the cluster's, etcd does not answer, or something cannot be read or written.
pub(super) fn agree(settings: &Settings, layout: &Layout, now: Timestamp) -> Result<()> {
    let token = Token::of(settings, layout)?;
    let runtime = AsyncRuntime::on_this_thread()?;
    runtime.block_on(async {
        let shelf = Shelf::reach(settings, token.clone(), layout).await?;
        let begin = |stored: &Files| as_control_plane(|| begin(settings, &layout.server(), stored, now));
        shelf.exchange(begin).await
    })?;
    if let Some(expected) = &token.authority_hash {
        let authority = as_control_plane(|| Ok(std::fs::read(layout.server().join(AUTHORITY))?))?;
        let found = authority_hash(&authority);
        if found != *expected {
            bail!(
                "--token is for a cluster with another authority: its hash is {expected}, this one's {found}"
            );
        }
    }
    pki::write_file(&layout.token(), token.secret.as_bytes(), 0o600)?;
    Ok(())
}

/// Has the other servers use the encryption that this one's file now says.
///
/// # Errors
/// If etcd does not answer, or the file cannot be used.
pub(super) async fn publish_encryption(settings: &Settings, layout: &Layout) -> Result<()> {
    let own = as_control_plane(|| {
        std::fs::read(layout.server().join(ENCRYPTION)).context("read the encryption's file")
    })?;
    let shelf = Shelf::reach(settings, Token::of(settings, layout)?, layout).await?;
    shelf
        .exchange(|stored| {
            let mut all = stored.clone();
            encryption_file::put(&mut all, own.clone());
            Ok((all, Files::new()))
        })
        .await
}

/// The other servers, as a running one sees them.
pub(super) struct Others {
    shelf: Shelf,
    changes: watch::Receiver<u64>,
}

impl Others {
    /// To be made once: it keeps a connection.
    ///
    /// # Errors
    /// If etcd does not answer.
    pub(super) async fn of(settings: &Settings, layout: &Layout) -> Result<Self> {
        let shelf = Shelf::reach(settings, Token::of(settings, layout)?, layout).await?;
        let changes = shelf.etcd.bootstrap_changes();
        Ok(Self { shelf, changes })
    }

    /// Waits until what is shared may have changed.
    pub(super) async fn changed(&mut self) {
        if self.changes.changed().await.is_err() {
            std::future::pending().await
        }
    }

    /// The encryption's file if another server has a newer one, which is in this one's folder then. `known` is what
    /// this server has told the others: a change of it that they do not know yet wins.
    ///
    /// # Errors
    /// If etcd does not answer, or it cannot be written.
    pub(super) async fn newer(&self, layout: &Layout, known: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(theirs) = self.shelf.stored().await?.1.remove(ENCRYPTION) else { return Ok(None) };
        let own = || as_control_plane(|| encryption_file::read(&layout.server()));
        if theirs == known || own()?.is_some_and(|own| own != known) {
            return Ok(None);
        }
        as_control_plane(|| encryption_file::take(&layout.server(), &theirs))?;
        Ok(Some(theirs))
    }
}

/// Takes what is stored into the folder. Returns what must be stored then, and which files are to be written here only
/// when it is: nothing may be encrypted under a key that has lost.
fn begin(settings: &Settings, folder: &Path, stored: &Files, now: Timestamp) -> Result<(Files, Files)> {
    std::fs::create_dir_all(folder.join("cred")).context("make the folder of credentials")?;
    let (mut all, mut then) = (stored.clone(), Files::new());
    if settings.args.api_server.encryption_provider_config.is_none() {
        let own = encryption_file::read(folder)?;
        match encryption_file::which(stored, own.as_deref(), is_of_cluster(folder, stored)?) {
            Which::Same => {}
            Which::Ours(own) => encryption_file::put(&mut all, own),
            Which::Theirs(theirs) => encryption_file::take(folder, &theirs)?,
            Which::New => {
                let made: Vec<u8> = encryption::keys::generate()?.into();
                encryption_file::put(&mut all, made.clone());
                then.insert(ENCRYPTION.to_owned(), made);
            }
        }
    }
    if !is_of_cluster(folder, stored)? {
        // What only another cluster has must not come into this one.
        for (name, _) in shared_files().filter(|(name, _)| !stored.contains_key(*name)) {
            remove(&folder.join(name))?;
        }
    }
    // After the keys: once it has the authority the folder counts as the cluster's.
    take(folder, stored)?;
    Authorities::load_or_create(&folder.join("tls"), now)?;
    if stored.is_empty() {
        pki::service_account_key(&folder.join("tls"))?;
    }
    for (name, content) in read(folder)? {
        all.entry(name).or_insert(content);
    }
    Ok((all, then))
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Whether the folder was this cluster's before, or nobody's.
fn is_of_cluster(folder: &Path, stored: &Files) -> Result<bool> {
    let own = read(folder)?;
    Ok(own.get(AUTHORITY).zip(stored.get(AUTHORITY)).is_none_or(|(own, stored)| own == stored))
}

/// Where the shared value lies, and what opens it.
struct Shelf {
    etcd: Etcd,
    token: Token,
    /// The server's folder.
    folder: PathBuf,
}

impl Shelf {
    async fn reach(settings: &Settings, token: Token, layout: &Layout) -> Result<Self> {
        let etcd = datastore::connect_early(&settings.args.datastore, &Random::from_system()).await?;
        Ok(Self { etcd, token, folder: layout.server() })
    }

    /// What is stored, and since which revision (0: never).
    async fn stored(&self) -> Result<(Revision, Files)> {
        let there = self.etcd.bootstrap().await.context("read what servers share")?;
        let Some(entry) = there else { return Ok((0, Files::new())) };
        let files = bundle::open(&entry.value, &self.token.secret);
        Ok((entry.revision, files.map_err(|error| explain(error, &self.token))?))
    }

    /// Changes what is stored into what `change` makes of it; begins anew if another server was quicker.
    async fn exchange(&self, change: impl Fn(&Files) -> Result<(Files, Files)>) -> Result<()> {
        for _ in 0..ROUNDS_MAX {
            let (expected, stored) = self.stored().await?;
            let (all, then) = change(&stored)?;
            if all == stored {
                return Ok(());
            }
            let sealed = bundle::seal(&all, &self.token.secret)?;
            let written = self.etcd.set_bootstrap(expected, sealed.clone().into()).await;
            if written.context("write what servers share")?.is_some_and(|entry| entry.value == sealed) {
                for (name, content) in then {
                    as_control_plane(|| Ok(pki::write_file(&self.folder.join(name), &content, 0o600)?))?;
                }
                return Ok(());
            }
        }
        bail!("other servers change what servers share again and again")
    }
}

fn read(folder: &Path) -> Result<Files> {
    let there = shared_files().filter(|(name, _)| folder.join(name).exists());
    there
        .map(|(name, _)| {
            let content = std::fs::read(folder.join(name)).with_context(|| format!("read {name}"))?;
            Ok((name.to_owned(), content))
        })
        .collect()
}

/// Writes what is stored into the folder.
fn take(folder: &Path, stored: &Files) -> Result<()> {
    let own = read(folder)?;
    for (name, mode) in shared_files() {
        let Some(content) = stored.get(name) else { continue };
        match own.get(name) {
            Some(own) if own == content => continue,
            Some(_) => tracing::warn!(file = name, "the other servers have another one: it is replaced"),
            None => {}
        }
        pki::write_file(&folder.join(name), content, mode)?;
    }
    Ok(())
}

fn explain(error: BundleError, token: &Token) -> anyhow::Error {
    match (error, token.is_new) {
        (BundleError::WrongToken, true) => anyhow::anyhow!(
            "the etcd cluster has a cluster's keys already: give that cluster's --token, which is in the file `token` \
             of its servers' folders"
        ),
        (BundleError::WrongToken, false) => anyhow::anyhow!(
            "the token is not the one of the cluster on this etcd: it is in the file `token` of its servers' folders"
        ),
        (other, _) => other.into(),
    }
}

/// What the user has given, or what there was.
#[derive(Clone)]
struct Token {
    secret: String,
    /// What the authority's certificate must be.
    authority_hash: Option<String>,
    /// Nobody has given it.
    is_new: bool,
}

impl Token {
    fn of(settings: &Settings, layout: &Layout) -> Result<Self> {
        if let Some(given) = &settings.args.token {
            return Self::parse(&given.0);
        }
        if layout.token().exists() {
            let text = std::fs::read_to_string(layout.token()).context("read the token")?;
            return Self::parse(text.trim());
        }
        Ok(Self { secret: bundle::new_token()?, authority_hash: None, is_new: true })
    }

    /// `SECRET`, or `K10HASH::server:SECRET` as k3s writes it.
    fn parse(text: &str) -> Result<Self> {
        let Some((hash, rest)) = text.strip_prefix("K10").and_then(|rest| rest.split_once("::")) else {
            return Ok(Self { secret: text.to_owned(), authority_hash: None, is_new: false });
        };
        let Some(secret) = rest.strip_prefix("server:").filter(|secret| !secret.is_empty()) else {
            bail!("--token K10...::ID.SECRET is for `knarr agent`; a server's is K10...::server:SECRET");
        };
        let (secret, hash) = (secret.to_owned(), hash.to_owned());
        Ok(Self { secret, authority_hash: Some(hash), is_new: false })
    }
}

/// The SHA-256 of the authority's certificate file, in hexadecimal. Source: k3s' tokens.
pub(crate) fn authority_hash(certificate_pem: &[u8]) -> String {
    bundle::sha256(certificate_pem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_token_is_a_secret_with_or_without_the_authoritys_hash() {
        let check = |text: &str, expected: Result<(&str, Option<&str>), &str>| {
            let token = Token::parse(text);
            let found = token.as_ref().map(|token| (token.secret.as_str(), token.authority_hash.as_deref()));
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{text}"),
                (Err(found), Err(expected)) => assert!(found.to_string().contains(expected), "{found}"),
                (found, expected) => panic!("{text}: {found:?} instead of {expected:?}"),
            }
        };
        check("secret", Ok(("secret", None)));
        check("K10abc::server:secret", Ok(("secret", Some("abc"))));
        check("K10abc::abcdef.0123456789abcdef", Err("is for `knarr agent`"));
        check("K10abc::server:", Err("is for `knarr agent`"));
        check("K10 is my secret", Ok(("K10 is my secret", None)));
    }
}
