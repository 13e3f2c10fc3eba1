//! Objects, lists and watch events in protobuf, assembled around the objects' own encodings.

use bytes::Bytes;
use serde_json::Value;

use super::list::Pieces;
use crate::answer::Listed;
use crate::cache::CachedObject;
use crate::codec;
use crate::kinds::Kind;
use crate::negotiate::{Accept, View};

/// An object's message without its envelope, in the view that is asked for. That of the object is kept with it unless
/// it is stored in another form.
fn message(kind: &Kind, accept: Accept, object: &CachedObject) -> Option<Bytes> {
    let whole = match kind.is_converted() {
        true => codec::encode_protobuf_message(kind, &object.value())?,
        false => object.protobuf(|value| codec::encode_protobuf_message(kind, value)).cloned()?,
    };
    match accept.view {
        View::Metadata | View::MetadataList => codec::protobuf_partial(&whole),
        View::Object | View::Table => Some(whole),
    }
}

/// A list. `None` if the kind has no protobuf form.
pub fn list(kind: &Kind, accept: Accept, listed: &Listed, metadata: &Value) -> Option<Pieces> {
    let items: Option<Vec<Bytes>> =
        listed.objects.iter().map(|object| message(kind, accept, object)).collect();
    let items = items?;
    let api_version = kind.api_version();
    let typed = match accept.view {
        View::MetadataList => (accept.meta_version, "PartialObjectMetadataList"),
        _ => (api_version, kind.list_kind()),
    };
    let frame = codec::protobuf_list_frame(typed, metadata, &items)?;
    Some(Pieces::protobuf(frame.head.into(), items, frame.tail.into()))
}

/// A stored object in its envelope, in the view that is asked for.
pub fn object(kind: &Kind, accept: Accept, object: &CachedObject) -> Option<Bytes> {
    let message = message(kind, accept, object)?;
    let api_version = kind.api_version();
    let typed = match accept.view {
        View::Metadata => (accept.meta_version, "PartialObjectMetadata"),
        _ => (api_version, kind.kind()),
    };
    Some(codec::protobuf_envelope(typed, &message))
}
