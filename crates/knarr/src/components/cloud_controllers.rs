//! The controllers of a cloud: what operators say of them, and which of them have something to do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use cli::args::CloudOptionArgs;
use clouds::{Client, Cloud, Options};
use controller::{Controller, Engine, Informers};
use machinery::net::Cidrs;

/// The Lease of whoever works. Source: `NewCloudControllerManagerOptions`.
pub(super) const LEASE: &str = "cloud-controller-manager";
/// In a list of controllers: all of them.
const ALL: &str = "*";

/// What the controllers of a process are told.
#[derive(Clone)]
pub(super) struct CloudControllers {
    socket: PathBuf,
    options: Options,
    /// What the provider must call itself; anything, if empty.
    provider_name: String,
    selected: Vec<Controller>,
    workers: BTreeMap<&'static str, usize>,
}

impl CloudControllers {
    /// Reads what flags say; `routes` is whether the cloud leads packets to Pods where they do not say.
    ///
    /// # Errors
    /// If a name is no controller's.
    pub(super) fn read(
        said: &CloudOptionArgs,
        socket: &Path,
        cluster_cidr: Option<Cidrs>,
        routes: bool,
    ) -> Result<Self> {
        let workers = clouds::CONTROLLERS.iter().map(|row| {
            let number = match row.name {
                "service-lb-controller" => said.concurrent_service_syncs,
                // All routes are one key.
                "node-route-controller" => 1,
                _ => said.concurrent_node_syncs,
            };
            (row.name, usize::from(number))
        });
        Ok(Self {
            socket: socket.to_owned(),
            options: Options {
                cluster_name: said.cluster_name.clone(),
                cluster_cidr,
                configure_cloud_routes: said.configure_cloud_routes.unwrap_or(routes),
                route_reconciliation_period: said.route_reconciliation_period,
                node_monitor_period: said.node_monitor_period,
                node_status_update_frequency: said.node_status_update_frequency,
            },
            provider_name: said.cloud_provider.clone(),
            selected: selected(&said.controllers)?,
            workers: workers.collect(),
        })
    }

    /// Waits until the provider answers. Gives the controllers that have something to do in its cloud, each with the
    /// ServiceAccount that has its rights, and what runs them.
    ///
    /// # Errors
    /// If it is another provider than was named.
    pub(super) async fn begin(
        &self,
        informers: &Informers,
    ) -> Result<(Engine, Vec<(Controller, &'static str)>)> {
        let provider = Arc::new(Client::new(&self.socket));
        let cloud = informers.setting_or(|| Cloud::new(provider, self.options.clone()));
        let capabilities = cloud.capabilities(informers).await;
        if !self.provider_name.is_empty() && self.provider_name != capabilities.provider_name {
            bail!(
                "--cloud-provider {}: the provider at {} calls itself {:?}",
                self.provider_name,
                self.socket.display(),
                capabilities.provider_name
            );
        }
        tracing::info!(?capabilities, "the cloud's provider answers");
        let mut rows = Vec::new();
        for row in &self.selected {
            match clouds::idle(row.name, &capabilities, &self.options) {
                Some(why) => tracing::warn!(controller = row.name, why, "the controller has nothing to do"),
                None => rows.push((*row, clouds::account_of(row.name))),
            }
        }
        Ok((clouds::engine(informers.clone(), self.workers.clone()), rows))
    }
}

/// Those that run: of several entries about one the first counts. Source: `IsControllerEnabled`.
fn selected(entries: &[String]) -> Result<Vec<Controller>> {
    let canonical = |name: &str| {
        let alias = clouds::ALIASES.iter().find(|(alias, _)| *alias == name).map(|(_, name)| *name);
        clouds::CONTROLLERS.iter().map(|row| row.name).find(|known| *known == alias.unwrap_or(name))
    };
    let mut said: BTreeMap<&str, bool> = BTreeMap::new();
    let mut has_all = false;
    for entry in entries {
        if entry == ALL {
            has_all = true;
            continue;
        }
        let (name, is_on) = entry.strip_prefix('-').map_or((entry.as_str(), true), |name| (name, false));
        let name = canonical(name).with_context(|| {
            let known: Vec<&str> = clouds::CONTROLLERS.iter().map(|row| row.name).collect();
            format!("--controllers: {entry:?} must be one of {}", known.join(", "))
        })?;
        said.entry(name).or_insert(is_on);
    }
    let is_on = |row: &&Controller| said.get(row.name).copied().unwrap_or(has_all);
    Ok(clouds::CONTROLLERS.iter().filter(is_on).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_chosen_by_names_new_and_old() {
        let check = |flag: &str| {
            let entries: Vec<String> = flag.split(',').map(str::to_owned).collect();
            selected(&entries).map(|rows| rows.iter().map(|row| row.name).collect::<Vec<_>>().join(" "))
        };
        let (node, life) = ("cloud-node-controller", "cloud-node-lifecycle-controller");
        let (route, service) = ("node-route-controller", "service-lb-controller");
        assert_eq!(check("*").unwrap(), [node, life, route, service].join(" "));
        assert_eq!(check("*,-route,-service").unwrap(), [node, life].join(" "));
        assert_eq!(check("cloud-node,-cloud-node,*").unwrap(), [node, life, route, service].join(" "));
        assert_eq!(check("service-lb-controller").unwrap(), service);
        for wrong in ["", "-", "*,-*", "job", "Route"] {
            let told = check(wrong).unwrap_err().to_string();
            assert!(told.contains("must be one of cloud-node-controller"), "{wrong}: {told}");
        }
    }
}
