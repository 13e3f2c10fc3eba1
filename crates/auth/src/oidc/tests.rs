use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::json;

use super::*;

struct Signer {
    key: EcdsaKeyPair,
    random: SystemRandom,
}

fn signer() -> Signer {
    let random = SystemRandom::new();
    let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
    let key = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).expect("a key");
    Signer { key, random }
}

impl Signer {
    fn keys(&self) -> Keys {
        let point = self.key.public_key().as_ref();
        let half = |from: usize| URL_SAFE_NO_PAD.encode(&point[from..from + 32]);
        serde_json::from_value(json!({"keys": [{"kid": "k", "kty": "EC", "x": half(1), "y": half(33)}]}))
            .expect("keys")
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let signature = self.key.sign(&self.random, signed.as_bytes()).expect("signed");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }
}

fn trusted() -> Issuer {
    Issuer {
        url: "https://id.example".into(),
        discovery_url: None,
        ca_pem: Vec::new(),
        audiences: vec!["cluster".into()],
        algorithms: vec!["ES256".into()],
    }
}

fn claims_with(change: (&str, Value)) -> Value {
    let mut claims =
        json!({"iss": "https://id.example", "aud": ["x", "cluster"], "exp": 2_000_000_000, "sub": "a"});
    claims[change.0] = change.1;
    claims
}

fn check(name: &str, change: (&str, Value), expect: Result<(), &str>) {
    let signer = signer();
    let token = signer.sign(&json!({"alg": "ES256", "kid": "k"}), &claims_with(change));
    let now = Timestamp::from_second(1_900_000_000).expect("a time");
    let found = trusted().verify(&token, &signer.keys(), now);
    let shown = found.map(|claims| assert_eq!(claims["sub"], "a")).map_err(|why| why.to_string());
    assert_eq!(shown.as_ref().map_err(String::as_str), expect.as_ref().map_err(|why| *why), "{name}");
}

#[test]
fn tokens_are_taken_from_their_issuer_in_their_time() {
    check("good", ("x", json!(1)), Ok(()));
    check("one audience", ("aud", json!("cluster")), Ok(()));
    check("just so", ("exp", json!(1_900_000_000)), Ok(()));
    check("just over", ("exp", json!(1_899_999_999)), Err("claim \"exp\": it is over"));
    check("clocks differ", ("nbf", json!(1_900_000_060)), Ok(()));
    check("too much", ("nbf", json!(1_900_000_061)), Err("claim \"nbf\": its time has not come"));
    check("issuer", ("iss", json!("https://other")), Err("claim \"iss\": it is another issuer"));
    check("no issuer", ("iss", json!(["https://id.example"])), Err("claim \"iss\": it is another issuer"));
    check("audience", ("aud", json!("x")), Err("claim \"aud\": it is meant for somebody else"));
    check("no audience", ("aud", json!({"cluster": 1})), Err("claim \"aud\": it is meant for somebody else"));
    check("over", ("exp", json!(1)), Err("claim \"exp\": it is over"));
    check("no end", ("exp", json!("2100-01-01")), Err("claim \"exp\": it is over"));
    check("far future", ("exp", json!(1e300)), Ok(()));
    check("long ago", ("exp", json!(-1e300)), Err("claim \"exp\": it is over"));
    check("early", ("nbf", json!(1_999_999_999)), Err("claim \"nbf\": its time has not come"));
}

#[test]
fn only_known_keys_and_methods_count() {
    let (signer, other) = (signer(), self::signer());
    let now = Timestamp::from_second(0).expect("a time");
    let claims = claims_with(("x", json!(1)));
    let verify =
        |header: Value, keys: &Keys| trusted().verify(&signer.sign(&header, &claims), keys, now).map(drop);
    let good = json!({"alg": "ES256", "kid": "k"});
    assert_eq!(verify(good.clone(), &signer.keys()), Ok(()));
    assert_eq!(verify(json!({"alg": "ES256"}), &signer.keys()), Ok(()));
    assert_eq!(verify(json!({"alg": "none"}), &signer.keys()), Err(OidcError::Algorithm("none".into())));
    assert_eq!(
        verify(json!({"alg": "RS256", "kid": "k"}), &signer.keys()),
        Err(OidcError::Algorithm("RS256".into()))
    );
    assert_eq!(verify(good, &other.keys()), Err(OidcError::UnknownKey("k".into())));
    assert_eq!(verify(json!({"alg": "ES256"}), &Keys::default()), Err(OidcError::UnknownKey(String::new())));
    assert_eq!(
        verify(json!({"alg": "ES256", "kid": "z"}), &signer.keys()),
        Err(OidcError::UnknownKey("z".into()))
    );
    let token = signer.sign(&json!({"alg": "ES256", "kid": "k"}), &claims);
    let deep = format!("e30.{}.", URL_SAFE_NO_PAD.encode("[".repeat(100_000)));
    let long = format!("{token}{}", "A".repeat(TOKEN_BYTES_MAX));
    for malformed in ["x", "a.b", "..", &format!("{token}.x"), &deep, &long] {
        let found = trusted().verify(malformed, &signer.keys(), now);
        assert_eq!(found, Err(OidcError::Malformed), "{}", malformed.get(..20).unwrap_or(malformed));
    }
}

#[test]
fn every_curve_signs() {
    use crate::keys::private::PrivateKey;
    use crate::keys::tests::{EC_P521, EC_SEC1};
    let p384 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).expect("a key").serialize_pem();
    let now = Timestamp::from_second(0).expect("a time");
    for (algorithm, pem) in [("ES256", EC_SEC1), ("ES384", &p384), ("ES512", EC_P521)] {
        let key = crate::keys::pkcs8(pem.as_bytes()).expect("a key");
        let key = PrivateKey::of_pkcs8(&key).expect("a key");
        let keys: Keys = serde_json::from_value(json!({"keys": [key.public().jwk()]})).expect("keys");
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&json!({"alg": algorithm})), part(&claims_with(("x", json!(1)))));
        let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()).expect("signed"));
        let issuer = Issuer { algorithms: vec![algorithm.to_owned()], ..trusted() };
        let verify = |signature: &str| issuer.verify(&format!("{signed}.{signature}"), &keys, now).is_ok();
        let other = format!("{}{}", if signature.starts_with('A') { 'B' } else { 'A' }, &signature[1..]);
        assert!(verify(&signature) && !verify(&other) && !verify(""), "{algorithm}");
    }
}

#[test]
fn an_issuer_may_have_two_names() {
    let token = signer().sign(&json!({"alg": "ES256"}), &json!({"iss": "accounts.google.com"}));
    assert_eq!(issuer_of(&token).as_deref(), Some("https://accounts.google.com"));
}
