//! Whether the API server reaches a Node's kubelet, which logs, exec, port-forward and measures need, and by which way.

use super::Reason;

/// The outcome of asking a kubelet through the API server how it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// `true` if the Node's tunnel to this API server stands; nothing where that may not be known.
    pub has_tunnel: Option<bool>,
    /// The reason why the kubelet is not reached, if it is not.
    pub failure: Option<String>,
}

impl Reach {
    /// What follows "is ready".
    pub(super) fn told(&self) -> &'static str {
        match (self.has_tunnel, &self.failure) {
            (Some(true), None) => ", and its tunnel stands",
            _ => "",
        }
    }

    pub(super) fn reason(&self, object: &str) -> Option<Reason> {
        let failure = self.failure.as_ref()?;
        let way = match self.has_tunnel {
            Some(true) => " through the node's tunnel",
            Some(false) => ", and no tunnel of the node stands",
            None => "",
        };
        let what = format!("the API server does not reach its kubelet{way}: {failure}");
        let fix = match self.has_tunnel {
            Some(true) => "look at the kubelet and its log on the node's host",
            _ => {
                "if there is no way from the API server to the node's host, see there with `knarr status` why its tunnel does \
                 not stand"
            }
        };
        Some(Reason::new(object, what).fix(fix))
    }
}
