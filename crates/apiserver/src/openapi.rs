//! `/openapi/v3` per group-version, `/openapi/v2` whole, made once from the schema and the table.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::sync::{LazyLock, OnceLock};

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_ENCODING, ETAG, EXPIRES, IF_NONE_MATCH, LOCATION, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use jiff::{Timestamp, ToSpan};
use ring::digest::{Digest, SHA256, digest};
use schema::openapi::plain::Plain;
use schema::openapi::{Resource, Subresource, root_path, v2, v3};

use crate::kinds::Kind;
use crate::negotiate::JSON;
use crate::request_info::RequestInfo;
use crate::resource_metrics;
use crate::respond::finish::{gzip, takes_gzip};
use crate::respond::{Body, text};
use crate::status::{Error, Result};

/// What a document is about.
enum About {
    Resources(&'static str, &'static str),
    Plain(Plain),
}

struct Document {
    about: About,
    hash: String,
    json: OnceLock<Bytes>,
    protobuf: OnceLock<Bytes>,
}

impl Document {
    fn new(about: About) -> Self {
        let hash = match &about {
            About::Resources(group, version) => {
                with_resources(Some((group, version)), |resources| v3::hash(group, version, resources))
            }
            About::Plain(plain) => v3::plain_hash(plain),
        };
        Self { about, hash, json: OnceLock::new(), protobuf: OnceLock::new() }
    }

    fn make(&self) -> Vec<u8> {
        match &self.about {
            About::Resources(group, version) => with_resources(Some((group, version)), |resources| {
                let document = v3::document(schema::builtin(), group, version, resources);
                match *group == resource_metrics::GROUP {
                    true => resource_metrics::with_definitions(&document),
                    false => document,
                }
            }),
            About::Plain(plain) => v3::plain_document(schema::builtin(), plain),
        }
    }

    /// The document as it is kept, in a form.
    fn packed(&self, form: Form) -> &Bytes {
        match form {
            Form::Json => self.json.get_or_init(|| packed(&self.make())),
            Form::Protobuf => self.protobuf.get_or_init(|| packed(&v3::to_protobuf(&self.make()))),
        }
    }
}

static V3: LazyLock<BTreeMap<String, Document>> = LazyLock::new(|| {
    let mut documents = BTreeMap::new();
    for kind in Kind::all() {
        let (group, version) = (kind.group(), kind.version());
        let document = || Document::new(About::Resources(group, version));
        documents.entry(root_path(group, version)).or_insert_with(document);
    }
    for plain in plain_paths() {
        documents.insert(plain.path.clone(), Document::new(About::Plain(plain)));
    }
    documents
});

/// The paths that are no resources.
fn plain_paths() -> Vec<Plain> {
    let groups: BTreeSet<&str> =
        Kind::all().map(|kind| kind.group()).filter(|group| !group.is_empty()).collect();
    schema::openapi::plain::all(groups)
}

static V2_HASH: LazyLock<String> =
    LazyLock::new(|| with_resources(None, |resources| v3::hash("", "", resources)));
static V2_JSON: OnceLock<Bytes> = OnceLock::new();
static V2_PROTOBUF: OnceLock<Bytes> = OnceLock::new();

/// How a document is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Protobuf,
}

/// The form that a client wants of version `v2` or `v3`; JSON if it does not say. The best clause that can be met counts.
///
/// Source: `pkg/handler` and `pkg/handler3` of kube-openapi, `goautoneg.ParseAccept`.
///
/// `None` if it takes neither.
fn form(headers: &HeaderMap, version: &str) -> Option<Form> {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let accept = if accept.trim().is_empty() { "*/*" } else { accept };
    let protobuf =
        ["@", "."].map(|sign| format!("com.github.proto-openapi.spec.{version}{sign}v1.0+protobuf"));
    let mut clauses: Vec<(f32, Form)> = Vec::new();
    for clause in accept.split(',') {
        let mut parts = clause.split(';').map(str::trim);
        let (ty, subtype) = parts.next().unwrap_or_default().split_once('/').unwrap_or_default();
        let quality =
            parts.find_map(|part| part.strip_prefix("q=")).and_then(|q| q.parse().ok()).unwrap_or(1.0);
        let found = match subtype {
            "json" | "*" => Form::Json,
            _ if protobuf.iter().any(|known| known == subtype) => Form::Protobuf,
            _ => continue,
        };
        if matches!(ty, "application" | "*") {
            clauses.push((quality, found));
        }
    }
    // Of equal ones the first.
    clauses.sort_by(|left, right| right.0.total_cmp(&left.0));
    clauses.first().map(|(_, form)| *form)
}

/// 406, without a word as upstream.
fn not_acceptable() -> Response<Body> {
    text(StatusCode::NOT_ACCEPTABLE, "text/plain; charset=utf-8", Bytes::new())
}

