//! The range that this Node's Pods have their addresses from: what its Node object says.
//!
//! The range is kept in a file, so that a Node that starts while no API server answers goes on with it.

use anyhow::{Context, Result};
use auth::pki;
use base::Tasks;
use controller::{Informers, Scope};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ObjectMeta, PostParams};
use machinery::net::Cidr;

use super::Settings;
use crate::layout::Layout;

/// The range of this Node; waits until it has one. The Node's object is made if there is none.
///
/// # Errors
/// If the API server refuses the Node.
pub(super) async fn of_node(settings: &Settings, layout: &Layout, informers: &Informers) -> Result<Cidr> {
    let file = layout.pod_cidr();
    if file.exists() {
        return Ok(std::fs::read_to_string(&file).context("read the Node's range")?.trim().parse()?);
    }
    if !settings.has_node_ipam() {
        return first_range(settings.args.cluster_cidr.main());
    }
    register(&settings.node_name, informers).await?;
    let cidr = wait(&settings.node_name, informers, |cidr| cidr.is_some()).await.unwrap_or_default();
    pki::write_file(&file, cidr.as_bytes(), 0o600)?;
    Ok(cidr.parse()?)
}

/// The range of the only Node there is: the first 256 addresses of the cluster's.
///
/// # Errors
/// Never for what a flag may say.
pub(crate) fn first_range(cluster: Cidr) -> Result<Cidr> {
    cluster.subnets(cluster.bits().max(24)).next().context("find the first range of the cluster's network")
}

/// Ends when the Node has got another range than the one in the file, which is then changed: somebody has deleted the
/// Node's object and it was made anew.
pub(super) async fn changed(settings: &Settings, layout: &Layout, informers: &Informers) -> Result<()> {
    let file = layout.pod_cidr();
    if !file.exists() {
        return std::future::pending().await;
    }
    let known = std::fs::read_to_string(&file).context("read the Node's range")?;
    let is_other = |cidr: Option<&str>| cidr.is_some_and(|cidr| cidr != known);
    let new = wait(&settings.node_name, informers, is_other).await.unwrap_or_default();
    tracing::warn!(old = known, new, "this Node's range has changed; it starts over");
    pki::write_file(&file, new.as_bytes(), 0o600)?;
    Ok(())
}

/// Ends the Node's tasks when its range has changed: the supervisor starts them again.
pub(super) fn follow(settings: &Settings, layout: &Layout, informers: &Informers, tasks: &Tasks) {
    let (settings, layout) = (settings.clone(), layout.clone());
    let (informers, all) = (informers.clone(), tasks.clone());
    tasks.spawn("Pod range", async move {
        match changed(&settings, &layout, &informers).await {
            Ok(()) => all.stop(),
            Err(error) => tracing::error!(error = format!("{error:#}"), "the Node's range is not followed"),
        }
    });
}

/// The kubelet adds what it knows: here the object only has to be there.
async fn register(name: &str, informers: &Informers) -> Result<()> {
    let nodes: Api<Node> = Api::all(informers.client().clone());
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let mut backoff =
        base::Backoff::new(std::time::Duration::from_millis(20), std::time::Duration::from_secs(5), 0.2);
    loop {
        let node = Node { metadata: metadata.clone(), ..Node::default() };
        match nodes.create(&PostParams::default(), &node).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.is_already_exists() => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 422 => {
                return Err(kube::Error::Api(status)).context("make the Node");
            }
            Err(error) => tracing::debug!(%error, "the Node cannot be made yet"),
        }
        tokio::time::sleep(backoff.next(informers.random())).await;
    }
}

async fn wait(name: &str, informers: &Informers, is_it: impl Fn(Option<&str>) -> bool) -> Option<String> {
    let scope = Scope { field_selector: Some(format!("metadata.name={name}")), ..Scope::default() };
    let nodes = informers.scoped::<Node>(scope);
    let mut changes = nodes.subscribe();
    loop {
        let cidr = nodes.get(name).and_then(|node| node.spec.as_ref()?.pod_cidr.clone());
        if is_it(cidr.as_deref()) {
            return cidr;
        }
        changes.next().await;
    }
}
