//! The rules of an EncryptionConfiguration, with upstream's texts.
//!
//! Source: `k8s.io/apiserver/pkg/apis/apiserver/validation/validation_encryption.go`.

use machinery::field::{FieldError, FieldErrors, Path};

use crate::socket::EndpointError;

use super::{GroupResource, Key, Keys, Kms, ProviderConfiguration, ResourceConfiguration};

const AES_KEY_BYTES: &[usize] = &[16, 24, 32];
const SECRETBOX_KEY_BYTES: &[usize] = &[32];
/// Shown instead of a secret.
const REDACTED: &str = "REDACTED";
const PROVIDERS: &str = "KMS, AESGCM, AESCBC, Secretbox, Identity";

/// Every broken rule. With `is_reloaded`, names of KMS providers must be unique in every version.
pub fn validate(rules: &[ResourceConfiguration], is_reloaded: bool) -> FieldErrors {
    let root = Path::new("resources");
    if rules.is_empty() {
        return at_least_one(&root, "resources").into();
    }
    let (mut errors, mut kms_names) = (FieldErrors::new(), Vec::new());
    for (at, rule) in rules.iter().enumerate() {
        let resources = root.index(at).child("resources");
        let providers = root.index(at).child("providers");
        if rule.resources.is_empty() {
            errors.push(at_least_one(&resources, &resources.to_string()));
        }
        overlap(&rule.resources, &resources, &mut errors);
        names(&rule.resources, &resources, &mut errors);
        if rule.providers.is_empty() {
            errors.push(at_least_one(&providers, &providers.to_string()));
        }
        for (at, provider) in rule.providers.iter().enumerate() {
            let path = providers.index(at);
            single(provider, &path, &mut errors);
            if let Some(kms) = &provider.kms {
                self::kms(kms, &path.child("kms"), &kms_names, is_reloaded, &mut errors);
                kms_names.push(kms.name.clone());
            } else if let Some(of_gcm) = &provider.aesgcm {
                keys(of_gcm, &path.child("aesgcm").child("keys"), AES_KEY_BYTES, &mut errors);
            } else if let Some(of_cbc) = &provider.aescbc {
                keys(of_cbc, &path.child("aescbc").child("keys"), AES_KEY_BYTES, &mut errors);
            } else if let Some(of_secretbox) = &provider.secretbox {
                keys(of_secretbox, &path.child("secretbox").child("keys"), SECRETBOX_KEY_BYTES, &mut errors);
            }
        }
    }
    errors
}

fn at_least_one(path: &Path, what: &str) -> FieldError {
    FieldError::required(path, &format!("at least one {what} is required"))
}

/// What one rule says twice.
fn overlap(resources: &[String], path: &Path, errors: &mut FieldErrors) {
    let parsed: Vec<GroupResource> = resources.iter().map(|text| GroupResource::parse(text)).collect();
    let pairs = || {
        parsed.iter().enumerate().flat_map(|(i, first)| {
            let others = parsed.iter().enumerate().filter(move |(j, _)| i != *j);
            others.map(move |(_, second)| (first, second))
        })
    };
    let has_duplicate = pairs().any(|(first, second)| first == second);
    let any = GroupResource { group: "*".to_owned(), resource: "*".to_owned() };
    // The first equal pair is a duplicate; what follows it may be an overlap too.
    let mut is_first_equal = true;
    let has_overlap = pairs().any(|(first, second)| {
        if first == second && std::mem::take(&mut is_first_equal) {
            return false;
        }
        *first == any || (first.group == second.group && (first.resource == "*" || second.resource == "*"))
    });
    let shown =
        format!("[{}]", resources.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(","));
    let mut push = |detail: &str| errors.push(listed(path, &shown, detail));
    if has_duplicate {
        push("the same resource cannot be specified multiple times");
    }
    if has_overlap {
        push(
            "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they \
             will be masked",
        );
    }
}

/// An error about a list, which is shown as JSON.
fn listed(path: &Path, shown: &str, detail: &str) -> FieldError {
    let error = FieldError::invalid(path, "", detail);
    FieldError { message: format!("Invalid value: {shown}: {detail}"), ..error }
}

fn names(resources: &[String], path: &Path, errors: &mut FieldErrors) {
    for (at, text) in resources.iter().enumerate() {
        let GroupResource { group, resource } = GroupResource::parse(text);
        let detail = if text.to_lowercase() != *text {
            "resource name should not contain capital letters"
        } else if text == "*" {
            "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"
        } else if ["apiserveripinfo", "serviceipallocations", "servicenodeportallocations"]
            .contains(&text.as_str())
        {
            "resources which do not have REST API/s cannot be encrypted"
        } else if group == "events.k8s.io" {
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the \
             config file"
        } else if group == "extensions" {
            "'extensions' group has been removed and cannot be used for encryption"
        } else if group == "*" && resource != "*" {
            "encrypting the same resource across groups is not supported"
        } else {
            continue;
        };
        errors.push(FieldError::invalid(&path.index(at), text, detail));
    }
}

