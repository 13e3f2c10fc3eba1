//! Filters of a rule as what is done to requests. What cannot be done is said, and never left out: requests are refused then.
//!
//! Source: `HTTPRouteFilter`; what no filter may touch, since messages are framed and led by it, RFC 9110 section 7.6.

use http::header::{HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{StatusCode, header};

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
    pub(super) fn of(all: &'a [RouteFilter], of: Of, matched: Option<&str>) -> Result<Self, String> {
        let mut made = Self::default();
        for filter in all {
            made.add(filter, of, matched)?;
        }
        if made.redirect.is_some() && (made.rewrite.is_some() || !made.mirrors.is_empty()) {
            return Err("filter RequestRedirect must not stand with URLRewrite or RequestMirror".to_owned());
        }
        Ok(made)
    }

    fn add(&mut self, filter: &'a RouteFilter, of: Of, matched: Option<&str>) -> Result<(), String> {
        let kind = filter.r#type.as_str();
        let absent = || format!("filter {kind} must say what it does");
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
            ("RequestRedirect" | "URLRewrite", Of::Rule) => Err(format!("filter {kind} must stand once")),
            (kind, Of::Backend) => Err(format!("filter {kind} is not supported for a backend")),
            (kind, Of::Rule) => Err(format!("filter {kind} is not supported")),
        }
    }
}

fn extend(edit: &mut HeaderEdit, filter: &HeaderFilter) -> Result<(), String> {
    let name = |text: &str| {
        let name =
            HeaderName::from_bytes(text.as_bytes()).map_err(|_| format!("header {text:?} must be a name"))?;
        if OURS.contains(&name) { Err(format!("header {name} cannot be changed")) } else { Ok(name) }
    };
    let pair = |Pair { name: text, value }: &Pair| {
        let name = name(text)?;
        let value = HeaderValue::from_str(value)
            .map_err(|_| format!("the value of header {name} must be one line"))?;
        Ok::<_, String>((name, value))
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

fn redirect(filter: &RedirectFilter, matched: Option<&str>) -> Result<Redirect, String> {
    let scheme = match filter.scheme.as_deref() {
        None => None,
        Some("http") => Some(Scheme::Http),
        Some("https") => Some(Scheme::Https),
        Some(other) => return Err(format!("a redirect's scheme {other} must be http or https")),
    };
    let port = match filter.port.map(u16::try_from) {
        None => None,
        Some(Ok(port)) if port > 0 => Some(port),
        Some(_) => return Err("a redirect's port must be between 1 and 65535".to_owned()),
    };
    let status = match filter.status_code.unwrap_or(302) {
        301 => StatusCode::MOVED_PERMANENTLY,
        302 => StatusCode::FOUND,
        303 => StatusCode::SEE_OTHER,
        307 => StatusCode::TEMPORARY_REDIRECT,
        308 => StatusCode::PERMANENT_REDIRECT,
        other => return Err(format!("a redirect's status {other} must be 301, 302, 303, 307 or 308")),
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
fn precise(host: &str) -> Result<&str, String> {
    let is_name = host::of_request(host).is_ok_and(|name| name == host.to_ascii_lowercase());
    if is_name { Ok(host) } else { Err(format!("hostname {host:?} must be a name")) }
}

fn path_edit(modifier: &PathModifier, matched: Option<&str>) -> Result<PathEdit, String> {
    let path = |path: &str| {
        let is_path =
            path.starts_with('/') && !path.contains(['?', '#']) && path.parse::<PathAndQuery>().is_ok();
        if is_path {
            Ok(path.to_owned())
        } else {
            Err(format!("path {path:?} must be one that begins with /"))
        }
    };
    match modifier.r#type.as_str() {
        "ReplaceFullPath" => {
            let full = modifier.replace_full_path.as_deref().unwrap_or_default();
            Ok(PathEdit::Whole(path(if full.is_empty() { "/" } else { full })?))
        }
        "ReplacePrefixMatch" => {
            let given = modifier.replace_prefix_match.as_deref().unwrap_or_default();
            let replacement = if given.is_empty() { String::new() } else { path(given)? };
            let matched = matched.ok_or("ReplacePrefixMatch needs a match with a PathPrefix")?.to_owned();
            Ok(PathEdit::Prefix { matched, replacement })
        }
        other => Err(format!("path modifier {other} is not supported")),
    }
}
