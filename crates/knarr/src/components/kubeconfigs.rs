//! Kubeconfigs outside of the cluster's folder: the one of the user who called `sudo`, and `--write-kubeconfig`.
//!
//! What is added to them is written down, so that `knarr reset` takes back that and nothing else. A file in somebody's
//! home is edited by a process that has become that user: whatever links lie there, it can reach no more than the user
//! can. A file that is edited as root is never reached by a link.

mod file;

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use cli::args::ServerArgs;
use cli::kubeconfig::{Current, Entry};
use nix::unistd::{Gid, Uid, User};
use serde::{Deserialize, Serialize};

use crate::layout::Layout;

/// The data directory whose user's kubeconfig is called after no other.
const USUAL_DATA: &str = "/var/lib/knarr";
/// The user's own file is theirs alone.
const OWN_MODE: u32 = 0o600;

/// A file that has the cluster's entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Written {
    /// Which file.
    pub(crate) path: PathBuf,
    /// What the cluster's context is called in it.
    pub(crate) context: String,
    /// Whether this is the current context.
    pub(crate) is_current: bool,
    /// Whether the file is the cluster's own, in the home of the user who called `sudo`.
    pub(crate) is_own: bool,
    /// Who edits it: user and group; root if there is none.
    user: Option<(u32, u32)>,
    /// What was made for it: the file, and the folder it is in.
    made: Made,
}

/// What was not there before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Made {
    file: bool,
    folder: bool,
}

/// What the process is told that edits a file.
#[derive(Serialize, Deserialize)]
struct Request {
    path: PathBuf,
    edit: Edit,
}

#[derive(Serialize, Deserialize)]
enum Edit {
    Add { entry: Entry, current: Current, mode: u32 },
    TakeBack { authority: String, made: Made },
}

/// What has become of a file.
#[derive(Default, Serialize, Deserialize)]
struct Outcome {
    context: String,
    is_current: bool,
    made: Made,
}

/// The one that this user has of the cluster, if `up` has made one for them.
pub(crate) fn own(layout: &Layout) -> Option<PathBuf> {
    let user = User::from_uid(nix::unistd::getuid()).ok().flatten()?;
    Some(user.dir.join(".kube").join(own_name(layout)))
}

/// Who called `sudo`.
struct Caller {
    user: (u32, u32),
    home: PathBuf,
}

/// Adds the cluster to the file that was named, and makes one for the user who called `sudo`.
///
/// # Errors
/// The file that was named cannot be edited. What fails in the caller's home is logged.
pub(super) fn write(args: &ServerArgs, layout: &Layout) -> Result<()> {
    let admin = layout.admin_kubeconfig();
    let text = std::fs::read_to_string(&admin).with_context(|| format!("read {}", admin.display()))?;
    let entry = Entry::of(&text).with_context(|| format!("{} is no kubeconfig", admin.display()))?;
    let mut known = written(layout);
    let caller = caller();
    if let Some(caller) = &caller {
        let path = caller.home.join(".kube").join(own_name(layout));
        let edit = Edit::Add { entry: entry.clone(), current: Current::Always, mode: OWN_MODE };
        match edit_as(Some(caller.user), &Request { path: path.clone(), edit }) {
            Ok(outcome) => note(&mut known, path, Some(caller.user), true, outcome),
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(path = %path.display(), error, "the user who called sudo has no kubeconfig");
            }
        }
    }
    if let Some(path) = &args.write_kubeconfig {
        let path = std::path::absolute(path)?;
        let mode = u32::from_str_radix(&args.write_kubeconfig_mode, 8)
            .context("--write-kubeconfig-mode must be octal, such as 600")?;
        let user = caller.as_ref().map(|caller| caller.user).filter(|user| is_theirs(&path, user.0));
        let edit = Edit::Add { entry, current: Current::IfNone, mode };
        let outcome = edit_as(user, &Request { path: path.clone(), edit })
            .with_context(|| format!("cannot add the cluster to --write-kubeconfig {}", path.display()))?;
        note(&mut known, path, user, false, outcome);
    }
    save(layout, &known)
}

