//! Image references in their full form.

/// `name` with registry and tag: `busybox` is `docker.io/library/busybox:latest`. `None` if it is no reference.
///
/// Source: the distribution project's reference grammar.
pub fn normalize(name: &str) -> Option<String> {
    let (name, digest) = match name.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (name, None),
    };
    let slash = name.rfind('/').map_or(0, |at| at + 1);
    let (path, tag) = match name.get(slash..)?.split_once(':') {
        Some((last, tag)) => (name.get(..slash + last.len())?, Some(tag)),
        None => (name, None),
    };
    let is_registry = |part: &str| part.contains(['.', ':']) || part == "localhost";
    let (registry, path) = match path.split_once('/') {
        Some((first, rest)) if is_registry(first) => (first, rest.to_owned()),
        Some(_) => ("docker.io", path.to_owned()),
        None => ("docker.io", format!("library/{path}")),
    };
    let path_ok = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-/".contains(c);
    let tag_ok = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_empty = path.split('/').any(str::is_empty);
    if is_empty || !path.chars().all(path_ok) || !tag.unwrap_or("x").chars().all(tag_ok) || tag == Some("") {
        return None;
    }
    Some(match (tag, digest) {
        (_, Some(digest)) => format!("{registry}/{path}@{digest}"),
        (tag, None) => format!("{registry}/{path}:{}", tag.unwrap_or("latest")),
    })
}

#[cfg(test)]
mod tests {
    use super::normalize;

    #[test]
    fn references_get_registry_and_tag() {
        let check =
            |name: &str, expect: Option<&str>| assert_eq!(normalize(name).as_deref(), expect, "{name}");
        check("busybox", Some("docker.io/library/busybox:latest"));
        check("busybox:1.36", Some("docker.io/library/busybox:1.36"));
        check("a/b", Some("docker.io/a/b:latest"));
        check("knarr.local/hello", Some("knarr.local/hello:latest"));
        check("localhost:5000/x:1", Some("localhost:5000/x:1"));
        check("x@sha256:abc", Some("docker.io/library/x@sha256:abc"));
        check("Upper", None);
        check("a//b", None);
        check("", None);
        check("a:", None);
    }
}
