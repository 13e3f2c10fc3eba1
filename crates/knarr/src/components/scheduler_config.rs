//! How the scheduler is set up: the file of `--kube-scheduler-arg config=FILE`, or of `--config` where it runs alone.
//!
//! It counts from the scheduler's start on, as upstream's does; a changed file is handed over and waits for the next one.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use apiserver::ApiServer;
use cli::args::SchedulerArgs;
use futures::future::BoxFuture;
use scheduler::configuration::ConfigurationError;

use super::Settings;
use super::configuration::{Bundle, Configuration, Reader, read_named, read_text};

const FLAG: &str = "--kube-scheduler-arg config";

/// The file.
pub(super) const CONFIGURATION: Configuration = Configuration {
    what: "scheduler",
    good: "cred/scheduler-config.json",
    broken: "cred/scheduler-config-broken.json",
    named: |settings| Some((FLAG, settings.args.scheduler_config()?)),
    check,
    reload,
};

fn check(_: &Settings, text: &str, read: &Reader<'_>) -> Result<()> {
    // Its errors tell their causes themselves.
    parse(text, read).map(drop).map_err(anyhow::Error::msg)
}

fn parse(text: &str, read: &Reader<'_>) -> Result<scheduler::Configuration, ConfigurationError> {
    scheduler::Configuration::parse(text, &|file| read(file).map_err(io::Error::other))
}

fn reload<'a>(_: &'a Settings, _: &'a ApiServer, _: &'a Bundle) -> BoxFuture<'a, Result<bool>> {
    Box::pin(std::future::ready(Ok(false)))
}

/// In the control plane, in its folder: what was handed over.
///
/// # Errors
/// If it cannot be used.
pub(super) fn of_cluster(settings: &Settings) -> Result<scheduler::Configuration> {
    if settings.args.scheduler_config().is_none() {
        return Ok(scheduler::Configuration::default());
    }
    let bundle = Bundle::load(Path::new(CONFIGURATION.good))?;
    parse(&bundle.text, &|file: &str| bundle.read(file)).map_err(|error| anyhow::anyhow!("{FLAG}: {error}"))
}

/// A scheduler alone: its configuration, and how to reach the API server. Flags of leader election win over the file.
///
/// # Errors
/// If the file cannot be used, or nothing says how to reach the API server.
pub(crate) fn of_flags(args: &SchedulerArgs) -> Result<(scheduler::Configuration, PathBuf)> {
    let mut configuration = match &args.config {
        None => scheduler::Configuration::default(),
        Some(path) => {
            let text = read_text(path).context("--config")?;
            parse(&text, &read_named)
                .map_err(|error| anyhow::anyhow!("--config {}: {error}", path.display()))?
        }
    };
    configuration.leader_election = args.leader.or(configuration.leader_election);
    cli::validate::leader_election(&configuration.leader_election)?;
    let said = configuration.kubeconfig.clone().map(PathBuf::from);
    let kubeconfig = said.or_else(|| args.kubeconfig.clone());
    let kubeconfig = kubeconfig
        .context("name a kubeconfig: --kubeconfig, or clientConnection.kubeconfig in the file of --config")?;
    Ok((configuration, kubeconfig))
}
