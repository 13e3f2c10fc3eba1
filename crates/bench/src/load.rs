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
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use kube::client::ConfigExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

/// Any one Deployment or series of requests gets this long.
pub(crate) const STEP_MAX: Duration = Duration::from_secs(180);

const JSON: &str = "application/json";

/// One request, and the status that its answer must have.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) content_type: &'static str,
    pub(crate) accept: &'static str,
    pub(crate) body: String,
    pub(crate) wanted: StatusCode,
}

impl Call {
    /// A GET of JSON.
    pub(crate) fn get(path: String) -> Self {
        Self {
            method: Method::GET,
            path,
            content_type: JSON,
            accept: JSON,
            body: String::new(),
            wanted: StatusCode::OK,
        }
    }

    /// A POST of JSON.
    pub(crate) fn post(path: String, body: String) -> Self {
        Self { method: Method::POST, body, wanted: StatusCode::CREATED, ..Self::get(path) }
    }

    /// A merge patch.
    pub(crate) fn merge_patch(path: String, body: String) -> Self {
        Self { method: Method::PATCH, body, content_type: "application/merge-patch+json", ..Self::get(path) }
    }

    /// A configuration, applied by the server.
    pub(crate) fn apply(path: String, body: String) -> Self {
        let path = format!("{path}?fieldManager=bench-apply&force=true");
        Self { method: Method::PATCH, body, content_type: "application/apply-patch+yaml", ..Self::get(path) }
    }

    /// The same, answered in another form.
    pub(crate) fn accepting(self, accept: &'static str) -> Self {
        Self { accept, ..self }
    }
}

/// The request of each number.
pub(crate) type Job = Arc<dyn Fn(usize) -> Call + Send + Sync>;

/// The cluster's API server, as one user.
#[derive(Clone)]
pub(crate) struct Door {
    authority: String,
    tls: Option<(ServerName<'static>, TlsConnector)>,
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
        Ok(Self { authority, tls: Some((host.try_into()?, TlsConnector::from(Arc::new(tls)))) })
    }

    /// A server without TLS.
    pub(crate) fn plain(authority: &str) -> Self {
        Self { authority: authority.to_owned(), tls: None }
    }

    /// Connects one client.
    pub(crate) async fn connect(&self) -> Result<Connection> {
        let stream = TcpStream::connect(&self.authority).await.context("connect")?;
        stream.set_nodelay(true)?;
        let sender = match &self.tls {
            Some((server, tls)) => {
                handshake(tls.connect(server.clone(), stream).await.context("TLS")?).await?
            }
            None => handshake(stream).await?,
        };
        Ok(Connection { sender, authority: self.authority.clone() })
    }

    /// Connects so many clients.
    pub(crate) async fn clients(&self, count: usize) -> Result<Vec<Connection>> {
        let mut clients = Vec::with_capacity(count);
        for _ in 0..count {
            clients.push(self.connect().await?);
        }
        Ok(clients)
    }

    /// Sends one request over a connection of its own.
    pub(crate) async fn call(&self, call: Call) -> Result<Bytes> {
        self.connect().await?.call(call).await
    }

    /// Sends the requests of these numbers as fast as 16 clients can.
    pub(crate) async fn fill(&self, numbers: Range<usize>, job: Job) -> Result<()> {
        let clients = self.clients(16).await?;
        tokio::time::timeout(STEP_MAX, run(clients, numbers, job))
            .await
            .context("filling the cluster took too long")?
            .map(drop)
    }
}

async fn handshake<S>(stream: S) -> Result<SendRequest<Full<Bytes>>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Ends when `sender` is dropped; a server that is killed breaks it, which the request then says.
    tokio::spawn(async move { connection.await.ok() });
    Ok(sender)
}

/// Sends the requests of these numbers, each by the next client that is free; returns how long each took.
pub(crate) async fn run(clients: Vec<Connection>, numbers: Range<usize>, job: Job) -> Result<Vec<Duration>> {
    let next = Arc::new(AtomicUsize::new(numbers.start));
    let mut running = JoinSet::new();
    for mut client in clients {
        let (next, end, job) = (next.clone(), numbers.end, job.clone());
        running.spawn(async move {
            let mut took = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= end {
                    return Ok::<_, anyhow::Error>(took);
                }
                let call = job(number);
                let started = Instant::now();
                client.call(call).await?;
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

/// Reads a watch line by line until `is_done` says so.
pub(crate) async fn lines(
    events: &mut Incoming,
    mut is_done: impl FnMut(&[u8]) -> Result<bool>,
) -> Result<()> {
    let mut line = Vec::new();
    loop {
        let frame = events.frame().await.context("a watch ended too early")?;
        let Ok(data) = frame.context("read a watch")?.into_data() else { continue };
        for part in data.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(part);
            if line.last() == Some(&b'\n') {
                if is_done(&line)? {
                    return Ok(());
                }
                line.clear();
            }
        }
    }
}

/// One client's connection.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    authority: String,
}

impl Connection {
    /// Sends one request and reads the whole answer.
    pub(crate) async fn call(&mut self, call: Call) -> Result<Bytes> {
        let body = self.stream(call).await?;
        Ok(body.collect().await.context("read an answer")?.to_bytes())
    }

    /// Sends one request; returns the answer's body as it comes.
    pub(crate) async fn stream(&mut self, call: Call) -> Result<Incoming> {
        let request = Request::builder()
            .method(call.method)
            .uri(&call.path)
            .header(header::HOST, &self.authority)
            .header(header::CONTENT_TYPE, call.content_type)
            .header(header::ACCEPT, call.accept)
            .header(header::USER_AGENT, "bench")
            .body(Full::new(call.body.into()))?;
        self.sender.ready().await.context("wait for the connection")?;
        let response = self.sender.send_request(request).await.context("send a request")?;
        let status = response.status();
        if status != call.wanted {
            let body = response.into_body().collect().await.context("read an answer")?.to_bytes();
            bail!("{} answered {status}: {}", call.path, String::from_utf8_lossy(&body));
        }
        Ok(response.into_body())
    }
}

/// Counts are small.
#[expect(clippy::cast_precision_loss, reason = "counts below 2^53 are exact")]
pub(crate) fn as_f64(count: usize) -> f64 {
    count as f64
}
