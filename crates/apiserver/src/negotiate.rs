//! The forms that a client sends and wants: `Content-Type` and `Accept`.
//!
//! Source: `k8s.io/apiserver/pkg/endpoints/handlers/negotiation`.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};

use crate::status::{Error, Result};

/// The media type of protobuf in Kubernetes' envelope.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// JSON.
pub const JSON: &str = "application/json";
/// YAML.
pub const YAML: &str = "application/yaml";

/// A serialisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `application/json`
    Json,
    /// `application/yaml`
    Yaml,
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
}

/// The form that an object is turned into before it is serialised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// As it is.
    Object,
    /// `meta.k8s.io/v1 Table`
    Table,
    /// `meta.k8s.io/v1 PartialObjectMetadata`.
    Metadata,
    /// `meta.k8s.io/v1 PartialObjectMetadataList`.
    MetadataList,
}

/// The form that the client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accept {
    /// The serialisation.
    pub format: Format,
    /// The view.
    pub view: View,
    /// The `apiVersion` of a view that is not the object: `meta.k8s.io/v1`, or `v1beta1` for clients before 1.15.
    pub meta_version: &'static str,
}

impl Accept {
    /// JSON of the object itself.
    pub const JSON: Self = Self { format: Format::Json, view: View::Object, meta_version: "meta.k8s.io/v1" };

    /// Reads `Accept`: of the clauses that can be met the one of the highest quality, the first of several.
    ///
    /// # Errors
    /// 406 if none can be met.
    pub fn of(headers: &HeaderMap) -> Result<Self> {
        Self::choose(headers, |_| true)
    }

    /// As [`Accept::of`], where there are no views: discovery.
    ///
    /// # Errors
    /// 406 if only views are asked for.
    pub fn plain(headers: &HeaderMap) -> Result<Self> {
        Self::choose(headers, |accept| accept.view == View::Object)
    }

    /// As [`Accept::of`], of what is possible.
    ///
    /// # Errors
    /// 406 if nothing of it is asked for.
    pub fn choose(headers: &HeaderMap, is_possible: impl Fn(&Self) -> bool) -> Result<Self> {
        let Some(header) = headers.get(ACCEPT).and_then(|value| value.to_str().ok()) else {
            return Ok(Self::JSON);
        };
        if header.trim().is_empty() {
            return Ok(Self::JSON);
        }
        let mut clauses: Vec<Clause<'_>> = header.split(',').map(Clause::read).collect();
        clauses.sort_by_key(Clause::rank);
        clauses.iter().filter_map(Clause::accept).find(is_possible).ok_or_else(Error::not_acceptable)
    }
}

/// One clause of an `Accept` header.
struct Clause<'a> {
    media_type: &'a str,
    /// In thousandths.
    quality: u16,
    /// Kind, group and version to convert to; empty where not said.
    convert: [&'a str; 3],
    stream: &'a str,
}

impl<'a> Clause<'a> {
    fn read(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        let mut clause = Self { media_type, quality: 1000, convert: [""; 3], stream: "" };
        for (name, value) in parts.filter_map(|parameter| parameter.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match name.trim() {
                "q" => clause.quality = thousandths(value),
                "as" => clause.convert[0] = value,
                "g" => clause.convert[1] = value,
                "v" => clause.convert[2] = value,
                "stream" => clause.stream = value,
                _ => {}
            }
        }
        clause
    }

    /// Better ones first: higher quality, then fewer wildcards.
    fn rank(&self) -> (u16, usize) {
        (1000 - self.quality, self.media_type.matches('*').count())
    }

    /// What it asks for, if that can be had.
    fn accept(&self) -> Option<Accept> {
        let format = match self.media_type {
            "*/*" | "application/*" | "application/json" => Format::Json,
            "application/yaml" | "application/x-yaml" | "text/yaml" => Format::Yaml,
            PROTOBUF => Format::Protobuf,
            _ => return None,
        };
        if !matches!(self.stream, "" | "watch") {
            return None;
        }
        let (view, meta_version) = match self.convert {
            ["", "", ""] => (View::Object, "meta.k8s.io/v1"),
            [kind, "meta.k8s.io", version] => (view(kind)?, meta_version(version)?),
            _ => return None,
        };
        // Tables have no protobuf form.
        let is_possible = view != View::Table || format != Format::Protobuf;
        is_possible.then_some(Accept { format, view, meta_version })
    }
}

fn view(kind: &str) -> Option<View> {
    match kind {
        "Table" => Some(View::Table),
        "PartialObjectMetadata" => Some(View::Metadata),
        "PartialObjectMetadataList" => Some(View::MetadataList),
        _ => None,
    }
}

fn meta_version(version: &str) -> Option<&'static str> {
    match version {
        "v1" => Some("meta.k8s.io/v1"),
        "v1beta1" => Some("meta.k8s.io/v1beta1"),
        _ => None,
    }
}

/// A quality as thousandths; what is none is the highest.
fn thousandths(text: &str) -> u16 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole != "0" {
        return 1000;
    }
    let digits = fraction.bytes().chain(std::iter::repeat(b'0')).take(3);
    digits.fold(0, |sum, digit| sum * 10 + u16::from(digit.saturating_sub(b'0').min(9)))
}

/// Reads the `Content-Type` of an object; none means JSON.
///
/// # Errors
/// 415 for anything else.
pub fn content_format(headers: &HeaderMap) -> Result<Format> {
    match media_type(headers) {
        "" | "*/*" | JSON => Ok(Format::Json),
        YAML | "application/x-yaml" | "text/yaml" | "application/vnd.kubernetes.yaml" => Ok(Format::Yaml),
        PROTOBUF => Ok(Format::Protobuf),
        _ => Err(Error::unsupported_media_type(&format!("{JSON}, {YAML}, {PROTOBUF}"))),
    }
}

/// The bare media type of the body.
pub fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(accept: &str, expect: Option<(Format, View)>) {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        let got = Accept::of(&headers).ok().map(|a| (a.format, a.view));
        assert_eq!(got, expect, "{accept}");
    }

    #[test]
    fn the_first_clause_that_can_be_met_wins() {
        use Format::{Json, Protobuf, Yaml};
        check("*/*", Some((Json, View::Object)));
        check("", Some((Json, View::Object)));
        check(
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
            Some((Json, View::Table)),
        );
        check("application/vnd.kubernetes.protobuf, */*", Some((Protobuf, View::Object)));
        check(
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
            Some((Protobuf, View::Metadata)),
        );
        check("application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1", None);
        check("application/json;as=Table", None);
        check("application/json;as=Table;g=meta.k8s.io;v=v2, application/json", Some((Json, View::Object)));
        check("application/json;q=0.2, application/yaml;q=0.75", Some((Yaml, View::Object)));
        check("*/*, application/yaml", Some((Yaml, View::Object)));
        check("application/yaml", Some((Yaml, View::Object)));
        check("image/png", None);
    }
}
