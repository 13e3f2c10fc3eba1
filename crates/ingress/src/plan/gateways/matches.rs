//! The requests that a rule is for.
//!
//! Source: `HTTPRouteMatch`, `GRPCRouteMatch`; regular expressions are for the whole of a path or value.

use http::header::HeaderName;

use super::unsupported::Unsupported;
use crate::gateway::{GrpcMethodMatch, GrpcRouteMatch, HttpRouteMatch, NamedMatch};
use crate::matching::{BadPattern, Patterns, Text, When};
use crate::path::PathMatch;

type Outcome<T> = Result<T, Unsupported>;

/// One of a rule's matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) path: PathMatch,
    pub(super) when: When,
}

impl Match {
    /// Every request.
    pub(super) fn all() -> Self {
        Self { path: PathMatch::all(), when: When::default() }
    }

    /// Of an HTTPRoute.
    ///
    /// # Errors
    /// What of it cannot be followed.
    pub(super) fn of_http(asked: &HttpRouteMatch, patterns: &Patterns) -> Outcome<Self> {
        let (kind, value) = match &asked.path {
            Some(path) => {
                (path.r#type.as_deref().unwrap_or("PathPrefix"), path.value.as_deref().unwrap_or("/"))
            }
            None => ("PathPrefix", "/"),
        };
        let path = match kind {
            "RegularExpression" => PathMatch::Pattern(patterns.of(value).map_err(|why| bad("path", why))?),
            _ if !value.starts_with('/') => return Err(Unsupported::Path(value.to_owned())),
            "Exact" => PathMatch::exact(value),
            "PathPrefix" => PathMatch::prefix(value),
            other => return Err(Unsupported::Kind(format!("path match {other}"))),
        };
        let when = When {
            method: asked.method.clone(),
            headers: headers(&asked.headers, patterns)?,
            queries: once(asked.query_params.iter().map(|one| (one.name.clone(), one)), "query", patterns)?,
        };
        Ok(Self { path, when })
    }

    /// Of a GRPCRoute: services and methods are a call's path.
    ///
    /// # Errors
    /// What of it cannot be followed.
    pub(super) fn of_grpc(asked: &GrpcRouteMatch, patterns: &Patterns) -> Outcome<Self> {
        let path = match &asked.method {
            Some(method) => call(method, patterns)?,
            None => PathMatch::all(),
        };
        let when = When { headers: headers(&asked.headers, patterns)?, ..When::default() };
        Ok(Self { path, when })
    }
}

fn bad(what: &str, why: BadPattern) -> Unsupported {
    Unsupported::Pattern(what.to_owned(), why)
}

fn call(asked: &GrpcMethodMatch, patterns: &Patterns) -> Outcome<PathMatch> {
    let given = |text: &'_ Option<String>| text.clone().filter(|text| !text.is_empty());
    let (service, method) = (given(&asked.service), given(&asked.method));
    let pattern = |service: &str, method: &str| {
        let pattern = patterns.of(&format!("/{service}/{method}"));
        pattern.map(PathMatch::Pattern).map_err(|why| bad("method", why))
    };
    let is_plain = |text: &Option<String>| text.as_ref().is_none_or(|text| !text.contains('/'));
    match (asked.r#type.as_deref().unwrap_or("Exact"), service, method) {
        (_, None, None) => Ok(PathMatch::all()),
        ("Exact", service, method) if !is_plain(&service) || !is_plain(&method) => Err(Unsupported::Method),
        ("Exact", Some(service), Some(method)) => Ok(PathMatch::exact(&format!("/{service}/{method}"))),
        ("Exact", Some(service), None) => Ok(PathMatch::prefix(&format!("/{service}"))),
        ("Exact", None, Some(method)) => {
            let literal: String = method.chars().flat_map(literal).collect();
            pattern("[^/]+", &literal)
        }
        ("RegularExpression", service, method) => {
            // Each by itself must be one, so that neither ends the other's brackets.
            let part = |text: Option<String>| match text {
                Some(text) => {
                    patterns.of(&text).map(|_| format!("(?:{text})")).map_err(|why| bad("method", why))
                }
                None => Ok("[^/]+".to_owned()),
            };
            pattern(&part(service)?, &part(method)?)
        }
        (other, ..) => Err(Unsupported::Kind(format!("method match {other}"))),
    }
}

/// A letter that stands for itself.
fn literal(letter: char) -> impl Iterator<Item = char> {
    let is_plain = letter.is_alphanumeric() || letter == '_';
    (!is_plain).then_some('\\').into_iter().chain([letter])
}

fn headers(asked: &[NamedMatch], patterns: &Patterns) -> Outcome<Vec<(String, Text)>> {
    let mut named = Vec::new();
    for one in asked {
        let name = HeaderName::from_bytes(one.name.as_bytes());
        let name = name.map_err(|_| Unsupported::Name("header", one.name.clone()))?;
        named.push((name.as_str().to_owned(), one));
    }
    once(named.into_iter(), "header", patterns)
}

/// Of several for one name the first counts.
fn once<'a>(
    asked: impl Iterator<Item = (String, &'a NamedMatch)>,
    what: &str,
    patterns: &Patterns,
) -> Outcome<Vec<(String, Text)>> {
    let mut made: Vec<(String, Text)> = Vec::new();
    for (name, one) in asked {
        let text = match one.r#type.as_deref().unwrap_or("Exact") {
            "Exact" => Text::Exact(one.value.clone()),
            "RegularExpression" => {
                let pattern = patterns.of(&one.value).map_err(|why| bad(&format!("{what} {name}"), why))?;
                Text::Pattern(pattern)
            }
            other => return Err(Unsupported::Kind(format!("{what} match {other}"))),
        };
        if made.iter().all(|(known, _)| *known != name) {
            made.push((name, text));
        }
    }
    Ok(made)
}
