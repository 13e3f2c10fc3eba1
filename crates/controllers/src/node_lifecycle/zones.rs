//! The rate at which Pods may be evicted from the nodes of a zone: the more of its nodes are not ready, the likelier is
//! it that not they are at fault, but what lies between them and here.
//!
//! Source: `ComputeZoneState`, `setLimiterInZone`, `--node-eviction-rate` and its kin.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use controller::metadata::label;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;

use super::ready_status;
use crate::options::Options;
use crate::pod::since_until;

/// So many may be not ready in any zone.
const UNREADY_NODES_MAX: usize = 2;
/// Nodes with this label say nothing of their zones.
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";

/// The rate at which Pods may be driven off nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionRate {
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

/// Region and zone.
type Zone = (String, String);

/// Of a zone's nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    ready: usize,
    unready: usize,
}

impl Count {
    fn of(&mut self, is_ready: bool) -> &mut usize {
        if is_ready { &mut self.ready } else { &mut self.unready }
    }
}

/// The nodes of each zone, counted as they change: when a whole zone goes, each of its nodes asks.
#[derive(Debug, Default)]
pub(super) struct Zones(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    /// What each node was counted as, by its name.
    nodes: BTreeMap<String, (Zone, bool)>,
    zones: BTreeMap<Zone, Count>,
}

impl Zones {
    /// Those of these nodes.
    pub(super) fn of(nodes: &[Arc<Node>]) -> Self {
        let zones = Self::default();
        for node in nodes {
            zones.note(node.metadata.name.as_deref().unwrap_or_default(), Some(node));
        }
        zones
    }

    /// Counts the node of this name as it is now; `None` if it is gone.
    pub(super) fn note(&self, name: &str, node: Option<&Node>) {
        let counts = node.filter(|node| label(&node.metadata, EXCLUDED).is_none());
        let now = counts.map(|node| (owned(zone_of(node)), ready_status(node) == Some("True")));
        let mut counted = self.0.lock();
        let before = match &now {
            Some(now) => counted.nodes.insert(name.to_owned(), now.clone()),
            None => counted.nodes.remove(name),
        };
        if before == now {
            return;
        }
        if let Some((zone, was_ready)) = before
            && let Some(count) = counted.zones.get_mut(&zone)
        {
            *count.of(was_ready) -= 1;
            if *count == Count::default() {
                counted.zones.remove(&zone);
            }
        }
        if let Some((zone, is_ready)) = now {
            *counted.zones.entry(zone).or_default().of(is_ready) += 1;
        }
    }

    /// How fast Pods may be driven off the nodes of the zone of `node`.
    pub(super) fn eviction_rate(&self, node: &Node, options: &Options) -> EvictionRate {
        let zones = &self.0.lock().zones;
        if !zones.is_empty() && zones.values().all(|count| count.ready == 0) {
            return EvictionRate::Stopped;
        }
        eviction_rate(zones.get(&owned(zone_of(node))).copied().unwrap_or_default(), options)
    }
}

fn owned((region, zone): (&str, &str)) -> Zone {
    (region.to_owned(), zone.to_owned())
}

fn eviction_rate(zone: Count, options: &Options) -> EvictionRate {
    let Count { ready, unready } = zone;
    let all = ready + unready;
    let unready_share = unready as f64 / all.max(1) as f64;
    let is_unhealthy =
        ready > 0 && unready > UNREADY_NODES_MAX && unready_share >= options.unhealthy_zone_threshold;
    match is_unhealthy {
        true if all > options.large_cluster_size_threshold => of_rate(options.secondary_node_eviction_rate),
        true => EvictionRate::Paused,
        false => of_rate(options.node_eviction_rate),
    }
}

/// Of so many nodes a second.
fn of_rate(rate: f64) -> EvictionRate {
    match Duration::try_from_secs_f64(1.0 / rate) {
        Ok(period) if rate > 0.0 => EvictionRate::OneIn(period),
        _ => EvictionRate::Paused,
    }
}

/// Whose turn it was last, by zone.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<BTreeMap<Zone, (Timestamp, String)>>);

