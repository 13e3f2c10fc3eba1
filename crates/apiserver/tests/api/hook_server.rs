//! A webhook for tests: TLS on loopback, and whatever behaviour a test gives it.

#![allow(unreachable_pub, reason = "every test file uses a part of it")]

use std::convert::Infallible;
use std::sync::Arc;

use auth::pki::{Authority, Subject};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// What a webhook answers.
pub enum Answer {
    /// A review with this response, whose uid is the request's.
    Says(Value),
    /// This, as it is.
    Whole(Value),
    /// A status and a text.
    Raw(u16, String),
    /// Spaces without end.
    Huge,
    /// The connection closes.
    Close,
    /// Nothing, for ever.
    Hang,
}

type Behaviour = Arc<dyn Fn(String, Value) -> BoxFuture<'static, Answer> + Send + Sync>;
type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A server that is there as long as its test.
pub struct HookServer {
    port: u16,
    authority: Authority,
    _dir: tempfile::TempDir,
}

impl HookServer {
    /// Answers each review, by path, as `behaviour` says.
    pub async fn start(behaviour: impl Fn(&str, &Value) -> Answer + Send + Sync + 'static) -> Self {
        let behaviour = Arc::new(behaviour);
        Self::start_async(move |path, review| {
            let behaviour = Arc::clone(&behaviour);
            Box::pin(async move { behaviour(&path, &review) })
        })
        .await
    }

    /// The same for a behaviour that waits.
    pub async fn start_async(
        behaviour: impl Fn(String, Value) -> BoxFuture<'static, Answer> + Send + Sync + 'static,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let now = jiff::Timestamp::now();
        let authority = Authority::load_or_create(dir.path(), now).unwrap();
        let subject = Subject::server("hook", "hook", vec![], vec!["127.0.0.1".parse().unwrap()]);
        let identity = authority.issue(dir.path(), &subject, now).unwrap();
        let chain = CertificateDer::pem_slice_iter(identity.certificate_pem.as_bytes()).map(Result::unwrap);
        let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain.collect(), key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(listen(listener, TlsAcceptor::from(Arc::new(config)), Arc::new(behaviour)));
        Self { port, authority, _dir: dir }
    }

    /// Where it is.
    pub fn url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.port)
    }

    /// Who vouches for it, as configurations have it.
    pub fn ca_bundle(&self) -> String {
        STANDARD.encode(self.authority.certificate_pem())
    }
}

async fn listen(listener: TcpListener, acceptor: TlsAcceptor, behaviour: Behaviour) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, behaviour) = (acceptor.clone(), Arc::clone(&behaviour));
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(|request| answer(request, Arc::clone(&behaviour)));
            let connection = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            // Clients break connections in some of these tests.
            connection.serve_connection(TokioIo::new(stream), service).await.ok();
        });
    }
}

async fn answer(request: Request<Incoming>, behaviour: Behaviour) -> Result<Response<Body>, std::io::Error> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let uid = review["request"]["uid"].clone();
    let version = review["apiVersion"].clone();
    let whole = |status: u16, text: String| {
        Response::builder()
            .status(status)
            .header("content-type", "text/plain")
            .header("location", "https://127.0.0.1:1/")
            .body(Full::new(Bytes::from(text)).boxed_unsync())
            .unwrap()
    };
    Ok(match behaviour(path, review).await {
        Answer::Says(mut response) => {
            response["uid"] = uid;
            whole(200, json!({"apiVersion": version, "kind": "AdmissionReview", "response": response}).to_string())
        }
        Answer::Whole(value) => whole(200, value.to_string()),
        Answer::Raw(status, text) => whole(status, text),
        Answer::Huge => {
            let block = || Ok(Frame::data(Bytes::from(vec![b' '; 64 << 10])));
            let blocks = futures::stream::repeat_with(block).take(1000);
            Response::new(StreamBody::new(blocks).boxed_unsync())
        }
        Answer::Close => return Err(std::io::Error::other("it closes")),
        Answer::Hang => std::future::pending().await,
    })
}
