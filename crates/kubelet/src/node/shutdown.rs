//! Graceful node shutdown: Pods end before the machine does, those that matter most last.
//!
//! logind waits for the kubelet as long as it holds a lock. Who goes when is [`groups`], which is pure.
//! Source: KEP-2000, KEP-2712, `pkg/kubelet/nodeshutdown` of upstream.

mod logind;

use std::sync::Arc;
use std::time::Duration;

use base::Backoff;
use controller::EventType;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;

use crate::config::ShutdownPeriod;
use crate::inbox::Inboxes;
use crate::metrics::Level;
use crate::node_resources::NodeResources;
use crate::pod::identity::priority;
use crate::pod::snapshot::Ending;
use logind::{Logind, LogindError};

/// Source: `PodStatus.reason`.
const REASON: &str = "Terminated";
/// Source: `PodStatus.message`.
const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";

/// Holds the machine's shutdown up for the Pods, until the group of tasks stops; nothing if nobody wants that.
pub(crate) async fn run(resources: Arc<NodeResources>, inboxes: Inboxes) {
    if resources.config.shutdown.is_empty() {
        return;
    }
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60), 0.1);
    loop {
        match watch(&resources, &inboxes, &mut backoff).await {
            Ok(()) => tracing::warn!("the connection to logind has ended"),
            Err(error) => {
                let error = &error as &(dyn std::error::Error + Send + Sync);
                tracing::warn!(error, "a shutdown of the machine would not wait for pods");
            }
        }
        tokio::time::sleep(backoff.next(&resources.random)).await;
    }
}

/// Until the connection ends.
async fn watch(
    resources: &Arc<NodeResources>,
    inboxes: &Inboxes,
    backoff: &mut Backoff,
) -> Result<(), LogindError> {
    let periods = &resources.config.shutdown;
    let logind = Logind::connect(resources.config.system_bus.as_deref()).await?;
    let total: i64 = periods.iter().map(|period| period.seconds).sum();
    logind.allow_delay(seconds(total)).await?;
    let mut signals = logind.signals().await?;
    let mut lock = Some(logind.inhibit().await?);
    backoff.reset();
    tracing::info!(?periods, "a shutdown of the machine waits for pods");
    while let Some(goes_down) = signals.next().await {
        let what = if goes_down { "shutdown event" } else { "shutdown cancellation" };
        let message = format!("Shutdown manager detected {what}");
        resources.node_event(EventType::Normal, "NodeShutdown", message);
        resources.node_state.set_shutting_down(goes_down);
        if goes_down {
            end_all(resources, inboxes).await;
            // Nothing is held up any more.
            lock = None;
        } else if lock.is_none() {
            lock = Some(logind.inhibit().await?);
        }
    }
    Ok(())
}

fn seconds(number: i64) -> Duration {
    Duration::from_secs(u64::try_from(number).unwrap_or_default())
}

/// Ends all Pods, one group after the other.
async fn end_all(resources: &NodeResources, inboxes: &Inboxes) {
    resources.metrics.set(Level::ShutdownStart, &[], resources.clock.now());
    resources.metrics.set(Level::ShutdownEnd, &[], 0_u32);
    for (period, pods) in groups(&resources.config.shutdown, &resources.allocations.pods()) {
        let mut ending = Vec::new();
        for pod in &pods {
            let uid = pod.metadata.uid.as_deref().unwrap_or_default();
            let Some(inbox) = inboxes.get(uid) else { continue };
            inbox.end(Ending {
                reason: REASON.into(),
                message: MESSAGE.into(),
                grace: Some(period),
                is_disruption: true,
                is_rejection: false,
            });
            ending.push(inbox);
        }
        let ended = async {
            for inbox in &ending {
                inbox.released().await;
            }
        };
        if !ending.is_empty() && tokio::time::timeout(seconds(period), ended).await.is_err() {
            tracing::warn!(seconds = period, "not all pods have ended in the time that they had");
        }
    }
    resources.metrics.set(Level::ShutdownEnd, &[], resources.clock.now());
}

/// Which Pods have how many seconds, in their order.
fn groups(periods: &[ShutdownPeriod], pods: &[Arc<Pod>]) -> Vec<(i64, Vec<Arc<Pod>>)> {
    let mut groups: Vec<_> = periods.iter().map(|period| (period.seconds, Vec::new())).collect();
    for pod in pods {
        // Those below the lowest priority go with the lowest.
        let index = periods.iter().rposition(|period| period.priority <= priority(pod)).unwrap_or(0);
        if let Some((_, group)) = groups.get_mut(index) {
            group.push(pod.clone());
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(periods: &[(i64, i64)], expect: &[(i64, &[&str])]) {
        let pod = |priority: i64| -> Arc<Pod> {
            let text = format!(
                "{{metadata: {{name: p{priority}}}, spec: {{priority: {priority}, containers: []}}}}"
            );
            Arc::new(serde_saphyr::from_str(&text).unwrap())
        };
        let pods = [0, -5, 99, 100, 5000, 2_000_000_000].map(pod);
        let periods: Vec<_> = periods
            .iter()
            .map(|(priority, seconds)| ShutdownPeriod { priority: *priority, seconds: *seconds })
            .collect();
        let name = |pod: &Arc<Pod>| pod.metadata.name.clone().unwrap();
        let found: Vec<(i64, Vec<String>)> = groups(&periods, &pods)
            .into_iter()
            .map(|(seconds, pods)| (seconds, pods.iter().map(name).collect()))
            .collect();
        let expect: Vec<(i64, Vec<String>)> = expect
            .iter()
            .map(|(seconds, names)| (*seconds, names.iter().map(|name| format!("p{name}")).collect()))
            .collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn pods_end_in_the_order_of_their_priority() {
        check(
            &[(0, 20), (2_000_000_000, 10)],
            &[(20, &["0", "-5", "99", "100", "5000"]), (10, &["2000000000"])],
        );
        check(
            &[(100, 1), (1000, 2), (10_000, 3)],
            &[(1, &["0", "-5", "99", "100"]), (2, &["5000"]), (3, &["2000000000"])],
        );
        check(&[], &[]);
    }
}
