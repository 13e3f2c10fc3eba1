//! The ReplicaSets of a Deployment as the decision goes on: what they are, and what they shall become.

use std::collections::BTreeMap;
use std::sync::Arc;

use controller::metadata::{created, name};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetStatus};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::{Map, Value, json};

use crate::deployment::hash::POD_TEMPLATE_HASH;

/// A ReplicaSet and the changes decided so far.
#[derive(Clone, Debug)]
pub(crate) struct Set {
    /// As it is, or as it will be created.
    pub(crate) object: Arc<ReplicaSet>,
    /// Whether it is yet to be created.
    pub(crate) is_to_create: bool,
    /// The decided `spec.replicas`.
    pub(crate) replicas: i32,
    /// The decided `spec.minReadySeconds`.
    pub(crate) min_ready_seconds: Option<i32>,
    /// The decided annotations.
    pub(crate) annotations: BTreeMap<String, String>,
}

impl Set {
    /// `object` without any change.
    pub(crate) fn of(object: Arc<ReplicaSet>) -> Self {
        let spec = object.spec.as_ref();
        Self {
            is_to_create: false,
            replicas: spec.and_then(|spec| spec.replicas).unwrap_or(1),
            min_ready_seconds: spec.and_then(|spec| spec.min_ready_seconds),
            annotations: object.metadata.annotations.clone().unwrap_or_default(),
            object,
        }
    }

    pub(crate) fn name(&self) -> &str {
        name(&self.object.metadata)
    }

    pub(crate) fn created(&self) -> Timestamp {
        created(&self.object.metadata)
    }

    pub(crate) fn status(&self) -> Option<&ReplicaSetStatus> {
        self.object.status.as_ref()
    }

    /// How many Pods it has, as its status says.
    pub(crate) fn actual(&self) -> i32 {
        self.status().map_or(0, |status| status.replicas)
    }

    pub(crate) fn ready(&self) -> i32 {
        self.status().and_then(|status| status.ready_replicas).unwrap_or(0)
    }

    pub(crate) fn available(&self) -> i32 {
        self.status().and_then(|status| status.available_replicas).unwrap_or(0)
    }

    pub(crate) fn is_active(&self) -> bool {
        self.replicas > 0
    }

    /// A number kept in an annotation; none when it is absent or no number.
    pub(crate) fn number(&self, annotation: &str) -> Option<i32> {
        self.annotations.get(annotation)?.parse().ok()
    }

    /// Whether its Pods are those of `template`.
    pub(crate) fn has_template(&self, template: &PodTemplateSpec) -> bool {
        let own = self.object.spec.as_ref().and_then(|spec| spec.template.as_ref());
        own.is_some_and(|own| is_same_template(own, template))
    }

    /// The merge patch that carries the changes out, or nothing when there are none.
    pub(crate) fn patch(&self) -> Option<Value> {
        let was = Self::of(self.object.clone());
        let mut spec = Map::new();
        if was.replicas != self.replicas {
            spec.insert("replicas".to_owned(), json!(self.replicas));
        }
        if was.min_ready_seconds.unwrap_or(0) != self.min_ready_seconds.unwrap_or(0) {
            spec.insert("minReadySeconds".to_owned(), json!(self.min_ready_seconds.unwrap_or(0)));
        }
        let annotations: Map<String, Value> = self
            .annotations
            .iter()
            .filter(|(key, value)| was.annotations.get(*key) != Some(*value))
            .map(|(key, value)| (key.clone(), json!(value)))
            .collect();
        let mut patch = Map::new();
        if !annotations.is_empty() {
            patch.insert("metadata".to_owned(), json!({ "annotations": annotations }));
        }
        if !spec.is_empty() {
            patch.insert("spec".to_owned(), Value::Object(spec));
        }
        (!patch.is_empty()).then_some(Value::Object(patch))
    }

    /// The object to create, with all that was decided about it.
    pub(crate) fn to_create(&self) -> ReplicaSet {
        let mut object = ReplicaSet::clone(&self.object);
        object.metadata.annotations = Some(self.annotations.clone());
        if let Some(spec) = &mut object.spec {
            spec.replicas = Some(self.replicas);
            spec.min_ready_seconds = self.min_ready_seconds;
        }
        object
    }
}

/// Whether two templates are equal apart from the hash label that the controller itself adds.
pub(crate) fn is_same_template(a: &PodTemplateSpec, b: &PodTemplateSpec) -> bool {
    let metadata = |template: &PodTemplateSpec| {
        let mut metadata = template.metadata.clone().unwrap_or_default();
        if let Some(labels) = &mut metadata.labels {
            labels.remove(POD_TEMPLATE_HASH);
        }
        metadata.labels = metadata.labels.filter(|labels| !labels.is_empty());
        metadata.annotations = metadata.annotations.filter(|annotations| !annotations.is_empty());
        metadata
    };
    a.spec == b.spec && metadata(a) == metadata(b)
}

/// The sum of what `count` says about each set.
pub(crate) fn total<'a>(sets: impl IntoIterator<Item = &'a Set>, count: fn(&Set) -> i32) -> i32 {
    sets.into_iter().map(count).sum()
}