/// Files that have the cluster's entries.
pub(crate) fn written(layout: &Layout) -> Vec<Written> {
    let text = std::fs::read(layout.kubeconfigs()).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Takes the cluster's entries out of all of them again; returns what could not be done, a line each.
pub(crate) fn take_back(layout: &Layout) -> Vec<String> {
    let text = std::fs::read_to_string(layout.admin_kubeconfig()).unwrap_or_default();
    let Some(Entry { authority, .. }) = Entry::of(&text) else { return Vec::new() };
    let mut failed = Vec::new();
    for file in written(layout) {
        let edit = Edit::TakeBack { authority: authority.clone(), made: file.made };
        if let Err(error) = edit_as(file.user, &Request { path: file.path.clone(), edit }) {
            failed.push(format!("the cluster's entries in {} are left: {error:#}", file.path.display()));
        }
    }
    failed
}

/// The process that edits a file for its user: the request on standard input, the outcome on standard output.
pub(crate) fn edit() -> ExitCode {
    let edited = std::io::read_to_string(std::io::stdin())
        .context("read the request")
        .and_then(|text| serde_json::from_str(&text).context("read the request"))
        .and_then(|request| file::edit(&request));
    let (text, code) = match edited {
        Ok(outcome) => (serde_json::to_string(&outcome).unwrap_or_default(), ExitCode::SUCCESS),
        Err(error) => (format!("{error:#}").replace('\n', " "), ExitCode::FAILURE),
    };
    match writeln!(std::io::stdout(), "{text}") {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Edits a file as this user; as root in this process.
fn edit_as(user: Option<(u32, u32)>, request: &Request) -> Result<Outcome> {
    let Some((uid, gid)) = user else { return file::edit(request) };
    let mut command = Command::new("/proc/self/exe");
    command.arg("edit-kubeconfig").env_clear().uid(uid).gid(gid).current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().with_context(|| format!("become user {uid}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(&serde_json::to_vec(request)?)?;
    }
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("{}", text.trim());
    }
    serde_json::from_str(&text).context("read what became of it")
}

fn note(known: &mut Vec<Written>, path: PathBuf, user: Option<(u32, u32)>, is_own: bool, outcome: Outcome) {
    let before = known.iter().find(|file| file.path == path).map(|file| file.made).unwrap_or_default();
    let made = Made { file: before.file || outcome.made.file, folder: before.folder || outcome.made.folder };
    known.retain(|file| file.path != path);
    let Outcome { context, is_current, .. } = outcome;
    known.push(Written { path, context, is_current, is_own, user, made });
}

fn save(layout: &Layout, known: &[Written]) -> Result<()> {
    Ok(auth::pki::write_file(&layout.kubeconfigs(), &serde_json::to_vec_pretty(known)?, 0o600)?)
}

/// `knarr.yaml`, or with the cluster's id where there may be several.
fn own_name(layout: &Layout) -> String {
    if layout.root() == Path::new(USUAL_DATA) {
        return "knarr.yaml".to_owned();
    }
    format!("knarr-{}.yaml", layout.cluster_id())
}

/// The user who called `sudo`, if they have a home. `HOME` is root's by then.
fn caller() -> Option<Caller> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    let (uid, gid) = (number("SUDO_UID").filter(|uid| *uid != 0)?, number("SUDO_GID")?);
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten()?;
    let gid = if user.gid == Gid::from_raw(gid) { gid } else { user.gid.as_raw() };
    user.dir.is_dir().then_some(Caller { user: (uid, gid), home: user.dir })
}

/// Whether the folder that the file is in, or is to be made in, belongs to this user.
fn is_theirs(path: &Path, uid: u32) -> bool {
    let mut folders = path.ancestors().skip(1);
    folders.find_map(|folder| folder.metadata().ok()).is_some_and(|folder| folder.uid() == uid)
}
