//! The ranges that this Node's Pods have their addresses from, one of each family: what its Node object says.
//!
//! They are kept in a file, so that a Node that starts while no API server answers goes on with them.

use anyhow::{Context, Result};
use auth::pki;
use base::Tasks;
use controller::{Informers, Scope};
use k8s_openapi::api::core::v1::{Node, NodeSpec};
use kube::api::{Api, ObjectMeta, PostParams};
use machinery::net::{Cidr, Cidrs, Family};

use super::Settings;
use crate::layout::Layout;

/// The ranges of this Node; waits until it has them. The Node's object is made if there is none.
///
/// # Errors
/// If the API server refuses the Node.
pub(super) async fn of_node(settings: &Settings, layout: &Layout, informers: &Informers) -> Result<Cidrs> {
    let file = layout.pod_cidr();
    if file.exists() {
        let text = std::fs::read_to_string(&file).context("read the Node's ranges")?;
        let kept: Cidrs = text.trim().parse()?;
        // A cluster that has become one of both families gives its Nodes a second range.
        if settings.args.cluster_cidr.iter().all(|cidr| kept.of(cidr.family()).is_some()) {
            return Ok(kept);
        }
    }
    if !settings.has_node_ipam() {
        return first_ranges(settings.args.cluster_cidr);
    }
    let spec = super::kubelet_config::spec_of_newcomer(layout, &settings.args)?;
    register(&settings.node_name, spec, informers).await?;
    let cidrs = wait(&settings.node_name, informers, |_| true).await;
    pki::write_file(&file, cidrs.to_string().as_bytes(), 0o600)?;
    Ok(cidrs)
}

/// The ranges of the only Node there is: the first 256 addresses of the cluster's of IPv4, and as many of IPv6 as upstream
/// gives a Node.
///
/// # Errors
/// Never for what a flag may say.
pub(crate) fn first_ranges(cluster: Cidrs) -> Result<Cidrs> {
    let first = |cidr: Cidr| {
        let bits = if cidr.family() == Family::V4 { 24 } else { 64 };
        cidr.subnets(cidr.bits().max(bits)).next().context("find the first range of the cluster's network")
    };
    let ranges = cluster.iter().map(first).collect::<Result<Vec<_>>>()?;
    Cidrs::of_list(&ranges).context("find the first ranges of the cluster's networks")
}

/// Ends when the Node has got other ranges than those in the file, which is then changed: somebody has deleted the
/// Node's object and it was made anew.
pub(super) async fn changed(settings: &Settings, layout: &Layout, informers: &Informers) -> Result<()> {
    let file = layout.pod_cidr();
    if !file.exists() {
        return std::future::pending().await;
    }
    let known: Cidrs = std::fs::read_to_string(&file).context("read the Node's ranges")?.trim().parse()?;
    let new = wait(&settings.node_name, informers, |cidrs| cidrs != known).await;
    tracing::warn!(old = %known, %new, "this Node's ranges have changed; it starts over");
    pki::write_file(&file, new.to_string().as_bytes(), 0o600)?;
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
async fn register(name: &str, spec: Option<NodeSpec>, informers: &Informers) -> Result<()> {
    let nodes: Api<Node> = Api::all(informers.client().clone());
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let mut backoff =
        base::Backoff::new(std::time::Duration::from_millis(20), std::time::Duration::from_secs(5), 0.2);
    loop {
        let node = Node { metadata: metadata.clone(), spec: spec.clone(), status: None };
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

async fn wait(name: &str, informers: &Informers, are_they: impl Fn(Cidrs) -> bool) -> Cidrs {
    let scope = Scope { field_selector: Some(format!("metadata.name={name}")), ..Scope::default() };
    let nodes = informers.scoped::<Node>(scope);
    let mut changes = nodes.subscribe();
    loop {
        if let Some(cidrs) = nodes.get(name).and_then(|node| ranges(&node)).filter(|cidrs| are_they(*cidrs)) {
            return cidrs;
        }
        changes.next().await;
    }
}

/// What a Node's object says: all ranges, or the only one.
fn ranges(node: &Node) -> Option<Cidrs> {
    let spec = node.spec.as_ref()?;
    let all = spec.pod_cidrs.as_deref().filter(|all| !all.is_empty());
    let all = all.unwrap_or(spec.pod_cidr.as_slice());
    Cidrs::of_list(&all.iter().map(|text| Cidr::legacy(text)).collect::<Option<Vec<_>>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nodes_ranges_are_what_its_object_says() {
        for (spec, expect) in [
            ("{}", None),
            (r#"{"podCIDR": ""}"#, None),
            (r#"{"podCIDR": "10.42.1.0/24"}"#, Some("10.42.1.0/24")),
            (r#"{"podCIDR": "10.42.1.0/24", "podCIDRs": ["10.42.1.0/24"]}"#, Some("10.42.1.0/24")),
            (
                r#"{"podCIDR": "fd42::/64", "podCIDRs": ["fd42::/64", "10.42.1.0/24"]}"#,
                Some("fd42::/64,10.42.1.0/24"),
            ),
            (r#"{"podCIDRs": []}"#, None),
            (r#"{"podCIDRs": ["10.42.1.0/24", "10.42.2.0/24"]}"#, None),
            (r#"{"podCIDRs": ["10.42.1.0/24", "nothing"]}"#, None),
        ] {
            let node: Node =
                serde_json::from_str(&format!(r#"{{"metadata": {{}}, "spec": {spec}}}"#)).unwrap();
            assert_eq!(ranges(&node).map(|cidrs| cidrs.to_string()).as_deref(), expect, "{spec}");
        }
        assert_eq!(ranges(&Node::default()), None);
    }

    #[test]
    fn the_only_node_has_the_first_ranges() {
        for (cluster, expect) in [
            ("10.42.0.0/16", "10.42.0.0/24"),
            ("10.42.0.0/26", "10.42.0.0/26"),
            ("fd42::/56", "fd42::/64"),
            ("fd42::/80", "fd42::/80"),
            ("fd42::/56,10.42.0.0/16", "fd42::/64,10.42.0.0/24"),
        ] {
            assert_eq!(first_ranges(cluster.parse().unwrap()).unwrap().to_string(), expect);
        }
    }
}
