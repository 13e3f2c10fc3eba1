//! Client certificates: the common name is the user, the organizations are its groups.
//!
//! Source: upstream's `request/x509`. The chain has been verified by TLS already.

use x509_parser::prelude::{FromDer, X509Certificate};

use crate::UserInfo;

/// The user whom a verified client certificate (DER) names; `None` if it names nobody.
pub fn user_of(certificate: &[u8]) -> Option<UserInfo> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups =
        subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned).collect();
    (!name.is_empty()).then(|| UserInfo { name, groups, ..UserInfo::default() })
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
        assert_eq!((user.name.as_str(), user.groups), ("system:node:a", vec!["system:nodes".into()]));
        assert_eq!(user_of(b"not a certificate"), None);
    }
}
