//! When this process has heard of nodes last. What a kubelet writes is the time by its own clock, which may be wrong by hours;
//! so that it writes something else is what counts, and when that came by a clock here that does not leap.
//!
//! Source: `nodeHealthData.probeTimestamp` of `pkg/controller/nodelifecycle`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use controller::Change;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::condition;

/// By the names of nodes.
#[derive(Debug, Default)]
pub(super) struct Heartbeats(Mutex<BTreeMap<String, Instant>>);

impl Heartbeats {
    /// Notes a lease that was renewed.
    pub(super) fn lease(&self, change: &Change<Lease>, now: Instant) {
        let renewed = |lease: &Option<Arc<Lease>>| lease.as_ref()?.spec.as_ref()?.renew_time.clone();
        let name = change.key.rsplit('/').next().unwrap_or_default();
        self.note(name, renewed(&change.old) != renewed(&change.new) && change.new.is_some(), now);
    }

    /// Notes a status that was reported; forgets a node that goes.
    pub(super) fn node(&self, change: &Change<Node>, now: Instant) {
        if change.new.is_none() {
            self.0.lock().remove(&*change.key);
            return;
        }
        let reported =
            |node: &Option<Arc<Node>>| condition(node.as_ref()?, "Ready")?.last_heartbeat_time.clone();
        self.note(&change.key, reported(&change.old) != reported(&change.new), now);
    }

    fn note(&self, name: &str, is_news: bool, now: Instant) {
        if is_news {
            self.0.lock().insert(name.to_owned(), now);
        }
    }

    /// How long nothing was heard of a node; a node that is asked about for the first time has just been heard of.
    pub(super) fn silence(&self, name: &str, now: Instant) -> Duration {
        now.saturating_duration_since(*self.0.lock().entry(name.to_owned()).or_insert(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::parse;

    fn lease(old: &str, new: &str) -> Change<Lease> {
        let of = |renewed: &str| {
            (!renewed.is_empty()).then(|| Arc::new(parse(&format!("{{spec: {{renewTime: '{renewed}'}}}}"))))
        };
        Change { key: "kube-node-lease/one".into(), revision: 1, old: of(old), new: of(new) }
    }

    fn node(old: &str, new: &str) -> Change<Node> {
        let of = |reported: &str| {
            let status = format!(
                "{{status: {{conditions: [{{type: Ready, status: 'True', lastHeartbeatTime: '{reported}'}}]}}}}"
            );
            (!reported.is_empty()).then(|| Arc::new(parse(&status)))
        };
        Change { key: "one".into(), revision: 1, old: of(old), new: of(new) }
    }

    /// The times that a kubelet writes say nothing: a clock of before 2000, or of tomorrow, is as good as any.
    #[test]
    fn silence_is_since_something_else_was_written() {
        let (heard, begun) = (Heartbeats::default(), Instant::now());
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        let silence = |seconds: u64| heard.silence("one", at(seconds)).as_secs();
        assert_eq!((silence(0), silence(10)), (0, 10), "the first look counts");
        heard.lease(&lease("", "1999-01-01T00:00:00.000000Z"), at(20));
        assert_eq!(silence(30), 10, "a lease");
        heard.lease(&lease("1999-01-01T00:00:00.000000Z", "1998-01-01T00:00:00.000000Z"), at(40));
        assert_eq!(silence(50), 10, "a clock that was set back");
        heard.lease(&lease("1998-01-01T00:00:00.000000Z", "1998-01-01T00:00:00.000000Z"), at(60));
        assert_eq!(silence(60), 20, "the same lease");
        heard.lease(&lease("1998-01-01T00:00:00.000000Z", ""), at(65));
        assert_eq!(silence(65), 25, "a lease that goes says nothing");
        heard.node(&node("1999-01-01T00:00:00Z", "2999-01-01T00:00:00Z"), at(70));
        assert_eq!(silence(75), 5, "a status");
        heard.node(&node("2999-01-01T00:00:00Z", "2999-01-01T00:00:00Z"), at(80));
        assert_eq!(silence(85), 15, "something else of the Node");
        heard.node(&node("2999-01-01T00:00:00Z", ""), at(90));
        assert_eq!(silence(95), 0, "another node of that name");
    }
}
