//! Joins the container runtime to CNI: a sandbox is an attachment.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base::{Backoff, Clock, Random, Tasks};
use cni::{Attachment, BandwidthError, CniError, Network, PortMapping};
use controller::trace::{Reporter, Span};
use controller::{FlushedRules, cause};
use futures::stream::BoxStream;
use jiff::Timestamp;
use network_policy::{Sandbox, Sandboxes};
use runtime::{NetworkError, PodNetwork, SandboxNetwork};
use serde_json::json;
use sys::nftables::Flushes;
use tokio::sync::watch;

/// How soon rules are tried again that the kernel has refused, and how late at last.
const RULES_RETRY_FIRST: Duration = Duration::from_millis(100);
const RULES_RETRY_MAX: Duration = Duration::from_secs(30);

/// The interface that Pods see.
const INTERFACE: &str = "eth0";

/// The capability of plugins that are told the Pod's annotations. Source: containerd's and CRI-O's.
const POD_ANNOTATIONS: &str = "io.kubernetes.cri.pod-annotations";

/// What of a sandbox's labels says which Pod it is. Source: `pkg/kubelet/types/labels.go`.
const IDENTITY_LABELS: [&str; 3] =
    ["io.kubernetes.pod.name", "io.kubernetes.pod.namespace", "io.kubernetes.pod.uid"];

/// The network gave a sandbox no address. In containerd's words.
#[derive(Debug, thiserror::Error)]
#[error("failed to find network info for sandbox {0:?}")]
struct NoAddress(String);

/// Attaches sandboxes to a CNI network.
pub(crate) struct CniPodNetwork {
    network: Arc<Network>,
    clock: Clock,
    reporter: Reporter,
    policed: Option<Sandboxes>,
}

impl CniPodNetwork {
    /// Each ADD is a span, which `reporter` gets. With `policed`, nothing runs in a sandbox of the built-in network before
    /// the rules for it are in force.
    pub(crate) fn new(
        network: Arc<Network>,
        clock: Clock,
        reporter: Reporter,
        policed: Option<Sandboxes>,
    ) -> Self {
        Self { network, clock, reporter, policed }
    }

    /// Tells the policies of a sandbox; none of theirs if somebody else's network has attached it.
    fn police(&self, sandbox: &SandboxNetwork, addresses: &[IpAddr]) -> Option<&Sandboxes> {
        let policed = self.policed.as_ref().filter(|_| self.network.is_builtin())?;
        let labels = sandbox.labels.iter().filter(|(key, _)| !IDENTITY_LABELS.contains(&key.as_str()));
        let told = Sandbox {
            namespace: sandbox.metadata.namespace.clone(),
            name: sandbox.metadata.name.clone(),
            uid: sandbox.metadata.uid.clone(),
            labels: labels.map(|(key, value)| (key.clone(), value.clone())).collect(),
            addresses: addresses.to_vec(),
        };
        policed.put(&sandbox.id, told);
        Some(policed)
    }

    /// The kubelet's cause is that of the call, which is made in its task.
    fn added(&self, sandbox: &SandboxNetwork, start: Timestamp, ips: &[IpAddr]) {
        let Some(cause) = cause::current() else { return };
        let pod = &sandbox.metadata;
        let ips: Vec<String> = ips.iter().map(ToString::to_string).collect();
        self.reporter.span(Span {
            cause,
            component: "cni".to_owned(),
            name: "network added".to_owned(),
            object: format!("pods/{}/{}", pod.namespace, pod.name),
            start_us: start.as_microsecond(),
            end_us: self.clock.now().as_microsecond(),
            detail: ips.join(","),
        });
    }
}

#[async_trait]
impl PodNetwork for CniPodNetwork {
    async fn add(&self, sandbox: &SandboxNetwork) -> Result<Vec<IpAddr>, NetworkError> {
        let start = self.clock.now();
        let (network, attachment) = (self.network.clone(), attachment(sandbox)?);
        let ips = blocking(move || network.add(&attachment)).await?.pod_ips(INTERFACE);
        if ips.is_empty() {
            return Err(NoAddress(sandbox.id.clone()).into());
        }
        self.added(sandbox, start, &ips);
        if let Some(policed) = self.police(sandbox, &ips) {
            policed.in_force().await?;
        }
        Ok(ips)
    }

    async fn remove(&self, sandbox: &SandboxNetwork) -> Result<(), NetworkError> {
        // Before somebody else can have its addresses.
        if let Some(policed) = &self.policed {
            policed.remove(&sandbox.id);
        }
        let (network, attachment) = (self.network.clone(), bare(sandbox));
        blocking(move || network.del(&attachment)).await
    }

