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

/// The user of a certificate with these attributes, as `NAME uid=UID GROUP,GROUP`.
fn shown(attributes: &[(&[u64], &str)]) -> Option<String> {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    for (kind, value) in attributes {
        params.distinguished_name.push(rcgen::DnType::CustomDnType(kind.to_vec()), *value);
    }
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate");
    let user = user_of(certificate.der())?;
    Some(format!("{} uid={} {}", user.name, user.uid, user.groups.join(",")))
}

/// Source: `TestX509` and the cases of `CommonNameUserConversion`.
#[test]
fn who_a_certificate_names_is_its_common_name_alone() {
    type Attributes<'a> = &'a [(&'a [u64], &'a str)];
    const NAME: &[u64] = &[2, 5, 4, 3];
    const GROUP: &[u64] = &[2, 5, 4, 10];
    const UNIT: &[u64] = &[2, 5, 4, 11];
    const USER_ID: &[u64] = &[0, 9, 2342, 19_200_300, 100, 1, 1];
    const UID: &[u64] = &[1, 3, 6, 1, 4, 1, 57683, 2];
    let rows: [(&str, Attributes<'_>, Option<&str>); 11] = [
        ("a name", &[(NAME, "anna")], Some("anna uid= ")),
        ("a name and a group", &[(NAME, "anna"), (GROUP, "dev")], Some("anna uid= dev")),
        ("the group first", &[(GROUP, "dev"), (NAME, "anna")], Some("anna uid= dev")),
        ("a unit is no group", &[(NAME, "anna"), (UNIT, "system:masters")], Some("anna uid= ")),
        ("a group alone", &[(GROUP, "system:masters")], None),
        ("no attribute", &[], None),
        ("an empty name", &[(NAME, ""), (GROUP, "system:masters")], None),
        ("an id of the directory is no uid", &[(NAME, "anna"), (USER_ID, "7")], Some("anna uid= ")),
        ("a uid", &[(NAME, "anna"), (UID, "1-2-3")], Some("anna uid=1-2-3 ")),
        ("a uid without a name", &[(UID, "1-2-3")], None),
        ("a name with spaces", &[(NAME, " Anna Ä "), (GROUP, " ")], Some(" Anna Ä  uid=  ")),
    ];
    for (name, attributes, expect) in rows {
        assert_eq!(shown(attributes).as_deref(), expect, "{name}");
    }
}

#[test]
fn a_certificate_that_is_cut_or_goes_on_names_nobody_else() {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "anna");
    let whole = params.self_signed(&key).expect("a certificate").der().to_vec();
    for end in 0..whole.len() {
        assert_eq!(user_of(&whole[..end]), None, "cut at {end}");
    }
    let user = user_of(&whole).expect("a user");
    assert_eq!(user.name, "anna");
    let id = |bytes: &[u8]| user_of(bytes).map(|user| user.extra[CREDENTIAL_ID][0].clone());
    let other = params.self_signed(&key).expect("a certificate").der().to_vec();
    assert_ne!(id(&whole), id(&[other.as_slice(), &[0]].concat()));
}
