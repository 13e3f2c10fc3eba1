//! A Node that has the Pod's images already is better, the more so the larger they are and the more Nodes have them.

use super::{Candidate, SCORE_MAX};
use crate::node_info::{NodeInfo, Snapshot};

/// Below this many bytes images do not count.
const BYTES_MIN: i64 = 23 << 20;
/// Beyond this many bytes per container more does not count more.
const BYTES_PER_CONTAINER_MAX: i64 = 1000 << 20;

pub(super) fn score(candidate: &Candidate<'_>, node: &NodeInfo, all: &Snapshot) -> i64 {
    let Some(spec) = &candidate.pod.spec else { return 0 };
    let total = i64::try_from(all.len()).unwrap_or(i64::MAX).max(1);
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let (mut count, mut bytes) = (0, 0);
    for image in containers.filter_map(|container| container.image.as_deref()) {
        count += 1;
        let name = with_tag(image);
        if let Some(size) = node.images.get(&name) {
            let having = all.nodes().filter(|other| other.images.contains_key(&name)).count();
            bytes += size.saturating_mul(i64::try_from(having).unwrap_or(0)) / total;
        }
    }
    let max = BYTES_PER_CONTAINER_MAX * count;
    if max <= BYTES_MIN {
        return 0;
    }
    SCORE_MAX * (bytes.clamp(BYTES_MIN, max) - BYTES_MIN) / (max - BYTES_MIN)
}

fn with_tag(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    if last.contains([':', '@']) { image.to_owned() } else { format!("{image}:latest") }
}
