//! Lists and watch events in protobuf, assembled around the objects' own encodings.

use bytes::Bytes;
use serde_json::Value;

use crate::cache::CachedObject;
use crate::codec;
use crate::kinds::Kind;
use crate::verbs::list::Listed;

/// An object's message without its envelope; kept with the object unless it is stored in another form.
fn message(kind: Kind, object: &CachedObject) -> Option<Bytes> {
    if kind.is_converted() {
        return codec::encode_protobuf_message(kind, &object.value());
    }
    object.protobuf(|value| codec::encode_protobuf_message(kind, value)).cloned()
}

/// A list. `None` if the kind has no protobuf form.
pub fn list(kind: Kind, listed: &Listed, metadata: &Value) -> Option<Bytes> {
    let items: Option<Vec<Bytes>> = listed.objects.iter().map(|object| message(kind, object)).collect();
    codec::protobuf_list(kind, metadata, &items?)
}

/// A stored object in its envelope.
pub fn object(kind: Kind, object: &CachedObject) -> Option<Bytes> {
    Some(codec::protobuf_envelope(kind, &message(kind, object)?))
}
