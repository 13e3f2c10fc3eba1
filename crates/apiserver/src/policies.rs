//! Admission policies: rules in CEL about what is written, which administrators keep as objects.
//!
//! What both sorts of policies share is here. `source` has the policies with their bindings, compiled once per change;
//! `policy` is what one of them says; `matching` and `params` say what a request has to do with it, and `invocations` puts
//! that together; `view` is what expressions see of a request, and `evaluation` evaluates them. `validation` is what
//! validating policies have beside, and `validating` carries it out. `typechecking` says what is
//! probably wrong with one.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/{policy,cel}`.

pub mod policy;
pub mod source;

pub mod matching;
pub mod params;

pub mod invocations;

pub mod view;

pub mod evaluation;

pub mod validation;

pub mod metrics;
pub mod validating;

mod types;

pub mod typechecking;

use std::sync::Arc;

use base::metrics::Metrics as Registry;

use crate::kinds::{Kind, Kinds};
use metrics::ValidationMetrics;
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

/// Whether no policy is asked about a request, whatever it says.
pub fn is_exempt(attributes: &Attributes<'_>) -> bool {
    is_exempt_kind(attributes.kind)
}

/// As [`is_exempt`].
pub fn is_exempt_kind(kind: &Kind) -> bool {
    EXEMPT.contains(&(kind.group(), kind.resource()))
}

/// What a server knows of its admission policies.
pub struct Policies {
    /// Those that refuse.
    pub validating: Source<Validations>,
    /// What is counted about them.
    pub validations: Arc<ValidationMetrics>,
}

impl Policies {
    /// The policies that are stored as objects of built-in kinds.
    pub fn new(builtin: &Kinds, registry: &Registry) -> Self {
        let kind = |resource| builtin.find(GROUP, "v1", resource).cloned();
        let validating = kind("validatingadmissionpolicies").zip(kind("validatingadmissionpolicybindings"));
        Self { validating: Source::new(validating), validations: registry.part(ValidationMetrics::new) }
    }
}
