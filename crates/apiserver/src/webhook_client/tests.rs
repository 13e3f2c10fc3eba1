//! The client against servers on loopback: good ones, and all the others.

use std::sync::atomic::{AtomicUsize, Ordering};

use auth::pki::{Authority, Subject};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::*;

struct Loopback;

impl Dial for Loopback {
    fn host<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, Result<Connection, ConnectionError>> {
        Box::pin(async move {
            let connected = TcpStream::connect((host, port)).await.and_then(Connection::direct);
            connected.map_err(|source| ConnectionError::Dial { authority: format!("{host}:{port}"), source })
        })
    }

    fn service<'a>(
        &'a self,
        service: &'a ServiceReference,
    ) -> BoxFuture<'a, Result<Connection, ConnectionError>> {
        Box::pin(async move {
            Err(crate::status::Error::bad_request(format!("service {:?} not found", service.name)).into())
        })
    }
}

/// Reads a request, and answers all that has come.
async fn read(stream: &mut TlsStream<TcpStream>) -> String {
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer).await.unwrap_or(0);
        text.extend_from_slice(&buffer[..count]);
        let whole = String::from_utf8_lossy(&text).into_owned();
        if count == 0 || whole.contains("\r\n\r\n{}") {
            return whole;
        }
    }
}

fn answer(status: &str, head: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{head}\r\n{body}", body.len()).into_bytes()
}

/// What a server does with a connection, the n-th.
type Behaviour = fn(usize, TlsStream<TcpStream>) -> BoxFuture<'static, ()>;

struct Server {
    address: Address,
    ca_bundle: Vec<u8>,
    connections: Arc<AtomicUsize>,
    _dir: tempfile::TempDir,
}

/// A server whose certificate is for these names; none is for 127.0.0.1.
async fn serve(names: &[&str], behaviour: Behaviour) -> Server {
    let dir = tempfile::tempdir().unwrap();
    let now = jiff::Timestamp::now();
    let authority = Authority::load_or_create(dir.path(), now).unwrap();
    let (ips, names): (Vec<&str>, Vec<&str>) =
        names.iter().partition(|name| name.parse::<std::net::IpAddr>().is_ok());
    let subject = Subject::server(
        "hook",
        "hook",
        names.iter().map(|name| (*name).to_owned()).collect(),
        ips.iter().map(|ip| ip.parse().unwrap()).collect(),
    );
    let identity = authority.issue(dir.path(), &subject, now).unwrap();
    let chain = CertificateDer::pem_slice_iter(identity.certificate_pem.as_bytes()).map(Result::unwrap);
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain.collect(), key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let nth = counted.fetch_add(1, Ordering::SeqCst);
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    behaviour(nth, stream).await;
                }
            });
        }
    });
    let address = Address::of_url(&format!("https://127.0.0.1:{port}/hook")).unwrap();
    let ca_bundle = authority.certificate_pem().as_bytes().to_vec();
    Server { address, ca_bundle, connections, _dir: dir }
}

impl Server {
    fn client(&self) -> Arc<Client> {
        self.client_with("").unwrap()
    }

    fn client_with(&self, kubeconfig: &str) -> Result<Arc<Client>, ConfigurationError> {
        let credentials = Credentials::parse(kubeconfig, |path| Err(path.into())).unwrap();
        let clients = Clients::new(Arc::new(Loopback), credentials, Tasks::new());
        let (address, ca_bundle) = (self.address.clone(), self.ca_bundle.clone());
        clients.client(&Config { address, ca_bundle })
    }
}

async fn call(client: &Client, milliseconds: u64) -> Result<String, String> {
    let deadline = Instant::now() + Duration::from_millis(milliseconds);
    let answer = client.post(Bytes::from_static(b"{}"), deadline).await;
    answer.map(|body| String::from_utf8(body.to_vec()).unwrap()).map_err(|error| error.to_string())
}

/// The failure without the URL, whose port is never the same.
async fn failure_of(server: &Server, milliseconds: u64) -> String {
    let failure = call(&server.client(), milliseconds).await.unwrap_err();
    failure.split_once("\": ").map_or(failure.clone(), |(_, why)| why.to_owned())
}

