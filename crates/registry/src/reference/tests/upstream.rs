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
        (format!("sha384:{}", hex(64)), "invalid checksum digest length"),
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

/// Source: `TestParseImageName` of upstream's `pkg/util/parsers`, after `ParseImageName` has put in the tag.
#[test]
fn images_are_read_as_the_kubelet_reads_them() {
    let digest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    for (image, repository, tag, has_digest) in [
        ("root", "docker.io/library/root", "latest", false),
        ("root:tag", "docker.io/library/root", "tag", false),
        ("root@DIGEST", "docker.io/library/root", "", true),
        ("user/repo", "docker.io/user/repo", "latest", false),
        ("user/repo:tag", "docker.io/user/repo", "tag", false),
        ("user/repo@DIGEST", "docker.io/user/repo", "", true),
        ("url:5000/repo", "url:5000/repo", "latest", false),
        ("url:5000/repo:tag", "url:5000/repo", "tag", false),
        ("url:5000/repo@DIGEST", "url:5000/repo", "", true),
        ("url:5000/repo:latest@DIGEST", "url:5000/repo", "latest", true),
    ] {
        let reference: Reference = image.replace("DIGEST", digest).parse().unwrap();
        let given = reference.tag.as_deref().unwrap_or(if has_digest { "" } else { reference.tag() });
        assert_eq!((reference.name().as_str(), given), (repository, tag), "{image}");
        let target = if has_digest { digest } else { tag };
        assert_eq!(reference.target(), target, "{image}");
    }
    for (image, expect) in [
        ("ROOT", "must be lowercase"),
        ("http://root", FORMAT),
        (digest.strip_prefix("sha256:").unwrap(), "cannot specify 64-byte hexadecimal strings"),
    ] {
        assert!(read(image).unwrap_err().contains(expect), "{image}");
    }
}

/// What the grammar in `regexp.go` and the order of `Parse` come to.
#[test]
fn the_first_thing_that_is_wrong_is_told_of() {
    let hex = |digits: usize| "f".repeat(digits);
    let short = format!("sha256:{}", hex(34));
    for (text, expect) in [
        // No host's name has a `_`, but the parts of a path may.
        ("my_registry.example/x", Ok("my_registry.example/x")),
        ("my_registry.example/x:1", Ok("my_registry.example/x:1")),
        ("my_registry.example:5000/x", Err(FORMAT)),
        ("_.example/x", Err(FORMAT)),
        ("My_Registry.example/x", Err("repository name must be lowercase")),
        ("My_Registry/x", Err("repository name must be lowercase")),
        ("My_Registry/x:-", Err(FORMAT)),
        // Whether there is such a port is not the grammar's business.
        ("localhost:65536/x", Ok("localhost:65536/x")),
        ("localhost:0/x", Ok("localhost:0/x")),
        ("localhost:00080/x", Ok("localhost:00080/x")),
        ("localhost:/x", Err(FORMAT)),
        ("localhost:+80/x", Err(FORMAT)),
        ("localhost:80:80/x", Err(FORMAT)),
        ("localhost:\u{0660}/x", Err(FORMAT)),
        ("[::1]:+80/x", Err(FORMAT)),
        ("[::1]80/x", Err(FORMAT)),
        ("[]/x", Err(FORMAT)),
        ("localhost/", Err(FORMAT)),
        ("docker.io/", Err(FORMAT)),
        ("/x", Err(FORMAT)),
        ("./x", Err(FORMAT)),
        ("../x", Err(FORMAT)),
        ("a..b/x", Err(FORMAT)),
        ("r.example/../x", Err(FORMAT)),
        ("r.example/%2e%2e/x", Err(FORMAT)),
        ("r.example/x?y", Err(FORMAT)),
        ("r.example/x#y", Err(FORMAT)),
        ("u:p@r.example/x", Err(FORMAT)),
        ("r.example/x\n", Err(FORMAT)),
        ("r.example/x\0", Err(FORMAT)),
        (" x", Err(FORMAT)),
        ("x ", Err(FORMAT)),
        ("x:\u{e9}", Err(FORMAT)),
        ("\u{e9}", Err(FORMAT)),
        ("\u{c9}", Err("invalid reference format: repository name (library/\u{c9}) must be lowercase")),
        ("x::1", Err(FORMAT)),
        ("x:1:2", Err(FORMAT)),
        ("x@", Err(FORMAT)),
        ("@", Err(FORMAT)),
        // Capitals come first, then the form, the length, and whether there is such a digest.
        (
            &format!("X@{short}"),
            Err("invalid reference format: repository name (library/X@sha256) must be lowercase"),
        ),
        (
            &format!("x@SHA256:{}", hex(64)),
            Err("invalid reference format: repository name (library/x@SHA256) must be lowercase"),
        ),
        (&format!("a//b@{short}"), Err(FORMAT)),
        (
            &format!("{}@{short}", "a".repeat(256)),
            Err("repository name must not be more than 255 characters"),
        ),
        (&format!("a@{short}"), Err("invalid checksum digest length")),
        // A path that begins with what is no host's name counts as a whole.
        (&format!("a_b.c/{}", "a".repeat(249)), Ok(&format!("a_b.c/{}", "a".repeat(249)))),
        (&format!("a_b.c/{}", "a".repeat(250)), Err("repository name must not be more than 255 characters")),
        (&format!("a-b.c/{}", "a".repeat(255)), Ok(&format!("a-b.c/{}", "a".repeat(255)))),
    ] {
        assert_eq!(read(text).as_deref().map_err(String::as_str), expect, "{text:?}");
    }
}
