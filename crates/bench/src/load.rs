//! The load: clients that each keep one HTTP/1.1 connection over TLS, with the administrator's client certificate,
//! and send their next request when the last is answered. What it costs the client stays out of knarr's CPU time.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use kube::client::ConfigExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rustls_pki_types::ServerName;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

const NAMESPACE: &str = "bench";
const VALUE_BYTES: usize = 1_000;

/// The cluster's API server, as one user.
#[derive(Clone)]
pub(crate) struct Door {
    authority: String,
    server: ServerName<'static>,
    tls: TlsConnector,
}

/// Reads a kubeconfig.
pub(crate) async fn config(kubeconfig: &Path) -> Result<kube::Config> {
    let read = Kubeconfig::read_from(kubeconfig).with_context(|| format!("read {}", kubeconfig.display()))?;
    Ok(kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?)
}

impl Door {
    pub(crate) async fn new(kubeconfig: &Path) -> Result<Self> {
        let config = config(kubeconfig).await?;
        let authority = config.cluster_url.authority().context("the kubeconfig names no server")?.to_string();
        let host = config.cluster_url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let mut tls = config.rustls_client_config()?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { authority, server: host.try_into()?, tls: TlsConnector::from(Arc::new(tls)) })
    }

    /// Connects one client.
    pub(crate) async fn connect(&self) -> Result<Connection> {
        let stream = TcpStream::connect(&self.authority).await.context("connect")?;
        stream.set_nodelay(true)?;
        let stream = self.tls.connect(self.server.clone(), stream).await.context("TLS")?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // Ends when `sender` is dropped.
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                eprintln!("bench: a connection broke: {error}");
            }
        });
        Ok(Connection { sender, authority: self.authority.clone() })
    }

    pub(crate) async fn create_namespace(&self) -> Result<()> {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
        self.connect().await?.post("/api/v1/namespaces", namespace.to_string()).await
    }

    /// Connects so many clients.
    pub(crate) async fn clients(&self, count: usize) -> Result<Vec<Connection>> {
        let mut clients = Vec::with_capacity(count);
        for _ in 0..count {
            clients.push(self.connect().await?);
        }
        Ok(clients)
    }
}

/// Creates the ConfigMaps of these numbers, each by the next client that is free; returns how long each took.
pub(crate) async fn create(clients: Vec<Connection>, numbers: Range<usize>) -> Result<Vec<Duration>> {
    let next = Arc::new(AtomicUsize::new(numbers.start));
    let mut running = JoinSet::new();
    for mut client in clients {
        let (next, end) = (next.clone(), numbers.end);
        running.spawn(async move {
            let mut took = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= end {
                    return Ok::<_, anyhow::Error>(took);
                }
                let started = Instant::now();
                client.post(&configmaps(), config_map(number)).await?;
                took.push(started.elapsed());
            }
        });
    }
    let mut took = Vec::with_capacity(numbers.len());
    while let Some(client) = running.join_next().await {
        took.extend(client.context("a client panicked")??);
    }
    Ok(took)
}

/// Lists all ConfigMaps of the namespace; returns the body's size.
pub(crate) async fn list(client: &mut Connection) -> Result<u64> {
    let body = client.send(Method::GET, &configmaps(), Bytes::new(), StatusCode::OK).await?;
    Ok(u64::try_from(body.len())?)
}

fn configmaps() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/configmaps")
}

/// A ConfigMap with about 1 kB of data.
fn config_map(number: usize) -> String {
    let value = format!("{number:0>VALUE_BYTES$}");
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": format!("load-{number}"), "namespace": NAMESPACE },
        "data": { "value": value },
    })
    .to_string()
}

/// One client's connection.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    authority: String,
}

impl Connection {
    async fn post(&mut self, path: &str, body: String) -> Result<()> {
        self.send(Method::POST, path, body.into(), StatusCode::CREATED).await.map(drop)
    }

    /// Sends one request; its answer must have the status `wanted`.
    async fn send(&mut self, method: Method, path: &str, body: Bytes, wanted: StatusCode) -> Result<Bytes> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.authority)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, "bench")
            .body(Full::new(body))?;
        self.sender.ready().await.context("wait for the connection")?;
        let response = self.sender.send_request(request).await.context("send a request")?;
        let status = response.status();
        let body = response.into_body().collect().await.context("read an answer")?.to_bytes();
        if status != wanted {
            bail!("{path} answered {status}: {}", String::from_utf8_lossy(&body));
        }
        Ok(body)
    }
}

/// Counts are small.
#[expect(clippy::cast_precision_loss, reason = "counts below 2^53 are exact")]
pub(crate) fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_map_has_1_kb_of_data() {
        let made: serde_json::Value = serde_json::from_str(&config_map(7)).unwrap();
        assert_eq!(made["metadata"]["name"], "load-7");
        assert_eq!(made["data"]["value"].as_str().map(str::len), Some(VALUE_BYTES));
    }
}
