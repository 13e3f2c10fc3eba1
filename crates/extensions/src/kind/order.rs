//! The order of versions that clients should prefer.
//!
//! Source: `CompareKubeAwareVersionStrings` of `k8s.io/apimachinery/pkg/version`.

use std::cmp::Ordering;

/// How far a version is: stable ones after betas, these after alphas; then the newer one after the older.
type Rank = (u8, u64, u64);

/// The order of versions, better ones last: those that are named as Kubernetes names versions, before them all others.
pub(super) fn compare(left: &str, right: &str) -> Ordering {
    match (rank(left), rank(right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        // Of those that say nothing the alphabetically first one is better.
        (None, None) => right.cmp(left),
    }
}

fn rank(version: &str) -> Option<Rank> {
    let rest = version.strip_prefix('v')?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, rest) = rest.split_at_checked(end)?;
    let major = number(major)?;
    if rest.is_empty() {
        return Some((2, major, 0));
    }
    let (stage, minor) = match rest.strip_prefix("beta") {
        Some(minor) => (1, minor),
        None => (0, rest.strip_prefix("alpha")?),
    };
    Some((stage, major, if minor.is_empty() { 0 } else { number(minor)? }))
}

/// A number as versions have it: without zeros in front.
fn number(text: &str) -> Option<u64> {
    let is_plain = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    #[test]
    fn stable_versions_come_last_and_strange_ones_first() {
        let mut versions = vec![
            "v1",
            "foo10",
            "v10",
            "v3beta1",
            "v11alpha2",
            "v2",
            "v12alpha1",
            "v3beta2",
            "foo1",
            "v01",
            "v1beta",
        ];
        versions.sort_by(|left, right| super::compare(right, left));
        let expect = [
            "v10",
            "v2",
            "v1",
            "v3beta2",
            "v3beta1",
            "v1beta",
            "v12alpha1",
            "v11alpha2",
            "foo1",
            "foo10",
            "v01",
        ];
        assert_eq!(versions, expect);
    }
}
