//! Mode `iptables`: kube-proxy's chains in the tables of the host's iptables, one restore for all changes of a table.
//!
//! The chains have kube-proxy's names and so belong to whoever wrote them last; a rule in the canary says which cluster
//! that was. Whoever flushes a table takes the canary away, too, which is looked for now and then.

mod names;
pub(super) mod render;
pub(super) mod rules;
pub(super) mod saved;
pub(super) mod table;
pub(super) mod tool;

use std::sync::Arc;
use std::time::{Duration, Instant};

use machinery::net::Family;
use sys::nftables::Flushes;

use super::{Backend, Tended, known};
use crate::Config;
use crate::services::{Difference, Part};

use render::{CANARY, SERVICES, Scope};
use rules::{Frame, Rules};
use saved::Saved;
use table::Table;
use tool::Iptables;

/// How often the canary is looked for. Source: kube-proxy's `--iptables-sync-period`.
const CANARY_PERIOD: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Debug)]
pub(super) struct Mode {
    config: Arc<Config>,
    families: Vec<(Family, Iptables)>,
}

impl Mode {
    pub(super) fn new(config: Arc<Config>) -> Self {
        Self { config, families: Vec::new() }
    }

    fn scope(&self, family: Family) -> Scope<'_> {
        Scope { config: &self.config, family }
    }
}

impl Backend for Mode {
    fn replace(&mut self, whole: &Part) -> sys::Result<()> {
        self.families = self
            .config
            .families()
            .into_iter()
            .map(|family| Ok((family, Iptables::find(family)?)))
            .collect::<sys::Result<_>>()?;
        for (family, iptables) in &self.families {
            let scope = self.scope(*family);
            let saved = iptables.save()?;
            warn_of_others(&saved, &self.config.cluster_id);
            let rules = render::rules(whole, scope);
            iptables.restore(&rules::whole(&render::frame(scope), &rules, &saved, &known()))?;
        }
        cleanup_other_families(&self.config)
    }

    fn change(&mut self, difference: &Difference) -> sys::Result<Instant> {
        let input = |family: Family| {
            let scope = self.scope(family);
            rules::difference(
                &render::rules(&difference.before, scope),
                &render::rules(&difference.after, scope),
            )
        };
        let inputs: Vec<String> = self.families.iter().map(|(family, _)| input(*family)).collect();
        let decided = Instant::now();
        for ((_, iptables), input) in self.families.iter().zip(&inputs) {
            iptables.restore(input)?;
        }
        Ok(decided)
    }

    fn due(&self) -> Option<Duration> {
        Some(CANARY_PERIOD)
    }

    fn tend(&mut self) -> sys::Result<Tended> {
        let all = self.families.iter().all(|(_, iptables)| has_canaries(iptables, &self.config.cluster_id));
        Ok(if all { Tended::Fine } else { Tended::Lost })
    }

    /// Where iptables is nftables' the kernel tells, also of what was done here.
    fn flushes(&self) -> Flushes {
        Flushes::of_chain(CANARY)
    }

    fn after_flush(&mut self) -> sys::Result<Tended> {
        self.tend()
    }
}

/// Whether nobody has flushed a table.
pub(super) fn has_canaries(iptables: &Iptables, cluster_id: &str) -> bool {
    let comment = render::canary(cluster_id);
    let has =
        |table| iptables.list(table, CANARY).is_ok_and(|saved| saved.has_comment(table, CANARY, &comment));
    Table::ALL.into_iter().all(has)
}

/// Says whose rules these are, if they are somebody else's: there is room for one.
pub(super) fn warn_of_others(saved: &Saved, cluster_id: &str) {
    let is_there = saved.chains(Table::Nat).any(|chain| chain == SERVICES);
    if is_there && !is_ours(saved, cluster_id) {
        tracing::warn!("the rules of another kube-proxy are replaced: if it still runs, stop it");
    }
}

fn is_ours(saved: &Saved, cluster_id: &str) -> bool {
    let comment = render::canary(cluster_id);
    Table::ALL.into_iter().any(|table| saved.has_comment(table, CANARY, &comment))
}

/// The programs of each family that may have rules.
fn with_rules() -> impl Iterator<Item = (Family, Iptables)> {
    let of = |family| Iptables::with_rules(family).into_iter().map(move |found| (family, found));
    [Family::V4, Family::V6].into_iter().flat_map(of)
}

/// What a cluster has: `KUBE-* chains of iptables`, or of `ip6tables`.
pub(super) fn leftovers(cluster_id: &str) -> Vec<String> {
    let named = |family| match family {
        Family::V4 => "KUBE-* chains of iptables".to_owned(),
        Family::V6 => "KUBE-* chains of ip6tables".to_owned(),
    };
    let has = |iptables: &Iptables| iptables.save().is_ok_and(|saved| is_ours(&saved, cluster_id));
    let found = with_rules().filter(|(_, iptables)| has(iptables));
    let mut found: Vec<String> = found.map(|(family, _)| named(family)).collect();
    found.dedup();
    found
}

/// Removes a cluster's chains, those of other modes that stand on iptables among them.
///
/// # Errors
/// The kernel refuses.
pub(super) fn cleanup(cluster_id: &str) -> sys::Result<()> {
    cleanup_of(cluster_id, with_rules())
}

/// What a proxy of more families has left.
///
/// # Errors
/// The kernel refuses.
pub(super) fn cleanup_other_families(config: &Config) -> sys::Result<()> {
    let families = config.families();
    cleanup_of(&config.cluster_id, with_rules().filter(|(family, _)| !families.contains(family)))
}

fn cleanup_of(cluster_id: &str, all: impl Iterator<Item = (Family, Iptables)>) -> sys::Result<()> {
    for (_, iptables) in all {
        // Two programs may be one: what is there is looked at anew.
        let saved = iptables.save()?;
        if is_ours(&saved, cluster_id) {
            iptables.restore(&rules::whole(&Frame::default(), &Rules::default(), &saved, &known()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
