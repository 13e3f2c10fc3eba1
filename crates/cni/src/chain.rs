//! The plugins of a network in order: ADD forwards, DEL backwards, each given the result so far.

use serde_json::Value;

use crate::attachment::{Attachment, BuiltinConfig};
use crate::exec::ExecPlugin;
use crate::plugins::{Attached, Builtin, Kind, Site};
use crate::types::{CniError, CniResult, NetworkConfigList, is_at_least, is_same};
use crate::versions::{self, Answers};

/// A network's plugins, ready to run.
#[derive(Debug)]
pub(crate) struct Chain {
    conflist: NetworkConfigList,
    plugins: Vec<Plugin>,
}

#[derive(Debug)]
enum Plugin {
    Builtin(Builtin),
    Exec(ExecPlugin),
}

impl Chain {
    pub(crate) fn new(conflist: NetworkConfigList, config: &BuiltinConfig) -> Result<Self, CniError> {
        let mut plugins = Vec::with_capacity(conflist.plugins.len());
        for conf in &conflist.plugins {
            plugins.push(Plugin::find(&conflist, conf, config)?);
        }
        Ok(Self { conflist, plugins })
    }

    /// Chooses the version that plugins are called in, after asking those that have not been asked yet.
    ///
    /// # Errors
    /// There is none that all speak, or a plugin does not say what it speaks.
    pub(crate) fn agree(&mut self, answers: &Answers) -> Result<(), CniError> {
        let mut spoken = Vec::new();
        for plugin in &self.plugins {
            if let Plugin::Exec(plugin) = plugin {
                spoken.push((plugin.kind().to_owned(), answers.of(plugin)?));
            }
        }
        let version = versions::choose(&self.conflist, &spoken)?;
        for plugin in &mut self.plugins {
            if let Plugin::Exec(plugin) = plugin {
                plugin.speak(&version);
            }
        }
        self.conflist.cni_version = version;
        Ok(())
    }

    pub(crate) fn name(&self) -> &str {
        &self.conflist.name
    }

    /// What it is made of.
    pub(crate) fn conflist(&self) -> &NetworkConfigList {
        &self.conflist
    }

    /// Whether none of its binaries is gone, or another one now.
    pub(crate) fn is_there(&self) -> bool {
        self.plugins.iter().all(|plugin| match plugin {
            Plugin::Builtin(_) => true,
            Plugin::Exec(plugin) => plugin.is_there(),
        })
    }

    pub(crate) fn add(&self, attachment: &Attachment) -> Result<CniResult, CniError> {
        let mut result = None;
        for plugin in &self.plugins {
            let added = match plugin {
                Plugin::Builtin(plugin) => plugin.add(attachment, result)?,
                Plugin::Exec(plugin) => plugin.add(attachment, result)?,
            };
            result = Some(added.converted(&self.conflist.cni_version));
        }
        Ok(result.unwrap_or_default())
    }

    /// Every plugin is asked, also after one failed; the first failure is returned.
    pub(crate) fn del(&self, attachment: &Attachment, previous: Option<&CniResult>) -> Result<(), CniError> {
        let mut outcome = Ok(());
        for plugin in self.plugins.iter().rev() {
            let deleted = match plugin {
                Plugin::Builtin(plugin) => plugin.del(attachment),
                Plugin::Exec(plugin) => plugin.del(attachment, previous),
            };
            outcome = outcome.and(deleted);
        }
        outcome
    }

    pub(crate) fn check(&self, attachment: &Attachment, previous: &CniResult) -> Result<(), CniError> {
        // CHECK came with 0.4.
        if self.conflist.disable_check || !is_at_least(&self.conflist.cni_version, (0, 4)) {
            return Ok(());
        }
        self.plugins.iter().try_for_each(|plugin| match plugin {
            Plugin::Builtin(plugin) => plugin.check(attachment, previous),
            Plugin::Exec(plugin) => plugin.check(attachment, previous),
        })
    }

    /// Tells built-in plugins what is attached, after a start.
    pub(crate) fn restore<'a>(
        &self,
        kept: impl Iterator<Item = (&'a Attachment, &'a CniResult)> + Clone,
    ) -> Result<(), CniError> {
        self.plugins.iter().try_for_each(|plugin| match plugin {
            Plugin::Builtin(plugin) => plugin.restore(kept.clone()),
            Plugin::Exec(_) => Ok(()),
        })
    }

    /// Has built-in plugins make their rules again; those that are programs keep them as they can.
    pub(crate) fn rules_again<'a>(
        &self,
        kept: impl Iterator<Item = (&'a Attachment, &'a CniResult)> + Clone,
    ) -> Result<(), CniError> {
        self.plugins.iter().try_for_each(|plugin| match plugin {
            Plugin::Builtin(plugin) => plugin.rules_again(kept.clone()),
            Plugin::Exec(_) => Ok(()),
        })
    }

    /// Frees what belongs to nothing that is attached. Source: CNI's GC.
    ///
    /// Every plugin is asked, also after one failed; the first failure is returned.
    pub(crate) fn retain(&self, attached: &Attached) -> Result<(), CniError> {
        if self.conflist.disable_gc {
            return Ok(());
        }
        let mut first = Ok(());
        for plugin in &self.plugins {
            first = first.and(match plugin {
                Plugin::Builtin(plugin) => plugin.retain(attached),
                Plugin::Exec(plugin) => plugin.gc(attached),
            });
        }
        first
    }

    /// Whether every plugin can attach Pods now. Source: CNI's STATUS.
    pub(crate) fn status(&self) -> Result<(), CniError> {
        self.plugins.iter().try_for_each(|plugin| match plugin {
            Plugin::Builtin(_) => Ok(()),
            Plugin::Exec(plugin) => plugin.status(),
        })
    }
}

impl Plugin {
    /// The configuration that knarr wrote itself runs in-process; others as binaries if they are installed.
    fn find(conflist: &NetworkConfigList, conf: &Value, config: &BuiltinConfig) -> Result<Self, CniError> {
        let invalid =
            |reason: &str| CniError::Config { path: conflist.name.clone().into(), reason: reason.into() };
        let kind =
            conf.get("type").and_then(Value::as_str).ok_or_else(|| invalid("plugin without a type"))?;
        if kind.is_empty() || kind.contains('/') {
            return Err(invalid("plugin type must be a file name"));
        }
        let is_own = is_same(conflist, &config.conflist());
        if let Some(exec) = ExecPlugin::find(conflist, conf, kind, config).filter(|_| !is_own) {
            return Ok(Self::Exec(exec));
        }
        match Kind::of(kind) {
            Some(kind) => {
                let site = Site::of_cluster(config);
                Ok(Self::Builtin(Builtin::new(kind, &conflist.name, conf, &site)?))
            }
            None => {
                let (plugin, searched) = (kind.to_owned(), config.bin_dirs.clone());
                Err(CniError::PluginMissing { plugin, searched })
            }
        }
    }
}
