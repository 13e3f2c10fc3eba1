use super::*;

fn endpoints(yaml: &str, image: &str) -> Vec<String> {
    let registries = Registries::parse(yaml).unwrap();
    let endpoints = registries.endpoints(&image.parse().unwrap());
    endpoints.iter().map(|endpoint| endpoint.url("x")).collect()
}

#[test]
fn each_image_has_its_places_in_order() {
    let hub = "https://registry-1.docker.io/v2";
    let mirrors = "mirrors: {docker.io: {endpoint: [m.example, 'http://n.example:5000/'], \
                   rewrite: {'^library/(.*)': 'proxy/$1'}}, '*': {endpoint: ['https://all.example/v2/all']}}";
    for (name, yaml, image, expect) in [
        ("the hub", "", "busybox", vec![format!("{hub}/library/busybox/x")]),
        ("another registry", "", "r.example/a/b", vec!["https://r.example/v2/a/b/x".into()]),
        ("this host without TLS", "", "localhost:5000/a", vec!["http://localhost:5000/v2/a/x".into()]),
        ("this host by address", "", "127.0.0.1:5000/a", vec!["http://127.0.0.1:5000/v2/a/x".into()]),
        ("this host by IPv6", "", "[::1]:5000/a", vec!["http://[::1]:5000/v2/a/x".into()]),
        ("this host at 443", "", "localhost:443/a", vec!["https://localhost:443/v2/a/x".into()]),
        (
            "this host with TLS",
            "configs: {'localhost:5000': {tls: {ca_file: /ca}}}",
            "localhost:5000/a",
            vec!["https://localhost:5000/v2/a/x".into()],
        ),
        (
            "mirrors with a rewrite, then the hub without",
            mirrors,
            "busybox",
            vec![
                "https://m.example/v2/proxy/busybox/x".into(),
                "http://n.example:5000/v2/proxy/busybox/x".into(),
                format!("{hub}/library/busybox/x"),
            ],
        ),
        (
            "a mirror of everything, with a path",
            mirrors,
            "r.example/a",
            vec!["https://all.example/v2/all/a/x".into(), "https://r.example/v2/a/x".into()],
        ),
        (
            "a registry that is its own mirror keeps its place and its names",
            "mirrors: {r.example: {endpoint: ['http://r.example', m.example], rewrite: {a: b}}}",
            "r.example/a",
            vec!["http://r.example/v2/a/x".into(), "https://m.example/v2/b/x".into()],
        ),
    ] {
        assert_eq!(endpoints(yaml, image), expect, "{name}");
    }
}

#[test]
fn what_is_wrong_is_named() {
    for (yaml, expect) in [
        ("mirrors: {a: {endpoint: ['ftp://x']}}", "mirrors[a].endpoint[0]: \"ftp://x\" must be a URL"),
        (
            "mirrors: {a: {endpoint: ['https://u:p@x']}}",
            "mirrors[a].endpoint[0]: \"https://u:p@x\" must be a URL",
        ),
        ("mirrors: {a: {rewrite: {'(': x}}}", "mirrors[a].rewrite: \"(\" must be a regular expression"),
        (
            "configs: {a: {tls: {cert_file: x}}}",
            "configs[a].tls: cert_file and key_file must be given together",
        ),
        ("configs: {a: {auth: {auth: '%'}}}", "configs[a].auth: auth must be username:password in base 64"),
    ] {
        assert_eq!(Registries::parse(yaml).unwrap_err().to_string(), expect);
    }
    let error = Registries::parse("mirror: {}").unwrap_err().to_string();
    assert!(error.contains("mirror"), "{error}");
}

#[test]
fn the_hub_has_two_names() {
    let yaml = "configs: {docker.io: {auth: {username: u, password: p}}}";
    let registries = Registries::parse(yaml).unwrap();
    assert!(registries.credentials("registry-1.docker.io").unwrap().is_some());
    assert!(registries.credentials("r.example").unwrap().is_none());
    assert!(!format!("{registries:?}").contains("\"p\""), "secrets are not shown");
}

/// Source: the examples of k3s' documentation, and what its YAML reader takes.
#[test]
fn settings_may_be_empty_at_every_level() {
    for (name, yaml) in [
        ("nothing", ""),
        ("blanks", " \n\n"),
        ("a comment", "# mirrors:\n"),
        ("an empty document", "---\n"),
        ("null", "null\n"),
        ("no settings", "{}"),
        ("no mirrors", "mirrors:\n"),
        ("no configs", "mirrors: {}\nconfigs:\n"),
        ("a mirror of nothing", "mirrors:\n  r.example:\n"),
        ("mirrors by the wildcard alone", "mirrors:\n  \"*\":\n"),
        ("no endpoints", "mirrors: {r.example: {endpoint: }}"),
        ("no rewrites", "mirrors: {r.example: {rewrite: }}"),
        ("a host without settings", "configs:\n  r.example:\n"),
        ("no credentials and no trust", "configs: {r.example: {auth: , tls: }}"),
        (
            "empty credentials",
            "configs: {r.example: {auth: {username: , password: , auth: , identity_token: }}}",
        ),
        (
            "empty trust",
            "configs: {r.example: {tls: {ca_file: , cert_file: , key_file: , insecure_skip_verify: }}}",
        ),
    ] {
        let registries = Registries::parse(yaml).unwrap_or_else(|error| panic!("{name}: {error}"));
        let found = registries.endpoints(&"r.example/a".parse().unwrap());
        let urls: Vec<String> = found.iter().map(|endpoint| endpoint.url("x")).collect();
        assert_eq!(urls, ["https://r.example/v2/a/x"], "{name}");
        assert_eq!(registries.credentials("r.example").unwrap(), None, "{name}");
    }
}

