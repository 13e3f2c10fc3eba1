//! Finding a network's configuration in its folder. Source: libcni, `ConfFiles` and `NetworkConfFromBytes`.
//!
//! The first file by name counts; one that is broken is not skipped in favour of the next.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::types::{CniError, NetworkConfigList, is_name};

/// Files of these kinds are configurations; `conflist` is a list, the others are one plugin's.
const EXTENSIONS: [&str; 3] = ["conf", "conflist", "json"];

/// The configuration in `conf_dir`, `None` if there is none.
pub(super) fn find_conflist(conf_dir: &Path) -> Result<Option<NetworkConfigList>, CniError> {
    let Some(path) = files(conf_dir, &EXTENSIONS)?.into_iter().next() else { return Ok(None) };
    let text = fs::read(&path).map_err(CniError::state(&path))?;
    let mut conflist = parse(&path, &text)?;
    if !conflist.load_only_inlined_plugins && is_list(&path) {
        for file in files(&conf_dir.join(&conflist.name), &["conf"])? {
            let text = fs::read(&file).map_err(CniError::state(&file))?;
            let plugin = serde_json::from_slice(&text);
            conflist.plugins.push(plugin.map_err(|error| invalid(&file, error.to_string()))?);
        }
    }
    if conflist.plugins.is_empty() {
        return Err(invalid(&path, "no plugins in list".into()));
    }
    Ok(Some(conflist))
}

fn is_list(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "conflist")
}

/// By name. None if the folder is not there.
fn files(folder: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>, CniError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(CniError::state(folder))?,
    };
    let entries = entries.flatten().map(|entry| entry.path());
    let is_one = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extensions.iter().any(|known| extension == *known))
    };
    let mut files: Vec<PathBuf> = entries.filter(|path| is_one(path) && !path.is_dir()).collect();
    files.sort();
    Ok(files)
}

fn parse(path: &Path, text: &[u8]) -> Result<NetworkConfigList, CniError> {
    let conflist = if is_list(path) {
        serde_json::from_slice(text).map_err(|error| invalid(path, error.to_string()))?
    } else {
        let plugin: Value = serde_json::from_slice(text).map_err(|error| invalid(path, error.to_string()))?;
        let field = |name: &str| plugin.get(name).and_then(Value::as_str).map(str::to_owned);
        let name = field("name").ok_or_else(|| invalid(path, "missing field `name`".into()))?;
        let cni_version = field("cniVersion").unwrap_or_else(|| "0.2.0".into());
        NetworkConfigList { cni_version, name, plugins: vec![plugin], ..NetworkConfigList::default() }
    };
    if !is_name(&conflist.name) {
        return Err(invalid(path, format!("invalid characters found in network name {:?}", conflist.name)));
    }
    Ok(conflist)
}

fn invalid(path: &Path, reason: String) -> CniError {
    CniError::Config { path: path.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)], expect: Result<(&str, &str, usize), &str>) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found =
            find_conflist(folder.path()).map(|found| found.unwrap()).map_err(|error| error.to_string());
        match (&found, expect) {
            (Ok(found), Ok(expect)) => {
                assert_eq!((&*found.name, &*found.cni_version, found.plugins.len()), expect);
            }
            (Err(error), Err(expect)) => assert!(error.ends_with(expect), "{error}"),
            _ => panic!("{found:?}"),
        }
    }

    #[test]
    fn plugins_in_the_folder_of_the_networks_name_come_after_those_in_the_list() {
        let list = r#"{"cniVersion": "1.1.0", "name": "n", "plugins": [{"type": "a"}]}"#;
        let more = ("n/10-b.conf", r#"{"type": "b"}"#);
        check(&[("1.conflist", list), more], Ok(("n", "1.1.0", 2)));
        let only = list.replace("plugins", r#"loadOnlyInlinedPlugins": true, "plugins"#);
        check(&[("1.conflist", &only), more], Ok(("n", "1.1.0", 1)));
        let none = r#"{"cniVersion": "1.1.0", "name": "n"}"#;
        check(&[("1.conflist", none), more], Ok(("n", "1.1.0", 1)));
        check(&[("1.conflist", none)], Err("no plugins in list"));
    }

    #[test]
    fn the_first_file_by_name_counts_and_says_what_is_wrong_with_it() {
        let one = r#"{"cniVersion": "0.3.1", "name": "one", "type": "bridge"}"#;
        let broken = ("05.conflist", r#"{"name": "x", "disableCheck": 7}"#);
        check(&[("10.conf", one), ("20.conflist", "{")], Ok(("one", "0.3.1", 1)));
        let list = r#"{"cniVersion": "1.0.0", "name": "list", "plugins": [{"type": "bridge"}]}"#;
        check(&[("10-a.conflist", list), ("10-a.conf", one)], Ok(("one", "0.3.1", 1)));
        check(&[("10-a.json", one), ("10-a.conflist", list)], Ok(("list", "1.0.0", 1)));
        check(&[("05.conflist.bak", "{"), ("06.txt", "{"), ("10.json", one)], Ok(("one", "0.3.1", 1)));
        check(&[("10.conf", one), broken], Err("must be true or false, not 7 at line 1 column 32"));
        let name = r#"{"name": "../up", "plugins": [{}]}"#;
        check(&[("1.conflist", name)], Err(r#"invalid characters found in network name "../up""#));
    }
}
