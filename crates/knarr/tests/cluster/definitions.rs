//! Definitions of others, as who installs several projects has them: some of those in the folder `KNARR_CRDS` are applied at
//! once, found, explained and deleted again. Without it, one of this project's own is.

use testkit::Session;
use testkit::clients::KUBECTLS;

use crate::{cluster, must};

/// One that has what those of others have, too.
const OWN: &str = include_str!("../../../resources/src/validation/crd/tests/definitions/backups.yaml");

#[test]
fn definitions_of_others_come_and_go_together() {
    let cluster = cluster();
    let session = must(Session::new(&cluster, KUBECTLS[1], "definitions"));
    let folder = std::env::var("KNARR_CRDS").unwrap_or_else(|_| {
        eprintln!("KNARR_CRDS names no folder with definitions: only one of this project's own is tried");
        let folder = session.folder().join("own");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("backups.yaml"), OWN).unwrap();
        folder.display().to_string()
    });
    let script = include_str!("sessions/definitions.txt").replace("FOLDER", &folder);
    must(session.run("definitions.txt", &script));
    drop(session);
    must(cluster.remove());
}
