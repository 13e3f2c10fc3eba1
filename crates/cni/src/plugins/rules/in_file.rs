//! The rules of plugins that are programs: in a file, under a lock, each change written down before the kernel has it.
//!
//! A change that was cut off is finished by the next one, whoever makes it: until the kernel has what the file says, the
//! file says that too.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Rules, Tables};
use crate::files::{remove_if_there, write_whole};
use crate::types::CniError;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    rules: Rules,
    /// The kernel may have others.
    is_pending: bool,
}

/// Changes rules and table. A table without rules goes, and so does its file.
pub(super) fn change(table: &str, file: &Path, change: impl FnOnce(&mut Rules)) -> Result<(), CniError> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder).map_err(CniError::state(folder))?;
    let lock_file = file.with_extension("lock");
    let lock = File::create(&lock_file).map_err(CniError::state(&lock_file))?;
    lock.lock().map_err(CniError::state(&lock_file))?;
    let before = load(file)?;
    let mut rules = before.rules.clone();
    change(&mut rules);
    if rules == before.rules && !before.is_pending {
        return Ok(());
    }
    let (old, new) = (Tables::of(table, &before.rules), Tables::of(table, &rules));
    if rules == Rules::default() {
        store(file, &Stored { rules, is_pending: true })?;
        Tables::delete(table)?;
        return remove_if_there(file);
    }
    let is_known = !before.is_pending && old.are_there()?;
    if !is_known || old != new {
        store(file, &Stored { rules: rules.clone(), is_pending: true })?;
        new.apply(is_known.then_some(&old))?;
    }
    store(file, &Stored { rules, is_pending: false })
}

/// What is in the file.
pub(super) fn read(file: &Path) -> Result<Rules, CniError> {
    load(file).map(|stored| stored.rules)
}

fn load(file: &Path) -> Result<Stored, CniError> {
    match fs::read(file) {
        Ok(text) => {
            serde_json::from_slice(&text).map_err(|error| CniError::state(file)(io::Error::other(error)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Stored::default()),
        Err(error) => Err(CniError::state(file)(error)),
    }
}

fn store(file: &Path, stored: &Stored) -> Result<(), CniError> {
    let text = serde_json::to_vec(stored).map_err(|error| CniError::state(file)(io::Error::other(error)))?;
    write_whole(file, &text)
}
