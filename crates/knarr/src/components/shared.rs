//! What the servers of one cluster must have in common before any of them can serve: the authority, the key that
//! signs ServiceAccount tokens, and how Secrets are encrypted. It lies on the etcd cluster, sealed under the token.
//!
//! The first server makes it; of several that start at once, etcd says who was first, and the others take what is
//! there. What is there wins over what a server has in its folder, but for the encryption: its keys are changed by
//! changing the servers' files, and whoever starts last says what a new server gets. See `docs/adr/0009-what-servers-share.md`.

use std::path::Path;

use anyhow::{Context, Result, bail};
use auth::bundle::{self, BundleError, Files};
use auth::pki::{self, Authority};
use base::Random;
use jiff::Timestamp;
use store::etcd::Etcd;

use super::encryption::OWN as ENCRYPTION;
use super::{Settings, datastore};
use crate::layout::Layout;

/// What is shared, in the server's folder, and how the control plane may read it.
const FILES: [(&str, u32); 4] =
    [("tls/ca.crt", 0o644), ("tls/ca.key", 0o600), ("tls/service-account.key", 0o600), (ENCRYPTION, 0o600)];
/// How often somebody else may be quicker. Each time, what they wrote has more in it.
const ROUNDS_MAX: usize = 8;

/// Agrees with the other servers, present and past; what is shared is in the server's folder afterwards.
///
/// # Errors
/// If the token is not the cluster's, etcd does not answer, or something cannot be written.
pub(super) fn agree(settings: &Settings, layout: &Layout, now: Timestamp) -> Result<()> {
    let token = Token::of(settings, layout)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let etcd = datastore::connect_early(&settings.args.datastore, &Random::from_system()).await?;
        let makes_key = settings.args.api_server.encryption_provider_config.is_none();
        exchange(&etcd, &token, (&layout.server(), makes_key), now).await
    })?;
    if let Some(expected) = &token.authority_hash {
        let found = authority_hash(&std::fs::read(layout.server().join("tls/ca.crt"))?);
        if found != *expected {
            bail!(
                "--token is for a cluster with another authority: its hash is {expected}, this one's {found}"
            );
        }
    }
    pki::write_file(&layout.token(), token.secret.as_bytes(), 0o600)?;
    Ok(())
}

async fn exchange(
    etcd: &Etcd,
    token: &Token,
    (folder, makes_key): (&Path, bool),
    now: Timestamp,
) -> Result<()> {
    std::fs::create_dir_all(folder.join("cred")).context("make the folder of credentials")?;
    for _ in 0..ROUNDS_MAX {
        let there = etcd.bootstrap().await.context("read what servers share")?;
        let theirs = match &there {
            Some(entry) => {
                bundle::open(&entry.value, &token.secret).map_err(|error| explain(error, token))?
            }
            None => Files::new(),
        };
        write(folder, &theirs)?;
        if there.is_none() {
            Authority::load_or_create(&folder.join("tls"), now)?;
            pki::service_account_key(&folder.join("tls"))?;
        }
        let mut own = read(folder)?;
        if makes_key && !theirs.contains_key(ENCRYPTION) && !own.contains_key(ENCRYPTION) {
            // In the folder only when it is everybody's: nothing may be encrypted under a key that has lost.
            own.insert(ENCRYPTION.to_owned(), encryption::keys::generate()?.into());
        }
        let all = merged(theirs.clone(), own);
        if all == theirs {
            return Ok(());
        }
        let sealed = bundle::seal(&all, &token.secret)?;
        let expected = there.map_or(0, |entry| entry.revision);
        let written = etcd.set_bootstrap(expected, sealed.clone().into()).await;
        if written.context("write what servers share")?.is_some_and(|entry| entry.value == sealed) {
            return write(folder, &all);
        }
    }
    bail!("other servers change what servers share again and again")
}

/// What is stored, and what a server has that is not stored yet.
fn merged(mut stored: Files, own: Files) -> Files {
    for (name, content) in own {
        match stored.get(&name) {
            Some(_) if name != ENCRYPTION => {}
            _ => drop(stored.insert(name, content)),
        }
    }
    stored
}

fn read(folder: &Path) -> Result<Files> {
    let there = FILES.iter().filter(|(name, _)| folder.join(name).exists());
    there
        .map(|(name, _)| {
            let content = std::fs::read(folder.join(name)).with_context(|| format!("read {name}"))?;
            Ok(((*name).to_owned(), content))
        })
        .collect()
}

fn write(folder: &Path, files: &Files) -> Result<()> {
    for (name, mode) in FILES {
        let (path, Some(content)) = (folder.join(name), files.get(name)) else { continue };
        if std::fs::read(&path).is_ok_and(|own| own == *content || name == ENCRYPTION) {
            continue;
        }
        if path.exists() {
            tracing::warn!(file = name, "the other servers have another one: it is replaced");
        }
        pki::write_file(&path, content, mode)?;
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

    #[test]
    fn what_is_stored_wins_and_what_is_missing_is_added() {
        let files = |rows: &[(&str, &str)]| {
            rows.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect::<Files>()
        };
        let (stored, own) = (files(&[("a", "1")]), files(&[("a", "2"), ("b", "2")]));
        assert_eq!(merged(stored, own), files(&[("a", "1"), ("b", "2")]));
        let changed = files(&[(ENCRYPTION, "new")]);
        assert_eq!(merged(files(&[(ENCRYPTION, "old")]), changed.clone()), changed);
    }
}
