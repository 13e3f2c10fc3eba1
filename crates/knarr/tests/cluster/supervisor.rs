//! `knarr server` as a service manager sees it: says when it is ready, stops when told to, and gives up with a reason
//! when its parts cannot run.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testkit::Cluster;
use testkit::cluster::{NODE_IP, NODE_NAME, text};

use crate::must;

const WAIT_MAX: Duration = Duration::from_secs(60);

fn heard(socket: &UnixDatagram) -> String {
    let mut buffer = [0; 256];
    let length = socket.recv(&mut buffer).unwrap();
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

#[test]
fn a_service_manager_hears_of_readiness_and_of_failure() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    let path = cluster.scratch().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
    let mut server = cluster.unlimited_command(env!("CARGO_BIN_EXE_knarr"));
    server.args(["server", "--node-ip", NODE_IP, "--node-name", NODE_NAME, "--disable-agent", "--data-dir"]);
    let mut server = server.arg(cluster.data_dir()).env("NOTIFY_SOCKET", &path).spawn().unwrap();
    assert_eq!(heard(&socket), "READY=1\nSTATUS=the cluster is ready");
    kill(Pid::from_raw(i32::try_from(server.id()).unwrap()), Signal::SIGTERM).unwrap();
    assert_eq!(heard(&socket), "STOPPING=1");
    assert!(server.wait().unwrap().success());

    // A store that cannot be opened does not become readable by trying for ever.
    std::fs::write(cluster.data_dir().join("server/db/data.mdb"), [7; 8192]).unwrap();
    let mut up = cluster.command(env!("CARGO_BIN_EXE_knarr"));
    let output = up.args(["up", "--disable-agent", "--data-dir"]).arg(cluster.data_dir()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output);
    assert!(told.contains("the control-plane ended 5 times before it was ready: open the store: "), "{told}");
    assert!(told.contains("server/db/data.mdb is not what was written; bring a backup back"), "{told}");
    assert_eq!(told.lines().filter(|line| line.starts_with("knarr: ")).count(), 1, "{told}");
    must(cluster.knarr(&["reset", "--yes"]));
    must(cluster.remove());
}
