use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use super::*;
use crate::config::Mirror;

mod blobs;
mod documents;

/// A request as a registry sees it.
struct Request {
    /// Method and target, then what `Authorization` and the body say, if anything.
    line: String,
    /// The target.
    path: String,
    authorization: String,
    range: String,
    /// Of the registry itself.
    authority: String,
}

/// A registry on loopback that answers by a function and remembers what it was asked.
struct Fake {
    authority: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    fn start(answer: impl Fn(&Request) -> Vec<u8> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (log, own) = (Arc::clone(&asked), authority.clone());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let mut client = client.unwrap();
                let Some(request) = read(&mut BufReader::new(&client), &own) else { continue };
                log.lock().push(request.line.replace(&own, "HOST"));
                // Who has read enough hangs up.
                client.write_all(&answer(&request)).ok();
            }
        });
        Self { authority, asked }
    }

    /// What came, in order.
    fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }

    fn session(&self, credentials: Option<Credentials>) -> Session {
        session(Registries::default(), &format!("{}/a:1", self.authority), credentials)
    }
}

fn read(reader: &mut impl BufRead, authority: &str) -> Option<Request> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let header = |wanted: &str| {
        let values = lines.iter().filter_map(|line| line.split_once(": "));
        let value = values.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        value.map(|(_, value)| value.to_owned()).unwrap_or_default()
    };
    let mut body = vec![0; header("content-length").parse().unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    let (line, _) = lines.first()?.rsplit_once(' ')?;
    let (_, path) = line.split_once(' ')?;
    let parts = [line, &header("authorization"), std::str::from_utf8(&body).ok()?];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    Some(Request {
        line: parts.join(" "),
        path: path.to_owned(),
        authorization: header("authorization"),
        range: header("range"),
        authority: authority.to_owned(),
    })
}

fn session(registries: Registries, image: &str, credentials: Option<Credentials>) -> Session {
    let client = Arc::new(Client::new(registries, Random::seeded(1)));
    client.session(image.parse().unwrap(), credentials, RetryPolicy::None).unwrap()
}

/// An answer of this status, with these lines of the head.
fn answer(status: &str, head: &[&str], body: &[u8]) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    for line in head {
        text.push_str(line);
        text.push_str("\r\n");
    }
    let mut answer = (text + "\r\n").into_bytes();
    answer.extend_from_slice(body);
    answer
}

fn digest_header(of: &[u8]) -> String {
    format!("Docker-Content-Digest: {}", Digest::of(of))
}

fn password() -> Option<Credentials> {
    Credentials::from_parts("u", "p", "", "", "").unwrap()
}

