//! Pages whose links are led back through the proxy, rewritten while they pass.
//!
//! Only attributes that hold one address are touched; text, comments, scripts and styles pass as they are. A tag is
//! held back until it is complete, up to a limit; a longer one passes as it is.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use super::rewrite::Rewrite;
use crate::respond::{Body, BoxError};

/// The longest tag that is rewritten.
const TAG_BYTES_MAX: usize = 64 * 1024;

/// Attributes that hold an address, whatever their element. Source: HTML 4.01 and 5, index of attributes.
const ATTRIBUTES: [&str; 13] = [
    "action",
    "background",
    "cite",
    "classid",
    "codebase",
    "data",
    "formaction",
    "href",
    "icon",
    "longdesc",
    "poster",
    "src",
    "usemap",
];
/// Elements whose content is no markup.
const RAW: [&str; 2] = ["script", "style"];

/// The page with its links rewritten.
pub(super) fn rewritten(page: Body, rewrite: Rewrite) -> Body {
    let state = (page, Rewriter { rewrite, pending: BytesMut::new(), raw: None }, VecDeque::new(), false);
    let frames = stream::unfold(state, |(mut page, mut rewriter, mut ready, mut is_over)| async move {
        while ready.is_empty() && !is_over {
            match page.frame().await {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => ready.push_back(Ok(Frame::data(rewriter.push(&data)))),
                    Err(trailers) => ready.push_back(Ok(trailers)),
                },
                Some(Err(error)) => ready.push_back(Err(error)),
                None => {
                    is_over = true;
                    ready.push_back(Ok(Frame::data(rewriter.pending.split().freeze())));
                }
            }
        }
        let frame: Result<Frame<Bytes>, BoxError> = ready.pop_front()?;
        Some((frame, (page, rewriter, ready, is_over)))
    });
    StreamBody::new(frames.boxed()).boxed_unsync()
}

struct Rewriter {
    rewrite: Rewrite,
    /// What may be a part of a tag.
    pending: BytesMut,
    /// The element whose content is no markup, while inside.
    raw: Option<&'static str>,
}

impl Rewriter {
    /// Takes a piece of the page; gives what is ready.
    fn push(&mut self, piece: &[u8]) -> Bytes {
        self.pending.extend_from_slice(piece);
        let mut out = BytesMut::new();
        loop {
            let Some(start) = self.pending.iter().position(|byte| *byte == b'<') else {
                out.extend_from_slice(&self.pending.split());
                return out.freeze();
            };
            out.extend_from_slice(&self.pending.split_to(start));
            let Some(end) = tag_end(&self.pending) else {
                if self.pending.len() > TAG_BYTES_MAX {
                    out.extend_from_slice(&self.pending.split());
                }
                return out.freeze();
            };
            let tag = self.pending.split_to(end);
            match std::str::from_utf8(&tag) {
                Ok(tag) => out.extend_from_slice(self.tag(tag).as_bytes()),
                Err(_) => out.extend_from_slice(&tag),
            }
        }
    }

    fn tag(&mut self, tag: &str) -> String {
        let name = tag.trim_start_matches(['<', '/']);
        let name =
            name.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default().to_ascii_lowercase();
        let is_end = tag.starts_with("</");
        match self.raw {
            Some(raw) if is_end && name == raw => self.raw = None,
            Some(_) => return tag.to_owned(),
            None => {}
        }
        if is_end || name.is_empty() {
            return tag.to_owned();
        }
        if !tag.ends_with("/>") {
            self.raw = RAW.into_iter().find(|raw| *raw == name);
        }
        self.attributes(tag)
    }

    /// The tag with the addresses in its quoted attributes rewritten.
    fn attributes(&self, tag: &str) -> String {
        let mut out = String::with_capacity(tag.len());
        let mut rest = tag;
        while let Some(equals) = rest.find('=') {
            let (before, after) = rest.split_at(equals + 1);
            out.push_str(before);
            let name = before.trim_end_matches('=').trim_end();
            let name = name.rsplit(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '/')).next();
            let value = after.trim_start();
            out.push_str(&after[..after.len() - value.len()]);
            rest = value;
            let Some(quote) = value.chars().next().filter(|c| matches!(c, '"' | '\'')) else { continue };
            let Some(end) = value[1..].find(quote) else { break };
            let address = &value[1..=end];
            let is_address =
                name.is_some_and(|name| ATTRIBUTES.contains(&name.to_ascii_lowercase().as_str()));
            out.push(quote);
            match is_address {
                true => out.push_str(&self.rewrite.url(address)),
                false => out.push_str(address),
            }
            out.push(quote);
            rest = &value[end + 2..];
        }
        out.push_str(rest);
        out
    }
}

/// Where the tag or comment at the start of `text` ends, if it does.
fn tag_end(text: &[u8]) -> Option<usize> {
    const COMMENT: &[u8] = b"<!--";
    if text.starts_with(COMMENT) {
        return text.windows(3).position(|end| end == b"-->").map(|at| at + 3);
    }
    if COMMENT.starts_with(text) {
        return None;
    }
    let mut quote = None;
    for (index, byte) in text.iter().enumerate() {
        match (quote, byte) {
            (None, b'>') => return Some(index + 1),
            (None, b'"' | b'\'') => quote = Some(*byte),
            (Some(open), byte) if open == *byte => quote = None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page in pieces of every size gives the same.
    fn check(page: &str, expect: &str) {
        for size in 1..=page.len() {
            let rewrite = Rewrite { prefix: "/p".into(), backend: "b:80".into(), host: "h".into() };
            let mut rewriter = Rewriter { rewrite, pending: BytesMut::new(), raw: None };
            let mut out = Vec::new();
            for piece in page.as_bytes().chunks(size) {
                out.extend_from_slice(&rewriter.push(piece));
            }
            out.extend_from_slice(&rewriter.pending);
            assert_eq!(String::from_utf8(out).unwrap(), expect, "in pieces of {size}");
        }
    }

    #[test]
    fn links_are_led_through_the_proxy() {
        check(r#"<a href="/x">go</a>"#, r#"<a href="/p/x">go</a>"#);
        check("<img alt='>' src = '/i.png'/>", "<img alt='>' src = '/p/i.png'/>");
        check(r#"<A class="/c" HREF="http://b:80/y">"#, r#"<A class="/c" HREF="/p/y">"#);
        check(r#"<a href="x"> <a href="http://o/x">"#, r#"<a href="x"> <a href="http://o/x">"#);
    }

    #[test]
    fn what_is_no_tag_stays() {
        check("1 < 2", "1 < 2");
        check(r#"<!-- <a href="/x"> -->"#, r#"<!-- <a href="/x"> -->"#);
        check(
            r#"<script>f('<a href="/x">')</script><a href="/y">"#,
            r#"<script>f('<a href="/x">')</script><a href="/p/y">"#,
        );
        check("<a href=", "<a href=");
    }
}
