//! Documents of issuers.

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::error::IssuerError;
use crate::connection_error::ConnectionError;

/// The longest document that is read.
const DOCUMENT_BYTES_MAX: usize = 1 << 20;

/// GET of a document, over TLS only. `ca_pem` are the authorities that are trusted, the host's if it is empty; `token`
/// says who asks.
///
/// # Errors
/// Why there is none.
pub(super) async fn get(ca_pem: &[u8], url: &str, token: Option<&str>) -> Result<Bytes, IssuerError> {
    let uri: http::Uri = url.parse().map_err(|failure| ConnectionError::Uri(http::Error::from(failure)))?;
    if uri.host().is_none() || uri.scheme_str() != Some("https") {
        return Err(IssuerError::Scheme);
    }
    exchange(&connector(ca_pem)?, &uri, token).await?.map_err(IssuerError::Status)
}

/// The document, or the status that comes in its place.
async fn exchange(
    connector: &TlsConnector,
    uri: &http::Uri,
    token: Option<&str>,
) -> Result<Result<Bytes, StatusCode>, ConnectionError> {
    let host = uri.host().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(bare.to_owned())?;
    let stream = TcpStream::connect((bare, uri.port_u16().unwrap_or(443))).await?;
    let stream = connector.connect(name, stream).await?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let mut request = http::Request::get(path)
        .header(http::header::HOST, uri.authority().map_or(host, |authority| authority.as_str()))
        .header(http::header::ACCEPT, "application/json, application/jwt");
    if let Some(token) = token {
        request = request.header(http::header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Empty::<Bytes>::new())?;
    let read = async |response: http::Response<Incoming>| {
        if response.status() != StatusCode::OK {
            return Ok(Err(response.status()));
        }
        let body = Limited::new(response.into_body(), DOCUMENT_BYTES_MAX).collect().await;
        Ok(Ok(body.map_err(ConnectionError::Body)?.to_bytes()))
    };
    http1::ask(stream, request, read).await
}

fn connector(ca_pem: &[u8]) -> Result<TlsConnector, tls::Error> {
    let roots = match ca_pem.is_empty() {
        true => tls::authorities_of_host(),
        false => tls::usable_authorities(ca_pem),
    };
    tls::connector(tls::Trust::Authorities(roots), None, &[])
}
