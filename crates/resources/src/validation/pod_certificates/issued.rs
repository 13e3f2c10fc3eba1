//! The chain that a signer has issued, whose first certificate is for the key that was asked about.
//!
//! Whether the chain leads anywhere is not looked at. Source: `ValidatePodCertificateRequestStatusUpdate`.

use jiff::{SignedDuration, Timestamp};
use machinery::field::{FieldError, FieldErrors};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;

use super::{At, SECONDS_MIN, proof};

const CHAIN_BYTES_MAX: usize = 100 * 1024;
/// Between the ends of a certificate's life and its renewal, at least.
const MARGIN: SignedDuration = SignedDuration::from_mins(10);

/// Checks an issued request: stops at the first broken rule, as upstream does.
pub(super) fn check(request: &At<'_>, errors: &mut FieldErrors) {
    let chain = request.get("status").get("certificateChain");
    if chain.len() > CHAIN_BYTES_MAX {
        errors.push(FieldError::too_long(&chain.path, CHAIN_BYTES_MAX));
        return;
    }
    let of_chain = |rule: &str| FieldError::invalid(&chain.path, chain.text(), rule);
    let blocks: Vec<Pem> = Pem::iter_from_buffer(chain.text().as_bytes()).flatten().collect();
    let Some((first, others)) = blocks.split_first() else {
        errors.push(of_chain("issued certificate chain must contain at least one certificate"));
        return;
    };
    if first.label != "CERTIFICATE" {
        errors.push(of_chain("issued certificate chain must consist entirely of CERTIFICATE PEM blocks"));
        return;
    }
    let Ok(leaf) = first.parse_x509() else {
        errors.push(of_chain("leaf certificate does not parse as valid X.509"));
        return;
    };
    names(&chain, &leaf, errors);
    if leaf.public_key().raw != proof::bytes(&request.get("spec"), "pkixPublicKey") {
        errors.push(of_chain("leaf certificate was not issued to the requested public key"));
        return;
    }
    times(request, &leaf, errors);
    if !errors.is_empty() {
        return;
    }
    for block in others {
        if block.label != "CERTIFICATE" {
            // Upstream misspells the word here.
            errors.push(of_chain("issued certificate chain must consist entirely of CERTFICATE PEM blocks"));
            return;
        }
        if block.parse_x509().is_err() {
            errors.push(of_chain("intermediate certificate does not parse as valid X.509"));
            return;
        }
    }
}

/// Names that no client could make sense of.
fn names(chain: &At<'_>, leaf: &X509Certificate<'_>, errors: &mut FieldErrors) {
    let names = leaf.subject_alternative_name().ok().flatten();
    for name in names.iter().flat_map(|names| &names.value.general_names) {
        let mut refuse = |is_bad: bool, shown: &str, rule: &str| {
            if is_bad {
                errors.push(FieldError::invalid(&chain.path, shown, rule));
            }
        };
        match name {
            GeneralName::DNSName(name) => {
                refuse(name.is_empty(), name, "leaf certificate should not contain empty DNSName");
                refuse(name.contains(".."), name, "leaf certificate's DNSName should not contain '..'");
                let is_open = name.starts_with('.') || name.ends_with('.');
                refuse(is_open, name, "leaf certificate's DNSName should not start or end with '.'");
            }
            GeneralName::RFC822Name(name) => {
                refuse(!is_address(name), name, "leaf certificate should not contain invalid EmailAddress");
            }
            _ => {}
        }
    }
}

/// Whether it looks like an address of mail: something, an @, and a domain. Source: RFC 5322, `addr-spec`.
fn is_address(text: &str) -> bool {
    let is_plain = |c: char| !c.is_ascii_control() && !c.is_whitespace() && !"<>()[]:;,\\\"@".contains(c);
    text.rsplit_once('@').is_some_and(|(user, domain)| {
        let is_atom = |text: &str| text.split('.').all(|part| !part.is_empty() && part.chars().all(is_plain));
        is_atom(user) && is_atom(domain)
    })
}

/// The status repeats the certificate's times, and says when to ask for the next one.
fn times(request: &At<'_>, leaf: &X509Certificate<'_>, errors: &mut FieldErrors) {
    let status = request.get("status");
    let at = ["notBefore", "notAfter", "beginRefreshAt"].map(|field| status.get(field));
    let [begins, ends, refresh] = &at;
    for (time, rule) in [
        (begins, "must be present and consistent with the issued certificate"),
        (ends, "must be present and consistent with the issued certificate"),
        (refresh, "must be present and in the range [notbefore+10min, notafter-10min]"),
    ] {
        if !time.is_set() {
            errors.push(time.required(rule));
        }
    }
    let [Some(begins_at), Some(ends_at), Some(refresh_at)] = at.each_ref().map(time) else { return };
    let validity = leaf.validity();
    let of_leaf =
        [validity.not_before, validity.not_after].map(|time| Timestamp::from_second(time.timestamp()));
    if of_leaf[0].as_ref().ok() != Some(&begins_at) {
        errors.push(begins.invalid("must be set to the NotBefore time encoded in the leaf certificate"));
        return;
    }
    if of_leaf[1].as_ref().ok() != Some(&ends_at) {
        errors.push(ends.invalid("must be set to the NotAfter time encoded in the leaf certificate"));
        return;
    }
    let chain = status.get("certificateChain").path;
    let lifetime = ends_at.duration_since(begins_at);
    let of_lifetime = |rule: &str| {
        FieldError::invalid(&chain, i64::try_from(lifetime.as_nanos()).unwrap_or(i64::MAX), rule)
    };
    let max = request.get("spec").get("maxExpirationSeconds").number().unwrap_or_default();
    if lifetime.as_secs() < SECONDS_MIN {
        errors.push(of_lifetime("leaf certificate lifetime must be >= 1 hour"));
    } else if lifetime.as_secs() > max {
        let rule = format!("leaf certificate lifetime must be <= spec.maxExpirationSeconds ({max})");
        errors.push(of_lifetime(&rule));
    } else if refresh_at.duration_since(begins_at) < MARGIN {
        errors.push(refresh.invalid("must be at least 10 minutes after status.notBefore"));
    } else if ends_at.duration_since(refresh_at) < MARGIN {
        errors.push(refresh.invalid("must be at least 10 minutes before status.notAfter"));
    }
}

fn time(at: &At<'_>) -> Option<Timestamp> {
    at.text().parse().ok()
}
