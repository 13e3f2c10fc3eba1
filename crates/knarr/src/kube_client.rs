//! Clients of the API server with the identity in a kubeconfig.

use std::path::Path;

use anyhow::{Context, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};

/// A client.
pub(crate) async fn client(kubeconfig: &Path, agent: &'static str) -> Result<kube::Client> {
    Ok(kube::Client::try_from(config(kubeconfig, agent).await?)?)
}

/// What a kubeconfig says: where, and as whom. `agent` is the program that the client says it is, and the manager of
/// the fields that it writes.
pub(crate) async fn config(kubeconfig: &Path, agent: &'static str) -> Result<kube::Config> {
    let read = Kubeconfig::read_from(kubeconfig).with_context(|| format!("read {}", kubeconfig.display()))?;
    let mut config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    config.headers.push((http::header::USER_AGENT, http::HeaderValue::from_static(agent)));
    Ok(config)
}
