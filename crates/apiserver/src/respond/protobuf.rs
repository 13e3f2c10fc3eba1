//! Lists and watch events in protobuf, assembled around the objects' own encodings.
//!
//! Source: `runtime.Unknown`, `metav1.ListMeta`, `metav1.WatchEvent`, `runtime.RawExtension` (generated.proto).

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::Value;

use crate::codec;
use crate::kinds::Kind;
use crate::verbs::list::Listed;

/// Four bytes in front of every protobuf object.
pub const MAGIC: &[u8] = b"k8s\0";

/// A list: each object's message, without its envelope, in an envelope around all. `None` if the kind has no
/// protobuf form.
pub fn list(kind: Kind, listed: &Listed) -> Option<Bytes> {
    let mut metadata = BytesMut::new();
    bytes_field(&mut metadata, 2, listed.revision.to_string().as_bytes());
    if let Some(token) = &listed.continue_token {
        bytes_field(&mut metadata, 3, token.as_bytes());
    }
    if let Some(remaining) = listed.remaining {
        varint(&mut metadata, 4 << 3);
        varint(&mut metadata, remaining as u64);
    }
    let mut message = BytesMut::new();
    bytes_field(&mut message, 1, &metadata);
    for object in &listed.objects {
        let encoded = object.protobuf(|value| codec::encode_protobuf_message(kind, value))?;
        bytes_field(&mut message, 2, encoded);
    }
    Some(envelope(&kind.api_version(), kind.row().list_kind, &message))
}

/// An object's message in its envelope.
pub fn envelope(api_version: &str, kind: &str, message: &[u8]) -> Bytes {
    let mut type_meta = BytesMut::new();
    bytes_field(&mut type_meta, 1, api_version.as_bytes());
    bytes_field(&mut type_meta, 2, kind.as_bytes());
    let mut out = BytesMut::with_capacity(message.len() + type_meta.len() + 32);
    out.put_slice(MAGIC);
    bytes_field(&mut out, 1, &type_meta);
    bytes_field(&mut out, 2, message);
    bytes_field(&mut out, 3, b"");
    bytes_field(&mut out, 4, b"");
    out.freeze()
}

/// A watch event: a length, then the event, with the object in its envelope.
pub fn watch_event(event_type: &str, object: &[u8]) -> Bytes {
    let mut raw = BytesMut::with_capacity(object.len() + 8);
    bytes_field(&mut raw, 1, object);
    let mut event = BytesMut::with_capacity(raw.len() + 24);
    bytes_field(&mut event, 1, event_type.as_bytes());
    bytes_field(&mut event, 2, &raw);
    let mut out = BytesMut::with_capacity(event.len() + 4);
    out.put_u32(u32::try_from(event.len()).unwrap_or(u32::MAX));
    out.put_slice(&event);
    out.freeze()
}

/// An object of any kind in its envelope.
pub fn object(value: &Value) -> Option<Bytes> {
    codec::encode_protobuf(value)
}

fn bytes_field(out: &mut BytesMut, number: u64, bytes: &[u8]) {
    varint(out, number << 3 | 2);
    varint(out, bytes.len() as u64);
    out.put_slice(bytes);
}

fn varint(out: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.put_u8(value.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_names_the_type_before_the_message() {
        let bytes = envelope("v1", "Pod", b"\x0a\x00");
        assert_eq!(&bytes[..], b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x02\x0a\x00\x1a\x00\x22\x00");
    }

    #[test]
    fn a_watch_event_carries_its_length() {
        assert_eq!(&watch_event("ADDED", b"x")[..], b"\x00\x00\x00\x0c\x0a\x05ADDED\x12\x03\x0a\x01x");
    }
}
