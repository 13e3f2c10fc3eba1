use super::*;

mod upstream;

fn check(text: &str, expect: Result<&str, &str>) {
    let parsed = text.parse::<Reference>().map(|r| r.to_string()).map_err(|e| e.to_string());
    assert_eq!(parsed.as_deref().map_err(String::as_str), expect, "{text}");
}

#[test]
fn references_get_registry_and_tag() {
    let digest = format!("sha256:{}", "a".repeat(64));
    check("busybox", Ok("docker.io/library/busybox:latest"));
    check("busybox:1.36", Ok("docker.io/library/busybox:1.36"));
    check("a/b", Ok("docker.io/a/b:latest"));
    check("index.docker.io/b", Ok("docker.io/library/b:latest"));
    check("knarr.local/hello", Ok("knarr.local/hello:latest"));
    check("localhost/x", Ok("localhost/x:latest"));
    check("localhost:5000/x:1", Ok("localhost:5000/x:1"));
    check("Registry/x", Ok("Registry/x:latest"));
    check("[::1]:5000/x", Ok("[::1]:5000/x:latest"));
    check("a.b/c__d/e--f.g:V_1.2-3", Ok("a.b/c__d/e--f.g:V_1.2-3"));
    check(&format!("x:1@{digest}"), Ok(&format!("docker.io/library/x@{digest}")));
}

#[test]
fn what_is_no_reference_says_why_in_upstreams_words() {
    let format = Err("invalid reference format");
    for text in ["", ":1", "a//b", "a:", "a:-x", "-a", "a/b-", "a___b", "a.b:x/c", "a b", "a/../b", "a@"] {
        let parsed = text.parse::<Reference>();
        assert!(parsed.is_err(), "{text}: {parsed:?}");
    }
    check("a//b", format);
    check(
        "InvalidImage",
        Err("invalid reference format: repository name (library/InvalidImage) must be lowercase"),
    );
    let id = "0123456789abcdef".repeat(4);
    check(&id, Err(&format!("invalid repository name ({id}), cannot specify 64-byte hexadecimal strings")));
    check(&"a".repeat(300), Err("repository name must not be more than 255 characters"));
    check("x@sha256:abc", format);
    check(&format!("x:{}", "t".repeat(129)), format);
}
