//! Tells when somebody else takes something from nftables: a firewall that begins anew flushes the tables of all.
//!
//! What this program's own sockets do is left out by the kernel, so that nothing wakes anybody who changes tables.

use std::collections::BTreeSet;
use std::time::Duration;

use base::{Backoff, Random, ResettingBackoff};
use nix::libc;
use tokio::time::Instant;

use crate::netlink::{Listener, News, Socket, find_attribute, messages, str_of};
use crate::{Doing, Result};

const SUBSYSTEM: u16 = 10;
/// `NFNLGRP_NFTABLES`, as a mask.
const GROUP: u32 = 1 << (7 - 1);
// Source: `include/uapi/linux/netfilter/nf_tables.h`.
const DELETE_TABLE: u16 = 2;
const DELETE_CHAIN: u16 = 5;
const DELETE_RULE: u16 = 8;
const DELETE_SET: u16 = 11;
const DELETE_ELEMENTS: u16 = 14;
const TABLE_OF_ANY: u16 = 1;
const CHAIN_OF_RULE: u16 = 2;
const CHAIN_NAME: u16 = 3;

/// A watch of what somebody else takes from the tables of one network namespace.
#[derive(Debug)]
pub struct TableWatch(Listener);

/// How soon is made again what was taken: who flushes may have more to do. And how late at last, if it is taken each time.
const AGAIN_FIRST: Duration = Duration::from_millis(5);
const AGAIN_MAX: Duration = Duration::from_secs(30);
/// After so long nobody fights over rules any more.
const RESET_AFTER: Duration = Duration::from_secs(60);

/// The times at which rules have to be made again, because somebody else has taken some of them: soon, and ever later if that
/// goes on.
#[derive(Debug)]
pub struct Flushes {
    watch: Option<TableWatch>,
    of: Of,
    backoff: ResettingBackoff,
    due: Option<Instant>,
}

/// Which rules.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Of {
    Table(String),
    Chain(String),
}

impl Flushes {
    /// Of a table, in each family. A kernel that does not tell is logged, and nothing is heard then.
    pub fn of_table(name: impl Into<String>) -> Self {
        Self::new(Of::Table(name.into()))
    }

    /// Of a chain, in whichever table.
    pub fn of_chain(name: impl Into<String>) -> Self {
        Self::new(Of::Chain(name.into()))
    }

    fn new(of: Of) -> Self {
        let opened = TableWatch::new();
        let watch = opened.inspect_err(|error| {
            tracing::warn!(%error, ?of, "the kernel does not tell when rules are flushed: they are not made again by themselves");
        });
        let backoff = ResettingBackoff::new(Backoff::new(AGAIN_FIRST, AGAIN_MAX, 0.1), RESET_AFTER);
        Self { watch: watch.ok(), of, backoff, due: None }
    }

    /// Waits until rules have to be made again. Nothing is lost if this is not waited for to the end.
    pub async fn next(&mut self, random: &Random) {
        loop {
            let Some(due) = self.due else {
                self.taken().await;
                let now = Instant::now();
                self.due = Some(now + self.backoff.next(now, random));
                continue;
            };
            tokio::select! {
                biased;
                // What is taken meanwhile is made again with the rest.
                () = self.taken() => {}
                () = tokio::time::sleep_until(due) => break,
            }
        }
        self.due = None;
    }

    async fn taken(&mut self) {
        loop {
            let Some(watch) = &mut self.watch else { return std::future::pending().await };
            match watch.taken().await {
                Ok(taken) if self.of.is_of(&taken) => return,
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(%error, "rules that are flushed are not made again any more");
                    self.watch = None;
                }
            }
        }
    }
}

impl Of {
    fn is_of(&self, taken: &Taken) -> bool {
        match self {
            Self::Table(name) => taken.is_of_table(name),
            Self::Chain(name) => taken.is_of_chain(name),
        }
    }
}

/// The objects that are gone, or not whole any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    tables: BTreeSet<String>,
    chains: BTreeSet<String>,
    /// More has happened than was told.
    is_anything: bool,
}

impl Taken {
    /// `true` if it may be something of a table, of any family.
    pub fn is_of_table(&self, name: &str) -> bool {
        self.is_anything || self.tables.contains(name)
    }

    /// `true` if it may be a chain, or a rule in it, of any table.
    pub fn is_of_chain(&self, name: &str) -> bool {
        self.is_anything || self.chains.contains(name)
    }
}

impl TableWatch {
    /// Watches from now on, in the calling thread's network namespace.
    ///
    /// # Errors
    /// The kernel refuses, or has no nftables.
    pub fn new() -> Result<Self> {
        let socket = Socket::listen(libc::NETLINK_NETFILTER, GROUP)?;
        socket.leave_out_own().doing(|| "watch nftables".into())?;
        Ok(Self(Listener::new(socket)?))
    }

