//! The built-in plugins, one row each, run in-process.

mod bridge;
mod host_local;
mod portmap;
mod rules;

use std::collections::BTreeSet;

use serde_json::Value;

use crate::network::{Attachment, BuiltinConfig};
use crate::types::{CniError, CniResult, NetworkConfigList};

pub(crate) use bridge::VETH_PREFIX;

/// A built-in plugin with its configuration.
#[derive(Debug)]
pub(crate) enum Builtin {
    /// A veth pair on a bridge.
    Bridge(Box<bridge::Bridge>),
    /// Ports of the host.
    Portmap(portmap::Portmap),
    /// `lo`, which is up from the namespace's start.
    Loopback,
}

impl Builtin {
    /// The plugin of this type, `None` if it is not built in.
    pub(crate) fn new(
        conflist: &NetworkConfigList,
        conf: &Value,
        kind: &str,
        config: &BuiltinConfig,
    ) -> Result<Option<Self>, CniError> {
        Ok(match kind {
            "bridge" => Some(Self::Bridge(Box::new(bridge::Bridge::new(conflist, conf, config)?))),
            "portmap" => Some(Self::Portmap(portmap::Portmap::new(config))),
            "loopback" => Some(Self::Loopback),
            _ => None,
        })
    }

    pub(crate) fn add(
        &self,
        attachment: &Attachment,
        previous: Option<CniResult>,
    ) -> Result<CniResult, CniError> {
        match self {
            Self::Bridge(bridge) => bridge.add(attachment),
            Self::Portmap(portmap) => {
                let result = previous.unwrap_or_default();
                portmap.add(attachment, &result)?;
                Ok(result)
            }
            Self::Loopback => Ok(previous.unwrap_or_default()),
        }
    }

    pub(crate) fn del(&self, attachment: &Attachment) -> Result<(), CniError> {
        match self {
            Self::Bridge(bridge) => bridge.del(attachment),
            Self::Portmap(portmap) => portmap.del(attachment),
            Self::Loopback => Ok(()),
        }
    }

    pub(crate) fn check(&self, attachment: &Attachment, previous: &CniResult) -> Result<(), CniError> {
        match self {
            Self::Bridge(bridge) => bridge.check(attachment, previous),
            Self::Portmap(portmap) => portmap.check(attachment),
            Self::Loopback => Ok(()),
        }
    }

    pub(crate) fn restore<'a>(
        &self,
        kept: impl Iterator<Item = (&'a Attachment, &'a CniResult)>,
    ) -> Result<(), CniError> {
        match self {
            Self::Bridge(bridge) => bridge.prepare(),
            Self::Portmap(portmap) => portmap.restore(kept),
            Self::Loopback => Ok(()),
        }
    }

    pub(crate) fn retain(&self, container_ids: &BTreeSet<String>) -> Result<(), CniError> {
        match self {
            Self::Bridge(bridge) => bridge.retain(container_ids),
            Self::Portmap(_) | Self::Loopback => Ok(()),
        }
    }
}
