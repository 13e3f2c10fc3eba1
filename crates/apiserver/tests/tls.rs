//! Over TLS on loopback: client certificates, RBAC, HTTP/1.1 and HTTP/2 by a real client.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "a test")]

mod server;

use auth::pki::{Subject, kubeconfig};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use server::{TestServer, start};

async fn client(server: &TestServer, user: &str, group: &str) -> kube::Client {
    let subject = Subject::client(&user.replace(':', "-"), user, group);
    let identity = server.authority.issue(server.dir.path(), &subject, server::now()).unwrap();
    let url = format!("https://{}", server.server.address().unwrap());
    let text = kubeconfig(&url, server.authority.certificate_pem(), user, &identity);
    let config = Kubeconfig::from_yaml(&text).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

#[tokio::test]
async fn a_certificate_says_who_it_is_and_rbac_what_they_may() {
    let server = start(Some("127.0.0.1:0".parse().unwrap())).await;
    let admin = client(&server, "admin", "system:masters").await;
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), "default");
    let mut map = ConfigMap::default();
    map.metadata.name = Some("one".into());
    let made = maps.create(&PostParams::default(), &map).await.unwrap();
    assert!(made.metadata.uid.is_some());

    let nobody = client(&server, "bob", "friends").await;
    let pods: Api<Pod> = Api::namespaced(nobody, "default");
    let refused = pods.list(&ListParams::default()).await.unwrap_err();
    assert!(refused.to_string().contains("cannot list resource \"pods\""), "{refused}");

    let scheduler = client(&server, "system:kube-scheduler", "x").await;
    let pods: Api<Pod> = Api::all(scheduler);
    assert!(pods.list(&ListParams::default()).await.unwrap().items.is_empty());

    let kubelet = client(&server, "system:node:n1", "system:nodes").await;
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(kubelet);
    let mut node = k8s_openapi::api::core::v1::Node::default();
    node.metadata.name = Some("n1".into());
    nodes.create(&PostParams::default(), &node).await.unwrap();
    node.metadata.name = Some("n2".into());
    let refused = nodes.create(&PostParams::default(), &node).await.unwrap_err();
    assert!(refused.to_string().contains("is not allowed to"), "{refused}");
    server.stop().await;
}
