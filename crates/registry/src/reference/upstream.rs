//! The cases of the distribution project's `reference_test.go` and `normalize_test.go`.

use super::*;

/// The full name without tag and digest, then both as they were written.
fn read(text: &str) -> Result<String, String> {
    let reference: Reference = text.parse().map_err(|error: ReferenceError| error.to_string())?;
    let tag = reference.tag.as_ref().map_or_else(String::new, |tag| format!(":{tag}"));
    let digest = reference.digest.as_ref().map_or_else(String::new, |digest| format!("@{digest}"));
    Ok(format!("{}{tag}{digest}", reference.name()))
}

const FORMAT: &str = "invalid reference format";

#[test]
fn names_are_written_in_full() {
    let id = "1a3f5e7d9c1b3a5f7e9d1c3b5a7f9e1d3c5b7a9f1e3d5d7c9b1a3f5e7d9c1b3a";
    let (of_docker, long) = (format!("docker.io/{id}"), "a".repeat(255 - "library/".len()));
    for (text, expect) in [
        ("docker/docker", "docker.io/docker/docker"),
        ("library/debian", "docker.io/library/debian"),
        ("debian", "docker.io/library/debian"),
        ("docker.io/docker/docker", "docker.io/docker/docker"),
        ("docker.io/library/debian", "docker.io/library/debian"),
        ("docker.io/debian", "docker.io/library/debian"),
        ("index.docker.io/docker/docker", "docker.io/docker/docker"),
        ("index.docker.io/debian", "docker.io/library/debian"),
        ("127.0.0.1:5000/docker/docker", "127.0.0.1:5000/docker/docker"),
        ("127.0.0.1:5000/debian", "127.0.0.1:5000/debian"),
        ("192.168.0.1", "docker.io/library/192.168.0.1"),
        ("192.168.0.1:80", "docker.io/library/192.168.0.1:80"),
        ("192.168.0.1:8/debian", "192.168.0.1:8/debian"),
        ("192.168.0.2:25000/debian", "192.168.0.2:25000/debian"),
        ("[fc00::1]:5000/docker/docker", "[fc00::1]:5000/docker/docker"),
        ("[fc00:1:2:3:4:5:6:7]:5000/library/debian", "[fc00:1:2:3:4:5:6:7]:5000/library/debian"),
        ("[2001:db8::1]/repo:tag", "[2001:db8::1]/repo:tag"),
        // A name with capitals and a path is a host.
        ("Docker/docker", "Docker/docker"),
        ("DOCKER/docker", "DOCKER/docker"),
        ("Uppercase:5000/x", "Uppercase:5000/x"),
        ("localhost/foo", "localhost/foo"),
        ("localhost:5000/foo:bar", "localhost:5000/foo:bar"),
        ("test.com/repo:tag", "test.com/repo:tag"),
        ("test:5000/repo", "test:5000/repo"),
        ("test_com:8080", "docker.io/library/test_com:8080"),
        ("test_com/foo", "docker.io/test_com/foo"),
        ("lowercase:Uppercase", "docker.io/library/lowercase:Uppercase"),
        ("sub-dom1.foo.com/bar/baz/quux", "sub-dom1.foo.com/bar/baz/quux"),
        ("sub-dom1.foo.com/bar/baz/quux:some-long-tag", "sub-dom1.foo.com/bar/baz/quux:some-long-tag"),
        (
            "b.gcr.io/test.example.com/my-app:test.example.com",
            "b.gcr.io/test.example.com/my-app:test.example.com",
        ),
        ("xn--n3h.com/myimage:xn--n3h.com", "xn--n3h.com/myimage:xn--n3h.com"),
        ("foo_bar.com:8080", "docker.io/library/foo_bar.com:8080"),
        ("foo/foo_bar.com:8080", "docker.io/foo/foo_bar.com:8080"),
        ("dock__er/docker", "docker.io/dock__er/docker"),
        ("docker---rules/docker", "docker.io/docker---rules/docker"),
        ("d/docker", "docker.io/d/docker"),
        ("jess/t", "docker.io/jess/t"),
        (&of_docker, &format!("docker.io/library/{id}")),
        (&long, &format!("docker.io/library/{long}")),
    ] {
        assert_eq!(read(text).as_deref(), Ok(expect), "{text}");
    }
}

