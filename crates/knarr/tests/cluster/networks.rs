//! Networks of others as they install themselves: flannel, Calico, and Cilium in place of the Service proxy. Nobody has their
//! images here, so that their programs are played (`networks/`): they do to the API and to the Node what theirs do, by their
//! accounts and from their containers, and have Debian's plugins join Pods.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use testkit::clients::{self, KUBECTLS};
use testkit::containerd::DEBIAN_PLUGINS;
use testkit::{Cluster, Session};

use crate::must;

const PLAYED: [(&str, &str); 5] = [
    ("flannel.yaml", include_str!("networks/flannel.yaml")),
    ("calico.yaml", include_str!("networks/calico.yaml")),
    ("cilium.yaml", include_str!("networks/cilium.yaml")),
    ("patch.sh", include_str!("networks/patch.sh")),
    ("plugin.sh", include_str!("networks/plugin.sh")),
];

/// What their images have.
fn install_images(cluster: &mut Cluster) {
    must(cluster.import_busybox("test.local/busybox:1"));
    let scratch = cluster.scratch().display().to_string();
    let kubectl = must(clients::folder(KUBECTLS[1])).display().to_string();
    let folder = cluster.scratch().join("image");
    fs::create_dir(&folder).unwrap();
    for (name, text) in PLAYED {
        let places = [("SCRATCH", scratch.as_str()), ("KUBECTL", &kubectl), ("PLUGINS", DEBIAN_PLUGINS)];
        let text = places.iter().fold(text.to_owned(), |text, (word, place)| text.replace(word, place));
        fs::write(folder.join(name), text).unwrap();
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

fn session(cluster: &Cluster, name: &str, script: &str) {
    let session = must(Session::new(cluster, KUBECTLS[1], "networks"));
    must(session.run(name, script));
}

#[test]
fn flannel_calico_and_cilium_install_themselves() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    install_images(&mut cluster);
    // What comes out of a container has to stand on a mount that is shared, as those of most hosts are.
    let shared = cluster.scratch().join("shared");
    must(cluster.mount_disk(&shared, 1 << 20));
    must(sys::mount::set_propagation(&shared, sys::mount::Propagation::Shared).map_err(Into::into));
    let [bin, net] =
        ["opt/cni/bin", "etc/cni/net.d"].map(|it| cluster.scratch().join(it).display().to_string());
    let folders = ["--cni-conf-dir", &net, "--cni-bin-dir", &bin];
    must(cluster.up_with(&[&folders[..], &["--disable", "network-policy,servicelb"]].concat()));
    session(&cluster, "flannel.txt", include_str!("sessions/flannel.txt"));
    session(&cluster, "calico.txt", include_str!("sessions/calico.txt"));
    must(cluster.knarr(&["down"]));
    let disabled = ["--disable", "proxy,dns,network-policy,servicelb,ingress"];
    must(cluster.up_with(&[&folders[..], &disabled].concat()));
    session(&cluster, "cilium.txt", include_str!("sessions/cilium.txt"));
    must(cluster.remove());
}
