//! `/openapi/v3` per group-version, `/openapi/v2` whole, made from the schema and what is served.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_ENCODING, ETAG, EXPIRES, IF_NONE_MATCH, LOCATION, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use jiff::{Timestamp, ToSpan};
use ring::digest::{Digest, SHA256, digest};
use schema::Schemas;
use schema::made::Made;
use schema::openapi::plain::Plain;
use schema::openapi::{Resource, Subresource, root_path, v2, v3};

use super::Delegate;
use super::Snapshot;
use super::specification::Specification;
use crate::body::finish::{gzip, takes_gzip};
use crate::body::{Body, text};
use crate::kinds::Kind;
use crate::negotiate::JSON;
use crate::request_info::RequestInfo;
use crate::status::{Error, Result};

/// What a document is about.
enum About {
    Resources(String, String, Vec<Kind>),
    Delegate(Arc<dyn Delegate>),
    Plain(Plain),
}

/// A document of version 3.
pub struct Document {
    about: About,
    hash: String,
    json: OnceLock<Bytes>,
    protobuf: OnceLock<Bytes>,
}

impl Document {
    fn new(about: About) -> Self {
        let hash = match &about {
            About::Resources(group, version, kinds) => hash_of((group, version), kinds),
            About::Delegate(delegate) => hash_of(delegate.group_version(), delegate.kinds()),
            About::Plain(plain) => v3::plain_hash(plain),
        };
        Self { about, hash, json: OnceLock::new(), protobuf: OnceLock::new() }
    }