#[tokio::test]
async fn a_connection_is_kept_and_shows_who_calls() {
    let server = serve(&["127.0.0.1"], |_, mut stream| {
        Box::pin(async move {
            loop {
                let request = read(&mut stream).await;
                if request.is_empty() {
                    return;
                }
                let body = request.split("\r\n\r\n").next().unwrap().to_lowercase();
                stream.write_all(&answer("200 OK", "", &body)).await.unwrap();
            }
        })
    })
    .await;
    let client = server.client_with("{users: [{name: '*', user: {token: secret}}]}").unwrap();
    for _ in 0..3 {
        let head = call(&client, 9_500).await.unwrap();
        assert!(head.starts_with("post /hook?timeout=10s http/1.1"), "{head}");
        for line in
            ["user-agent: kube-apiserver-admission", "content-type: application/json", "bearer secret"]
        {
            assert!(head.contains(line), "{head}");
        }
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
    assert!(!format!("{client:?}").contains("secret"));
}

#[tokio::test]
async fn a_connection_that_was_closed_while_nobody_called_is_made_again() {
    let server = serve(&["127.0.0.1"], |_, mut stream| {
        Box::pin(async move {
            read(&mut stream).await;
            stream.write_all(&answer("200 OK", "", "{}")).await.unwrap();
            stream.shutdown().await.unwrap();
        })
    })
    .await;
    let client = server.client();
    for _ in 0..5 {
        assert_eq!(call(&client, 9_000).await.as_deref(), Ok("{}"));
    }
}

#[tokio::test]
async fn a_call_ends_in_time_however_slowly_it_is_answered() {
    let hanging = serve(&["127.0.0.1"], |_, mut stream| {
        Box::pin(async move {
            read(&mut stream).await;
            std::future::pending::<()>().await;
        })
    })
    .await;
    let dripping = serve(&["127.0.0.1"], |_, mut stream| {
        Box::pin(async move {
            read(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n").await.ok();
            while stream.write_all(b" ").await.is_ok() && stream.flush().await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
    })
    .await;
    for server in [hanging, dripping] {
        let begun = Instant::now();
        let failure = failure_of(&server, 300).await;
        assert_eq!(failure, "context deadline exceeded");
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}

#[tokio::test]
async fn what_goes_wrong_is_told_in_gos_words() {
    let table: &[(&str, Behaviour, &str)] = &[
        (
            "a huge answer",
            |_, mut stream| {
                Box::pin(async move {
                    read(&mut stream).await;
                    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.ok();
                    let block = vec![b' '; 64 << 10];
                    while stream.write_all(&block).await.is_ok() {}
                })
            },
            "the answer is longer than 3145728 bytes",
        ),
        ("it closes", |_, mut stream| Box::pin(async move { drop(read(&mut stream).await) }), "EOF"),
        (
            "a redirect",
            |_, mut stream| {
                Box::pin(async move {
                    read(&mut stream).await;
                    let head = "location: https://127.0.0.1:1/\r\n";
                    stream.write_all(&answer("307 Temporary Redirect", head, "x")).await.ok();
                    read(&mut stream).await;
                })
            },
            "the server responded with the status code 307 but did not return more information",
        ),
        (
            "nothing",
            |_, mut stream| {
                Box::pin(async move {
                    read(&mut stream).await;
                    stream.write_all(&answer("200 OK", "content-type: text/plain\r\n", "")).await.ok();
                    read(&mut stream).await;
                })
            },
            "0-length response with status code: 200 and content type: text/plain",
        ),
    ];
    for (name, behaviour, expect) in table {
        let server = serve(&["127.0.0.1"], *behaviour).await;
        assert_eq!(failure_of(&server, 20_000).await, *expect, "{name}");
    }
}

#[tokio::test]
async fn only_who_is_vouched_for_is_spoken_to() {
    let quiet: Behaviour = |_, mut stream| Box::pin(async move { drop(read(&mut stream).await) });
    let named = serve(&["hook.ns.svc", "other.example.com"], quiet).await;
    assert_eq!(
        failure_of(&named, 9_000).await,
        "tls: failed to verify certificate: x509: certificate is valid for hook.ns.svc, other.example.com, \
         not 127.0.0.1"
    );
    let mut strange = serve(&["127.0.0.1"], quiet).await;
    strange.ca_bundle = named.ca_bundle.clone();
    assert_eq!(
        failure_of(&strange, 9_000).await,
        "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    );
    strange.ca_bundle = b"no certificate".to_vec();
    assert_eq!(
        base::error_chain(&strange.client_with("").unwrap_err()),
        "unable to load root certificates: unable to parse bytes as PEM block"
    );
}

#[tokio::test]
async fn who_is_not_there_is_not_reached() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let clients = Clients::new(Arc::new(Loopback), Credentials::default(), Tasks::new());
    let address = Address::of_url(&format!("https://127.0.0.1:{port}")).unwrap();
    let client = clients.client(&Config { address, ca_bundle: Vec::new() }).unwrap();
    let failure = call(&client, 9_000).await.unwrap_err();
    let host = format!("127.0.0.1:{port}");
    assert_eq!(failure, format!("Post \"https://{host}/?timeout=9s\": dial tcp {host}: connection refused"));
    let service = ServiceReference { namespace: "ns".into(), name: "hook".into(), port: 443 };
    let address = Address::Service { service, path: "/x".into() };
    let client = clients.client(&Config { address, ca_bundle: Vec::new() }).unwrap();
    let failure = call(&client, 9_000).await.unwrap_err();
    assert_eq!(failure, "Post \"https://hook.ns.svc:443/x?timeout=9s\": service \"hook\" not found");
}
