//! CertificateSigningRequests and ClusterTrustBundles.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use serde_json::Value;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;

use super::{At, signer};

const EXPIRATION_SECONDS_MIN: i64 = 600;
const BUNDLE_BYTES_MAX: usize = 1024 * 1024;
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const HIDDEN: &str = "<value omitted>";
/// Conditions that are never taken back, and that are only ever true.
const FINAL: &[&str] = &["Approved", "Denied", "Failed"];
const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// A CertificateSigningRequest.
pub(crate) fn request(object: &Value) -> FieldErrors {
    checked(object, &Value::Null)
}

/// What holds for a request that was `old`, null for a new one: what is wrong with that may stay, and come again.
///
/// Source: `certificateValidationOptions`.
fn checked(object: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let (spec, old_spec) = (At::root(object).get("spec"), At::root(old).get("spec"));
    if let Some(rule) = broken_request(spec.get("request").text()) {
        let at = spec.get("request");
        errors.push(FieldError::invalid(&at.path, at.text(), rule));
    }
    usages(&spec.get("usages"), &old_spec.get("usages"), &mut errors);
    let signer = spec.get("signerName");
    if signer.text() == LEGACY_SIGNER && old_spec.get("signerName").text() != LEGACY_SIGNER {
        errors.push(signer.invalid("the legacy signerName is not allowed via this API version"));
    } else {
        signer::name(&signer, &mut errors);
    }
    let seconds = spec.get("expirationSeconds");
    if seconds.number().is_some_and(|seconds| seconds < EXPIRATION_SECONDS_MIN) {
        errors.push(seconds.invalid("may not specify a duration less than 600 seconds (10 minutes)"));
    }
    let status = At::root(object).get("status");
    conditions(&status.get("conditions"), &At::root(old).get("status").get("conditions"), &mut errors);
    let (now, before) = (certificate(object), certificate(old));
    if now.text() != before.text()
        && broken_certificates(before.text()).is_none()
        && let Some(rule) = broken_certificates(now.text())
    {
        errors.push(FieldError::invalid(&now.path, "<certificate data>", &rule));
    }
    errors
}

fn broken_request(base64: &str) -> Option<&'static str> {
    const NO_PEM: &str = "PEM block type must be CERTIFICATE REQUEST";
    let Ok(bytes) = STANDARD.decode(base64) else { return Some(NO_PEM) };
    let Some(block) = Pem::iter_from_buffer(&bytes).next().and_then(Result::ok) else { return Some(NO_PEM) };
    if block.label != "CERTIFICATE REQUEST" {
        return Some(NO_PEM);
    }
    match X509CertificationRequest::from_der(&block.contents) {
        Err(_) => Some("asn1: structure error: malformed certificate request"),
        Ok((_, request)) if request.verify_signature().is_err() => Some("x509: invalid signature"),
        Ok(_) => None,
    }
}

fn usages(usages: &At<'_>, old: &At<'_>, errors: &mut FieldErrors) {
    if usages.is_empty() {
        errors.push(usages.required(""));
    }
    if old.texts().all(|usage| USAGES.contains(&usage)) {
        usages.items().for_each(|usage| usage.if_one_of(USAGES, errors));
    }
    if !has_twice(old.texts()) {
        let mut seen = BTreeSet::new();
        let again = usages.items().filter(|usage| !seen.insert(usage.text()));
        errors.extend(again.map(|usage| usage.duplicate()));
    }
}

fn has_twice<'a>(mut texts: impl Iterator<Item = &'a str>) -> bool {
    let mut seen = BTreeSet::new();
    texts.any(|text| !seen.insert(text))
}

