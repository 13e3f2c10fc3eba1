//! How long a new Pod takes until it runs. Pure.
//!
//! Source: `pkg/kubelet/util/pod_startup_latency_tracker.go`; the definition of "stateful" is the service level
//! objective's (`sig-scalability/slos/pod_startup_latency.md`).

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::metrics::{KubeletMetrics, Measure};
use crate::pod::snapshot::PodSnapshot;
use crate::volumes::{Content, content};

/// What is known of a start that is not over.
#[derive(Default)]
pub(super) struct Startup {
    /// When the Pod was seen first; `None` if it is not new, or runs.
    seen_at: Option<Instant>,
    /// From the first pull's begin to the last one's end.
    pulling: Option<(Timestamp, Timestamp)>,
}

/// Measured from the Pod's creation.
#[derive(Debug, PartialEq, Eq)]
struct Took {
    total: Duration,
    /// Without pulls and init containers; `None` of a Pod that the objective is not about.
    sli: Option<Duration>,
}

impl Startup {
    /// Of a Pod that the runtime knows nothing of.
    pub(super) fn of_new() -> Self {
        Self { seen_at: Some(Instant::now()), pulling: None }
    }

    /// An image was pulled.
    pub(super) fn pulled(&mut self, from: Timestamp, to: Timestamp) {
        let (first, last) = self.pulling.unwrap_or((from, to));
        self.pulling = Some((first.min(from), last.max(to)));
    }

    /// All containers of the Pod run.
    pub(super) fn runs(&mut self, metrics: &KubeletMetrics, snapshot: &PodSnapshot, now: Timestamp) {
        let Some(seen_at) = self.seen_at.take() else { return };
        metrics.measure(Measure::PodStart, &[], seen_at.elapsed());
        let Some(Took { total, sli }) = took(&snapshot.pod, self.pulling, initializing(snapshot), now) else {
            return;
        };
        metrics.measure(Measure::PodStartTotal, &[], total);
        if let Some(sli) = sli {
            metrics.measure(Measure::PodStartSli, &[], sli);
        }
    }
}

type Span = (Timestamp, Timestamp);

fn took(pod: &Pod, pulling: Option<Span>, initializing: Option<Span>, now: Timestamp) -> Option<Took> {
    let created = pod.metadata.creation_timestamp.as_ref()?.0;
    let total = Duration::try_from(now.duration_since(created)).unwrap_or_default();
    let spans = || pulling.iter().chain(&initializing);
    let from = spans().map(|(from, _)| *from).min();
    let to = spans().map(|(_, to)| *to).max();
    let excluded =
        from.zip(to).map(|(from, to)| Duration::try_from(to.duration_since(from)).unwrap_or_default());
    let sli = total.saturating_sub(excluded.unwrap_or_default());
    Some(Took { total, sli: Some(sli).filter(|_| !is_stateful(pod)) })
}

/// From the first init container's start to the last one's end.
fn initializing(snapshot: &PodSnapshot) -> Option<Span> {
    let names = || snapshot.spec().init_containers.iter().flatten().map(|container| &container.name);
    let ended = snapshot.containers.iter().filter(|container| names().any(|name| *name == container.name));
    let spans =
        ended.filter_map(|container| container.exit().map(|exit| (exit.started_at, exit.finished_at)));
    spans.reduce(|(first, last), (from, to)| (first.min(from), last.max(to)))
}

/// Whether it has a volume of something that is not made of the API's objects, or empty.
fn is_stateful(pod: &Pod) -> bool {
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.any(|volume| content(volume) == Content::Foreign)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn pulls_and_init_containers_are_not_what_the_objective_is_about() {
        let plain = "{metadata: {creationTimestamp: '1970-01-01T00:00:10Z'}, spec: {containers: [], \
            volumes: [{name: token, projected: {}}, {name: scratch, emptyDir: {}}]}}";
        let claim = "{metadata: {creationTimestamp: '1970-01-01T00:00:10Z'}, spec: {containers: [], \
            volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]}}";
        let rows = [
            ("nothing is left out", plain, None, None, Some(50)),
            ("a pull", plain, Some((15, 25)), None, Some(40)),
            ("init containers", plain, None, Some((20, 22)), Some(48)),
            ("both, with what lies between", plain, Some((15, 25)), Some((30, 35)), Some(30)),
            ("stateful", claim, None, None, None),
        ];
        for (name, pod, pulling, initializing, sli) in rows {
            let pod: Pod = serde_saphyr::from_str(pod).unwrap();
            let span = |span: Option<(i64, i64)>| span.map(|(from, to)| (at(from), at(to)));
            let found = took(&pod, span(pulling), span(initializing), at(60));
            let expect = Took { total: Duration::from_secs(50), sli: sli.map(Duration::from_secs) };
            assert_eq!(found, Some(expect), "{name}");
        }
    }

    #[test]
    fn pulls_are_one_span() {
        let mut startup = Startup::of_new();
        startup.pulled(at(5), at(9));
        startup.pulled(at(3), at(7));
        assert_eq!(startup.pulling, Some((at(3), at(9))));
    }
}
