//! A registry that believes only what a token service says. Source: Docker Registry v2 authentication via central service.

use std::io::{BufRead, BufReader};
use std::sync::Mutex as StdMutex;

use super::*;

/// Serves one image, and the tokens for it, on loopback.
struct Tokens {
    address: SocketAddr,
    /// What was asked for: path, and the kind of authorization.
    asked: Arc<StdMutex<Vec<(String, String)>>>,
}

/// Of `knarr` and `secret`.
const PASSWORD: &str = "Basic a25hcnI6c2VjcmV0";

impl Tokens {
    fn start(image: TestImage) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(StdMutex::new(Vec::new()));
        let (log, image) = (Arc::clone(&asked), Arc::new(image));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (log, image) = (Arc::clone(&log), Arc::clone(&image));
                std::thread::spawn(move || answer(client.unwrap(), address, &log, &image));
            }
        });
        Self { address, asked }
    }

    fn asked(&self, beginning: &str) -> Vec<(String, String)> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|(path, _)| path.starts_with(beginning)).cloned().collect()
    }
}

fn answer(
    mut client: TcpStream,
    address: SocketAddr,
    log: &StdMutex<Vec<(String, String)>>,
    image: &TestImage,
) {
    let mut lines = BufReader::new(client.try_clone().unwrap()).lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    let headers: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let authorization = headers.iter().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("authorization").then(|| value.to_owned())
    });
    let authorization = authorization.unwrap_or_default();
    let mut words = first.split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    log.lock().unwrap().push((path.to_owned(), authorization.clone()));
    let (status, kind, body): (&str, &str, &[u8]) = if path.starts_with("/token") {
        match authorization == PASSWORD {
            true => ("200 OK", "application/json", br#"{"token": "good", "expires_in": 300}"#),
            false => {
                ("401 Unauthorized", "application/json", br#"{"details": "incorrect username or password"}"#)
            }
        }
    } else if authorization != "Bearer good" {
        (
            "401 Unauthorized",
            "application/json",
            br#"{"errors": [{"code": "UNAUTHORIZED", "message": "token"}]}"#,
        )
    } else {
        let name = path.rsplit('/').next().unwrap();
        let manifest = image.manifests.iter().find(|(reference, _, body)| {
            path.contains("/manifests/") && (reference == name || Digest::of(body).to_string() == name)
        });
        let blobs = image.layers.iter().map(|(_, blob)| blob).chain([&image.config]);
        match (manifest, blobs.into_iter().find(|blob| Digest::of(blob).to_string() == name)) {
            (Some((_, kind, body)), _) => ("200 OK", kind, body),
            (None, Some(blob)) => ("200 OK", "application/octet-stream", blob),
            (None, None) => ("404 Not Found", "application/json", b"{}"),
        }
    };
    let mut head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n",
        body.len()
    );
    if path.contains("/manifests/") {
        head += &format!("Docker-Content-Digest: {}\r\n", Digest::of(body));
    }
    if status.starts_with("401") {
        head += &format!(
            "WWW-Authenticate: Bearer realm=\"http://{address}/token\",service=\"registry.test\",\
             scope=\"repository:{}:pull\"\r\n",
            image.name
        );
    }
    let body = if method == "HEAD" { &[] } else { body };
    client.write_all(&[head.as_bytes(), b"\r\n", body].concat()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_service_is_asked_once_and_gets_the_password_which_the_registry_does_not() {
    let registry = Tokens::start(TestImage::new("team/x", 10_000, OCI));
    let node = Node::new("");
    let name = format!("{}/team/x:1", registry.address);
    let pulled = node.pull(&name, "secret").await.unwrap();
    assert!(node.file(&pulled, "file-1") == noise(10_000, 1));
    let tokens = registry.asked("/token");
    assert_eq!(tokens.len(), 1, "{tokens:?}");
    for part in ["service=registry.test", "scope=repository%3Ateam%2Fx%3Apull"] {
        assert!(tokens[0].0.contains(part), "{}", tokens[0].0);
    }
    let registry_saw: BTreeSet<String> = registry.asked("/v2/").into_iter().map(|(_, kind)| kind).collect();
    assert_eq!(registry_saw, BTreeSet::from([String::new(), "Bearer good".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_gets_no_token_is_denied() {
    let registry = Tokens::start(TestImage::new("team/x", 1000, OCI));
    let node = Node::new("");
    let error = node.pull(&format!("{}/team/x:1", registry.address), "wrong").await.unwrap_err();
    assert!(error.contains("401 Unauthorized"), "{error}");
    assert!(node.store.list().is_empty());
}
