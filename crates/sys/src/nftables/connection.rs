//! A connection that is kept between transactions. The kernel has whoever closes one wait until it has cleaned up after all of
//! them, 10 to 20 ms; who changes rules all the time does not close it.

use std::io;
use std::os::linux::fs::MetadataExt;

use nix::libc;

use super::batch::Batch;
use super::changes::Changes;
use super::{Table, batch};
use crate::netlink::Socket;
use crate::{Doing, Result};

/// Transactions in the calling thread's network namespace. A connection that has failed, or leads to another namespace than
/// the caller's, is made anew.
#[derive(Debug, Default)]
pub struct Connection(Option<(NamespaceId, Socket)>);

/// A network namespace: device and inode.
type NamespaceId = (u64, u64);

impl Connection {
    /// See [`super::replace_all`].
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn replace_all(&mut self, next: &[Table]) -> Result<()> {
        batch::replacing(next, 0).map_or(Ok(()), |batch| self.commit(batch))
    }

    /// See [`super::change`].
    ///
    /// # Errors
    /// The kernel's tables are not what `previous` says, or something has another definition: then nothing is different.
    pub fn change(&mut self, previous: &[Table], next: &[Table]) -> Result<()> {
        batch::changing(previous, next)?.map_or(Ok(()), |batch| self.commit(batch))
    }

    /// See [`super::apply_changes`].
    ///
    /// # Errors
    /// The kernel's table is not what the changes start from.
    pub fn apply_changes(&mut self, next: &Table, changes: &Changes<'_>) -> Result<()> {
        batch::with_changes(next, changes).map_or(Ok(()), |batch| self.commit(batch))
    }

    fn commit(&mut self, batch: Batch<'_>) -> Result<()> {
        let here = here().doing(|| "find the network namespace".into())?;
        let mut socket = match self.0.take() {
            Some((namespace, socket)) if namespace == here => socket,
            _ => Socket::open_own(libc::NETLINK_NETFILTER)?,
        };
        batch.commit_over(&mut socket)?;
        // Nothing is on its way over it: what succeeds has one answer.
        self.0 = Some((here, socket));
        Ok(())
    }
}

fn here() -> io::Result<NamespaceId> {
    let namespace = std::fs::metadata("/proc/thread-self/ns/net")?;
    Ok((namespace.st_dev(), namespace.st_ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::NetNs;
    use crate::nftables::{Field, SetValue, table_names};

    #[test]
    fn a_connection_goes_where_its_caller_is_and_on_after_a_failure() {
        let [one, other] = [(); 2].map(|()| NetNs::anonymous().expect("run this test as root"));
        let mut with_set = Table::new("kept");
        with_set.set("addresses", &[Field::Ipv4], SetValue::None);
        let mut connection = Connection::default();
        for namespace in [&one, &one, &other] {
            namespace.run(|| connection.replace_all(&[Table::new("kept")])).unwrap();
        }
        let refused = one.run(|| connection.change(&[with_set.clone()], &[Table::new("kept")]));
        assert!(refused.unwrap_err().is_not_found(), "there is no such set");
        one.run(|| connection.change(&[Table::new("kept")], &[with_set.clone()])).unwrap();
        one.run(|| connection.change(&[with_set.clone()], &[Table::new("kept")])).unwrap();
        for namespace in [one, other] {
            assert_eq!(namespace.run(table_names).unwrap(), ["kept"]);
        }
    }
}
