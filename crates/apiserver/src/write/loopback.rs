//! The server's writes on its own account: through the same path as everybody else, as `system:apiserver`.

use futures::future::BoxFuture;
use machinery::metadata::{self, Metadata};
use serde_json::{Value, json};
use tracing::warn;

use super::allocation::Loopback;
use super::options::DeleteOptions;
use super::{Decoded, Writer, change, create, delete};
use crate::kinds::{GroupVersionResource, Part};
use crate::request;
use crate::request_info::Verb;
use crate::status::Result;

/// Creates an object unless it is there.
pub(crate) async fn ensure(
    writer: &Writer,
    resource: GroupVersionResource<'_>,
    namespace: &str,
    object: Value,
) -> Result<()> {
    let Some((request, object)) = request::of_server(writer, resource, namespace, object, Verb::Create)
    else {
        return Ok(());
    };
    let key = request.kind.key(namespace, Metadata::of(&object).name());
    writer.cache.fresh().await?;
    if request.kind.cache().get(&key).is_some() {
        return Ok(());
    }
    match create::create(writer, &request, Decoded::of_server(object)).await {
        Ok(_) => Ok(()),
        Err(error) if error.reason == "AlreadyExists" => Ok(()),
        Err(error) => {
            warn!(key, %error, "a bootstrap object was refused");
            Err(error)
        }
    }
}

/// Creates an object, or replaces all of it but its metadata.
pub(crate) async fn put(
    writer: &Writer,
    resource: GroupVersionResource<'_>,
    namespace: &str,
    object: Value,
) -> Result<()> {
    ensure(writer, resource, namespace, object.clone()).await?;
    let Some((request, wanted)) = request::of_server(writer, resource, namespace, object, Verb::Update)
    else {
        return Ok(());
    };
    writer.cache.fresh().await?;
    change::change(writer, &request, Part::Object, |old| {
        let mut new = wanted.clone();
        if let (Some(new), Some(old)) = (new.as_object_mut(), old.as_object()) {
            new.insert("metadata".to_owned(), old.get("metadata").cloned().unwrap_or_default());
        }
        // Without it nobody else's change in between is a conflict.
        metadata::remove(&mut new, "resourceVersion");
        Ok(Decoded::of_server(new))
    })
    .await?;
    Ok(())
}

/// The way that allocation has through all stages.
pub(crate) struct Client;

impl Loopback for Client {
    fn create<'a>(
        &'a self,
        writer: &'a Writer,
        resource: GroupVersionResource<'a>,
        namespace: &'a str,
        object: Value,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let Some((request, object)) =
                request::of_server(writer, resource, namespace, object, Verb::Create)
            else {
                return Ok(());
            };
            create::create(writer, &request, Decoded::of_server(object)).await.map(drop)
        })
    }

    fn delete<'a>(
        &'a self,
        writer: &'a Writer,
        resource: GroupVersionResource<'a>,
        key: (&'a str, &'a str),
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (namespace, object) = (key.0, identity(key));
            let Some((request, _)) = request::of_server(writer, resource, namespace, object, Verb::Delete)
            else {
                return Ok(());
            };
            delete::delete(writer, &request, &DeleteOptions::default()).await.map(drop)
        })
    }

    fn change_status<'a>(
        &'a self,
        writer: &'a Writer,
        resource: GroupVersionResource<'a>,
        key: (&'a str, &'a str),
        transform: &'a mut (dyn FnMut(&Value) -> Result<Decoded> + Send),
    ) -> BoxFuture<'a, Result<Option<u64>>> {
        Box::pin(async move {
            let (namespace, object) = (key.0, identity(key));
            let Some((request, _)) = request::of_server(writer, resource, namespace, object, Verb::Update)
            else {
                return Ok(None);
            };
            let changed = change::change(writer, &request.below("status"), Part::Status, transform).await?;
            Ok(Some(changed.revision))
        })
    }
}

fn identity((namespace, name): (&str, &str)) -> Value {
    match namespace {
        "" => json!({"metadata": {"name": name}}),
        _ => json!({"metadata": {"name": name, "namespace": namespace}}),
    }
}
