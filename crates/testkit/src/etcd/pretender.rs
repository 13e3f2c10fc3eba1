//! What says that it is an etcd of some version, and nothing else: versions that nobody can install any more.

use anyhow::Result;
use hyper::body::Incoming;
use tokio::net::TcpListener;
use tonic::Status;

use crate::grpc;

/// As much of `etcdserverpb.StatusResponse` as it takes.
#[derive(Clone, PartialEq, prost::Message)]
struct Version {
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Nothing {}

/// Listens on loopback until the runtime ends; returns the URL. To be called within a tokio runtime.
///
/// # Errors
/// If there is no port.
pub async fn pretend(version: &str) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let version = version.to_owned();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let version = version.clone();
            tokio::spawn(grpc::serve(stream, move |request| answer(request, version.clone())));
        }
    });
    Ok(url)
}

async fn answer(request: hyper::Request<Incoming>, version: String) -> hyper::Response<tonic::body::Body> {
    match request.uri().path() {
        "/etcdserverpb.Maintenance/Status" => {
            grpc::unary(request, move |_: Nothing| Ok(Version { version: version.clone() })).await
        }
        other => Status::unimplemented(other).into_http(),
    }
}
