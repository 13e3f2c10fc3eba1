//! Messages of the DRA plugin API, which is the same in v1 and v1beta1, and the calls.
//!
//! Source: `k8s.io/kubelet/pkg/apis/dra/v1/api.proto`.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::metrics::{KubeletMetrics, Measure};

/// What `PluginInfo.type` of a DRA driver is. Source: `registerapi.DRAPlugin`.
pub(crate) const DRA_PLUGIN: &str = "DRAPlugin";
/// What drivers list as versions. Source: `DRAPluginService`.
pub(crate) const SERVICES: [&str; 2] = ["v1.DRAPlugin", "v1beta1.DRAPlugin"];
/// How long a call may take. Source: `defaultClientCallTimeout` of upstream's kubelet.
const CALL_MAX: Duration = Duration::from_secs(45);

/// Claims that are to be prepared, or to be taken back.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ClaimsRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) claims: Vec<Claim>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Claim {
    #[prost(string, tag = "1")]
    pub(crate) namespace: String,
    #[prost(string, tag = "2")]
    pub(crate) uid: String,
    #[prost(string, tag = "3")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct NodePrepareResourcesResponse {
    /// By uid.
    #[prost(map = "string, message", tag = "1")]
    pub(crate) claims: HashMap<String, NodePrepareResourceResponse>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct NodePrepareResourceResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) devices: Vec<Device>,
    #[prost(string, tag = "2")]
    pub(crate) error: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Device {
    /// Of the claim; none means all.
    #[prost(string, repeated, tag = "1")]
    pub(crate) request_names: Vec<String>,
    #[prost(string, tag = "2")]
    pub(crate) pool_name: String,
    #[prost(string, tag = "3")]
    pub(crate) device_name: String,
    #[prost(string, repeated, tag = "4")]
    pub(crate) cdi_device_ids: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct NodeUnprepareResourcesResponse {
    /// By uid.
    #[prost(map = "string, message", tag = "1")]
    pub(crate) claims: HashMap<String, NodeUnprepareResourceResponse>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct NodeUnprepareResourceResponse {
    #[prost(string, tag = "1")]
    pub(crate) error: String,
}

/// A call's paths: as the version's proto file names it now, and as drivers built with its first releases do.
type Paths = [&'static str; 2];

macro_rules! paths {
    ($version:literal, $call:literal) => {
        [
            concat!("/k8s.io.kubelet.pkg.apis.dra.", $version, ".DRAPlugin/", $call),
            concat!("/", $version, ".DRAPlugin/", $call),
        ]
    };
}

/// A driver on this node. Cloning shares the connection.
#[derive(Clone)]
pub(crate) struct Driver {
    name: String,
    metrics: Arc<KubeletMetrics>,
    channel: Channel,
    prepare: Paths,
    unprepare: Paths,
}

/// Why nothing can be said to a driver.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoService {
    /// It names nothing that it speaks.
    #[error("empty list of supported gRPC services (aka supported versions)")]
    Empty,
    /// It speaks only what is not known.
    #[error("none of services supported by the plugin ({0:?}) are supported by the kubelet ({SERVICES:?})")]
    Unknown(Vec<String>),
}

impl Driver {
    /// The driver at `endpoint`, by the first of its services that is known.
    ///
    /// # Errors
    /// In upstream's words: there is none.
    pub(crate) fn new(
        name: &str,
        endpoint: &Path,
        services: &[String],
        metrics: &Arc<KubeletMetrics>,
    ) -> Result<Self, NoService> {
        if services.is_empty() {
            return Err(NoService::Empty);
        }
        let chosen = services.iter().find(|service| SERVICES.contains(&service.as_str()));
        let chosen = chosen.ok_or_else(|| NoService::Unknown(services.to_vec()))?;

        let channel = grpc::channel(endpoint);
        let (prepare, unprepare) = if chosen == SERVICES[0] {
            (paths!("v1", "NodePrepareResources"), paths!("v1", "NodeUnprepareResources"))
        } else {
            (paths!("v1beta1", "NodePrepareResources"), paths!("v1beta1", "NodeUnprepareResources"))
        };
        Ok(Self { name: name.to_owned(), metrics: metrics.clone(), channel, prepare, unprepare })
    }

    pub(crate) async fn node_prepare_resources(
        &self,
        request: ClaimsRequest,
    ) -> Result<NodePrepareResourcesResponse, Status> {
        self.call(self.prepare, request).await
    }

    pub(crate) async fn node_unprepare_resources(
        &self,
        request: ClaimsRequest,
    ) -> Result<NodeUnprepareResourcesResponse, Status> {
        self.call(self.unprepare, request).await
    }

    async fn call<A>(&self, [path, older]: Paths, request: ClaimsRequest) -> Result<A, Status>
    where
        A: prost::Message + Default + 'static,
    {
        match self.measured(path, request.clone()).await {
            Err(status) if status.code() == Code::Unimplemented => self.measured(older, request).await,
            other => other,
        }
    }

    async fn measured<A>(&self, path: &'static str, request: ClaimsRequest) -> Result<A, Status>
    where
        A: prost::Message + Default + 'static,
    {
        let start = Instant::now();
        let answer = grpc::call(&self.channel, path, request, Some(CALL_MAX)).await;
        // As Go's library calls them.
        let code = match answer.as_ref().err().map(Status::code) {
            None | Some(Code::Ok) => "OK".to_owned(),
            Some(Code::Cancelled) => "Canceled".to_owned(),
            Some(code) => format!("{code:?}"),
        };
        self.metrics.measure(Measure::DriverCalls, &[&self.name, path, &code], start.elapsed());
        answer
    }
}
