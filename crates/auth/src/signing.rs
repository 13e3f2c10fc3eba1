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

    fn request(change: impl FnOnce(&mut CertificateParams)) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "anna");
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        params.serialize_request(&key).and_then(|request| request.pem()).expect("a request")
    }

    #[test]
    fn every_kind_of_name_is_told_apart() {
        use rcgen::SanType;
        let pem = request(|params| {
            params.subject_alt_names = vec![
                SanType::Rfc822Name("anna@example.com".try_into().expect("a text")),
                SanType::URI("spiffe://cluster/anna".try_into().expect("a text")),
                SanType::IpAddress("2001:db8::1".parse().expect("an address")),
                SanType::DnsName("*.example".try_into().expect("a text")),
                SanType::IpAddress("192.0.2.1".parse().expect("an address")),
            ];
        });
        let asked = Asked::of_pem(pem.as_bytes()).expect("readable");
        assert_eq!(
            (asked.emails, asked.uris),
            (vec!["anna@example.com".to_owned()], vec!["spiffe://cluster/anna".to_owned()])
        );
        assert_eq!(asked.dns_names, ["*.example"]);
        assert_eq!(
            asked.ips.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["2001:db8::1", "192.0.2.1"]
        );
        assert_eq!(
            (asked.common_name.as_str(), asked.organizations.len(), asked.has_more),
            ("anna", 0, false)
        );
    }

    #[test]
    fn a_subject_with_more_says_so_and_one_that_is_not_clear_is_refused() {
        let with = |kind: DnType, value: &'static str| {
            let pem = request(|params| params.distinguished_name.push(kind, value));
            Asked::parse(&STANDARD.encode(pem)).map(|asked| (asked.has_more, asked.organizations))
        };
        assert_eq!(with(DnType::OrganizationName, "dev"), Ok((false, vec!["dev".to_owned()])));
        assert_eq!(with(DnType::OrganizationalUnitName, "dev"), Ok((true, Vec::new())));
        assert_eq!(with(DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]), "u"), Ok((true, Vec::new())));
        let two = with(DnType::CustomDnType(vec![2, 5, 4, 3]), "system:node:a");
        assert_eq!(two, Err(RequestError::Subject(SubjectError::TwoNames)));
        assert_eq!(with(DnType::OrganizationName, "a\nb"), Err(RequestError::Subject(SubjectError::Value)));
        assert_eq!(with(DnType::OrganizationName, ""), Err(RequestError::Subject(SubjectError::Value)));
    }

    #[test]
    fn a_request_that_is_cut_is_none() {
        let pem = request(|_| {});
        let (_, block) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).expect("PEM");
        let of = |der: &[u8], label: &str| {
            let text = format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der));
            Asked::of_pem(text.as_bytes())
        };
        assert!(of(&block.contents, "CERTIFICATE REQUEST").is_ok());
        assert_eq!(of(&block.contents, "NEW CERTIFICATE REQUEST"), Err(RequestError::NotPem));
        assert_eq!(of(&block.contents, "certificate request"), Err(RequestError::NotPem));
        for end in 0..block.contents.len() {
            let cut = of(&block.contents[..end], "CERTIFICATE REQUEST");
            assert!(matches!(cut, Err(RequestError::NotARequest | RequestError::NotPem)), "{end}: {cut:?}");
        }
        for end in [0, 20, pem.len() - 30] {
            assert_eq!(Asked::of_pem(&pem.as_bytes()[..end]), Err(RequestError::NotPem), "{end}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        assert_eq!(Asked::parse("%%%"), Err(RequestError::NotPem));
        let pem = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert_eq!(Asked::of_pem(pem), Err(RequestError::NotPem));
    }
}
