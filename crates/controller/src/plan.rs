//! The actions that a decider wants done, as data.
//!
//! A [`Plan`] is a list of steps; the actions of a step run concurrently, and a failed step stops the plan, after
//! which the key is tried again. So slow start is a plan whose steps grow, and order is one action per step.
//! Acting twice on a plan does no harm: creates have names or are guarded by informers, deletes and patches carry
//! preconditions.

mod cause;
mod operation;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use k8s_openapi::Resource;
use k8s_openapi::api::authorization::v1::{SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use serde::Serialize;
use serde_json::{Value, json};

use crate::counter::{Increment, Measured};
use crate::event::{EventAction, EventType, reference_to};
use crate::metadata::Object;
use crate::question::{Question, Scale};
use crate::request::{ApiRequest, Patch, Propagation, Verb, delete_options};
use crate::resource_ref::ResourceRef;

pub use cause::{Cause, grpc_code};
pub use operation::{Failed, Operation, Outcome};

/// A decision: steps in order, and when to look again if nothing happens before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Run one after the other; within a step, concurrently.
    pub steps: Vec<Vec<Action>>,
    /// Run the key again after this long.
    pub requeue_after: Option<Duration>,
    /// Asked when all steps went well; then the key runs again at once and finds the answers.
    pub questions: Vec<Question>,
    /// Done once when a step fails; [`FAILURE`] in their texts becomes what the server said.
    pub on_failure: Vec<Action>,
    /// The same, where the failure has this cause.
    pub on_failure_of: Vec<(Cause, Action)>,
    /// The steps whose failures are told; all, if none.
    pub on_failure_in: Option<Range<usize>>,
    /// The count of the plan as a whole when it has been carried out.
    pub measured: Option<Measured>,
}

/// The placeholder for the server's message in the texts of what is done on a failure.
pub const FAILURE: &str = "{failure}";

impl Plan {
    /// Nothing to do.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// Adds a step of one action.
    pub fn push(&mut self, action: Action) {
        self.steps.push(vec![action]);
    }

    /// Adds a step whose actions run concurrently; an empty one is left out.
    pub fn push_step(&mut self, actions: Vec<Action>) {
        if !actions.is_empty() {
            self.steps.push(actions);
        }
    }

    /// Asks to run again after `delay`, or sooner if that was asked for already.
    pub fn requeue(&mut self, delay: Duration) {
        self.requeue_after = Some(self.requeue_after.map_or(delay, |earlier| earlier.min(delay)));
    }

    /// `true` if there is nothing to do now.
    pub fn is_empty(&self) -> bool {
        self.questions.is_empty() && self.steps.iter().all(Vec::is_empty)
    }

    /// The actions after a step was refused.
    pub fn about_failure(self, step: usize, refusal: &Status) -> Vec<Action> {
        if self.on_failure_in.is_some_and(|steps| !steps.contains(&step)) {
            return Vec::new();
        }
        let fitting = self.on_failure_of.into_iter().filter(|(cause, _)| cause.is_of(refusal));
        let all = self.on_failure.into_iter().chain(fitting.map(|(_, action)| action));
        let message = refusal.message.as_deref().unwrap_or_default();
        all.map(|action| action.about_failure(message)).collect()
    }

    /// All actions in order.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        self.steps.iter().flatten()
    }
}

/// One request to make, or one event to record, one thing to count, or one to have done by somebody else.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A request to the API.
    Request(Box<ApiRequest>),
    /// An Event; recorded at best effort, it never fails a plan.
    Event(Box<EventAction>),
    /// A count when the steps before have been done.
    Count(Increment),
    /// Something that somebody else does, and what follows from it.
    Operation(Operation),
}

impl Action {
    /// Creates `object`.
    pub fn create<K: Object + Serialize>(object: &K) -> Self {
        Self::of(Verb::Create, object, "")
    }

    /// Creates an object of a resource that is known only at run time.
    pub fn create_ref(resource: ResourceRef, namespace: &str, name: &str, body: Value) -> Self {
        Self::request(Verb::Create, resource, namespace, name, "", body)
    }

    /// Creates a `subresource` of the object that `object` is named after, such as `pods/binding`.
    pub fn create_subresource<P: Object>(
        namespace: &str,
        name: &str,
        subresource: &'static str,
        body: Value,
    ) -> Self {
        Self::request(Verb::Create, ResourceRef::of::<P>(), namespace, name, subresource, body)
    }

    /// Replaces `object`, guarded by its resourceVersion.
    pub fn update<K: Object + Serialize>(object: &K) -> Self {
        Self::of(Verb::Update, object, "")
    }

