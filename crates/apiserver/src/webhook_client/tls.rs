//! TLS to a webhook: whom the configuration trusts, and what this server shows of itself.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, RootCertStore};
use rustls_pki_types::CertificateDer;
use tls::{Judge, Shown, Trust};
use tokio_rustls::TlsConnector;

use super::Config;
use super::credentials::Credential;
use crate::configuration_error::ConfigurationError;

/// What cannot be used, if authorities cannot.
const ROOTS: &str = "unable to load root certificates";

/// What makes connections to a webhook safe.
///
/// # Errors
/// That the authorities or the client certificate cannot be read.
pub(super) fn connector(
    config: &Config,
    credential: &Credential,
) -> Result<TlsConnector, ConfigurationError> {
    let trusted = match config.ca_bundle.is_empty() {
        true => tls::OF_HOST.clone(),
        false => tls::certificates(&config.ca_bundle).map_err(ConfigurationError::of(ROOTS))?,
    };
    if trusted.is_empty() && !config.ca_bundle.is_empty() {
        return Err(ConfigurationError::of(ROOTS)("unable to parse bytes as PEM block"));
    }
    let trust = Trust::Judged(Arc::new(Trusted::new(trusted)?));
    let protocols = if config.address.takes_http2() { tls::HTTP2 } else { tls::HTTP1 };
    tls::connector(trust, credential.identity()?, protocols).map_err(ConfigurationError::unusable)
}

/// The usual rules, and besides them: a certificate that the configuration itself has is trusted, also if it is an
/// authority's. Many webhooks make one certificate for both, which Go takes.
#[derive(Debug)]
struct Trusted {
    /// Absent where nobody is trusted.
    usual: Option<Arc<WebPkiServerVerifier>>,
    certificates: Vec<CertificateDer<'static>>,
}

impl Trusted {
    fn new(certificates: Vec<CertificateDer<'static>>) -> Result<Self, ConfigurationError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates.iter().cloned());
        let usual = (!roots.is_empty())
            .then(|| WebPkiServerVerifier::builder_with_provider(Arc::new(roots), tls::provider()).build());
        Ok(Self { usual: usual.transpose().map_err(ConfigurationError::unusable)?, certificates })
    }

    /// Whether the certificate itself is trusted, now and for this name.
    fn check_itself(&self, shown: &Shown<'_>) -> Result<(), rustls::Error> {
        if !self.certificates.iter().any(|trusted| trusted.as_ref() == shown.certificate.as_ref()) {
            return Err(CertificateError::UnknownIssuer.into());
        }
        let validity = auth::x509::validity_of(shown.certificate).ok_or(CertificateError::BadEncoding)?;
        let seconds = i64::try_from(shown.now.as_secs()).unwrap_or(i64::MAX);
        if !validity.contains(&seconds) {
            return Err(CertificateError::Expired.into());
        }
        rustls::client::verify_server_name(&ParsedCertificate::try_from(shown.certificate)?, shown.name)
    }
}

impl Judge for Trusted {
    fn judge(&self, shown: &Shown<'_>) -> Result<(), rustls::Error> {
        let Some(usual) = &self.usual else { return Err(CertificateError::UnknownIssuer.into()) };
        let Shown { certificate, intermediates, name, ocsp, now } = *shown;
        match usual.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            Err(failure) if is_about_authorities(&failure) => self.check_itself(shown),
            verified => verified.map(|_| ()),
        }
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