    fn make(&self) -> Vec<u8> {
        match &self.about {
            About::Resources(group, version, kinds) => of_kinds((group, version), kinds),
            About::Delegate(delegate) => delegate.openapi(),
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

    /// The kinds of the catalogue that it is about.
    pub fn kinds(&self) -> &[Kind] {
        match &self.about {
            About::Resources(_, _, kinds) => kinds,
            About::Delegate(_) | About::Plain(_) => &[],
        }
    }

    fn is_about(&self, kinds: &[&Kind]) -> bool {
        let own = self.kinds();
        own.len() == kinds.len() && own.iter().zip(kinds).all(|(own, kind)| own.is(kind))
    }
}

fn hash_of((group, version): (&str, &str), kinds: &[Kind]) -> String {
    let arenas: String = kinds.iter().filter_map(|kind| kind.made()).map(Made::fingerprint).collect();
    with_resources(kinds, |resources| v3::hash(group, version, resources, &arenas))
}

/// The document of kinds.
pub fn of_kinds((group, version): (&str, &str), kinds: &[Kind]) -> Vec<u8> {
    with_arenas(kinds, |arenas| {
        with_resources(kinds, |resources| v3::document(arenas, group, version, resources))
    })
}

/// Calls `make` with the arenas of kinds' schemas: the program's own, and those of custom ones. Those that nobody has needed
/// yet are there for this call alone.
fn with_arenas<T>(kinds: &[Kind], make: impl FnOnce(&[&Schemas]) -> T) -> T {
    let made: Vec<_> = kinds.iter().filter_map(|kind| kind.made()?.arena()).collect();
    let all: Vec<&Schemas> =
        std::iter::once(schema::builtin()).chain(made.iter().map(|arena| &**arena)).collect();
    make(&all)
}

/// Documents by their paths. Of two states of the catalogue those are the same that are about the same kinds.
pub type Known = BTreeMap<String, Arc<Document>>;

/// All documents of what is served.
pub struct Documents {
    third: Known,
    /// The hashes of those that servers elsewhere have, by path.
    elsewhere: BTreeMap<String, String>,
    second: Second,
}

/// The one document of version 2: of all that can be written.
struct Second {
    kinds: Vec<Kind>,
    plain: Vec<Plain>,
    /// Of servers elsewhere.
    others: Vec<Arc<Specification>>,
    hash: String,
    json: OnceLock<Bytes>,
    protobuf: OnceLock<Bytes>,
}

impl Documents {
    /// The documents of a snapshot; those of an earlier one are kept as far as they are the same.
    pub fn of(snapshot: &Snapshot, earlier: &Known) -> Self {
        let mut third = Known::new();
        let mut by_path: BTreeMap<String, Vec<&Kind>> = BTreeMap::new();
        for kind in snapshot.discoverable() {
            by_path.entry(root_path(kind.group(), kind.version())).or_default().push(kind);
        }
        for (path, kinds) in by_path {
            let Some(first) = kinds.first() else { continue };
            let (group, version) = (first.group(), first.version());
            let document = match (snapshot.delegate(group, version), earlier.get(&path)) {
                (Some(delegate), _) => Arc::new(Document::new(About::Delegate(Arc::clone(delegate)))),
                (None, Some(known)) if known.is_about(&kinds) => Arc::clone(known),
                (None, _) => {
                    let kinds = kinds.into_iter().cloned().collect();
                    Arc::new(Document::new(About::Resources(group.to_owned(), version.to_owned(), kinds)))
                }
            };
            third.insert(path, document);
        }
        let groups: BTreeSet<&str> =
            snapshot.discoverable().map(Kind::group).filter(|group| !group.is_empty()).collect();
        let plain = schema::openapi::plain::all(groups);
        for plain in &plain {
            let document = || Arc::new(Document::new(About::Plain(plain.clone())));
            third.insert(plain.path.clone(), earlier.get(&plain.path).cloned().unwrap_or_else(document));
        }
        // Nobody who asks for version 2 looks for what others serve.
        let own = |kind: &&Kind| snapshot.delegate(kind.group(), kind.version()).is_none();
        let kinds: Vec<Kind> = snapshot.iter().filter(own).cloned().collect();
        let others: Vec<_> =
            snapshot.elsewhere().filter_map(|(_, discovery)| discovery.second.clone()).collect();
        let hash = others.iter().fold(hash_of(("", ""), &kinds), |hash, other| {
            hex(&digest(&SHA256, format!("{hash} {}", other.hash()).as_bytes()))
        });
        let second = Second { kinds, plain, others, hash, json: OnceLock::new(), protobuf: OnceLock::new() };
        let elsewhere = snapshot.elsewhere().filter_map(|((group, version), discovery)| {
            Some((root_path(group, version), discovery.third.clone()?))
        });
        Self { third, elsewhere: elsewhere.collect(), second }
    }

    /// The documents of version 3.
    pub fn known(&self) -> Known {
        self.third.clone()
    }
}

impl Second {
    fn packed(&self, form: Form) -> &Bytes {
        let value = || {
            let mut document = with_arenas(&self.kinds, |arenas| {
                with_resources(&self.kinds, |all| v2::document(arenas, all, &self.plain))
            });
            self.others.iter().for_each(|other| other.join(&mut document));
            document
        };
        match form {
            Form::Json => self.json.get_or_init(|| packed(value().to_string().as_bytes())),
            Form::Protobuf => self.protobuf.get_or_init(|| packed(&v2::to_protobuf(&value()))),
        }
    }
}

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

/// Calls `make` with the rows of kinds.
fn with_resources<T>(kinds: &[Kind], make: impl FnOnce(&[Resource<'_>]) -> T) -> T {
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
    documents: &Documents,
    version: &str,
    path: &str,
    info: &RequestInfo,
    headers: &HeaderMap,
    now: Timestamp,
) -> Result<Response<Body>> {
    match version {
        "v2" => Ok(second(&documents.second, headers)),
        "v3" => third(documents, path, info, headers, now),
        _ => Err(Error::unknown_path()),
    }
}

/// The index, which is JSON always, or a document. Who names the document's hash may keep it; who names another is sent to the
/// right one.
fn third(
    documents: &Documents,
    path: &str,
    info: &RequestInfo,
    headers: &HeaderMap,
    now: Timestamp,
) -> Result<Response<Body>> {
    let rest = path.trim_start_matches("/openapi/v3").trim_start_matches('/');
    if rest.is_empty() {
        let own = documents.third.iter().map(|(path, document)| (path.as_str(), document.hash.as_str()));
        let others = documents.elsewhere.iter().map(|(path, hash)| (path.as_str(), hash.as_str()));
        let hashes = own.chain(others);
        let index = v3::index(hashes);
        let etag = format!("\"{}\"", hex(&digest(&SHA256, &index)));
        return Ok(match is_known(headers, &etag) {
            true => tagged(text(StatusCode::NOT_MODIFIED, JSON, Bytes::new()), &etag),
            false => tagged(text(StatusCode::OK, JSON, index), &etag),
        });
    }
    if let Some(hash) = documents.elsewhere.get(rest) {
        return Ok(moved(&v3::url(rest, hash)));
    }
    let document = documents.third.get(rest).ok_or_else(Error::unknown_path)?;
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

fn second(document: &Second, headers: &HeaderMap) -> Response<Body> {
    let Some(form) = form(headers, "v2") else { return not_acceptable() };
    let etag = format!("\"{}\"", document.hash);
    if is_known(headers, &etag) {
        return tagged(text(StatusCode::NOT_MODIFIED, JSON, Bytes::new()), &etag);
    }
    let content_type = if form == Form::Json { JSON } else { v2::PROTOBUF_MEDIA_TYPE };
    tagged(unpacked(content_type, document.packed(form), headers), &etag)
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
        Err(failure) => crate::body::error(&Error::internal(failure), None),
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
