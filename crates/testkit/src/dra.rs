//! An example DRA driver: devices that are nothing but names, prepared as a device node and a variable of their container.
//!
//! It registers with a kubelet as any driver does, and writes CDI specs into the folder that it is told. Which devices a
//! claim has it asks its [`Lookup`], which reads the claim from the API. Publishing slices is its owner's business, after
//! each registration, as kubelets delete the slices of drivers that are not there.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use hyper::body::Incoming;
use tokio::net::UnixListener;
use tonic::Status;

use crate::grpc::{self, unary};

/// Namespace and name of a claim in, its devices of this driver out.
pub type Lookup = Arc<dyn Fn(&str, &str) -> Result<Vec<String>> + Send + Sync>;

/// The driver's name.
pub const DRIVER: &str = "gpu.example.com";
const CDI_KIND: &str = "example.com/gpu";
const SERVICE: &str = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/";

#[derive(Default)]
struct State {
    /// How often a kubelet has taken it.
    registrations: usize,
    /// Devices by the uid of the claim that they are prepared for.
    prepared: BTreeMap<String, Vec<String>>,
    /// What else is to be told: each call of the driver.
    calls: Vec<String>,
    /// Whether it refuses to prepare.
    refuses: bool,
}

/// A driver; it ends with the runtime that it was started on.
#[derive(Clone)]
pub struct Driver {
    state: Arc<Mutex<State>>,
    changed: Arc<tokio::sync::Notify>,
    cdi: PathBuf,
    endpoint: PathBuf,
    lookup: Lookup,
}

impl Driver {
    /// Listens below `folder` and registers in `registry`, the kubelet's folder of sockets; specs go to `cdi`. To be
    /// called within a tokio runtime.
    ///
    /// # Errors
    /// If a socket or a folder cannot be made.
    pub fn start(folder: &Path, registry: &Path, cdi: &Path, lookup: Lookup) -> Result<Self> {
        std::fs::create_dir_all(cdi)?;
        let driver = Self {
            state: Arc::default(),
            changed: Arc::default(),
            cdi: cdi.to_owned(),
            endpoint: folder.join("dra.sock"),
            lookup,
        };
        driver.listen(&driver.endpoint)?;
        driver.listen(&registry.join("gpu.example.com-reg.sock"))?;
        Ok(driver)
    }

