//! Encryption at rest as an operator sees it: what lies on disk and on etcd, keys that change while all goes on, a KMS
//! plugin that goes away and comes back, keys that are missing, and servers that share them.

use std::path::{Path, PathBuf};

use testkit::clients::KUBECTLS;
use testkit::etcd::{Etcd, Security};
use testkit::kms::Plugin;
use testkit::{Cluster, Lan, Session};

use crate::ha::{Server, TOKEN};
use crate::must;

/// What the Secrets of these tests hold, and the same as the API has it.
const PLAIN: &str = "correct horse battery staple";
const ENCODED: &str = "Y29ycmVjdCBob3JzZSBiYXR0ZXJ5IHN0YXBsZQ==";
/// What a ConfigMap holds: the control, which must be found where the Secrets are looked for.
const CONTROL: &str = "not hidden at all";
const READ: &str = "kubectl get secret sealed -o jsonpath='{.data.a}'";

fn control_plane(flags: &[&str]) -> Cluster {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    must(cluster.up_with(&[&["--disable-agent"], flags].concat()));
    cluster
}

fn session(cluster: &Cluster) -> Session<'_> {
    must(Session::new(cluster, KUBECTLS[1], "steady"))
}

fn fill(session: &Session<'_>) {
    must(session.must(&format!(
        "kubectl create secret generic sealed --from-literal=a='{PLAIN}' && \
         kubectl create configmap open --from-literal=a='{CONTROL}'"
    )));
}

/// Whether any file below `folder` has the text in it.
fn lies_in(folder: &Path, text: &str) -> bool {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).any(|path| match path.is_dir() {
        true => lies_in(&path, text),
        false => std::fs::read(&path).unwrap_or_default().windows(text.len()).any(|w| w == text.as_bytes()),
    })
}

/// Waits until `command` succeeds.
fn wait_for(session: &Session<'_>, command: &str) {
    must(session.must(&format!("condition() {{\n{command}\n}}\neventually condition")));
}

fn own_file(cluster: &Cluster) -> PathBuf {
    cluster.data_dir().join("server/cred/encryption-config.yaml")
}

/// Between the first `secret: ` and the end of its line.
fn key_in(text: &str) -> String {
    let rest = text.split_once("secret: ").unwrap().1;
    rest.split(['\n', '}']).next().unwrap().trim().to_owned()
}

#[test]
fn secrets_are_sealed_by_default_and_a_wrong_key_loses_nothing() {
    let mut cluster = control_plane(&[]);
    let backup = cluster.scratch().join("backup");
    let steady = session(&cluster);
    fill(&steady);
    assert_eq!(must(steady.must(READ)), ENCODED);
    for more in ["second", "third"] {
        must(steady.must(&format!("kubectl create secret generic {more} --from-literal=a=b")));
    }
    drop(steady);
    must(cluster.knarr(&["backup", backup.to_str().unwrap()]));
    assert!(lies_in(&cluster.data_dir(), CONTROL), "the control: plain values are found");
    let right = std::fs::read_to_string(own_file(&cluster)).unwrap();
    let kept = std::fs::read(&backup).unwrap();
    let is_kept = |text: &str| kept.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(is_kept(CONTROL), "the control: the backup has plain values");
    for hidden in [PLAIN, ENCODED] {
        assert!(!lies_in(&cluster.data_dir(), hidden), "{hidden}");
        assert!(!is_kept(hidden), "{hidden}");
    }

    must(cluster.knarr(&["down"]));
    let key = key_in(&right);
    let other = key_in(&encryption::keys::generate().unwrap());
    std::fs::write(own_file(&cluster), right.replace(&key, &other)).unwrap();
    must(cluster.up_with(&["--disable-agent"]));
    let steady = session(&cluster);
    must(steady.run("encryption_wrong_key.txt", include_str!("sessions/encryption_wrong_key.txt")));
    let log = std::fs::read_to_string(cluster.data_dir().join("knarr.log")).unwrap();
    let told: Vec<_> = log.lines().filter(|line| line.contains("stored values cannot be read")).collect();
    assert!(matches!(told[..], [one] if one.contains("count=3")), "once, for all of them: {told:?}");
    // The right key again, as an editor leaves it: taken at once.
    std::fs::write(own_file(&cluster), &right).unwrap();
    wait_for(&steady, "kubectl get secret sealed");
    assert_eq!(must(steady.must(READ)), ENCODED);
    drop(steady);
    must(cluster.remove());
}

/// Providers, how their values begin, and what a configuration says of them.
const PROVIDERS: [(&str, &str); 5] = [
    ("{\"kind\":\"Secret\",", "{identity: {}}"),
    (
        "k8s:enc:aescbc:v1:one:",
        "{aescbc: {keys: [{name: one, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}}",
    ),
    (
        "k8s:enc:aesgcm:v1:two:",
        "{aesgcm: {keys: [{name: two, secret: YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODk=}]}}",
    ),
    (
        "k8s:enc:secretbox:v1:three:",
        "{secretbox: {keys: [{name: three, secret: ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=}]}}",
    ),
    (
        "k8s:enc:secretbox:v1:four:",
        "{secretbox: {keys: [{name: four, secret: OTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTBmZWRjYmE=}]}}",
    ),
];

