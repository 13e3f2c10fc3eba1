//! Tokens of outside issuers: finds their keys, keeps them, and asks again when a token names a new one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use auth::UserInfo;
use auth::oidc::{Issuer, Keys, OidcError, issuer_of};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long an issuer gets to answer.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest document that is read.
const DOCUMENT_BYTES_MAX: usize = 1 << 20;
/// How soon keys are asked for again: a token with a made-up key costs at most this often a look.
const REFETCH_AFTER: SignedDuration = SignedDuration::from_secs(10);
/// Where hosts keep the authorities that they trust.
const HOST_AUTHORITIES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// The configured issuers.
#[derive(Debug, Default)]
pub(super) struct Oidc {
    issuers: Vec<Issuer>,
    keys: Mutex<HashMap<String, (Arc<Keys>, Timestamp)>>,
}

impl Oidc {
    /// No keys are known yet.
    pub(super) fn new(issuers: Vec<Issuer>) -> Self {
        Self { issuers, keys: Mutex::default() }
    }

    /// The user of a token and its issuer; `None` if no issuer here made it.
    ///
    /// # Errors
    /// Why it is refused, for the log.
    pub(super) async fn user(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Option<Result<(UserInfo, String), String>> {
        if self.issuers.is_empty() {
            return None;
        }
        let name = issuer_of(token)?;
        let issuer = self.issuers.iter().find(|issuer| issuer.url == name)?;
        let verified = self.verify(issuer, token, now).await;
        Some(verified.map(|user| (user, issuer.url.clone())))
    }

    async fn verify(&self, issuer: &Issuer, token: &str, now: Timestamp) -> Result<UserInfo, String> {
        let known = self.keys.lock().get(&issuer.url).cloned();
        if let Some((keys, at)) = known {
            match issuer.verify(token, &keys, now) {
                Err(OidcError::UnknownKey(_)) if at + REFETCH_AFTER <= now => {}
                verified => return verified.map_err(|why| why.to_string()),
            }
        }
        let fetched = tokio::time::timeout(FETCH_TIMEOUT, fetch_keys(issuer)).await;
        let keys = Arc::new(fetched.map_err(|_| "the issuer does not answer".to_owned())??);
        self.keys.lock().insert(issuer.url.clone(), (Arc::clone(&keys), now));
        issuer.verify(token, &keys, now).map_err(|why| why.to_string())
    }
}

async fn fetch_keys(issuer: &Issuer) -> Result<Keys, String> {
    let usual = || format!("{}/.well-known/openid-configuration", issuer.url.trim_end_matches('/'));
    let url = issuer.discovery_url.clone().unwrap_or_else(usual);
    let document: Value = fetch(issuer, &url).await?;
    if document.get("issuer").and_then(Value::as_str) != Some(&issuer.url) {
        return Err("the discovery document is another issuer's".to_owned());
    }
    let keys =
        document.get("jwks_uri").and_then(Value::as_str).ok_or("the discovery document has no jwks_uri")?;
    let keys = fetch(issuer, keys).await?;
    serde_json::from_value(keys).map_err(|failure| failure.to_string())
}

/// GET of a JSON document, over TLS only.
async fn fetch(issuer: &Issuer, url: &str) -> Result<Value, String> {
    let text = |failure: &dyn std::fmt::Display| failure.to_string();
    let uri: http::Uri = url.parse().map_err(|failure| text(&failure))?;
    let host = uri.host().filter(|_| uri.scheme_str() == Some("https")).ok_or("the URL must be https")?;
    let connector = connector(&issuer.ca_pem)?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(bare.to_owned()).map_err(|failure| text(&failure))?;
    let stream = TcpStream::connect((bare, uri.port_u16().unwrap_or(443))).await;
    let stream = connector.connect(name, stream.map_err(|f| text(&f))?).await.map_err(|f| text(&f))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|f| text(&f))?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let request = http::Request::get(path)
        .header(http::header::HOST, uri.authority().map_or(host, |authority| authority.as_str()))
        .header(http::header::ACCEPT, "application/json")
        .body(Empty::<Bytes>::new())
        .map_err(|failure| text(&failure))?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(|failure| text(&failure))?;
        if response.status() != http::StatusCode::OK {
            return Err(format!("the issuer answers {}", response.status()));
        }
        let body = Limited::new(response.into_body(), DOCUMENT_BYTES_MAX).collect().await;
        Ok(body.map_err(|failure| text(&failure))?.to_bytes())
    };
    tokio::pin!(connection);
    tokio::pin!(exchange);
    let body = tokio::select! {
        body = &mut exchange => body?,
        // The last bytes may be here although the other end has closed.
        _ = &mut connection => exchange.await?,
    };
    serde_json::from_slice(&body).map_err(|failure| text(&failure))
}

fn connector(ca_pem: &[u8]) -> Result<TlsConnector, String> {
    let text = |failure: &dyn std::fmt::Display| failure.to_string();
    let of_host = || HOST_AUTHORITIES.iter().find_map(|path| std::fs::read(path).ok()).unwrap_or_default();
    let pem = if ca_pem.is_empty() { of_host() } else { ca_pem.to_vec() };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|failure| text(&failure))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
