//! The rules of a custom kind's objects, in upstream's order: the schema, the Scale, resources within, what comes twice,
//! and expressions.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/registry/customresource/{strategy,status_strategy,validator}.go`.

use std::sync::Arc;

use machinery::custom;
use machinery::field::{FieldError, FieldErrors, Path, Reason, Shown};
use resources::Rules;
use resources::validation::metadata;
use schema::walk::validate::{Findings, validate, validate_field, validate_update};
use schema::{Schema, SchemaRef};
use serde_json::{Map, Value};

use super::scale;
use crate::definition::Scale;
use crate::expressions::KindExpressions;

/// What is said when an object is so wrong that its expressions are not looked at.
const NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

#[derive(Debug)]
pub(super) struct CustomRules {
    schema: Schema,
    expressions: Option<Arc<KindExpressions>>,
    scale: Option<Scale>,
}

impl CustomRules {
    pub(super) fn new(
        schema: Schema,
        expressions: Option<Arc<KindExpressions>>,
        scale: Option<Scale>,
    ) -> Self {
        Self { schema, expressions, scale }
    }

    /// Adds what expressions say, which rely on every value being of its type.
    fn with_expressions(&self, mut errors: FieldErrors, new: &Value, old: Option<&Value>) -> FieldErrors {
        let Some(expressions) = &self.expressions else { return errors };
        let is_blocking = |error: &FieldError| {
            use Reason::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
            matches!(error.reason, NotSupported | Required | TooLong | TooMany | TypeInvalid)
        };
        if errors.iter().any(is_blocking) || errors.left_out() > 0 {
            let nothing = Shown::printed("null".to_owned());
            errors.push(FieldError::invalid(&Path::default(), nothing, NOT_CHECKED));
            return errors;
        }
        let found = expressions.check(new, old);
        errors.leave_out(found.left_out());
        errors.extend(found);
        errors
    }

    /// What the rules of the schema and those of the Scale say, and what resources within say of themselves.
    fn whole(&self, findings: Findings<'_>, new: &Value) -> FieldErrors {
        let Findings { violations, repeated, left_out, resources } = findings;
        let mut errors = custom::errors(Findings { violations, left_out, ..Findings::default() });
        if let Some(scale) = &self.scale {
            errors.extend(scale::check_spec(scale, new));
            errors.extend(scale::check_status(scale, new));
        }
        for (path, resource) in &resources {
            errors.extend(custom::resource(path, resource));
            errors.extend(metadata_within(path, resource));
        }
        errors.extend(custom::errors(Findings { repeated, ..Findings::default() }));
        errors
    }
}

fn metadata_within(path: &str, resource: &Map<String, Value>) -> FieldErrors {
    let Some(found) = resource.get("metadata") else { return FieldErrors::new() };
    let path = if path.is_empty() { Path::default() } else { Path::new(path) };
    metadata::within(&path.child("metadata"), found)
}

/// Whether an object had elements twice before: then it may have them now.
fn had_repeated(schema: SchemaRef<'_>, old: &Value) -> bool {
    !validate(schema, old).repeated.is_empty()
}

impl Rules for CustomRules {
    fn validate_create(&self, new: &Value) -> FieldErrors {
        let Some(schema) = self.schema.get() else { return FieldErrors::new() };
        self.with_expressions(self.whole(validate(schema, new), new), new, None)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let Some(schema) = self.schema.get() else { return FieldErrors::new() };
        let mut findings = validate_update(schema, new, old);
        if !findings.repeated.is_empty() && had_repeated(schema, old) {
            findings.repeated.clear();
        }
        self.with_expressions(self.whole(findings, new), new, Some(old))
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let Some(schema) = self.schema.get() else { return FieldErrors::new() };
        let mut errors = FieldErrors::new();
        if let Some(status) = new.get("status") {
            let Findings { violations, left_out, .. } =
                validate_field(schema, "status", status, old.get("status"));
            errors.extend(custom::errors(Findings { violations, left_out, ..Findings::default() }));
        }
        if let Some(scale) = &self.scale {
            errors.extend(scale::check_status(scale, new));
        }
        let repeated = validate(schema, new).repeated;
        if !repeated.is_empty() && !had_repeated(schema, old) {
            errors.extend(custom::errors(Findings { repeated, ..Findings::default() }));
        }
        self.with_expressions(errors, new, Some(old))
    }

    fn may_take_long(&self) -> bool {
        self.expressions.is_some()
    }
}
