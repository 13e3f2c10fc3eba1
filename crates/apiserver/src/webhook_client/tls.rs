//! TLS to a webhook: whom the configuration trusts, and what this server shows of itself.

use std::sync::{Arc, LazyLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::TlsConnector;

use super::Config;
use super::credentials::Credential;

/// The host's authorities, read when they are first needed.
static OF_HOST: LazyLock<Vec<CertificateDer<'static>>> =
    LazyLock::new(|| rustls_native_certs::load_native_certs().certs);

/// What makes connections to a webhook safe.
///
/// # Errors
/// That the authorities or the client certificate cannot be read.
pub(super) fn connector(config: &Config, credential: &Credential) -> Result<TlsConnector, String> {
    let unusable = |why: &dyn std::fmt::Display| format!("unable to load root certificates: {why}");
    let trusted: Vec<CertificateDer<'static>> = match config.ca_bundle.is_empty() {
        true => OF_HOST.clone(),
        false => CertificateDer::pem_slice_iter(&config.ca_bundle)
            .collect::<Result<_, _>>()
            .map_err(|why| unusable(&why))?,
    };
    if trusted.is_empty() && !config.ca_bundle.is_empty() {
        return Err(unusable(&"unable to parse bytes as PEM block"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|why| why.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier::new(trusted, &provider)?));
    let mut tls = match credential.identity()? {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(|why| why.to_string())?,
        None => builder.with_no_client_auth(),
    };
    tls.alpn_protocols = match config.address.takes_http2() {
        true => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        false => vec![b"http/1.1".to_vec()],
    };
    Ok(TlsConnector::from(Arc::new(tls)))
}

/// The usual rules, and besides them: a certificate that the configuration itself has is trusted, also if it is an
/// authority's. Many webhooks make one certificate for both, which Go takes.
#[derive(Debug)]
struct Verifier {
    /// Absent where nobody is trusted.
    usual: Option<Arc<WebPkiServerVerifier>>,
    trusted: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn new(trusted: Vec<CertificateDer<'static>>, provider: &Arc<CryptoProvider>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted.iter().cloned());
        let usual = match roots.is_empty() {
            true => None,
            false => Some(
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
                    .build()
                    .map_err(|why| why.to_string())?,
            ),
        };
        Ok(Self { usual, trusted, provider: Arc::clone(provider) })
    }

    /// Whether the certificate itself is trusted, now and for this name.
    fn check_itself(
        &self,
        certificate: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        if !self.trusted.iter().any(|trusted| trusted.as_ref() == certificate.as_ref()) {
            return Err(CertificateError::UnknownIssuer.into());
        }
        let validity = auth::x509::validity_of(certificate).ok_or(CertificateError::BadEncoding)?;
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        if !validity.contains(&seconds) {
            return Err(CertificateError::Expired.into());
        }
        rustls::client::verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(usual) = &self.usual else { return Err(CertificateError::UnknownIssuer.into()) };
        match usual.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            Err(failure) if is_about_authorities(&failure) => {
                self.check_itself(certificate, name, now).map(|()| ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Whether it was the chain that was wrong, and neither time nor name. An authority's certificate in a server's place is
/// an error without a name of its own.
fn is_about_authorities(failure: &rustls::Error) -> bool {
    matches!(
        failure,
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::Other(_))
    )
}
