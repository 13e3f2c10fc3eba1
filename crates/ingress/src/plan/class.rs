//! The Ingresses that are served.
//!
//! Source: `IngressSpec.ingressClassName`, the annotation that was there before it, KEP-1453.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::networking::v1::{Ingress, IngressClass};

use crate::{CLASS, CONTROLLER_NAME};

/// The annotation of the class of Ingresses that name none.
pub const DEFAULT_CLASS: &str = "ingressclass.kubernetes.io/is-default-class";
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// Our classes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classes {
    names: BTreeSet<String>,
    /// Whether Ingresses without a class are ours.
    has_default: bool,
}

/// `true` if a class is the one of Ingresses that name none.
pub fn is_default(class: &IngressClass) -> bool {
    let annotations = class.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(DEFAULT_CLASS)).is_some_and(|value| value == "true")
}

impl Classes {
    /// Those of these that are ours.
    pub fn of(classes: &[Arc<IngressClass>]) -> Self {
        let is_ours = |class: &IngressClass| {
            class.spec.as_ref().and_then(|spec| spec.controller.as_deref()) == Some(CONTROLLER_NAME)
        };
        let ours = || classes.iter().filter(|class| is_ours(class));
        Self {
            names: ours().filter_map(|class| class.metadata.name.clone()).collect(),
            has_default: ours().any(|class| is_default(class)),
        }
    }

    /// `true` if an Ingress is ours. The annotation of old counts if there is no field; it needs no object of the
    /// class.
    pub fn is_ours(&self, ingress: &Ingress) -> bool {
        let name = ingress.spec.as_ref().and_then(|spec| spec.ingress_class_name.as_deref());
        if let Some(name) = name {
            return self.names.contains(name);
        }
        let annotations = ingress.metadata.annotations.as_ref();
        match annotations.and_then(|all| all.get(CLASS_ANNOTATION)) {
            Some(name) => name == CLASS || self.names.contains(name),
            None => self.has_default,
        }
    }
}
