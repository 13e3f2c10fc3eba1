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
