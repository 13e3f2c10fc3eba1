//! A KMS v2 plugin for tests: a gRPC server on a unix socket, whose key "encryption" anybody can undo.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use encryption::kms::api;
use hyper::body::Incoming;
use tokio::net::UnixListener;
use tonic::Status;

use crate::grpc::{self, unary};

/// The behaviour of the plugin; change it while it runs.
#[derive(Debug)]
pub struct Behaviour {
    /// The key that it uses, as it says.
    pub key_id: String,
    /// Its health, as it says.
    pub healthz: String,
    /// The version that it speaks, as it says.
    pub version: String,
    /// `true` if Decrypt fails.
    pub refuses: bool,
    /// The plaintexts of these ciphertexts, beside those that the plugin made.
    pub known: HashMap<Vec<u8>, Vec<u8>>,
    /// The calls so far.
    pub calls: Vec<&'static str>,
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
#[derive(Clone, Debug)]
pub struct Plugin {
    behaviour: Arc<Mutex<Behaviour>>,
    stop: Arc<tokio::sync::Notify>,
}

const MARK: &[u8] = b"wrapped:";

impl Plugin {
    /// Listens on `socket`, which everybody may then use. To be called within a tokio runtime.
    ///
    /// # Errors
    /// If the socket cannot be made.
    pub fn start(socket: &Path) -> Result<Self> {
        // An earlier one may have left it.
        if socket.exists() {
            std::fs::remove_file(socket)?;
        }
        let listener = UnixListener::bind(socket)?;
        std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o777))?;
        let plugin = Self { behaviour: Arc::default(), stop: Arc::default() };
        let serving = plugin.clone();
        tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let stream = tokio::select! {
                    Ok((stream, _)) = listener.accept() => stream,
                    () = serving.stop.notified() => return,
                };
                let plugin = serving.clone();
                connections.spawn(grpc::serve(stream, move |request| {
                    let plugin = plugin.clone();
                    async move { plugin.answer(request).await }
                }));
            }
        });
        Ok(plugin)
    }

    /// Ends it and cuts its connections.
    pub fn stop(&self) {
        self.stop.notify_one();
    }

    fn behaviour(&self) -> MutexGuard<'_, Behaviour> {
        self.behaviour.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes how it behaves.
    pub fn set(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.behaviour());
    }

    /// The number of times that `call` was made.
    pub fn count(&self, call: &str) -> usize {
        self.behaviour().calls.iter().filter(|seen| **seen == call).count()
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
        let mut behaviour = self.behaviour();
        behaviour.calls.push("status");
        let (version, healthz) = (behaviour.version.clone(), behaviour.healthz.clone());
        Ok(api::StatusResponse { version, healthz, key_id: behaviour.key_id.clone() })
    }

    fn encrypt(&self, asked: api::EncryptRequest) -> Result<api::EncryptResponse, Status> {
        let mut behaviour = self.behaviour();
        behaviour.calls.push("encrypt");
        let turned = asked.plaintext.iter().map(|byte| byte ^ 0x5a);
        Ok(api::EncryptResponse {
            ciphertext: MARK.iter().copied().chain(turned).collect(),
            key_id: behaviour.key_id.clone(),
            annotations: [("plugin.example.com".to_owned(), b"1".to_vec())].into(),
        })
    }

    fn decrypt(&self, asked: api::DecryptRequest) -> Result<api::DecryptResponse, Status> {
        let mut behaviour = self.behaviour();
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
