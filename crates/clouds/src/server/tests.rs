//! The contract over its socket, from client to provider and back.

use std::time::Duration;

use async_trait::async_trait;
use tonic::Code;

use super::*;
use crate::{Client, PUSHBACK, Refusal, RefusalKind};

/// Knows nothing.
struct Nothing;

impl Provider for Nothing {}

/// Answers with what it was asked.
struct Echo;

#[async_trait]
impl Provider for Echo {
    async fn instance_exists(
        &self,
        request: v1::InstanceRequest,
    ) -> Result<v1::InstanceExistsResponse, Status> {
        match request.node {
            Some(node) => Ok(v1::InstanceExistsResponse { exists: node.name == "a" }),
            None => Err(Status::invalid_argument("no node")),
        }
    }

    async fn instance_metadata(
        &self,
        request: v1::InstanceRequest,
    ) -> Result<v1::InstanceMetadataResponse, Status> {
        let node = request.node.unwrap_or_default();
        Ok(v1::InstanceMetadataResponse {
            provider_id: node.provider_id,
            addresses: node.addresses,
            additional_labels: node.labels,
            ..Default::default()
        })
    }

    async fn list_routes(&self, request: v1::ListRoutesRequest) -> Result<v1::ListRoutesResponse, Status> {
        let code = request.cluster_name.parse::<i32>().unwrap();
        let mut status = Status::new(Code::from(code), "one\ntwo");
        status.metadata_mut().insert(PUSHBACK, "90000".parse().unwrap());
        Err(status)
    }
}

struct Rig {
    dir: tempfile::TempDir,
    tasks: Tasks,
}

impl Rig {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), tasks: Tasks::new() }
    }

    fn start(&self, provider: impl Provider) -> Client {
        let socket = self.dir.path().join("cloud.sock");
        start(Arc::new(provider), &socket, &self.tasks).unwrap();
        Client::new(&socket)
    }
}

/// What a provider leaves out is somebody else's, as `cloudprovider.ImplementedElsewhere` is upstream.
#[tokio::test]
async fn calls_that_a_provider_has_not_are_somebody_elses() {
    let rig = Rig::new();
    let client = rig.start(Nothing);
    macro_rules! check {
        ($($name:literal $method:ident $request:ident $response:ident $seconds:literal;)*) => {
            $(
                let refusal = Refusal::from(client.$method(v1::$request::default()).await.unwrap_err());
                let message = concat!($name, " is not supported").to_owned();
                let expect = Refusal { kind: RefusalKind::Elsewhere, message, retry_after: None };
                assert_eq!(refusal, expect);
            )*
        };
    }
    calls!(check);
    rig.tasks.stop();
}

#[tokio::test]
async fn what_is_asked_and_answered_arrives_whole() {
    let rig = Rig::new();
    let client = rig.start(Echo);
    let ask = |node: Option<v1::Node>| client.instance_exists(v1::InstanceRequest { node });
    for (name, expect) in [("a", true), ("b", false), ("", false)] {
        let node = v1::Node { name: name.to_owned(), ..Default::default() };
        assert_eq!(ask(Some(node)).await.unwrap().exists, expect, "{name}");
    }
    let error = ask(None).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::InvalidArgument, "no node"));

    let address = v1::NodeAddress { r#type: "InternalIP".to_owned(), address: "fd00::1".to_owned() };
    let labels = (0..1000).map(|number| (format!("label-{number}"), "\u{e4}".repeat(63)));
    let node = v1::Node {
        provider_id: "example://\u{1f980}".to_owned(),
        addresses: vec![address; 100],
        labels: labels.collect(),
        ..Default::default()
    };
    let answer = client.instance_metadata(v1::InstanceRequest { node: Some(node.clone()) }).await.unwrap();
    assert_eq!(
        (answer.provider_id, answer.addresses, answer.additional_labels),
        (node.provider_id, node.addresses, node.labels)
    );
    rig.tasks.stop();
}

#[tokio::test]
async fn refusals_keep_their_kind_and_when_to_come_again() {
    let rig = Rig::new();
    let client = rig.start(Echo);
    for code in 1..=16 {
        let request = v1::ListRoutesRequest { cluster_name: code.to_string() };
        let refusal = Refusal::from(client.list_routes(request).await.unwrap_err());
        let kind = match Code::from(code) {
            Code::NotFound => RefusalKind::NotFound,
            Code::Unimplemented => RefusalKind::Elsewhere,
            _ => RefusalKind::Failed,
        };
        let retry_after = Some(Duration::from_secs(90));
        assert_eq!(refusal, Refusal { kind, message: "one two".to_owned(), retry_after }, "{code}");
    }
    rig.tasks.stop();
}

/// No answer is a failure, never an absence: Nodes are deleted for those.
#[tokio::test]
async fn a_provider_that_is_away_is_a_failure_and_another_takes_over() {
    let rig = Rig::new();
    let client = Client::new(&rig.dir.path().join("cloud.sock"));
    let request = || v1::InstanceRequest { node: Some(v1::Node { name: "a".into(), ..Default::default() }) };
    let refusal = Refusal::from(client.instance_exists(request()).await.unwrap_err());
    assert_eq!(refusal.kind, RefusalKind::Failed, "{refusal}");
    rig.start(Echo);
    assert!(
        client.instance_exists(request()).await.unwrap().exists,
        "the same client connects when it is there"
    );
    rig.tasks.stop();
}

#[tokio::test]
async fn other_calls_reach_nobody() {
    let rig = Rig::new();
    rig.start(Echo);
    let channel = grpc::channel(&rig.dir.path().join("cloud.sock"));
    for path in [
        "/knarr.cloud.v1.Cloud/instanceExists",
        "/knarr.cloud.v1.Cloud/InstanceExists/",
        "/knarr.cloud.v1.Cloud/",
        "/knarr.cloud.v2.Cloud/InstanceExists",
        "/csi.v1.Node/NodeGetInfo",
        "/",
    ] {
        let asked = v1::InstanceRequest { node: None };
        let outcome = grpc::call::<_, v1::InstanceExistsResponse>(&channel, path, asked, None).await;
        let error = outcome.unwrap_err();
        assert_eq!(
            (error.code(), error.message()),
            (Code::Unimplemented, &*format!("unknown method {path}"))
        );
    }
    rig.tasks.stop();
}
