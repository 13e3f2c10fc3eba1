//! Asks a server for its documents of discovery; what has not changed is not sent again.

use std::time::Duration;

use http::StatusCode;
use http::header::{ACCEPT, ETAG, IF_NONE_MATCH};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;

use super::document::{self, Discovery, Root, Told};
use super::storage;
use crate::ask_error::AskError;
use crate::sender::Sender;

const FORM: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
/// One document: a thousand kinds are about half a MiB.
const DOCUMENT_BYTES_MAX: usize = 64 << 20;
/// A server that answers at all answers this soon.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// What was fetched last.
#[derive(Default)]
pub(super) struct Fetched([Option<Document>; 2]);

struct Document {
    tag: Option<String>,
    told: Told,
    /// The same with stored versions.
    stored: Discovery,
}

impl Fetched {
    /// Which resources there are now.
    ///
    /// # Errors
    /// Why the server could not say.
    pub(super) async fn refresh(&mut self, sender: &Sender) -> Result<Discovery, AskError> {
        let mut all = Discovery::default();
        for (known, root) in self.0.iter_mut().zip(Root::ALL) {
            let asked = tokio::time::timeout(ANSWER_MAX, fetch(sender, root, known.as_ref())).await;
            let failed = |_| AskError::TooLate(ANSWER_MAX.as_secs());
            if let Some(mut new) = asked.map_err(failed)?? {
                new.stored = known.take().map(|before| before.stored).unwrap_or_default();
                *known = Some(new);
            }
            // In which version something is stored can change, and the document does not.
            if let Some(Document { told, stored, .. }) = known {
                let asked =
                    tokio::time::timeout(ANSWER_MAX, storage::preferring_stored(sender, told, stored));
                *stored = asked.await.unwrap_or_else(|_| told.found.clone());
                all.extend(stored);
            }
        }
        Ok(all)
    }
}

/// The document, if it is another one than the one that is known.
async fn fetch(sender: &Sender, root: Root, known: Option<&Document>) -> Result<Option<Document>, AskError> {
    let mut request = http::Request::get(root.path()).header(ACCEPT, FORM);
    if let Some(tag) = known.and_then(|document| document.tag.as_deref()) {
        request = request.header(IF_NONE_MATCH, tag);
    }
    let request = request.body(Body::empty()).map_err(AskError::no_answer)?;
    let response = sender.send(request).await.map_err(AskError::no_answer)?;
    let (head, body) = response.into_parts();
    if head.status == StatusCode::NOT_MODIFIED && known.is_some() {
        return Ok(None);
    }
    let body = Limited::new(body, DOCUMENT_BYTES_MAX).collect().await.map_err(AskError::no_answer)?;
    let body = body.to_bytes();
    if !head.status.is_success() {
        return Err(AskError::refused(head.status, &body));
    }
    let told = document::read(&body, root)?;
    let tag = head.headers.get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
    Ok(Some(Document { tag, told, stored: Discovery::default() }))
}
