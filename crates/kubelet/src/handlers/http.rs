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
/// Requests of one call.
const REDIRECTS_MAX: usize = 10;

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

    /// The same request to the `Location` of an answer; `None` if that is none.
    fn sent_to(&self, location: &str) -> Option<Self> {
        let place: http::Uri = match location.split_once("://") {
            Some(_) => location.parse().ok()?,
            None if location.starts_with("//") => return None,
            None if location.starts_with('/') => location.parse().ok()?,
            None => {
                let folder = self.path.split('?').next()?.rsplit_once('/').map_or("", |(folder, _)| folder);
                format!("{folder}/{location}").parse().ok()?
            }
        };
        let path = place.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let Some(host) = place.host() else { return Some(Self { path, ..self.clone() }) };
        let is_tls = place.scheme_str() == Some("https");
        let port = place.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Some(Self { host, port, path, is_tls, ..self.clone() })
    }

    fn url(&self) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{}:{}{}", self.host, self.port, self.path)
    }
}

/// What came back.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Its beginning.
    pub(crate) body: String,
    location: Option<String>,
}

/// Asks, and follows where it is sent to on the same host, within `timeout` each time. An answer that leads to another
/// host is the answer. Source: `RedirectChecker` of upstream's `pkg/probe/http`.
///
/// # Errors
/// A text in upstream's form: no answer came.
pub(crate) async fn call(first: &HttpCall, timeout: Duration) -> Result<Answer, String> {
    let mut next = first.clone();
    for _ in 0..REDIRECTS_MAX {
        let failed = |error: String| format!("Get \"{}\": {error}", next.url());
        let answer = match tokio::time::timeout(timeout, exchange(&next)).await {
            Ok(result) => result.map_err(failed)?,
            Err(_) => {
                let late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
                return Err(failed(late.into()));
            }
        };
        let is_redirect = matches!(answer.status, 301 | 302 | 303 | 307 | 308);
        let place = answer.location.as_deref().filter(|_| is_redirect).and_then(|place| next.sent_to(place));
        match place.filter(|place| place.host == first.host) {
            Some(place) => next = place,
            None => return Ok(answer),
        }
    }
    Err(format!("Get \"{}\": stopped after {REDIRECTS_MAX} redirects", next.path))
}

async fn exchange(call: &HttpCall) -> Result<Answer, String> {
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

async fn request<S>(call: &HttpCall, stream: S) -> Result<Answer, String>
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
        // Go's word for a connection that ends before the answer.
        let ended = |e: &hyper::Error| e.is_canceled() || e.is_incomplete_message() || e.is_closed();
        let answer = sender.send_request(request).await;
        let answer = answer.map_err(|e| if ended(&e) { "EOF".to_owned() } else { e.to_string() })?;
        let status = answer.status().as_u16();
        let location = answer.headers().get(http::header::LOCATION);
        let location = location.and_then(|place| place.to_str().ok()).map(str::to_owned);
        let body = Limited::new(answer.into_body(), BODY_MAX).collect().await;
        let body = body.map(|b| String::from_utf8_lossy(&b.to_bytes()).into_owned()).unwrap_or_default();
        Ok(Answer { status, body, location })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_read_as_browsers_do() {
        let call = HttpCall {
            host: "10.42.0.9".into(),
            port: 8080,
            path: "/health/live?full".into(),
            is_tls: false,
            headers: Vec::new(),
        };
        for (location, expect) in [
            ("/ok", Some("http://10.42.0.9:8080/ok")),
            ("ok?x=1", Some("http://10.42.0.9:8080/health/ok?x=1")),
            ("http://10.42.0.9/ok", Some("http://10.42.0.9:80/ok")),
            ("https://10.42.0.9:8443", Some("https://10.42.0.9:8443/")),
            ("https://login.example/", Some("https://login.example:443/")),
            ("//login.example/", None),
            ("http://no space/", None),
        ] {
            assert_eq!(call.sent_to(location).map(|call| call.url()).as_deref(), expect, "{location}");
        }
    }
}