    /// Waits until something was taken.
    ///
    /// # Errors
    /// The kernel does not tell any more.
    pub async fn taken(&mut self) -> Result<Taken> {
        loop {
            match self.0.read(note).await? {
                News::Lost => return Ok(Taken { is_anything: true, ..Taken::default() }),
                News::Told(taken) if taken != Taken::default() => return Ok(taken),
                News::Told(_) => {}
            }
        }
    }
}

/// What the kernel does on its own account, as when a link goes, is not counted.
pub(super) fn note(datagram: &[u8], taken: &mut Taken) {
    for message in messages(datagram).filter(|message| message.kind >> 8 == SUBSYSTEM && message.port != 0) {
        let kind = message.kind & 0xff;
        if ![DELETE_TABLE, DELETE_CHAIN, DELETE_RULE, DELETE_SET, DELETE_ELEMENTS].contains(&kind) {
            continue;
        }
        let attributes = message.payload.get(4..).unwrap_or_default();
        let text = |kind| find_attribute(attributes, kind).map(str_of);
        taken.tables.extend(text(TABLE_OF_ANY));
        taken.chains.extend(match kind {
            DELETE_CHAIN => text(CHAIN_NAME),
            DELETE_RULE => text(CHAIN_OF_RULE),
            _ => None,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::NetNs;
    use crate::nftables::{ChainKind, Expr, Hook, Table, Verdict, delete_table, replace};

    fn table(name: &str) -> Table {
        let mut table = Table::new(name);
        table.base_chain("forward", ChainKind::Filter, Hook::Forward, 0);
        table.rule("forward", vec![Expr::Verdict(Verdict::Accept)]);
        table
    }

    fn nft(command: &str) -> Result<()> {
        let output = std::process::Command::new("nft").arg(command).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    #[tokio::test]
    async fn what_others_take_is_told_and_what_is_done_here_is_not() {
        let namespace = NetNs::anonymous().unwrap();
        let runtime = tokio::runtime::Handle::current();
        let mut watch = namespace
            .run(|| {
                let _entered = runtime.enter();
                TableWatch::new()
            })
            .unwrap();
        let mut taken = async || tokio::time::timeout(Duration::from_millis(300), watch.taken()).await.ok();
        namespace.run(|| replace(&table("a")).and_then(|()| replace(&table("a")))).unwrap();
        namespace.run(|| replace(&table("b")).and_then(|()| delete_table("b"))).unwrap();
        assert_eq!(taken().await.map(drop), None, "all of it was done here");

        let by_others = |command: &'static str| namespace.run(|| nft(command)).unwrap();
        by_others("add table ip c; add chain ip a other; add rule ip a other accept");
        assert_eq!(taken().await.map(drop), None, "nothing is gone");
        by_others("flush chain ip a forward");
        let told = taken().await.unwrap().unwrap();
        assert!(told.is_of_table("a") && told.is_of_chain("forward"), "{told:?}");
        assert!(!told.is_of_table("c") && !told.is_of_chain("other"), "{told:?}");
        by_others("flush ruleset");
        let told = taken().await.unwrap().unwrap();
        assert!(told.is_of_table("a") && told.is_of_table("c") && !told.is_of_table("b"), "{told:?}");
    }

    #[tokio::test]
    async fn who_takes_rules_again_and_again_is_answered_ever_later() {
        let namespace = NetNs::anonymous().unwrap();
        let runtime = tokio::runtime::Handle::current();
        let mut flushes = namespace
            .run(|| {
                let _entered = runtime.enter();
                Ok(Flushes::of_table("a"))
            })
            .unwrap();
        let random = Random::seeded(1);
        let mut waits = Vec::new();
        for _ in 0..6 {
            namespace
                .run(|| {
                    replace(&table("a"))
                        .and_then(|()| nft("delete table ip a; add table ip c; delete table ip c"))
                })
                .unwrap();
            let begun = Instant::now();
            flushes.next(&random).await;
            waits.push(begun.elapsed());
        }
        let least = (0..6).map(|n| AGAIN_FIRST * (1 << n));
        assert!(waits.iter().zip(least).all(|(wait, least)| *wait >= least), "{waits:?}");
        assert!(waits[0] < AGAIN_FIRST * 20, "the first at once: {waits:?}");
        namespace.run(|| nft("add table ip c; delete table ip c")).unwrap();
        assert!(
            tokio::time::timeout(AGAIN_FIRST * 100, flushes.next(&random)).await.is_err(),
            "of another table"
        );
    }
}
