//! A Node that has the Pod's images already is better, the more so the larger they are and the more Nodes have them.

use controller::pod::Pod;

use super::{Candidate, SCORE_MAX};
use crate::node_info::{NodeInfo, Snapshot};

/// Below this many bytes images do not count.
const BYTES_MIN: i64 = 23 << 20;
/// Beyond this many bytes per container more does not count more.
const BYTES_PER_CONTAINER_MAX: i64 = 1000 << 20;

/// What is known about a Pod's images for all Nodes.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// Each container's image that some Node has, with the number of Nodes that do.
    images: Vec<(String, i64)>,
    nodes: i64,
    bytes_max: i64,
}

impl State {
    pub(super) fn new(pod: &Pod, all: &Snapshot) -> Self {
        let spec = pod.spec.iter();
        let containers =
            spec.flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
        let names: Vec<String> =
            containers.filter_map(|container| container.image.as_deref()).map(with_tag).collect();
        let bytes_max = BYTES_PER_CONTAINER_MAX * signed(names.len());
        let having = names.into_iter().map(|name| {
            let count = signed(all.having(&name));
            (name, count)
        });
        let images = having.filter(|(_, count)| *count > 0).collect();
        Self { images, nodes: signed(all.len()).max(1), bytes_max }
    }
}

/// Whether any Node has any of the images.
pub(super) fn concerns(candidate: &Candidate<'_>) -> bool {
    !candidate.images.images.is_empty()
}

pub(super) fn score(candidate: &Candidate<'_>, node: &NodeInfo) -> i64 {
    let State { images, nodes, bytes_max } = &candidate.images;
    if *bytes_max <= BYTES_MIN {
        return 0;
    }
    let here =
        images.iter().filter_map(|(name, having)| Some(node.images.get(name)?.saturating_mul(*having)));
    let bytes: i64 = here.map(|bytes| bytes / nodes).sum();
    SCORE_MAX * (bytes.clamp(BYTES_MIN, *bytes_max) - BYTES_MIN) / (bytes_max - BYTES_MIN)
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn with_tag(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    if last.contains([':', '@']) { image.to_owned() } else { format!("{image}:latest") }
}

#[cfg(test)]
mod tests;
