//! A collection as a body: its objects' own bytes between a head and a tail, in frames of moderate size.
//!
//! Nothing is put together into one piece, so that a list costs its frame in memory, however long it is. Bytes that
//! are shared stay shared: long ones are handed on as they are, short ones gathered.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use schema::proto::ListFrame;

use super::{Body, BoxError};
use crate::cache::CachedObject;
use crate::codec;

/// How long a gathered frame is, at least; at most a piece longer, so that its room never has to grow.
const FRAME_BYTES: usize = 64 * 1024;
/// Pieces of this length are frames of their own.
const LARGE_BYTES: usize = 16 * 1024;

/// What makes the bytes of an object.
type Encode = Box<dyn FnMut(&CachedObject) -> Bytes + Send>;
/// The part of an object's JSON that is an item.
type Item = fn(&CachedObject) -> Bytes;

/// The items that are still to come.
enum Items {
    /// Parts of objects' own JSON, after their opening braces, with a comma between them.
    Objects(std::vec::IntoIter<Arc<CachedObject>>, Item),
    /// Encoded one by one, with a comma between them.
    Json(std::vec::IntoIter<Arc<CachedObject>>, Encode),
    /// Encoded messages, each after its length.
    Protobuf(std::vec::IntoIter<Bytes>),
    /// The same, kept with their objects.
    OwnProtobuf(std::vec::IntoIter<Arc<CachedObject>>),
}

/// A list in pieces.
pub struct Pieces {
    items: Items,
    /// What comes next, in order.
    queue: VecDeque<Bytes>,
    tail: Option<Bytes>,
    is_first: bool,
    /// How many bytes are still to come, if that is known.
    left: Option<u64>,
}

impl Pieces {
    /// A list whose items are encoded one by one.
    pub fn json(
        head: Bytes,
        objects: Vec<Arc<CachedObject>>,
        encode: impl FnMut(&CachedObject) -> Bytes + Send + 'static,
        tail: Bytes,
    ) -> Self {
        let items = Items::Json(objects.into_iter(), Box::new(encode));
        Self { items, queue: VecDeque::from([head]), tail: Some(tail), is_first: true, left: None }
    }

    /// A list of parts of the objects' own JSON.
    pub fn of_objects(head: Bytes, objects: Vec<Arc<CachedObject>>, item: Item, tail: Bytes) -> Self {
        let commas = objects.len().saturating_sub(1);
        let size: usize = objects.iter().map(|object| 1 + item(object).len()).sum();
        let left = u64::try_from(head.len() + size + commas + tail.len()).ok();
        let items = Items::Objects(objects.into_iter(), item);
        Self { items, queue: VecDeque::from([head]), tail: Some(tail), is_first: true, left }
    }

    /// A list of messages.
    pub fn protobuf(frame: ListFrame, items: Vec<Bytes>) -> Self {
        Self::framed(frame, Items::Protobuf(items.into_iter()))
    }

    /// A list of the messages that are kept with these objects.
    pub fn own_protobuf(frame: ListFrame, objects: Vec<Arc<CachedObject>>) -> Self {
        Self::framed(frame, Items::OwnProtobuf(objects.into_iter()))
    }

    fn framed(frame: ListFrame, items: Items) -> Self {
        let left = u64::try_from(frame.size).ok();
        let queue = VecDeque::from([frame.head.into()]);
        Self { items, queue, tail: Some(frame.tail.into()), is_first: true, left }
    }

    /// The body.
    pub fn body(self) -> Body {
        self.boxed_unsync()
    }

    fn next_frame(&mut self) -> Option<Bytes> {
        let mut gathered = BytesMut::new();
        while gathered.len() < FRAME_BYTES {
            if gathered.is_empty() && self.queue.front().is_some_and(|piece| piece.len() >= LARGE_BYTES) {
                return self.queue.pop_front();
            }
            if gathered.capacity() == 0 {
                let left = self.left.and_then(|left| usize::try_from(left).ok()).unwrap_or(usize::MAX);
                gathered.reserve(left.min(FRAME_BYTES + LARGE_BYTES));
            }
            if !self.gather(&mut gathered) {
                break;
            }
        }
        (!gathered.is_empty()).then(|| gathered.freeze())
    }