fn configuration(providers: &[&str]) -> String {
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n\
         - {{resources: [secrets], providers: [{}]}}\n",
        providers.join(", ")
    )
}

/// Waits until so many other configurations have been taken.
fn wait_for_reload(session: &Session<'_>, nth: u32) {
    let metric = "apiserver_encryption_config_controller_automatic_reloads_total";
    wait_for(
        session,
        &format!("kubectl get --raw /metrics | grep -q '^{metric}{{.*status=\"success\".*}} {nth}$'"),
    );
}

/// Writes a configuration and waits until it counts; `nth` says how many were before.
fn reload(session: &Session<'_>, file: &Path, providers: &[&str], nth: &mut u32) {
    *nth += 1;
    std::fs::write(file, configuration(providers)).unwrap();
    wait_for_reload(session, *nth);
}

/// How many Secrets are on etcd, and how many of them begin so.
fn on_etcd(etcd: &Etcd<'_>, prefix: &str) -> (usize, usize) {
    let secrets = |how: &str| must(etcd.etcdctl(0, &["get", "--prefix", "/registry/secrets/", how]));
    let keys = secrets("--keys-only").lines().filter(|line| !line.is_empty()).count();
    (keys, secrets("--print-value-only").matches(prefix).count())
}

const SECRETS: usize = 20;

#[test]
fn keys_change_while_the_cluster_runs_and_old_ones_can_go() {
    let wire = must(Lan::new(1));
    let etcd = must(Etcd::on_hosts(&wire, 1, Security::Plain, &[]));
    let mut server = Server::new(&wire, &etcd, 0);
    let file = server.cluster.scratch().join("encryption.yaml");
    let (_, mut before) = PROVIDERS[0];
    std::fs::write(&file, configuration(&[before])).unwrap();
    let config = format!("--encryption-provider-config={}", file.display());
    let reloads = "--encryption-provider-config-automatic-reload";
    must(server.up_with(TOKEN, &["--disable-agent", &config, reloads]));
    let steady = must(Session::new(&server.cluster, KUBECTLS[1], "steady"));
    let secret = |n: usize| {
        format!(
            "{{apiVersion: v1, kind: Secret, metadata: {{name: s-{n}}}, stringData: {{a: {PLAIN}}}}}\n---\n"
        )
    };
    std::fs::write(steady.folder().join("secrets.yaml"), (0..SECRETS).map(secret).collect::<String>())
        .unwrap();
    must(steady.must("kubectl create -f secrets.yaml"));
    assert_eq!(on_etcd(&etcd, PROVIDERS[0].0), (SECRETS, SECRETS), "the control: they are plain at first");

    let mut reloaded = 0;
    for (prefix, now) in PROVIDERS[1..].iter().chain(&PROVIDERS[..1]) {
        reload(&steady, &file, &[now, before], &mut reloaded);
        assert_eq!(on_etcd(&etcd, prefix), (SECRETS, 0), "{prefix}: what is stored stays as it is");
        let said = again(&server.cluster);
        assert!(said.contains(&format!("{SECRETS} rewritten, 0 were under the newest key")), "{said}");
        assert_eq!(on_etcd(&etcd, prefix), (SECRETS, SECRETS), "{prefix}");
        let said = again(&server.cluster);
        assert!(said.contains(&format!("0 rewritten, {SECRETS} were under the newest key")), "{said}");
        reload(&steady, &file, &[now], &mut reloaded);
        let all = must(steady.must("kubectl get secrets -o jsonpath='{.items[*].data.a}'"));
        assert_eq!(all.split(' ').filter(|value| *value == ENCODED).count(), SECRETS, "{prefix}: {all}");
        before = now;
    }
    drop(steady);
    must(server.cluster.remove());
}

/// What `knarr secrets reencrypt` says.
fn again(cluster: &Cluster) -> String {
    let mut command = cluster.command(env!("CARGO_BIN_EXE_knarr"));
    let output =
        command.args(["secrets", "reencrypt", "--data-dir"]).arg(cluster.data_dir()).output().unwrap();
    let said = testkit::cluster::text(&output);
    assert!(output.status.success(), "{said}");
    said
}

