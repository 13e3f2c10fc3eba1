//! Both ends of CRI on one socket, with a runtime behind it that only pretends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use base::{Clock, Random, Tasks};
use futures::StreamExt;
use prost::Message;

use crate::calls::{Limit, command, endless, grace, image_calls, runtime_calls, twice, usual};
use crate::client::Client;
use crate::server::{self, Services, Streaming};
use crate::*;

/// What a runtime has, and what becomes of calls.
#[derive(Default)]
pub(crate) struct State {
    /// What was asked, in order: the call's name and its request.
    pub(crate) calls: Vec<(String, Vec<u8>)>,
    /// By id, with the state.
    pub(crate) sandboxes: BTreeMap<String, v1::PodSandboxState>,
    /// By id, with the sandbox and the state.
    pub(crate) containers: BTreeMap<String, (String, v1::ContainerState)>,
    /// What every call fails with.
    pub(crate) failure: Option<CriError>,
    /// What it tells by itself; a runtime without such a call has none.
    pub(crate) events: Option<Vec<v1::ContainerEventResponse>>,
}

#[derive(Default)]
pub(crate) struct Pretended(pub(crate) Mutex<State>);

impl Pretended {
    fn answer(&self, call: &str, request: Vec<u8>) -> CriResult<Vec<u8>> {
        let mut state = self.0.lock().unwrap();
        state.calls.push((call.to_owned(), request.clone()));
        if let Some(failure) = state.failure.clone() {
            return Err(failure);
        }
        let missing = || CriError::NotFound("no such thing".into());
        Ok(match call {
            "Version" => {
                v1::VersionResponse { runtime_name: "pretended".into(), ..Default::default() }.encode_to_vec()
            }
            "ListPodSandbox" => {
                let items = state.sandboxes.iter().map(|(id, state)| v1::PodSandbox {
                    id: id.clone(),
                    state: (*state).into(),
                    ..Default::default()
                });
                v1::ListPodSandboxResponse { items: items.collect() }.encode_to_vec()
            }
            "ListContainers" => {
                let containers = state.containers.iter().map(|(id, (sandbox, state))| v1::Container {
                    id: id.clone(),
                    pod_sandbox_id: sandbox.clone(),
                    state: (*state).into(),
                    ..Default::default()
                });
                v1::ListContainersResponse { containers: containers.collect() }.encode_to_vec()
            }
            "PodSandboxStatus" => {
                let id = v1::PodSandboxStatusRequest::decode(&*request).unwrap().pod_sandbox_id;
                let state = (*state.sandboxes.get(&id).ok_or_else(missing)?).into();
                let status = v1::PodSandboxStatus { id, state, ..Default::default() };
                v1::PodSandboxStatusResponse { status: Some(status), ..Default::default() }.encode_to_vec()
            }
            "ContainerStatus" => {
                let id = v1::ContainerStatusRequest::decode(&*request).unwrap().container_id;
                let state = state.containers.get(&id).ok_or_else(missing)?.1.into();
                let status = v1::ContainerStatus { id, state, ..Default::default() };
                v1::ContainerStatusResponse { status: Some(status), ..Default::default() }.encode_to_vec()
            }
            _ => Vec::new(),
        })
    }
}

macro_rules! pretended_runtime {
    ($($name:literal $method:ident $request:ident $response:ident $limit:ident;)*) => {
        #[async_trait]
        impl RuntimeService for Pretended {
            $(async fn $method(&self, request: v1::$request) -> CriResult<v1::$response> {
                Ok(v1::$response::decode(&*self.answer($name, request.encode_to_vec())?).unwrap())
            })*

            async fn exec(&self, _: v1::ExecRequest) -> CriResult<Streams> {
                Err(CriError::missing("Exec"))
            }

            async fn attach(&self, _: v1::AttachRequest) -> CriResult<Streams> {
                Err(CriError::missing("Attach"))
            }

            async fn port_forward(&self, _: v1::PortForwardRequest) -> CriResult<Streams> {
                Err(CriError::missing("PortForward"))
            }

            async fn get_container_events(
                &self,
                _: v1::GetEventsRequest,
            ) -> CriResult<BoxStream<'static, CriResult<v1::ContainerEventResponse>>> {
                let events = self.0.lock().unwrap().events.take();
                let events = events.ok_or_else(|| CriError::missing("GetContainerEvents"))?;
                Ok(futures::stream::iter(events.into_iter().map(Ok)).boxed())
            }
        }

        /// Name, messages, and how long a client waits for the answer to an empty request.
        fn runtime_rows() -> Vec<(&'static str, &'static str, &'static str, Limit)> {
            vec![$(($name, stringify!($request), stringify!($response), $limit(&v1::$request::default()))),*]
        }

        /// Makes every call once.
        async fn call_runtime(client: &Client) -> Vec<(&'static str, Result<(), CriError>)> {
            vec![$(($name, RuntimeService::$method(client, v1::$request::default()).await.map(drop))),*]
        }
    };
}

