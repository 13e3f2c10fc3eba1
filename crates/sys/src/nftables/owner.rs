//! Tables that nobody else can change or flush while their owner lives, and that stay when it ends: then anybody may.
//!
//! Source: `NFT_TABLE_F_OWNER` (kernel 5.12) and `NFT_TABLE_F_PERSIST` (6.9) in `include/uapi/linux/netfilter/nf_tables.h`.
//! Without the latter a table would go with the process, so that where a kernel does not have it nothing is owned.

use nix::libc;

use super::batch::{Batch, DELETE_TABLE, replacing, with_changes};
use super::changes::Changes;
use super::{Table, TableFamily};
use crate::Result;
use crate::netlink::Socket;

const OWNER: u32 = 2;
const PERSIST: u32 = 4;

/// A socket that owns the tables that it makes, for as long as it is open.
#[derive(Debug)]
pub struct Owner(Socket);

impl Owner {
    /// One that owns nothing yet. `None` if this kernel has no such tables: one of this name was tried.
    ///
    /// # Errors
    /// The kernel refuses for another reason.
    pub fn new(family: TableFamily, name: &str) -> Result<Option<Self>> {
        let mut owner = Self(Socket::open_own(libc::NETLINK_NETFILTER)?);
        // Who comes next may have the tables at once.
        owner.0.close_at_once();
        match owner.try_table(family, name) {
            Ok(()) => Ok(Some(owner)),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes and deletes a table, in one transaction.
    fn try_table(&mut self, family: TableFamily, name: &str) -> Result<()> {
        let tried = [Table { family, ..Table::new(format!("{name}-tried")) }];
        let Some(mut batch) = replacing(&tried, OWNER | PERSIST) else { return Ok(()) };
        batch.table(DELETE_TABLE, 0);
        batch.commit_over(&mut self.0)
    }

    /// Makes the kernel's table this one, whatever it was, in one transaction.
    ///
    /// # Errors
    /// The kernel refuses; `EPERM` if another owns it.
    pub(super) fn replace(&mut self, table: &Table) -> Result<()> {
        match replacing(std::slice::from_ref(table), OWNER | PERSIST) {
            Some(batch) => batch.commit_over(&mut self.0),
            None => Ok(()),
        }
    }

    /// Changes a table that is owned.
    ///
    /// # Errors
    /// The kernel refuses, or does not have what the changes start from.
    pub(super) fn change(&mut self, table: &Table, changes: &Changes<'_>) -> Result<()> {
        with_changes(table, changes).map_or(Ok(()), |batch| batch.commit_over(&mut self.0))
    }

    /// Deletes a table that is owned, or that nobody owns. No error if there is none.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn delete(&mut self, table: &Table) -> Result<()> {
        if !super::table_names_of(table.family)?.contains(&table.name) {
            return Ok(());
        }
        let mut batch = Batch::of(table.family as u8, &table.name);
        batch.table(DELETE_TABLE, 0);
        match batch.commit_over(&mut self.0) {
            Err(error) if error.is_not_found() => Ok(()),
            done => done,
        }
    }
}