#[test]
fn mirrors_are_asked_once_each_and_under_their_own_names() {
    for (name, yaml, image, expect) in [
        (
            "one that is named twice",
            "mirrors: {r.example: {endpoint: [m.example, 'https://m.example/', 'https://m.example/v2']}}",
            "r.example/a",
            &["https://m.example/v2/a/x", "https://r.example/v2/a/x"][..],
        ),
        (
            "of all registries, but not of one that has its own",
            "mirrors: {'*': {endpoint: [all.example]}, r.example: {endpoint: [m.example]}}",
            "r.example/a",
            &["https://m.example/v2/a/x", "https://r.example/v2/a/x"],
        ),
        (
            "of one with a port, not of the same host without",
            "mirrors: {'r.example:5000': {endpoint: [m.example]}}",
            "r.example/a",
            &["https://r.example/v2/a/x"],
        ),
        (
            "the first rewrite that changes something, in the order of their texts",
            "mirrors: {r.example: {endpoint: [m.example], rewrite: {'^a$': 'first', '^(a)': 'second/$1', z: y}}}",
            "r.example/a",
            &["https://m.example/v2/second/a/x", "https://r.example/v2/a/x"],
        ),
        (
            "a rewrite that does not fit",
            "mirrors: {r.example: {endpoint: [m.example], rewrite: {'^b/(.*)': 'c/$1'}}}",
            "r.example/a/b/c",
            &["https://m.example/v2/a/b/c/x", "https://r.example/v2/a/b/c/x"],
        ),
        (
            "with other names of the fields",
            "mirrors: {r.example: {endpoints: [m.example], rewrites: {a: b}}}",
            "r.example/a",
            &["https://m.example/v2/b/x", "https://r.example/v2/a/x"],
        ),
        (
            "on this host",
            "mirrors: {r.example: {endpoint: ['localhost:5000', '127.0.0.1:443', '[::1]:5000', '127.1.2.3']}}",
            "r.example/a",
            &[
                "http://localhost:5000/v2/a/x",
                "https://127.0.0.1:443/v2/a/x",
                "http://[::1]:5000/v2/a/x",
                "http://127.1.2.3/v2/a/x",
                "https://r.example/v2/a/x",
            ],
        ),
        (
            "the hub's own host",
            "mirrors: {docker.io: {endpoint: ['https://registry-1.docker.io', m.example]}}",
            "busybox",
            &["https://registry-1.docker.io/v2/library/busybox/x", "https://m.example/v2/library/busybox/x"],
        ),
    ] {
        assert_eq!(endpoints(yaml, image), expect, "{name}");
    }
}

#[test]
fn what_names_no_mirror_is_refused() {
    let bad = |url: &str| format!("mirrors: {{r: {{endpoint: ['{url}']}}}}");
    for url in [
        "",
        "https://",
        "https:///v2",
        "https://a b",
        "https://m.example/v2?x=y",
        "https://m.example/v2#x",
        "https://m.example/../v2",
        "https://m.example/v2/..",
        "unix:///run/socket",
        "HTTPS://m.example",
        "u@m.example",
    ] {
        let error = Registries::parse(&bad(url)).unwrap_err().to_string();
        assert_eq!(error, format!("mirrors[r].endpoint[0]: {url:?} must be a URL"));
    }
    for (name, yaml) in [
        ("an unknown field", "mirrors: {r: {endpoint: [], skip: true}}"),
        ("an unknown setting of TLS", "configs: {r: {tls: {insecure: true}}}"),
        ("an unknown kind of credentials", "configs: {r: {auth: {token: x}}}"),
        ("a list of mirrors", "mirrors: [r]"),
        ("an endpoint that is no list", "mirrors: {r: {endpoint: {a: b}}}"),
        ("a switch that is none", "configs: {r: {tls: {insecure_skip_verify: maybe}}}"),
        ("no YAML", "mirrors: {"),
        ("a mirror that is there twice", "mirrors: {r: {}, r: {}}"),
        ("a key without its certificate", "configs: {r: {tls: {key_file: k}}}"),
        ("nested without end", &"[".repeat(100_000)),
    ] {
        let error = Registries::parse(yaml).expect_err(name).to_string();
        assert_eq!(error.lines().count(), 1, "{name}: {error}");
    }
}

#[test]
fn a_file_is_named_in_what_is_wrong_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("registries.yaml");
    assert_eq!(Registries::load(&path).unwrap(), Registries::default(), "none");
    std::fs::write(&path, "configs: {a: {tls: {ca_file: /ca, cert_file: /c, key_file: /k}}}").unwrap();
    let files: Vec<PathBuf> = Registries::load(&path).unwrap().files().map(Path::to_owned).collect();
    assert_eq!(files, ["/ca", "/c", "/k"].map(PathBuf::from));
    std::fs::write(&path, "mirrors: {a: {endpoint: ['ftp://x']}}").unwrap();
    let error = Registries::load(&path).unwrap_err().to_string();
    assert_eq!(error, format!("{}: mirrors[a].endpoint[0]: \"ftp://x\" must be a URL", path.display()));
    std::fs::write(&path, b"\xff").unwrap();
    assert!(Registries::load(&path).unwrap_err().to_string().contains("registries.yaml"));
    assert!(
        Registries::load(dir.path()).unwrap_err().to_string().contains(&dir.path().display().to_string())
    );
}