macro_rules! pretended_images {
    ($($name:literal $method:ident $request:ident $response:ident $limit:ident;)*) => {
        #[async_trait]
        impl ImageService for Pretended {
            $(async fn $method(&self, request: v1::$request) -> CriResult<v1::$response> {
                Ok(v1::$response::decode(&*self.answer($name, request.encode_to_vec())?).unwrap())
            })*
        }

        fn image_rows() -> Vec<(&'static str, &'static str, &'static str, Limit)> {
            vec![$(($name, stringify!($request), stringify!($response), $limit(&v1::$request::default()))),*]
        }

        async fn call_images(client: &Client) -> Vec<(&'static str, Result<(), CriError>)> {
            vec![$(($name, ImageService::$method(client, v1::$request::default()).await.map(drop))),*]
        }
    };
}

runtime_calls!(pretended_runtime);
image_calls!(pretended_images);

struct NoUrls;

#[async_trait]
impl Streaming for NoUrls {
    async fn exec(&self, request: v1::ExecRequest) -> CriResult<String> {
        Err(CriError::FailedPrecondition(format!("container {} does not run", request.container_id)))
    }

    async fn attach(&self, _: v1::AttachRequest) -> CriResult<String> {
        Ok("file:///etc/passwd".into())
    }

    async fn port_forward(&self, _: v1::PortForwardRequest) -> CriResult<String> {
        Ok("not a url".into())
    }
}

/// A runtime on a socket, and a client of it.
pub(crate) struct Pair {
    pub(crate) runtime: Arc<Pretended>,
    pub(crate) client: Client,
    pub(crate) tasks: Tasks,
    _folder: tempfile::TempDir,
}

pub(crate) fn pair() -> Pair {
    let (folder, tasks) = (tempfile::tempdir().unwrap(), Tasks::new());
    let socket = folder.path().join("cri.sock");
    let listener = server::bind(&socket).unwrap();
    let runtime = Arc::new(Pretended::default());
    let services =
        Services { runtime: runtime.clone(), images: runtime.clone(), streaming: Arc::new(NoUrls) };
    tasks.spawn("pretended runtime", server::serve(listener, services, tasks.clone()));
    let client = Client::new(socket.to_str().unwrap(), tasks.clone(), Clock::system()).unwrap();
    Pair { runtime, client, tasks, _folder: folder }
}

/// Source: `service RuntimeService` and `service ImageService` of upstream's `cri-api`, v1.35; timeouts of
/// `remote_runtime.go` and `remote_image.go` of `cri-client`, at two minutes.
#[test]
fn every_call_of_upstreams_has_a_row() {
    let rows = runtime_rows().into_iter().chain(image_rows());
    let found: Vec<String> = rows
        .map(|(name, request, response, limit)| {
            let seconds = limit.map_or("endless".to_owned(), |limit| limit.as_secs().to_string());
            format!("{name} {request} {response} {seconds}")
        })
        .collect();
    let expect: Vec<&str> =
        include_str!("tests/calls.txt").lines().filter(|row| !row.starts_with('#')).collect();
    assert_eq!(found, expect);
    let stop = v1::StopContainerRequest { timeout: 30, ..Default::default() };
    assert_eq!(grace(&stop).map(|limit| limit.as_secs()), Some(150), "the grace period comes on top");
    let never = v1::StopContainerRequest { timeout: -1, ..Default::default() };
    assert_eq!(grace(&never).map(|limit| limit.as_secs()), Some(120));
    let exec = v1::ExecSyncRequest { timeout: 5, ..Default::default() };
    assert_eq!(command(&exec).map(|limit| limit.as_secs()), Some(125), "the command's own limit, too");
}

