//! What `iscsiadm` is asked to do, in which order, and what it means when it refuses. Nothing here calls it.
//!
//! Source: `pkg/volume/iscsi/iscsi_util.go`; the exit codes are those of `iscsiadm(8)`.

use std::collections::{BTreeMap, HashMap};

use super::Disk;
use crate::volumes::error::Specific;

/// There is no such session, record or portal.
pub(super) const GONE: &[i32] = &[2, 21];
/// There is such a session or interface already.
pub(super) const EXISTS: &[i32] = &[15];

/// What a Secret's entries are called that are for both.
const CHAP: [&str; 4] = ["username", "password", "username_in", "password_in"];

/// How initiator and target prove to each other who they are.
#[derive(Clone, Default)]
pub(super) struct Chap {
    pub(super) discovery: bool,
    pub(super) session: bool,
    pub(super) secret: HashMap<String, String>,
}

/// There is no interface of the disk's own.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoOwnInterface {
    #[error("iscsi: cannot clone iface with same name: {0}")]
    SameName(String),
    #[error("iscsi: failed to parse iface records: invalid iface setting: {0}")]
    Setting(String),
}

impl Specific for NoOwnInterface {}

/// One call of the tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) arguments: Vec<String>,
    /// Exit codes other than 0 that are as good.
    pub(super) fine: &'static [i32],
    pub(super) refused: Refused,
}

/// What a refusal means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Nothing depends on it.
    GoOn,
    /// Nothing more is done but to take something back.
    Stop { what: String, undo: Option<Vec<String>> },
}

impl Step {
    fn new(arguments: &[&str], fine: &'static [i32], what: &str) -> Self {
        Self {
            arguments: owned(arguments),
            fine,
            refused: Refused::Stop { what: what.to_owned(), undo: None },
        }
    }

    fn if_possible(arguments: &[&str]) -> Self {
        Self { arguments: owned(arguments), fine: &[], refused: Refused::GoOn }
    }

    fn or_undo(self, undo: &[&str]) -> Self {
        match self.refused {
            Refused::GoOn => self,
            Refused::Stop { what, .. } => {
                Self { refused: Refused::Stop { what, undo: Some(owned(undo)) }, ..self }
            }
        }
    }
}

fn owned(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|&argument| argument.to_owned()).collect()
}

/// What shows an interface.
pub(super) fn show_iface(iface: &str) -> [&str; 6] {
    ["-m", "iface", "-I", iface, "-o", "show"]
}

/// What removes an interface.
pub(super) fn delete_iface(iface: &str) -> [&str; 6] {
    ["-m", "iface", "-I", iface, "-o", "delete"]
}

/// How an interface reaches its targets, by what was shown of it.
pub(super) fn transport(shown: &str) -> Option<&str> {
    let value = shown.lines().find_map(|line| line.trim().strip_prefix("iface.transport_name = "))?;
    Some(if value == "<empty>" { "tcp" } else { value.trim() })
}

/// Makes the interface under which the disk's own initiator goes, like the one that was shown.
pub(super) fn clone_iface(disk: &Disk, shown: &str) -> Result<Vec<Step>, NoOwnInterface> {
    let Disk { iface, init_iface, .. } = disk;
    if iface == init_iface {
        return Err(NoOwnInterface::SameName(iface.clone()));
    }
    let lines = shown.lines().filter(|line| line.starts_with("iface.") && !line.contains("<empty>"));
    let settings = lines.map(|line| {
        let setting = line.split_once('=').map(|(key, value)| (key.trim(), value.trim()));
        let setting = setting.filter(|(key, value)| !key.contains(' ') && !value.contains(' '));
        setting.ok_or_else(|| NoOwnInterface::Setting(line.to_owned()))
    });
    let mut settings = settings.collect::<Result<BTreeMap<_, _>, _>>()?;
    // An interface's name is what it is made with.
    settings.remove("iface.iscsi_ifacename");
    settings.insert("iface.initiatorname", &disk.initiator_name);
    let new = ["-m", "iface", "-I", iface, "-o", "new"];
    let mut steps = vec![Step::new(&new, EXISTS, "iscsi: failed to create new iface")];
    steps.extend(settings.into_iter().map(|(key, value)| {
        let arguments = ["-m", "iface", "-I", iface, "-o", "update", "-n", key, "-v", value];
        Step::new(&arguments, &[], "iscsi: failed to update iface records").or_undo(&delete_iface(iface))
    }));
    Ok(steps)
}

