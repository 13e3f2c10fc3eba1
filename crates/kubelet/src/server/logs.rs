//! `/containerLogs`: what a container has printed, and with `follow` what it prints.
//!
//! Following is woken by the kernel when the file grows and by the runtime when the container ends.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cri::v1;
use futures::channel::mpsc;
use futures::{SinkExt, StreamExt};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use sys::folder_watch::FolderWatch;
use tokio::io::unix::AsyncFd;

use super::log_file::{LogReader, Wanted};
use super::query::Query;
use super::{Body, Refusal, Server};
use crate::pod::identity::identity;
use crate::pod::labels;

/// Chunks that wait for a slow reader.
const QUEUE: usize = 8;

/// A container whose log can be read.
struct Source {
    container_id: String,
    is_running: bool,
    path: PathBuf,
}

/// Answers with the log of (namespace, pod, container).
pub(super) async fn logs(
    server: &Arc<Server>,
    namespace: &str,
    name: &str,
    container: &str,
    query: Option<&str>,
) -> Result<Response<Body>, Refusal> {
    let query = Query::of(query);
    let pod = server.pod(namespace, name)?;
    let wanted = wanted(&query, server.context.clock.now())?;
    let source = source(server, &pod, container, query.flag("previous")).await?;
    let path = source.path.clone();
    // To find the last lines, compressed files are read to their end.
    let opened = tokio::task::spawn_blocking(move || LogReader::open(&path, wanted)).await;
    let opened = opened.map_err(std::io::Error::other).and_then(|opened| opened);
    let reader =
        opened.map_err(|e| Refusal::not_found(format!("open the log of container \"{container}\": {e}")))?;
    let (sender, receiver) = mpsc::channel(QUEUE);
    let is_following = query.flag("follow") && source.is_running && !query.flag("previous");
    let server = server.clone();
    server.context.tasks.clone().spawn("log stream", async move {
        let result = match is_following {
            true => follow(&server, &source, reader, sender).await,
            false => copy(reader, sender).await.map(drop),
        };
        if let Err(error) = result {
            tracing::debug!(%error, "a log stream ended");
        }
    });
    let body = StreamBody::new(receiver.map(|chunk: Bytes| Ok::<_, std::io::Error>(Frame::data(chunk))));
    let mut response = Response::new(BodyExt::boxed(body));
    let value = http::HeaderValue::from_static("text/plain");
    response.headers_mut().insert(http::header::CONTENT_TYPE, value);
    Ok(response)
}

/// What is wanted of a log. Source: `getContainerLogs` of upstream's `pkg/kubelet/server`.
fn wanted(query: &Query, now: Timestamp) -> Result<Wanted, Refusal> {
    let invalid = || Refusal(StatusCode::UNPROCESSABLE_ENTITY, "Invalid request.".to_owned());
    let at_least = |least: i64, text: Option<&str>| -> Result<Option<u64>, Refusal> {
        let Some(text) = text else { return Ok(None) };
        let number: i64 = text.parse().map_err(|_| undecoded())?;
        let number = Some(number).filter(|number| *number >= least).ok_or_else(invalid)?;
        u64::try_from(number).map(Some).map_err(|_| invalid())
    };
    let tail = match query.get("tail").filter(|tail| !tail.is_empty()) {
        Some("all") => None,
        tail => tail.or_else(|| query.get("tailLines")),
    };
    let stream = match query.get("stream") {
        None | Some("All") => None,
        Some("Stdout") => Some("stdout".to_owned()),
        Some("Stderr") => Some("stderr".to_owned()),
        Some(_) => return Err(invalid()),
    };
    if stream.is_some() && tail.is_some() {
        return Err(invalid());
    }
    let seconds = at_least(1, query.get("sinceSeconds"))?;
    let seconds = seconds.and_then(|seconds| now.checked_sub(Duration::from_secs(seconds)).ok());
    let time: Option<Timestamp> =
        query.get("sinceTime").map(|text| text.parse().map_err(|_| undecoded())).transpose()?;
    if seconds.is_some() && time.is_some() {
        return Err(invalid());
    }
    Ok(Wanted {
        tail_lines: at_least(0, tail)?.map(|lines| usize::try_from(lines).unwrap_or(usize::MAX)),
        since: seconds.or(time),
        timestamps: query.flag("timestamps"),
        stream,
        limit_bytes: at_least(1, query.get("limitBytes"))?,
    })
}

fn undecoded() -> Refusal {
    Refusal::bad_request("Unable to decode query.")
}

async fn source(server: &Server, pod: &Pod, container: &str, previous: bool) -> Result<Source, Refusal> {
    let (name, namespace, uid) = identity(pod);
    let selector = [(labels::POD_UID, uid.as_str()), (labels::CONTAINER_NAME, container)];
    let filter = v1::ContainerFilter {
        label_selector: selector.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
        ..v1::ContainerFilter::default()
    };
    let request = v1::ListContainersRequest { filter: Some(filter) };
    let listed = server.context.runtime.list_containers(request).await;
    let mut containers = listed.map_err(|e| Refusal::internal(e.to_string()))?.containers;
    containers.retain(|c| c.state != i32::from(v1::ContainerState::ContainerCreated));
    containers.sort_by_key(|c| std::cmp::Reverse(c.metadata.as_ref().map_or(0, |m| m.attempt)));
    let found = containers.get(usize::from(previous)).ok_or_else(|| {
        Refusal::bad_request(match previous {
            true => format!("previous terminated container \"{container}\" in pod \"{name}\" not found"),
            false => waiting_message(pod, container, &name),
        })
    })?;
    let attempt = found.metadata.as_ref().map_or(0, |m| m.attempt);
    let log_dir = server.context.config.log_dir(&namespace, &name, &uid);
    Ok(Source {
        container_id: found.id.clone(),
        is_running: found.state == i32::from(v1::ContainerState::ContainerRunning),
        path: log_dir.join(container).join(format!("{attempt}.log")),
    })
}

