//! Which of two files says how Secrets are encrypted: the one that servers share, or the one in this server's folder.
//!
//! An administrator changes keys in any server's file. The shared value knows by their hashes which files it has had:
//! a server that has one of those was away while the keys were changed, and takes the newer one; any other file is an
//! administrator's change and becomes the shared one. So a server that has slept through a rotation never brings old
//! keys back. A folder of another cluster takes this cluster's file. What is replaced in a folder stays beside it: a
//! key that is thrown away may be the last one that reads something.

use std::path::Path;

use anyhow::{Context, Result};
use auth::bundle::{self, Files};
use auth::pki;

use crate::components::hand_over::write_secret;

/// The cluster's own configuration of encryption, in the server's folder.
pub(in crate::components) const ENCRYPTION: &str = "cred/encryption-config.yaml";

/// SHA-256 of the files that were shared before, a line each, the oldest first.
const REPLACED: &str = "encryption-replaced";
/// How many of them are remembered: a server may sleep through so many changes.
const REPLACED_MAX: usize = 100;

/// What counts.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// Both are the same.
    Same,
    /// This server's.
    Ours(Vec<u8>),
    /// The shared one.
    Theirs(Vec<u8>),
    /// There is none yet.
    New,
}

/// Decides. `is_of_cluster`: whether the folder was this cluster's before, or nobody's.
pub(super) fn which(stored: &Files, own: Option<&[u8]>, is_of_cluster: bool) -> Which {
    match (stored.get(ENCRYPTION), own) {
        (None, None) => Which::New,
        (None, Some(own)) => Which::Ours(own.to_vec()),
        (Some(theirs), None) => Which::Theirs(theirs.clone()),
        (Some(theirs), Some(own)) if theirs == own => Which::Same,
        (Some(theirs), Some(own)) => {
            let is_old = replaced(stored).contains(&bundle::sha256(own));
            if is_old || !is_of_cluster { Which::Theirs(theirs.clone()) } else { Which::Ours(own.to_vec()) }
        }
    }
}

/// Makes `file` the shared one.
pub(super) fn put(stored: &mut Files, file: Vec<u8>) {
    let hash = bundle::sha256(&file);
    let mut all = replaced(stored);
    let before = stored.insert(ENCRYPTION.to_owned(), file).map(|before| bundle::sha256(&before));
    all.extend(before);
    // An administrator may go back to an earlier file.
    all.retain(|old| *old != hash);
    let first = all.len().saturating_sub(REPLACED_MAX);
    if !all.is_empty() {
        stored.insert(REPLACED.to_owned(), all.split_off(first).join("\n").into_bytes());
    }
}

fn replaced(stored: &Files) -> Vec<String> {
    let text = stored.get(REPLACED).map(|text| String::from_utf8_lossy(text)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// This server's file, if there is one.
///
/// # Errors
/// If it cannot be read or used: then it must not become everybody's.
pub(super) fn read(folder: &Path) -> Result<Option<Vec<u8>>> {
    let path = folder.join(ENCRYPTION);
    if !path.exists() {
        return Ok(None);
    }
    let text = std::fs::read(&path).with_context(|| format!("read server/{ENCRYPTION}"))?;
    encryption::Config::parse(&text, true).with_context(|| format!("server/{ENCRYPTION}"))?;
    Ok(Some(text))
}

/// Writes the shared file into the folder, for the control plane: it is never seen half written, nor missing.
///
/// # Errors
/// If it cannot be written.
pub(super) fn take(folder: &Path, theirs: &[u8]) -> Result<()> {
    let path = folder.join(ENCRYPTION);
    if path.exists() {
        let before = std::fs::read(&path).with_context(|| format!("read server/{ENCRYPTION}"))?;
        let aside = path.with_extension(format!("{}.yaml", &bundle::sha256(&before)[..8]));
        tracing::warn!(kept = %aside.display(), "the other servers have newer encryption keys: they are taken");
        pki::write_file(&aside, &before, 0o600).with_context(|| format!("put server/{ENCRYPTION} aside"))?;
    }
    write_secret(theirs, &path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(files: &[&str]) -> Files {
        let mut stored = Files::new();
        for file in files {
            put(&mut stored, file.as_bytes().to_vec());
        }
        stored
    }

    #[test]
    fn a_change_wins_and_a_server_that_slept_through_it_follows() {
        let (ours, theirs) = (|text: &str| Which::Ours(text.into()), |text: &str| Which::Theirs(text.into()));
        let check = |name: &str, history: &[&str], own: Option<&str>, is_of_cluster, expected: Which| {
            assert_eq!(which(&shared(history), own.map(str::as_bytes), is_of_cluster), expected, "{name}");
        };
        check("the first server", &[], None, true, Which::New);
        check("a cluster that has not shared it yet", &[], Some("a"), true, ours("a"));
        check("a server that joins", &["a"], None, true, theirs("a"));
        check("nothing has changed", &["a"], Some("a"), true, Which::Same);
        check("changed while this server was down", &["a"], Some("a+b"), true, ours("a+b"));
        check("this server slept through a rotation", &["a", "a+b", "b"], Some("a"), true, theirs("b"));
        check("a folder of another cluster", &["a"], Some("x"), false, theirs("a"));
        check("back to an earlier file", &["a", "b", "a"], Some("a"), true, Which::Same);
        check("and the other one is old now", &["a", "b", "a"], Some("b"), true, theirs("a"));
    }

    #[test]
    fn the_oldest_files_are_forgotten() {
        let all: Vec<String> = (0..REPLACED_MAX + 5).map(|n| n.to_string()).collect();
        let stored = shared(&all.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(replaced(&stored).len(), REPLACED_MAX);
        assert_eq!(replaced(&stored).last(), Some(&bundle::sha256(all[REPLACED_MAX + 3].as_bytes())));
    }
}
