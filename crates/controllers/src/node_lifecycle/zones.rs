//! The rate at which Pods may be evicted from the nodes of a zone: the more of its nodes are not ready, the likelier is
//! it that not they are at fault, but what lies between them and here.
//!
//! Source: `ComputeZoneState`, `setLimiterInZone`, `--node-eviction-rate` and its kin.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;

use super::ready_status;
use crate::object::label;
use crate::options::Options;
use crate::pod::since_until;

/// So many may be not ready in any zone.
const UNREADY_NODES_MAX: usize = 2;
/// Nodes with this label say nothing of their zones.
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";

/// The rate at which Pods may be driven off nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// One node in so much time.
    OneIn(Duration),
    /// No more nodes than those that it has happened to.
    Paused,
    /// Off none: no node is ready anywhere.
    Stopped,
}

/// The zone of a node, in its region.
pub(crate) fn zone_of(node: &Node) -> (&str, &str) {
    let known = |key: &str, old: &str| {
        let labels = label(&node.metadata, key).or_else(|| label(&node.metadata, old));
        labels.unwrap_or_default()
    };
    (
        known("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"),
        known("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
    )
}

/// Of a zone's nodes.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    ready: usize,
    unready: usize,
}

/// How fast Pods may be driven off the nodes of the zone of `node`, which is one of `nodes`.
pub(super) fn pace<'a>(node: &Node, nodes: impl Iterator<Item = &'a Node>, options: &Options) -> Pace {
    let mut zones: BTreeMap<(&str, &str), Count> = BTreeMap::new();
    for node in nodes.filter(|node| label(&node.metadata, EXCLUDED).is_none()) {
        let count = zones.entry(zone_of(node)).or_default();
        match ready_status(node) {
            Some("True") => count.ready += 1,
            _ => count.unready += 1,
        }
    }
    if !zones.is_empty() && zones.values().all(|count| count.ready == 0) {
        return Pace::Stopped;
    }
    let Count { ready, unready } = zones.get(&zone_of(node)).copied().unwrap_or_default();
    let all = ready + unready;
    let unready_share = unready as f64 / all.max(1) as f64;
    let is_unhealthy =
        ready > 0 && unready > UNREADY_NODES_MAX && unready_share >= options.unhealthy_zone_threshold;
    match is_unhealthy {
        true if all > options.large_cluster_size_threshold => of_rate(options.secondary_node_eviction_rate),
        true => Pace::Paused,
        false => of_rate(options.node_eviction_rate),
    }
}

/// Of so many nodes a second.
fn of_rate(rate: f64) -> Pace {
    match Duration::try_from_secs_f64(1.0 / rate) {
        Ok(period) if rate > 0.0 => Pace::OneIn(period),
        _ => Pace::Paused,
    }
}

/// Whose turn it was last, by zone.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<BTreeMap<(String, String), (Timestamp, String)>>);

impl Turns {
    /// Takes the zone's turn for a node; or says how long it has to wait. Whose turn it was has it still: it may have
    /// failed.
    pub(super) fn take(&self, node: &Node, period: Duration, now: Timestamp) -> Option<Duration> {
        let (region, zone) = zone_of(node);
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let mut turns = self.0.lock();
        let turn =
            turns.entry((region.to_owned(), zone.to_owned())).or_insert((Timestamp::MIN, String::new()));
        let left = period.saturating_sub(since_until(turn.0, now));
        if !left.is_zero() && turn.1 != name {
            return Some(left);
        }
        *turn = (now, name.to_owned());
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{noon, parse};

    const PERIOD: Duration = Duration::from_secs(10);
    const SLOW_PERIOD: Duration = Duration::from_secs(100);

    fn node(zone: &str, ready: &str) -> Node {
        parse(&format!(
            "{{metadata: {{name: one, labels: {{topology.kubernetes.io/zone: '{zone}'}}}}, status: {{conditions: [{{type: Ready, \
             status: '{ready}'}}]}}}}"
        ))
    }

    /// Zones by how many of their nodes are ready and are not; the node is one of the first that is not.
    fn check(what: &str, zones: &[(&str, usize, usize)], expect: Pace) {
        let of = |(zone, ready, unready): &(&str, usize, usize)| {
            let mut nodes = vec![node(zone, "True"); *ready];
            nodes.extend(vec![node(zone, "Unknown"); *unready]);
            nodes
        };
        let nodes: Vec<Node> = zones.iter().flat_map(of).collect();
        let own = node(zones[0].0, "Unknown");
        assert_eq!(pace(&own, nodes.iter(), &Options::default()), expect, "{what}");
    }

    #[test]
    fn the_more_of_a_zone_is_gone_the_less_is_believed() {
        check("one of many", &[("a", 9, 1)], Pace::OneIn(PERIOD));
        check("most, but few", &[("a", 1, 2)], Pace::OneIn(PERIOD));
        check("less than the threshold", &[("a", 50, 50)], Pace::OneIn(PERIOD));
        check("a small zone", &[("a", 22, 28)], Pace::Paused);
        check("at the threshold", &[("a", 9, 11)], Pace::Paused);
        check("a large zone", &[("a", 22, 29)], Pace::OneIn(SLOW_PERIOD));
        check("a whole zone", &[("a", 0, 3), ("b", 1, 0)], Pace::OneIn(PERIOD));
        check("beside a broken zone", &[("b", 9, 1), ("a", 0, 9)], Pace::OneIn(PERIOD));
        check("all zones", &[("a", 0, 3), ("b", 0, 1)], Pace::Stopped);
        check("the only one", &[("", 0, 1)], Pace::Stopped);
    }

    #[test]
    fn rates_are_periods_and_no_rate_is_none() {
        for (rate, expect) in [
            (0.1, Pace::OneIn(Duration::from_secs(10))),
            (2.0, Pace::OneIn(Duration::from_millis(500))),
            (0.0, Pace::Paused),
            (f64::MIN_POSITIVE, Pace::Paused),
        ] {
            assert_eq!(of_rate(rate), expect, "{rate}");
        }
    }

    #[test]
    fn nodes_that_say_nothing_of_their_zone_are_not_counted() {
        let mut excluded = node("a", "Unknown");
        excluded.metadata.labels.get_or_insert_default().insert(EXCLUDED.to_owned(), String::new());
        assert_eq!(pace(&excluded, std::iter::once(&excluded), &Options::default()), Pace::OneIn(PERIOD));
        let nodes = [excluded.clone(), excluded.clone(), excluded, node("a", "Unknown"), node("b", "True")];
        assert_eq!(pace(&nodes[0], nodes.iter(), &Options::default()), Pace::OneIn(PERIOD));
    }

    #[test]
    fn each_zone_has_its_turns() {
        let turns = Turns::default();
        let named = |name: &str, zone: &str| {
            let mut node = node(zone, "Unknown");
            node.metadata.name = Some(name.to_owned());
            node
        };
        let at = |seconds| noon() + jiff::SignedDuration::from_secs(seconds);
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (name, zone, time, expect) in [
            ("one", "a", 0, None),
            ("two", "a", 1, seconds(9)),
            ("one", "a", 2, None),
            ("three", "b", 2, None),
            ("two", "a", 10, seconds(2)),
            ("two", "a", 12, None),
            ("one", "a", 13, seconds(9)),
            // A clock that goes back.
            ("one", "a", 0, seconds(10)),
        ] {
            assert_eq!(turns.take(&named(name, zone), PERIOD, at(time)), expect, "{name} at {time}");
        }
    }
}
