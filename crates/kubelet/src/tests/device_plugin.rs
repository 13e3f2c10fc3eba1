//! A device plugin of its own, over real gRPC, and a Pod that asks for its devices.

use std::convert::Infallible;
use std::path::{Path, PathBuf};

use csi::registration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{UnixListener, UnixStream};
use tonic::client::Grpc as Client;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::server::{Grpc, ServerStreamingService, UnaryService};
use tonic::transport::{Endpoint, Uri};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use super::*;
use crate::node_resources::device_plugins::api::{
    AllocateRequest, AllocateResponse, ContainerAllocateResponse, Device, DevicePluginOptions, DeviceSpec,
    Empty, HEALTHY, ListAndWatchResponse, NumaNode, RegisterRequest, TopologyInfo,
};
use crate::node_resources::pod_resources::api::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, GetPodResourcesRequest,
    GetPodResourcesResponse, ListPodResourcesRequest, ListPodResourcesResponse,
};

/// Of a device beside that NUMA node.
fn near(id: i64) -> Option<TopologyInfo> {
    Some(TopologyInfo { nodes: vec![NumaNode { id }] })
}

const GPU: &str = "example.com/gpu";

type Answer<T> = BoxFuture<'static, Result<Response<T>, Status>>;

struct Options;

impl UnaryService<Empty> for Options {
    type Response = DevicePluginOptions;
    type Future = Answer<DevicePluginOptions>;

    fn call(&mut self, _: Request<Empty>) -> Self::Future {
        std::future::ready(Ok(Response::new(DevicePluginOptions::default()))).boxed()
    }
}

/// Whether it refuses.
struct Allocate(bool);

impl UnaryService<AllocateRequest> for Allocate {
    type Response = AllocateResponse;
    type Future = Answer<AllocateResponse>;

    fn call(&mut self, request: Request<AllocateRequest>) -> Self::Future {
        if self.0 {
            return std::future::ready(Err(Status::unknown("it is on fire"))).boxed();
        }
        let containers = request.into_inner().container_requests.into_iter().map(|container| {
            let ids = container.devices_ids.join(",");
            let device = DeviceSpec {
                container_path: "/dev/gpu".into(),
                host_path: "/dev/null".into(),
                permissions: "rw".into(),
            };
            ContainerAllocateResponse {
                envs: [("GPUS".to_owned(), ids)].into(),
                devices: vec![device],
                ..Default::default()
            }
        });
        let answer = AllocateResponse { container_responses: containers.collect() };
        std::future::ready(Ok(Response::new(answer))).boxed()
    }
}

struct Devices;

impl ServerStreamingService<Empty> for Devices {
    type Response = ListAndWatchResponse;
    type ResponseStream = futures::stream::BoxStream<'static, Result<ListAndWatchResponse, Status>>;
    type Future = Answer<Self::ResponseStream>;

    fn call(&mut self, _: Request<Empty>) -> Self::Future {
        let device =
            |id: &str, health: &str| Device { id: id.into(), health: health.into(), topology: near(1) };
        let devices = vec![device("g0", "Unhealthy"), device("g1", HEALTHY)];
        let first = futures::stream::iter([Ok(ListAndWatchResponse { devices })]);
        let stream = futures::StreamExt::chain(first, futures::stream::pending());
        std::future::ready(Ok(Response::new(futures::StreamExt::boxed(stream)))).boxed()
    }
}

async fn answer(request: hyper::Request<Incoming>, refuses: bool) -> http::Response<tonic::body::Body> {
    match request.uri().path() {
        "/v1beta1.DevicePlugin/GetDevicePluginOptions" => {
            Grpc::new(ProstCodec::default()).unary(Options, request).await
        }
        "/v1beta1.DevicePlugin/ListAndWatch" => {
            Grpc::new(ProstCodec::default()).server_streaming(Devices, request).await
        }
        "/v1beta1.DevicePlugin/Allocate" => {
            Grpc::new(ProstCodec::default()).unary(Allocate(refuses), request).await
        }
        other => Status::unimplemented(other.to_owned()).into_http(),
    }
}

fn serve(listener: UnixListener, refuses: bool) {
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = hyper::service::service_fn(move |request| async move {
                Ok::<_, Infallible>(answer(request, refuses).await)
            });
            tokio::spawn(
                hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service),
            );
        }
    });
}