/// Finds the target by one of its portals, and logs in there.
pub(super) fn log_in(disk: &Disk, portal: &str, chap: &Chap) -> Vec<Step> {
    let Disk { iface, iqn, .. } = disk;
    let discovery = ["-m", "discoverydb", "-t", "sendtargets", "-p", portal, "-I", iface];
    let node = ["-m", "node", "-p", portal, "-T", iqn, "-I", iface];
    let mut steps = vec![Step::if_possible(&[&discovery[..], &["-o", "new"]].concat())];
    if chap.discovery {
        steps.extend(chap_steps(&discovery, "discovery.sendtargets.auth", "discoverydb", &chap.secret));
    }
    let what = format!("iscsi: failed to sendtargets to portal {portal}");
    let discover = Step::new(&[&discovery[..], &["--discover"]].concat(), &[], &what);
    steps.push(discover.or_undo(&[&discovery[..], &["-o", "delete"]].concat()));
    // So that only what is asked for appears. Older tools do not know it.
    let update = |key, value| [&node[..], &["-o", "update", "-n", key, "-v", value]].concat();
    steps.push(Step::if_possible(&update("node.session.scan", "manual")));
    if chap.session {
        steps.extend(chap_steps(&node, "node.session.auth", "node", &chap.secret));
    }
    let login = Step::new(&[&node[..], &["--login"]].concat(), EXISTS, "iscsi: failed to attach disk");
    steps.push(login.or_undo(&[&node[..], &["-o", "delete"]].concat()));
    // A node that starts does not wait for it.
    steps.push(Step::if_possible(&update("node.startup", "manual")));
    steps
}

/// Writes down how to prove who is who. What is in the Secret is in no error.
fn chap_steps(record: &[&str], prefix: &str, what: &str, secret: &HashMap<String, String>) -> Vec<Step> {
    let update = |key: &str, value: &str, what: &str| {
        Step::new(&[record, &["-o", "update", "-n", key, "-v", value]].concat(), &[], what)
    };
    let failed = format!("iscsi: failed to update {what} with CHAP");
    let mut steps = vec![update(&format!("{prefix}.authmethod"), "CHAP", &failed)];
    for key in CHAP.map(|key| format!("{prefix}.{key}")) {
        if let Some(value) = secret.get(&key).filter(|value| !value.is_empty()) {
            steps.push(update(&key, value, &format!("iscsi: failed to update {what} key {key:?}")));
        }
    }
    steps
}

/// Logs out where no other disk of this node is reached by the same session, and forgets what that session needed.
pub(super) fn log_out(disk: &Disk, others: &[Disk]) -> Vec<Step> {
    let Disk { iface, iqn, .. } = disk;
    let shares = |other: &&Disk| other.iqn == *iqn && other.iface == *iface;
    let sharing: Vec<&Disk> = others.iter().filter(shares).collect();
    let mut steps = Vec::new();
    for portal in disk.portals.iter().filter(|portal| !sharing.iter().any(|o| o.portals.contains(portal))) {
        let node = ["-m", "node", "-p", portal, "-T", iqn, "-I", iface];
        let logout = [&node[..], &["--logout"]].concat();
        steps.push(Step::new(&logout, GONE, "iscsi: failed to detach disk"));
        let delete = [&node[..], &["-o", "delete"]].concat();
        steps.push(Step::new(&delete, GONE, "iscsi: failed to delete node record"));
    }
    if disk.has_own_iface() && !others.iter().any(|other| other.iface == *iface) {
        steps.push(Step::new(&delete_iface(iface), GONE, "iscsi: failed to delete iface"));
    }
    steps
}

/// Whether these paths are enough, or the portals that are missing are tried once more. Source: `AttachDisk`.
pub(super) fn is_enough(attempt: usize, paths: usize, portals: usize) -> bool {
    const PATHS_MIN: usize = 2;
    const ATTEMPTS_MIN: usize = 2;
    paths >= portals || paths >= PATHS_MIN && attempt >= ATTEMPTS_MIN
}

#[cfg(test)]
mod tests;
