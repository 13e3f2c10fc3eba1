//! What the runtime and its handlers can do, as they said last: the Node shows it, and Pods that need what is not there
//! are refused.
//!
//! Source: CRI's `StatusResponse`, `NodeStatus.runtimeHandlers` and `.features`, KEP-3857 (recursive read-only mounts),
//! KEP-127 (user namespaces), KEP-3619 (supplemental groups policy).

use cri::{CriError, RuntimeService, v1};
use k8s_openapi::api::core::v1::{NodeFeatures, NodeRuntimeHandler, NodeRuntimeHandlerFeatures, NodeStatus};
use parking_lot::Mutex;

/// Why a runtime handler cannot give a Pod users of its own, in upstream's words.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoUserNamespaces {
    /// The runtime does not say what its handlers can do.
    #[error("runtime handlers are not set")]
    NoHandlers,
    /// There is no such handler.
    #[error("the handler {0:?} is not known")]
    Unknown(String),
    /// It says that it cannot.
    #[error("RuntimeClass handler {0:?} does not support user namespaces")]
    Unsupported(String),
}

/// See the module.
#[derive(Default)]
pub(crate) struct RuntimeFeatures(Mutex<Option<Known>>);

/// What one answer says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Known {
    handlers: Vec<v1::RuntimeHandler>,
    features: Option<v1::RuntimeFeatures>,
}

impl RuntimeFeatures {
    /// Takes what the runtime's status says.
    pub(crate) fn learn(&self, status: &v1::StatusResponse) {
        let mut handlers = status.runtime_handlers.clone();
        handlers.sort_by(|a, b| a.name.cmp(&b.name));
        *self.0.lock() = Some(Known { handlers, features: status.features });
    }

    /// What is known; nothing until the runtime has been asked.
    pub(crate) fn known(&self) -> Known {
        self.0.lock().clone().unwrap_or_default()
    }

    /// What is known; the runtime is asked if it has not been.
    ///
    /// # Errors
    /// It does not answer.
    pub(crate) async fn ask(&self, runtime: &dyn RuntimeService) -> Result<Known, CriError> {
        if let Some(known) = self.0.lock().clone() {
            return Ok(known);
        }
        let status = runtime.status(v1::StatusRequest { verbose: false }).await;
        self.learn(&status?);
        Ok(self.known())
    }
}

impl Known {
    /// Puts it into the Node's status.
    pub(crate) fn show(&self, status: &mut NodeStatus) {
        let handler = |handler: &v1::RuntimeHandler| {
            let can = handler.features.unwrap_or_default();
            NodeRuntimeHandler {
                name: Some(handler.name.clone()),
                features: Some(NodeRuntimeHandlerFeatures {
                    recursive_read_only_mounts: Some(can.recursive_read_only_mounts),
                    user_namespaces: Some(can.user_namespaces),
                }),
            }
        };
        let handlers: Vec<_> = self.handlers.iter().map(handler).collect();
        status.runtime_handlers = (!handlers.is_empty()).then_some(handlers);
        status.features = self
            .features
            .map(|can| NodeFeatures { supplemental_groups_policy: Some(can.supplemental_groups_policy) });
    }

    /// Whether the handler makes mounts read-only with all that is mounted below them.
    pub(crate) fn has_recursive_read_only(&self, handler: &str) -> bool {
        let found = self.handlers.iter().find(|known| known.name == handler);
        found.and_then(|known| known.features).is_some_and(|can| can.recursive_read_only_mounts)
    }

    /// Whether the handler can give a Pod users of its own.
    ///
    /// # Errors
    /// It cannot, in upstream's words.
    pub(crate) fn check_user_namespaces(&self, handler: &str) -> Result<(), NoUserNamespaces> {
        if self.handlers.is_empty() {
            return Err(NoUserNamespaces::NoHandlers);
        }
        let found = self.handlers.iter().find(|known| known.name == handler);
        let found = found.ok_or_else(|| NoUserNamespaces::Unknown(handler.to_owned()))?;
        match found.features.unwrap_or_default().user_namespaces {
            true => Ok(()),
            false => Err(NoUserNamespaces::Unsupported(handler.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known {
        let handler = |name: &str, recursive_read_only_mounts, user_namespaces| v1::RuntimeHandler {
            name: name.into(),
            features: Some(v1::RuntimeHandlerFeatures { recursive_read_only_mounts, user_namespaces }),
        };
        let features = RuntimeFeatures::default();
        features.learn(&v1::StatusResponse {
            runtime_handlers: vec![handler("old", false, false), handler("", true, true)],
            features: Some(v1::RuntimeFeatures { supplemental_groups_policy: true }),
            ..v1::StatusResponse::default()
        });
        features.known()
    }

    #[test]
    fn the_node_shows_what_the_runtime_says() {
        let mut status = NodeStatus::default();
        known().show(&mut status);
        let shown =
            serde_json::json!({"features": status.features, "runtimeHandlers": status.runtime_handlers});
        let expect = serde_json::json!({
            "features": {"supplementalGroupsPolicy": true},
            "runtimeHandlers": [
                {"name": "", "features": {"recursiveReadOnlyMounts": true, "userNamespaces": true}},
                {"name": "old", "features": {"recursiveReadOnlyMounts": false, "userNamespaces": false}},
            ],
        });
        assert_eq!(shown, expect);
        Known::default().show(&mut status);
        assert_eq!((status.features, status.runtime_handlers), (None, None), "an old runtime says nothing");
    }

    #[test]
    fn a_handler_that_lacks_a_feature_is_no_use_to_a_pod_that_needs_it() {
        let known = known();
        assert_eq!(known.check_user_namespaces(""), Ok(()));
        for (handler, why) in [
            ("old", "RuntimeClass handler \"old\" does not support user namespaces"),
            ("other", "the handler \"other\" is not known"),
        ] {
            assert_eq!(known.check_user_namespaces(handler).unwrap_err().to_string(), why);
        }
        let silent = Known::default().check_user_namespaces("");
        assert_eq!(silent, Err(NoUserNamespaces::NoHandlers));
        assert!(known.has_recursive_read_only(""));
        assert!(!known.has_recursive_read_only("old") && !known.has_recursive_read_only("other"));
    }
}
