//! Documents of issuers.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The longest document that is read.
const DOCUMENT_BYTES_MAX: usize = 1 << 20;
/// Where hosts keep the authorities that they trust.
const HOST_AUTHORITIES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// GET of a document, over TLS only. `ca_pem` are the authorities that are trusted, the host's if it is empty; `token`
/// says who asks.
///
/// # Errors
/// Why there is none.
pub(super) async fn get(ca_pem: &[u8], url: &str, token: Option<&str>) -> Result<Bytes, String> {
    let text = |failure: &dyn std::fmt::Display| failure.to_string();
    let uri: http::Uri = url.parse().map_err(|failure| text(&failure))?;
    let host = uri.host().filter(|_| uri.scheme_str() == Some("https")).ok_or("the URL must be https")?;
    let connector = connector(ca_pem)?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(bare.to_owned()).map_err(|failure| text(&failure))?;
    let stream = TcpStream::connect((bare, uri.port_u16().unwrap_or(443))).await;
    let stream = connector.connect(name, stream.map_err(|f| text(&f))?).await.map_err(|f| text(&f))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|f| text(&f))?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let mut request = http::Request::get(path)
        .header(http::header::HOST, uri.authority().map_or(host, |authority| authority.as_str()))
        .header(http::header::ACCEPT, "application/json, application/jwt");
    if let Some(token) = token {
        request = request.header(http::header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|failure| text(&failure))?;
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
    tokio::select! {
        body = &mut exchange => body,
        // The last bytes may be here although the other end has closed.
        _ = &mut connection => exchange.await,
    }
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