async fn call<Q, A>(socket: &Path, path: &'static str, request: Q) -> Result<A, Status>
where
    Q: prost::Message + 'static,
    A: prost::Message + Default + 'static,
{
    let socket = socket.to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(&socket).await.map(TokioIo::new) }
    });
    let channel = Endpoint::from_static("http://localhost").connect_with_connector(connector).await.unwrap();
    let mut grpc = Client::new(channel);
    grpc.ready().await.unwrap();
    let codec = ProstCodec::<Q, A>::default();
    let path = PathAndQuery::from_static(path);
    grpc.unary(Request::new(request), path, codec).await.map(Response::into_inner)
}

async fn register(socket: &Path, request: RegisterRequest) -> Result<(), Status> {
    call::<_, Empty>(socket, "/v1beta1.Registration/Register", request).await.map(drop)
}

/// A node with a plugin that has registered.
async fn with_plugin(refuses: bool) -> Node {
    let node = Node::start();
    let folder = node.dir.path().join("kubelet/device-plugins");
    let socket = folder.join("kubelet.sock");
    node.until_there(&socket).await;
    serve(UnixListener::bind(folder.join("gpu.sock")).unwrap(), refuses);
    let (version, endpoint) = ("v1beta1".to_owned(), "gpu.sock".to_owned());
    register(&socket, RegisterRequest { version, endpoint, resource_name: GPU.into(), options: None })
        .await
        .unwrap();
    node.api.until_node(|node| node["status"]["allocatable"][GPU] == "1").await;
    node
}

/// A device plugin that kubelets find by its socket.
struct Found(PathBuf);

impl grpc::Router for Found {
    fn answer(&self, path: &str, request: grpc::Asked) -> BoxFuture<'static, grpc::Answer> {
        let endpoint = self.0.display().to_string();
        match path {
            "/pluginregistration.Registration/GetInfo" => grpc::unary(request, move |_: InfoRequest| {
                let (kind, name) = ("DevicePlugin".to_owned(), GPU.to_owned());
                let info =
                    PluginInfo { r#type: kind, name, endpoint, supported_versions: vec!["v1beta1".into()] };
                std::future::ready(Ok::<_, Status>(info)).boxed()
            }),
            "/pluginregistration.Registration/NotifyRegistrationStatus" => {
                grpc::unary(request, move |status: RegistrationStatus| {
                    assert!(status.plugin_registered, "{}", status.error);
                    std::future::ready(Ok::<_, Status>(RegistrationStatusResponse {})).boxed()
                })
            }
            other => grpc::unknown(other),
        }
    }
}

#[tokio::test]
async fn a_plugin_is_found_by_its_socket_and_gone_with_it() {
    let node = Node::start();
    let (registry, socket) =
        (node.dir.path().join("kubelet/plugins_registry"), node.dir.path().join("found.sock"));
    serve(UnixListener::bind(&socket).unwrap(), false);
    node.until_there(&registry).await;
    let listener = grpc::bind(&registry.join("gpu-reg.sock")).unwrap();
    let tasks = node.tasks.child();
    tokio::spawn(grpc::serve(listener, "plugin", Arc::new(Found(socket)), tasks));
    node.api.until_node(|node| node["status"]["allocatable"][GPU] == "1").await;
    std::fs::remove_file(registry.join("gpu-reg.sock")).unwrap();
    node.api.until_node(|node| node["status"]["allocatable"][GPU] == "0").await;
    assert_eq!(node.api.node()["status"]["capacity"][GPU], "2", "it may come back");
}

#[tokio::test]
async fn devices_of_a_plugin_that_has_not_come_back_are_not_offered_by_the_next_kubelet() {
    let node = with_plugin(false).await;
    node.stop_kubelet();
    node.spawn_kubelet();
    node.api.until_node(|node| node["status"]["allocatable"][GPU] == "0").await;
    let none = "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate unhealthy devices example.com/gpu, which is unexpected";
    assert_eq!(refused(&node, 1).await, none);
}

fn asking(count: u32) -> Value {
    pod(json!({"containers": [{"name": "main", "image": "img", "imagePullPolicy": "IfNotPresent",
        "resources": {"limits": {GPU: count.to_string()}}}]}))
}

