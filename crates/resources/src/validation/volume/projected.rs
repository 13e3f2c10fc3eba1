//! Projected volumes: several sources in one directory.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors};
use machinery::names;

use super::{downward_file, items, mode};
use crate::validation::{At, pod_certificates, selector, signer};

const CONFLICT: &str = "conflicting duplicate paths";
const TOKEN_SECONDS_MIN: i64 = 600;
const KEY_TYPES: &[&str] = &["ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519", "RSA3072", "RSA4096"];

/// The paths that were given out, and where conflicts are reported.
struct Paths<'a, 'v> {
    volume: &'v At<'a>,
    seen: BTreeSet<&'a str>,
}

impl<'a> Paths<'a, '_> {
    /// Gives out `path`; `shown` is what a conflict is reported with.
    fn take(&mut self, path: &'a str, shown: &str, errors: &mut FieldErrors) {
        if !self.seen.insert(path) {
            errors.push(FieldError::invalid(&self.volume.path, shown, CONFLICT));
        }
    }
}

/// A projected volume.
pub(super) fn check(volume: &At<'_>, errors: &mut FieldErrors) {
    mode(&volume.get("defaultMode"), errors);
    let mut paths = Paths { volume, seen: BTreeSet::new() };
    for source in volume.get("sources").items() {
        let mut kinds = 0;
        for (kind, check) in KINDS {
            if let Some(projection) = source.some(kind) {
                kinds += 1;
                check(&projection, &mut paths, errors);
            }
        }
        if kinds > 1 {
            errors.push(source.forbidden("may not specify more than 1 volume type per source"));
        }
    }
}

type Check = for<'a> fn(&At<'a>, &mut Paths<'a, '_>, &mut FieldErrors);

const KINDS: &[(&str, Check)] = &[
    ("secret", keys),
    ("configMap", keys),
    ("downwardAPI", downward),
    ("serviceAccountToken", token),
    ("clusterTrustBundle", trust_bundle),
    ("podCertificate", certificate),
];

fn keys<'a>(source: &At<'a>, paths: &mut Paths<'a, '_>, errors: &mut FieldErrors) {
    source.must_have("name", errors);
    items(&source.get("items"), errors);
    for item in source.get("items").items() {
        let path = item.get("path").text();
        if !path.is_empty() {
            paths.take(path, source.get("name").text(), errors);
        }
    }
}

fn downward<'a>(source: &At<'a>, paths: &mut Paths<'a, '_>, errors: &mut FieldErrors) {
    for file in source.get("items").items() {
        let path = file.get("path").text();
        downward_file(&At { path: source.path.clone(), ..file }, errors);
        if !path.is_empty() {
            paths.take(path, path, errors);
        }
    }
}

fn token<'a>(source: &At<'a>, paths: &mut Paths<'a, '_>, errors: &mut FieldErrors) {
    let seconds = source.get("expirationSeconds");
    if seconds.number().unwrap_or_default() < TOKEN_SECONDS_MIN {
        errors.push(seconds.invalid("may not specify a duration less than 10 minutes"));
    }
    if seconds.is_over(1 << 32) {
        errors.push(seconds.invalid("may not specify a duration larger than 2^32 seconds"));
    }
    // Upstream names the volume here.
    let path = At { path: paths.volume.path.child("path"), ..source.get("path") };
    match path.text() {
        "" => errors.push(path.required("")),
        _ => path.file_path(errors),
    }
}

fn trust_bundle<'a>(source: &At<'a>, paths: &mut Paths<'a, '_>, errors: &mut FieldErrors) {
    let (name, of, labels) = (source.get("name"), source.get("signerName"), source.get("labelSelector"));
    match (name.is_set(), of.is_set()) {
        (true, true) => errors.push(source.invalid("only one of name and signerName may be used")),
        (true, false) => {
            if name.text().is_empty() {
                errors.push(name.required("must be a valid object name"));
            }
            for rule in bundle_name(name.text()) {
                errors.push(name.invalid(&format!("not a valid clustertrustbundlename: {rule}")));
            }
            if labels.is_set() {
                errors.push(labels.invalid("labelSelector must be unset if name is specified"));
            }
        }
        (false, true) => {
            if of.text().is_empty() {
                errors.push(of.required("must be a valid signer name"));
            }
            signer::name(&of, errors);
            selector::check(&labels, errors);
        }
        (false, false) => errors.push(source.required("either name or signerName must be specified")),
    }
    let path = source.get("path");
    source.must_have("path", errors);
    path.file_path(errors);
    paths.take(path.text(), path.text(), errors);
}

/// A bundle of a signer is named `<domain>:<path>:<name>`.
fn bundle_name(name: &str) -> Vec<String> {
    match name.rsplit_once(':') {
        Some((_, rest)) => names::dns1123_subdomain(rest),
        None => names::dns1123_subdomain(name),
    }
}

fn certificate<'a>(source: &At<'a>, paths: &mut Paths<'a, '_>, errors: &mut FieldErrors) {
    let of = source.get("signerName");
    signer::name(&of, errors);
    source.get("keyType").one_of(KEY_TYPES, errors);
    if let Some(seconds) = source.some("maxExpirationSeconds") {
        let max = pod_certificates::seconds_max(of.text());
        let number = seconds.number().unwrap_or_default();
        if number < pod_certificates::SECONDS_MIN {
            errors.push(seconds.invalid("if provided, maxExpirationSeconds must be >= 3600"));
        }
        if number > max {
            errors.push(seconds.invalid(&format!("if provided, maxExpirationSeconds must be <= {max}")));
        }
    }
    pod_certificates::user_annotations(&source.get("userAnnotations"), errors);
    let fields = ["credentialBundlePath", "keyPath", "certificateChainPath"].map(|field| source.get(field));
    for path in fields.iter().filter(|path| !path.text().is_empty()) {
        path.file_path(errors);
        paths.take(path.text(), path.text(), errors);
    }
    if fields.iter().all(|path| path.text().is_empty()) {
        errors.push(
            source
                .required("specify at least one of credentialBundlePath, keyPath, and certificateChainPath"),
        );
    }
}
