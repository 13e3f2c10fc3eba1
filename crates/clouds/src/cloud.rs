//! The cloud that a process's controllers ask, what they were told to do, and how something is asked.

use std::sync::Arc;
use std::time::Duration;

use base::Backoff;
use controller::{Action, Failed, Informers, Operation, Outcome};
use futures::FutureExt;
use futures::future::BoxFuture;
use machinery::net::Cidrs;
use tonic::Status;

use crate::provider::{Provider, Refusal};
use crate::v1;

/// The operators' options for the controllers, under the names of upstream's flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The cluster's name in the cloud. Source: `--cluster-name`.
    pub cluster_name: String,
    /// The addresses of Pods: routes to others are not ours. Source: `--cluster-cidr`.
    pub cluster_cidr: Option<Cidrs>,
    /// `true` if the cloud is to lead packets to Pods. Source: `--configure-cloud-routes`.
    pub configure_cloud_routes: bool,
    /// The time between comparisons of routes with Nodes. Source: `--route-reconciliation-period`.
    pub route_reconciliation_period: Duration,
    /// The time between questions to the cloud about a Node that is not ready. Source: `--node-monitor-period`.
    pub node_monitor_period: Duration,
    /// The time between questions to the cloud for a Node's addresses. Source: `--node-status-update-frequency`.
    pub node_status_update_frequency: Duration,
}

impl Default for Options {
    /// Upstream's. Source: `cloud-provider/config/v1alpha1/defaults.go`.
    fn default() -> Self {
        Self {
            cluster_name: "kubernetes".to_owned(),
            cluster_cidr: None,
            configure_cloud_routes: true,
            route_reconciliation_period: Duration::from_secs(10),
            node_monitor_period: Duration::from_secs(5),
            node_status_update_frequency: Duration::from_secs(300),
        }
    }
}

/// A setting of the informers that the controllers stand on.
pub struct Cloud {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) options: Options,
}

impl Cloud {
    /// A cloud that `provider` knows.
    pub fn new(provider: Arc<dyn Provider>, options: Options) -> Self {
        Self { provider, options }
    }

    /// What controllers on these informers were told.
    pub(crate) fn options(informers: &Informers) -> Options {
        informers.setting::<Self>().map(|cloud| cloud.options.clone()).unwrap_or_default()
    }

    /// Asks what the cloud has, until it answers.
    pub async fn capabilities(&self, informers: &Informers) -> v1::GetCapabilitiesResponse {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10), 0.2);
        let mut is_told = false;
        loop {
            match self.provider.get_capabilities(v1::GetCapabilitiesRequest {}).await {
                Ok(capabilities) => return capabilities,
                Err(status) => {
                    let why = Refusal::from(status);
                    match is_told {
                        false => tracing::warn!(%why, "the cloud's provider does not answer yet"),
                        true => tracing::debug!(%why, "the cloud's provider does not answer yet"),
                    }
                    is_told = true;
                }
            }
            tokio::time::sleep(backoff.next(informers.random())).await;
        }
    }
}

/// An action that asks the cloud, and does what follows from the answer.
pub(crate) fn ask<A, C, T>(what: String, call: C, then: T) -> Action
where
    A: Send + 'static,
    C: Fn(Arc<dyn Provider>) -> BoxFuture<'static, Result<A, Status>> + Send + Sync + 'static,
    T: Fn(&Informers, Result<A, Refusal>) -> Outcome + Send + Sync + 'static,
{
    let then = Arc::new(then);
    let run = move |informers: Informers| {
        let cloud = informers.setting::<Cloud>();
        let called = cloud.map(|cloud| call(cloud.provider.clone()));
        let then = then.clone();
        async move {
            match called {
                Some(answer) => then(&informers, answer.await.map_err(Refusal::from)),
                // Controllers are started on informers that have a cloud.
                None => Outcome::failed(
                    controller::Plan::nothing(),
                    Failed { message: "there is no cloud".to_owned(), retry_after: None },
                ),
            }
        }
        .boxed()
    };
    Action::Operation(Operation::new(what, run))
}
