//! Paths: what a rule says, and what a request asks for.
//!
//! Requests are matched by their path in normal form, so that no rule is passed by with `%61` or `..`; what is sent on is
//! what the client wrote. Source: `HTTPIngressPath.pathType`, RFC 3986 sections 5.2.4 and 6.2.2.

use std::borrow::Cow;
use std::fmt;

use crate::matching::Pattern;

/// The paths that a row is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathMatch {
    /// This one.
    Exact(String),
    /// This one and all below it, element by element; without a slash at the end, so that all is the empty text.
    Prefix(String),
    /// Those that are wholly so.
    Pattern(Pattern),
}

impl PathMatch {
    /// The match of a rule whose path is this one and those below it.
    pub fn prefix(path: &str) -> Self {
        Self::Prefix(of_rule(path).trim_end_matches('/').to_owned())
    }

    /// The match of a rule whose path is this one alone.
    pub fn exact(path: &str) -> Self {
        Self::Exact(of_rule(path).into_owned())
    }

    /// Every path.
    pub fn all() -> Self {
        Self::Prefix(String::new())
    }
}

/// A rule's path is in normal form as a request's is; one that has none is taken as it is.
fn of_rule(path: &str) -> Cow<'_, str> {
    normal(path).unwrap_or(Cow::Borrowed(path))
}

impl fmt::Display for PathMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(path) => write!(f, "={path}"),
            Self::Prefix(path) => write!(f, "{path}/"),
            Self::Pattern(pattern) => write!(f, "~{}", pattern.as_str()),
        }
    }
}

/// A path that leads above the root, or has what no path has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the path is not valid")]
pub struct BadPath;

/// A path without dots and without escapes of what needs none.
///
/// # Errors
/// If it does not begin with a slash, leads above the root, or has an escape that is none or is of the zero byte.
pub fn normal(path: &str) -> Result<Cow<'_, str>, BadPath> {
    if !path.starts_with('/') {
        return Err(BadPath);
    }
    let plain = unescaped(path)?;
    let is_dots = |element: &str| element == "." || element == "..";
    if !plain.split('/').any(is_dots) {
        return Ok(plain);
    }
    let mut kept: Vec<&str> = Vec::new();
    let mut elements = plain.split('/').skip(1).peekable();
    while let Some(element) = elements.next() {
        match element {
            "." => {}
            ".." => drop(kept.pop().ok_or(BadPath)?),
            other => {
                kept.push(other);
                continue;
            }
        }
        if elements.peek().is_none() {
            // What ends in dots is a folder.
            kept.push("");
        }
    }
    Ok(Cow::Owned(kept.iter().flat_map(|element| ["/", element]).collect()))
}

/// Escapes of letters, digits and `-._~` mean what they stand for; those of anything else are left, in capitals.
fn unescaped(path: &str) -> Result<Cow<'_, str>, BadPath> {
    let mut parts = path.split('%');
    let first = parts.next().unwrap_or_default();
    if first.len() == path.len() {
        return Ok(Cow::Borrowed(path));
    }
    let mut plain = first.to_owned();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).ok_or(BadPath)?;
        let is_number = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let byte = u8::from_str_radix(digits, 16).ok().filter(|byte| is_number && *byte != 0);
        match byte.ok_or(BadPath)? {
            byte if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => plain.push(char::from(byte)),
            _ => {
                plain.push('%');
                plain.push_str(&digits.to_ascii_uppercase());
            }
        }
        plain.push_str(rest);
    }
    Ok(Cow::Owned(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_normal_form_has_no_dots_and_no_idle_escapes() {
        let rows: [(&str, Option<&str>); 22] = [
            ("/", Some("/")),
            ("/a/b", Some("/a/b")),
            ("/a//b/", Some("/a//b/")),
            ("/%61dmin", Some("/admin")),
            ("/a%2fb", Some("/a%2Fb")),
            ("/a/../b", Some("/b")),
            ("/a/%2e%2E/b", Some("/b")),
            ("/a/./b", Some("/a/b")),
            ("/a/.", Some("/a/")),
            ("/a/b/..", Some("/a/")),
            ("/a/..", Some("/")),
            ("/a/...", Some("/a/...")),
            ("/..a", Some("/..a")),
            ("/%7Euser", Some("/~user")),
            ("/a%20b", Some("/a%20b")),
            ("/..", None),
            ("/a/../../b", None),
            ("/%2e%2e/b", None),
            ("/%", None),
            ("/%4", None),
            ("/%+1", None),
            ("/a%00", None),
        ];
        for (path, expected) in rows {
            assert_eq!(normal(path).ok().as_deref(), expected, "{path}");
        }
        assert_eq!(normal("*"), Err(BadPath));
        assert_eq!(normal("/%é"), Err(BadPath), "an escape that ends within a letter");
    }

    #[test]
    fn a_slash_at_the_end_of_a_prefix_means_nothing() {
        assert_eq!(PathMatch::prefix("/foo/"), PathMatch::prefix("/foo"));
        assert_eq!(PathMatch::prefix("/"), PathMatch::all());
        assert_ne!(PathMatch::exact("/foo/"), PathMatch::exact("/foo"));
    }
}
