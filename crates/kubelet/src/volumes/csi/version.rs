//! Versions of CSI that drivers say they speak.
//!
//! Source: `HighestSupportedVersion` and `ParseGeneric` of `k8s.io/apimachinery/pkg/util/version`.

use std::cmp::Ordering;
use std::fmt;

/// Two numbers or more; what follows them in the text is not looked at.
#[derive(Clone, Debug)]
pub(crate) struct Version(Vec<u64>);

impl Version {
    /// The highest of CSI's first versions among these; `None` if there is none.
    pub(crate) fn highest<'t>(texts: impl IntoIterator<Item = &'t str>) -> Option<Self> {
        let known = texts.into_iter().filter_map(Self::read).filter(|version| version.0.first() == Some(&1));
        known.max_by(Self::order)
    }

    /// Whether this one is older than another.
    pub(crate) fn is_below(&self, other: &Self) -> bool {
        self.order(other).is_lt()
    }

    /// Zeros at the end say nothing.
    fn order(&self, other: &Self) -> Ordering {
        let parts = self.0.len().max(other.0.len());
        let part = |version: &Self, at: usize| version.0.get(at).copied().unwrap_or_default();
        let orders = (0..parts).map(|at| part(self, at).cmp(&part(other, at)));
        orders.fold(Ordering::Equal, Ordering::then)
    }

    fn read(text: &str) -> Option<Self> {
        let text = text.trim_start_matches([' ', '\t', '\n', '\r', '\x0c']);
        let mut rest = text.strip_prefix('v').unwrap_or(text);
        let mut parts = Vec::new();
        while let Some(digits) = digits(rest) {
            if parts.is_empty() && digits.len() > 1 && digits.starts_with('0') {
                return None;
            }
            parts.push(digits.parse().ok()?);
            rest = rest.strip_prefix(digits)?;
            match rest.strip_prefix('.').filter(|more| self::digits(more).is_some()) {
                Some(more) => rest = more,
                None => break,
            }
        }
        (parts.len() > 1 && !rest.contains('\n')).then_some(Self(parts))
    }
}

fn digits(text: &str) -> Option<&str> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end).filter(|digits| !digits.is_empty())
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        formatter.write_str(&parts.join("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_first_version_counts() {
        for (texts, expect) in [
            (&["1.0.0"][..], "1.0.0"),
            (&["v1.2.3", "4.9.12", "v0.3.0", "2.0.1"], "1.2.3"),
            (&["1.2", "1.11.0-rc1", "1.9"], "1.11.0"),
            (&["0.2.0", "v1.0"], "1.0"),
            (&["1.0rc.5"], "1.0"),
            (&["1.007"], "1.7"),
            (&["01.0", "1", "v1.", "1.x", "1.18446744073709551616", "1.0\nx", "", "vv1.0"], ""),
            (&[], ""),
        ] {
            let found = Version::highest(texts.iter().copied());
            assert_eq!(found.map(|version| version.to_string()).unwrap_or_default(), expect, "{texts:?}");
        }
    }

    #[test]
    fn versions_are_in_order_of_their_numbers() {
        let read = |text: &str| Version::read(text).unwrap();
        for (one, other, is_below) in [
            ("1.0", "1.1", true),
            ("1.1", "1.0", false),
            ("1.0", "1.0", false),
            ("1.0", "1.0.0", false),
            ("1.0.0", "1.0", false),
            ("1.0", "1.0.1", true),
            ("1.9", "1.10", true),
            ("1.2.3-alpha", "1.2.3", false),
        ] {
            assert_eq!(read(one).is_below(&read(other)), is_below, "{one} {other}");
        }
    }
}
