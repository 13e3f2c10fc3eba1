//! Writes down on which day tokens in Secrets were used, so that the controller manager can take back those that nobody uses.
//!
//! Source: `pkg/serviceaccount/legacy.go`.

use machinery::metadata;
use serde_json::{Value, json};
use tracing::warn;

use crate::api::Api;
use crate::kinds::{GroupVersionResource, Part};
use crate::request;
use crate::request_info::Verb;
use crate::security::token_uses::{LAST_USED, day};
use crate::status::Result;
use crate::write::change::change;
use crate::write::{Decoded, Writer};

/// Writes for ever what [`crate::security::Security`] notes. What fails is noted again at the token's next use.
pub(crate) async fn follow(api: &Api) {
    loop {
        for (namespace, secret) in api.security.uses().next().await {
            if let Err(failure) = write_down(api, &namespace, &secret).await {
                warn!(%failure, namespace, secret, "the use of a service account's token was not written down");
            }
        }
    }
}

async fn write_down(writer: &Writer, namespace: &str, secret: &str) -> Result<()> {
    let name = json!({"metadata": {"name": secret}});
    let secrets = GroupVersionResource::core("secrets");
    let Some((request, _)) = request::of_server(writer, secrets, namespace, name, Verb::Update) else {
        return Ok(());
    };
    let today = day(writer.clock.now());
    let committed = change(writer, &request, Part::Object, |old| {
        let mut new = old.clone();
        new["metadata"]["labels"][LAST_USED] = Value::from(today.as_str());
        // Without it nobody else's change in between is a conflict.
        metadata::remove(&mut new, "resourceVersion");
        Ok(Decoded::of_server(new))
    });
    match committed.await {
        Ok(_) => Ok(()),
        Err(gone) if gone.code == 404 => Ok(()),
        Err(failure) => Err(failure),
    }
}