impl Turns {
    /// Takes the zone's turn for a node; or says how long it has to wait. Whose turn it was has it still: it may have
    /// failed.
    pub(super) fn take(&self, node: &Node, period: Duration, now: Timestamp) -> Option<Duration> {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let mut turns = self.0.lock();
        let turn = turns.entry(owned(zone_of(node))).or_insert((Timestamp::MIN, String::new()));
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

    /// Nodes with names of their own.
    fn numbered(nodes: impl IntoIterator<Item = Node>) -> Zones {
        let named = nodes.into_iter().enumerate().map(|(number, mut node)| {
            node.metadata.name = Some(number.to_string());
            Arc::new(node)
        });
        Zones::of(&named.collect::<Vec<_>>())
    }

    /// Zones by how many of their nodes are ready and are not; the node is one of the first that is not.
    fn check(what: &str, zones: &[(&str, usize, usize)], expect: EvictionRate) {
        let of = |(zone, ready, unready): &(&str, usize, usize)| {
            let mut nodes = vec![node(zone, "True"); *ready];
            nodes.extend(vec![node(zone, "Unknown"); *unready]);
            nodes
        };
        let own = node(zones[0].0, "Unknown");
        let zones = numbered(zones.iter().flat_map(of));
        assert_eq!(zones.eviction_rate(&own, &Options::default()), expect, "{what}");
    }

    #[test]
    fn the_more_of_a_zone_is_gone_the_less_is_believed() {
        check("one of many", &[("a", 9, 1)], EvictionRate::OneIn(PERIOD));
        check("most, but few", &[("a", 1, 2)], EvictionRate::OneIn(PERIOD));
        check("less than the threshold", &[("a", 50, 50)], EvictionRate::OneIn(PERIOD));
        check("a small zone", &[("a", 22, 28)], EvictionRate::Paused);
        check("at the threshold", &[("a", 9, 11)], EvictionRate::Paused);
        check("a large zone", &[("a", 22, 29)], EvictionRate::OneIn(SLOW_PERIOD));
        check("a whole zone", &[("a", 0, 3), ("b", 1, 0)], EvictionRate::OneIn(PERIOD));
        check("beside a broken zone", &[("b", 9, 1), ("a", 0, 9)], EvictionRate::OneIn(PERIOD));
        check("all zones", &[("a", 0, 3), ("b", 0, 1)], EvictionRate::Stopped);
        check("the only one", &[("", 0, 1)], EvictionRate::Stopped);
    }

    #[test]
    fn rates_are_periods_and_no_rate_is_none() {
        for (rate, expect) in [
            (0.1, EvictionRate::OneIn(Duration::from_secs(10))),
            (2.0, EvictionRate::OneIn(Duration::from_millis(500))),
            (0.0, EvictionRate::Paused),
            (f64::MIN_POSITIVE, EvictionRate::Paused),
        ] {
            assert_eq!(of_rate(rate), expect, "{rate}");
        }
    }

    #[test]
    fn nodes_that_say_nothing_of_their_zone_are_not_counted() {
        let mut excluded = node("a", "Unknown");
        excluded.metadata.labels.get_or_insert_default().insert(EXCLUDED.to_owned(), String::new());
        let alone = numbered([excluded.clone()]);
        assert_eq!(alone.eviction_rate(&excluded, &Options::default()), EvictionRate::OneIn(PERIOD));
        let others = [node("a", "Unknown"), node("b", "True")];
        let zones = numbered(vec![excluded.clone(); 3].into_iter().chain(others));
        assert_eq!(zones.eviction_rate(&excluded, &Options::default()), EvictionRate::OneIn(PERIOD));
    }

    #[test]
    fn nodes_count_as_they_are_now() {
        let zones = numbered([node("a", "True"), node("a", "Unknown"), node("b", "Unknown")]);
        let check = |name: &str, now: Option<Node>, expect: &[(&str, usize, usize)]| {
            zones.note(name, now.as_ref());
            let counted = zones.0.lock();
            let shown =
                counted.zones.iter().map(|((_, zone), count)| (zone.as_str(), count.ready, count.unready));
            assert_eq!(shown.collect::<Vec<_>>(), expect, "{name}");
        };
        check("0", Some(node("a", "True")), &[("a", 1, 1), ("b", 0, 1)]);
        check("0", Some(node("a", "False")), &[("a", 0, 2), ("b", 0, 1)]);
        check("2", Some(node("a", "True")), &[("a", 1, 2)]);
        check("1", None, &[("a", 1, 1)]);
        check("unknown", None, &[("a", 1, 1)]);
        let mut excluded = node("a", "True");
        excluded.metadata.labels.get_or_insert_default().insert(EXCLUDED.to_owned(), String::new());
        check("2", Some(excluded), &[("a", 0, 1)]);
        check("3", Some(node("c", "True")), &[("a", 0, 1), ("c", 1, 0)]);
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
