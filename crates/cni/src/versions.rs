//! The versions of the specification that plugins speak (VERSION), and the one that a network is used in.
//!
//! A binary is asked once for as long as its file stays as it is. One that failed to answer is asked again when somebody
//! looks at the network anew, never for a Pod. Source: CNI specification 1.1.0, "Version considerations"; libcni's
//! `ValidateNetworkList` and its `version` package.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::exec::ExecPlugin;
use crate::files::Stamp;
use crate::types::{CniError, NetworkConfigList, VERSIONS};
use crate::version_info::UNNAMED;

/// What binaries have answered.
#[derive(Debug, Default)]
pub(crate) struct Answers(Mutex<BTreeMap<PathBuf, (Stamp, Answer)>>);

type Answer = Result<Vec<String>, Arc<CniError>>;

impl Answers {
    /// The versions that a plugin speaks.
    ///
    /// # Errors
    /// It does not say, or did not when it was asked.
    pub(crate) fn of(&self, plugin: &ExecPlugin) -> Result<Vec<String>, CniError> {
        let (binary, now) = plugin.binary();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = match known.get(binary) {
            Some((then, answer)) if *then == now => answer.clone(),
            _ => {
                let answer = plugin.versions().map_err(Arc::new);
                known.retain(|path, _| path.exists());
                known.insert(binary.to_owned(), (now, answer.clone()));
                answer
            }
        };
        answer.map_err(CniError::Before)
    }

    /// Has those asked again who failed to answer.
    pub(crate) fn forget_failures(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, (_, answer)| answer.is_ok());
    }
}

/// The newest version that the configuration offers, we speak, and each of these plugins speaks.
///
/// # Errors
/// There is none: says who lacks the newest that would have been chosen.
pub(crate) fn choose(
    conflist: &NetworkConfigList,
    plugins: &[(String, Vec<String>)],
) -> Result<String, CniError> {
    let is_offered = |version: &str| {
        conflist.cni_version == version || conflist.cni_versions.iter().any(|offered| offered == version)
    };
    let ours: Vec<&str> = VERSIONS.into_iter().rev().filter(|version| is_offered(version)).collect();
    let lacks =
        |version: &str| plugins.iter().find(|(_, spoken)| !spoken.iter().any(|spoken| spoken == version));
    if let Some(version) = ours.iter().find(|version| lacks(version).is_none()) {
        return Ok((*version).to_owned());
    }
    let offered = if conflist.cni_version.is_empty() { UNNAMED } else { &conflist.cni_version };
    let newest = ours.first().copied().unwrap_or(offered);
    let (plugin, speaks) = match ours.first().and_then(|version| lacks(version)) {
        Some((plugin, spoken)) => (format!("plugin {plugin}"), spoken.join(", ")),
        None => ("knarr".to_owned(), VERSIONS.join(", ")),
    };
    Err(CniError::Version { plugin, version: newest.to_owned(), speaks })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(version: &str, versions: &[&str], plugins: &[&[&str]], expect: Result<&str, &str>) {
        let texts = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let conflist = NetworkConfigList {
            cni_version: version.into(),
            cni_versions: texts(versions),
            ..NetworkConfigList::default()
        };
        let plugins: Vec<_> = plugins.iter().map(|spoken| ("p".to_owned(), texts(spoken))).collect();
        let chosen = choose(&conflist, &plugins).map_err(|error| error.to_string());
        assert_eq!(chosen.as_deref().map_err(String::as_str), expect, "{version} {versions:?}");
    }

    #[test]
    fn the_newest_version_that_is_offered_and_that_all_speak_is_chosen() {
        let old: &[&str] = &["0.3.1", "0.4.0"];
        let new: &[&str] = &["0.3.1", "0.4.0", "1.0.0", "1.1.0", "1.2.0"];
        check("0.4.0", &["0.3.1", "1.1.0", "2.0.0"], &[new], Ok("1.1.0"));
        check("0.4.0", &["0.3.1", "1.1.0", "2.0.0"], &[], Ok("1.1.0"));
        check("0.4.0", &["0.3.1", "1.1.0"], &[new, old], Ok("0.4.0"));
        check("0.4.0", &[], &[new], Ok("0.4.0"));
        check("1.0.0", &["0.3.1"], &[old], Ok("0.3.1"));
        let lacks = "plugin p does not support config version \"1.0.0\" (it speaks 0.3.1, 0.4.0)";
        check("1.0.0", &[], &[new, old], Err(lacks));
        let ours = "(it speaks 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0)";
        let whose = |version: &str| format!("knarr does not support config version {version:?} {ours}");
        check("2.0.0", &["3.0.0"], &[new], Err(&whose("2.0.0")));
        check("", &[], &[new], Err(&whose("0.1.0")));
    }
}
