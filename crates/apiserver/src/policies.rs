//! Admission policies: rules in CEL about what is written, which administrators keep as objects.
//!
//! What both sorts of policies share is here. `source` has the policies with their bindings, compiled once per change;
//! `policy` is what one of them says; `matching` and `params` say what a request has to do with it, and `invocations` puts
//! that together; `view` is what expressions see of a request, and `evaluation` evaluates them. `mutation` and `validation`
//! are what the two sorts have beside, and `mutating` and `validating` carry it out. `typechecking` says what is probably
//! wrong with a validating one.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/{policy,cel}`.

pub mod policy;
pub mod source;

pub mod matching;
pub mod params;

pub mod invocations;

pub mod view;

pub mod evaluation;

pub mod mutation;
pub mod validation;

pub mod metrics;

pub mod mutating;
pub mod validating;

mod types;

pub mod typechecking;

use std::sync::Arc;

use base::metrics::Metrics as Registry;

use crate::kinds::{Kind, Kinds};
use metrics::{MutationMetrics, ValidationMetrics};
use mutation::Mutations;
use source::Source;
use validation::Validations;

use crate::webhooks::attributes::Attributes;

/// The group of policies and bindings.
pub const GROUP: &str = "admissionregistration.k8s.io";

/// What policies are never asked about: what decides which there are, so that nobody locks the administrator out, and
/// questions that are never stored.
const EXEMPT: [(&str, &str); 10] = [
    (GROUP, "validatingadmissionpolicies"),
    (GROUP, "validatingadmissionpolicybindings"),
    (GROUP, "mutatingadmissionpolicies"),
    (GROUP, "mutatingadmissionpolicybindings"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// `true` if no policy is asked about a request, whatever it says.
pub fn is_exempt(attributes: &Attributes<'_>) -> bool {
    is_exempt_kind(attributes.kind)
}

/// As [`is_exempt`].
pub fn is_exempt_kind(kind: &Kind) -> bool {
    EXEMPT.contains(&(kind.group(), kind.resource()))
}

/// The admission policies of a server.
pub struct Policies {
    /// Those that change.
    pub mutating: Source<Mutations>,
    /// The metrics about them.
    pub mutations: Arc<MutationMetrics>,
    /// Those that refuse.
    pub validating: Source<Validations>,
    /// The metrics about them.
    pub validations: Arc<ValidationMetrics>,
}

impl Policies {
    /// The policies that are stored as objects of built-in kinds.
    pub fn new(builtin: &Kinds, registry: &Registry) -> Self {
        let kind = |version, resource| builtin.find(GROUP, version, resource).cloned();
        // Served only if the feature is on.
        let mutating = kind("v1beta1", "mutatingadmissionpolicies");
        let mutating = mutating.zip(kind("v1beta1", "mutatingadmissionpolicybindings"));
        let validating = kind("v1", "validatingadmissionpolicies");
        let validating = validating.zip(kind("v1", "validatingadmissionpolicybindings"));
        Self {
            mutating: Source::new(mutating),
            mutations: registry.part(MutationMetrics::new),
            validating: Source::new(validating),
            validations: registry.part(ValidationMetrics::new),
        }
    }
}
