//! `kubelet_working_pods`, `kubelet_pod_pending_resizes`, `kubelet_pod_in_progress_resizes`: what a worker is at. Pure.
//!
//! Source: `PodWorkerState`, `SyncKnownPods` and `HandlePodCleanups` of upstream's `pkg/kubelet`.

use crate::pod::identity::is_static;
use crate::pod::lifecycle::is_finished;
use crate::pod::resize::RefusalReason;
use crate::pod::snapshot::{Container, PodSnapshot};

/// `lifecycle`, `config` and `static`.
pub(crate) type Labels = [&'static str; 3];

/// What a worker is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) labels: Labels,
    /// `deferred` or `infeasible`, of a resize that waits.
    pub(crate) pending_resize: Option<&'static str>,
    /// A resize is agreed to and not carried out.
    pub(crate) is_resizing: bool,
}

/// A worker that has not looked at its Pod yet.
pub(crate) const NEW: Work =
    Work { labels: ["sync", "desired", ""], pending_resize: None, is_resizing: false };

/// All that there are.
pub(super) fn all() -> impl Iterator<Item = Labels> {
    let pods = [
        ("desired", "true"),
        ("desired", ""),
        ("orphan", "true"),
        ("orphan", ""),
        ("runtime_only", "unknown"),
    ];
    let of_pod = |(config, fixed)| ["sync", "terminating", "terminated"].map(|at| [at, config, fixed]);
    pods.into_iter().flat_map(of_pod)
}

/// What the Pod's worker is at: it keeps it running, ends it, or only takes back what it had. It is wanted, or by nobody
/// any more, or only the runtime knows it.
pub(crate) fn of_pod(snapshot: &PodSnapshot) -> Work {
    let pending_resize = snapshot.resize.refused.as_ref().map(|refused| match refused.reason {
        RefusalReason::Infeasible => "infeasible",
        RefusalReason::Deferred => "deferred",
    });
    Work { labels: labels(snapshot), pending_resize, is_resizing: snapshot.resize.is_started }
}

fn labels(snapshot: &PodSnapshot) -> Labels {
    let is_ending = snapshot.is_terminating() || is_finished(snapshot);
    let runs = snapshot.containers.iter().any(Container::is_running);
    let lifecycle = match (is_ending, runs) {
        (false, _) => "sync",
        (true, true) => "terminating",
        (true, false) => "terminated",
    };
    let fixed = if is_static(&snapshot.pod) { "true" } else { "" };
    // What the API has was made at some time.
    if fixed.is_empty() && snapshot.pod.metadata.creation_timestamp.is_none() {
        return [lifecycle, "runtime_only", "unknown"];
    }
    [lifecycle, if snapshot.removed_from_api { "orphan" } else { "desired" }, fixed]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Pod;

    use super::*;
    use crate::pod::resize::{Refused, Resize};
    use crate::pod::snapshot::Ending;

    #[test]
    fn workers_are_at_what_upstream_says() {
        let api = "{metadata: {creationTimestamp: '2026-01-01T00:00:00Z'}, spec: {containers: [{name: c}]}}";
        let deleted = "{metadata: {creationTimestamp: '2026-01-01T00:00:00Z', \
                       deletionTimestamp: '2026-01-01T00:00:00Z'}, spec: {containers: [{name: c}]}}";
        let file =
            "{metadata: {annotations: {kubernetes.io/config.source: file}}, spec: {containers: [{name: c}]}}";
        let runtime = "{metadata: {uid: u}, spec: {containers: [{name: c}]}}";
        let evicted = |snapshot: &mut PodSnapshot| snapshot.ending = Some(Ending::default());
        let gone = |snapshot: &mut PodSnapshot| snapshot.removed_from_api = true;
        let nothing: fn(&mut PodSnapshot) = |_| {};
        for (name, pod, change, expect) in [
            ("wanted", api, nothing, ["sync", "desired", ""]),
            ("of a file", file, nothing, ["sync", "desired", "true"]),
            ("deleted", deleted, nothing, ["terminated", "desired", ""]),
            ("evicted", api, evicted, ["terminated", "desired", ""]),
            ("gone by force", api, gone, ["terminated", "orphan", ""]),
            ("its file is gone", file, gone, ["terminated", "orphan", "true"]),
            ("nobody knows it", runtime, gone, ["terminated", "runtime_only", "unknown"]),
        ] {
            let pod: Pod = serde_saphyr::from_str(pod).unwrap();
            let mut snapshot = PodSnapshot { pod: Arc::new(pod), ..PodSnapshot::default() };
            change(&mut snapshot);
            assert_eq!(of_pod(&snapshot).labels, expect, "{name}");
            assert!(all().any(|labels| labels == expect), "{name}");
        }
        assert_eq!(all().count(), 15);
    }

    #[test]
    fn what_runs_still_is_being_ended() {
        let pod: Pod =
            serde_saphyr::from_str("{metadata: {uid: u}, spec: {containers: [{name: c}]}}").unwrap();
        let status = cri::v1::ContainerStatus {
            state: cri::v1::ContainerState::ContainerRunning.into(),
            ..cri::v1::ContainerStatus::default()
        };
        let snapshot = PodSnapshot {
            pod: Arc::new(pod),
            removed_from_api: true,
            containers: vec![Container::from_cri(&status, "s")],
            ..PodSnapshot::default()
        };
        assert_eq!(of_pod(&snapshot).labels, ["terminating", "runtime_only", "unknown"]);
    }

    #[test]
    fn a_resize_waits_or_is_carried_out() {
        let mut snapshot = PodSnapshot::default();
        let told = |snapshot: &PodSnapshot| {
            let work = of_pod(snapshot);
            (work.pending_resize, work.is_resizing)
        };
        assert_eq!(told(&snapshot), (None, false));
        for (reason, expect) in
            [(RefusalReason::Deferred, "deferred"), (RefusalReason::Infeasible, "infeasible")]
        {
            snapshot.resize.refused = Some(Refused { reason, message: String::new(), detail: "" });
            assert_eq!(told(&snapshot), (Some(expect), false));
        }
        snapshot.resize = Resize { is_started: true, ..Resize::default() };
        assert_eq!(told(&snapshot), (None, true));
    }
}
