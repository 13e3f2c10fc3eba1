//! Kubernetes' protobuf: `application/vnd.kubernetes.protobuf`, in both directions.
//!
//! A body is the magic `k8s\0` and a `runtime.Unknown` that holds the type and the message's bytes; a stream of
//! watch events is length-delimited and has no magic of its own. Decoding gives what decoding the same object
//! from JSON gives. Lengths are checked before they are believed, and nesting is bounded.

mod decode;
mod encode;
pub(crate) mod wire;

use crate::arena::SchemaRef;
use crate::walk::decode::{DecodeError, FieldValidation, from_json};
use serde_json::Value;

/// The first bytes of every body.
pub const MAGIC: &[u8] = b"k8s\0";

/// The reason why bytes are not a message, or a value cannot become one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtoError {
    /// The magic is missing.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    Magic,
    /// A number or a length is cut off.
    #[error("unexpected EOF")]
    Truncated,
    /// The bytes break the rules of the format.
    #[error("proto: {0}")]
    Malformed(&'static str),
    /// The value would take far more memory than its bytes.
    #[error("Request entity too large: the values of the body take too much memory")]
    TooLarge,
    /// A field's bytes are not what its type has.
    #[error("proto: field {field}: {reason}")]
    Field {
        /// The name in JSON.
        field: String,
        /// What is wrong.
        reason: String,
    },
}

/// A `runtime.Unknown`: a message's bytes and what they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// Group and version, such as `apps/v1`.
    pub api_version: &'a str,
    /// The kind.
    pub kind: &'a str,
    /// The message, or JSON if the content type says so.
    pub raw: &'a [u8],
    /// Empty for protobuf.
    pub content_type: &'a str,
}

/// Opens a body.
///
/// # Errors
/// If it has no magic or is cut off.
pub fn open(bytes: &[u8]) -> Result<Envelope<'_>, ProtoError> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(ProtoError::Magic)?;
    let mut envelope = Envelope::default();
    let mut reader = wire::Reader::new(rest);
    while let Some((number, value)) = reader.next()? {
        match number {
            1 => {
                let mut inner = wire::Reader::new(value.bytes()?);
                while let Some((number, value)) = inner.next()? {
                    match number {
                        1 => envelope.api_version = value.text()?,
                        2 => envelope.kind = value.text()?,
                        _ => {}
                    }
                }
            }
            2 => envelope.raw = value.bytes()?,
            4 => envelope.content_type = value.text()?,
            _ => {}
        }
    }
    Ok(envelope)
}

/// Decodes what an envelope holds; the value gets the envelope's `apiVersion` and `kind`.
///
/// # Errors
/// If the bytes are no such message.
pub fn decode(schema: SchemaRef<'_>, envelope: &Envelope<'_>) -> Result<Value, ProtoError> {
    let mut value = if envelope.content_type == "application/json" {
        let decoded = from_json(schema, envelope.raw, FieldValidation::Ignore);
        let error = |error: DecodeError| match error {
            DecodeError::TooLarge => ProtoError::TooLarge,
            error => ProtoError::Field { field: "raw".into(), reason: error.to_string() },
        };
        decoded.map_err(error)?.value
    } else {
        decode_message(schema, envelope.raw)?
    };
    if let Value::Object(object) = &mut value {
        for (name, text) in [("apiVersion", envelope.api_version), ("kind", envelope.kind)] {
            if !text.is_empty() && schema.field(name).is_some() {
                object.insert(name.into(), text.into());
            }
        }
    }
    Ok(value)
}

/// Decodes a message without its envelope.
///
/// # Errors
/// If the bytes are no such message.
pub fn decode_message(schema: SchemaRef<'_>, bytes: &[u8]) -> Result<Value, ProtoError> {
    decode::message(schema, bytes)
}

/// Encodes a whole body; type and version come from the value.
///
/// # Errors
/// If the value is not of this schema.
pub fn encode(schema: SchemaRef<'_>, value: &Value) -> Result<Vec<u8>, ProtoError> {
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    Ok(seal(text("apiVersion"), text("kind"), &encode_message(schema, value)?))
}

