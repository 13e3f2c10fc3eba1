use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::*;
use crate::keys::pkcs8;
use crate::keys::tests::{EC_P521, EC_SEC1, RSA_AUTHORITY, RSA_PKCS1};

/// The public halves of [`RSA_PKCS1`], [`EC_SEC1`] and [`EC_P521`], as `openssl pkey -pubout` writes them.
const PUBLIC: &str = include_str!("../public.pem");
/// A certificate of [`EC_P521`], made by openssl.
const CERTIFICATE: &str = include_str!("../p521.crt");
/// Keys that openssl has made, and that nobody signs tokens with.
const RSA_1024: &str = include_str!("../rsa_1024.pem");
const SECP256K1: &str = include_str!("../secp256k1.pem");
const ED25519: &str = include_str!("../ed25519.pem");
const COMPRESSED: &str = include_str!("../compressed.pem");
const ENCRYPTED: &str = include_str!("../encrypted.pem");

/// The algorithm of each key of [`PUBLIC`], the digest of its DER by openssl, and what others' libraries sign `head.body` with.
const MADE_ELSEWHERE: [(&str, &str, &str); 3] = [
    (
        "RS256",
        "SaFXysKx5KPofYJjXa5D0GELTAKd7VCJK0ZsaPxlqag",
        "k2-J1ZtbEEMiCYZ2-8TnsWstgvNQixn1v1jegG_RapORRGWli3sfD4Qi697-uVltkqsAKdqoTcU6pUgYsnLjw1qSTIcpBxjqbw6MqPi0VBloph1jQcjC3eddWy8-lKO5xurRBKuIfelaac1F1v82bqDKkDk0EHw-7FvOrduh7M_v64bPvxNElz5sf0p7DN0WLnjRcyw7OBdSHpc1mNm2ciS769FX3D2006oHBz-i4O1sm7kptJyLvscwgXUNvGyWaqrtqQ19BcEHRSgcZSvXbbDELI2xhCTB0UQ6Wk9NEYhYDHZtzCFNKhTzGEGI6js5TxPYF5xRDXEjYeap4YKKhQ",
    ),
    (
        "ES256",
        "f8jZc0L_9NbYLDhUdd6hZpSWqYjlO6lURLHzM3i0UsQ",
        "PJzD5DkQ7YXRvmwOSTWcPwxBGP-ZJJJ_KmD14VxuCMbJIJERaVZb0lNaYrnlrJLdDH6z9LHSQIOzykRpQMv0Xg",
    ),
    (
        "ES512",
        "afkRcoE8iQef04nW06telr6bmVV9T365m5SKtWlSuvY",
        "AK9zl4pjfdC1nAW8qn0Or0qfDXSiTLwk6c9E1H5gdIjg8N617i_F2v8EEyS3kqFQpIrpT_e5wldUt-67_MkrXlAEAJequQi2CL6-d5ye9Ph-H7rzGpfuZqUlEnJFOEcaFfQbWjLPAbOcIZFxxBhRuR4VjIVJGzLWKHQE5QEwvgzG1-Of",
    ),
];

/// The algorithms of the keys in a file, or why it is of no use.
fn check(name: &str, pem: &str, expect: Result<&[&str], PublicKeysError>) {
    let found = public_keys(pem.as_bytes());
    let algorithms = found.map(|keys| keys.iter().map(PublicKey::algorithm).collect::<Vec<_>>());
    assert_eq!(algorithms, expect.map(<[&str]>::to_vec), "{name}");
}

