//! Digests, manifests and configurations, from registries that are slack, broken or hostile.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;

#[tokio::test]
async fn answers_that_are_no_success_mean_what_upstreams_clients_take_them_for() {
    let long = "x".repeat(400);
    for (status, body, kind, text) in [
        ("401 Unauthorized", String::new(), "denied", String::new()),
        (
            "403 Forbidden",
            r#"{"errors": [{"code": "DENIED", "message": "no"}]}"#.into(),
            "denied",
            ": DENIED: no".into(),
        ),
        (
            "404 Not Found",
            r#"{"errors": [{"code": "MANIFEST_UNKNOWN"}]}"#.into(),
            "missing",
            ": MANIFEST_UNKNOWN: ".into(),
        ),
        ("404 Not Found", "<html>".into(), "missing", String::new()),
        ("404 Not Found", r#"{"errors": []}"#.into(), "missing", String::new()),
        ("404 Not Found", r#"{"errors": {"code": 5}}"#.into(), "missing", String::new()),
        ("408 Request Timeout", String::new(), "passing", String::new()),
        (
            "429 Too Many Requests",
            r#"{"errors": [{"code": "TOOMANYREQUESTS", "message": "a\u001b[2J\r\nb"}, {"code": "X"}]}"#
                .into(),
            "passing",
            ": TOOMANYREQUESTS: a[2Jb".into(),
        ),
        (
            "500 Internal Server Error",
            format!(r#"{{"errors": [{{"code": "UNKNOWN", "message": "{long}"}}]}}"#),
            "passing",
            format!(": UNKNOWN: {}", "x".repeat(291)),
        ),
        ("503 Service Unavailable", "[".repeat(100_000), "passing", String::new()),
        ("400 Bad Request", String::new(), "odd", String::new()),
        ("304 Not Modified", String::new(), "odd", String::new()),
        ("300 Multiple Choices", String::new(), "odd", String::new()),
        // A redirect that does not say where to.
        ("302 Found", String::new(), "odd", String::new()),
    ] {
        let told = body.clone();
        let fake = Fake::start(move |_| answer(status, &[], told.as_bytes()));
        let session = fake.session(None);
        let error = session.document(&session.hosts[0], "x", 10, HeaderMap::new()).await.unwrap_err();
        let found = match &error {
            Error::Denied(_) => "denied",
            Error::NotFound(_) => "missing",
            Error::Unavailable(_) => "passing",
            Error::Unexpected(_) => "odd",
            _ => "another",
        };
        assert_eq!(found, kind, "{status} {body}");
        let url = format!("http://{}/v2/a/x", fake.authority);
        let mut expect = format!("unexpected status from GET request to {url}: {status}{text}");
        if kind == "missing" {
            expect.push_str(": not found");
        }
        assert_eq!(error.to_string(), expect);
    }
}

#[tokio::test]
async fn a_tags_digest_is_what_the_registry_says_or_what_the_manifest_has() {
    let manifest = b"{}";
    let (other, own) = (Digest::of(b"other"), Digest::of(manifest));
    let (header, get) = (digest_header(b"other"), "GET /v2/a/manifests/1");
    let long = format!("sha512:{}", "0".repeat(128));
    for (name, head, expect, asked) in [
        ("it says so", answer("200 OK", &[&header], b""), &other, vec![ASK]),
        ("it says nothing", answer("200 OK", &[], b""), &own, vec![ASK, get]),
        ("it says nonsense", answer("200 OK", &["Docker-Content-Digest: md5:1"], b""), &own, vec![ASK, get]),
        ("it does not know HEAD", answer("405 Method Not Allowed", &[], b""), &own, vec![ASK, get]),
        (
            "it says it of another algorithm",
            answer("200 OK", &[&format!("Docker-Content-Digest: {long}")], b""),
            &long.parse().unwrap(),
            vec![ASK],
        ),
    ] {
        let fake = Fake::start(move |request| match request.line.starts_with("HEAD") {
            true => head.clone(),
            false => answer("200 OK", &[], manifest),
        });
        assert_eq!(fake.session(None).digest().await.unwrap(), *expect, "{name}");
        assert_eq!(fake.asked(), asked, "{name}");
    }
}

#[tokio::test]
async fn a_digest_that_was_asked_for_is_the_one_that_comes() {
    let of_reference = Digest::of(b"{}");
    for (name, header, body, is_right) in [
        ("the right one", Some(digest_header(b"{}")), "", true),
        ("another is said", Some(digest_header(b"other")), "", false),
        ("nothing is said, and it is right", None, "{}", true),
        ("nothing is said, and it is another", None, "{ }", false),
    ] {
        let fake = Fake::start(move |request| match (request.line.starts_with("HEAD"), &header) {
            (true, Some(header)) => answer("200 OK", &[header], b""),
            (true, None) => answer("200 OK", &[], b""),
            (false, _) => answer("200 OK", &[], body.as_bytes()),
        });
        let image = format!("{}/a@{of_reference}", fake.authority);
        let found = session(Registries::default(), &image, None).digest().await;
        match is_right {
            true => assert_eq!(found.unwrap(), of_reference, "{name}"),
            false => assert!(matches!(found, Err(Error::Digest { .. })), "{name}"),
        }
    }
}

/// A registry of these documents, by their digests.
fn serve(documents: &[Vec<u8>]) -> Fake {
    let known: BTreeMap<String, Vec<u8>> =
        documents.iter().map(|bytes| (Digest::of(bytes).to_string(), bytes.clone())).collect();
    Fake::start(move |request| match known.get(request.path.rsplit('/').next().unwrap()) {
        Some(bytes) => answer("200 OK", &[], bytes),
        None => answer("404 Not Found", &[], b""),
    })
}

fn descriptor(of: &[u8], more: Value) -> Value {
    let mut descriptor = json!({"digest": Digest::of(of).to_string(), "size": of.len()});
    descriptor.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    descriptor
}

fn manifest(config: &[u8]) -> Vec<u8> {
    json!({"config": descriptor(config, json!({})), "layers": []}).to_string().into_bytes()
}

fn index(of: &[u8], platform: Value) -> Vec<u8> {
    json!({"manifests": [descriptor(of, json!({"platform": platform}))]}).to_string().into_bytes()
}

fn host() -> Platform {
    Platform { os: "linux".into(), architecture: "amd64".into(), variant: String::new() }
}

async fn image(fake: &Fake, document: &[u8]) -> Result<Vec<u8>, Error> {
    fake.session(None).image(&Digest::of(document), &host()).await.map(|resolved| resolved.config)
}

#[tokio::test]
async fn an_image_is_found_below_indexes_but_not_below_endless_ones() {
    let config = b"{\"os\": \"linux\"}".to_vec();
    let mut documents = vec![config.clone(), manifest(&config)];
    for depth in 0..=INDEX_DEPTH_MAX + 1 {
        let top = documents.last().unwrap().clone();
        let found = image(&serve(&documents), &top).await;
        match depth <= INDEX_DEPTH_MAX {
            true => assert_eq!(found.unwrap(), config, "{depth}"),
            false => {
                assert!(found.unwrap_err().to_string().ends_with("indexes nested too deeply"), "{depth}")
            }
        }
        documents.push(index(&top, json!({"os": "linux", "architecture": "amd64"})));
    }
}

#[tokio::test]
async fn images_that_are_not_whole_say_what_is_missing() {
    let config = b"{}".to_vec();
    let good = manifest(&config);
    let arm = index(&good, json!({"os": "linux", "architecture": "arm64"}));
    let large = vec![b' '; 4 << 20];
    let larger = [large.clone(), vec![b' ']].concat();
    let huge_config = vec![b' '; (8 << 20) + 1];
    let of_huge = manifest(&huge_config);
    for (name, top, documents, expect) in [
        ("no manifest", &good, vec![], "404 Not Found: not found".to_owned()),
        ("no configuration", &good, vec![&good], "404 Not Found: not found".to_owned()),
        (
            "another machine's",
            &arm,
            vec![&arm, &good],
            format!("no match for platform linux/amd64 in manifest {}: not found", Digest::of(&arm)),
        ),
        ("no JSON", &large, vec![&large], "EOF while parsing a value at line 1 column 4194304".to_owned()),
        ("a byte too much", &larger, vec![&larger], "is larger than 4194304 bytes".to_owned()),
        (
            "a configuration too much",
            &of_huge,
            vec![&of_huge, &huge_config],
            "is larger than 8388608 bytes".to_owned(),
        ),
    ] {
        let documents: Vec<Vec<u8>> = documents.into_iter().cloned().collect();
        let error = image(&serve(&documents), top).await.unwrap_err().to_string();
        assert!(error.ends_with(&expect), "{name}: {error}");
    }
}

#[tokio::test]
async fn documents_that_are_not_what_their_digests_say_are_refused() {
    let config = b"{}".to_vec();
    let good = manifest(&config);
    for (name, lie) in [("the manifest", "manifests"), ("the configuration", "blobs")] {
        let (good, config) = (good.clone(), config.clone());
        let wanted = Digest::of(&good);
        let fake = Fake::start(move |request| {
            let is_manifest = request.path.contains("/manifests/");
            let mut bytes = if is_manifest { good.clone() } else { config.clone() };
            if request.path.contains(lie) {
                bytes.push(b' ');
            }
            // What is said of it does not count.
            answer("200 OK", &[&format!("Docker-Content-Digest: {wanted}")], &bytes)
        });
        let error = image(&fake, &manifest(b"{}")).await.unwrap_err();
        assert!(matches!(error, Error::Digest { .. }), "{name}: {error}");
    }
}
