//! Kinds that the API server stores and on which no part of knarr acts yet, and what lacks: one row each.
//!
//! Whoever writes such an object is told (a `Warning` header of the API server), and so is whoever asks for it
//! (`knarr why`, `knarr status`). A row goes when the part comes. Kinds for which upstream has no part either, such as
//! Ingresses, have none.

/// A kind on which no part acts, and what follows from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unserved {
    /// Empty for core.
    pub group: &'static str,
    /// The plural.
    pub resource: &'static str,
    /// The part that lacks: "Job controller".
    pub part: &'static str,
    /// The effect that is therefore missing: "its Pods are not created".
    pub effect: &'static str,
}

/// All of them: none, as of now.
pub const UNSERVED: &[Unserved] = &[];

/// The entry of a kind, if no part acts on it.
#[must_use]
pub fn unserved(group: &str, resource: &str) -> Option<&'static Unserved> {
    UNSERVED.iter().find(|row| row.group == group && row.resource == resource)
}

impl std::fmt::Display for Unserved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { part, effect, .. } = self;
        write!(f, "this version of knarr has no {part}: the object is stored, and {effect}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_writes_what_nothing_acts_on_is_told_what_does_not_happen() {
        let row =
            Unserved { group: "batch", resource: "jobs", part: "Job controller", effect: "no Pod is made" };
        let expected =
            "this version of knarr has no Job controller: the object is stored, and no Pod is made";
        assert_eq!(row.to_string(), expected);
        assert_eq!(unserved("apps", "deployments"), None);
        assert_eq!(unserved("networking.k8s.io", "networkpolicies"), None);
    }
}
