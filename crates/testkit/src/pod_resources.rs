//! A client of the Pod resources API, as agents that monitor a node are.
//!
//! Source: `k8s.io/kubelet/pkg/apis/podresources/v1`, as much of it as tests ask for.

use std::path::Path;

use anyhow::Result;

use crate::grpc;

/// A device that a container has by a claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claimed {
    /// Whose it is.
    pub pod: String,
    /// The container.
    pub container: String,
    /// The claim's name.
    pub claim: String,
    /// Driver, pool and device, with slashes between them.
    pub device: String,
    /// The names by which runtimes know it.
    pub cdi: Vec<String>,
}

/// The devices that all containers of the node have by claims, in order, as the kubelet at `socket` says. To be called within a
/// tokio runtime.
///
/// # Errors
/// It does not answer.
pub async fn claimed(socket: &Path) -> Result<Vec<Claimed>> {
    let list: ListResponse = grpc::call(socket, "/v1.PodResourcesLister/List", &ListRequest {}).await?;
    let mut all = Vec::new();
    for pod in list.pods {
        for container in pod.containers {
            for dynamic in container.dynamic {
                all.extend(dynamic.resources.into_iter().map(|resource| Claimed {
                    pod: pod.name.clone(),
                    container: container.name.clone(),
                    claim: dynamic.claim.clone(),
                    device: [resource.driver, resource.pool, resource.device].join("/"),
                    cdi: resource.cdi.into_iter().map(|device| device.name).collect(),
                }));
            }
        }
    }
    all.sort();
    Ok(all)
}

#[derive(Clone, PartialEq, prost::Message)]
struct ListRequest {}

#[derive(Clone, PartialEq, prost::Message)]
struct ListResponse {
    #[prost(message, repeated, tag = "1")]
    pods: Vec<Pod>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Pod {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "3")]
    containers: Vec<Container>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Container {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "5")]
    dynamic: Vec<Dynamic>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Dynamic {
    #[prost(string, tag = "2")]
    claim: String,
    #[prost(message, repeated, tag = "4")]
    resources: Vec<Resource>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    cdi: Vec<CdiDevice>,
    #[prost(string, tag = "2")]
    driver: String,
    #[prost(string, tag = "3")]
    pool: String,
    #[prost(string, tag = "4")]
    device: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct CdiDevice {
    #[prost(string, tag = "1")]
    name: String,
}
