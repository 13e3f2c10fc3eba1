//! A KMS v2 plugin for tests: a gRPC server on a unix socket, whose key "encryption" anybody can undo.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use encryption::kms::api;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixListener;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// How the plugin behaves; change it while it runs.
pub(crate) struct Behaviour {
    pub(crate) key_id: String,
    pub(crate) healthz: String,
    pub(crate) version: String,
    /// Whether Decrypt fails.
    pub(crate) refuses: bool,
    /// What these ciphertexts come to, beside those that the plugin made.
    pub(crate) known: HashMap<Vec<u8>, Vec<u8>>,
    /// The calls so far.
    pub(crate) calls: Vec<&'static str>,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            key_id: "key-1".into(),
            healthz: api::HEALTHY.into(),
            version: "v2".into(),
            refuses: false,
            known: HashMap::new(),
            calls: Vec::new(),
        }
    }
}

/// A plugin; it ends with the runtime that it was started on, or when told to.
#[derive(Clone)]
pub(crate) struct Plugin {
    pub(crate) behaviour: Arc<Mutex<Behaviour>>,
    stop: Arc<tokio::sync::Notify>,
}

const MARK: &[u8] = b"wrapped:";

impl Plugin {
    /// Listens on `socket`, which everybody may then use.
    pub(crate) fn start(socket: &Path) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let listener = UnixListener::bind(socket).unwrap();
        std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o777)).unwrap();
        let plugin = Self { behaviour: Arc::default(), stop: Arc::default() };
        let serving = plugin.clone();
        tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let stream = tokio::select! {
                    accepted = listener.accept() => accepted.unwrap().0,
                    () = serving.stop.notified() => return,
                };
                let plugin = serving.clone();
                connections.spawn(async move {
                    let service = service_fn(move |request| {
                        let plugin = plugin.clone();
                        async move { Ok::<_, std::convert::Infallible>(plugin.answer(request).await) }
                    });
                    let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    serving.serve_connection(TokioIo::new(stream), service).await.ok();
                });
            }
        });
        plugin
    }

    /// Ends it and cuts its connections.
    pub(crate) fn stop(&self) {
        self.stop.notify_one();
    }

    /// Changes how it behaves.
    pub(crate) fn set(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.behaviour.lock().unwrap());
    }

    /// How often `call` was made.
    pub(crate) fn count(&self, call: &str) -> usize {
        self.behaviour.lock().unwrap().calls.iter().filter(|seen| **seen == call).count()
    }

    async fn answer(&self, request: hyper::Request<Incoming>) -> hyper::Response<tonic::body::Body> {
        let path = request.uri().path().to_owned();
        let plugin = self.clone();
        match path.as_str() {
            api::STATUS => unary(request, move |_: api::StatusRequest| plugin.status()).await,
            api::ENCRYPT => unary(request, move |asked| plugin.encrypt(asked)).await,
            api::DECRYPT => unary(request, move |asked| plugin.decrypt(asked)).await,
            _ => Status::unimplemented(path).into_http(),
        }
    }

    fn status(&self) -> Result<api::StatusResponse, Status> {
        let mut behaviour = self.behaviour.lock().unwrap();
        behaviour.calls.push("status");
        let (version, healthz) = (behaviour.version.clone(), behaviour.healthz.clone());
        Ok(api::StatusResponse { version, healthz, key_id: behaviour.key_id.clone() })
    }

    fn encrypt(&self, asked: api::EncryptRequest) -> Result<api::EncryptResponse, Status> {
        let mut behaviour = self.behaviour.lock().unwrap();
        behaviour.calls.push("encrypt");
        let turned = asked.plaintext.iter().map(|byte| byte ^ 0x5a);
        Ok(api::EncryptResponse {
            ciphertext: MARK.iter().copied().chain(turned).collect(),
            key_id: behaviour.key_id.clone(),
            annotations: [("plugin.example.com".to_owned(), b"1".to_vec())].into(),
        })
    }

    fn decrypt(&self, asked: api::DecryptRequest) -> Result<api::DecryptResponse, Status> {
        let mut behaviour = self.behaviour.lock().unwrap();
        behaviour.calls.push("decrypt");
        if behaviour.refuses {
            return Err(Status::failed_precondition("the vault is sealed"));
        }
        let known = behaviour.known.get(&asked.ciphertext).cloned();
        let made =
            asked.ciphertext.strip_prefix(MARK).map(|rest| rest.iter().map(|byte| byte ^ 0x5a).collect());
        let plaintext = known.or(made).ok_or_else(|| Status::invalid_argument("not mine"))?;
        Ok(api::DecryptResponse { plaintext })
    }
}

async fn unary<Q, A, F>(request: hyper::Request<Incoming>, answer: F) -> hyper::Response<tonic::body::Body>
where
    Q: prost::Message + Default + 'static,
    A: prost::Message + Default + 'static,
    F: Fn(Q) -> Result<A, Status> + Send + 'static,
{
    struct Unary<F>(F);
    impl<Q, A, F> tonic::server::UnaryService<Q> for Unary<F>
    where
        F: Fn(Q) -> Result<A, Status>,
    {
        type Response = A;
        type Future = std::future::Ready<Result<Response<A>, Status>>;
        fn call(&mut self, request: Request<Q>) -> Self::Future {
            std::future::ready((self.0)(request.into_inner()).map(Response::new))
        }
    }
    tonic::server::Grpc::new(ProstCodec::<A, Q>::default()).unary(Unary(answer), request).await
}
