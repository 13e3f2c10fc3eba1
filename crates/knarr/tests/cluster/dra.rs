//! Devices by claims as their users see them: a driver registers, Pods get devices of their own or share one, wait while
//! there is none, and give it back; also over kills of the node.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use testkit::clients::KUBECTLS;
use testkit::dra::{Driver, Lookup};
use testkit::{Cluster, Session};
use tokio::runtime::Runtime;

use crate::{cluster, must};

/// Whatever a driver waits for takes less.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Reads the devices of a claim from the API, as drivers do.
fn lookup(cluster: &Cluster) -> Lookup {
    let command = cluster.command("knarr-no-program");
    let program = command.get_program().to_owned();
    let mut arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    arguments.pop();
    let kubectl = testkit::clients::folder(KUBECTLS[1]).unwrap().join("kubectl");
    let kubeconfig = cluster.kubeconfig();
    Arc::new(move |namespace, name| {
        let mut command = std::process::Command::new(&program);
        command.args(&arguments).arg(&kubectl).arg("--kubeconfig").arg(&kubeconfig);
        command.args(["-n", namespace, "get", "resourceclaim", name, "-o"]);
        command.arg("jsonpath={.status.allocation.devices.results[*].device}").stdin(Stdio::null());
        let output = command.output().context("run kubectl")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect())
    })
}

fn until_registered(runtime: &Runtime, driver: &Driver, times: usize) {
    runtime.block_on(async { tokio::time::timeout(TIMEOUT, driver.registered(times)).await }).unwrap();
}

fn kill_node(cluster: &Cluster) {
    for node in cluster.processes("knarr node") {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(node), nix::sys::signal::Signal::SIGKILL).unwrap();
    }
}

#[test]
fn pods_get_devices_of_a_driver_and_give_them_back() {
    let cluster = cluster();
    let session = must(Session::new(&cluster, KUBECTLS[1], "dra"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let registry = cluster.data_dir().join("kubelet/plugins_registry");
    let cdi = cluster.data_dir().join("cdi");
    let driver = {
        let _entered = runtime.enter();
        must(Driver::start(cluster.scratch(), &registry, &cdi, lookup(&cluster)))
    };
    until_registered(&runtime, &driver, 1);
    must(session.run("dra.txt", include_str!("sessions/dra.txt")));
    assert_eq!(driver.prepared(), ["g0", "g1"], "each Pod has one of its own");
    let monitor = cluster.data_dir().join("kubelet/pod-resources/kubelet.sock");
    let claimed = || must(runtime.block_on(testkit::pod_resources::claimed(&monitor)));
    let told = claimed();
    let mut devices: Vec<_> = told.iter().map(|one| one.device.as_str()).collect();
    devices.sort_unstable();
    assert_eq!(devices, ["gpu.example.com/pool/g0", "gpu.example.com/pool/g1"], "{told:?}");
    for one in &told {
        let (device, cdi) = (one.device.trim_start_matches("gpu.example.com/pool/"), one.cdi.join(","));
        assert!(one.claim.starts_with(&format!("{}-gpu-", one.pod)) && one.container == "main", "{one:?}");
        assert!(cdi.starts_with("example.com/gpu=") && cdi.ends_with(&format!("-{device}")), "{one:?}");
    }

    // The node comes back to what it had prepared; its driver offers its devices anew.
    kill_node(&cluster);
    until_registered(&runtime, &driver, 2);
    must(session.run("dra_killed.txt", include_str!("sessions/dra_killed.txt")));
    let left: Vec<_> = told.into_iter().filter(|one| one.pod != "late").collect();
    assert_eq!(claimed(), left, "the next kubelet says the same of the Pod that stays");
    let before = driver.count("prepare");
    must(session.run("dra_shared.txt", include_str!("sessions/dra_shared.txt")));
    assert_eq!(driver.count("prepare"), before + 1, "a claim that two Pods share is prepared once");

    driver.set_refuses(true);
    must(session.run("dra_refused.txt", include_str!("sessions/dra_refused.txt")));
    driver.set_refuses(false);
    // A node that is killed while Pods go takes back what they had when it is there again.
    must(session.must("kubectl wait --for=condition=Ready pod/late --timeout=60s"));
    must(session.must("kubectl delete deployment,pod --all --wait=false"));
    kill_node(&cluster);
    must(session.run("dra_after.txt", include_str!("sessions/dra_after.txt")));
    assert_eq!(driver.prepared(), [""; 0], "everything is taken back");
    assert_eq!(std::fs::read_dir(&cdi).unwrap().count(), 0, "nothing is left of it");
    drop(session);
    drop(runtime);
    must(cluster.remove());
}
