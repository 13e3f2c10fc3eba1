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
        false => kept_message(kind, object).cloned()?,
    };
    match accept.view {
        View::Metadata | View::MetadataList => codec::protobuf_partial(&whole),
        View::Object | View::Table => Some(whole),
    }
}

/// The message of an object as it is stored.
fn kept_message<'o>(kind: &Kind, object: &'o CachedObject) -> Option<&'o Bytes> {
    object.protobuf(|value| codec::encode_protobuf_message(kind, value))
}

/// A list, for which the objects are taken. `None` if the kind has no protobuf form.
pub fn list(kind: &Kind, accept: Accept, listed: &mut Listed, metadata: &Value) -> Option<Pieces> {
    let api_version = kind.api_version();
    let typed = match accept.view {
        View::MetadataList => (accept.meta_version, "PartialObjectMetadataList"),
        _ => (api_version, kind.list_kind()),
    };
    let frame = |lengths: &[usize]| codec::protobuf_list_frame(typed, metadata, lengths.iter().copied());
    let is_own = !kind.is_converted() && matches!(accept.view, View::Object | View::Table);
    let objects = listed.objects.iter();
    if is_own {
        let lengths = objects.map(|object| kept_message(kind, object).map(Bytes::len));
        let frame = frame(&lengths.collect::<Option<Vec<_>>>()?)?;
        return Some(Pieces::own_protobuf(frame, std::mem::take(&mut listed.objects)));
    }
    let items: Vec<Bytes> = objects.map(|object| message(kind, accept, object)).collect::<Option<_>>()?;
    let frame = frame(&items.iter().map(Bytes::len).collect::<Vec<_>>())?;
    Some(Pieces::protobuf(frame, items))
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