const ASK: &str = "HEAD /v2/a/manifests/1";
const NEEDED: &str = "scope=repository%3Aa%3Apull";
const BEARER: &str = "Bearer realm=\"http://HOST/token\",service=\"s\"";
const GOOD: (&str, &str) = ("200 OK", r#"{"token": "good"}"#);
const REFUSED: &str = "unexpected status from HEAD request to http://HOST/v2/a/manifests/1: 401 Unauthorized";

/// What is asked, in order, and what comes of it, at a registry that takes nothing but `wanted`.
struct Row {
    name: &'static str,
    credentials: Option<Credentials>,
    wanted: &'static str,
    challenge: &'static str,
    token: (&'static str, &'static str),
    asked: Vec<String>,
    outcome: Result<(), String>,
}

impl Row {
    fn new(name: &'static str, credentials: Option<Credentials>, wanted: &'static str) -> Self {
        let (challenge, asked) = (BEARER, vec![ASK.to_owned()]);
        Self { name, credentials, wanted, challenge, token: GOOD, asked, outcome: Ok(()) }
    }

    fn challenge(mut self, challenge: &'static str) -> Self {
        self.challenge = challenge;
        self
    }

    fn token(mut self, status: &'static str, body: &'static str) -> Self {
        self.token = (status, body);
        self
    }

    fn then(mut self, line: &str) -> Self {
        self.asked.push(line.to_owned());
        self
    }

    fn fails(mut self, error: &str) -> Self {
        self.outcome = Err(error.to_owned());
        self
    }

    async fn check(self) {
        let (wanted, challenge, token) = (self.wanted, self.challenge, self.token);
        let fake = Fake::start(move |request| match request.path.starts_with("/token") {
            true => answer(token.0, &[], token.1.as_bytes()),
            false if request.authorization == wanted => answer("200 OK", &[&digest_header(b"x")], b""),
            false => {
                let challenge = challenge.replace("HOST", &request.authority);
                let head = format!("WWW-Authenticate: {challenge}");
                let head: &[&str] = if challenge.is_empty() { &[] } else { &[&head] };
                answer("401 Unauthorized", head, b"")
            }
        });
        let outcome = fake.session(self.credentials).digest().await;
        let outcome = outcome.map(drop).map_err(|error| error.to_string().replace(&fake.authority, "HOST"));
        assert_eq!(outcome, self.outcome, "{}", self.name);
        assert_eq!(fake.asked(), self.asked, "{}", self.name);
    }
}

const WITH_PASSWORD: &str = "HEAD /v2/a/manifests/1 Basic dTpw";
const WITH_TOKEN: &str = "HEAD /v2/a/manifests/1 Bearer good";

#[tokio::test]
async fn registries_are_told_who_asks_as_they_want_to_be_told() {
    let (basic, bearer) = (WITH_PASSWORD, WITH_TOKEN);
    let anonymous = format!("GET /token?service=s&{NEEDED}");
    let with_password = format!("{anonymous}&account=u Basic dTpw");
    let refresh =
        format!("POST /token service=s&{NEEDED}&client_id=knarr&grant_type=refresh_token&refresh_token=i");
    let identity = Some(Credentials::IdentityToken("i".into()));
    let rows = vec![
        Row::new("nobody wants to know", password(), ""),
        Row::new("a password", password(), "Basic dTpw").challenge("Basic realm=\"x\"").then(basic),
        Row::new("a wrong password is not tried twice", password(), "Basic other")
            .challenge("Basic realm=\"x\"")
            .then(basic)
            .fails(REFUSED),
        Row::new("no password", None, "Basic dTpw").challenge("Basic realm=\"x\"").fails(
            "pull access denied, repository does not exist or may require authorization: \
             authorization failed: no basic auth credentials",
        ),
        Row::new("a token for everybody", None, "Bearer good").then(&anonymous).then(bearer),
        Row::new("a token for a password", password(), "Bearer good").then(&with_password).then(bearer),
        Row::new("a token for a refresh token", identity, "Bearer good").then(&refresh).then(bearer),
        Row::new("a token under OAuth's name", None, "Bearer good")
            .token("200 OK", r#"{"access_token": "good", "expires_in": 1}"#)
            .then(&anonymous)
            .then(bearer),
        Row::new("both are offered", password(), "Bearer good")
            .challenge("Basic realm=\"x\", Bearer realm=\"http://HOST/token\",service=\"s\"")
            .then(&with_password)
            .then(bearer),
        Row::new("the scope that it asks for", None, "Bearer good")
            .challenge("Bearer realm=\"http://HOST/token\",scope=\"repository:a:pull,push\"")
            .then("GET /token?scope=repository%3Aa%3Apull%2Cpush")
            .then(bearer),
        Row::new("a scope of something else", None, "Bearer good")
            .challenge("Bearer realm=\"http://HOST/token\",scope=\"registry:catalog:*\"")
            .then(&format!("GET /token?{NEEDED}"))
            .then(bearer),
        Row::new("a realm with a query", None, "Bearer good")
            .challenge("Bearer realm=\"http://HOST/token?x=y\"")
            .then(&format!("GET /token?x=y&{NEEDED}"))
            .then(bearer),
    ];
    for row in rows {
        row.check().await;
    }
}

#[tokio::test]
async fn services_that_give_no_token_are_told() {
    let bearer = WITH_TOKEN;
    let anonymous = format!("GET /token?service=s&{NEEDED}");
    let with_password = format!("{anonymous}&account=u Basic dTpw");
    let rows = vec![
        Row::new("a good token that is not enough", None, "Bearer better")
            .then(&anonymous)
            .then(bearer)
            .fails(REFUSED),
        Row::new("a service that refuses", password(), "Bearer good")
            .token("403 Forbidden", r#"{"details": "no"}"#)
            .then(&with_password)
            .fails(
                "failed to authorize: failed to fetch oauth token: unexpected status from GET request to \
                 http://HOST/token: 403 Forbidden",
            ),
        Row::new("a service that gives nothing", None, "Bearer good")
            .token("200 OK", "{}")
            .then(&anonymous)
            .fails("failed to authorize: the token service gave no token"),
        Row::new("a token that would be two lines", None, "Bearer good")
            .token("200 OK", r#"{"token": "good\r\nX: y"}"#)
            .then(&anonymous)
            .fails("failed to authorize: the token service gave no token"),
        Row::new("a page instead of a token", None, "Bearer good")
            .token("200 OK", "<html>")
            .then(&anonymous)
            .fails("failed to authorize: the token service gave no token"),
        Row::new("a service that is none", None, "Bearer good")
            .challenge("Bearer realm=\"nowhere\"")
            .then("GET /v2/a/manifests/1")
            .fails("the registry's realm \"nowhere\" is no URL"),
        Row::new("a service that is a file", None, "Bearer good")
            .challenge("Bearer realm=\"file:///etc/passwd\"")
            .then("GET /v2/a/manifests/1")
            .fails("the registry's realm \"file:///etc/passwd\" is no URL"),
        Row::new("a challenge of another kind", password(), "Basic dTpw")
            .challenge("Negotiate")
            .fails(REFUSED),
        Row::new("a challenge without a realm", password(), "Basic dTpw")
            .challenge("Bearer service=\"s\"")
            .fails(REFUSED),
        Row::new("no challenge", password(), "Basic dTpw").challenge("").fails(REFUSED),
    ];
    for row in rows {
        row.check().await;
    }
}

#[tokio::test]
async fn a_registrys_token_is_shown_at_once_and_another_is_not_asked_for() {
    for (token, is_good) in [("good", true), ("bad", false)] {
        let fake = Fake::start(|request| match request.authorization.as_str() {
            "Bearer good" => answer("200 OK", &[&digest_header(b"x")], b""),
            _ => answer("401 Unauthorized", &["WWW-Authenticate: Bearer realm=\"http://x/\""], b""),
        });
        let found = fake.session(Some(Credentials::RegistryToken(token.into()))).digest().await;
        assert_eq!(
            (found.is_ok(), fake.asked()),
            (is_good, vec![format!("{ASK} Bearer {token}")]),
            "{token}"
        );
    }
}

#[tokio::test]
async fn what_was_granted_is_shown_from_then_on() {
    let fake = Fake::start(|request| match request.authorization.as_str() {
        "Basic dTpw" => answer("200 OK", &[&digest_header(b"x")], b""),
        _ => answer("401 Unauthorized", &["WWW-Authenticate: Basic"], b""),
    });
    let session = fake.session(password());
    session.digest().await.unwrap();
    session.digest().await.unwrap();
    let shown = format!("{ASK} Basic dTpw");
    assert_eq!(fake.asked(), [ASK, &shown, &shown]);
}

#[tokio::test]
async fn a_redirect_elsewhere_carries_no_credentials() {
    let store = Fake::start(|_| answer("200 OK", &[&digest_header(b"x")], b""));
    let elsewhere = store.authority.clone();
    let fake = Fake::start(move |request| match request.authorization.as_str() {
        "" => answer("401 Unauthorized", &["WWW-Authenticate: Basic"], b""),
        _ => answer("307 Temporary", &[&format!("Location: http://{elsewhere}/signed?key=1#x")], b""),
    });
    fake.session(password()).digest().await.unwrap();
    assert_eq!(fake.asked(), [ASK, &format!("{ASK} Basic dTpw")]);
    assert_eq!(store.asked(), ["HEAD /signed?key=1"]);
    // Within the registry they go along.
    let fake = Fake::start(|request| match (request.authorization.as_str(), request.path.as_str()) {
        ("", _) => answer("401 Unauthorized", &["WWW-Authenticate: Basic"], b""),
        (_, "/moved") => answer("200 OK", &[&digest_header(b"x")], b""),
        _ => answer("301 Moved", &["Location: /moved"], b""),
    });
    fake.session(password()).digest().await.unwrap();
    assert_eq!(fake.asked()[2], "HEAD /moved Basic dTpw");
}

#[tokio::test]
async fn redirects_end_somewhere() {
    for (name, location, expect) in [
        ("in a circle", "/v2/a/manifests/1", "HOST/v2/a/manifests/1 leads to more than 10 redirects"),
        ("at no URL", "ht tp://x", "HOST/v2/a/manifests/1 redirects to something that is no URL"),
        ("in a file", "file:///etc/passwd", "HOST/v2/a/manifests/1 redirects to something that is no URL"),
        ("at no port", "http://127.0.0.1:65536/", "127.0.0.1:65536/: there is no such port"),
    ] {
        let fake = Fake::start(move |_| answer("302 Found", &[&format!("Location: {location}")], b""));
        let error = fake.session(None).digest().await.unwrap_err();
        let text = error.to_string().replace(&fake.authority, "HOST");
        assert_eq!(text, format!("http://{expect}"), "{name}");
    }
}

#[tokio::test]
async fn mirrors_get_no_pull_secret_and_the_registry_has_the_last_word() {
    let mirror = Fake::start(|_| answer("401 Unauthorized", &["WWW-Authenticate: Basic"], b""));
    let registry = Fake::start(|request| match request.authorization.as_str() {
        "" => answer("401 Unauthorized", &["WWW-Authenticate: Basic"], b""),
        _ => answer("404 Not Found", &[], b""),
    });
    let mut registries = Registries::default();
    let endpoint = vec![format!("http://{}", mirror.authority)];
    registries.mirrors.insert(registry.authority.clone(), Mirror { endpoint, ..Mirror::default() });
    let image = format!("{}/a:1", registry.authority);
    let error = session(registries, &image, password()).digest().await.unwrap_err();
    assert!(matches!(error, Error::NotFound(_)), "{error}");
    assert_eq!(mirror.asked(), [ASK]);
    assert_eq!(registry.asked(), [ASK, &format!("{ASK} Basic dTpw")]);
}
