//! Nodes and Services of a cloud: one whose provider is played, and one whose own controllers are, which have no more than the
//! rights that upstream's documentation gives them.

use std::time::{Duration, Instant};

use base::Tasks;
use testkit::clients::KUBECTLS;
use testkit::cloud::{Instance, Mood, PlayedCloud};
use testkit::cluster::{NODE_IP, NODE_NAME};
use testkit::{Cluster, Session};
use tokio::runtime::Runtime;

use crate::must;

/// Whatever the cloud is waited for takes less.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The cloud, listening at `cloud.sock` in the cluster's scratch folder.
struct Played {
    cloud: PlayedCloud,
    runtime: Runtime,
    tasks: Tasks,
    socket: std::path::PathBuf,
}

impl Played {
    fn start(cluster: &Cluster) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let played = Self {
            cloud: PlayedCloud::default(),
            runtime,
            tasks: Tasks::new(),
            socket: cluster.scratch().join("cloud.sock"),
        };
        played.listen(&played.tasks);
        played
    }

    fn listen(&self, tasks: &Tasks) {
        let _entered = self.runtime.enter();
        must(self.cloud.listen(&self.socket, tasks));
    }

    fn endpoint(&self) -> String {
        format!("unix://{}", self.socket.display())
    }
}

fn machine(id: &str, ip: &str) -> Instance {
    let address = |kind: &str, address: &str| (kind.to_owned(), address.to_owned());
    Instance {
        id: id.to_owned(),
        addresses: vec![
            address("InternalIP", "192.0.2.77"),
            address("InternalIP", ip),
            address("ExternalIP", "203.0.113.200"),
        ],
        is_stopped: false,
    }
}

/// Waits for an event that says this. A change of the Node has its cloud asked at once, not ever later.
fn poked(says: &str) -> String {
    let poke = "kubectl label --overwrite node test poked=$(date +%N)";
    format!("eventually '{poke} && sleep 0.3 && kubectl get events -A | grep \"{says}\"'")
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn nodes_and_services_are_what_the_cloud_says() {
    let mut cluster = must(Cluster::new(env!("CARGO_BIN_EXE_knarr")));
    let played = Played::start(&cluster);
    let cloud = &played.cloud;
    // The machine is there, and its cloud says nonsense of it.
    cloud.put(NODE_NAME, machine("zone-a/i-1", NODE_IP));
    cloud.set_mood(Mood::Lies);
    must(cluster.up_with(&[
        "--cloud-provider=external",
        "--cloud-provider-endpoint",
        &played.endpoint(),
        "--cloud-controller-manager-arg=node-monitor-period=1s",
        "--cloud-controller-manager-arg=configure-cloud-routes=true",
    ]));
    let session = must(Session::new(&cluster, KUBECTLS[1], "clouds"));
    must(session.run("clouds_before.txt", include_str!("sessions/clouds_before.txt")));

    // A provider that lies or says too much has the Node wait, and nobody else.
    cloud.set_mood(Mood::Floods);
    must(session.must(&poked("message length too large")));
    cloud.set_mood(Mood::Well);
    must(session.must("kubectl label --overwrite node test poked=well"));
    must(session.run("clouds.txt", include_str!("sessions/clouds.txt")));
    assert_eq!(cloud.balancers(), ["clouds/web 203.0.113.1 test"]);
    until("the Node's Pods have a route", || cloud.routes() == ["10.42.0.0/24 test"]);

    // The cloud refuses, goes away and comes back; nobody loses anything by it.
    cloud.set_mood(Mood::Refuses);
    must(session.run("clouds_refused.txt", include_str!("sessions/clouds_refused.txt")));
    assert_eq!(cloud.balancers().len(), 1, "it is there as long as its Service is");
    played.tasks.stop();
    std::fs::remove_file(&played.socket).unwrap();
    cloud.set_mood(Mood::Well);
    let tasks = Tasks::new();
    played.listen(&tasks);
    must(session.run("clouds_gone.txt", include_str!("sessions/clouds_gone.txt")));
    assert_eq!(cloud.balancers(), [""; 0]);

    // A Node whose kubelet does not answer: its machine is stopped, and then it is gone.
    cloud.put("ghost", Instance { is_stopped: true, ..machine("zone-a/i-2", "192.0.2.2") });
    must(session.run("clouds_stopped.txt", include_str!("sessions/clouds_stopped.txt")));
    cloud.set_mood(Mood::Hangs);
    cloud.remove("ghost");
    must(session.must("sleep 2; kubectl get node ghost"));
    cloud.set_mood(Mood::Well);
    must(session.run("clouds_removed.txt", include_str!("sessions/clouds_removed.txt")));
    drop(session);
    tasks.stop();
    must(cluster.remove());
}

/// What a cloud's own controller manager asks for, by hand, as the account and with the role that its manifest has; then the
/// controllers alone, as a process of their own.
#[test]
fn a_clouds_own_controllers_need_no_more_than_their_role() {
    let mut cluster = must(Cluster::new(env!("CARGO_BIN_EXE_knarr")));
    let played = Played::start(&cluster);
    must(cluster.up_with(&["--cloud-provider=external", "--kubelet-arg=provider-id=example://zone-a/i-1"]));
    let session = must(Session::new(&cluster, KUBECTLS[1], "clouds"));
    must(session.run("clouds_stock.txt", include_str!("sessions/clouds_stock.txt")));

    played.cloud.put(NODE_NAME, machine("zone-a/i-1", NODE_IP));
    let kubeconfig = cluster.data_dir().join("server/cred/cloud-controller-manager.kubeconfig");
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let endpoint = format!("--cloud-provider-endpoint={}", played.endpoint());
    let alone = must(cluster.start(
        "cloud-controller-manager",
        &[
            "cloud-controller-manager",
            &kubeconfig,
            &endpoint,
            "--cloud-provider=example",
            "--bind-address=127.0.0.1",
        ],
    ));
    must(session.run("clouds_alone.txt", include_str!("sessions/clouds_alone.txt")));
    assert_eq!(played.cloud.count("CreateRoute"), 0, "nobody has said which addresses are those of Pods");
    drop(session);
    must(alone.stop());
    played.tasks.stop();
    must(cluster.remove());
}
