//! Sockets of KMS plugins, as configurations name them.

/// Where a plugin listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Socket {
    /// A file.
    Path(String),
    /// A name in Linux' abstract namespace.
    Abstract(String),
}

/// Why nobody can listen there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EndpointError {
    #[error("parse {0:?}: net/url: invalid control character in URL")]
    Control(String),
    #[error("parse {endpoint:?}: invalid URL escape {escape:?}")]
    Escape { endpoint: String, escape: String },
    #[error("unsupported scheme {0:?} for remote KMS provider")]
    Scheme(String),
    #[error("endpoint must be the absolute path of a socket")]
    Path,
}

/// Reads `unix:///run/kms.sock` or `unix:///@name`, which are URLs. Source: `k8s.io/kms/pkg/util.ParseEndpoint`.
pub(crate) fn socket_of(endpoint: &str) -> Result<Socket, EndpointError> {
    if endpoint.chars().any(|c| c.is_ascii_control()) {
        return Err(EndpointError::Control(endpoint.to_owned()));
    }
    let (scheme, rest) = scheme_of(endpoint);
    if scheme != "unix" {
        return Err(EndpointError::Scheme(scheme));
    }
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let path = match rest.strip_prefix("//") {
        Some(rest) => rest.find('/').and_then(|at| rest.get(at..)).unwrap_or_default(),
        None => rest,
    };
    let escape = |escape: &str| EndpointError::Escape { endpoint: endpoint.into(), escape: escape.into() };
    let path = unescaped(path).map_err(escape)?;
    if let Some(name) = path.strip_prefix("/@") {
        return Ok(Socket::Abstract(name.to_owned()));
    }
    if path.len() < 2 || !path.starts_with('/') {
        return Err(EndpointError::Path);
    }
    Ok(Socket::Path(path))
}

/// A URL's scheme, if it has one, and the rest.
fn scheme_of(url: &str) -> (String, &str) {
    let is_scheme = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    match url.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) => (scheme.to_ascii_lowercase(), rest),
        _ => (String::new(), url),
    }
}

/// Without `%41` for `A`; the error is the first thing that is none.
fn unescaped(path: &str) -> Result<String, &str> {
    let (mut out, mut rest) = (Vec::new(), path);
    while let Some(at) = rest.find('%') {
        let (before, escape) = rest.split_at(at);
        let digits = escape.get(1..3).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        out.extend_from_slice(before.as_bytes());
        out.push(byte.ok_or_else(|| escape.get(..3).unwrap_or(escape))?);
        rest = escape.get(3..).unwrap_or_default();
    }
    out.extend_from_slice(rest.as_bytes());
    String::from_utf8(out).map_err(|_| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Source: `TestParseEndpoint` and `TestParseEndpointError` of upstream, and what Go's `net/url` does.
    #[test]
    fn endpoints_are_files_or_abstract_names() {
        let path = |path: &str| Ok(Socket::Path(path.into()));
        let name = |name: &str| Ok(Socket::Abstract(name.into()));
        for (endpoint, expect) in [
            ("unix:///path", path("/path")),
            ("unix:///run/kms.sock", path("/run/kms.sock")),
            ("unix:/run/kms.sock", path("/run/kms.sock")),
            ("UNIX:///path", path("/path")),
            ("unix://host/path", path("/path")),
            ("unix:///a%20b%2Fc", path("/a b/c")),
            ("unix:///\u{e9}", path("/\u{e9}")),
            ("unix:///path?x=y#z", path("/path")),
            ("unix:///@path", name("path")),
            ("unix:///@", name("")),
            ("unix:///%40path", name("path")),
        ] {
            assert_eq!(socket_of(endpoint), expect, "{endpoint}");
        }
        for (endpoint, expect) in [
            ("", "unsupported scheme \"\" for remote KMS provider"),
            ("http:///path", "unsupported scheme \"http\" for remote KMS provider"),
            ("tcp://a", "unsupported scheme \"tcp\" for remote KMS provider"),
            ("/path", "unsupported scheme \"\" for remote KMS provider"),
            ("1unix:///path", "unsupported scheme \"\" for remote KMS provider"),
            (
                "unix:///foo\n.socket",
                r#"parse "unix:///foo\n.socket": net/url: invalid control character in URL"#,
            ),
            ("unix:///foo\u{7f}", r#"parse "unix:///foo\u{7f}": net/url: invalid control character in URL"#),
            ("unix:///a%zz", r#"parse "unix:///a%zz": invalid URL escape "%zz""#),
            ("unix:///a%4", r#"parse "unix:///a%4": invalid URL escape "%4""#),
            ("unix:///a%\u{e9}\u{e9}", "parse \"unix:///a%\u{e9}\u{e9}\": invalid URL escape \"%\u{e9}\""),
            ("unix://", "endpoint must be the absolute path of a socket"),
            ("unix:///", "endpoint must be the absolute path of a socket"),
            ("unix://host", "endpoint must be the absolute path of a socket"),
            ("unix:path", "endpoint must be the absolute path of a socket"),
            ("unix:@path", "endpoint must be the absolute path of a socket"),
        ] {
            assert_eq!(socket_of(endpoint).unwrap_err().to_string(), expect, "{endpoint:?}");
        }
    }
}