    /// Adds the next piece; `false` if it is too long for that, and waits in the queue, or if there is none.
    fn gather(&mut self, out: &mut BytesMut) -> bool {
        if let Some(piece) = self.queue.pop_front() {
            return self.take(out, &[], &piece);
        }
        let (comma, open): (&[u8], &[u8]) = if self.is_first { (b"", b"{") } else { (b",", b",{") };
        match &mut self.items {
            Items::Objects(objects, item) => {
                if let Some(object) = objects.next() {
                    self.is_first = false;
                    let part = item(&object);
                    return self.take(out, open, &part);
                }
            }
            Items::Json(objects, encode) => {
                if let Some(object) = objects.next() {
                    self.is_first = false;
                    let encoded = encode(&object);
                    return self.take(out, comma, &encoded);
                }
            }
            Items::Protobuf(items) => {
                if let Some(item) = items.next() {
                    let head = codec::protobuf_list_item_head(item.len());
                    return self.take(out, head.as_ref(), &item);
                }
            }
            Items::OwnProtobuf(objects) => {
                if let Some(object) = objects.next() {
                    let message = object.kept_protobuf();
                    let head = codec::protobuf_list_item_head(message.len());
                    return self.take(out, head.as_ref(), message);
                }
            }
        }
        self.tail.take().is_some_and(|tail| self.take(out, &[], &tail))
    }

    /// Copies a piece that is short; a long one becomes the next frame as it is.
    fn take(&mut self, out: &mut BytesMut, before: &[u8], piece: &Bytes) -> bool {
        out.put_slice(before);
        if piece.len() < LARGE_BYTES {
            out.put_slice(piece);
            return true;
        }
        self.queue.push_front(piece.clone());
        false
    }
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let pieces = self.get_mut();
        let frame = pieces.next_frame();
        if let (Some(left), Some(frame)) = (&mut pieces.left, &frame) {
            *left = left.saturating_sub(frame.len() as u64);
        }
        Poll::Ready(frame.map(|frame| Ok(Frame::data(frame))))
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str, length: usize) -> Arc<CachedObject> {
        let stored = format!(
            r#"{{"kind":"A","apiVersion":"v1","metadata":{{"name":"{name}"}},"data":"{}"}}"#,
            "x".repeat(length)
        );
        Arc::new(CachedObject::from_stored(name.into(), stored.as_bytes(), 1).unwrap())
    }

    async fn check(objects: Vec<Arc<CachedObject>>, frames: usize) {
        let whole: Vec<String> =
            objects.iter().map(|o| String::from_utf8(o.untyped_item().into()).unwrap()).collect();
        let whole: Vec<String> = whole.iter().map(|item| format!("{{{item}")).collect();
        let expect = format!("[{}]", whole.join(","));
        let (head, tail) = (Bytes::from_static(b"["), Bytes::from_static(b"]"));
        let pieces = Pieces::of_objects(head, objects.clone(), CachedObject::untyped_item, tail);
        let mut body = pieces.body();
        assert_eq!(http_body::Body::size_hint(&body).exact(), Some(expect.len() as u64));
        let (mut got, mut count) = (Vec::new(), 0);
        while let Some(frame) = body.frame().await {
            got.extend_from_slice(&frame.unwrap().into_data().unwrap());
            count += 1;
        }
        assert_eq!(String::from_utf8(got).unwrap(), expect);
        assert_eq!(count, frames);
        assert_eq!(http_body::Body::size_hint(&body).exact(), Some(0));
    }

    #[tokio::test]
    async fn short_objects_are_gathered_and_long_ones_passed_on() {
        check(Vec::new(), 1).await;
        check(vec![object("a", 10), object("b", 10)], 1).await;
        check(vec![object("a", 10), object("b", 100_000), object("c", 10)], 3).await;
        check((0..100).map(|n| object(&n.to_string(), 2000)).collect(), 4).await;
    }
}
