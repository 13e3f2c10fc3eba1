//! One HTTP request to a container, for hooks and probes. Certificates are not checked, as upstream does.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::HTTPGetAction;
use tokio::net::TcpStream;

use super::Target;

/// Bytes of an answer that are read.
const BODY_MAX: usize = 10 * 1024;

/// What to ask for.
#[derive(Clone, Debug)]
pub(crate) struct HttpCall {
    host: String,
    port: u16,
    path: String,
    is_tls: bool,
    headers: Vec<(String, String)>,
}

impl HttpCall {
    /// The request that `action` describes.
    ///
    /// # Errors
    /// Its port has a name that the container does not know.
    pub(crate) fn of(target: &Target<'_>, action: &HTTPGetAction) -> Result<Self, String> {
        let path = action.path.clone().unwrap_or_default();
        Ok(Self {
            host: target.host(action.host.as_deref()),
            port: target.port(&action.port)?,
            path: if path.starts_with('/') { path } else { format!("/{path}") },
            is_tls: action.scheme.as_deref() == Some("HTTPS"),
            headers: action
                .http_headers
                .iter()
                .flatten()
                .map(|h| (h.name.clone(), h.value.clone()))
                .collect(),
        })
    }

    fn url(&self) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{}:{}{}", self.host, self.port, self.path)
    }
}

/// The status code and the beginning of the body.
///
/// # Errors
/// A text in upstream's form: no answer came.
pub(crate) async fn call(call: &HttpCall, timeout: Duration) -> Result<(u16, String), String> {
    let failed = |error: String| format!("Get \"{}\": {error}", call.url());
    match tokio::time::timeout(timeout, exchange(call)).await {
        Ok(result) => result.map_err(failed),
        Err(_) => {
            Err(failed("context deadline exceeded (Client.Timeout exceeded while awaiting headers)".into()))
        }
    }
}

async fn exchange(call: &HttpCall) -> Result<(u16, String), String> {
    let stream = TcpStream::connect((call.host.as_str(), call.port))
        .await
        .map_err(|e| super::dial_error(&call.host, call.port, &e))?;
    if !call.is_tls {
        return request(call, TokioIo::new(stream)).await;
    }
    let name = rustls::pki_types::ServerName::try_from(call.host.clone()).map_err(|e| e.to_string())?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(tls_config()));
    let stream = connector.connect(name, stream).await.map_err(|e| e.to_string())?;
    request(call, TokioIo::new(stream)).await
}

async fn request<S>(call: &HttpCall, stream: S) -> Result<(u16, String), String>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(stream).await.map_err(|e| e.to_string())?;
    let mut builder = http::Request::get(&call.path).header("connection", "close");
    let names = |name: &str| call.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
    if names("host").is_none() {
        builder = builder.header("host", format!("{}:{}", call.host, call.port));
    }
    if names("user-agent").is_none() {
        builder = builder.header("user-agent", "kube-probe/1.35");
    }
    if names("accept").is_none() {
        builder = builder.header("accept", "*/*");
    }
    for (name, value) in &call.headers {
        builder = builder.header(name, value);
    }
    let request = builder.body(Empty::<Bytes>::new()).map_err(|e| e.to_string())?;
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(|e| e.to_string())?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), BODY_MAX).collect().await;
        let body = body.map(|b| String::from_utf8_lossy(&b.to_bytes()).into_owned()).unwrap_or_default();
        Ok((status, body))
    };
    tokio::pin!(connection);
    tokio::pin!(exchange);
    tokio::select! {
        result = &mut exchange => result,
        ended = &mut connection => {
            // The rest of the answer may be there although the connection has ended.
            match ended {
                Ok(()) => exchange.await,
                Err(error) => Err(error.to_string()),
            }
        }
    }
}

fn tls_config() -> rustls::ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(AnyCertificate(provider.clone()));
    let builder =
        rustls::ClientConfig::builder_with_provider(provider).with_protocol_versions(rustls::ALL_VERSIONS);
    match builder {
        Ok(builder) => builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth(),
        // Both versions are compiled in, so this does not happen; the default checks more, never less.
        Err(_) => rustls::ClientConfig::builder()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth(),
    }
}

/// Takes any certificate: a probe asks whether the container answers, not who it is.
#[derive(Debug)]
struct AnyCertificate(Arc<rustls::crypto::CryptoProvider>);

impl rustls::client::danger::ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &rustls::pki_types::CertificateDer<'_>,
        _intermediates: &[rustls::pki_types::CertificateDer<'_>],
        _server_name: &rustls::pki_types::ServerName<'_>,
        _ocsp_response: &[u8],
        _now: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &rustls::pki_types::CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &rustls::pki_types::CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
