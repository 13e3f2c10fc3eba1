//! Client certificates: the common name is the user, the organizations are its groups.
//!
//! Source: `CommonNameUserConversion` of upstream's `request/x509`. The chain has been verified by TLS already.

use std::ops::RangeInclusive;

use ring::digest::{SHA256, digest};
use x509_parser::der_parser::{Oid, oid};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::{CREDENTIAL_ID, UserInfo};

/// The attribute of a subject that is the user's uid. Source: `UIDFromCertAuth` of upstream's feature gates.
const UID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);

/// The user whom a verified client certificate (DER) names; `None` if it names nobody.
pub fn user_of(encoded: &[u8]) -> Option<UserInfo> {
    let (_, certificate) = X509Certificate::from_der(encoded).ok()?;
    let subject = certificate.subject();
    // Of several the last counts, as in Go's `pkix.Name`.
    let name = subject.iter_common_name().filter_map(|name| name.as_str().ok()).last()?.to_owned();
    let groups =
        subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned).collect();
    let mut uids = subject.iter_by_oid(&UID);
    let uid = match (uids.next(), uids.next()) {
        (None, _) => String::new(),
        (Some(uid), None) => uid.as_str().ok()?.to_owned(),
        // Whoever has two has none.
        (Some(_), Some(_)) => return None,
    };
    let fingerprint: String =
        digest(&SHA256, encoded).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let extra = [(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={fingerprint}")])].into();
    (!name.is_empty()).then_some(UserInfo { name, uid, groups, extra })
}

/// From when and until when a certificate (DER) is good, both in Unix seconds and included; `None` if it cannot be read.
pub fn validity_of(encoded: &[u8]) -> Option<RangeInclusive<i64>> {
    let (_, certificate) = X509Certificate::from_der(encoded).ok()?;
    let validity = certificate.validity();
    Some(validity.not_before.timestamp()..=validity.not_after.timestamp())
}

#[cfg(test)]
mod tests;