#[test]
fn servers_share_the_key_also_with_those_that_come_after_it_has_changed() {
    let wire = must(Lan::new(3));
    let etcd = must(Etcd::on_hosts(&wire, 1, Security::Plain, &[]));
    let mut servers: Vec<_> = (0..3).map(|number| Server::new(&wire, &etcd, number)).collect();
    for server in &mut servers[..2] {
        must(server.up_with(TOKEN, &["--disable-agent"]));
    }
    fill(&session(&servers[0].cluster));
    assert_eq!(must(session(&servers[1].cluster).must(READ)), ENCODED);
    let text = |server: &Server| std::fs::read_to_string(own_file(&server.cluster)).unwrap();
    let first = text(&servers[0]);
    assert_eq!(first, text(&servers[1]));
    assert_eq!(on_etcd(&etcd, "k8s:enc:secretbox:v1:"), (1, 1));
    let shared = must(etcd.etcdctl(0, &["get", "--prefix", "/knarr/"]));
    assert!(!shared.is_empty() && !shared.contains(&key_in(&first)), "the key is sealed");

    // One server is down while the key is changed, and its file with it.
    must(servers[1].cluster.knarr(&["down"]));
    let (prefix, now) = PROVIDERS[4];
    let both = configuration(&[now, &format!("{{secretbox: {{keys: [{{{}}}]}}}}", key_line(&first))]);
    let steady = session(&servers[0].cluster);
    std::fs::write(own_file(&servers[0].cluster), &both).unwrap();
    wait_for_reload(&steady, 1);
    again(&servers[0].cluster);
    assert_eq!(on_etcd(&etcd, prefix), (1, 1));
    // It is published by the supervisor, once the control plane has it.
    let published = || must(etcd.etcdctl(0, &["get", "--prefix", "/knarr/"])) != shared;
    let begun = std::time::Instant::now();
    while !published() {
        assert!(begun.elapsed().as_secs() < 60, "the new key is not shared");
    }
    drop(steady);

    // Who has slept takes it, and keeps the old file; who is new gets it; who restarts has it.
    must(servers[0].cluster.knarr(&["down"]));
    for server in &mut servers {
        must(server.up_with(TOKEN, &["--disable-agent"]));
        assert_eq!(must(session(&server.cluster).must(READ)), ENCODED, "{}", server.number);
        assert_eq!(text(server), both);
    }
    let folder = own_file(&servers[1].cluster).parent().unwrap().to_owned();
    assert!(lies_in(&folder, &key_in(&first)) && lies_in(&folder, &first), "the file before is kept");

    // All run: what one of them is told all have at once, and nobody else's is told back.
    let sessions: Vec<_> = servers.iter().map(|server| session(&server.cluster)).collect();
    let third = configuration(&[
        PROVIDERS[2].1,
        now,
        &format!("{{secretbox: {{keys: [{{{}}}]}}}}", key_line(&first)),
    ]);
    std::fs::write(own_file(&servers[2].cluster), &third).unwrap();
    for (server, session) in servers.iter().zip(&sessions) {
        wait_for_reload(session, 1);
        assert_eq!(text(server), third, "{}", server.number);
    }
    must(sessions[0].must("kubectl create secret generic later --from-literal=a=b"));
    assert_eq!(on_etcd(&etcd, PROVIDERS[2].0), (2, 1));
    for session in &sessions {
        assert_eq!(must(session.must("kubectl get secret later -o jsonpath='{.data.a}'")), "Yg==");
    }
    drop(sessions);
    for server in servers {
        must(server.cluster.remove());
    }
}

/// The key of the cluster's own file, in one line.
fn key_line(text: &str) -> String {
    let name = text.split_once("name: ").unwrap().1;
    format!("name: {}, secret: {}", name.split(['\n', ',']).next().unwrap().trim(), key_in(text))
}

#[test]
fn a_kms_plugin_may_go_and_come_back() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let _inside = runtime.enter();
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    let socket = cluster.scratch().join("kms.sock");
    let plugin = must(Plugin::start(&socket));
    let file = cluster.scratch().join("encryption.yaml");
    let kms = format!(
        "{{kms: {{apiVersion: v2, name: vault, endpoint: 'unix://{}', timeout: 10s}}}}",
        socket.display()
    );
    std::fs::write(&file, configuration(&[&kms])).unwrap();
    must(cluster.up_with(&["--disable-agent", "--encryption-provider-config", file.to_str().unwrap()]));
    let steady = session(&cluster);
    fill(&steady);
    assert!(lies_in(&cluster.data_dir().join("server/db"), "k8s:enc:kms:v2:vault:"));
    assert!(!lies_in(&cluster.data_dir(), ENCODED));
    assert_eq!(plugin.count("encrypt"), 1, "one seed serves all");

    plugin.stop();
    wait_for(&steady, "kubectl get --raw '/readyz?verbose' 2>&1 | grep -q 'kms-providers failed'");
    must(steady.run("encryption_kms_away.txt", include_str!("sessions/encryption_kms_away.txt")));
    // A control plane that starts now has no seed that it can use.
    let pids = cluster.processes("knarr control-plane");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pids[0]), nix::sys::signal::Signal::SIGKILL).unwrap();
    wait_for(&steady, "kubectl get configmap open");
    must(steady.run("encryption_kms_lost.txt", include_str!("sessions/encryption_kms_lost.txt")));

    let back = must(Plugin::start(&socket));
    wait_for(&steady, "kubectl get --raw /readyz");
    assert_eq!(must(steady.must(READ)), ENCODED);
    must(steady.must("kubectl create secret generic after --from-literal=a=b"));
    assert!(back.count("decrypt") > 0);
    drop(steady);
    must(cluster.remove());
}
