//! The extenders that are asked. Source: `Extender`, kubescheduler.config.k8s.io/v1; `validateExtenders` and
//! `buildExtenders`.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use machinery::field::{FieldError, FieldErrors, Path};
use machinery::names;

use super::file;
use crate::arguments::Arguments;
use crate::extender::{Extender, Tls, Verbs};
use crate::resource::is_extended;

/// Source: `DefaultExtenderTimeout`.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How many there may be. Upstream has no bound; nobody waits for so many.
const EXTENDERS_MAX: usize = 16;

/// Those of a file, first the ones without which nothing goes. What they look after alone is not asked of Nodes.
pub(super) fn taken(
    given: &[file::Extender],
    arguments: &mut [Arguments],
    read: &dyn Fn(&str) -> io::Result<String>,
    errors: &mut FieldErrors,
) -> Vec<Extender> {
    let list = Path::new("extenders");
    if given.len() > EXTENDERS_MAX {
        errors.push(FieldError::too_many(&list, given.len(), EXTENDERS_MAX));
        return Vec::new();
    }
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for (index, one) in given.iter().enumerate() {
        let path = list.index(index);
        if !one.prioritize_verb.is_empty() && one.weight <= 0 {
            let why = "must have a positive weight applied to it";
            errors.push(FieldError::invalid(&path.child("weight"), one.weight, why));
        }
        let managed = one.managed_resources.iter().flatten();
        for (number, resource) in managed.clone().enumerate() {
            let path = path.child("managedResources").index(number).child("name");
            check_extended(&resource.name, &path, errors);
            if !seen.insert(&resource.name) {
                let why = "duplicate extender managed resource name";
                errors.push(FieldError::invalid(&path, &resource.name, why));
            }
        }
        for resource in managed.filter(|resource| resource.ignored_by_scheduler) {
            for arguments in arguments.iter_mut() {
                arguments.fit.ignored.insert(resource.name.clone());
            }
        }
        all.extend(extender(one, &path, read, errors));
    }
    let binders = all.iter().filter(|one| one.verbs.bind.is_some()).count();
    if binders > 1 {
        let found = format!("found {binders} extenders implementing bind");
        errors.push(FieldError::invalid(&list, found, "only one extender can implement bind"));
    }
    all.sort_by_key(|one| one.is_ignorable);
    all
}

/// Source: `validateExtendedResourceName`.
fn check_extended(name: &str, path: &Path, errors: &mut FieldErrors) {
    let wrong = names::qualified_name(name);
    if wrong.is_empty() && !is_extended(name) {
        errors.push(FieldError::invalid(path, name, "is an invalid extended resource name"));
    }
    errors.extend(wrong.iter().map(|why| FieldError::invalid(path, name, why)));
}

fn extender(
    given: &file::Extender,
    path: &Path,
    read: &dyn Fn(&str) -> io::Result<String>,
    errors: &mut FieldErrors,
) -> Option<Extender> {
    let verb = |text: &str| Some(text.to_owned()).filter(|verb| !verb.is_empty());
    let tls = match &given.tls_config {
        Some(tls) => tls_of(tls, &path.child("tlsConfig"), read, errors)?,
        None => Tls::default(),
    };
    // Nobody vouches for it, and upstream talks to it all the same.
    let is_unchecked = given.enable_https && tls.authorities.is_none();
    let timeout = match given.http_timeout.0 {
        0 => TIMEOUT,
        nanos if nanos < 0 => {
            let shown = String::from(given.http_timeout);
            errors.push(FieldError::invalid(&path.child("httpTimeout"), shown, "must not be negative"));
            TIMEOUT
        }
        _ => given.http_timeout.duration(),
    };
    let is_url = |scheme: &str| given.url_prefix.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty());
    if !is_url("http://") && !is_url("https://") {
        let why = "must be a URL with the scheme http or https";
        errors.push(FieldError::invalid(&path.child("urlPrefix"), &given.url_prefix, why));
        return None;
    }
    Some(Extender {
        url: given.url_prefix.clone(),
        verbs: Verbs {
            filter: verb(&given.filter_verb),
            prioritize: verb(&given.prioritize_verb),
            preempt: verb(&given.preempt_verb),
            bind: verb(&given.bind_verb),
        },
        weight: given.weight,
        tls: Tls { is_insecure: tls.is_insecure || is_unchecked, ..tls },
        timeout,
        has_node_cache: given.node_cache_capable,
        managed: given.managed_resources.iter().flatten().map(|one| one.name.clone()).collect(),
        is_ignorable: given.ignorable,
    })
}

fn tls_of(
    given: &file::ExtenderTls,
    path: &Path,
    read: &dyn Fn(&str) -> io::Result<String>,
    errors: &mut FieldErrors,
) -> Option<Tls> {
    let mut one = |data: &str, file: &str, data_field: &str, file_field: &str| -> Option<Option<String>> {
        if !data.is_empty() {
            if BASE64.decode(data).is_err() {
                errors.push(FieldError::invalid_unshown(&path.child(data_field), "must be in base64"));
                return None;
            }
            return Some(Some(data.to_owned()));
        }
        if file.is_empty() {
            return Some(None);
        }
        let content = read(file);
        if let Err(error) = &content {
            errors.push(FieldError::invalid(&path.child(file_field), file, &error.to_string()));
        }
        content.ok().map(|content| Some(BASE64.encode(content)))
    };
    let certificate = one(&given.cert_data, &given.cert_file, "certData", "certFile");
    let key = one(&given.key_data, &given.key_file, "keyData", "keyFile");
    let authorities = one(&given.ca_data, &given.ca_file, "caData", "caFile");
    let (certificate, key, authorities) = (certificate?, key?, authorities?);
    if certificate.is_some() != key.is_some() {
        errors.push(FieldError::invalid_unshown(path, "a client certificate and its key need each other"));
        return None;
    }
    if given.insecure && authorities.is_some() {
        let why = "specifying a root certificates file with the insecure flag is not allowed";
        errors.push(FieldError::invalid_unshown(path, why));
        return None;
    }
    Some(Tls {
        is_insecure: given.insecure,
        server_name: Some(given.server_name.clone()).filter(|name| !name.is_empty()),
        certificate,
        key,
        authorities,
    })
}
