//! The plan that a decision comes to.

use controller::metadata::{name, namespace, uid};
use controller::{Action, Patch, Plan};
use k8s_openapi::api::apps::v1::ReplicaSet;
use serde_json::json;

use crate::deployment::rollout::Rollout;
use crate::deployment::status;

impl Rollout<'_> {
    /// Turns the decision into a plan: adoptions, then ReplicaSets, then what tells about them.
    pub(crate) fn finish(self, claims: Vec<Action>) -> Plan {
        let mut plan = Plan::nothing();
        plan.push_step(claims);
        plan.push_step(self.set_actions());
        let written = status::write_numbered(self.deployment, &self.status(), self.revision.as_deref());
        let mut report: Vec<Action> = written.into_iter().collect();
        report.extend(self.events);
        plan.push_step(report);
        plan.on_failure = self.on_failure;
        plan.requeue_after = self.requeue_after;
        plan
    }

    fn set_actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        for set in &self.sets {
            if set.is_to_create {
                actions.push(Action::create(&set.to_create()));
            } else if let Some(mut patch) = set.patch() {
                let meta = &set.object.metadata;
                patch["metadata"]["uid"] = json!(uid(meta));
                actions.push(Action::patch::<ReplicaSet>(namespace(meta), name(meta), Patch::Merge(patch)));
            }
        }
        actions.extend(self.deletes.iter().cloned());
        actions
    }
}
