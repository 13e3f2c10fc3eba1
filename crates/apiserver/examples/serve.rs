//! Serves the API from a folder until it is stopped: `serve DIR ADDRESS`; `DIR/kubeconfig` is the way in.

use std::path::PathBuf;
use std::sync::Arc;

use apiserver::{Config, PortRange};
use auth::pki::{Authority, Subject, kubeconfig, service_account_key};
use base::{Clock, Random, Tasks};
use store::embedded::{Embedded, Options};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().ok_or("usage: serve DIR ADDRESS")?);
    let bind: std::net::SocketAddr = args.next().ok_or("usage: serve DIR ADDRESS")?.parse()?;
    std::fs::create_dir_all(&dir)?;
    let now = jiff::Timestamp::now();
    let store = Embedded::open(&dir.join("db"), Options::default())?;
    let authority = Authority::load_or_create(&dir, now)?;
    let serving = authority.issue(&dir, &Subject::api_server("cluster.local", vec![bind.ip()]), now)?;
    let client = Subject::client("kubelet-client", "kube-apiserver-kubelet-client", "system:masters");
    let kubelet = authority.issue(&dir, &client, now)?;
    let admin = authority.issue(&dir, &Subject::client("admin", "admin", "system:masters"), now)?;
    let ca = authority.certificate_pem().as_bytes().to_vec();
    let config = Config {
        bind: Some(bind),
        certificate_pem: serving.certificate_pem.into_bytes(),
        key_pem: serving.key_pem.into_bytes(),
        client_ca_pem: ca.clone(),
        root_ca_pem: ca.clone(),
        service_account_key: service_account_key(&dir)?,
        service_account_issuer: "https://kubernetes.default.svc.cluster.local".into(),
        service_account_audiences: vec!["https://kubernetes.default.svc.cluster.local".into()],
        kubelet_client_certificate_pem: kubelet.certificate_pem.into_bytes(),
        kubelet_client_key_pem: kubelet.key_pem.into_bytes(),
        kubelet_ca_pem: ca,
        // An address that endpoints can have: no endpoint is on the loopback.
        advertise_address: std::net::SocketAddr::new([192, 0, 2, 1].into(), bind.port()),
        service_cidrs: "10.43.0.0/16".parse()?,
        node_ports: PortRange { first: 30000, last: 32767 },
        requests_in_flight_max: 400,
        options: Default::default(),
    };
    let tasks = Tasks::new();
    let server =
        apiserver::start(config, Arc::new(store), tasks.clone(), Clock::system(), Random::from_system())
            .await?;
    let address = server.address().ok_or("not listening")?;
    let text = kubeconfig(&format!("https://{address}"), authority.certificate_pem(), "admin", &admin);
    std::fs::write(dir.join("kubeconfig"), text)?;
    server.ready().await;
    println!("serving on {address}");
    tokio::signal::ctrl_c().await?;
    tasks.stop_and_wait().await;
    Ok(())
}
