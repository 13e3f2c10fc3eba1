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
        ("part of a label", &["r-*.ex?mple"], "r-1.example/a", &["r-*.ex?mple"]),
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

/// Source: `TestDockerConfigEntryJSONDecode`, `TestReadDockerConfigJSONFileFromBytes` and
/// `TestReadDockerConfigFileFromBytes` of upstream's `pkg/credentialprovider`, and what Go's JSON takes.
#[test]
fn entries_are_read_as_upstream_reads_them() {
    for (name, entry, expect) in [
        ("fields", r#"{"username": "foo", "password": "bar", "email": "e"}"#, Some(("foo", "bar"))),
        ("both in one", r#"{"auth": "Zm9vOmJhcg==", "email": "e"}"#, Some(("foo", "bar"))),
        (
            "both in one come first",
            r#"{"username": "foo", "password": "bar", "auth": "cGluZzpwb25n"}"#,
            Some(("ping", "pong")),
        ),
        ("both in one, and wrong", r#"{"auth": "pants", "email": "e"}"#, None),
        ("wrong, although there are fields", r#"{"username": "foo", "password": "bar", "auth": "%"}"#, None),
        ("no pair", r#"{"auth": "cGFudHM="}"#, None),
        ("no text", r#"{"email": false}"#, None),
        ("a number", r#"{"password": 5}"#, None),
        ("a list", "[]", None),
        ("a list of fields", r#"["foo", "bar", "", ""]"#, None),
        (
            "twice, the last counts",
            r#"{"username": "a", "username": "foo", "password": "bar"}"#,
            Some(("foo", "bar")),
        ),
        ("nothing", "null", Some(("", ""))),
        ("no fields", "{}", Some(("", ""))),
        ("empty fields", r#"{"username": null, "password": null, "auth": null}"#, Some(("", ""))),
        ("fields of others", r#"{"identitytoken": "i", "username": "u"}"#, Some(("u", ""))),
        ("cut off", r#"{"username": "foo""#, None),
    ] {
        let inner = format!(r#"{{"http://r.example": {entry}}}"#);
        let outer = format!(r#"{{"auths": {inner}}}"#);
        for (kind, text) in [("dockercfg", &inner), ("dockerconfigjson", &outer)] {
            let keyring = Keyring::of(&[secret(kind, &format!(".{kind}"), text)]).ok();
            let found = keyring.map(|keyring| keyring.lookup("r.example/a").remove(0).auth);
            let found = found.map(|auth| (auth.username, auth.password));
            let found = found.as_ref().map(|(name, word)| (name.as_str(), word.as_str()));
            assert_eq!(found, expect, "{name} in {kind}");
        }
    }
    for (kind, text) in [
        ("dockercfg", "[]"),
        ("dockercfg", r#""text""#),
        ("dockerconfigjson", "[]"),
        ("dockerconfigjson", r#"[{"r": {"auth": "Zm9vOmJhcg=="}}]"#),
        ("dockerconfigjson", r#"{"auths": []}"#),
        ("dockerconfigjson", r#"{"auths": 7}"#),
    ] {
        let keyring = Keyring::of(&[secret(kind, &format!(".{kind}"), text)]);
        assert!(keyring.is_err(), "{text} in {kind}");
    }
    let wrong = Keyring::of(&[secret("dockercfg", ".dockercfg", r#"{"r": {"auth": "cGFudHM="}}"#)]);
    assert_eq!(
        wrong.err().unwrap().to_string(),
        "unable to parse auth field, must be formatted as base64(username:password)"
    );
}

/// Source: `Test_MakeDockerKeyring` of upstream's `pkg/credentialprovider/secrets`.
#[test]
fn only_what_a_type_promises_is_read() {
    let (json, cfg) =
        (r#"{"auths": {"test.registry.io": {"auth": "dTpw"}}}"#, r#"{"test.registry.io": {"auth": "dTpw"}}"#);
    for (name, kind, key, text, expect) in [
        ("dockerconfigjson", "dockerconfigjson", ".dockerconfigjson", json, 1),
        ("dockercfg", "dockercfg", ".dockercfg", cfg, 1),
        ("the other's key", "dockercfg", ".dockerconfigjson", json, 0),
        ("the one's key", "dockerconfigjson", ".dockercfg", cfg, 0),
        ("another host", "dockercfg", ".dockercfg", r#"{"foobar.io": {"auth": "dTpw"}}"#, 0),
        ("another type", "basic-auth", ".dockercfg", cfg, 0),
        ("empty", "dockercfg", ".dockercfg", "", 0),
        ("empty, too", "dockerconfigjson", ".dockerconfigjson", "", 0),
        ("no hosts", "dockerconfigjson", ".dockerconfigjson", "{}", 0),
        ("null hosts", "dockerconfigjson", ".dockerconfigjson", r#"{"auths": null}"#, 0),
        ("helpers of Docker's", "dockerconfigjson", ".dockerconfigjson", r#"{"credsStore": "x"}"#, 0),
    ] {
        let keyring =
            Keyring::of(&[secret(kind, key, text)]).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(keyring.lookup("test.registry.io/a").len(), expect, "{name}");
    }
    assert!(Keyring::of(&[Arc::new(Secret::default())]).unwrap().lookup("a").is_empty());
}

/// Source: `TestDockerKeyringLookup`, `TestIssue3797` and `Test_MakeDockerKeyring` of upstream.
#[test]
fn credentials_have_upstreams_hashes() {
    for (entry, expect) in [
        (
            r#"{"username": "ada", "password": "smash", "email": "ada@example.com"}"#,
            "353258b53f5e9a57b059eab3f05312fc35bbeb874f08ce101e7bf0bf46977423",
        ),
        (
            r#"{"username": "grace", "password": "squash", "email": "grace@example.com"}"#,
            "f949b3837a1eb733a951b6aeda0b3327c09ec50c917de9ca35818e8fbf567e29",
        ),
        (
            r#"{"username": "rex", "password": "tiny arms", "email": "rex@example.com"}"#,
            "899748fec74c8dd761845fca727f4249b05be275ff24026676fcd4351f656363",
        ),
        (
            r#"{"auth": "dXNlcjpwYXNzd29yZA=="}"#,
            "a55436fc140d516560d072c5fe8700385ce9f41629abf65c1edcbcb39fac691d",
        ),
        (
            r#"{"username": "user", "password": "password"}"#,
            "a55436fc140d516560d072c5fe8700385ce9f41629abf65c1edcbcb39fac691d",
        ),
    ] {
        let text = format!(r#"{{"r.example": {entry}}}"#);
        let keyring = Keyring::of(&[secret("dockercfg", ".dockercfg", &text)]).unwrap();
        let hashes: Vec<&str> = keyring.secrets().map(|source| source.hash.as_str()).collect();
        assert_eq!(hashes, [expect], "{entry}");
    }
    let plain = Entry { username: "u".into(), password: "a<b>&\u{2028}\"".into(), ..Entry::default() };
    let escaped = r#"{"username":"u","password":"a\u003cb\u003e\u0026\u2028\""}"#;
    assert_eq!(hash_of(&plain).unwrap(), registry::Digest::of(escaped.as_bytes()).hex());
}

/// Source: `TestDockerKeyringForGlob` and `TestKeyringMiss` of upstream's `pkg/credentialprovider`.
#[test]
fn locations_are_found_by_images_below_them() {
    for (location, image, expect) in [
        ("https://hello.kubernetes.io", "hello.kubernetes.io", true),
        ("https://*.docker.io", "prefix.docker.io", true),
        ("https://prefix.*.io", "prefix.docker.io", true),
        ("https://prefix.docker.*", "prefix.docker.io", true),
        ("https://*.docker.io/path", "prefix.docker.io/path", true),
        ("https://prefix.*.io/path", "prefix.docker.io/path/subpath", true),
        ("https://prefix.docker.*/path", "prefix.docker.io/path", true),
        ("https://*.docker.io:8888", "prefix.docker.io:8888", true),
        ("https://prefix.*.io:8888", "prefix.docker.io:8888", true),
        ("https://prefix.docker.*:8888", "prefix.docker.io:8888", true),
        ("https://*.docker.io/path:1111", "prefix.docker.io/path:1111", true),
        ("https://*.docker.io/v1/", "prefix.docker.io/path:1111", true),
        ("https://*.docker.io/v2/", "prefix.docker.io/path:1111", true),
        ("https://prefix.docker.*/path:1111", "prefix.docker.io/path:1111", true),
        ("prefix.docker.io:1111", "prefix.docker.io:1111/path", true),
        ("*.docker.io:1111", "prefix.docker.io:1111/path", true),
        ("https://hello.kubernetes.io", "world.mesos.org/foo/bar", false),
        ("https://*.docker.com", "prefix.docker.io", false),
        ("https://suffix.*.io", "prefix.docker.io", false),
        ("https://prefix.docker.c*", "prefix.docker.io", false),
        ("https://prefix.*.io/path:1111", "prefix.docker.io/path/subpath:1111", false),
        ("suffix.*.io", "prefix.docker.io", false),
        ("https://index.docker.io/v1/", "world.mesos.org/foo/bar", false),
        ("https://index.docker.io/v1/", "google/docker-registry", true),
        ("https://index.docker.io/v1/", "index.docker.io/google/docker-registry", true),
    ] {
        let found = users(&format!(r#"{{"{location}": {{"username": "u"}}}}"#), &format!("{image}/foo/bar"));
        assert_eq!(!found.is_empty(), expect, "{location} {image}");
    }
    let auths = r#"{"bar.example.com/pong": {"username": "grace"}, "bar.example.com": {"username": "ada"}}"#;
    for (image, expect) in [
        ("bar.example.com", &["ada"][..]),
        ("bar.example.com/pong", &["grace", "ada"]),
        ("bar.example.com/ping", &["ada"]),
        ("bar.example.com/pongz", &["grace", "ada"]),
        ("bar.example.com/pong/pang", &["grace", "ada"]),
        ("example.com", &[]),
        ("foo.example.com", &[]),
    ] {
        assert_eq!(users(auths, image), expect, "{image}");
    }
}
