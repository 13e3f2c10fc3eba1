//! Tokens that are good, and every way not to be.

mod claims;

use super::*;

struct Cluster {
    pod: Option<&'static str>,
}

impl Lookup for Cluster {
    fn service_account_uid(&self, _: &str, name: &str) -> Option<String> {
        (name == "default").then(|| "sa-uid".to_owned())
    }
    fn pod_uid(&self, _: &str, _: &str) -> Option<String> {
        self.pod.map(str::to_owned)
    }
    fn secret_uid(&self, _: &str, _: &str) -> Option<String> {
        None
    }
    fn node_uid(&self, _: &str) -> Option<String> {
        None
    }
}

const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

fn tokens() -> Tokens {
    let dir = tempfile::tempdir().expect("a folder");
    let key = crate::pki::service_account_key(dir.path()).expect("a key");
    Tokens::new(&key, ISSUER, vec![ISSUER.to_owned()]).expect("a P-256 key")
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).expect("a time")
}

fn issue(tokens: &Tokens, audiences: &[String]) -> String {
    let private = Private {
        namespace: "ns".into(),
        serviceaccount: Reference { name: "default".into(), uid: "sa-uid".into() },
        pod: Some(Reference { name: "web".into(), uid: "pod-uid".into() }),
        ..Private::default()
    };
    tokens.issue(private, audiences, 600, at(0), "id-1".into()).expect("a token")
}

#[test]
fn a_token_names_its_account_and_its_pod() {
    let tokens = tokens();
    let (user, _) =
        tokens.verify(&issue(&tokens, &[]), &[], at(1), &Cluster { pod: Some("pod-uid") }).expect("good");
    assert_eq!(user.name, "system:serviceaccount:ns:default");
    assert_eq!(user.groups[1], "system:serviceaccounts:ns");
    assert_eq!(user.extra["authentication.kubernetes.io/pod-name"], ["web"]);
}

#[test]
fn a_token_that_breaks_a_rule_is_refused() {
    let tokens = tokens();
    let good = issue(&tokens, &[]);
    let alive = Cluster { pod: Some("pod-uid") };
    let tampered = good.replacen('.', ".A", 1);
    let vault = vec!["vault".to_owned()];
    let cases = [
        ("too late", &good, at(661), &alive, TokenError::Time),
        ("too early", &good, at(-61), &alive, TokenError::Time),
        ("tampered", &tampered, at(1), &alive, TokenError::NotOurs),
        (
            "the pod is another",
            &good,
            at(1),
            &Cluster { pod: Some("other") },
            TokenError::Gone { what: "pod" },
        ),
        ("the pod is gone", &good, at(1), &Cluster { pod: None }, TokenError::Gone { what: "pod" }),
        (
            "for another audience",
            &issue(&tokens, &vault),
            at(1),
            &alive,
            TokenError::Audience { audiences: vault.clone() },
        ),
        ("of another cluster", &issue(&self::tokens(), &[]), at(1), &alive, TokenError::NotOurs),
    ];
    for (name, token, now, cluster, expected) in cases {
        assert_eq!(tokens.verify(token, &[], now, cluster).expect_err(name), expected, "{name}");
    }
    for second in [-60, 0, 600, 660] {
        assert!(tokens.verify(&good, &[], at(second), &alive).is_ok(), "{second}");
    }
}

#[test]
fn a_token_may_not_come_from_the_future() {
    let tokens = tokens();
    let private = Private {
        namespace: "ns".into(),
        serviceaccount: Reference { name: "default".into(), uid: "sa-uid".into() },
        ..Private::default()
    };
    let claims = |iat: i64| Claims {
        aud: vec![ISSUER.to_owned()],
        exp: at(600).as_second(),
        iat: at(iat).as_second(),
        iss: ISSUER.to_owned(),
        jti: String::new(),
        private: private.clone(),
        nbf: at(0).as_second(),
        sub: "system:serviceaccount:ns:default".to_owned(),
    };
    for (iat, is_good) in [(0, true), (60, true), (61, false)] {
        let token = tokens.sign(&claims(iat)).expect("a token");
        assert_eq!(tokens.verify(&token, &[], at(0), &Cluster { pod: None }).is_ok(), is_good, "{iat}");
    }
}

