//! Takes what the runtime reports into the snapshot.
//!
//! Reports may arrive late and twice: a container never goes back to an earlier state, and one that the
//! snapshot does not know yet is added in the order of its attempt.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use cri::logs::Record;
use cri::v1;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::config::Config;
use crate::pod::identity::{identity, spec_hash};
use crate::pod::job::JobKey;
use crate::pod::probe::ProbeKind;
use crate::pod::snapshot::{Container, ContainerState, Exit, PodSnapshot, ProbeResults, Sandbox};
use crate::volumes::mounts::termination_log;

/// Bytes of a termination message that are shown: its last. Source: core/v1 `terminationMessagePath`.
const MESSAGE_MAX: u64 = 4096;
/// Bytes of the log that stand in for a message.
const LOG_TAIL_MAX: usize = 2048;
/// Lines of the log that stand in for a message.
const LOG_LINES_MAX: usize = 80;
/// Bytes that are read for that: more than the longest record has.
const LOG_READ_MAX: u64 = 64 << 10;

/// Whether `new` is a later revision of the object than `old`.
pub(super) fn is_newer(new: &Pod, old: &Pod) -> bool {
    let revision = |pod: &Pod| pod.metadata.resource_version.as_deref().and_then(|v| v.parse::<u64>().ok());
    revision(new) > revision(old)
}

fn rank(state: &ContainerState) -> u8 {
    match state {
        ContainerState::Created => 0,
        ContainerState::Running { .. } => 1,
        ContainerState::Unknown => 2,
        ContainerState::Exited(_) => 3,
    }
}

/// A container whose definition is another one now has not failed yet: it is tried at once.
pub(super) fn forget_changed(snapshot: &mut PodSnapshot, new: &Pod) {
    let hashes = |pod: &Pod| -> BTreeMap<String, String> {
        let spec =
            pod.spec.iter().flat_map(|s| s.containers.iter().chain(s.init_containers.iter().flatten()));
        spec.map(|c| (c.name.clone(), spec_hash(c))).collect()
    };
    let old = hashes(&snapshot.pod);
    for (name, hash) in hashes(new) {
        if old.get(&name) != Some(&hash) {
            snapshot.crashes.remove(&name);
            snapshot.failures.remove(&name);
        }
    }
}

/// One container's report.
pub(super) fn container(snapshot: &mut PodSnapshot, status: &v1::ContainerStatus, sandbox_id: &str) {
    let new = Container::from_cri(status, sandbox_id);
    if let Some(old) = snapshot.containers.iter_mut().find(|c| c.id == new.id) {
        let is_same_exit = rank(&old.state) == 3;
        if !is_same_exit && rank(&new.state) >= rank(&old.state) {
            let sandbox_id = std::mem::take(&mut old.sandbox_id);
            *old = Container { sandbox_id, ..new };
        }
        return;
    }
    if snapshot.is_cleaned {
        return;
    }
    let at = snapshot.containers.iter().position(|c| c.name == new.name && c.attempt > new.attempt);
    snapshot.containers.insert(at.unwrap_or(snapshot.containers.len()), new);
}

/// One sandbox's report.
pub(super) fn sandbox(snapshot: &mut PodSnapshot, new: Sandbox) {
    if let Some(old) = snapshot.sandboxes.iter_mut().find(|s| s.id == new.id) {
        old.is_ready &= new.is_ready;
        if old.ips.is_empty() {
            old.ips = new.ips;
            old.lacks_ip = new.lacks_ip;
        }
        return;
    }
    // One that is still being started is reported by the job that starts it.
    if snapshot.is_cleaned || snapshot.busy.contains(&JobKey::Sandbox) {
        return;
    }
    let at = snapshot.sandboxes.iter().position(|s| s.attempt > new.attempt);
    snapshot.sandboxes.insert(at.unwrap_or(snapshot.sandboxes.len()), new);
}

/// Everything the runtime has of the Pod. Of the `known` ids, those that it no longer has are lost at `now`.
pub(super) fn all(
    snapshot: &mut PodSnapshot,
    known: &[String],
    sandboxes: Vec<Sandbox>,
    containers: &[(v1::ContainerStatus, String)],
    now: Timestamp,
) {
    for old in snapshot.sandboxes.iter_mut().filter(|s| known.contains(&s.id)) {
        old.is_ready &= sandboxes.iter().any(|s| s.id == old.id);
    }
    for old in snapshot.containers.iter_mut().filter(|c| known.contains(&c.id) && c.exit().is_none()) {
        if !containers.iter().any(|(status, _)| status.id == old.id) {
            old.state = match old.state {
                ContainerState::Running { started_at } => ContainerState::Exited(Exit::lost(started_at, now)),
                _ => ContainerState::Unknown,
            };
        }
    }
    for new in sandboxes {
        sandbox(snapshot, new);
    }
    for (status, sandbox_id) in containers {
        container(snapshot, status, sandbox_id);
    }
}