#[test]
fn digests_are_of_known_algorithms_and_lengths() {
    let hex = |digits: usize| "f".repeat(digits);
    let full = format!("test:5000/repo@sha256:{}", hex(64));
    let both = format!("test:5000/repo:tag@sha256:{}", hex(64));
    let long = format!("docker.io/library/repo@sha512:{}", hex(128));
    for text in [&full, &both, &long] {
        assert_eq!(read(text).as_ref(), Ok(text));
    }
    for (digest, expect) in [
        (String::new(), FORMAT),
        ("sha256".to_owned(), FORMAT),
        (format!("sha256:{}", hex(31)), FORMAT),
        (format!("sha256:{}", hex(34)), "invalid checksum digest length"),
        (format!("sha512:{}", hex(64)), "invalid checksum digest length"),
        (format!("validname:{}", hex(64)), "unsupported digest algorithm"),
        (format!("sha256+b64u:{}", hex(64)), "unsupported digest algorithm"),
        (format!("sha256:{}", hex(64).to_uppercase()), "invalid checksum digest format"),
        (format!("sha256:{}z", hex(63)), FORMAT),
        (format!("-sha256:{}", hex(64)), FORMAT),
        (format!("sha256:{}@sha256:{}", hex(64), hex(64)), FORMAT),
    ] {
        assert_eq!(read(&format!("repo@{digest}")), Err(expect.to_owned()), "{digest}");
    }
}

#[test]
fn what_is_no_name_is_refused() {
    let id = "1a3f5e7d9c1b3a5f7e9d1c3b5a7f9e1d3c5b7a9f1e3d5d7c9b1a3f5e7d9c1b3a";
    let uppercase = |name: &str| format!("{FORMAT}: repository name ({name}) must be lowercase");
    let only = |text: &'static str| (text, FORMAT.to_owned());
    for (text, expect) in [
        only(""),
        only(":justtag"),
        only("https://github.com/docker/docker"),
        only("-docker"),
        only("-docker/docker"),
        only("-docker.io/docker/docker"),
        only("docker///docker"),
        only("docker.io/docker///docker"),
        only("docker/"),
        only("docker-/docker"),
        only("docker_/docker"),
        only("_docker/_docker"),
        only("____/____"),
        only("dock..er/docker"),
        only("dock_.er/docker"),
        only("dock-.er/docker"),
        only("a_b..c"),
        only("a//a"),
        only("aa/asdf$$^/aa"),
        only("test_com:5000/repo"),
        only("a-/b:c d"),
        only("[fc00::1]"),
        only("[fc00::1]:5000"),
        only("fc00::1:5000/debian"),
        only("[fe80::1%eth0]:5000/debian"),
        only("[2001:db8:3:4::192.0.2.33]:5000/debian"),
        only("[2001:db8::1/repo"),
        only("test:port/repo"),
        ("docker/Docker", uppercase("docker/Docker")),
        ("docker.io/docker/Docker", uppercase("docker/Docker")),
        ("Uppercase", uppercase("library/Uppercase")),
        ("Uppercase:tag", uppercase("library/Uppercase")),
        ("test:5000/Uppercase/lowercase:tag", uppercase("Uppercase/lowercase")),
        (id, format!("invalid repository name ({id}), cannot specify 64-byte hexadecimal strings")),
        (&"a/".repeat(128), FORMAT.to_owned()),
        (
            &format!("{}a:tag", "a/".repeat(128)),
            "repository name must not be more than 255 characters".to_owned(),
        ),
        (
            &format!("domain.org/{}", "a".repeat(256)),
            "repository name must not be more than 255 characters".to_owned(),
        ),
    ] {
        assert_eq!(read(text), Err(expect), "{text}");
    }
}
