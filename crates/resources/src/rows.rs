//! The rows, one file per family of groups.

use crate::resource::Resource;

mod apps;
mod authn;
mod core;
mod extension;
mod networking;
mod policy;
mod storage;

/// Every row; core first, then by group, as discovery lists them.
pub(crate) fn all() -> impl Iterator<Item = Resource> {
    [core::ROWS, extension::ROWS, apps::ROWS, authn::ROWS, policy::ROWS, networking::ROWS, storage::ROWS]
        .into_iter()
        .flatten()
        .cloned()
}
