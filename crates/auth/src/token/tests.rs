use super::*;

const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn tokens() -> Tokens {
    let pair = rcgen::KeyPair::generate().unwrap();
    Tokens::new(SigningKey::from_pkcs8(pair.serialized_der()).unwrap(), ISSUER, &[])
}

fn reference(name: &str) -> Reference {
    Reference { name: name.to_owned(), uid: format!("uid-{name}") }
}

fn request() -> Request {
    Request {
        audiences: Vec::new(),
        expiration_seconds: 3600,
        bound: Kubernetes {
            namespace: "shop".to_owned(),
            pod: Some(reference("web-1")),
            node: Some(reference("host")),
            serviceaccount: reference("web"),
            ..Kubernetes::default()
        },
    }
}

/// Everything is there, but what is named here is changed.
#[derive(Default)]
struct World {
    gone: &'static str,
    replaced: &'static str,
    deletion: Option<Timestamp>,
}

impl World {
    fn find(&self, name: &str) -> Option<Found> {
        let uid = if self.replaced == name { "another".to_owned() } else { format!("uid-{name}") };
        (self.gone != name).then(|| Found {
            uid,
            deletion: self.deletion,
            node_name: Some("host".to_owned()),
        })
    }
}

impl Lookup for World {
    fn service_account(&self, _: &str, name: &str) -> Option<Found> {
        self.find(name)
    }
    fn pod(&self, _: &str, name: &str) -> Option<Found> {
        self.find(name)
    }
    fn secret(&self, _: &str, name: &str) -> Option<Found> {
        self.find(name)
    }
    fn node(&self, name: &str) -> Option<Found> {
        self.find(name)
    }
}

fn later(seconds: i64) -> Timestamp {
    now().checked_add(SignedDuration::from_secs(seconds)).unwrap()
}

#[test]
fn a_token_says_who_bears_it_and_where() {
    let tokens = tokens();
    let issued = tokens.issue(&request(), now()).unwrap();
    let verified = tokens.verify(&issued.token, &[], later(5), &World::default()).unwrap();
    assert_eq!(issued.expires, later(3600));
    assert_eq!(verified.audiences, [ISSUER]);
    let user = verified.user;
    assert_eq!(user.name, "system:serviceaccount:shop:web");
    assert_eq!(user.uid, "uid-web");
    assert_eq!(
        user.groups,
        ["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"]
    );
    let extra = |key: &str| user.extra[&format!("authentication.kubernetes.io/{key}")][0].clone();
    assert_eq!(extra("pod-name"), "web-1");
    assert_eq!(extra("pod-uid"), "uid-web-1");
    assert_eq!(extra("node-name"), "host");
    assert_eq!(extra("credential-id"), issued.credential_id);
}

#[test]
fn a_token_is_refused_when_anything_about_it_is_wrong() {
    let invalidated = |kind, name: &str| TokenError::Invalidated { kind, name: name.to_owned() };
    let whole = World::default;
    let rows = [
        ("expired", later(3600), whole(), TokenError::Expired),
        ("too early", later(-1), whole(), TokenError::NotYet),
        ("no account", now(), World { gone: "web", ..whole() }, invalidated("serviceaccount", "web")),
        ("new account", now(), World { replaced: "web", ..whole() }, invalidated("serviceaccount", "web")),
        ("no pod", now(), World { gone: "web-1", ..whole() }, invalidated("pod", "web-1")),
        ("new pod", now(), World { replaced: "web-1", ..whole() }, invalidated("pod", "web-1")),
        (
            "deleted long ago",
            later(61),
            World { deletion: Some(now()), ..whole() },
            invalidated("serviceaccount", "web"),
        ),
    ];
    let tokens = tokens();
    let token = tokens.issue(&request(), now()).unwrap().token;
    for (name, at, world, expected) in rows {
        assert_eq!(tokens.verify(&token, &[], at, &world).unwrap_err(), expected, "{name}");
    }
    let deleting = World { deletion: Some(now()), ..whole() };
    assert!(tokens.verify(&token, &[], later(60), &deleting).is_ok());
    let other = vec!["vault".to_owned()];
    assert!(matches!(tokens.verify(&token, &other, now(), &whole()), Err(TokenError::Audience { .. })));
}

#[test]
fn a_token_for_an_audience_serves_there_and_not_here() {
    let tokens = tokens();
    let vault = vec!["vault".to_owned()];
    let request = Request { audiences: vault.clone(), ..request() };
    let token = tokens.issue(&request, now()).unwrap().token;
    assert_eq!(tokens.verify(&token, &vault, now(), &World::default()).unwrap().audiences, vault);
    assert!(matches!(tokens.verify(&token, &[], now(), &World::default()), Err(TokenError::Audience { .. })));
}

#[test]
fn forged_and_foreign_tokens_are_told_apart() {
    let (ours, theirs) = (tokens(), tokens());
    let token = ours.issue(&request(), now()).unwrap().token;
    let parts: Vec<&str> = token.split('.').collect();
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let other_claims = encode(r#"{"iss":"https://kubernetes.default.svc.cluster.local","sub":"x"}"#);
    let rows = [
        ("another key", theirs.issue(&request(), now()).unwrap().token, TokenError::Signature),
        (
            "no algorithm",
            format!("{}.{}.", encode(r#"{"alg":"none","kid":""}"#), parts[1]),
            TokenError::Signature,
        ),
        ("other claims", format!("{}.{other_claims}.{}", parts[0], parts[2]), TokenError::Signature),
        ("no signature", format!("{}.{}.", parts[0], parts[1]), TokenError::Signature),
        ("no JWT", "abcdef.0123456789abcdef".to_owned(), TokenError::NotOurs),
        ("empty", String::new(), TokenError::NotOurs),
        ("huge", "a.".repeat(20_000), TokenError::NotOurs),
    ];
    for (name, token, expected) in rows {
        assert_eq!(ours.verify(&token, &[], now(), &World::default()).unwrap_err(), expected, "{name}");
    }
}

#[test]
fn the_key_set_has_the_key_that_signs() {
    let tokens = tokens();
    let set = tokens.key_set();
    let token = tokens.issue(&request(), now()).unwrap().token;
    let header: Header = read(token.split('.').next().unwrap()).unwrap();
    assert_eq!(set["keys"][0]["kid"], header.kid.as_str());
    assert_eq!(set["keys"][0]["x"].as_str().unwrap().len(), 43);
    assert_eq!(set["keys"][0]["y"].as_str().unwrap().len(), 43);
}