    fn listen(&self, socket: &Path) -> Result<()> {
        let listener =
            UnixListener::bind(socket).with_context(|| format!("listen on {}", socket.display()))?;
        let driver = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let driver = driver.clone();
                tokio::spawn(grpc::serve(stream, move |request| {
                    let driver = driver.clone();
                    async move { driver.answer(request).await }
                }));
            }
        });
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a kubelet has taken it so often.
    pub async fn registered(&self, times: usize) {
        loop {
            let changed = self.changed.notified();
            if self.state().registrations >= times {
                return;
            }
            changed.await;
        }
    }

    /// From now on it refuses to prepare claims, or does not.
    pub fn set_refuses(&self, refuses: bool) {
        self.state().refuses = refuses;
    }

    /// The devices that are prepared, sorted.
    #[must_use]
    pub fn prepared(&self) -> Vec<String> {
        let mut all: Vec<_> = self.state().prepared.values().flatten().cloned().collect();
        all.sort();
        all
    }

    /// The number of times that `call` was made.
    #[must_use]
    pub fn count(&self, call: &str) -> usize {
        self.state().calls.iter().filter(|seen| *seen == call).count()
    }

    async fn answer(&self, request: hyper::Request<Incoming>) -> hyper::Response<tonic::body::Body> {
        let path = request.uri().path().to_owned();
        let driver = self.clone();
        let call = path.strip_prefix(SERVICE).or(path.strip_prefix("/pluginregistration.Registration/"));
        match call {
            Some("GetInfo") => unary(request, move |_: Nothing| Ok(driver.info())).await,
            Some("NotifyRegistrationStatus") => {
                unary(request, move |asked| Ok(driver.notified(&asked))).await
            }
            Some("NodePrepareResources") => unary(request, move |asked| Ok(driver.prepare(asked))).await,
            Some("NodeUnprepareResources") => unary(request, move |asked| Ok(driver.unprepare(asked))).await,
            _ => Status::unimplemented(path).into_http(),
        }
    }

    fn info(&self) -> PluginInfo {
        PluginInfo {
            r#type: "DRAPlugin".into(),
            name: DRIVER.into(),
            endpoint: self.endpoint.display().to_string(),
            supported_versions: vec!["v1.DRAPlugin".into()],
        }
    }

    fn notified(&self, status: &RegistrationStatus) -> Nothing {
        self.state().registrations += usize::from(status.plugin_registered);
        self.changed.notify_waiters();
        Nothing {}
    }

    fn prepare(&self, request: ClaimsRequest) -> PrepareResponse {
        let answers = request.claims.into_iter().map(|claim| {
            self.state().calls.push("prepare".into());
            let answer = match self.prepare_one(&claim) {
                Ok(devices) => PrepareOne { devices, error: String::new() },
                Err(error) => PrepareOne { devices: Vec::new(), error: format!("{error:#}") },
            };
            (claim.uid, answer)
        });
        PrepareResponse { claims: answers.collect() }
    }

    fn prepare_one(&self, claim: &Claim) -> Result<Vec<Device>> {
        anyhow::ensure!(!self.state().refuses, "the devices are hot");
        let names = (self.lookup)(&claim.namespace, &claim.name)?;
        let devices = names.iter().map(|name| {
            format!(
                r#"{{"name": "{uid}-{name}", "containerEdits": {{"env": ["GPU={name}"], "deviceNodes": [{{"path": "/dev/{name}", "hostPath": "/dev/zero"}}]}}}}"#,
                uid = claim.uid
            )
        });
        let devices: Vec<String> = devices.collect();
        let spec =
            format!(r#"{{"cdiVersion": "0.6.0", "kind": "{CDI_KIND}", "devices": [{}]}}"#, devices.join(","));
        std::fs::write(self.spec_of(&claim.uid), spec)?;
        self.state().prepared.insert(claim.uid.clone(), names.clone());
        let made = names.into_iter().map(|name| Device {
            request_names: Vec::new(),
            pool_name: "pool".into(),
            cdi_device_ids: vec![format!("{CDI_KIND}={}-{name}", claim.uid)],
            device_name: name,
        });
        Ok(made.collect())
    }

    fn unprepare(&self, request: ClaimsRequest) -> UnprepareResponse {
        let answers = request.claims.into_iter().map(|claim| {
            let mut state = self.state();
            state.calls.push("unprepare".into());
            state.prepared.remove(&claim.uid);
            drop(state);
            let error = match std::fs::remove_file(self.spec_of(&claim.uid)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => error.to_string(),
                _ => String::new(),
            };
            (claim.uid, UnprepareOne { error })
        });
        UnprepareResponse { claims: answers.collect() }
    }

    fn spec_of(&self, uid: &str) -> PathBuf {
        self.cdi.join(format!("{uid}.json"))
    }
}

// Messages of `pluginregistration/v1` and of `dra/v1`, as much as the driver needs.

#[derive(Clone, PartialEq, prost::Message)]
struct Nothing {}

#[derive(Clone, PartialEq, prost::Message)]
struct PluginInfo {
    #[prost(string, tag = "1")]
    r#type: String,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(string, tag = "3")]
    endpoint: String,
    #[prost(string, repeated, tag = "4")]
    supported_versions: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RegistrationStatus {
    #[prost(bool, tag = "1")]
    plugin_registered: bool,
    #[prost(string, tag = "2")]
    error: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ClaimsRequest {
    #[prost(message, repeated, tag = "1")]
    claims: Vec<Claim>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Claim {
    #[prost(string, tag = "1")]
    namespace: String,
    #[prost(string, tag = "2")]
    uid: String,
    #[prost(string, tag = "3")]
    name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PrepareResponse {
    #[prost(map = "string, message", tag = "1")]
    claims: HashMap<String, PrepareOne>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PrepareOne {
    #[prost(message, repeated, tag = "1")]
    devices: Vec<Device>,
    #[prost(string, tag = "2")]
    error: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Device {
    #[prost(string, repeated, tag = "1")]
    request_names: Vec<String>,
    #[prost(string, tag = "2")]
    pool_name: String,
    #[prost(string, tag = "3")]
    device_name: String,
    #[prost(string, repeated, tag = "4")]
    cdi_device_ids: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct UnprepareResponse {
    #[prost(map = "string, message", tag = "1")]
    claims: HashMap<String, UnprepareOne>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct UnprepareOne {
    #[prost(string, tag = "1")]
    error: String,
}
