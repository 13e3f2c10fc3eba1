//! StorageVersions: what servers on one store say of the versions in which they store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use machinery::features;
use serde_json::{Value, json};
use store::Store;
use store::embedded::{Embedded, Options};

use crate::server::{TestServer, start_on};

const VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

/// The StorageVersions, once so many servers have written the last of theirs.
async fn of_servers(server: &TestServer, number: usize) -> Vec<Value> {
    let entries = |version: &Value| version["status"]["storageVersions"].as_array().map_or(0, Vec::len);
    let asking = async {
        loop {
            let all =
                server.call("GET", VERSIONS, "").await.body["items"].as_array().cloned().unwrap_or_default();
            if !all.is_empty() && all.iter().all(|version| entries(version) == number) {
                return all;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), asking).await.unwrap()
}

#[tokio::test]
async fn each_server_says_under_its_identity_in_which_version_it_stores() {
    // Somebody in the same process may have done it before.
    features::turn_on(&["StorageVersionAPI=true".parse().unwrap()]).unwrap_or_else(drop);
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Embedded::open(&dir.path().join("db"), Options::default()).unwrap());
    let called = |hostname: &'static str| {
        move |config: &mut apiserver::Config| {
            config.options.is_fair = false;
            config.options.hostname = hostname.to_owned();
        }
    };
    let one = start_on(Arc::clone(&store), dir, None, called("one")).await;
    of_servers(&one, 1).await;
    let two = start_on(store, tempfile::tempdir().unwrap(), None, called("two")).await;
    let all = of_servers(&one, 2).await;
    let leases = one.call("GET", LEASES, "").await.body;
    let leases = leases["items"].as_array().unwrap().iter().map(|lease| &lease["metadata"]["name"]);
    let leases: BTreeSet<String> = leases.map(Value::to_string).collect();
    for version in &all {
        let (name, status) = (&version["metadata"]["name"], &version["status"]);
        let entries = status["storageVersions"].as_array().unwrap();
        let servers: BTreeSet<String> =
            entries.iter().map(|entry| entry["apiServerID"].to_string()).collect();
        assert_eq!(servers, leases, "{name}");
        assert_eq!(status["commonEncodingVersion"], entries[0]["encodingVersion"], "{name}");
        let condition = &status["conditions"][0];
        assert_eq!(
            (&condition["type"], &condition["status"]),
            (&json!("AllEncodingVersionsEqual"), &json!("True"))
        );
    }
    let named = |name: &str| all.iter().find(|version| version["metadata"]["name"] == name);
    let deployments = named("apps.deployments").unwrap();
    assert_eq!(deployments["status"]["commonEncodingVersion"], "apps/v1");
    assert!(named("core.pods").is_some() && named("authorization.k8s.io.subjectaccessreviews").is_none());
    two.stop().await;
    one.stop().await;
}
