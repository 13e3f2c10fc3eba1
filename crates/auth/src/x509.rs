//! Who a client certificate says its holder is: common name to user, organizations to groups.
//!
//! The chain was verified in the TLS handshake; nothing is verified here.
//! Source: `x509.CommonNameUserConversion`.

use x509_parser::prelude::{FromDer, X509Certificate};

use crate::UserInfo;

/// A certificate that names nobody.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// Not X.509.
    #[error("the client certificate cannot be read")]
    Unreadable,
    /// No common name.
    #[error("the client certificate has no common name")]
    Nameless,
}

/// What a subject says.
pub(crate) struct Subject {
    pub(crate) common_name: String,
    pub(crate) organizations: Vec<String>,
}

impl Subject {
    /// The last common name, and all organizations in order.
    pub(crate) fn of(certificate: &X509Certificate<'_>) -> Self {
        let text = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            attribute.as_str().map(str::to_owned).unwrap_or_default()
        };
        let subject = certificate.subject();
        Self {
            common_name: subject.iter_common_name().last().map(text).unwrap_or_default(),
            organizations: subject.iter_organization().map(text).collect(),
        }
    }
}

/// The user that the leaf certificate names; always in `system:authenticated`.
///
/// # Errors
/// If it cannot be read or has no common name.
pub fn user(leaf: &[u8]) -> Result<UserInfo, CertificateError> {
    let (_, certificate) = X509Certificate::from_der(leaf).map_err(|_| CertificateError::Unreadable)?;
    let subject = Subject::of(&certificate);
    if subject.common_name.is_empty() {
        return Err(CertificateError::Nameless);
    }
    let groups: Vec<&str> = subject.organizations.iter().map(String::as_str).collect();
    let mut user = UserInfo::new(&subject.common_name, &groups);
    let fingerprint = ring::digest::digest(&ring::digest::SHA256, leaf);
    let id = fingerprint.as_ref().iter().fold("X509SHA256=".to_owned(), |id, byte| format!("{id}{byte:02x}"));
    user.extra.insert(crate::token::CREDENTIAL_ID.to_owned(), vec![id]);
    Ok(user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_certificate_names_nobody() {
        for bytes in [&b""[..], b"x", &[0x30, 0x82, 0xff, 0xff]] {
            assert!(matches!(user(bytes), Err(CertificateError::Unreadable)));
        }
    }
}
