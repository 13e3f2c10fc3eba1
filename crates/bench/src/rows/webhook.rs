//! What a webhook adds to a create: one client makes objects of which nobody is asked, a validating webhook, and a mutating
//! one, in turn, so that all have the same moment.
//!
//! The webhook is this program: TLS behind a Service, as near as it can be. What it costs itself is in the times, too.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use rustls_pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use testkit::cluster::NODE_IP;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::bench::Bench;
use crate::load::{Call, Door};
use crate::objects;

const LABEL: &str = "asks";
const SERVICE: &str = "hook";
/// What either may add to the median.
const MORE_MILLISECONDS: &str = "2";

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    bench.with_cluster(async |bench, cluster| {
        let door = Door::new(&cluster.kubeconfig()).await?;
        door.call(objects::namespace()).await?;
        let (port, bundle) = serve().await?;
        for call in registrations(port, &bundle) {
            door.call(call).await?;
        }
        let mut client = door.connect().await?;
        let mut took = [("no", vec![]), ("a validating", vec![]), ("a mutating", vec![])];
        let rounds = bench.extent.of(2_000, 300);
        for round in 0..rounds {
            for (number, (asked, took)) in took.iter_mut().enumerate() {
                let labels = json!({ LABEL: asked.split(' ').next_back() });
                let call = objects::create_labelled(round * 3 + number, &labels);
                let started = Instant::now();
                client.call(call).await?;
                took.push(started.elapsed().as_secs_f64() * 1e3);
            }
        }
        let mut bare = None;
        for (asked, took) in &took {
            let report = &mut bench.report;
            let what = format!("durable 1 kB create, {asked} webhook, 1 client");
            let median = report.samples(&what, "ms", None, took).context("nothing was measured")?;
            let bare = *bare.get_or_insert(median);
            if *asked != "no" {
                report.value(
                    &format!("  {asked} webhook adds"),
                    "ms",
                    Some(MORE_MILLISECONDS),
                    median - bare,
                );
            }
        }
        Ok(())
    })
}

/// Starts the webhook, which ends with the cluster's work; its port, and whom to believe.
async fn serve() -> Result<(u16, String)> {
    let name = format!("{SERVICE}.{}.svc", objects::NAMESPACE);
    let made = rcgen::generate_simple_self_signed([name]).context("make a certificate")?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind((NODE_IP, 0)).await.context("listen")?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let connection = Builder::new(TokioExecutor::new());
                // What breaks is seen by whoever has asked.
                connection.serve_connection(TokioIo::new(stream), service_fn(answer)).await.ok();
            });
        }
    });
    Ok((port, STANDARD.encode(made.cert.pem())))
}

/// Allows everything; `/mutate` adds an annotation.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let mutates = request.uri().path() == "/mutate";
    let body = request.into_body().collect().await?.to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut response = json!({ "uid": review["request"]["uid"], "allowed": true });
    if mutates {
        let patch = json!([{ "op": "add", "path": "/metadata/annotations", "value": { "seen": "yes" } }]);
        response["patchType"] = "JSONPatch".into();
        response["patch"] = STANDARD.encode(patch.to_string()).into();
    }
    let review =
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response });
    Ok(Response::new(Full::from(review.to_string())))
}

/// A Service that leads here, and a webhook of each kind for objects that have its label.
fn registrations(port: u16, bundle: &str) -> Vec<Call> {
    let namespace = objects::NAMESPACE;
    let service = json!({
        "metadata": { "name": SERVICE },
        "spec": { "ports": [{ "port": 443, "targetPort": port }] },
    });
    let slice = json!({
        "metadata": { "name": SERVICE, "labels": { "kubernetes.io/service-name": SERVICE } },
        "addressType": "IPv4",
        "ports": [{ "name": "", "port": port, "protocol": "TCP" }],
        "endpoints": [{ "addresses": [NODE_IP], "conditions": { "ready": true } }],
    });
    let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
    let mut calls = vec![
        Call::post(objects::collection("services"), service.to_string()),
        Call::post(slices, slice.to_string()),
    ];
    for (kind, path) in [("validating", "/validate"), ("mutating", "/mutate")] {
        let configuration = json!({
            "metadata": { "name": kind },
            "webhooks": [{
                "name": format!("{kind}.example.com"),
                "clientConfig": {
                    "service": { "namespace": namespace, "name": SERVICE, "path": path },
                    "caBundle": bundle,
                },
                "rules": [{
                    "operations": ["CREATE"],
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "resources": ["configmaps"],
                }],
                "objectSelector": { "matchLabels": { LABEL: kind } },
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }],
        });
        let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations");
        calls.push(Call::post(path, configuration.to_string()));
    }
    calls
}