/// Encodes a message without its envelope.
///
/// # Errors
/// If the value is not of this schema.
pub fn encode_message(schema: SchemaRef<'_>, value: &Value) -> Result<Vec<u8>, ProtoError> {
    encode::message(schema, value)
}

/// Puts a message's bytes into a body.
pub fn seal(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len() + api_version.len() + kind.len() + 24);
    out.extend_from_slice(MAGIC);
    wire::nested(&mut out, 1, |out| {
        wire::bytes(out, 1, api_version.as_bytes());
        wire::bytes(out, 2, kind.as_bytes());
    });
    wire::bytes(&mut out, 2, raw);
    wire::bytes(&mut out, 3, b"");
    wire::bytes(&mut out, 4, b"");
    out
}

/// The bytes around the items of a list, so that they need not be copied into one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListFrame {
    /// The envelope and the list's metadata.
    pub head: Vec<u8>,
    /// The rest of the envelope.
    pub tail: Vec<u8>,
    /// Bytes of the whole list.
    pub size: usize,
}

/// The frame of a list of items whose messages have these lengths.
///
/// # Errors
/// If `metadata` is not a `ListMeta`.
pub fn list_frame(
    api_version: &str,
    kind: &str,
    metadata: &Value,
    items: impl IntoIterator<Item = usize>,
) -> Result<ListFrame, ProtoError> {
    let schema = crate::builtin().message("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta");
    let schema = schema.ok_or(ProtoError::Malformed("no ListMeta"))?;
    let mut first = Vec::new();
    wire::bytes(&mut first, 1, &encode_message(schema, metadata)?);
    let length =
        items.into_iter().map(|length| list_item_head(length).as_ref().len() + length).sum::<usize>();
    let mut head = MAGIC.to_vec();
    wire::nested(&mut head, 1, |out| {
        wire::bytes(out, 1, api_version.as_bytes());
        wire::bytes(out, 2, kind.as_bytes());
    });
    wire::begin_bytes(&mut head, 2, first.len() + length);
    head.extend(first);
    let mut tail = Vec::new();
    wire::bytes(&mut tail, 3, b"");
    wire::bytes(&mut tail, 4, b"");
    let size = head.len() + length + tail.len();
    Ok(ListFrame { head, tail, size })
}

/// The bytes before an item of a list.
pub fn list_item_head(length: usize) -> ItemHead {
    let varint = wire::Varint::of(length as u64);
    let mut head = ItemHead { bytes: [LIST_ITEM_TAG; 11], length: 1 };
    for (byte, from) in head.bytes.iter_mut().skip(1).zip(varint.as_ref()) {
        *byte = *from;
        head.length += 1;
    }
    head
}

/// The tag of a list's items: field 2, bytes.
const LIST_ITEM_TAG: u8 = 2 << 3 | 2;

/// The bytes before an item of a list, without an allocation.
#[derive(Clone, Copy, Debug)]
pub struct ItemHead {
    bytes: [u8; 11],
    length: usize,
}

impl AsRef<[u8]> for ItemHead {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// The message of a `PartialObjectMetadata`: the first field of an object's message, which is its metadata in every
/// kind.
///
/// # Errors
/// If the bytes are no message.
pub fn partial_message(message: &[u8]) -> Result<Vec<u8>, ProtoError> {
    let mut out = Vec::new();
    let mut reader = wire::Reader::new(message);
    while let Some((number, value)) = reader.next()? {
        if number == 1 {
            wire::bytes(&mut out, 1, value.bytes()?);
        }
    }
    Ok(out)
}

/// One frame of a watch stream: four bytes of length and a `WatchEvent` around an object's body.
pub fn watch_event(event: &str, object: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 4];
    wire::bytes(&mut out, 1, event.as_bytes());
    wire::nested(&mut out, 2, |out| wire::bytes(out, 1, object));
    let length = u32::try_from(out.len() - 4).unwrap_or(u32::MAX);
    if let Some(head) = out.first_chunk_mut::<4>() {
        *head = length.to_be_bytes();
    }
    out
}

#[cfg(test)]
mod tests;