fn pem_of(label: &str, der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

#[test]
fn keys_are_read_as_others_write_them() {
    check("PKIX, several", PUBLIC, Ok(&["RS256", "ES256", "ES512"]));
    check("PKCS#1", RSA_PKCS1, Ok(&["RS256"]));
    check("SEC1 after its parameters", EC_SEC1, Ok(&["ES256"]));
    check("SEC1 of P-521", EC_P521, Ok(&["ES512"]));
    check("a certificate", CERTIFICATE, Ok(&["ES512"]));
    for (name, pem, algorithm) in
        [("RSA", RSA_PKCS1, "RS256"), ("P-256", EC_SEC1, "ES256"), ("P-521", EC_P521, "ES512")]
    {
        let key = pkcs8(pem.as_bytes()).unwrap();
        check(&format!("PKCS#8 of {name}"), &pem_of("PRIVATE KEY", &key), Ok(&[algorithm]));
        check("what the label says does not count", &pem_of("WHATEVER", &key), Ok(&[algorithm]));
    }
    check("each once", &[RSA_AUTHORITY, RSA_PKCS1, PUBLIC].concat(), Ok(&["RS256", "ES256", "ES512"]));
    let dressed = format!("Bag Attributes\n    friendlyName: sa\n{}", PUBLIC.replace('\n', "\r\n"));
    check("with text around and other line ends", &dressed, Ok(&["RS256", "ES256", "ES512"]));
}

#[test]
fn keys_are_called_and_checked_by_as_others_do() {
    let keys = public_keys(PUBLIC.as_bytes()).unwrap();
    for (key, (algorithm, id, signature)) in keys.iter().zip(MADE_ELSEWHERE) {
        assert_eq!((key.algorithm(), key.id()), (algorithm, id));
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        assert!(key.has_signed(b"head.body", &signature), "{algorithm}");
        assert!(!key.has_signed(b"head.bodz", &signature), "{algorithm}");
        assert!(!key.has_signed(b"head.body", &signature[1..]), "{algorithm}");
        assert!(keys.iter().all(|other| other == key || !other.has_signed(b"head.body", &signature)));
        let jwk = key.jwk();
        assert_eq!((jwk["kid"].as_str(), jwk["alg"].as_str()), (Some(id), Some(algorithm)));
    }
}

#[test]
fn a_private_key_is_its_public_half() {
    for (pem, public) in [RSA_PKCS1, EC_SEC1, EC_P521].iter().zip(public_keys(PUBLIC.as_bytes()).unwrap()) {
        let private = PrivateKey::of_pkcs8(&pkcs8(pem.as_bytes()).unwrap()).unwrap();
        assert_eq!(*private.public(), public);
        assert!(public.has_signed(b"message", &private.sign(b"message").unwrap()));
    }
}

#[test]
fn what_is_no_key_is_passed_over() {
    let none = || Err(PublicKeysError::None);
    check("nothing", "", none());
    check("no PEM", "ssh-rsa AAAA", none());
    check("another sort of key", ED25519, none());
    check("a key with a password", ENCRYPTED, none());
    check("garbage in PEM", &pem_of("PUBLIC KEY", b"garbage"), none());
    check(
        "a length that goes on for ever",
        &pem_of("PUBLIC KEY", &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]),
        none(),
    );
    check("beside a good one", &[ED25519, ENCRYPTED, RSA_PKCS1].concat(), Ok(&["RS256"]));
    let half = &PUBLIC[..PUBLIC.len() - 40];
    check("the last is cut", half, Ok(&["RS256", "ES256"]));
}

#[test]
fn a_key_that_nobody_can_check_by_is_told() {
    check("half a point", COMPRESSED, Err(PublicKeysError::Unusable(1)));
    check("a small RSA key", RSA_1024, Err(PublicKeysError::Unusable(1)));
    check(
        "another curve, after its fellow",
        &[EC_SEC1, SECP256K1].concat(),
        Err(PublicKeysError::Unusable(3)),
    );
    let broken = pkcs8(EC_P521.as_bytes()).unwrap();
    let cut = pem_of("PRIVATE KEY", &tagged_again(&broken));
    check("a key that is cut", &cut, Err(PublicKeysError::Unusable(1)));
    let many: String = (0..=KEYS_MAX).map(|_| rcgen::KeyPair::generate().unwrap().serialize_pem()).collect();
    check("too many", &many, Err(PublicKeysError::TooMany));
}

/// A PKCS#8 key of which the inner half is missing.
fn tagged_again(key: &[u8]) -> Vec<u8> {
    let (_, fields, _) = take(key).unwrap();
    crate::der::tagged(SEQUENCE, &fields[..fields.len() / 2])
}
