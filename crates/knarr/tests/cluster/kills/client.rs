//! A client inside the cluster's namespace that keeps trying, and remembers what it was promised.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use testkit::Cluster;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// Anything gets this long to become true.
const WAIT_MAX: Duration = Duration::from_secs(90);
const REQUEST_MAX: Duration = Duration::from_secs(10);
/// Between two looks at a cluster that may be down.
const AGAIN_AFTER: Duration = Duration::from_millis(25);

/// What the API server has promised: names and values of ConfigMaps, `None` for one that is deleted.
#[derive(Debug, Default)]
pub(crate) struct Acknowledged {
    objects: BTreeMap<String, Option<String>>,
    pub(crate) refused: usize,
}

impl Acknowledged {
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Notes an answer. Without one, the write may have happened or not: nothing is known of the object.
    fn note(&mut self, name: &str, value: Option<&str>, answered: bool) -> bool {
        if answered {
            self.objects.insert(name.to_owned(), value.map(str::to_owned));
        } else {
            self.refused += 1;
            self.objects.remove(name);
        }
        answered
    }
}

/// The client; its calls block.
pub(crate) struct Client {
    runtime: Runtime,
    client: kube::Client,
}

/// A thread that writes until it is told to stop.
pub(crate) struct Writer {
    stop: oneshot::Sender<()>,
    result: mpsc::Receiver<Acknowledged>,
}

impl Writer {
    pub(crate) fn stop(self) -> Acknowledged {
        self.stop.send(()).unwrap();
        self.result.recv().unwrap()
    }
}

impl Client {
    /// Every thread of the client lives in the cluster's namespace; the caller's does not.
    pub(crate) fn new(cluster: &Cluster) -> Self {
        let kubeconfig = cluster.kubeconfig();
        std::thread::scope(|scope| {
            let made = scope.spawn(|| {
                cluster.enter().unwrap();
                let runtime = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(2)
                    .enable_all()
                    .build()
                    .unwrap();
                let client = runtime.block_on(async {
                    // The workers are threads of this one's namespace, and so are those that look names up.
                    let read = Kubeconfig::read_from(kubeconfig).unwrap();
                    let options = KubeConfigOptions::default();
                    let config = kube::Config::from_custom_kubeconfig(read, &options).await.unwrap();
                    kube::Client::try_from(config).unwrap()
                });
                Self { runtime, client }
            });
            made.join().unwrap()
        })
    }

    /// The same client for others, who use it in [`Client::spawn`].
    pub(crate) fn kube(&self) -> kube::Client {
        self.client.clone()
    }

    /// Runs something beside, on threads inside the namespace.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }

    /// On a worker: the calling thread would make its sockets outside of the namespace.
    fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        self.runtime.block_on(self.runtime.spawn(work)).unwrap()
    }

    fn eventually<T, F>(&self, what: &str, mut attempt: impl FnMut(kube::Client) -> F) -> T
    where
        T: Send + 'static,
        F: Future<Output = Result<T, String>> + Send + 'static,
    {
        let started = Instant::now();
        loop {
            let work = attempt(self.client.clone());
            let failure = match self.run(async { tokio::time::timeout(REQUEST_MAX, work).await }) {
                Ok(Ok(value)) => return value,
                Ok(Err(failure)) => failure,
                Err(_) => "no answer".to_owned(),
            };
            assert!(started.elapsed() < WAIT_MAX, "{what} did not happen in time: {failure}");
            std::thread::sleep(AGAIN_AFTER);
        }
    }

    pub(crate) fn create_deployment(&self, name: &str, replicas: i32, image: &str) {
        let deployment = deployment(name, replicas, image);
        self.eventually("creation", |client| {
            let deployment = deployment.clone();
            async move {
                let api: Api<Deployment> = Api::default_namespaced(client);
                match api.create(&PostParams::default(), &deployment).await {
                    Ok(_) => Ok(()),
                    Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
                    Err(error) => Err(error.to_string()),
                }
            }
        });
    }

    pub(crate) fn scale(&self, name: &'static str, replicas: i32) {
        self.create_deployment(name, replicas, super::IMAGE);
        self.eventually("scaling", |client| async move { scale(client, name, replicas).await });
    }

    pub(crate) fn wait_until_available(&self, name: &'static str, replicas: i32) {
        self.eventually("availability", |client| async move {
            let api: Api<Deployment> = Api::default_namespaced(client);
            let deployment = api.get(name).await.map_err(|error| error.to_string())?;
            let status = deployment.status.unwrap_or_default();
            let is_current = status.observed_generation == deployment.metadata.generation;
            let counts = [status.replicas, status.available_replicas, status.updated_replicas];
            if is_current && counts == [Some(replicas); 3] { Ok(()) } else { Err(format!("{status:?}")) }
        });
    }

    pub(crate) fn wait_until_ready(&self) {
        self.eventually("readiness", |client| async move {
            let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
            client.request_text(request).await.map(drop).map_err(|error| error.to_string())
        });
    }

    /// The running Pods of a Deployment.
    pub(crate) fn pods(&self, app: &'static str) -> Vec<Pod> {
        self.eventually("listing", |client| async move {
            let api: Api<Pod> = Api::default_namespaced(client);
            let list = api.list(&ListParams::default().labels(&format!("app={app}"))).await;
            list.map(|list| list.items).map_err(|error| error.to_string())
        })
    }

    /// Creates, changes and deletes a few ConfigMaps, and stops at the first that is not answered.
    pub(crate) fn scenario(&self, prefix: &str, all: &mut Acknowledged) {
        let (client, prefix) = (self.client.clone(), prefix.to_owned());
        let mut known = std::mem::take(all);
        *all = self.run(async move {
            for step in 0..4 {
                let name = format!("{prefix}-{step}");
                if !write_one(&client, &name, step % 2 == 1, &mut known).await {
                    break;
                }
            }
            known
        });
    }

    /// Writes until told to stop: ConfigMaps that are created, changed and deleted, and a Deployment that is scaled.
    pub(crate) fn write_in_background(&self) -> Writer {
        let (stop, mut stopped) = oneshot::channel();
        let (send, result) = mpsc::channel();
        let client = self.client.clone();
        self.runtime.spawn(async move {
            let mut known = Acknowledged::default();
            let mut number = 0;
            while stopped.try_recv().is_err() {
                number += 1;
                let went_well =
                    write_one(&client, &format!("written-{number}"), number % 3 == 0, &mut known).await;
                if number % 20 == 1 {
                    move_along(&client, 1 + number % 3).await;
                }
                if !went_well {
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
            }
            send.send(known).unwrap();
        });
        Writer { stop, result }
    }

    /// What was promised and is not so: one line each.
    pub(crate) fn lost(&self, acknowledged: &Acknowledged) -> Vec<String> {
        let there = self.eventually("listing", |client| async move {
            let api: Api<ConfigMap> = Api::default_namespaced(client);
            let list = api.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
            Ok(list
                .items
                .into_iter()
                .map(|item| (item.metadata.name.unwrap_or_default(), value_of(item.data)))
                .collect())
        });
        let there: BTreeMap<String, Option<String>> = there;
        let wrong = acknowledged.objects.iter().filter_map(|(name, promised)| {
            let found = there.get(name).cloned().flatten();
            (found != *promised).then(|| format!("{name}: promised {promised:?}, found {found:?}"))
        });
        wrong.collect()
    }
}

fn value_of(data: Option<BTreeMap<String, String>>) -> Option<String> {
    data?.remove("value")
}

fn deployment(name: &str, replicas: i32, image: &str) -> Deployment {
    serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{ "name": "hello", "image": image }],
                },
            },
        },
    }))
    .unwrap()
}

async fn scale(client: kube::Client, name: &str, replicas: i32) -> Result<(), String> {
    let api: Api<Deployment> = Api::default_namespaced(client);
    let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
    api.patch(name, &PatchParams::default(), &patch).await.map(drop).map_err(|error| error.to_string())
}

/// Has controllers, scheduler and kubelet something to do; whether it was answered does not matter.
async fn move_along(client: &kube::Client, replicas: i32) {
    let api: Api<Deployment> = Api::default_namespaced(client.clone());
    let deployment = deployment("moving", replicas, super::IMAGE);
    let both = async {
        if api.create(&PostParams::default(), &deployment).await.is_err() {
            drop(scale(client.clone(), "moving", replicas).await);
        }
    };
    drop(tokio::time::timeout(REQUEST_MAX, both).await);
}

/// Creates an object, changes it, and deletes it if asked for; whether every step was answered.
async fn write_one(client: &kube::Client, name: &str, deletes: bool, known: &mut Acknowledged) -> bool {
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let object = |value: &str| -> ConfigMap {
        serde_json::from_value(json!({ "metadata": { "name": name }, "data": { "value": value } })).unwrap()
    };
    let (first, second) = (object("first"), json!({ "data": { "value": "second" } }));
    let created = answered(api.create(&PostParams::default(), &first)).await;
    if !known.note(name, Some("first"), created) {
        return false;
    }
    let changed = answered(api.patch(name, &PatchParams::default(), &Patch::Merge(&second))).await;
    if !known.note(name, Some("second"), changed) {
        return false;
    }
    if !deletes {
        return true;
    }
    let deleted = answered(api.delete(name, &DeleteParams::default())).await;
    known.note(name, None, deleted)
}

async fn answered<T>(request: impl Future<Output = kube::Result<T>>) -> bool {
    matches!(tokio::time::timeout(REQUEST_MAX, request).await, Ok(Ok(_)))
}
