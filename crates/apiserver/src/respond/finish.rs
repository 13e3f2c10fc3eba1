//! The last touch to a complete answer: indented for people, compressed for those who ask.
//!
//! Streams pass as they are.
//! Source: `k8s.io/apiserver/pkg/endpoints/handlers/responsewriters`.

use std::io::Write as _;

use bytes::{BufMut, Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT, VARY};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;

use super::{Body, full};
use crate::negotiate::JSON;
use crate::request_info::RequestInfo;

/// Shorter answers are not worth compressing.
const GZIP_BYTES_MIN: u64 = 128 * 1024;
/// Programs that people look at the output of, by how they call themselves.
const PEOPLE: [&str; 3] = ["curl", "Wget", "Mozilla/5.0"];

/// What a client wants of any answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finish {
    is_pretty: bool,
    is_gzip: bool,
}

impl Finish {
    /// Reads `pretty`, `User-Agent` and `Accept-Encoding`.
    pub fn of(info: &RequestInfo, headers: &HeaderMap) -> Self {
        let text =
            |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
        let is_pretty = match info.query.has("pretty") {
            true => info.query.flag("pretty"),
            false => PEOPLE.iter().any(|program| text(USER_AGENT).starts_with(program)),
        };
        let is_gzip = info.method == Method::GET && takes_gzip(headers);
        Self { is_pretty, is_gzip }
    }

    /// The finished answer.
    pub async fn apply(self, response: Response<Body>) -> Response<Body> {
        let Some(size) = response.body().size_hint().exact() else { return response };
        let headers = response.headers();
        let is_encoded = headers.contains_key(CONTENT_ENCODING);
        let is_pretty =
            self.is_pretty && !is_encoded && headers.get(CONTENT_TYPE).is_some_and(|kind| kind == JSON);
        let is_gzip =
            self.is_gzip && size > GZIP_BYTES_MIN && response.status() == StatusCode::OK && !is_encoded;
        if size == 0 || !(is_pretty || is_gzip) {
            return response;
        }
        let (mut parts, body) = response.into_parts();
        let bytes = match body.collect().await {
            Ok(collected) => collected.to_bytes(),
            // A complete body does not fail.
            Err(error) => return Response::from_parts(parts, failed(error)),
        };
        let bytes = if is_pretty { indented(&bytes) } else { bytes };
        let whole = bytes.clone();
        let zipped = match is_gzip {
            true => tokio::task::spawn_blocking(move || gzip(&whole)).await.ok().and_then(Result::ok),
            false => None,
        };
        let Some(zipped) = zipped else { return Response::from_parts(parts, full(bytes)) };
        parts.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        parts.headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
        Response::from_parts(parts, full(zipped))
    }
}

/// Whether `Accept-Encoding` names gzip.
pub fn takes_gzip(headers: &HeaderMap) -> bool {
    let text = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(',').any(|one| one.split(';').next().is_some_and(|name| name.trim() == "gzip"))
}

fn failed(error: super::BoxError) -> Body {
    http_body_util::StreamBody::new(futures::stream::iter([Err(error)])).boxed_unsync()
}

/// Compresses, at the level where time still matters more than size.
///
/// # Errors
/// None that memory does not make.
pub fn gzip(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// JSON with a line for each value, two spaces deep per level, as Go writes it.
fn indented(json: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(json.len() * 2);
    let (mut depth, mut is_text, mut is_escaped) = (0usize, false, false);
    let mut bytes = json.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if is_text {
            out.put_u8(byte);
            is_text = is_escaped || byte != b'"';
            is_escaped = !is_escaped && byte == b'\\';
            continue;
        }
        match byte {
            b'{' | b'[' => {
                out.put_u8(byte);
                if let Some(end) = bytes.next_if(|next| matches!(next, b'}' | b']')) {
                    out.put_u8(end);
                } else {
                    depth += 1;
                    new_line(&mut out, depth);
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.put_u8(byte);
            }
            b',' => {
                out.put_u8(byte);
                new_line(&mut out, depth);
            }
            b':' => out.put_slice(b": "),
            b' ' | b'\t' | b'\r' | b'\n' => {}
            byte => {
                is_text = byte == b'"';
                out.put_u8(byte);
            }
        }
    }
    out.freeze()
}

fn new_line(out: &mut BytesMut, depth: usize) {
    out.put_u8(b'\n');
    out.put_bytes(b' ', depth * 2);
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn finish(uri: &str, headers: &[(&'static str, &str)]) -> Finish {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        let (path, query) = uri.split_once('?').map_or((uri, None), |(path, query)| (path, Some(query)));
        Finish::of(&RequestInfo::parse(&Method::GET, path, query), &map)
    }

    #[test]
    fn people_get_lines_and_programs_what_they_ask_for() {
        let check = |uri, headers: &[(&'static str, &str)], is_pretty, is_gzip| {
            assert_eq!(finish(uri, headers), Finish { is_pretty, is_gzip }, "{uri} {headers:?}");
        };
        check("/api", &[("user-agent", "curl/8")], true, false);
        check("/api?pretty=false", &[("user-agent", "curl/8")], false, false);
        check("/api?pretty=1", &[("user-agent", "kubectl")], true, false);
        check("/api", &[("accept-encoding", "br, gzip;q=0.5")], false, true);
        check("/api", &[], false, false);
    }

    #[test]
    fn json_is_indented_as_go_does_it() {
        let expect = "{\n  \"a\": [\n    1,\n    \"x{,\\\"\"\n  ],\n  \"b\": {},\n  \"c\": []\n}";
        assert_eq!(indented(br#"{"a":[1,"x{,\""],"b":{},"c":[]}"#), expect);
    }

    #[tokio::test]
    async fn long_answers_are_compressed() {
        let long = format!("\"{}\"", "x".repeat(200_000));
        let wish = finish("/api", &[("accept-encoding", "gzip")]);
        let response = wish.apply(super::super::text(StatusCode::OK, JSON, long.clone())).await;
        assert_eq!(response.headers()[CONTENT_ENCODING], "gzip");
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let mut plain = String::new();
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut plain).unwrap();
        assert_eq!(plain, long);
        let short = wish.apply(super::super::text(StatusCode::OK, JSON, "{}")).await;
        assert!(!short.headers().contains_key(CONTENT_ENCODING));
    }
}
