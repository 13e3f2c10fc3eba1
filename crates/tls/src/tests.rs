use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::ServerName;
use rustls::server::WebPkiClientVerifier;
use tokio_rustls::TlsAcceptor;

use super::*;

struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, both in PEM.
struct Signed {
    certificate: String,
    key: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn trust(&self) -> Trust {
        Trust::Authorities(authorities(self.0.pem().as_bytes()).unwrap())
    }

    fn sign(&self, name: &str) -> Signed {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Signed { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

impl Signed {
    fn identity(&self) -> Identity {
        Identity::from_pem(self.certificate.as_bytes(), self.key.as_bytes()).unwrap()
    }
}

/// A server that shows `signed` and speaks `protocols`; clients must be `clients`' if there are any.
fn server(signed: &Signed, clients: Option<&Authority>, protocols: &[&[u8]]) -> TlsAcceptor {
    let builder = rustls::ServerConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.0.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let Identity { chain, key } = signed.identity();
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

/// Connects, and says what is spoken or why nothing is.
async fn meet(server: TlsAcceptor, client: TlsConnector, name: &'static str) -> Result<String, String> {
    let (here, there) = tokio::io::duplex(1 << 14);
    let name = ServerName::try_from(name).unwrap();
    let (client, server) = tokio::join!(client.connect(name, here), server.accept(there));
    let client = client.map_err(|failure| failure.to_string())?;
    server.map_err(|failure| failure.to_string())?;
    let spoken = client.get_ref().1.alpn_protocol().unwrap_or(b"-");
    Ok(String::from_utf8_lossy(spoken).into_owned())
}

#[tokio::test]
async fn servers_are_taken_by_who_vouches_for_them_and_by_their_name() {
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let signed = ours.sign("a.example");
    let meet = async |trust: Trust, name: &'static str| {
        meet(server(&signed, None, HTTP2), connector(trust, None, HTTP2).unwrap(), name).await
    };
    assert_eq!(meet(ours.trust(), "a.example").await.as_deref(), Ok("h2"));
    assert!(meet(ours.trust(), "b.example").await.unwrap_err().contains("not valid for name"));
    assert!(meet(other.trust(), "a.example").await.unwrap_err().contains("UnknownIssuer"));
    let nobody = Trust::Authorities(RootCertStore::empty());
    assert!(meet(nobody, "a.example").await.unwrap_err().contains("UnknownIssuer"));
    assert_eq!(meet(Trust::Anybody, "b.example").await.as_deref(), Ok("h2"));
}

#[tokio::test]
async fn what_is_spoken_is_what_both_have() {
    let ours = Authority::new("ours");
    let signed = ours.sign("a.example");
    for (of_server, of_client, spoken) in
        [(HTTP2, HTTP2, "h2"), (HTTP2, HTTP1, "http/1.1"), (HTTP1, HTTP2, "http/1.1"), (HTTP2, &[], "-")]
    {
        let client = connector(ours.trust(), None, of_client).unwrap();
        let met = meet(server(&signed, None, of_server), client, "a.example").await;
        assert_eq!(met.as_deref(), Ok(spoken), "{of_server:?} {of_client:?}");
    }
}

#[tokio::test]
async fn a_client_shows_who_it_is() {
    let ours = Authority::new("ours");
    let signed = ours.sign("a.example");
    let server = || server(&signed, Some(&ours), HTTP1);
    let client = |identity| connector(ours.trust(), identity, HTTP1).unwrap();
    let known = ours.sign("client.example").identity();
    assert_eq!(meet(server(), client(Some(known)), "a.example").await.as_deref(), Ok("http/1.1"));
    let stranger = Authority::new("other").sign("client.example").identity();
    assert!(meet(server(), client(Some(stranger)), "a.example").await.is_err());
    assert!(meet(server(), client(None), "a.example").await.is_err());
}

#[tokio::test]
async fn a_rule_is_told_what_is_shown_and_nobody_gets_in_without_the_key() {
    #[derive(Debug)]
    struct Only(Vec<u8>);
    impl Judge for Only {
        fn judge(&self, shown: &Shown<'_>) -> Result<(), rustls::Error> {
            assert_eq!(shown.name.to_str(), "b.example");
            assert!(shown.intermediates.is_empty());
            let is_it = shown.certificate.as_ref() == self.0;
            is_it.then_some(()).ok_or_else(|| rustls::CertificateError::UnknownIssuer.into())
        }
    }
    let ours = Authority::new("ours");
    let (one, other) = (ours.sign("a.example"), ours.sign("a.example"));
    let only = certificates(one.certificate.as_bytes()).unwrap().remove(0).to_vec();
    let client = || connector(Trust::Judged(Arc::new(Only(only.clone()))), None, HTTP1).unwrap();
    assert_eq!(meet(server(&one, None, HTTP1), client(), "b.example").await.as_deref(), Ok("http/1.1"));
    assert!(meet(server(&other, None, HTTP1), client(), "b.example").await.is_err());

    // The certificate alone is no proof: it is sent in the clear by those who have it.
    let thief = Arc::new(Thief(certificates(one.certificate.as_bytes()).unwrap(), other.identity().key));
    for client in [client(), connector(Trust::Anybody, None, HTTP1).unwrap()] {
        let config = rustls::ServerConfig::builder_with_provider(provider());
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let stolen = TlsAcceptor::from(Arc::new(config.with_cert_resolver(thief.clone())));
        let met = meet(stolen, client, "b.example").await;
        assert!(met.as_ref().is_err_and(|why| why.contains("BadSignature")), "{met:?}");
    }
}

/// Shows another's certificate.
#[derive(Debug)]
struct Thief(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl rustls::server::ResolvesServerCert for Thief {
    fn resolve(&self, _: rustls::server::ClientHello<'_>) -> Option<Arc<rustls::sign::CertifiedKey>> {
        let key = provider().key_provider.load_private_key(self.1.clone_key()).unwrap();
        Some(Arc::new(rustls::sign::CertifiedKey::new(self.0.clone(), key)))
    }
}

#[test]
fn what_cannot_be_read_or_used_is_said() {
    let ours = Authority::new("ours");
    let (one, other) = (ours.sign("a.example"), ours.sign("b.example"));
    let garbage = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
    assert!(matches!(certificates(garbage.as_bytes()), Err(Error::Pem(_))));
    assert!(certificates(b"no PEM at all").unwrap().is_empty());
    let keyless = Identity::from_pem(one.certificate.as_bytes(), one.certificate.as_bytes());
    assert!(matches!(keyless, Err(Error::Key(pem::Error::NoItemsFound))));
    let not_its_own = Identity { key: other.identity().key, ..one.identity() };
    assert!(matches!(client(Trust::Anybody, Some(not_its_own), HTTP1), Err(Error::Unusable(_))));
    // What is PEM, and of the right sort by its head, and no certificate all the same.
    let nonsense = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(matches!(authorities(nonsense.as_bytes()), Err(Error::Unusable(_))));
    let both = format!("{nonsense}{garbage}{}", ours.0.pem());
    assert_eq!(usable_authorities(both.as_bytes()).len(), 1);
}
