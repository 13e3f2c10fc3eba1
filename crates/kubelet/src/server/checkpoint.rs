//! `/checkpoint`: has the runtime write a container's state to a file. A runtime that has no checkpoints says so, and that
//! is the answer. Source: KEP-2008, `checkpoint` of upstream's `pkg/kubelet/server`.

use std::sync::Arc;

use cri::{CriError, v1};
use http::{Response, StatusCode};
use k8s_openapi::api::core::v1::{Pod, PodSpec};

use super::query::Query;
use super::{Body, Refusal, Server, json};
use crate::pod::labels;

/// The folder of checkpoints, below the kubelet's. Source: `DefaultKubeletCheckpointsDirName`.
const FOLDER: &str = "checkpoints";

/// Makes a checkpoint of a container and says where it is.
///
/// # Errors
/// In upstream's words: there is no such container, or the runtime refuses.
pub(super) async fn checkpoint(
    server: &Arc<Server>,
    namespace: &str,
    name: &str,
    container: &str,
    query: Option<&str>,
) -> Result<Response<Body>, Refusal> {
    let pod = server.pod(namespace, name).map_err(|_| Refusal::not_found("pod does not exist"))?;
    if !pod.spec.as_ref().is_some_and(|spec| has(spec, container)) {
        return Err(Refusal::not_found(format!("container {container} does not exist")));
    }
    let timeout = timeout(query)?;
    let failed = |error: &dyn std::error::Error| {
        Refusal::internal(format!("checkpointing of {namespace}/{name}/{container} failed ({error})"))
    };
    let container_id = running(server, &pod, container).await.map_err(|error| failed(&error))?;
    let folder = server.context.config.root_dir.join(FOLDER);
    let seconds = server.context.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ");
    let location = folder.join(format!("checkpoint-{name}_{namespace}-{container}-{seconds}.tar"));
    let location = location.display().to_string();
    tokio::fs::create_dir_all(&folder).await.map_err(|error| failed(&error))?;
    let request = v1::CheckpointContainerRequest { container_id, location: location.clone(), timeout };
    let made = server.context.runtime.checkpoint_container(request).await;
    made.map_err(|error| failed(&error))?;
    Ok(json(serde_json::json!({"items": [location]})))
}

fn has(spec: &PodSpec, container: &str) -> bool {
    let plain = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    plain.map(|c| &c.name).chain(ephemeral.map(|c| &c.name)).any(|name| name == container)
}

/// In seconds; 0 leaves it to the runtime. The last one counts.
fn timeout(query: Option<&str>) -> Result<i64, Refusal> {
    match Query::of(query).all("timeout").last() {
        None => Ok(0),
        // 404 for this too is upstream's.
        Some(text) => text.parse().map_err(|_| Refusal::not_found("cannot parse value of timeout parameter")),
    }
}

/// Nothing can be written down of the container.
#[derive(Debug, thiserror::Error)]
enum NotRunning {
    #[error(transparent)]
    Runtime(#[from] CriError),
    #[error("container {0} not found")]
    NotFound(String),
}

async fn running(server: &Server, pod: &Pod, container: &str) -> Result<String, NotRunning> {
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let selector = [(labels::POD_UID.to_owned(), uid), (labels::CONTAINER_NAME.into(), container.to_owned())];
    let state = v1::ContainerStateValue { state: v1::ContainerState::ContainerRunning.into() };
    let filter = v1::ContainerFilter {
        state: Some(state),
        label_selector: selector.into(),
        ..v1::ContainerFilter::default()
    };
    let request = v1::ListContainersRequest { filter: Some(filter) };
    let found = server.context.runtime.list_containers(request).await?;
    let found = found.containers.into_iter().next().map(|found| found.id);
    found.ok_or_else(|| NotRunning::NotFound(container.to_owned()))
}

/// What is asked with another method than POST.
pub(super) fn wrong_method() -> Refusal {
    Refusal(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_timeout_counts() {
        let check = |query: Option<&str>, expect: Result<i64, StatusCode>| {
            assert_eq!(timeout(query).map_err(|Refusal(code, _)| code), expect, "{query:?}");
        };
        check(None, Ok(0));
        check(Some("timeout=3&timeout=5"), Ok(5));
        check(Some("timeout=soon"), Err(StatusCode::NOT_FOUND));
    }

    #[test]
    fn every_kind_of_container_can_be_named() {
        let spec: PodSpec = serde_saphyr::from_str(
            "{containers: [{name: a}], initContainers: [{name: b}], ephemeralContainers: [{name: c}]}",
        )
        .unwrap();
        assert!(has(&spec, "a") && has(&spec, "b") && has(&spec, "c") && !has(&spec, "d"));
    }
}
