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
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
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
mod tests {
    use super::*;
    use crate::pki::{Authority, Subject};
    use jiff::Timestamp;

    #[test]
    fn a_certificate_names_its_user_and_groups() {
        let dir = tempfile::tempdir().expect("a folder");
        let now = Timestamp::from_second(1_800_000_000).expect("a time");
        let authority = Authority::load_or_create(dir.path(), now).expect("an authority");
        let subject = Subject::client("kubelet", "system:node:a", "system:nodes");
        let identity = authority.issue(dir.path(), &subject, now).expect("a certificate");
        let (_, pem) = x509_parser::pem::parse_x509_pem(identity.certificate_pem.as_bytes()).expect("PEM");
        let user = user_of(&pem.contents).expect("a user");
        assert_eq!((user.name.as_str(), &user.groups), ("system:node:a", &vec!["system:nodes".to_owned()]));
        let id = &user.extra[CREDENTIAL_ID][0];
        assert!(id.starts_with("X509SHA256=") && id.len() == 11 + 64, "{id}");
        assert_eq!(user_of(b"not a certificate"), None);
        let validity = validity_of(&pem.contents).expect("a validity");
        assert!(validity.contains(&now.as_second()) && *validity.end() > *validity.start(), "{validity:?}");
        assert_eq!(validity_of(b"not a certificate"), None);
    }
}