/// Calls `make` with the rows of a group-version, or with all of them.
fn with_resources<T>(group_version: Option<(&str, &str)>, make: impl FnOnce(&[Resource<'_>]) -> T) -> T {
    let kinds: Vec<Kind> = Kind::all()
        .filter(|kind| match group_version {
            Some((group, version)) => kind.group() == group && kind.version() == version,
            // Nobody who asks for v2 looks for what cannot be written.
            None => kind.group() != resource_metrics::GROUP,
        })
        .collect();
    let subresources: Vec<Vec<Subresource<'_>>> = kinds
        .iter()
        .map(|kind| {
            let rows = kind.row().subresources.iter();
            rows.map(|sub| Subresource {
                name: sub.name,
                group: sub.group,
                version: sub.version,
                kind: sub.kind,
                verbs: sub.verbs,
            })
            .collect()
        })
        .collect();
    let resources: Vec<Resource<'_>> = kinds
        .iter()
        .zip(&subresources)
        .map(|(kind, subresources)| Resource {
            group: kind.group(),
            version: kind.version(),
            kind: kind.kind(),
            plural: kind.resource(),
            namespaced: kind.is_namespaced(),
            verbs: kind.row().verbs,
            is_deletion_answered: kind.is_deletion_answered(),
            subresources,
        })
        .collect();
    make(&resources)
}

/// Answers a path below `/openapi`.
///
/// # Errors
/// 404 for what is not served.
pub fn document(
    version: &str,
    path: &str,
    info: &RequestInfo,
    headers: &HeaderMap,
    now: Timestamp,
) -> Result<Response<Body>> {
    match version {
        "v2" => Ok(second(headers)),
        "v3" => third(path, info, headers, now),
        _ => Err(Error::unknown_path()),
    }
}

/// The index, which is JSON always, or a document. Who names the document's hash may keep it; who names another is sent to the right one.
fn third(path: &str, info: &RequestInfo, headers: &HeaderMap, now: Timestamp) -> Result<Response<Body>> {
    let rest = path.trim_start_matches("/openapi/v3").trim_start_matches('/');
    if rest.is_empty() {
        let documents = V3.iter().map(|(path, document)| (path.as_str(), document.hash.as_str()));
        let index = v3::index(documents);
        let etag = format!("\"{}\"", hex(&digest(&SHA256, &index)));
        return Ok(match is_known(headers, &etag) {
            true => tagged(text(StatusCode::NOT_MODIFIED, JSON, Bytes::new()), &etag),
            false => tagged(text(StatusCode::OK, JSON, index), &etag),
        });
    }
    let document = V3.get(rest).ok_or_else(Error::unknown_path)?;
    let Some(form) = form(headers, "v3") else { return Ok(not_acceptable()) };
    let content_type = if form == Form::Json { JSON } else { v3::PROTOBUF_MEDIA_TYPE };
    let etag = format!("\"{}\"", document.hash);
    let hash = info.query.get("hash").filter(|hash| !hash.is_empty());
    if hash.is_some_and(|hash| hash != document.hash) {
        return Ok(moved(&v3::url(rest, &document.hash)));
    }
    if is_known(headers, &etag) {
        return Ok(tagged(text(StatusCode::NOT_MODIFIED, JSON, Bytes::new()), &etag));
    }
    let mut response = tagged(unpacked(content_type, document.packed(form), headers), &etag);
    response.headers_mut().append(VARY, HeaderValue::from_static("Accept"));
    if hash.is_some() {
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
        let end = now.checked_add((365 * 24).hours()).unwrap_or(now);
        if let Ok(end) = HeaderValue::from_str(&end.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()) {
            headers.insert(EXPIRES, end);
        }
    }
    Ok(response)
}

fn moved(url: &str) -> Response<Body> {
    let mut response = text(StatusCode::MOVED_PERMANENTLY, "text/html; charset=utf-8", Bytes::new());
    if let Ok(url) = HeaderValue::from_str(url) {
        response.headers_mut().insert(LOCATION, url);
    }
    response
}

/// Whether a client says that it has the document with this tag. Source: RFC 9110, section 13.1.2.
fn is_known(headers: &HeaderMap, etag: &str) -> bool {
    let known = headers.get_all(IF_NONE_MATCH).into_iter().filter_map(|known| known.to_str().ok());
    let mut known = known.flat_map(|known| known.split(',')).map(str::trim);
    known.any(|known| known == "*" || known.trim_start_matches("W/") == etag)
}

fn second(headers: &HeaderMap) -> Response<Body> {
    let Some(form) = form(headers, "v2") else { return not_acceptable() };
    let etag = format!("\"{}\"", V2_HASH.as_str());
    if is_known(headers, &etag) {
        return tagged(text(StatusCode::NOT_MODIFIED, JSON, Bytes::new()), &etag);
    }
    let plain = plain_paths();
    let value = || with_resources(None, |resources| v2::document(schema::builtin(), resources, &plain));
    if form == Form::Protobuf {
        let bytes = V2_PROTOBUF.get_or_init(|| packed(&v2::to_protobuf(&value())));
        return tagged(unpacked(v2::PROTOBUF_MEDIA_TYPE, bytes, headers), &etag);
    }
    let bytes = V2_JSON.get_or_init(|| packed(value().to_string().as_bytes()));
    tagged(unpacked(JSON, bytes, headers), &etag)
}

/// A document as it is kept: compressed, because few are ever asked for twice and most clients take it so.
fn packed(document: &[u8]) -> Bytes {
    gzip(document).map(Bytes::from).unwrap_or_default()
}

/// A kept document as a client wants it.
fn unpacked(content_type: &'static str, packed: &Bytes, headers: &HeaderMap) -> Response<Body> {
    if takes_gzip(headers) {
        let mut response = text(StatusCode::OK, content_type, packed.clone());
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        response.headers_mut().append(VARY, HeaderValue::from_static("Accept-Encoding"));
        return response;
    }
    let mut document = Vec::new();
    match GzDecoder::new(packed.as_ref()).read_to_end(&mut document) {
        Ok(_) => text(StatusCode::OK, content_type, document),
        Err(failure) => crate::respond::error(&Error::internal(failure), None),
    }
}

fn hex(bytes: &Digest) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02X}")).collect()
}

fn tagged(mut response: Response<Body>, etag: &str) -> Response<Body> {
    if let Ok(value) = HeaderValue::from_str(etag) {
        response.headers_mut().insert(ETAG, value);
    }
    response
}
