//! iSCSI volumes of a Node whose `iscsiadm` is a script: its targets are files, its disks are loop devices.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::clients::KUBECTLS;
use testkit::{Cluster, Session};

use crate::{BUSYBOX, must};

/// Takes the names of its disks out of `/dev` again, whatever becomes of the test.
struct Targets {
    /// What the script has: `N.img` are disks, `sessions` who is logged in, `calls` what was asked.
    state: PathBuf,
    tool: PathBuf,
    /// In the targets' name, so that no other test's disks are meant.
    name: String,
}

impl Targets {
    /// Disks 0 and 1. The tool is not there yet.
    fn new(folder: &Path) -> Self {
        let state = folder.join("targets");
        let programs = folder.join("programs");
        fs::create_dir_all(state.join("sessions")).unwrap();
        fs::create_dir_all(&programs).unwrap();
        for lun in ["0.img", "1.img"] {
            fs::File::create(state.join(lun)).unwrap().set_len(16 << 20).unwrap();
        }
        let name = folder.file_name().unwrap().to_str().unwrap().to_lowercase();
        let script = include_str!("iscsi/iscsiadm.sh").replace("@STATE@", state.to_str().unwrap());
        let tool = state.join("iscsiadm");
        fs::write(&tool, script).unwrap();
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
        Self { state, tool: programs.join("iscsiadm"), name }
    }

    fn script(&self, text: &str) -> String {
        let all = [("$STATE", &self.state), ("$TOOL", &self.tool)];
        let text =
            all.iter().fold(text.to_owned(), |text, (name, path)| text.replace(name, path.to_str().unwrap()));
        text.replace("$NAME", &self.name)
    }

    fn links(&self) -> Vec<String> {
        let entries = fs::read_dir("/dev/disk/by-path").into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        names.filter(|name| name.contains(&self.name)).collect()
    }
}

impl Drop for Targets {
    fn drop(&mut self) {
        // Nothing is asked of it but to end what sessions there are.
        Command::new(self.state.join("iscsiadm")).args(["-m", "test", "-o", "clean"]).status().unwrap();
    }
}

fn mounts(cluster: &Cluster) -> Vec<String> {
    let all = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let folder = cluster.data_dir().canonicalize().unwrap();
    let points = all.lines().filter_map(|line| line.split(' ').nth(4)).map(str::to_owned);
    points.filter(|point| point.starts_with(folder.to_str().unwrap()) && point.contains("iscsi")).collect()
}

#[test]
fn disks_of_targets_are_logged_in_to_once_and_out_of_after_their_last_pod() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    let targets = Targets::new(cluster.scratch());
    cluster.add_programs(targets.tool.parent().unwrap().to_owned());
    must(cluster.import_busybox(BUSYBOX));
    must(cluster.up());
    let first = must(Session::new(&cluster, KUBECTLS[1], "iscsi"));
    must(first.run("iscsi.txt", &targets.script(include_str!("sessions/iscsi.txt"))));
    drop(first);
    assert_eq!(targets.links().len(), 4, "two disks by two portals");
    must(cluster.knarr(&["down"]));
    must(cluster.up());
    let then = must(Session::new(&cluster, KUBECTLS[1], "iscsi"));
    must(then.run("iscsi_after.txt", &targets.script(include_str!("sessions/iscsi_after.txt"))));
    assert_eq!(targets.links(), [""; 0], "nobody is logged in");
    assert_eq!(mounts(&cluster), [""; 0], "nothing is left mounted");
    must(then.run("iscsi_left.txt", &targets.script(include_str!("sessions/iscsi_left.txt"))));
    drop(then);
    must(cluster.knarr(&["reset", "--yes"]));
    assert_eq!(targets.links(), [""; 0], "who resets logs out");
    drop(targets);
    must(cluster.remove());
}