/// One probe's result.
pub(super) fn probe(snapshot: &mut PodSnapshot, name: String, kind: ProbeKind, id: String, is_success: bool) {
    let results = snapshot.probes.entry(name).or_default();
    if results.container_id != id {
        *results = ProbeResults { container_id: id, ..ProbeResults::default() };
    }
    *match kind {
        ProbeKind::Startup => &mut results.startup,
        ProbeKind::Liveness => &mut results.liveness,
        ProbeKind::Readiness => &mut results.readiness,
    } = Some(is_success);
}

/// After a restart of the kubelet: a container that the API knows as started or ready counts as such until
/// its probes say otherwise.
pub(super) fn seed_probes(snapshot: &mut PodSnapshot, runtime_name: &str) {
    let mut seeds = Vec::new();
    for container in snapshot.containers.iter().filter(|c| c.is_running()) {
        let Some(status) = snapshot.recorded(&container.name) else { continue };
        if status.container_id.as_deref() == Some(&format!("{runtime_name}://{}", container.id)) {
            let results = ProbeResults {
                container_id: container.id.clone(),
                startup: status.started.filter(|s| *s),
                liveness: None,
                readiness: Some(status.ready).filter(|r| *r),
            };
            seeds.push((container.name.clone(), results));
        }
    }
    snapshot.probes.extend(seeds);
}

/// Reads the termination message of each container that has ended and whose message was not read yet.
pub(super) fn read_last_words(config: &Config, snapshot: &mut PodSnapshot) {
    let (name, namespace, uid) = identity(&snapshot.pod);
    let pod_dir = config.pod_dir(&uid);
    let log_dir = config.log_dir(&namespace, &name, &uid);
    let pod = snapshot.pod.clone();
    for container in &mut snapshot.containers {
        let attempt = container.attempt;
        let ContainerState::Exited(exit) = &mut container.state else { continue };
        if !exit.message.is_empty() {
            continue;
        }
        let path = termination_log(&pod_dir, &container.name, attempt);
        let Ok(message) = file_end(&path, MESSAGE_MAX) else { continue };
        exit.message = message.1;
        let policy = message_policy(&pod, &container.name);
        if exit.message.is_empty() && exit.code != 0 && policy == Some("FallbackToLogsOnError") {
            let log = log_dir.join(&container.name).join(format!("{attempt}.log"));
            exit.message = log_tail(&log).unwrap_or_default();
        }
    }
}

/// What stands in for a message that a container has not written. Source: core/v1 `terminationMessagePolicy`.
fn message_policy<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let spec = pod.spec.as_ref()?;
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let containers = containers.map(|c| (&c.name, &c.termination_message_policy));
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let ephemeral = ephemeral.map(|c| (&c.name, &c.termination_message_policy));
    containers.chain(ephemeral).find(|(of, _)| *of == name)?.1.as_deref()
}

/// A file's last bytes, `max` at most, and whether that is all of it.
fn file_end(path: &Path, max: u64) -> std::io::Result<(bool, String)> {
    let mut file = File::open(path)?;
    let start = file.seek(SeekFrom::End(0))?.saturating_sub(max);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    let text = match file.take(max).read_to_end(&mut bytes) {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!("Error on reading termination log: {error}"),
    };
    Ok((start == 0, text))
}

/// What a container said last, by its log.
fn log_tail(path: &Path) -> std::io::Result<String> {
    let (is_whole, text) = file_end(path, LOG_READ_MAX)?;
    // What is read from the middle of a file begins in the middle of a line.
    let whole = if is_whole { &*text } else { text.split_once('\n').map_or("", |(_, whole)| whole) };
    Ok(last_words(whole))
}

/// The end of a log's last lines, without time stamps and tags.
fn last_words(log: &str) -> String {
    let lines: Vec<&str> = log.split_inclusive('\n').collect();
    let last = lines.get(lines.len().saturating_sub(LOG_LINES_MAX)..).unwrap_or_default();
    let records = last.iter().filter_map(|line| Record::parse(line.as_bytes()));
    let mut said: String =
        records.map(|record| String::from_utf8_lossy(&record.content).into_owned()).collect();
    let first = said.len().saturating_sub(LOG_TAIL_MAX);
    let first = (first..said.len()).find(|at| said.is_char_boundary(*at)).unwrap_or(said.len());
    said.split_off(first)
}

#[cfg(test)]
mod tests;
