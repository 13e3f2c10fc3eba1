//! What a host must have, and flags that cannot be: one line that says what, why and what to do, and exit code 1, or
//! 2 for wrong usage. Each lack is real: it is made by mounts, capabilities, listeners and faults in system calls.

use std::net::{Ipv4Addr, TcpListener};

use testkit::cluster::NODE_IP;
use testkit::{Cluster, Session};

use crate::must;

#[test]
fn a_host_that_lacks_something_is_told_what_and_what_to_do() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    let node_ip: Ipv4Addr = NODE_IP.parse().unwrap();
    let taken = std::thread::scope(|scope| {
        let listen = || {
            must(cluster.enter());
            [(Ipv4Addr::UNSPECIFIED, 7443), (node_ip, 10250)].map(|at| TcpListener::bind(at).unwrap())
        };
        scope.spawn(listen).join().unwrap()
    });
    let session = must(Session::on_host(&cluster));
    must(session.run("host.txt", include_str!("sessions/host.txt")));
    drop((session, taken));
    must(cluster.remove());
}
