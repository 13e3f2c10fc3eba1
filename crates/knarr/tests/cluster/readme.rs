//! The README's first five minutes, line by line, by a user who is not root and has nothing but kubectl and `sudo`.
//!
//! `sudo` is a stand-in with the same environment; the user, their home and `/usr/local/bin` exist in a mount namespace
//! of the test's own. Their kubeconfig has another cluster, which must be there afterwards as it was before.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use testkit::clients::{self, KUBECTLS};
use testkit::cluster::{NODE_IP, NODE_NAME};
use testkit::{Cluster, Session};

use crate::must;

const UID: u32 = 47_110;
const README: &str = include_str!("../../../../README.md");
const OTHERS: &str = "apiVersion: v1
kind: Config
clusters:
- cluster:
    server: https://192.0.2.99:6443
  name: work
contexts:
- context:
    cluster: work
    user: me
  name: work
current-context: work
users:
- name: me # mine
  user:
    token: very-secret
";

/// The commands of the block below the heading; what builds the binary has been done. What is waited for has a bound here,
/// and says why it does not come.
fn commands() -> String {
    let (_, section) = README.split_once("\n## The first five minutes\n").expect("the heading");
    let (_, block) = section.split_once("```console\n").expect("the block");
    let (block, _) = block.split_once("```").expect("its end");
    let built = |line: &&str| !line.starts_with("cargo build ");
    let bounded = |line: &str| match line.split(' ').take(3).collect::<Vec<_>>().join(" ").as_str() {
        "kubectl rollout status" => format!("{line} --timeout=60s || {{ knarr why; exit 1; }}\n"),
        // Looking needs no root; what does says so.
        "sudo knarr down" => format!("knarr status\nif knarr down; then exit 1; fi\n{line}\n"),
        _ => format!("{line}\n"),
    };
    block.lines().filter(built).map(bounded).collect()
}

fn write(path: &Path, text: &str, mode: u32) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// The user's home, their `sudo`, and the folder that stands for `/usr/local/bin`.
fn set_up(root: &Path) {
    let (home, bin) = (root.join("home"), root.join("bin"));
    write(&home.join(".kube/config"), OTHERS, 0o600);
    for path in [home.clone(), home.join(".kube"), home.join(".kube/config")] {
        chown(path, Some(UID), Some(UID)).unwrap();
    }
    let become_root = bin.join("become");
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::copy("/usr/bin/setpriv", &become_root).unwrap();
    chown(&become_root, Some(0), Some(UID)).unwrap();
    std::fs::set_permissions(&become_root, std::fs::Permissions::from_mode(0o4750)).unwrap();
    // How full the machine's disk is does not matter here.
    let config = root.join("config.yaml");
    write(&config, "kubelet-arg: ['eviction-hard=nodefs.available<0%,imagefs.available<0%']\n", 0o644);
    let sudo = format!(
        "#!/bin/sh\nexec {} --reuid=0 --regid=0 --clear-groups env HOME=/root SUDO_UID={UID} SUDO_GID={UID} \
         KNARR_CONFIG={} \"$@\"\n",
        become_root.display(),
        config.display()
    );
    write(&bin.join("sudo"), &sudo, 0o755);
    std::fs::copy(must(clients::folder(KUBECTLS[1])).join("kubectl"), bin.join("kubectl")).unwrap();
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    write(&root.join("passwd"), &format!("{users}ann:x:{UID}:{UID}::{}:/bin/sh\n", home.display()), 0o644);
    std::fs::create_dir_all(root.join("target/release")).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_knarr"), root.join("target/release/knarr")).unwrap();
}

#[test]
fn the_first_five_minutes_of_the_readme_work_to_the_letter_for_a_user_with_sudo() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    let root = cluster.scratch().join("user");
    set_up(&root);
    write(&root.join("readme.sh"), &commands(), 0o755);
    let session = must(Session::on_host(&cluster));
    let printed = must(session.must(&format!(
        "cd {root} && exec unshare --mount sh -e -c '
            mount --bind passwd /etc/passwd; mount --bind bin /usr/local/bin
            export PATH=/usr/local/bin:/usr/bin:/bin HOME={root}/home KNARR_DATA_DIR={data}
            export KNARR_NODE_IP={NODE_IP} KNARR_NODE_NAME={NODE_NAME} KNARR_WRITE_KUBECONFIG={root}/home/.kube/config
            unset KUBECONFIG
            exec setpriv --reuid={UID} --regid={UID} --clear-groups sh -e -x readme.sh'",
        root = root.display(),
        data = cluster.data_dir().display(),
    )));
    eprintln!("{printed}");
    for expected in [
        "context knarr is in",
        "export KUBECONFIG=",
        "deployment.apps/web created",
        "successfully rolled out",
        "pod/web-",
        "everything is well",
        "nodes   1 ready   ",
        "knarr: only root stops a cluster; run this as root (`sudo knarr down`)",
        "what runs in Pods goes on",
    ] {
        assert!(printed.contains(expected), "{expected:?} is missing");
    }
    let config = root.join("home/.kube/config");
    assert_eq!(std::fs::read_to_string(&config).unwrap(), OTHERS);
    let left = std::fs::read_dir(root.join("home/.kube")).unwrap().flatten().map(|entry| entry.file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().contains("knarr")).collect();
    assert!(left.is_empty(), "{left:?} is left");
    assert!(!cluster.data_dir().exists());
    drop(session);
    must(cluster.remove());
}
