//! How a Node's name is read: without the space around it, and in lower case, as Nodes' names are.
//!
//! Source: `GetHostname` of `k8s.io/component-helpers/node/util`.

use std::convert::Infallible;

/// For flags that name a Node; what else is wrong with it is for others to say.
#[expect(clippy::unnecessary_wraps, reason = "what reads a flag's value may fail")]
pub(super) fn node_name(text: &str) -> Result<String, Infallible> {
    Ok(text.trim().to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_trimmed_and_in_lower_case() {
        for (text, expect) in [
            ("web", "web"),
            ("Web-1.Example.COM", "web-1.example.com"),
            (" web\n", "web"),
            ("ÄB", "äb"),
            ("a B", "a b"),
            ("", ""),
            (" \t", ""),
        ] {
            assert_eq!(node_name(text), Ok(expect.to_owned()), "{text:?}");
        }
    }
}
