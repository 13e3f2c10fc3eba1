//! Completion indexes, as the status of a Job writes them: `0,2-4`.

use std::collections::BTreeSet;
use std::fmt;

use controller::metadata::annotation;
use controller::pod::Pod;

/// On each Pod of an indexed Job, as annotation and as label. Source: `batch/v1`.
pub(super) const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// A set of indexes: intervals with both ends, in rising order, none of which touches another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes(Vec<(i32, i32)>);

impl Indexes {
    /// Reads a set below `completions`. What cannot be read, or is beyond, is left out.
    pub(super) fn parse(text: &str, completions: i32) -> Self {
        let interval = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (i32, i32) = (first.parse().ok()?, last.parse().ok()?);
            let last = last.min(completions.saturating_sub(1));
            (0 <= first && first <= last).then_some((first, last))
        };
        Self::of(text.split(',').filter_map(interval).collect())
    }

    fn of(mut intervals: Vec<(i32, i32)>) -> Self {
        intervals.sort_unstable();
        let mut merged: Vec<(i32, i32)> = Vec::with_capacity(intervals.len());
        for (first, last) in intervals {
            match merged.last_mut() {
                Some(previous) if first <= previous.1.saturating_add(1) => previous.1 = previous.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    /// What is in either.
    pub(super) fn union(&self, other: &Self) -> Self {
        Self::of(self.0.iter().chain(&other.0).copied().collect())
    }

    /// How many there are.
    pub(super) fn total(&self) -> i32 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `index` is one of them.
    pub(super) fn contains(&self, index: i32) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(at).is_some_and(|(first, _)| *first <= index)
    }

    /// How many of them are in `other`, too.
    pub(super) fn overlap(&self, other: &Self) -> i32 {
        let (mut a, mut b, mut count) = (self.0.iter().peekable(), other.0.iter().peekable(), 0);
        while let (Some(one), Some(two)) = (a.peek(), b.peek()) {
            count += (one.1.min(two.1) - one.0.max(two.0) + 1).max(0);
            if one.1 <= two.1 {
                a.next()
            } else {
                b.next()
            };
        }
        count
    }

    /// The first `count` indexes below `completions` that are not among them.
    pub(super) fn missing(&self, count: usize, completions: i32) -> Vec<i32> {
        let mut next = 0;
        let ends = self.0.iter().copied().chain([(completions, completions)]);
        let gaps = ends.flat_map(|(first, last)| {
            let gap = next..first.min(completions);
            next = last.saturating_add(1);
            gap
        });
        gaps.take(count).collect()
    }
}

impl FromIterator<i32> for Indexes {
    fn from_iter<I: IntoIterator<Item = i32>>(indexes: I) -> Self {
        let distinct: BTreeSet<i32> = indexes.into_iter().collect();
        Self::of(distinct.into_iter().map(|index| (index, index)).collect())
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (first, last)) in self.0.iter().enumerate() {
            let comma = if position > 0 { "," } else { "" };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

/// The index that a Pod works on, if it says one.
pub(super) fn completion_index(pod: &Pod) -> Option<i32> {
    annotation(&pod.metadata, COMPLETION_INDEX)?.parse().ok().filter(|index| *index >= 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_left_out() {
        for (text, expect) in [
            ("", ""),
            ("0", "0"),
            ("0,1", "0,1"),
            ("0-2,3", "0-3"),
            ("1,3-5", "1,3-5"),
            ("3-20", "3-9"),
            ("10,11", ""),
            ("x,2,3-y,4", "2,4"),
            ("5,1-2,2-3", "1-3,5"),
            ("-1,4-2,--,1-2-3", ""),
            ("99999999999999999999,7", "7"),
        ] {
            assert_eq!(Indexes::parse(text, 10).to_string(), expect, "{text:?}");
        }
        assert!(Indexes::parse("0", 0).is_empty());
    }

    #[test]
    fn sets_are_what_their_members_are() {
        let set = |text: &str| Indexes::parse(text, 100);
        let (a, b) = (set("0,2-4,8"), set("3-5,9"));
        assert_eq!(a.union(&b).to_string(), "0,2-5,8,9");
        assert_eq!((a.total(), b.total(), a.overlap(&b), b.overlap(&a)), (5, 4, 2, 2));
        let members: Vec<i32> = (0..12).filter(|index| a.contains(*index)).collect();
        assert_eq!(members, [0, 2, 3, 4, 8]);
        assert_eq!([4, 2, 2, 1].into_iter().collect::<Indexes>().to_string(), "1,2,4");
    }

    #[test]
    fn missing_indexes_are_the_lowest() {
        for (there, count, completions, expect) in [
            ("", 2, 5, vec![0, 1]),
            ("0,2", 2, 5, vec![1, 3]),
            ("0-4", 2, 5, vec![]),
            ("1-3", 9, 5, vec![0, 4]),
            ("7", 9, 3, vec![0, 1, 2]),
            ("", 0, 5, vec![]),
        ] {
            assert_eq!(Indexes::parse(there, 9).missing(count, completions), expect, "{there}");
        }
    }
}