fn single(provider: &ProviderConfiguration, path: &Path, errors: &mut FieldErrors) {
    let fields = [
        ("kms", provider.kms.is_some()),
        ("aesgcm", provider.aesgcm.is_some()),
        ("aescbc", provider.aescbc.is_some()),
        ("secretbox", provider.secretbox.is_some()),
        ("identity", provider.identity.is_some()),
    ];
    let found: Vec<&str> = fields.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect();
    match found.as_slice() {
        [] => {
            let detail = format!("provider does not contain any of the expected providers: {PROVIDERS}");
            errors.push(listed(path, "{}", &detail));
        }
        [_] => {}
        // Upstream prints the whole structure; the names say as much.
        many => errors.push(listed(
            path,
            &format!("{{{}}}", many.join(", ")),
            "more than one provider specified in a single element, should split into different list elements",
        )),
    }
}

fn keys(keys: &Keys, path: &Path, lengths: &[usize], errors: &mut FieldErrors) {
    if keys.keys.is_empty() {
        errors.push(at_least_one(path, "keys"));
    }
    for (at, key) in keys.keys.iter().enumerate() {
        self::key(key, &path.index(at), lengths, errors);
    }
}

fn key(key: &Key, path: &Path, lengths: &[usize], errors: &mut FieldErrors) {
    if key.name.is_empty() {
        errors.push(mandatory(&path.child("name"), "name", "key"));
    }
    let path = path.child("secret");
    if key.secret.is_empty() {
        errors.push(mandatory(&path, "secret", "key"));
        return;
    }
    match key.bytes() {
        None => errors.push(FieldError::invalid(&path, REDACTED, "secrets must be base64 encoded")),
        Some(bytes) if !lengths.contains(&bytes.len()) => {
            let expected = lengths.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            let detail = format!(
                "secret is not of the expected length, got {}, expected one of [{expected}]",
                bytes.len()
            );
            errors.push(FieldError::invalid(&path, REDACTED, &detail));
        }
        Some(_) => {}
    }
}

fn mandatory(path: &Path, field: &str, of: &str) -> FieldError {
    FieldError::required(path, &format!("{field} is a mandatory field for a {of}"))
}

fn kms(kms: &Kms, path: &Path, earlier: &[String], is_reloaded: bool, errors: &mut FieldErrors) {
    kms_name(kms, &path.child("name"), earlier, is_reloaded, errors);
    if kms.timeout().is_none_or(|timeout| timeout.is_zero()) {
        let detail = "timeout should be a positive value";
        errors.push(FieldError::invalid(&path.child("timeout"), &kms.timeout, detail));
    }
    endpoint(&kms.endpoint, &path.child("endpoint"), errors);
    let (is_v1, path_of_size) = (kms.api_version == "v1", path.child("cachesize"));
    match kms.cachesize {
        Some(size) if !is_v1 => {
            let detail = "cachesize is not supported in v2";
            errors.push(FieldError::invalid(&path_of_size, i64::from(size), detail));
        }
        Some(0) => {
            let detail = "cachesize should be a positive value, or negative to disable";
            errors.push(FieldError::invalid(&path_of_size, 0, detail));
        }
        _ => {}
    }
    if !["v1", "v2"].contains(&kms.api_version.as_str()) {
        let detail = "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported";
        errors.push(FieldError::invalid(&path.child("apiVersion"), &kms.api_version, detail));
    }
}

fn kms_name(kms: &Kms, path: &Path, earlier: &[String], is_reloaded: bool, errors: &mut FieldErrors) {
    let (name, is_v1) = (&kms.name, kms.api_version == "v1");
    if name.is_empty() {
        errors.push(mandatory(path, "name", "provider"));
    }
    if !is_v1 && name.contains(':') {
        let detail = format!("invalid KMS provider name {name}, must not contain ':'");
        errors.push(FieldError::invalid(path, name, &detail));
    }
    if (is_reloaded || !is_v1) && earlier.contains(name) {
        let detail = format!("duplicate KMS provider name {name}, names must be unique");
        errors.push(FieldError::invalid(path, name, &detail));
    }
}

fn endpoint(endpoint: &str, path: &Path, errors: &mut FieldErrors) {
    if endpoint.is_empty() {
        errors.push(FieldError::invalid(path, "", "endpoint is a mandatory field for a kms"));
        return;
    }
    let detail = match crate::socket::socket_of(endpoint) {
        Ok(_) => return,
        Err(EndpointError::Scheme(scheme)) => {
            format!("unsupported scheme {scheme:?} for KMS provider, only unix is supported")
        }
        Err(failure) => format!("invalid endpoint for kms provider, error: {failure}"),
    };
    errors.push(FieldError::invalid(path, endpoint, &detail));
}
