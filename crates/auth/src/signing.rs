//! Certificate signing requests: what they ask for.
//!
//! Source: `certificates.k8s.io/v1`, RFC 2986.

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;

use crate::subject::{SubjectError, SubjectName};

/// A request that cannot be read, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// It is no PEM block of that type.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    NotPem,
    /// The block's content is something else.
    #[error("the block is no PKCS#10 request")]
    NotARequest,
    /// Its subject is not clear.
    #[error(transparent)]
    Subject(#[from] SubjectError),
}

/// The content of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// The user.
    pub common_name: String,
    /// The groups.
    pub organizations: Vec<String>,
    /// `true` if the subject has other attributes than these two.
    pub has_more: bool,
    /// Names of a server.
    pub dns_names: Vec<String>,
    /// Addresses of a server.
    pub ips: Vec<IpAddr>,
    /// Mail addresses.
    pub emails: Vec<String>,
    /// URIs.
    pub uris: Vec<String>,
}

impl Asked {
    /// Reads `spec.request`: a PEM block, base64 encoded.
    ///
    /// # Errors
    /// If it is none.
    pub fn parse(request: &str) -> Result<Self, RequestError> {
        Self::of_pem(&STANDARD.decode(request).map_err(|_| RequestError::NotPem)?)
    }

    /// Reads a PEM block.
    ///
    /// # Errors
    /// If it is none, or its subject is not clear.
    pub fn of_pem(pem: &[u8]) -> Result<Self, RequestError> {
        let (_, pem) = x509_parser::pem::parse_x509_pem(pem).map_err(|_| RequestError::NotPem)?;
        if pem.label != "CERTIFICATE REQUEST" {
            return Err(RequestError::NotPem);
        }
        let (_, request) =
            X509CertificationRequest::from_der(&pem.contents).map_err(|_| RequestError::NotARequest)?;
        let subject = SubjectName::of(&request.certification_request_info.subject)?;
        let mut asked = Self {
            common_name: subject.common_name().to_owned(),
            organizations: subject.organizations(),
            has_more: !subject.is_plain(),
            ..Self::default()
        };
        for extension in request.requested_extensions().into_iter().flatten() {
            if let ParsedExtension::SubjectAlternativeName(names) = extension {
                names.general_names.iter().for_each(|name| asked.add(name));
            }
        }
        Ok(asked)
    }

    fn add(&mut self, name: &GeneralName<'_>) {
        match name {
            GeneralName::DNSName(name) => self.dns_names.push((*name).to_owned()),
            GeneralName::RFC822Name(name) => self.emails.push((*name).to_owned()),
            GeneralName::URI(name) => self.uris.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => {
                let four = <[u8; 4]>::try_from(*bytes).map(IpAddr::from).ok();
                self.ips.extend(four.or_else(|| <[u8; 16]>::try_from(*bytes).map(IpAddr::from).ok()));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    #[test]
    fn a_request_says_who_and_where() {
        let mut params =
            CertificateParams::new(vec!["node.example".to_owned(), "10.0.0.1".to_owned()]).expect("names");
        params.distinguished_name.push(DnType::CommonName, "system:node:a");
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        let key = KeyPair::generate().expect("a key");
        let pem = params.serialize_request(&key).and_then(|request| request.pem()).expect("a request");
        let asked = Asked::of_pem(pem.as_bytes()).expect("readable");
        assert_eq!(asked.common_name, "system:node:a");
        assert_eq!(asked.organizations, ["system:nodes"]);
        assert_eq!(asked.dns_names, ["node.example"]);
        assert_eq!(asked.ips, ["10.0.0.1".parse::<IpAddr>().expect("an address")]);
    }

    #[test]
    fn anything_else_is_refused() {
        assert_eq!(Asked::parse("%%%"), Err(RequestError::NotPem));
        let pem = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert_eq!(Asked::of_pem(pem), Err(RequestError::NotPem));
    }
}