fn conditions(conditions: &At<'_>, old: &At<'_>, errors: &mut FieldErrors) {
    let old: Vec<_> = old.items().map(|condition| condition.get("type").text()).collect();
    let may_lack_type = old.contains(&"");
    let may_be_twice = has_twice(old.iter().copied());
    let may_be_both = old.contains(&"Approved") && old.contains(&"Denied");
    let mut seen = BTreeSet::new();
    for condition in conditions.items() {
        let (kind, status) = (condition.get("type"), condition.get("status"));
        if kind.text().is_empty() && !may_lack_type {
            errors.push(kind.required(""));
        }
        let allowed: &[&str] =
            if FINAL.contains(&kind.text()) { &["True"] } else { &["False", "True", "Unknown"] };
        status.one_of(allowed, errors);
        let opposite = match kind.text() {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if seen.contains(opposite) && !opposite.is_empty() && !may_be_both {
            let rule = "Approved and Denied conditions are mutually exclusive";
            errors.push(FieldError::invalid(&conditions.path, kind.text(), rule));
        }
        if !seen.insert(kind.text()) && !may_be_twice {
            errors.push(kind.duplicate());
        }
    }
}

/// An update of a CertificateSigningRequest: neither approval nor certificate come this way.
pub(crate) fn request_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = checked(new, old);
    removed(new, old, &mut errors);
    approval_kept(new, old, &mut errors);
    certificate_kept(new, old, &mut errors);
    errors
}

/// A write to the status of a CertificateSigningRequest, by its signer.
pub(crate) fn request_status(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = checked(new, old);
    removed(new, old, &mut errors);
    approval_kept(new, old, &mut errors);
    let (now, before) = (certificate(new), certificate(old));
    if now.text() != before.text() && !before.text().is_empty() {
        errors.push(now.forbidden("updates may not modify existing certificate content"));
    }
    errors
}

/// A write to the approval of a CertificateSigningRequest: conditions come, and of those that are final none goes.
pub(crate) fn request_approval(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = checked(new, old);
    removed(new, old, &mut errors);
    certificate_kept(new, old, &mut errors);
    errors
}

fn certificate_kept(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let (now, before) = (certificate(new), certificate(old));
    if now.text() != before.text() {
        errors.push(now.forbidden("updates may not set certificate content"));
    }
}

fn certificate(object: &Value) -> At<'_> {
    At::root(object).get("status").get("certificate")
}

fn broken_certificates(base64: &str) -> Option<String> {
    const NONE: &str = "must contain at least one CERTIFICATE PEM block";
    if base64.is_empty() {
        return None;
    }
    let Ok(bytes) = STANDARD.decode(base64) else { return Some(NONE.to_owned()) };
    if block_with_headers(&String::from_utf8_lossy(&bytes)).is_some() {
        return Some("no PEM block headers are permitted".to_owned());
    }
    let mut blocks = 0;
    for block in Pem::iter_from_buffer(&bytes).flatten() {
        if block.label != "CERTIFICATE" {
            return Some(format!("only CERTIFICATE PEM blocks are allowed, found {:?}", block.label));
        }
        if block.contents.is_empty() {
            return Some("found CERTIFICATE PEM block containing 0 certificates".to_owned());
        }
        if block.parse_x509().is_err() {
            return Some("x509: malformed certificate".to_owned());
        }
        blocks += 1;
    }
    (blocks == 0).then(|| NONE.to_owned())
}

/// Which block says something before its content, if one does; who reads the blocks takes it for none.
fn block_with_headers(text: &str) -> Option<usize> {
    let lines = || text.lines().zip(text.lines().skip(1));
    let mut blocks = lines().filter(|(line, _)| line.starts_with("-----BEGIN "));
    blocks.position(|(_, next)| next.contains(':'))
}

fn conditions_of<'a>(object: &'a Value, kind: &str) -> Vec<&'a Value> {
    let list = At::root(object).get("status").get("conditions");
    list.items().filter(|c| c.get("type").text() == kind).map(|c| c.value).collect()
}

fn removed(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let at = At::root(new).get("status").get("conditions");
    for kind in FINAL.iter().filter(|kind| conditions_of(new, kind).len() < conditions_of(old, kind).len()) {
        errors.push(at.forbidden(&format!("updates may not remove a condition of type {kind:?}")));
    }
}

