//! A disk that is full, takes no writes or does not keep them, and a process that may open nothing more: reads go on,
//! writes are refused with the reason, and all heals by itself. After a failed flush the control plane starts over.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use testkit::clients::KUBECTLS;
use testkit::cluster::{NODE_IP, NODE_NAME, text};
use testkit::{Cluster, Session};

use crate::kills::client::Client;
use crate::must;

/// Anything gets this long to become true.
const WAIT_MAX: Duration = Duration::from_secs(60);
const DISK_BYTES: u64 = 24 << 20;
/// Enough to start with.
const DESCRIPTORS_MAX: usize = 128;

/// A control plane alone, and a session with a ConfigMap and the content of a large one.
fn started(cluster: &mut Cluster) -> Session<'_> {
    must(cluster.up_with(&["--disable-agent"]));
    let session = must(Session::new(cluster, KUBECTLS[1], "steady"));
    must(session.must("kubectl create configmap before --from-literal=a=b"));
    must(session.must("head -c 900000 /dev/zero | tr '\\0' x > big.txt"));
    session
}

fn control_plane(cluster: &Cluster) -> i32 {
    let started = Instant::now();
    loop {
        if let [pid] = *cluster.processes("knarr control-plane") {
            return pid;
        }
        assert!(started.elapsed() < WAIT_MAX, "there is no control plane");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Has the calls of the control plane fail, until the returned process is killed.
fn fail(pid: i32, syscalls: &str, how: &str) -> Child {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-o", "/dev/null", "-e", &format!("trace={syscalls}")]);
    strace.args(["-e", &format!("inject={syscalls}:{how}"), "-p", &pid.to_string()]);
    let mut strace = strace.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(strace.stderr.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(first.contains("attached"), "{first}");
    // Reads to the end, so that strace never waits for us.
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    strace
}

/// Calls `begin` while the store commits nothing: who fails a commit's last write alone ends the engine.
fn between_commits<T>(cluster: &Cluster, begin: impl FnOnce() -> T) -> T {
    let db = cluster.data_dir().join("server/db");
    // SAFETY: the file is changed through LMDB alone, by its own process and not by this one.
    #[expect(unsafe_code, reason = "LMDB maps a file, which the type system cannot guard")]
    let env = unsafe { heed::EnvOpenOptions::new().open(db) }.unwrap();
    let writer = env.write_txn().unwrap();
    let begun = begin();
    writer.abort();
    begun
}

/// Ends strace in a way that lets it let go of what it traces.
fn let_go(mut strace: Child) {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(strace.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    strace.wait().unwrap();
}

#[test]
fn a_full_disk_refuses_writes_with_the_reason_and_heals() {
    // The mount is this thread's and its children's alone.
    sys::mount::own_namespace().unwrap();
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    let disk = cluster.data_dir();
    cluster.mount_disk(&disk, DISK_BYTES).unwrap();
    let filler = disk.join("filler");
    drop(started(&mut cluster));
    let session = must(Session::new(&cluster, KUBECTLS[1], "steady"));
    must(session.must("dd if=/dev/zero of=../data/filler bs=64k 2>&1 | grep 'No space left'"));
    must(session.run("disk_refused.txt", include_str!("sessions/disk_refused.txt")));
    let control_plane = nix::unistd::Pid::from_raw(control_plane(&cluster));
    nix::sys::signal::kill(control_plane, nix::sys::signal::Signal::SIGKILL).unwrap();
    must(session.run("disk_still_reads.txt", include_str!("sessions/disk_still_reads.txt")));
    std::fs::remove_file(filler).unwrap();
    must(session.run("disk_healed.txt", include_str!("sessions/disk_healed.txt")));
    drop(session);
    must(cluster.remove());
}

#[test]
fn a_disk_that_takes_no_writes_refuses_them_until_it_does() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    drop(started(&mut cluster));
    let session = must(Session::new(&cluster, KUBECTLS[1], "steady"));
    let pid = control_plane(&cluster);
    let errors = [
        ("EIO", "the disk refuses writes: Input/output error (os error 5)"),
        ("EROFS", "the disk refuses writes: Read-only file system (os error 30)"),
        ("EDQUOT", "no space is left for the store"),
    ];
    for (error, reason) in errors {
        let strace = between_commits(&cluster, || fail(pid, "pwrite64,pwritev", &format!("error={error}")));
        let refused = include_str!("sessions/disk_errors.txt").replace("REASON", reason);
        must(session.run("disk_errors.txt", &refused));
        let_go(strace);
        must(session.run("disk_healed.txt", include_str!("sessions/disk_healed.txt")));
        must(session.must("kubectl delete configmap big"));
    }
    assert_eq!(control_plane(&cluster), pid, "nobody had to start over");
    drop(session);
    must(cluster.remove());
}

#[test]
fn a_control_plane_that_starts_where_nothing_can_be_written_reads_and_says_so_until_it_can() {
    sys::mount::own_namespace().unwrap();
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    let db = cluster.data_dir().join("server/db");
    must(cluster.up_with(&["--disable-agent"]));
    must(cluster.knarr(&["down"]));
    let copy = cluster.scratch().join("db");
    std::fs::rename(&db, &copy).unwrap();
    cluster.mount_disk(&db, DISK_BYTES).unwrap();
    let copied = Command::new("cp").args(["-aT"]).args([&copy, &db]).status().unwrap();
    assert!(copied.success());
    drop(started(&mut cluster));
    let session = must(Session::new(&cluster, KUBECTLS[1], "steady"));
    // Nobody starts it again before the disk is as it should be.
    let supervisor = std::fs::read_to_string(cluster.data_dir().join("knarr.pid")).unwrap();
    let signal = |pid: i32, signal| {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).unwrap();
    };
    let (supervisor, pid) = (supervisor.parse().unwrap(), control_plane(&cluster));
    let process = sys::process::PidFd::open(pid).unwrap();
    signal(supervisor, nix::sys::signal::Signal::SIGSTOP);
    signal(pid, nix::sys::signal::Signal::SIGKILL);
    assert!(process.wait(WAIT_MAX).unwrap());
    sys::mount::remount_read_only(&db).unwrap();
    signal(supervisor, nix::sys::signal::Signal::SIGCONT);
    must(session.must("eventually 'kubectl get --raw /livez'"));
    let reason = "the disk refuses writes: Read-only file system (os error 30)";
    must(session.run("disk_errors.txt", &include_str!("sessions/disk_errors.txt").replace("REASON", reason)));
    must(session.must("mount -o remount,rw,bind ../data/server/db"));
    must(session.must("eventually 'kubectl create configmap big --from-file=big.txt'"));
    must(session.must("kubectl get --raw /readyz"));
    drop(session);
    must(cluster.remove());
}

#[test]
fn after_a_failed_flush_the_control_plane_starts_over_from_what_is_on_disk() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    drop(started(&mut cluster));
    let session = must(Session::new(&cluster, KUBECTLS[1], "steady"));
    let client = Client::new(&cluster);
    let pid = control_plane(&cluster);
    let mut strace = fail(pid, "fdatasync", "error=EIO:when=1");
    let refused = session.must("kubectl create configmap lost --from-literal=a=b");
    assert!(refused.is_err(), "what was not flushed is not acknowledged: {refused:?}");
    strace.wait().unwrap();
    client.wait_until_ready();
    assert_ne!(control_plane(&cluster), pid, "it goes on as if nothing had been");
    let names = must(session.must("kubectl get configmap before lost -o name --ignore-not-found"));
    assert_eq!(names, "configmap/before\n", "readers do not see what is not durable");
    must(session.must("kubectl create configmap lost --from-literal=a=b"));
    drop((session, client));
    must(cluster.remove());
}

/// More connections than the control plane may have files open, none of which says a word.
fn silent_connections(cluster: &Cluster) -> Vec<TcpStream> {
    std::thread::scope(|scope| {
        let made = scope.spawn(|| {
            cluster.enter().unwrap();
            let address = ([127, 0, 0, 1], 6443).into();
            let connect = |_| TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok();
            // Those that find the queue full are not needed.
            (0..DESCRIPTORS_MAX + 50).map_while(connect).collect()
        });
        made.join().unwrap()
    })
}

#[test]
fn a_control_plane_out_of_descriptors_serves_who_is_there_and_heals() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    let mut up = cluster.command("sh");
    let flags = format!("--node-ip {NODE_IP} --node-name {NODE_NAME} --disable-agent");
    up.args(["-c", &format!("ulimit -n {DESCRIPTORS_MAX}; exec $KNARR up {flags} --data-dir $DATA_DIR")]);
    let up = up.output().unwrap();
    assert!(up.status.success(), "{}", text(&up));
    let session = must(Session::new(&cluster, KUBECTLS[1], "steady"));
    let client = Client::new(&cluster);
    client.wait_until_ready();
    let silent = silent_connections(&cluster);
    let refused = session.must("kubectl get namespace steady --request-timeout=2s");
    assert!(refused.is_err(), "there is no descriptor for another connection: {refused:?}");
    // The connection that is there goes on.
    client.wait_until_ready();
    drop(silent);
    must(session.must("kubectl get namespace steady"));
    drop((session, client));
    must(cluster.remove());
}

#[test]
fn a_disk_without_room_for_a_node_is_told_in_one_line_at_once() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    let folder = cluster.data_dir();
    must(cluster.mount_disk(&folder, DISK_BYTES));
    let mut up = cluster.command(env!("CARGO_BIN_EXE_knarr"));
    let up = up.args(["up", "--node-ip", NODE_IP, "--node-name", NODE_NAME, "--data-dir"]).arg(&folder);
    let output = up.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output);
    let errors: Vec<&str> = told.lines().filter(|line| line.starts_with("knarr: ")).collect();
    let [error] = errors.as_slice() else { panic!("{told}") };
    let begin =
        format!("knarr: the cluster did not start: no space is left on the disk of {} to ", folder.display());
    assert!(error.starts_with(&begin), "{error}");
    assert!(error.ends_with(" free); make room, or choose another folder with --data-dir"), "{error}");
    let steps = |what: &str| told.lines().filter(|line| line.contains(what)).count();
    assert!(steps("API server") <= 1 && steps("Services") <= 1, "nothing is begun again: {told}");
    must(cluster.remove());
}
