//! Rotation of the logs of a runtime that does not rotate them by itself: their files are renamed, and the runtime is told
//! to open new ones (`ReopenContainerLog`).
//!
//! Nothing tells how large a file is: they are looked at every ten seconds, as upstream's kubelet does
//! (`containerLogMonitorInterval`). Our own runtime counts what it writes and is left alone. What cannot be renamed or
//! opened anew is put back, so that no line is lost. Source: `pkg/kubelet/logs/container_log_manager.go`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cri::{CriError, v1};
use jiff::Timestamp;

use crate::context::Context;

/// Why a log was not rotated.
#[derive(Debug, thiserror::Error)]
enum RotationError {
    #[error("look at the files of {}", path.display())]
    Files {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("open the log {} anew", path.display())]
    Reopen {
        path: PathBuf,
        #[source]
        source: CriError,
    },
}

/// Looks at logs until the kubelet stops, if nobody else does.
pub(crate) async fn run(context: Arc<Context>) {
    if context.facts.runtime_name == cri::annotations::RUNTIME_NAME {
        return context.tasks.stopping().await;
    }
    // A container's log stays where it is.
    let mut paths = BTreeMap::new();
    loop {
        tokio::time::sleep(context.config.container_log_monitor_interval).await;
        if let Err(error) = look(&context, &mut paths).await {
            tracing::warn!(%error, "the runtime did not list its containers: no log is rotated");
        }
    }
}

async fn look(context: &Context, paths: &mut BTreeMap<String, PathBuf>) -> Result<(), CriError> {
    let state = v1::ContainerStateValue { state: v1::ContainerState::ContainerRunning.into() };
    let filter = v1::ContainerFilter { state: Some(state), ..Default::default() };
    let request = v1::ListContainersRequest { filter: Some(filter) };
    let running = context.runtime.list_containers(request).await?.containers;
    paths.retain(|id, _| running.iter().any(|container| container.id == *id));
    for container in running {
        let path = match paths.get(&container.id) {
            Some(path) => path.clone(),
            None => match log_path(context, &container.id).await? {
                Some(path) => paths.entry(container.id.clone()).or_insert(path).clone(),
                None => continue,
            },
        };
        if let Err(error) = rotate_if_due(context, &container.id, &path).await {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::warn!(%error, cause, container = container.id, "a log was not rotated");
        }
    }
    Ok(())
}

/// `None` for a container that is gone meanwhile, or that logs nowhere.
async fn log_path(context: &Context, id: &str) -> Result<Option<PathBuf>, CriError> {
    let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
    match context.runtime.container_status(request).await {
        Ok(answer) => {
            Ok(answer.status.map(|status| status.log_path.into()).filter(|path| path != Path::new("")))
        }
        Err(CriError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn rotate_if_due(context: &Context, id: &str, path: &Path) -> Result<(), RotationError> {
    let files = |source| RotationError::Files { path: path.to_owned(), source };
    let bytes = match tokio::fs::metadata(path).await {
        Ok(metadata) => metadata.len(),
        // A rotation was cut off after the renaming.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return reopen(context, id, path).await,
        Err(error) => return Err(files(error)),
    };
    if bytes < context.config.container_log_max_size {
        return Ok(());
    }
    let (log, files_max, now) =
        (path.to_owned(), context.config.container_log_max_files, context.clock.now());
    let renamed = tokio::task::spawn_blocking(move || rename(&log, files_max, now)).await;
    let name = renamed.map_err(io::Error::other).and_then(|renamed| renamed).map_err(files)?;
    let reopened = reopen(context, id, path).await;
    if reopened.is_err() && !path.exists() {
        // The runtime goes on with the old file, wherever it is.
        tokio::fs::rename(&name, path).await.map_err(files)?;
    }
    reopened
}

async fn reopen(context: &Context, id: &str, path: &Path) -> Result<(), RotationError> {
    let request = v1::ReopenContainerLogRequest { container_id: id.to_owned() };
    let reopened = context.runtime.reopen_container_log(request).await;
    reopened.map(drop).map_err(|source| RotationError::Reopen { path: path.to_owned(), source })
}

/// Compresses what was rotated before, and renames what is written. Blocking.
fn rename(log: &Path, files_max: u32, now: Timestamp) -> io::Result<PathBuf> {
    let files_max = usize::try_from(files_max).unwrap_or(usize::MAX);
    let (name, older) = cri::logs::remove_excess(log, files_max, now)?;
    older.iter().try_for_each(|file| cri::logs::pack(file))?;
    fs::rename(log, &name)?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_log_is_renamed_and_those_before_it_are_packed_and_in_the_end_removed() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("0.log");
        let at = |second| Timestamp::from_second(second).unwrap();
        let check = |second: i64, files_max: u32, expect: &[&str]| {
            fs::write(&log, format!("at {second}")).unwrap();
            let renamed = rename(&log, files_max, at(second)).unwrap();
            assert_eq!(fs::read_to_string(renamed).unwrap(), format!("at {second}"), "the newest is plain");
            assert_eq!(names(folder.path()), expect);
        };
        check(0, 3, &["0.log.19700101-000000"]);
        check(60, 3, &["0.log.19700101-000000.gz", "0.log.19700101-000100"]);
        check(120, 3, &["0.log.19700101-000100.gz", "0.log.19700101-000200"]);
        check(180, 2, &["0.log.19700101-000300"]);
    }

    #[test]
    fn what_a_killed_rotation_left_half_packed_is_packed_again() {
        let folder = tempfile::tempdir().unwrap();
        let (log, at) = (folder.path().join("0.log"), Timestamp::from_second(60).unwrap());
        fs::write(folder.path().join("0.log.19700101-000000"), "old").unwrap();
        fs::write(folder.path().join("0.log.19700101-000000.tmp"), "ha").unwrap();
        fs::write(&log, "new").unwrap();
        rename(&log, 5, at).unwrap();
        assert_eq!(names(folder.path()), ["0.log.19700101-000000.gz", "0.log.19700101-000100"]);
    }

    #[test]
    fn a_log_that_is_not_there_is_not_renamed() {
        let folder = tempfile::tempdir().unwrap();
        assert!(rename(&folder.path().join("0.log"), 5, Timestamp::UNIX_EPOCH).is_err());
    }
}
