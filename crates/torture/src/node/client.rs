//! A client inside the cluster's network namespace that keeps trying: the server may be away at any time.

use std::future::Future;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use http::{Method, Request, StatusCode};
use k8s_openapi::api::core::v1::Pod;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use testkit::Cluster;
use tokio::runtime::Runtime;

/// The namespace that everything is in.
pub(super) const NAMESPACE: &str = "torture";
/// Anything gets this long to become true while processes are killed.
pub(super) const TIMEOUT: Duration = Duration::from_secs(240);
const REQUEST_MAX: Duration = Duration::from_secs(10);
/// Before a server that could not be reached is asked again.
pub(super) const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// The client; its own calls block, what it spawns does not.
pub(super) struct Client {
    runtime: Runtime,
    pub(super) api: Api,
}

/// What requests are sent with.
#[derive(Clone)]
pub(super) struct Api(pub(super) kube::Client);

impl Client {
    /// Every thread of the client lives in the cluster's namespace; the caller's does not.
    pub(super) fn new(cluster: &Cluster) -> Result<Self> {
        std::thread::scope(|scope| {
            let made = scope.spawn(|| {
                cluster.enter()?;
                let runtime =
                    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
                let client = runtime.block_on(async {
                    let read = Kubeconfig::read_from(cluster.kubeconfig())?;
                    let config =
                        kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
                    anyhow::Ok(kube::Client::try_from(config)?)
                })?;
                Ok(Self { runtime, api: Api(client) })
            });
            made.join().unwrap_or_else(|_| bail!("the client's thread panicked"))
        })
    }

    /// Runs something beside, inside the namespace.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.runtime.spawn(work)
    }

    /// Waits for something; on a worker, since the calling thread would make its sockets outside of the namespace.
    pub(super) fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.runtime.block_on(self.runtime.spawn(work))?
    }

    /// Makes the namespace and what Pods refer to.
    pub(super) fn prepare(&self) -> Result<()> {
        let api = self.api.clone();
        self.wait(async move {
            let namespace = json!({ "metadata": { "name": NAMESPACE } });
            api.create("/api/v1/namespaces", &namespace).await?;
            let config = json!({ "metadata": { "name": "config" }, "data": { "a": "1", "b": "2" } });
            api.create(&api.collection("configmaps"), &config).await?;
            let secret = json!({ "metadata": { "name": "secret" }, "stringData": { "c": "3" } });
            api.create(&api.collection("secrets"), &secret).await
        })
    }

    /// Makes a Pod.
    pub(super) fn create_pod(&self, pod: &Value) -> Result<()> {
        let (api, pod) = (self.api.clone(), pod.clone());
        self.wait(async move { api.create(&api.collection("pods"), &pod).await })
    }
}

impl Api {
    /// The path of the namespace's objects of a core resource.
    pub(super) fn collection(&self, plural: &str) -> String {
        format!("/api/v1/namespaces/{NAMESPACE}/{plural}")
    }

    /// The Pods.
    pub(super) fn pods(&self) -> kube::Api<Pod> {
        kube::Api::namespaced(self.0.clone(), NAMESPACE)
    }

    /// Makes an object; there being one already is as good, since an answer may have been lost.
    pub(super) async fn create(&self, path: &str, object: &Value) -> Result<()> {
        self.until(Method::POST, path, object, &[StatusCode::CREATED, StatusCode::CONFLICT]).await.map(drop)
    }

    /// Deletes an object; there being none is as good.
    pub(super) async fn delete(&self, path: &str, options: &Value) -> Result<()> {
        let fine = [StatusCode::OK, StatusCode::ACCEPTED, StatusCode::NOT_FOUND, StatusCode::CONFLICT];
        self.until(Method::DELETE, path, options, &fine).await.map(drop)
    }

    /// Merges into an object, or does nothing if it is gone.
    pub(super) async fn patch(&self, path: &str, patch: &Value) -> Result<()> {
        self.until(Method::PATCH, path, patch, &[StatusCode::OK, StatusCode::NOT_FOUND]).await.map(drop)
    }

    /// The items of a list.
    pub(super) async fn list(&self, path: &str) -> Result<Vec<Value>> {
        let mut list = self.until(Method::GET, path, &Value::Null, &[StatusCode::OK]).await?;
        Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    /// Sends a request until its answer is one of these.
    async fn until(&self, method: Method, path: &str, body: &Value, fine: &[StatusCode]) -> Result<Value> {
        let mut last = String::new();
        let tried = async {
            loop {
                match tokio::time::timeout(REQUEST_MAX, self.ask(&method, path, body)).await {
                    Ok(Ok((status, answer))) if fine.contains(&status) => return answer,
                    Ok(Ok((status, answer))) => last = format!("{status}: {answer}"),
                    Ok(Err(error)) => last = format!("{error:#}"),
                    Err(_) => "no answer".clone_into(&mut last),
                }
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        };
        let answered = tokio::time::timeout(TIMEOUT, tried).await;
        answered.map_err(|_| anyhow::anyhow!("{method} {path} did not succeed in time: {last}"))
    }

    async fn ask(&self, method: &Method, path: &str, body: &Value) -> Result<(StatusCode, Value)> {
        let content_type = match *method {
            Method::PATCH => "application/strategic-merge-patch+json",
            _ => "application/json",
        };
        let bytes = if body.is_null() { Vec::new() } else { serde_json::to_vec(body)? };
        let request =
            Request::builder().method(method.clone()).uri(path).header("content-type", content_type);
        let answer = self.0.send(request.body(kube::client::Body::from(bytes))?).await?;
        let status = answer.status();
        let bytes = answer.into_body().collect_bytes().await.context("read an answer")?;
        Ok((status, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
    }
}
