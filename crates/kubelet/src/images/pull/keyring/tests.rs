use std::sync::Arc;

use k8s_openapi::ByteString;

use super::*;

fn secret(kind: &str, key: &str, text: &str) -> Arc<Secret> {
    Arc::new(Secret {
        type_: Some(format!("kubernetes.io/{kind}")),
        data: Some([(key.to_owned(), ByteString(text.as_bytes().to_vec()))].into()),
        ..Secret::default()
    })
}

fn users(auths: &str, repository: &str) -> Vec<String> {
    let text = format!(r#"{{"auths": {auths}}}"#);
    let keyring = Keyring::of(&[secret("dockerconfigjson", ".dockerconfigjson", &text)]).unwrap();
    keyring.lookup(repository).into_iter().map(|it| it.auth.username).collect()
}

#[test]
fn secrets_are_for_the_images_that_upstream_says() {
    for (name, keys, repository, expect) in [
        ("host", &["r.example"][..], "r.example/a/b", &["r.example"][..]),
        ("another host", &["r.example"], "s.example/a", &[]),
        ("port", &["r.example:5000"], "r.example:5000/a", &["r.example:5000"]),
        ("another port", &["r.example"], "r.example:5000/a", &[]),
        ("a label", &["*.example"], "r.example/a", &["*.example"]),
        ("a star is one label", &["*.example"], "a.r.example/a", &[]),
        ("part of a label", &["r-*.ex*mple"], "r-1.example/a", &["r-*.ex*mple"]),
        ("what looks like a query", &["r.ex?mple"], "r.example/a", &[]),
        ("a query and a fragment", &["r.example?a=b#c"], "r.example/a", &["r.example?a=b#c"]),
        ("a user", &["https://me@r.example/a"], "r.example/a", &["https://me@r.example/a"]),
        ("a star is no host", &["*"], "r.example/a", &[]),
        ("path", &["r.example/a"], "r.example/a/b", &["r.example/a"]),
        ("another path", &["r.example/b"], "r.example/a", &[]),
        ("longer first", &["r.example", "r.example/a"], "r.example/a", &["r.example/a", "r.example"]),
        ("scheme and version", &["https://r.example/v2/"], "r.example/a", &["https://r.example/v2/"]),
        (
            "the hub",
            &["https://index.docker.io/v1/"],
            "docker.io/library/a",
            &["https://index.docker.io/v1/"],
        ),
        ("the hub by its other name", &["docker.io"], "docker.io/library/a", &["docker.io"]),
        ("not the hub", &["https://index.docker.io/v1/"], "r.example/a", &[]),
    ] {
        let auths: Vec<String> =
            keys.iter().map(|key| format!(r#""{key}": {{"username": "{key}", "password": "p"}}"#)).collect();
        assert_eq!(users(&format!("{{{}}}", auths.join(",")), repository), expect, "{name}");
    }
}

/// Source: `TestDecodeDockerConfigFieldAuth` of upstream's `pkg/credentialprovider`.
#[test]
fn a_pair_is_read_with_and_without_padding() {
    for (auth, expect) in [
        ("Zm9vOmJhcg==", Some(("foo", "bar"))),
        ("Zm9vOmJhcg", Some(("foo", "bar"))),
        ("Zm9vOm\nJhcg==\n", Some(("foo", "bar"))),
        ("Zm9vOm\r\nJhcg\n", Some(("foo", "bar"))),
        ("cGFudHM=", None),
        ("Zm9vOmJhcg== ", None),
        ("Zm9vOmJhcg=", None),
        ("pants", None),
        ("", None),
    ] {
        let expect = expect.map(|(user, password)| (user.to_owned(), password.to_owned()));
        assert_eq!(decoded(auth), expect, "{auth:?}");
    }
}

/// Source: `TestURLsMatch` and `TestIsDefaultRegistryMatch` of upstream's `pkg/credentialprovider`.
#[test]
fn keys_match_label_by_label() {
    for (key, repository, expect) in [
        ("*.k8s.io", "a.k8s.io", true),
        ("a.*.io", "a.k8s.io", true),
        ("a.k8s.*", "a.k8s.io", true),
        ("*-good.k8s.io", "a-good.k8s.io", true),
        ("*.k8s.io/blah", "a.k8s.io/blah", true),
        ("a.*.io/foo", "a.k8s.io/foo/bar", true),
        ("*.k8s.io:1111/blah", "a.k8s.io:1111/blah", true),
        ("a.*.io:1111/foo", "a.k8s.io:1111/foo/bar", true),
        ("*k8s.io", "k8s.io", true),
        ("*.*.*.k8s.io", "a.b.c.k8s.io", true),
        ("*.k8s.io", "k8s.io", false),
        ("*.*.k8s.io", "a.k8s.io", false),
        ("*.*.k8s.io", "k8s.io", false),
        ("*k8s.io", "a.k8s.io", false),
        ("k8s.io", "k8s.com", false),
        ("k*.io", "quay.io", false),
        ("*.k8s.io:1234/blah", "a.k8s.io:1111/blah", false),
        ("a.*.io/foo", "a.k8s.io:1111/foo/bar", false),
    ] {
        assert_eq!(matches(key, repository), expect, "{key} {repository}");
    }
    for (repository, expect) in [
        ("foo", true),
        ("foo/bar", true),
        ("docker.io/foo/bar", true),
        ("index.docker.io/foo/bar", true),
        ("", false),
        ("/foo", false),
        ("registry.tld/foo/bar", false),
        ("registry:5000/foo/bar", false),
        ("myhostdocker.io/foo/bar", false),
    ] {
        assert_eq!(is_default_registry(repository), expect, "{repository:?}");
    }
}

#[test]
fn both_types_of_secrets_are_read() {
    let text = r#"{"r.example": {"auth": "dTpwOnE="}}"#;
    let keyring = Keyring::of(&[secret("dockercfg", ".dockercfg", text)]).unwrap();
    let found = keyring.lookup("r.example/a").remove(0);
    assert_eq!((found.auth.username.as_str(), found.auth.password.as_str()), ("u", "p:q"));
    assert!(Keyring::of(&[secret("dockercfg", ".dockercfg", "{")]).is_err());
    assert!(Keyring::of(&[secret("Opaque", ".dockercfg", "{")]).is_ok());
}

const NEW: &str = "dockerconfigjson";
const OLD: &str = "dockercfg";
const AUTH: &str = "unable to parse auth field, must be formatted as base64(username:password)";

/// The type of a secret, its key, its text, and what is found in it.
type Case = (&'static str, &'static str, &'static str, &'static str, Result<&'static str, &'static str>);

const SECRETS: &[Case] = &[
    ("a pair", NEW, NEW, r#"{"auths": {"r.io": {"auth": "dXNlcjpwYXNzd29yZA=="}}}"#, Ok("user/password")),
    ("a pair of old", OLD, OLD, r#"{"r.io": {"auth": "dXNlcjpwYXNzd29yZA=="}}"#, Ok("user/password")),
    ("both apart", NEW, NEW, r#"{"auths": {"r.io": {"username": "u", "password": "p"}}}"#, Ok("u/p")),
    ("both apart of old", OLD, OLD, r#"{"r.io": {"username": "u", "password": "p"}}"#, Ok("u/p")),
    ("new under an old type", OLD, NEW, r#"{"auths": {"r.io": {"auth": "dTpw"}}}"#, Ok("")),
    ("old under a new type", NEW, OLD, r#"{"r.io": {"auth": "dTpw"}}"#, Ok("")),
    ("of another registry", NEW, NEW, r#"{"auths": {"other.io": {"auth": "dTpw"}}}"#, Ok("")),
    (
        "a pair wins",
        OLD,
        OLD,
        r#"{"r.io": {"username": "a", "password": "b", "auth": "cGluZzpwb25n"}}"#,
        Ok("ping/pong"),
    ),
    ("no pair", OLD, OLD, r#"{"r.io": {"auth": "pants", "email": "foo@example.com"}}"#, Err(AUTH)),
    (
        "no pair beside a right one",
        NEW,
        NEW,
        r#"{"auths": {"a.io": {"auth": "%"}, "r.io": {"auth": "dTpw"}}}"#,
        Err(AUTH),
    ),
    (
        "a number",
        OLD,
        OLD,
        r#"{"r.io": {"username": 1}}"#,
        Err("invalid type: integer `1`, expected a string"),
    ),
    (
        "no text",
        OLD,
        OLD,
        r#"{"r.io": {"email": false}}"#,
        Err("invalid type: boolean `false`, expected a string"),
    ),
    ("no end", NEW, NEW, r#"{"auths": {"r.io": {"username": "u""#, Err("EOF while parsing")),
    ("nothing", NEW, NEW, "", Ok("")),
    ("nothing of old", OLD, OLD, "", Ok("")),
    ("null", NEW, NEW, "null", Ok("")),
    ("null of old", OLD, OLD, "null", Ok("")),
    ("no registries", NEW, NEW, r#"{"HttpHeaders": {}}"#, Ok("")),
    ("null for registries", NEW, NEW, r#"{"auths": null}"#, Ok("")),
    ("null for a registry", NEW, NEW, r#"{"auths": {"r.io": null}}"#, Ok("/")),
    (
        "null for a pair",
        NEW,
        NEW,
        r#"{"auths": {"r.io": {"username": "u", "password": null, "auth": null}}}"#,
        Ok("u/"),
    ),
    (
        "an empty pair",
        NEW,
        NEW,
        r#"{"auths": {"r.io": {"username": "u", "password": "p", "auth": ""}}}"#,
        Ok("u/p"),
    ),
    (
        "what nobody knows",
        OLD,
        OLD,
        r#"{"r.io": {"username": "u", "password": "p", "identitytoken": "t"}}"#,
        Ok("u/p"),
    ),
];

/// Source: `Test_MakeDockerKeyring`, `TestDockerConfigEntryJSONDecode` and `TestReadDockerConfig*FromBytes` of upstream's
/// `pkg/credentialprovider`.
#[test]
fn secrets_are_read_as_go_reads_json() {
    for (name, kind, key, text, expect) in SECRETS {
        let found = Keyring::of(&[secret(kind, &format!(".{key}"), text)]);
        let found = found.map(|keyring| {
            let all = keyring.lookup("r.io/a").into_iter();
            all.map(|it| format!("{}/{}", it.auth.username, it.auth.password)).collect::<Vec<_>>().join(" ")
        });
        match (found.map_err(|error| error.to_string()), expect) {
            (Err(error), Err(expect)) => assert!(error.contains(expect), "{name}: {error}"),
            (found, expect) => {
                assert_eq!(found.as_deref(), expect.map_err(str::to_owned).as_ref().map(|it| *it), "{name}")
            }
        }
    }
}

/// Source: `TestDockerKeyringLookup`, `TestIssue3797` and `Test_MakeDockerKeyring` of upstream's `pkg/credentialprovider`;
/// the last three are what Go's `json.Marshal` makes of such text.
#[test]
fn credentials_are_known_by_upstreams_hash() {
    for (user, password, email, expect) in [
        ("user", "password", "", "a55436fc140d516560d072c5fe8700385ce9f41629abf65c1edcbcb39fac691d"),
        (
            "ada",
            "smash",
            "ada@example.com",
            "353258b53f5e9a57b059eab3f05312fc35bbeb874f08ce101e7bf0bf46977423",
        ),
        (
            "grace",
            "squash",
            "grace@example.com",
            "f949b3837a1eb733a951b6aeda0b3327c09ec50c917de9ca35818e8fbf567e29",
        ),
        (
            "rex",
            "tiny arms",
            "rex@example.com",
            "899748fec74c8dd761845fca727f4249b05be275ff24026676fcd4351f656363",
        ),
        ("", "", "", "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"),
        ("u", "<&>\"\\", "", "029f23f22303943e4ac50f1035ed1b78c36718ea6cead2885f49dd0ea8a99b4b"),
        ("ü", "\u{2028}\t", "", "498fc2801d42cabef518979684f6a37e3678fc2a9076a32e112b3a3f698ab015"),
    ] {
        let entry = serde_json::json!({"r.io": {"username": user, "password": password, "email": email}});
        let keyring = Keyring::of(&[secret("dockercfg", ".dockercfg", &entry.to_string())]).unwrap();
        let found = keyring.lookup("r.io/a").remove(0);
        assert_eq!(found.source.map(|source| source.hash).as_deref(), Some(expect), "{user:?} {password:?}");
    }
}

/// Source: `TestDockerKeyringForGlob`, `TestKeyringMiss*`, `TestKeyringHit*`, `TestDockerKeyringLookup` and `TestIssue3797` of
/// upstream's `pkg/credentialprovider`. `~` stands before keys that are not found.
#[test]
fn images_find_their_credentials() {
    for row in [
        "hello.kubernetes.io/foo/bar https://hello.kubernetes.io",
        "prefix.docker.io/foo/bar https://*.docker.io",
        "prefix.docker.io/foo/bar https://prefix.*.io",
        "prefix.docker.io/foo/bar https://prefix.docker.*",
        "prefix.docker.io/path/foo/bar https://*.docker.io/path",
        "prefix.docker.io/path/subpath/foo/bar https://prefix.*.io/path",
        "prefix.docker.io/path/foo/bar https://prefix.docker.*/path",
        "prefix.docker.io:8888/foo/bar https://*.docker.io:8888",
        "prefix.docker.io:8888/foo/bar https://prefix.*.io:8888",
        "prefix.docker.io:8888/foo/bar https://prefix.docker.*:8888",
        "prefix.docker.io/path:1111/foo/bar https://*.docker.io/path:1111",
        "prefix.docker.io/path:1111/foo/bar https://*.docker.io/v1/",
        "prefix.docker.io/path:1111/foo/bar https://*.docker.io/v2/",
        "prefix.docker.io/path:1111/foo/bar https://prefix.docker.*/path:1111",
        "prefix.docker.io:1111/path/foo/bar prefix.docker.io:1111",
        "prefix.docker.io:1111/path/foo/bar *.docker.io:1111",
        "world.mesos.org/foo/bar ~https://hello.kubernetes.io",
        "prefix.docker.io/foo/bar ~https://*.docker.com",
        "prefix.docker.io/foo/bar ~https://suffix.*.io",
        "prefix.docker.io/foo/bar ~https://prefix.docker.c*",
        "prefix.docker.io/path/subpath:1111/foo/bar ~https://prefix.*.io/path:1111",
        "prefix.docker.io/foo/bar ~suffix.*.io",
        "world.mesos.org/foo/bar ~https://index.docker.io/v1/",
        "google/docker-registry https://index.docker.io/v1/",
        "jenkins https://index.docker.io/v1/",
        "index.docker.io/v1/google/docker-registry https://index.docker.io/v1/",
        "bar.example.com ~bar.example.com/pong bar.example.com",
        "bar.example.com/pong bar.example.com/pong bar.example.com",
        "bar.example.com/ping ~bar.example.com/pong bar.example.com",
        "bar.example.com/pongz bar.example.com/pong bar.example.com",
        "bar.example.com/pong/pang bar.example.com/pong bar.example.com",
        "example.com ~bar.example.com/pong ~bar.example.com",
        "foo.example.com ~bar.example.com/pong ~bar.example.com",
        "quay.io https://quay.io/v1/",
        "quay.io/foo https://quay.io/v1/",
        "quay.io/foo/bar https://quay.io/v1/",
    ] {
        let (image, keys) = row.split_once(' ').unwrap();
        let bare = |key: &str| key.trim_start_matches('~').to_owned();
        let entry = |key: &str| format!(r#""{}": {{"username": "{0}", "password": "p"}}"#, bare(key));
        let auths: Vec<String> = keys.split(' ').map(entry).collect();
        let expect: Vec<String> = keys.split(' ').filter(|key| !key.starts_with('~')).map(bare).collect();
        assert_eq!(users(&format!("{{{}}}", auths.join(",")), image), expect, "{row}");
    }
}
