//! Images from a registry with TLS and a password, as users see them: Debian's `docker-registry` on loopback.

use std::fs;

use testkit::clients::KUBECTLS;
use testkit::cluster::Process;
use testkit::{Cluster, Session};

use crate::must;

const PORT: u16 = 5443;
/// Whatever disk the images are on, it is fuller than this.
const FULL: &str = "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
evictionHard: {imagefs.available: 99.999%}
";

#[test]
fn images_come_from_a_registry_by_the_pods_secrets() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    let folder = cluster.scratch().to_owned();
    prepare(&cluster);
    let mut registry = start(&cluster);
    let settings = folder.join("registries.yaml");
    let ca = folder.join("ca.pem");
    let tls = format!("tls: {{ca_file: {}}}", ca.display());
    let text = format!(
        "mirrors: {{nowhere.example: {{endpoint: ['https://127.0.0.1:{PORT}'], rewrite: {{'^team/(.*)$': '$1'}}}}}}\n\
         configs:\n  'localhost:{PORT}': {{{tls}}}\n\
         \x20 '127.0.0.1:{PORT}': {{{tls}, auth: {{username: knarr, password: secret}}}}\n"
    );
    fs::write(&settings, text).unwrap();
    let flag = settings.display().to_string();
    must(cluster.up_with(&["--private-registry", &flag]));
    let session = must(Session::new(&cluster, KUBECTLS[1], "images"));
    must(session.run("images.txt", include_str!("sessions/images.txt")));
    must(registry.kill());
    must(session.run("images_away.txt", include_str!("sessions/images_away.txt")));
    let registry = start(&cluster);
    must(session.run("images_back.txt", include_str!("sessions/images_back.txt")));
    // The disk is all but full, says the operator.
    let drop_ins = cluster.data_dir().join("agent/etc/kubelet.conf.d");
    fs::create_dir_all(&drop_ins).unwrap();
    fs::write(drop_ins.join("10-full.conf"), FULL).unwrap();
    for pid in cluster.processes("knarr node") {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    }
    must(session.run("images_collected.txt", include_str!("sessions/images_collected.txt")));
    drop((session, registry));
    must(cluster.remove());
}

/// A certificate, a user, and the settings of the registry.
fn prepare(cluster: &Cluster) {
    let folder = cluster.scratch();
    let made = cluster
        .command("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-keyout", "key.pem", "-out", "ca.pem", "-subj", "/CN=localhost"])
        .args([
            "-addext",
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    // bcrypt of `secret`.
    fs::write(folder.join("users"), "knarr:$2b$05$M5FHvbCQpnDB4mNNYpLhJe6IZ7PN.gYTDgxA/DviWzkt2/mBRIMp.\n")
        .unwrap();
    let path = |name: &str| folder.join(name).display().to_string();
    let config = format!(
        "version: 0.1\nlog: {{level: error, accesslog: {{disabled: true}}}}\n\
         storage: {{filesystem: {{rootdirectory: {}}}}}\n\
         http: {{addr: 'localhost:{PORT}', tls: {{certificate: {}, key: {}}}}}\n\
         auth: {{htpasswd: {{realm: test, path: {}}}}}\n",
        path("store"),
        path("ca.pem"),
        path("key.pem"),
        path("users")
    );
    fs::write(folder.join("registry.yml"), config).unwrap();
    must(testkit::image::busybox(folder));
    fs::write(folder.join("push.sh"), PUSH).unwrap();
}

/// Returns when it answers.
fn start(cluster: &Cluster) -> Process {
    let registry = must(cluster.start_other("docker-registry", &["serve", "registry.yml"]));
    let waiting = cluster
        .command("sh")
        .args(["-c", "until curl --silent --cacert ca.pem https://localhost:5443/v2/; do :; done"])
        .output()
        .unwrap();
    assert!(waiting.status.success(), "{}", registry.log());
    registry
}

/// Pushes busybox.tar under the name and the tag that it is given; what it runs is different for each tag.
const PUSH: &str = r#"
set -e
url=https://localhost:5443/v2/$1
curl() { command curl --silent --show-error --fail --cacert ca.pem --user knarr:secret "$@"; }
digest() { echo sha256:$(sha256sum "$1" | cut -d" " -f1); }
blob() {
    location=$(curl -X POST -D - -o /dev/null $url/blobs/uploads/ | tr -d "\r" | sed -n "s/^[Ll]ocation: //p")
    curl -X PUT -H "Content-Type: application/octet-stream" --data-binary @$1 "$location&digest=$(digest $1)"
}
descriptor() { echo "{\"mediaType\": \"$2\", \"size\": $(wc -c <$1), \"digest\": \"$(digest $1)\"}"; }
gzip --keep --force --no-name busybox.tar
oci=application/vnd.oci.image
cat >config.json <<EOF
{"architecture": "amd64", "os": "linux", "config": {"Cmd": ["sleep", "100000"], "Env": ["PATH=/bin", "TAG=$2"]},
 "rootfs": {"type": "layers", "diff_ids": ["$(digest busybox.tar)"]}}
EOF
blob busybox.tar.gz
blob config.json
cat >manifest.json <<EOF
{"schemaVersion": 2, "mediaType": "$oci.manifest.v1+json", "config": $(descriptor config.json $oci.config.v1+json),
 "layers": [$(descriptor busybox.tar.gz $oci.layer.v1.tar+gzip)]}
EOF
curl -X PUT -H "Content-Type: $oci.manifest.v1+json" --data-binary @manifest.json $url/manifests/$2
"#;
