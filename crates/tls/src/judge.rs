//! Rules of callers by which certificates are taken.

use std::fmt::Debug;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};

/// A rule by which a server's certificate is taken. That the server has its key is seen to besides.
pub trait Judge: Debug + Send + Sync {
    /// Takes it or not.
    ///
    /// # Errors
    /// Why not.
    fn judge(&self, shown: &Shown<'_>) -> Result<(), rustls::Error>;
}

/// The certificates that a server shows.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// The server's own certificate.
    pub certificate: &'a CertificateDer<'a>,
    /// The certificates between it and an authority, in the server's order.
    pub intermediates: &'a [CertificateDer<'a>],
    /// The name that the client asks for.
    pub name: &'a ServerName<'a>,
    /// The OCSP response, in DER; empty if there is none.
    pub ocsp: &'a [u8],
    /// The time now.
    pub now: UnixTime,
}

/// Takes whatever is shown.
#[derive(Debug)]
pub(super) struct Anybody;

impl Judge for Anybody {
    fn judge(&self, _: &Shown<'_>) -> Result<(), rustls::Error> {
        Ok(())
    }
}

/// A rule as rustls asks it.
pub(super) fn verifier(judge: Arc<dyn Judge>) -> Arc<dyn ServerCertVerifier> {
    Arc::new(Judged(judge))
}

#[derive(Debug)]
struct Judged(Arc<dyn Judge>);

impl ServerCertVerifier for Judged {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.0.judge(&Shown { certificate, intermediates, name, ocsp, now })?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = super::provider().signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = super::provider().signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        super::provider().signature_verification_algorithms.supported_schemes()
    }
}
