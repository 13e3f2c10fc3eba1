//! Filters of a rule as what is done to requests. What cannot be done is said, and never left out: requests are refused then.
//!
//! Source: `HTTPRouteFilter`; what no filter may touch, since messages are framed and led by it, RFC 9110 section 7.6.

use http::header::{HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{StatusCode, header};

use super::unsupported::Unsupported;
use crate::filters::{Edits, HeaderEdit, PathEdit, Redirect, Rewrite};
use crate::gateway::{
    HeaderFilter, HeaderValue as Pair, MirrorFilter, PathModifier, RedirectFilter, RouteFilter,
};
use crate::host;
use crate::scheme::Scheme;

/// Headers that are the connection's, or say how long a message is or whom it is for.
const OURS: [HeaderName; 8] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::HOST,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// What filters come to.
#[derive(Default)]
pub(super) struct Filters<'a> {
    pub(super) edits: Edits,
    pub(super) rewrite: Option<Rewrite>,
    pub(super) redirect: Option<Redirect>,
    pub(super) mirrors: Vec<&'a MirrorFilter>,
}

/// Where filters stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Rule,
    Backend,
}

impl<'a> Filters<'a> {
    /// What filters come to for requests that were matched by this prefix, if it was one.
    ///
    /// # Errors
    /// What of it cannot be done.
    pub(super) fn of(all: &'a [RouteFilter], of: Of, matched: Option<&str>) -> Result<Self, Unsupported> {
        let mut made = Self::default();
        for filter in all {
            made.add(filter, of, matched)?;
        }
        if made.redirect.is_some() && (made.rewrite.is_some() || !made.mirrors.is_empty()) {
            return Err(Unsupported::BesideRedirect);
        }
        Ok(made)
    }

    fn add(&mut self, filter: &'a RouteFilter, of: Of, matched: Option<&str>) -> Result<(), Unsupported> {
        let kind = filter.r#type.as_str();
        let absent = || Unsupported::EmptyFilter(kind.to_owned());
        match (kind, of) {
            ("RequestHeaderModifier", _) => {
                let filter = filter.request_header_modifier.as_ref().ok_or_else(absent)?;
                extend(&mut self.edits.request, filter)
            }
            ("ResponseHeaderModifier", _) => {
                let filter = filter.response_header_modifier.as_ref().ok_or_else(absent)?;
                extend(&mut self.edits.response, filter)
            }
            ("RequestRedirect", Of::Rule) if self.redirect.is_none() => {
                let filter = filter.request_redirect.as_ref().ok_or_else(absent)?;
                self.redirect = Some(redirect(filter, matched)?);
                Ok(())
            }
            ("URLRewrite", Of::Rule) if self.rewrite.is_none() => {
                let filter = filter.url_rewrite.as_ref().ok_or_else(absent)?;
                let host = filter.hostname.as_deref().map(precise).transpose()?;
                let host = host.and_then(|host| HeaderValue::from_str(host).ok());
                let path = filter.path.as_ref().map(|path| path_edit(path, matched)).transpose()?;
                self.rewrite = Some(Rewrite { host, path });
                Ok(())
            }
            ("RequestMirror", Of::Rule) => {
                self.mirrors.push(filter.request_mirror.as_ref().ok_or_else(absent)?);
                Ok(())
            }
            ("RequestRedirect" | "URLRewrite", Of::Rule) => Err(Unsupported::Twice(kind.to_owned())),
            (kind, Of::Backend) => Err(Unsupported::OfBackend(kind.to_owned())),
            (kind, Of::Rule) => Err(Unsupported::Kind(format!("filter {kind}"))),
        }
    }
}

fn extend(edit: &mut HeaderEdit, filter: &HeaderFilter) -> Result<(), Unsupported> {
    let name = |text: &str| {
        let name = HeaderName::from_bytes(text.as_bytes());
        let name = name.map_err(|_| Unsupported::Name("header", text.to_owned()))?;
        if OURS.contains(&name) { Err(Unsupported::OurHeader(name)) } else { Ok(name) }
    };
    let pair = |Pair { name: text, value }: &Pair| {
        let name = name(text)?;
        match HeaderValue::from_str(value) {
            Ok(value) => Ok((name, value)),
            Err(_) => Err(Unsupported::HeaderValue(name)),
        }
    };
    for given in &filter.set {
        edit.set.push(pair(given)?);
    }
    for given in &filter.add {
        edit.add.push(pair(given)?);
    }
    for given in &filter.remove {
        edit.remove.push(name(given)?);
    }
    Ok(())
}

fn redirect(filter: &RedirectFilter, matched: Option<&str>) -> Result<Redirect, Unsupported> {
    let scheme = match filter.scheme.as_deref() {
        None => None,
        Some("http") => Some(Scheme::Http),
        Some("https") => Some(Scheme::Https),
        Some(other) => return Err(Unsupported::Scheme(other.to_owned())),
    };
    let port = match filter.port.map(u16::try_from) {
        None => None,
        Some(Ok(port)) if port > 0 => Some(port),
        Some(_) => return Err(Unsupported::Port),
    };
    let status = match filter.status_code.unwrap_or(302) {
        301 => StatusCode::MOVED_PERMANENTLY,
        302 => StatusCode::FOUND,
        303 => StatusCode::SEE_OTHER,
        307 => StatusCode::TEMPORARY_REDIRECT,
        308 => StatusCode::PERMANENT_REDIRECT,
        other => return Err(Unsupported::Status(other)),
    };
    Ok(Redirect {
        scheme,
        host: filter.hostname.as_deref().map(precise).transpose()?.map(str::to_owned),
        port,
        path: filter.path.as_ref().map(|path| path_edit(path, matched)).transpose()?,
        status,
    })
}

/// A host that is one.
fn precise(host: &str) -> Result<&str, Unsupported> {
    let is_name = host::of_request(host).is_ok_and(|name| name == host.to_ascii_lowercase());
    if is_name { Ok(host) } else { Err(Unsupported::Name("hostname", host.to_owned())) }
}

fn path_edit(modifier: &PathModifier, matched: Option<&str>) -> Result<PathEdit, Unsupported> {
    let path = |path: &str| {
        let is_path =
            path.starts_with('/') && !path.contains(['?', '#']) && path.parse::<PathAndQuery>().is_ok();
        if is_path { Ok(path.to_owned()) } else { Err(Unsupported::NewPath(path.to_owned())) }
    };
    match modifier.r#type.as_str() {
        "ReplaceFullPath" => {
            let full = modifier.replace_full_path.as_deref().unwrap_or_default();
            Ok(PathEdit::Whole(path(if full.is_empty() { "/" } else { full })?))
        }
        "ReplacePrefixMatch" => {
            let given = modifier.replace_prefix_match.as_deref().unwrap_or_default();
            let replacement = if given.is_empty() { String::new() } else { path(given)? };
            let matched = matched.ok_or(Unsupported::NoPrefix)?.to_owned();
            Ok(PathEdit::Prefix { matched, replacement })
        }
        other => Err(Unsupported::Kind(format!("path modifier {other}"))),
    }
}