#[tokio::test]
async fn a_device_is_given_to_one_container_as_its_plugin_says() {
    let node = Node::start();
    let folder = node.dir.path().join("kubelet/device-plugins");
    let socket = folder.join("kubelet.sock");
    node.until_there(&socket).await;
    serve(UnixListener::bind(folder.join("gpu.sock")).unwrap(), false);
    let request = |version: &str, name: &str| RegisterRequest {
        version: version.into(),
        endpoint: "gpu.sock".into(),
        resource_name: name.into(),
        options: None,
    };
    let refused = register(&socket, request("v1alpha", GPU)).await.unwrap_err();
    assert!(refused.message().contains("is not supported by kubelet. Supported version is \"v1beta1\""));
    assert!(register(&socket, request("v1beta1", "memory")).await.is_err());
    register(&socket, request("v1beta1", GPU)).await.unwrap();
    // Its status tells what there is and what is well.
    node.api.until_node(|node| node["status"]["allocatable"][GPU] == "1").await;
    assert_eq!(node.api.node()["status"]["capacity"][GPU], "2");

    node.api.put(asking(1));
    node.until("readiness", is_ready).await;
    let config = node.runtime.created();
    let env = config.envs.iter().find(|env| env.key == "GPUS");
    assert_eq!(env.map(|env| env.value.as_str()), Some("g1"), "the one that is well");
    assert_eq!(config.devices[0].container_path, "/dev/gpu");
}

async fn refused(node: &Node, count: u32) -> Value {
    node.api.put(asking(count));
    let refused = node.until("the refusal", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(refused["status"]["reason"], "UnexpectedAdmissionError");
    assert!(node.runtime.calls().iter().all(|call| !call.starts_with("run sandbox")));
    refused["status"]["message"].clone()
}

#[tokio::test]
async fn a_pod_that_asks_for_more_devices_than_there_are_is_refused() {
    let node = with_plugin(false).await;
    let expect = "Pod was rejected: Allocate failed due to requested number of devices unavailable for example.com/gpu. Requested: 2, Available: 1, which is unexpected";
    assert_eq!(refused(&node, 2).await, expect);
    node.api.delete();
    node.until_gone().await;
    node.api.put(asking(1));
    node.until("readiness: nothing was kept for the one before", is_ready).await;
}

#[tokio::test]
async fn a_plugin_that_refuses_is_asked_before_anything_is_made() {
    let node = with_plugin(true).await;
    let expect = "Pod was rejected: Allocate failed due to rpc error: code = Unknown desc = it is on fire, which is unexpected";
    assert_eq!(refused(&node, 1).await, expect);
}

#[tokio::test]
async fn who_has_which_device_can_be_asked_on_the_node() {
    let node = with_plugin(false).await;
    let socket = node.dir.path().join("kubelet/pod-resources/kubelet.sock");
    let path = "/v1.PodResourcesLister/GetAllocatableResources";
    let all: AllocatableResourcesResponse =
        call(&socket, path, AllocatableResourcesRequest {}).await.unwrap();
    assert_eq!(all.devices[0].device_ids, ["g1"]);
    assert_eq!(all.devices[0].topology, near(1));
    node.api.put(asking(1));
    node.until("readiness", is_ready).await;
    let path = "/v1.PodResourcesLister/List";
    let list: ListPodResourcesResponse = call(&socket, path, ListPodResourcesRequest {}).await.unwrap();
    let pod = &list.pod_resources[0];
    assert_eq!(
        (pod.namespace.as_str(), pod.name.as_str(), pod.containers[0].name.as_str()),
        ("shop", "web", "main")
    );
    let device = &pod.containers[0].devices[0];
    assert_eq!((device.resource_name.as_str(), device.device_ids.as_slice()), (GPU, &["g1".to_owned()][..]));
    let ask = |name: &str| GetPodResourcesRequest { pod_name: name.into(), pod_namespace: "shop".into() };
    let path = "/v1.PodResourcesLister/Get";
    let got: GetPodResourcesResponse = call(&socket, path, ask("web")).await.unwrap();
    assert_eq!(got.pod_resources.as_ref(), Some(pod));
    let none = call::<_, GetPodResourcesResponse>(&socket, path, ask("nobody")).await.unwrap_err();
    assert_eq!(none.message(), "pod nobody in namespace shop not found");
}
