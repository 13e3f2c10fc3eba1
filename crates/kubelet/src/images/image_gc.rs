//! Which images go when the disk that holds them fills up, or when nobody has used them for long.
//!
//! Pure: the records of what was seen, and decisions by them. Images of containers (also of those that have ended), of
//! volumes, and pinned ones stay. Source: `pkg/kubelet/images/image_gc_manager.go` of upstream.

pub(crate) mod collector;

use std::collections::{BTreeMap, BTreeSet};

use cri::v1;
use jiff::Timestamp;

use crate::config::ImageGcPolicy;
use crate::pod::time::after;

/// What is known of one image.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    /// The epoch for those that were there when the kubelet started.
    first_detected: Timestamp,
    /// The epoch if it was never seen in use.
    last_used: Timestamp,
    size: u64,
    is_pinned: bool,
}

/// An image that may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) id: String,
    pub(crate) size: u64,
}

/// What was seen of images so far.
#[derive(Debug, Default)]
pub(crate) struct Records {
    images: BTreeMap<String, Record>,
    is_initialized: bool,
}

impl Records {
    /// Takes what there is at `now`; `in_use` has ids and names.
    pub(crate) fn detect(&mut self, images: &[v1::Image], in_use: &BTreeSet<String>, now: Timestamp) {
        let first_detected = if self.is_initialized { now } else { Timestamp::UNIX_EPOCH };
        self.is_initialized = true;
        let present: BTreeSet<&str> = images.iter().map(|image| image.id.as_str()).collect();
        self.images.retain(|id, _| present.contains(id.as_str()));
        for image in images {
            let new = Record { first_detected, last_used: Timestamp::UNIX_EPOCH, size: 0, is_pinned: false };
            let record = self.images.entry(image.id.clone()).or_insert(new);
            let mut names = [&image.id].into_iter().chain(&image.repo_tags).chain(&image.repo_digests);
            if names.any(|name| in_use.contains(name)) {
                record.last_used = now;
            }
            (record.size, record.is_pinned) = (image.size, image.pinned);
        }
    }

    /// Images that are neither used at `now` nor pinned, the longest unused first.
    fn in_eviction_order(&self, now: Timestamp) -> Vec<(&String, &Record)> {
        let unused = self.images.iter().filter(|(_, record)| record.last_used < now && !record.is_pinned);
        let mut unused: Vec<_> = unused.collect();
        unused.sort_by_key(|(_, record)| (record.last_used, record.first_detected));
        unused
    }

    /// What may go to make room.
    pub(crate) fn to_make_room(&self, policy: &ImageGcPolicy, now: Timestamp) -> Vec<Candidate> {
        let is_old_enough = |record: &Record| after(record.first_detected, policy.minimum_age) <= now;
        let unused = self.in_eviction_order(now).into_iter().filter(|(_, record)| is_old_enough(record));
        unused.map(|(id, record)| Candidate { id: id.clone(), size: record.size }).collect()
    }

    /// What goes because of its age. Nothing does before the kubelet itself, which `began` to look then, has seen it unused
    /// for so long.
    pub(crate) fn too_old(&self, policy: &ImageGcPolicy, began: Timestamp, now: Timestamp) -> Vec<Candidate> {
        if policy.maximum_age.is_zero() || after(began, policy.maximum_age) >= now {
            return Vec::new();
        }
        let is_old = |record: &Record| after(record.last_used, policy.maximum_age) < now;
        let unused = self.in_eviction_order(now).into_iter().filter(|(_, record)| is_old(record));
        unused.map(|(id, record)| Candidate { id: id.clone(), size: record.size }).collect()
    }

    pub(crate) fn ids(&self) -> BTreeSet<String> {
        self.images.keys().cloned().collect()
    }
}

/// A file system that holds images, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disk {
    pub(crate) capacity: u64,
    pub(crate) available: u64,
}

impl Disk {
    fn percent_used(self) -> u8 {
        let available = self.available.min(self.capacity);
        let percent = u128::from(available) * 100 / u128::from(self.capacity.max(1));
        100 - u8::try_from(percent).unwrap_or(100)
    }

    /// How much must go, in bytes; `None` if there is room.
    pub(crate) fn to_free(self, policy: &ImageGcPolicy) -> Option<u64> {
        if self.percent_used() < policy.high_threshold_percent || policy.high_threshold_percent >= 100 {
            return None;
        }
        let kept_free =
            u128::from(self.capacity) * u128::from(100 - policy.low_threshold_percent.min(100)) / 100;
        Some(u64::try_from(kept_free).unwrap_or(u64::MAX).saturating_sub(self.available))
    }

    /// What is said when that much could not be freed.
    pub(crate) fn complaint(self, freed: u64) -> String {
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let gib = self.capacity as f64 / f64::from(1 << 30);
        format!(
            "Insufficient free disk space on the node's image filesystem ({}% of {gib:.1} GiB used). \
             Failed to free sufficient space by deleting unused images (freed {freed} bytes). \
             Investigate disk usage, as it could be used by active images, logs, volumes, or other data.",
            self.percent_used()
        )
    }
}

#[cfg(test)]
mod tests;