#[test]
fn keys_that_other_tools_have_made_sign_too() {
    use crate::keys::tests::{EC_SEC1, RSA_PKCS1};
    let account = Reference { name: "default".into(), uid: "sa-uid".into() };
    let own = tokens();
    let p384 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).expect("a key").serialize_pem();
    let keys = [
        (RSA_PKCS1, "RS256", "RSA"),
        (EC_SEC1, "ES256", "EC"),
        (&p384, "ES384", "EC"),
        (crate::keys::tests::EC_P521, "ES512", "EC"),
    ];
    for (pem, algorithm, kind) in keys {
        let key = crate::keys::pkcs8(pem.as_bytes()).expect("a key");
        let tokens = Tokens::new(&key, ISSUER, Vec::new()).expect("a key");
        let token = tokens.issue_legacy("team", "secret", &account).expect("a token");
        let head = URL_SAFE_NO_PAD.decode(token.split('.').next().expect("a head")).expect("base64");
        assert!(String::from_utf8_lossy(&head).contains(algorithm));
        assert_eq!(tokens.verify_legacy(&token).map(|legacy| legacy.account), Ok("default".to_owned()));
        assert_eq!(own.verify_legacy(&token), Err(TokenError::NotOurs), "another key");
        let jwk = &tokens.jwks()["keys"][0];
        assert_eq!((&jwk["kty"], &jwk["alg"]), (&kind.into(), &algorithm.into()));
        let half = |name: &str| jwk[name].as_str().and_then(|half| URL_SAFE_NO_PAD.decode(half).ok());
        let bytes = match algorithm {
            "ES256" => Some(32),
            "ES384" => Some(48),
            "ES512" => Some(66),
            _ => None,
        };
        assert_eq!(["x", "y"].map(|name| half(name).map(|half| half.len())), [bytes; 2]);
    }
    assert_eq!(Tokens::new(b"nonsense", ISSUER, Vec::new()).err(), Some(TokenError::Key));
}

#[test]
fn tokens_of_other_keys_and_issuers_are_believed_where_they_are_named() {
    use crate::keys::tests::{EC_P521, EC_SEC1, RSA_PKCS1};
    let with = |pem: &str, issuer: &str| {
        let key = crate::keys::pkcs8(pem.as_bytes()).expect("a key");
        Tokens::new(&key, issuer, vec![ISSUER.to_owned()]).expect("a key")
    };
    let keys = crate::keys::pem::public_keys([RSA_PKCS1, EC_SEC1].concat().as_bytes()).expect("keys");
    let own = with(EC_P521, ISSUER).believing(&["".to_owned(), "https://old".to_owned()], &keys);
    let alive = Cluster { pod: Some("pod-uid") };
    let cases = [
        ("of the first issuer", EC_P521, ISSUER, true),
        ("of the second, by another key", RSA_PKCS1, "https://old", true),
        ("of the first, by another key", EC_SEC1, ISSUER, true),
        ("of nobody", EC_SEC1, "https://other", false),
        ("of nobody at all", EC_SEC1, "", false),
    ];
    for (name, pem, issuer, is_good) in cases {
        let token = issue(&with(pem, issuer), &[]);
        assert_eq!(own.verify(&token, &[], at(1), &alive).is_ok(), is_good, "{name}");
    }
    assert!(own.verify(&issue(&tokens(), &[]), &[], at(1), &alive).is_err(), "of another key");
    let (issued, jwks) = (issue(&own, &[]), own.jwks());
    let claims = issued.split('.').nth(1).and_then(|body| URL_SAFE_NO_PAD.decode(body).ok()).expect("a body");
    assert!(String::from_utf8_lossy(&claims).contains(ISSUER), "the first signs");
    let algorithms: Vec<_> =
        jwks["keys"].as_array().expect("keys").iter().map(|key| key["alg"].clone()).collect();
    assert_eq!(algorithms, ["ES512", "RS256", "ES256"]);
    assert_eq!(own.algorithms(), ["ES256", "ES512", "RS256"].into());
}

#[test]
fn the_key_that_a_token_names_counts_and_if_it_names_none_each_may_be_it() {
    use crate::keys::tests::{EC_SEC1, RSA_PKCS1};
    let account = Reference { name: "default".into(), uid: "sa-uid".into() };
    let key = crate::keys::pkcs8(EC_SEC1.as_bytes()).expect("a key");
    let tokens = Tokens::new(&key, ISSUER, Vec::new()).expect("a key");
    let other = crate::keys::pem::public_keys(RSA_PKCS1.as_bytes()).expect("keys");
    let believing = Tokens::new(&key, ISSUER, Vec::new()).expect("a key").believing(&[], &other);
    let body = |kid: &str| {
        let head = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"ES256"{kid}}}"#));
        let body = tokens.issue_legacy("team", "secret", &account).expect("a token");
        let signed = format!("{head}.{}", body.split('.').nth(1).expect("a body"));
        let signature = PrivateKey::of_pkcs8(&key).expect("a key").sign(signed.as_bytes()).expect("signed");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    };
    assert!(believing.verify_legacy(&body("")).is_ok());
    assert!(believing.verify_legacy(&body(r#","kid":"as-it-was-called-once""#)).is_ok());
    let of_other = format!(r#","kid":"{}""#, other[0].id());
    assert_eq!(believing.verify_legacy(&body(&of_other)), Err(TokenError::NotOurs));
}

#[test]
fn a_token_is_verified_by_the_algorithm_of_the_key_and_no_other() {
    let key = crate::keys::pkcs8(crate::keys::tests::RSA_PKCS1.as_bytes()).expect("a key");
    let tokens = Tokens::new(&key, ISSUER, Vec::new()).expect("a key");
    let account = Reference { name: "default".into(), uid: "sa-uid".into() };
    let token = tokens.issue_legacy("team", "secret", &account).expect("a token");
    let (_, rest) = token.split_once('.').expect("a head");
    for algorithm in ["none", "HS256", "ES256", "PS256"] {
        let head = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"{algorithm}"}}"#));
        assert_eq!(tokens.verify_legacy(&format!("{head}.{rest}")), Err(TokenError::NotOurs));
    }
}