fn waiting_message(pod: &Pod, container: &str, name: &str) -> String {
    let status = pod.status.as_ref();
    let all =
        status.iter().flat_map(|s| s.container_statuses.iter().chain(&s.init_container_statuses).flatten());
    let found = all.into_iter().find(|s| s.name == container);
    let reason = found.and_then(|s| s.state.as_ref()?.waiting.as_ref()?.reason.clone());
    let spec = pod.spec.as_ref();
    let mut known =
        spec.into_iter().flat_map(|s| s.containers.iter().chain(s.init_containers.iter().flatten()));
    if !known.any(|c| c.name == container) {
        return format!("container {container} is not valid for pod {name}");
    }
    let why = match reason.as_deref() {
        Some("ErrImagePull") => "image can't be pulled".to_owned(),
        Some("ImagePullBackOff") => "trying and failing to pull image".to_owned(),
        Some(reason) => reason.to_owned(),
        None => "ContainerCreating".to_owned(),
    };
    format!("container \"{container}\" in pod \"{name}\" is waiting to start: {why}")
}

/// Sends everything that is there; `None` if nobody listens or nothing more is wanted.
async fn copy(mut reader: LogReader, mut sender: mpsc::Sender<Bytes>) -> std::io::Result<Option<LogReader>> {
    loop {
        let read = tokio::task::spawn_blocking(move || reader.read().map(|chunk| (reader, chunk)));
        let (back, chunk) = read.await.map_err(std::io::Error::other)??;
        reader = back;
        if chunk.is_empty() {
            return Ok(Some(reader).filter(|r| !r.is_exhausted()));
        }
        if sender.send(Bytes::from(chunk)).await.is_err() {
            return Ok(None);
        }
    }
}

/// An inotify instance that tokio can wait for.
struct Watch(Inotify);

impl AsRawFd for Watch {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

#[expect(deprecated, reason = "the replacement is unsafe code, and the descriptor is the inotify's own")]
fn watch(path: &Path) -> std::io::Result<AsyncFd<Watch>> {
    let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
    let events = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_MOVE_SELF | AddWatchFlags::IN_DELETE_SELF;
    inotify.add_watch(path, events)?;
    AsyncFd::new(Watch(inotify))
}

/// How long a log may be away while it is rotated: renamed by the kubelet, not yet opened anew by the runtime.
const ROTATION_MAX: Duration = Duration::from_secs(10);

/// The file that takes the place of one that was rotated away.
async fn watch_next(path: &Path) -> std::io::Result<AsyncFd<Watch>> {
    let mut folder = FolderWatch::new(path.parent().unwrap_or(path))?;
    let waiting = async {
        loop {
            match watch(path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => folder.changed().await?,
                watched => return watched,
            }
        }
    };
    let late = |_| Err(std::io::Error::from(std::io::ErrorKind::NotFound));
    tokio::time::timeout(ROTATION_MAX, waiting).await.unwrap_or_else(late)
}

/// What has happened to a file.
enum News {
    Grown,
    Replaced,
}

async fn news(watch: &AsyncFd<Watch>) -> std::io::Result<News> {
    loop {
        let mut guard = watch.readable().await?;
        match watch.get_ref().0.read_events() {
            Ok(events) => {
                let gone = AddWatchFlags::IN_MOVE_SELF | AddWatchFlags::IN_DELETE_SELF;
                let is_gone = events.iter().any(|event| event.mask.intersects(gone));
                return Ok(if is_gone { News::Replaced } else { News::Grown });
            }
            Err(nix::Error::EAGAIN) => guard.clear_ready(),
            Err(error) => return Err(error.into()),
        }
    }
}

async fn follow(
    server: &Server,
    source: &Source,
    mut reader: LogReader,
    sender: mpsc::Sender<Bytes>,
) -> std::io::Result<()> {
    let other = |error: cri::CriError| std::io::Error::other(error.to_string());
    let runtime = &server.context.runtime;
    let mut events = runtime.get_container_events(v1::GetEventsRequest {}).await.map_err(other)?;
    let mut watcher = watch(&source.path)?;
    // Whatever happened before the events were asked for is seen here.
    let request = v1::ContainerStatusRequest { container_id: source.container_id.clone(), verbose: false };
    let status = runtime.container_status(request).await.map_err(other)?.status.unwrap_or_default();
    let mut is_running = status.state == i32::from(v1::ContainerState::ContainerRunning);
    loop {
        match copy(reader, sender.clone()).await? {
            Some(back) => reader = back,
            None => return Ok(()),
        }
        if !is_running {
            return Ok(());
        }
        tokio::select! {
            news = news(&watcher) => if matches!(news?, News::Replaced) {
                // Rotated. What is rotated after this is told by the new watch.
                watcher = watch_next(&source.path).await?;
                reader.follow_rotation()?;
            },
            event = events.next() => match event {
                Some(Ok(event)) => is_running = !is_end(&event, &source.container_id),
                _ => return Ok(()),
            },
        }
    }
}

fn is_end(event: &v1::ContainerEventResponse, id: &str) -> bool {
    let ends = [v1::ContainerEventType::ContainerStoppedEvent, v1::ContainerEventType::ContainerDeletedEvent];
    event.container_id == id && ends.iter().any(|end| event.container_event_type == i32::from(*end))
}

#[cfg(test)]
mod tests;
