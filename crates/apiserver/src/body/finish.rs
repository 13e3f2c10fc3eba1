//! The last touch to a complete answer: indented for people, compressed for those who ask.
//!
//! Watches and other streams pass as they are, and so does what a kubelet or a proxied backend said.
//! Source: `k8s.io/apiserver/pkg/endpoints/handlers/responsewriters`.

use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT, VARY};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;

use super::{Body, BoxError};
use crate::negotiate::JSON;
use crate::request_info::RequestInfo;

/// Shorter answers are not worth compressing.
const GZIP_BYTES_MIN: u64 = 128 * 1024;
/// Programs that people look at the output of, by how they call themselves.
const PEOPLE: [&str; 3] = ["curl", "Wget", "Mozilla/5.0"];

/// The mark of an answer that somebody else gave: it passes as it is.
#[derive(Clone, Copy, Debug)]
pub struct PassedOn;

/// The mark of a response whose body ends by itself though its length is not known, with a guess at that, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Finite(pub u64);

/// The wishes of a client about any answer.
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

    /// The finished answer. What changes it works frame by frame, so that a long answer is never there as a whole.
    pub fn apply(self, response: Response<Body>) -> Response<Body> {
        let is_own = response.extensions().get::<PassedOn>().is_none();
        let Some(size) = size(&response).filter(|_| is_own) else { return response };
        let headers = response.headers();
        let is_encoded = headers.contains_key(CONTENT_ENCODING);
        let is_pretty =
            self.is_pretty && !is_encoded && headers.get(CONTENT_TYPE).is_some_and(|kind| kind == JSON);
        let is_gzip =
            self.is_gzip && size > GZIP_BYTES_MIN && response.status() == StatusCode::OK && !is_encoded;
        if !(is_pretty || is_gzip) {
            return response;
        }
        let (mut parts, body) = response.into_parts();
        if is_gzip {
            parts.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            parts.headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
        }
        let indent = is_pretty.then(Indent::default);
        let gzip = is_gzip.then(|| GzEncoder::new(Vec::new(), Compression::fast()));
        Response::from_parts(parts, Finished { body, indent, gzip }.boxed_unsync())
    }
}

/// The size of an answer's body, exact or at most; `None` if it never ends by itself.
pub fn size(response: &Response<Body>) -> Option<u64> {
    let guess = response.extensions().get::<Finite>().map(|finite| finite.0);
    response.body().size_hint().exact().or(guess)
}

/// A body that is changed on its way out.
struct Finished {
    body: Body,
    indent: Option<Indent>,
    gzip: Option<GzEncoder<Vec<u8>>>,
}

impl Finished {
    /// What is sent for a frame; empty if it is kept for later.
    fn change(&mut self, bytes: Bytes) -> std::io::Result<Bytes> {
        let bytes = match &mut self.indent {
            Some(indent) => indent.take(&bytes),
            None => bytes,
        };
        let Some(gzip) = &mut self.gzip else { return Ok(bytes) };
        gzip.write_all(&bytes)?;
        Ok(std::mem::take(gzip.get_mut()).into())
    }

    /// What is sent at the end.
    fn last(&mut self) -> std::io::Result<Bytes> {
        self.gzip.take().map_or_else(|| Ok(Bytes::new()), |gzip| gzip.finish().map(Bytes::from))
    }
}

impl http_body::Body for Finished {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(cx));
            let is_last = frame.is_none();
            let changed = match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => self.change(data),
                Some(Ok(Err(trailers))) => return Poll::Ready(Some(Ok(trailers))),
                Some(Err(failure)) => return Poll::Ready(Some(Err(failure))),
                None => self.last(),
            };
            return Poll::Ready(match changed {
                Ok(bytes) if bytes.is_empty() && is_last => None,
                Ok(bytes) if bytes.is_empty() => continue,
                Ok(bytes) => Some(Ok(Frame::data(bytes))),
                Err(failure) => Some(Err(failure.into())),
            });
        }
    }
}

/// `true` if `Accept-Encoding` names gzip.
pub fn takes_gzip(headers: &HeaderMap) -> bool {
    let text = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(',').any(|one| one.split(';').next().is_some_and(|name| name.trim() == "gzip"))
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

/// Writes JSON with a line for each value, two spaces deep per level, as Go does. It takes the text in any pieces.
#[derive(Debug, Default)]
struct Indent {
    depth: usize,
    is_text: bool,
    is_escaped: bool,
    /// A container was opened, and nothing is known of its content.
    is_open: bool,
}

impl Indent {
    fn take(&mut self, json: &[u8]) -> Bytes {
        let mut out = BytesMut::with_capacity(json.len() * 2);
        for byte in json {
            self.byte(*byte, &mut out);
        }
        out.freeze()
    }

    fn byte(&mut self, byte: u8, out: &mut BytesMut) {
        if self.is_text {
            out.put_u8(byte);
            self.is_text = self.is_escaped || byte != b'"';
            self.is_escaped = !self.is_escaped && byte == b'\\';
            return;
        }
        if byte.is_ascii_whitespace() {
            return;
        }
        let is_end = matches!(byte, b'}' | b']');
        match (std::mem::take(&mut self.is_open), is_end) {
            (true, true) => return out.put_u8(byte),
            (true, false) => {
                self.depth += 1;
                new_line(out, self.depth);
            }
            (false, true) => {
                self.depth = self.depth.saturating_sub(1);
                new_line(out, self.depth);
            }
            (false, false) => {}
        }
        match byte {
            b':' => return out.put_slice(b": "),
            b'{' | b'[' => self.is_open = true,
            b'"' => self.is_text = true,
            _ => {}
        }
        out.put_u8(byte);
        if byte == b',' {
            new_line(out, self.depth);
        }
    }
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
        let json = br#"{"a":[1,"x{,\""],"b":{},"c":[ ]}"#;
        assert_eq!(Indent::default().take(json), expect);
        let mut indent = Indent::default();
        let pieces: Vec<u8> = json.chunks(1).flat_map(|piece| indent.take(piece)).collect();
        assert_eq!(String::from_utf8(pieces).unwrap(), expect);
    }

    #[tokio::test]
    async fn long_answers_are_compressed() {
        let long = format!("\"{}\"", "x".repeat(200_000));
        let wish = finish("/api", &[("accept-encoding", "gzip")]);
        let response = wish.apply(super::super::text(StatusCode::OK, JSON, long.clone()));
        assert_eq!(response.headers()[CONTENT_ENCODING], "gzip");
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let mut plain = String::new();
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut plain).unwrap();
        assert_eq!(plain, long);
        let short = wish.apply(super::super::text(StatusCode::OK, JSON, "{}"));
        assert!(!short.headers().contains_key(CONTENT_ENCODING));
    }
}
