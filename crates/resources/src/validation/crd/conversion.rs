//! The conversion of objects from one version to another: not at all, or by a webhook.

use machinery::field::{FieldErrors, Path};

use super::At;
use super::old::Old;
use crate::definition::ca_bundle_error;
use crate::validation::webhook;

pub(super) fn check(spec: &At<'_>, old: &Old<'_>, errors: &mut FieldErrors) {
    let conversion = spec.get("conversion");
    if !conversion.is_set() {
        return;
    }
    let strategy = conversion.get("strategy");
    if strategy.text() != "None" && spec.get("preserveUnknownFields").flag() {
        errors.push(strategy.invalid("must be None if spec.preserveUnknownFields is true"));
    }
    strategy.one_of(&["None", "Webhook"], errors);
    let hook = conversion.get("webhook");
    // Upstream's internal names of the two.
    let at = |name: &str| -> Path { conversion.get(name).path };
    let client = At { path: at("webhookClientConfig"), ..hook.get("clientConfig") };
    let versions = At { path: at("conversionReviewVersions"), ..hook.get("conversionReviewVersions") };
    if strategy.text() != "Webhook" {
        const UNUSED: &str = "should not be set when strategy is not set to Webhook";
        if client.is_set() {
            errors.push(client.forbidden(UNUSED));
        }
        if !versions.is_empty() {
            errors.push(versions.forbidden(UNUSED));
        }
        return;
    }
    if client.is_set() {
        webhook::client(&client, errors);
        if !old.takes_any_bundle
            && let Some(why) = ca_bundle_error(client.value)
        {
            errors.push(client.get("caBundle").invalid(&why));
        }
    } else {
        errors.push(client.required("required when strategy is set to Webhook"));
    }
    webhook::review_versions(&versions, "", old.has_review_version, errors);
}
