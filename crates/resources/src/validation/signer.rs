//! Names of signers: a domain and a path, such as `example.com/serving`.
//!
//! Source: `ValidateSignerName` of `k8s.io/kubernetes/pkg/apis/core/validation`.

use machinery::field::{FieldError, FieldErrors};
use machinery::names;

use super::At;

const DOMAIN_BYTES_MAX: usize = names::SUBDOMAIN_BYTES_MAX;
const NAME_BYTES_MAX: usize = DOMAIN_BYTES_MAX + 1 + DOMAIN_BYTES_MAX + 1 + names::LABEL_BYTES_MAX;

/// The name of a signer.
pub(super) fn name(at: &At<'_>, errors: &mut FieldErrors) {
    let text = at.text();
    if text.is_empty() {
        errors.push(at.required(""));
    }
    let [domain, path] = text.split('/').collect::<Vec<_>>()[..] else {
        let rule = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.push(FieldError::invalid(&at.path, text, rule));
        return;
    };
    if domain.len() > DOMAIN_BYTES_MAX {
        errors.push(FieldError::too_long(&at.path, DOMAIN_BYTES_MAX));
    }
    let mut labels = |shown: &str, label: &str, rules: Vec<String>| {
        for rule in rules {
            let detail = format!("validating label \"{label}\": {rule}");
            errors.push(FieldError::invalid(&at.path, shown, &detail));
        }
    };
    domain.split('.').for_each(|label| labels(domain, label, names::dns1123_label(label)));
    path.split('.').for_each(|label| labels(path, label, names::dns1123_subdomain(label)));
    if !domain.contains('.') {
        let rule = "should be a domain with at least two segments separated by dots";
        errors.push(FieldError::invalid(&at.path, domain, rule));
    }
    if text.len() > NAME_BYTES_MAX {
        errors.push(FieldError::too_long(&at.path, NAME_BYTES_MAX));
    }
}