fn approval_kept(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let at = At::root(new).get("status").get("conditions");
    for kind in ["Approved", "Denied"] {
        let (now, before) = (conditions_of(new, kind), conditions_of(old, kind));
        let what = match now.len().cmp(&before.len()) {
            std::cmp::Ordering::Greater => "add",
            std::cmp::Ordering::Equal if now != before => "modify",
            _ => continue,
        };
        errors.push(at.forbidden(&format!("updates may not {what} a condition of type {kind:?}")));
    }
}

/// A ClusterTrustBundle: its name begins with its signer's.
pub(crate) fn bundle(object: &Value) -> FieldErrors {
    let mut errors = bundle_identity(object);
    let spec = At::root(object).get("spec");
    certificates(&spec.get("trustBundle"), &mut errors);
    errors
}

fn bundle_identity(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let (name, signer) =
        (At::root(object).get("metadata").get("name"), At::root(object).get("spec").get("signerName"));
    let prefix = format!("{}:", signer.text().replace('/', ":"));
    match (signer.text().is_empty(), name.text()) {
        (true, text) if text.contains(':') => errors
            .push(name.invalid("ClusterTrustBundle without signer name must not have \":\" in its name")),
        (true, text) => errors.extend(name.all(names::dns1123_subdomain(text))),
        (false, text) => match text.strip_prefix(&prefix) {
            Some(rest) => errors.extend(name.all(names::dns1123_subdomain(rest))),
            None => errors.push(name.invalid(&format!(
                "ClusterTrustBundle for signerName {} must be named with prefix {prefix}",
                signer.text()
            ))),
        },
    }
    if !signer.text().is_empty() {
        signer::name(&signer, &mut errors);
    }
    errors
}

fn certificates(bundle: &At<'_>, errors: &mut FieldErrors) {
    if bundle.len() > BUNDLE_BYTES_MAX {
        errors.push(FieldError::too_long(&bundle.path, BUNDLE_BYTES_MAX));
        return;
    }
    let told = |rule: &str| FieldError::invalid(&bundle.path, HIDDEN, rule);
    let mut seen: Vec<Vec<u8>> = Vec::new();
    let before = errors.len();
    if let Some(i) = block_with_headers(bundle.text()) {
        errors.push(told(&format!("entry {i} has PEM block headers")));
    }
    for (i, block) in Pem::iter_from_buffer(bundle.text().as_bytes()).flatten().enumerate() {
        let rule = match block.parse_x509() {
            _ if block.label != "CERTIFICATE" => format!("entry {i} has bad block type: {}", block.label),
            Err(_) => format!("entry {i} does not parse as X.509"),
            Ok(certificate) if !certificate.is_ca() => format!("entry {i} does not have the CA bit set"),
            Ok(_) => {
                seen.push(block.contents);
                continue;
            }
        };
        errors.push(told(&rule));
    }
    if errors.len() > before {
        return;
    }
    if seen.is_empty() {
        errors.push(told("at least one trust anchor must be provided"));
    }
    for (i, anchor) in seen.iter().enumerate() {
        let same = |(_, other): &(usize, &Vec<u8>)| *other == anchor;
        let indices: Vec<_> = seen.iter().enumerate().filter(same).map(|(i, _)| i.to_string()).collect();
        if indices.len() > 1 && indices.first() == Some(&i.to_string()) {
            errors.push(told(&format!("duplicate trust anchor (indices [{}])", indices.join(" "))));
        }
    }
}

/// An update of a ClusterTrustBundle: its signer stays.
pub(crate) fn bundle_update(new: &Value, old: &Value) -> FieldErrors {
    let (new_spec, old_spec) = (At::root(new).get("spec"), At::root(old).get("spec"));
    let is_same = new_spec.get("trustBundle").value == old_spec.get("trustBundle").value;
    let mut errors = if is_same { bundle_identity(new) } else { bundle(new) };
    new_spec.get("signerName").immutable(&old_spec.get("signerName"), &mut errors);
    errors
}
