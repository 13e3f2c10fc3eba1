//! An outside issuer for tests, on loopback.

#![allow(unreachable_pub, reason = "every test file uses a part of it")]

use std::sync::{Arc, Mutex, MutexGuard};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};

use crate::hook_server::{Answer, HookServer};
use crate::server::now;

/// What it says, and what it has been asked.
#[derive(Default)]
pub struct State {
    url: String,
    keys: Value,
    /// Whether it tells its keys.
    pub is_silent: bool,
    /// What is at `/elsewhere`.
    pub elsewhere: String,
    /// The paths that it was asked for.
    pub asked: Vec<String>,
}

/// An issuer with one key.
pub struct Issuer {
    server: HookServer,
    key: EcdsaKeyPair,
    random: SystemRandom,
    state: Arc<Mutex<State>>,
}

impl Issuer {
    /// Tells its keys from now on.
    pub async fn start() -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap();
        let half = |from: usize| URL_SAFE_NO_PAD.encode(&key.public_key().as_ref()[from..from + 32]);
        let keys = json!({"keys": [{"kid": "k", "kty": "EC", "x": half(1), "y": half(33)}]});
        let state = Arc::new(Mutex::new(State { keys, ..State::default() }));
        let shared = Arc::clone(&state);
        let server = HookServer::start(move |path, _| shared.lock().unwrap().answer(path)).await;
        state.lock().unwrap().url = server.url("");
        Self { server, key, random, state }
    }

    /// Its name.
    pub fn url(&self) -> String {
        self.server.url("")
    }

    /// Who vouches for its address, PEM.
    pub fn ca_pem(&self) -> String {
        String::from_utf8(STANDARD.decode(self.server.ca_bundle()).unwrap()).unwrap()
    }

    /// What it says, to be changed.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// A good token for `cluster`, but for what these claims say.
    pub fn token(&self, claims: Value) -> String {
        self.token_by("k", claims)
    }

    /// The same by a key of another name.
    pub fn token_by(&self, kid: &str, claims: Value) -> String {
        let mut all = json!({"iss": self.url(), "aud": "cluster", "exp": now().as_second() + 60});
        all.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(json!({"alg": "ES256", "kid": kid})), part(all));
        let signature = self.key.sign(&self.random, signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }
}

impl State {
    fn answer(&mut self, path: &str) -> Answer {
        self.asked.push(path.to_owned());
        match path {
            _ if self.is_silent => Answer::Raw(503, String::new()),
            "/.well-known/openid-configuration" | "/discovery" => {
                Answer::Whole(json!({"issuer": self.url, "jwks_uri": format!("{}/keys", self.url)}))
            }
            "/keys" => Answer::Whole(self.keys.clone()),
            "/elsewhere" => Answer::Raw(200, self.elsewhere.clone()),
            _ => Answer::Raw(404, String::new()),
        }
    }
}