#[tokio::test]
async fn every_call_reaches_the_runtime_and_comes_back() {
    let pair = pair();
    pair.runtime.0.lock().unwrap().sandboxes.insert(String::new(), v1::PodSandboxState::SandboxReady);
    let exited = v1::ContainerState::ContainerExited;
    pair.runtime.0.lock().unwrap().containers.insert(String::new(), (String::new(), exited));
    let mut made = call_runtime(&pair.client).await;
    made.extend(call_images(&pair.client).await);
    for (name, answer) in &made {
        assert!(answer.is_ok(), "{name}: {answer:?}");
    }
    let names: Vec<&str> = made.iter().map(|(name, _)| *name).collect();
    let state = pair.runtime.0.lock().unwrap();
    assert_eq!(state.calls.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), names);
    pair.tasks.stop();
}

#[tokio::test]
async fn what_is_asked_arrives_whole() {
    let pair = pair();
    let request = v1::ExecSyncRequest {
        container_id: "c".into(),
        cmd: vec!["echo".into(), "ä\n".into(), "x".repeat(3 << 20)],
        timeout: 1,
    };
    pair.client.exec_sync(request.clone()).await.unwrap();
    let calls = pair.runtime.0.lock().unwrap().calls.clone();
    assert_eq!(calls.len(), 1);
    assert_eq!(v1::ExecSyncRequest::decode(&*calls[0].1).unwrap(), request);
    pair.tasks.stop();
}

#[tokio::test]
async fn a_failure_has_the_same_kind_on_both_ends() {
    let pair = pair();
    for failure in [
        CriError::NotFound("no such container".into()),
        CriError::InvalidArgument("a name is needed".into()),
        CriError::FailedPrecondition("it runs".into()),
        CriError::DeadlineExceeded("too late".into()),
        CriError::Unimplemented("never heard of it".into()),
        CriError::Internal("disk full".into()),
    ] {
        pair.runtime.0.lock().unwrap().failure = Some(failure.clone());
        for (name, answer) in
            call_runtime(&pair.client).await.into_iter().chain(call_images(&pair.client).await)
        {
            assert_eq!(format!("{:?}", answer.unwrap_err()), format!("{failure:?}"), "{name}");
        }
    }
    pair.tasks.stop();
}

#[tokio::test]
async fn streams_come_only_from_urls_that_can_be_dialled() {
    let pair = pair();
    let exec = pair.client.exec(v1::ExecRequest { container_id: "c".into(), ..Default::default() }).await;
    let error = exec.err().unwrap();
    assert!(
        matches!(&error, CriError::FailedPrecondition(why) if why == "container c does not run"),
        "{error}"
    );
    assert!(pair.client.attach(v1::AttachRequest::default()).await.is_err(), "a file is no server");
    for ports in [vec![], vec![80, 81]] {
        let request = v1::PortForwardRequest { port: ports, ..Default::default() };
        let error = pair.client.port_forward(request).await.err().unwrap();
        assert!(matches!(error, CriError::InvalidArgument(_)), "{error}");
    }
    let request = v1::PortForwardRequest { port: vec![80], ..Default::default() };
    assert!(pair.client.port_forward(request).await.is_err());
    pair.tasks.stop();
}

#[tokio::test]
async fn events_come_one_after_the_other_if_the_runtime_has_any() {
    let pair = pair();
    let event = |id: &str| v1::ContainerEventResponse { container_id: id.to_owned(), ..Default::default() };
    pair.runtime.0.lock().unwrap().events = Some(vec![event("a"), event("b")]);
    let events = pair.client.get_container_events(v1::GetEventsRequest {}).await.unwrap();
    let ids: Vec<String> = events.map(|event| event.unwrap().container_id).collect().await;
    assert_eq!(ids, ["a", "b"]);
    // One that has none is listed instead, from then on.
    assert!(pair.client.get_container_events(v1::GetEventsRequest {}).await.is_ok());
    let calls: Vec<String> =
        pair.runtime.0.lock().unwrap().calls.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(calls, ["ListPodSandbox", "ListContainers"]);
    pair.tasks.stop();
}

#[tokio::test]
async fn a_runtime_that_is_there_is_ready_and_one_that_speaks_no_v1_is_not() {
    let pair = pair();
    let version = pair.client.ready(&Random::seeded(1)).await.unwrap();
    assert_eq!(version.runtime_name, "pretended");
    pair.runtime.0.lock().unwrap().failure = Some(CriError::Unimplemented("unknown service".into()));
    assert!(matches!(pair.client.ready(&Random::seeded(1)).await, Err(CriError::Unimplemented(_))));
    pair.tasks.stop();
}