    /// Replaces the status of `object`, guarded by its resourceVersion.
    pub fn update_status<K: Object + Serialize>(object: &K) -> Self {
        Self::of(Verb::Update, object, "status")
    }

    /// Patches an object.
    pub fn patch<K: Object>(namespace: &str, name: &str, patch: Patch) -> Self {
        Self::patch_ref(ResourceRef::of::<K>(), namespace, name, "", patch)
    }

    /// Patches an object's status.
    pub fn patch_status<K: Object>(namespace: &str, name: &str, patch: Patch) -> Self {
        Self::patch_ref(ResourceRef::of::<K>(), namespace, name, "status", patch)
    }

    /// Patches an object of a resource that is known only at run time.
    pub fn patch_ref(
        resource: ResourceRef,
        namespace: &str,
        name: &str,
        subresource: &'static str,
        patch: Patch,
    ) -> Self {
        Self::Request(Box::new(ApiRequest::patch(resource, namespace, name, subresource, patch)))
    }

    /// Deletes an object, but only the one with `uid` if given.
    pub fn delete<K: Object>(
        namespace: &str,
        name: &str,
        uid: Option<&str>,
        propagation: Propagation,
        grace_period_seconds: Option<i64>,
    ) -> Self {
        Self::delete_ref(ResourceRef::of::<K>(), namespace, name, uid, propagation, grace_period_seconds)
    }

    /// Deletes `object`, but only in this very version.
    pub fn delete_version<K: Object>(object: &K, propagation: Propagation) -> Self {
        let meta = object.metadata();
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let mut body = delete_options(meta.uid.as_deref(), propagation, None);
        body["preconditions"]["resourceVersion"] = json!(meta.resource_version);
        let (namespace, name) = (text(&meta.namespace), text(&meta.name));
        Self::request(Verb::Delete, ResourceRef::of::<K>(), &namespace, &name, "", body)
    }

    /// Deletes an object of a resource that is known only at run time.
    pub fn delete_ref(
        resource: ResourceRef,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
        propagation: Propagation,
        grace_period_seconds: Option<i64>,
    ) -> Self {
        let body = delete_options(uid, propagation, grace_period_seconds);
        Self::request(Verb::Delete, resource, namespace, name, "", body)
    }

    /// Sets how many Pods an object is to have, guarded by its resourceVersion.
    pub fn update_scale(resource: ResourceRef, namespace: &str, name: &str, scale: &Scale) -> Self {
        let body = json!({
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {"name": name, "namespace": namespace, "resourceVersion": scale.resource_version},
            "spec": {"replicas": scale.replicas},
        });
        Self::request(Verb::Update, resource, namespace, name, "scale", body)
    }

    /// Lets the plan go on only if the server has no such object with `uid`, whatever the informers know.
    pub fn require_absent(resource: ResourceRef, namespace: &str, name: &str, uid: &str) -> Self {
        let body = json!({"preconditions": {"uid": uid}});
        Self::request(Verb::RequireAbsent, resource, namespace, name, "", body)
    }

    /// Lets the plan go on only if whoever `spec` names is allowed what it asks.
    pub fn require_allowed(spec: &SubjectAccessReviewSpec) -> Self {
        let resource = ResourceRef::of::<SubjectAccessReview>();
        let body = json!({
            "apiVersion": SubjectAccessReview::API_VERSION,
            "kind": SubjectAccessReview::KIND,
            "metadata": {},
            "spec": spec,
        });
        Self::request(Verb::RequireAllowed, resource, "", "", "", body)
    }

    /// Deletes every object of a resource in a namespace.
    pub fn delete_collection(resource: ResourceRef, namespace: &str, propagation: Propagation) -> Self {
        Self::delete_ref(resource, namespace, "", None, propagation, None)
    }

    /// Records an event about `regarding`.
    pub fn event<K: Object>(
        regarding: &K,
        event_type: EventType,
        reason: &str,
        message: impl Into<String>,
    ) -> Self {
        Self::event_from("", regarding, event_type, reason, message)
    }

    /// Records an event about `regarding` that comes from `component`, not from whoever carries the plan out.
    pub fn event_from<K: Object>(
        component: impl Into<Cow<'static, str>>,
        regarding: &K,
        event_type: EventType,
        reason: &str,
        message: impl Into<String>,
    ) -> Self {
        Self::Event(Box::new(EventAction {
            component: component.into(),
            regarding: reference_to(regarding),
            event_type,
            reason: reason.to_owned(),
            message: message.into(),
            annotations: BTreeMap::new(),
        }))
    }

