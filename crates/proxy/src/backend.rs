//! How the kernel is had to lead packets to Services: what differs between kube-proxy's modes, and nothing else.
//!
//! What Services come to ([`crate::services`]) knows of no mode. A backend renders that, all of it or what is different,
//! and has the kernel do it; what it has made stays when the process ends, and the next one begins by replacing it whole.

mod iptables;
mod ipvs;
mod nftables;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use machinery::net::{Cidr, Cidrs};
use sys::nftables::Flushes;

use crate::services::{Difference, Part};
use crate::{Config, Mode};

/// A mode at work, in the calling thread's network namespace.
pub(crate) trait Backend: Debug + Send {
    /// Makes the kernel have this, and nothing of what any process before has made of this mode.
    ///
    /// # Errors
    /// The kernel refuses; what it has then is unknown.
    fn replace(&mut self, whole: &Part) -> sys::Result<()>;

    /// Makes different what is different, given that the kernel has what was. Returns when it was known what to tell it.
    ///
    /// # Errors
    /// The kernel refuses, or does not have what was: it has to be replaced.
    fn change(&mut self, difference: &Difference) -> sys::Result<Instant>;

    /// How long after the last change or look [`Self::tend`] is due; never, if not said.
    fn due(&self) -> Option<Duration> {
        None
    }

    /// Looks after what time brings while nothing changes.
    ///
    /// # Errors
    /// The kernel refuses.
    fn tend(&mut self) -> sys::Result<Tended> {
        Ok(Tended::Fine)
    }

    /// Tells when somebody else has taken rules of this mode, as far as the kernel does.
    fn flushes(&self) -> Flushes;

    /// Looks what is left after that.
    ///
    /// # Errors
    /// The kernel refuses.
    fn after_flush(&mut self) -> sys::Result<Tended>;
}

/// What the kernel had when somebody looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tended {
    /// All that it was told.
    Fine,
    /// Not that, since somebody has taken it: it has to be replaced.
    Lost,
    /// That, but the host has other addresses now: it has to be replaced.
    Moved,
}

/// The one that a configuration names.
pub(crate) fn of(config: &Arc<Config>) -> Box<dyn Backend> {
    match &config.mode {
        Mode::Nftables => Box::new(nftables::Nftables::new(config.clone())),
        Mode::Iptables => Box::new(iptables::Mode::new(config.clone())),
        Mode::Ipvs(options) => Box::new(ipvs::Mode::new(config.clone(), options.clone())),
    }
}

/// What modes other than this one have left, if the cluster had one of them before.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn cleanup_others(config: &Config) -> sys::Result<()> {
    let id = &config.cluster_id;
    let others: &[fn(&str) -> sys::Result<()>] = match config.mode {
        // The sets of IPVS go when no rule looks them up.
        Mode::Nftables => &[iptables::cleanup, ipvs::cleanup],
        // Of those that stand on iptables each takes away the other's rules.
        Mode::Iptables => &[nftables::cleanup, ipvs::cleanup],
        Mode::Ipvs(_) => &[nftables::cleanup],
    };
    others.iter().try_for_each(|cleanup| cleanup(id))
}

/// What any mode has made of a cluster's Services.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn leftovers(cluster_id: &str) -> sys::Result<Vec<String>> {
    let mut found = nftables::leftovers(cluster_id)?;
    found.extend(iptables::leftovers(cluster_id));
    found.extend(ipvs::leftovers(cluster_id)?);
    Ok(found)
}

/// Removes that.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn cleanup(cluster_id: &str) -> sys::Result<()> {
    iptables::cleanup(cluster_id)?;
    ipvs::cleanup(cluster_id)?;
    nftables::cleanup(cluster_id)
}

/// A thing that a mode needs and this host does not have, or this process may not use.
#[derive(Debug)]
pub enum Missing {
    /// The host's iptables.
    Iptables(sys::Error),
    /// IPVS or ipset in the kernel.
    Ipvs(sys::Error),
}

/// Tries what a mode of a cluster with these Service addresses needs; changes nothing that stays.
///
/// # Errors
/// What is missing. nftables is not looked at.
pub fn try_mode(mode: &Mode, services: &Cidrs) -> Result<(), Missing> {
    if *mode == Mode::Nftables {
        return Ok(());
    }
    for family in services.iter().map(Cidr::family) {
        iptables::tool::Iptables::find(family).map_err(Missing::Iptables)?;
    }
    match mode {
        Mode::Ipvs(_) => ipvs::try_kernel().map_err(Missing::Ipvs),
        Mode::Nftables | Mode::Iptables => Ok(()),
    }
}

/// What modes that have rules in iptables may have there.
fn known() -> iptables::rules::Known {
    use iptables::render;
    use ipvs::frame;

    iptables::rules::Known {
        jumps: render::jumps().into_iter().chain(frame::jumps()).collect(),
        chains: render::CHAINS.into_iter().chain(frame::CHAINS).collect(),
    }
}
