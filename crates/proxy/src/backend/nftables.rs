//! Mode `nftables`: one table of the cluster's own for each family, each change of both one transaction.

use std::sync::Arc;
use std::time::Instant;

use machinery::net::Family;
use sys::nftables::{self, Connection, Flushes};

use super::{Backend, Tended};
use crate::services::{Difference, Part};
use crate::table_family;
use crate::{Config, render};

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// See the module.
#[derive(Debug)]
pub(super) struct Nftables {
    config: Arc<Config>,
    connection: Connection,
}

impl Nftables {
    pub(super) fn new(config: Arc<Config>) -> Self {
        Self { config, connection: Connection::default() }
    }
}

impl Backend for Nftables {
    fn replace(&mut self, whole: &Part) -> sys::Result<()> {
        self.connection.replace_all(&render::whole(whole, &self.config))?;
        // What a proxy of more families has left.
        let families = self.config.families();
        delete(FAMILIES.into_iter().filter(|family| !families.contains(family)), &self.config.cluster_id)
    }

    fn change(&mut self, difference: &Difference) -> sys::Result<Instant> {
        let (before, after) =
            (render::part(&difference.before, &self.config), render::part(&difference.after, &self.config));
        let decided = Instant::now();
        self.connection.change(&before, &after)?;
        Ok(decided)
    }

    fn flushes(&self) -> Flushes {
        Flushes::of_table(self.config.table_name())
    }

    /// The kernel tells of nothing that was done here.
    fn after_flush(&mut self) -> sys::Result<Tended> {
        Ok(Tended::Lost)
    }
}

fn delete(mut families: impl Iterator<Item = Family>, cluster_id: &str) -> sys::Result<()> {
    let name = crate::table_name(cluster_id);
    families.try_for_each(|family| nftables::delete_table_of(table_family(family), &name))
}

pub(super) fn leftovers(cluster_id: &str) -> sys::Result<Vec<String>> {
    let (name, mut names) = (crate::table_name(cluster_id), Vec::new());
    for family in FAMILIES {
        names.extend(nftables::table_names_of(table_family(family))?);
    }
    Ok(names.contains(&name).then(|| format!("nftables table {name}")).into_iter().collect())
}

pub(super) fn cleanup(cluster_id: &str) -> sys::Result<()> {
    delete(FAMILIES.into_iter(), cluster_id)
}