    /// The same action with [`FAILURE`] in its texts replaced by `message`.
    #[must_use]
    pub fn about_failure(mut self, message: &str) -> Self {
        match &mut self {
            Self::Request(request) => replace_failure(&mut request.body, message),
            Self::Event(event) => event.message = event.message.replace(FAILURE, message),
            Self::Count(_) | Self::Operation(_) => {}
        }
        self
    }

    fn of<K: Object + Serialize>(verb: Verb, object: &K, subresource: &'static str) -> Self {
        Self::Request(Box::new(ApiRequest::of(verb, object, subresource)))
    }

    fn request(
        verb: Verb,
        resource: ResourceRef,
        namespace: &str,
        name: &str,
        subresource: &'static str,
        body: Value,
    ) -> Self {
        Self::Request(Box::new(ApiRequest::new(verb, resource, namespace, name, subresource, body)))
    }
}

fn replace_failure(value: &mut Value, message: &str) {
    match value {
        Value::String(text) if text.contains(FAILURE) => *text = text.replace(FAILURE, message),
        Value::Array(items) => items.iter_mut().for_each(|item| replace_failure(item, message)),
        Value::Object(fields) => fields.values_mut().for_each(|field| replace_failure(field, message)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    fn pod() -> Pod {
        let metadata = ObjectMeta {
            name: Some("web".into()),
            namespace: Some("default".into()),
            uid: Some("u1".into()),
            ..ObjectMeta::default()
        };
        Pod { metadata, ..Pod::default() }
    }

    fn http_of(action: &Action) -> String {
        let Action::Request(request) = action else { return "no request".into() };
        let http = request.to_http().expect("a valid request");
        format!("{} {}", http.method(), http.uri())
    }

    #[test]
    fn actions_become_the_requests_that_clients_make() {
        let cases = [
            (Action::create(&pod()), "POST /api/v1/namespaces/default/pods"),
            (Action::update(&pod()), "PUT /api/v1/namespaces/default/pods/web"),
            (Action::update_status(&pod()), "PUT /api/v1/namespaces/default/pods/web/status"),
            (
                Action::patch_status::<Pod>("default", "web", Patch::Merge(json!({}))),
                "PATCH /api/v1/namespaces/default/pods/web/status",
            ),
            (
                Action::delete::<Pod>("default", "web", Some("u1"), Propagation::Background, None),
                "DELETE /api/v1/namespaces/default/pods/web",
            ),
            (
                Action::create_subresource::<Pod>("default", "web", "binding", json!({})),
                "POST /api/v1/namespaces/default/pods/web/binding",
            ),
        ];
        for (action, expected) in &cases {
            assert_eq!(http_of(action), *expected);
        }
    }

    #[test]
    fn a_failure_is_quoted_in_what_tells_of_it() {
        let patch = Patch::Merge(json!({"status": {"conditions": [{"message": FAILURE}]}}));
        let told = Action::patch_status::<Pod>("default", "web", patch).about_failure("no quota");
        let Action::Request(request) = told else { panic!("no request") };
        assert_eq!(request.body, json!({"status": {"conditions": [{"message": "no quota"}]}}));
    }

    #[test]
    fn some_failures_are_answered_in_their_own_way() {
        let event = |reason: &str| Action::event(&pod(), EventType::Warning, reason, FAILURE);
        let elsewhere =
            Plan { on_failure: vec![event("Failed")], on_failure_in: Some(1..3), ..Plan::nothing() };
        let full = Status {
            message: Some("rpc error: code = ResourceExhausted desc = full".to_owned()),
            ..Status::default()
        };
        assert_eq!(elsewhere.clone().about_failure(3, &full), []);
        assert_eq!(elsewhere.about_failure(2, &full).len(), 1);
        let plan = Plan {
            on_failure: vec![event("Failed")],
            on_failure_of: vec![
                (Cause::Grpc("ResourceExhausted"), event("Full")),
                (Cause::Grpc("Unavailable"), event("Away")),
            ],
            ..Plan::nothing()
        };
        let told = plan.about_failure(0, &full).into_iter().map(|action| match action {
            Action::Event(event) => event.reason,
            Action::Request(_) | Action::Count(_) | Action::Operation(_) => panic!("an event"),
        });
        assert_eq!(told.collect::<Vec<_>>(), ["Failed", "Full"]);
    }

    #[test]
    fn the_earlier_requeue_wins() {
        let mut plan = Plan::nothing();
        plan.requeue(Duration::from_secs(5));
        plan.requeue(Duration::from_secs(9));
        assert_eq!(plan.requeue_after, Some(Duration::from_secs(5)));
        assert!(plan.is_empty());
    }
}