    async fn check(&self, sandbox: &SandboxNetwork) -> Result<(), NetworkError> {
        let id = sandbox.id.clone();
        let network = self.network.clone();
        let attached = blocking(move || network.result(&id, INTERFACE)).await?;
        if let Some(attached) = attached {
            self.police(sandbox, &attached.pod_ips(INTERFACE));
        }
        let (network, attachment) = (self.network.clone(), bare(sandbox));
        blocking(move || match network.check(&attachment) {
            // Of all runtimes this one alone asks, and widely used plugins answer wrongly (portmap 1.1 misses IPv6 rules
            // that it has not made): no Pod is made anew for their word.
            Err(error @ CniError::Plugin { .. }) => {
                tracing::warn!(%error, sandbox = attachment.container_id, "a network plugin finds something missing");
                Ok(())
            }
            checked => checked,
        })
        .await
    }

    async fn retain(&self, sandboxes: BTreeSet<String>) -> Result<(), NetworkError> {
        if let Some(policed) = &self.policed {
            policed.retain(|id| sandboxes.contains(id));
        }
        let network = self.network.clone();
        let freed = blocking(move || network.retain(&sandboxes)).await?;
        if !freed.is_empty() {
            tracing::info!(sandboxes = ?freed, "disconnected sandboxes that are gone");
        }
        Ok(())
    }

    async fn not_ready(&self) -> Option<String> {
        let problem = self.network.readiness().borrow().clone();
        problem.map(|problem| format!("Network plugin returns error: {problem}"))
    }

    fn readiness_changes(&self) -> BoxStream<'static, ()> {
        let next = async |mut readiness: watch::Receiver<Option<String>>| {
            readiness.changed().await.ok().map(|()| ((), readiness))
        };
        Box::pin(futures::stream::unfold(self.network.readiness(), next))
    }
}

/// Makes rules of the built-in network again that somebody has taken from the kernel, and tells of it.
pub(super) fn keep_rules(network: &Arc<Network>, flushed: FlushedRules, tasks: &Tasks) {
    let (network, random) = (network.clone(), Random::from_system());
    let mut flushes = Flushes::of_table(network.table());
    tasks.spawn("rules of the pod network", async move {
        loop {
            flushes.next(&random).await;
            let mut backoff = Backoff::new(RULES_RETRY_FIRST, RULES_RETRY_MAX, 0.2);
            loop {
                let network = network.clone();
                match blocking(move || network.rules_again()).await {
                    Ok(()) => break flushed.tell(),
                    Err(error) => {
                        let error = base::error_chain(&*error);
                        tracing::error!(error, "cannot make the rules of the pod network, will try again");
                        tokio::time::sleep(backoff.next(&random)).await;
                    }
                }
            }
        }
    });
}

async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, CniError> + Send + 'static,
) -> Result<T, NetworkError> {
    Ok(tokio::task::spawn_blocking(call).await??)
}

/// With everything that plugins may be told.
fn attachment(sandbox: &SandboxNetwork) -> Result<Attachment, BandwidthError> {
    let mut attachment = bare(sandbox);
    if let Some(bandwidth) = cni::bandwidth(&sandbox.annotations)? {
        attachment.capabilities.insert("bandwidth".into(), bandwidth);
    }
    if let Some(dns) = &sandbox.dns {
        let dns = json!({ "servers": dns.servers, "searches": dns.searches, "options": dns.options });
        attachment.capabilities.insert("dns".into(), dns);
    }
    if !sandbox.cgroup_parent.is_empty() {
        attachment.capabilities.insert("cgroupPath".into(), json!(sandbox.cgroup_parent));
    }
    // As containerd and CRI-O: networks with wishes of their own (fixed addresses, more interfaces) read them here. For
    // `ips`, `mac`, `infinibandGUID` and `aliases` CRI has no source, and none of these runtimes has another.
    attachment.capabilities.insert(POD_ANNOTATIONS.into(), json!(sandbox.annotations));
    Ok(attachment)
}

fn bare(sandbox: &SandboxNetwork) -> Attachment {
    let mappings = sandbox.port_mappings.iter().filter(|mapping| mapping.host_port > 0);
    Attachment {
        container_id: sandbox.id.clone(),
        netns_path: sandbox.netns.clone(),
        ifname: INTERFACE.to_owned(),
        pod_namespace: sandbox.metadata.namespace.clone(),
        pod_name: sandbox.metadata.name.clone(),
        pod_uid: sandbox.metadata.uid.clone(),
        port_mappings: mappings.filter_map(port_mapping).collect(),
        ..Attachment::default()
    }
}

/// `None` for a port that is no port, which the API's validation keeps out.
fn port_mapping(mapping: &cri::v1::PortMapping) -> Option<PortMapping> {
    Some(PortMapping {
        host_port: mapping.host_port.try_into().ok()?,
        container_port: mapping.container_port.try_into().ok()?,
        protocol: mapping.protocol().as_str_name().to_lowercase(),
        host_ip: mapping.host_ip.clone(),
    })
}
