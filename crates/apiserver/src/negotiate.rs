//! Which form a client sends and which it wants: `Content-Type` and `Accept`.
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

/// What an object is turned into before it is serialised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// As it is.
    Object,
    /// `meta.k8s.io/v1 Table`
    Table,
    /// `meta.k8s.io/v1 PartialObjectMetadata`, or its list.
    Metadata,
}

/// What the client wants.
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

    /// Reads `Accept`; the first clause that can be met wins.
    ///
    /// # Errors
    /// 406 if none can be met.
    pub fn of(headers: &HeaderMap) -> Result<Self> {
        let Some(header) = headers.get(ACCEPT).and_then(|value| value.to_str().ok()) else {
            return Ok(Self::JSON);
        };
        if header.trim().is_empty() {
            return Ok(Self::JSON);
        }
        let clauses: Vec<Self> = header.split(',').filter_map(clause).collect();
        let preferred = clauses.iter().find(|c| c.format != Format::Protobuf || c.view == View::Object);
        preferred.or(clauses.first()).copied().ok_or_else(Error::not_acceptable)
    }
}

fn clause(text: &str) -> Option<Accept> {
    let mut parts = text.split(';').map(str::trim);
    let format = match parts.next()? {
        "*/*" | "application/*" | "application/json" => Format::Json,
        "application/yaml" | "application/x-yaml" | "text/yaml" => Format::Yaml,
        PROTOBUF => Format::Protobuf,
        _ => return None,
    };
    let (mut view, mut meta_version) = (View::Object, "meta.k8s.io/v1");
    for parameter in parts {
        match parameter.split_once('=') {
            Some(("as", "Table")) => view = View::Table,
            Some(("as", "PartialObjectMetadata" | "PartialObjectMetadataList")) => view = View::Metadata,
            Some(("as", _)) => return None,
            Some(("v", "v1beta1")) => meta_version = "meta.k8s.io/v1beta1",
            Some(("v", version)) if !matches!(version, "v1" | "v2" | "v2beta1") => return None,
            _ => {}
        }
    }
    Some(Accept { format, view, meta_version })
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
            Some((Json, View::Metadata)),
        );
        check("application/yaml", Some((Yaml, View::Object)));
        check("image/png", None);
    }
}
