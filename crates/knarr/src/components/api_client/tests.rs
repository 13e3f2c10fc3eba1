use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use auth::pki::{self, Subject};
use bytes::Bytes;
use futures::future::join_all;
use futures::{StreamExt, stream};
use http::{Request, Response, Version};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::service::service_fn;
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::sync::Barrier;
use tokio_rustls::TlsAcceptor;

use super::*;

/// Requests under way at once.
const MANY: usize = 20;

/// A server that answers [`MANY`] short requests together, and those of watches with a line and no end.
struct Server {
    url: String,
    certificate_pem: String,
    connections: Arc<AtomicUsize>,
    _serving: tokio::task::JoinSet<()>,
}

impl Server {
    async fn start(protocols: &[&[u8]]) -> Self {
        let subject = Subject::server("server", "server", vec!["localhost".to_owned()], Vec::new());
        let identity = pki::self_signed(&subject, jiff::Timestamp::now()).unwrap();
        let shown = tls::certificates(identity.certificate_pem.as_bytes()).unwrap();
        let key = rustls::pki_types::pem::PemObject::from_pem_slice(identity.key_pem.as_bytes()).unwrap();
        let mut config = super::super::serving::tls(shown, key, None).unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let connections = Arc::new(AtomicUsize::new(0));
        let mut serving = tokio::task::JoinSet::new();
        serving.spawn(serve(listener, acceptor, connections.clone()));
        Self { url, certificate_pem: identity.certificate_pem, connections, _serving: serving }
    }

    fn client(&self) -> kube::Client {
        let mut config = kube::Config::new(self.url.parse().unwrap());
        let certificates = tls::certificates(self.certificate_pem.as_bytes()).unwrap();
        config.root_cert = Some(certificates.iter().map(|certificate| certificate.to_vec()).collect());
        client(&config, &by_name(&config).unwrap()).unwrap()
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, connections: Arc<AtomicUsize>) {
    let together = Arc::new(Barrier::new(MANY));
    loop {
        let (stream, _): (_, SocketAddr) = listener.accept().await.unwrap();
        let (acceptor, connections, together) = (acceptor.clone(), connections.clone(), together.clone());
        tokio::spawn(async move {
            // Two may be begun before it is known that one is enough.
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let is_counted = AtomicUsize::new(0);
            let service = service_fn(|request: Request<Incoming>| {
                if is_counted.swap(1, Ordering::Relaxed) == 0 {
                    connections.fetch_add(1, Ordering::Relaxed);
                }
                let together = together.clone();
                async move {
                    let is_warm_up = request.uri().path() == "/version";
                    let is_watch = request.uri().query().is_some_and(|query| query.contains("watch"));
                    if !is_watch && !is_warm_up {
                        together.wait().await;
                    }
                    let version = if request.version() == Version::HTTP_2 { "2" } else { "1" };
                    let first = Bytes::from_static(version.as_bytes());
                    let body = match is_watch {
                        false => Full::new(first).boxed(),
                        true => {
                            let first = stream::iter([Ok::<_, Infallible>(Frame::data(first))]);
                            BodyExt::boxed(StreamBody::new(first.chain(stream::pending())))
                        }
                    };
                    Ok::<_, Infallible>(Response::new(body))
                }
            });
            auto::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await
                .ok();
        });
    }
}

async fn get(client: &kube::Client, path: &str) -> String {
    client.request_text(Request::get(path).body(Vec::new()).unwrap()).await.unwrap()
}

/// A watch, and what it is served over.
async fn watch(client: &kube::Client) -> (Response<Body>, String) {
    let request = Request::get("/api/v1/pods?watch=true").body(Body::empty()).unwrap();
    let mut response = client.send(request).await.unwrap();
    let first = response.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
    (response, String::from_utf8_lossy(&first).into_owned())
}

#[tokio::test]
async fn requests_share_a_connection_and_each_watch_has_its_own() {
    let server = Server::start(tls::HTTP2).await;
    let client = server.client();
    assert_eq!(get(&client, "/version").await, "2");
    let answers = join_all((0..MANY).map(|_| get(&client, "/api"))).await;
    assert!(answers.iter().all(|version| version == "2"), "{answers:?}");
    assert_eq!(server.connections(), 1);
    let watches = join_all((0..3).map(|_| watch(&client))).await;
    assert!(watches.iter().all(|(_, version)| version == "1"));
    assert_eq!(server.connections(), 4);
}

#[tokio::test]
async fn a_server_of_http_1_has_a_connection_per_request_under_way() {
    let server = Server::start(tls::HTTP1).await;
    let client = server.client();
    let answers = join_all((0..MANY).map(|_| get(&client, "/api"))).await;
    assert!(answers.iter().all(|version| version == "1"), "{answers:?}");
    assert_eq!(server.connections(), MANY);
    assert_eq!(watch(&client).await.1, "1");
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_is_not_spoken_to() {
    let (server, other) = (Server::start(tls::HTTP2).await, Server::start(tls::HTTP2).await);
    let mistaken = Server { certificate_pem: other.certificate_pem.clone(), ..server };
    let refused = mistaken.client().request_text(Request::get("/version").body(Vec::new()).unwrap()).await;
    assert!(base::error_chain(&refused.unwrap_err()).contains("invalid peer certificate"));
    assert_eq!(mistaken.connections(), 0);
}

#[test]
fn nobody_goes_around_a_proxy_that_is_asked_for() {
    let mut config = kube::Config::new("https://192.0.2.1:6443".parse().unwrap());
    assert!(by_name(&config).is_ok());
    config.proxy_url = Some("http://user:secret@192.0.2.9:3128".parse().unwrap());
    let refused = by_name(&config).unwrap_err().to_string();
    assert!(refused.contains("proxy-url") && !refused.contains("secret"), "{refused}");
}

#[test]
fn what_lasts_is_known_by_what_is_asked() {
    for (path, lasts) in [
        ("/api/v1/pods", false),
        ("/api/v1/pods?watch=true", true),
        ("/api/v1/pods?limit=5&watch=1", true),
        ("/api/v1/pods?watch=false", false),
        ("/api/v1/pods?labelSelector=watch%3Dtrue", false),
        ("/api/v1/namespaces/a/pods/b/log?container=c&follow=true", true),
        ("/api/v1/namespaces/a/pods/b/log", false),
    ] {
        assert_eq!(is_lasting(&Request::get(path).body(Body::empty()).unwrap()), lasts, "{path}");
    }
    let exec = Request::get("/api/v1/namespaces/a/pods/b/exec").header("upgrade", "websocket");
    assert!(is_lasting(&exec.body(Body::empty()).unwrap()));
}
