//! A server's disk: logged in to by the host's `iscsiadm`, mounted once for the node, bound to each Pod that has it, and
//! logged out of when the last has gone.
//!
//! What is to be taken back is written down beside the Pod (`iscsi.json`) before anything is asked for, and forgotten
//! afterwards: who logs out after a restart needs nothing else, and who else uses a session is seen by the others' notes.
//! Source: `pkg/volume/iscsi`.

mod plan;
mod sysfs;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use controller::request;
use controller::volume::iscsi_name;
use k8s_openapi::api::core::v1::{ISCSIPersistentVolumeSource, Pod, Secret};
use serde::{Deserialize, Serialize};
use sys::folder_watch::FolderWatch;

use super::prepared::{Phase, Prepared};
use super::resolve::Resolved;
use super::{attach, bound, format};
use crate::volumes::Volumes;
use crate::volumes::error::{Specific, VolumeError, at};
use crate::volumes::folder::write_note;
use plan::{Chap, Refused, Step};
use sysfs::Sysfs;

/// What upstream's plugin is called.
const PLUGIN: &str = "kubernetes.io/iscsi";
const FOLDER: &str = "kubernetes.io~iscsi";
/// The file with what a Pod's volumes of this kind are.
const FILE: &str = "iscsi.json";
const TOOL: &str = "iscsiadm";
/// Of a portal that does not say.
const PORT: u16 = 3260;
/// How often portals are tried before fewer paths than two will do. Source: `maxAttachAttempts`.
const ATTEMPTS_MAX: usize = 5;
/// How long a disk may take to appear. Source: `deviceDiscoveryTimeout`.
const DEVICE_MAX: Duration = Duration::from_secs(30);
/// How long the bundle of several paths may take to appear. Source: `multipathDeviceTimeout`.
const MULTIPATH_MAX: Duration = Duration::from_secs(10);
const BY_PATH: &str = "/dev/disk/by-path";
const SYSFS: Sysfs<'static> = Sysfs("/sys");

/// A disk is not to be had, or not let go of; in upstream's words.
#[derive(Debug, thiserror::Error)]
enum IscsiError {
    #[error("iscsi: {0:?} must not contain a slash")]
    Slash(String),
    #[error("iscsi: could not read iface {iface} error: {output}")]
    NoInterface { iface: String, output: String },
    #[error("Could not parse iface file for {0}")]
    NoTransport(String),
    #[error("failed to get any path for iscsi disk")]
    NoPath,
    #[error("failed to get any path for iscsi disk, last err seen:\n{0}")]
    Unreached(#[source] Box<VolumeError>),
    #[error("iscsi: failed to scan SCSI host {host} for lun {lun}: {source}")]
    Scan { host: u32, lun: i32, source: std::io::Error },
    #[error("Timed out waiting for device at path {path} after {}s", DEVICE_MAX.as_secs())]
    NoDevice { path: String },
    #[error("CHAP enabled but secret name or namespace is empty")]
    NoSecretName,
    #[error("couldn't get secret {namespace}/{name} error: {source}")]
    NoSecret { namespace: String, name: String, source: Box<kube::Error> },
    #[error("{what}: {output} ({status})")]
    Refused { what: String, output: String, status: String },
    #[error("iscsi: failed to detach disk: {0}")]
    NotDetached(#[source] Box<VolumeError>),
}

impl Specific for IscsiError {}

/// Which disk it is and how it is reached: all that it takes to log out again. The names are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Disk {
    vol_name: String,
    /// What the Node's status calls it.
    unique_name: String,
    /// With ports, the first one names the disk.
    portals: Vec<String>,
    iqn: String,
    lun: i32,
    iface: String,
    /// The one that `iface` was made like.
    init_iface: String,
    /// Empty if it is the interface's.
    initiator_name: String,
    /// It is handed out as it is, not mounted.
    is_device: bool,
}

/// Names of a Pod's volumes, and what they are.
type Notes = BTreeMap<String, Disk>;

impl Disk {
    fn new(
        vol_name: &str,
        is_device: bool,
        source: &ISCSIPersistentVolumeSource,
    ) -> Result<Self, IscsiError> {
        let with_port = |portal: &String| match portal.contains(':') {
            true => portal.clone(),
            false => format!("{portal}:{PORT}"),
        };
        let mut portals: Vec<String> = Vec::new();
        for portal in std::iter::once(&source.target_portal).chain(source.portals.iter().flatten()) {
            let portal = with_port(portal);
            if !portals.contains(&portal) {
                portals.push(portal);
            }
        }
        let init_iface = source.iscsi_interface.clone().unwrap_or_else(|| "default".to_owned());
        let initiator_name = source.initiator_name.clone().unwrap_or_default();
        // They become files' names, here and in the tool's own folders.
        let iqn = source.iqn.clone();
        for text in portals.iter().chain([&init_iface, &iqn]) {
            if text.contains('/') {
                return Err(IscsiError::Slash(text.clone()));
            }
        }
        let iface = match (portals.first(), initiator_name.as_str()) {
            (Some(portal), name) if !name.is_empty() => format!("{portal}:{vol_name}"),
            _ => init_iface.clone(),
        };
        let vol_name = vol_name.to_owned();
        let unique_name = iscsi_name(&source.target_portal, &iqn, source.lun);
        Ok(Self {
            vol_name,
            unique_name,
            portals,
            iqn,
            lun: source.lun,
            iface,
            init_iface,
            initiator_name,
            is_device,
        })
    }

    fn is_same_disk(&self, other: &Self) -> bool {
        self.iqn == other.iqn && self.lun == other.lun
    }

    fn has_own_iface(&self) -> bool {
        self.iface != self.init_iface
    }

    /// Where it is mounted for all Pods. Source: `makePDNameInternal`.
    fn global(&self, root_dir: &Path) -> PathBuf {
        let portal = self.portals.first().map(String::as_str).unwrap_or_default();
        let name = format!("{portal}-{}-lun-{}", self.iqn, self.lun);
        root_dir.join("plugins").join(PLUGIN).join(format!("iface-{}", self.iface)).join(name)
    }

    /// Whether a file of `/dev/disk/by-path` leads to it by that portal. Of hardware the bus is named, which nobody knows.
    fn is_path(&self, name: &str, portal: &str, transport: &str) -> bool {
        let (iqn, lun) = (&self.iqn, self.lun);
        let path = format!("ip-{portal}-iscsi-{iqn}-lun-{lun}");
        match transport {
            "tcp" => name == path,
            _ => name.starts_with("pci-") && name.ends_with(&format!("-{path}")),
        }
    }
}

fn read(pod_dir: &Path) -> Notes {
    // Most Pods have none.
    let Ok(text) = std::fs::read(pod_dir.join(FILE)) else { return Notes::new() };
    serde_json::from_slice(&text).unwrap_or_else(|error| {
        let path = pod_dir.join(FILE);
        tracing::warn!(path = %path.display(), %error, "cannot tell which iSCSI disks a Pod has: log out of them by hand");
        Notes::new()
    })
}

/// The disks of Pods of this node, as its status calls them.
pub(super) fn in_use(root_dir: &Path) -> impl Iterator<Item = String> {
    others(root_dir, Path::new(""), "").into_iter().map(|disk| disk.unique_name)
}

/// The disks of all Pods but for one volume of one.
fn others(root_dir: &Path, pod_dir: &Path, volume: &str) -> Vec<Disk> {
    let pods = std::fs::read_dir(root_dir.join("pods")).into_iter().flatten().flatten();
    let all = pods.flat_map(|pod| {
        let is_own = Some(pod.file_name().as_os_str()) == pod_dir.file_name();
        read(&pod.path()).into_iter().filter(move |(name, _)| !(is_own && name == volume))
    });
    all.map(|(_, disk)| disk).collect()
}

/// Brings the disk to where the Pod's containers find it.
pub(super) async fn bring(
    volumes: &Volumes,
    pod: &Pod,
    pod_dir: &Path,
    resolved: &Resolved,
    source: &ISCSIPersistentVolumeSource,
) -> Result<Prepared, VolumeError> {
    let disk =
        Disk::new(&resolved.name, resolved.is_device(), source).map_err(Phase::Attach.failed(resolved))?;
    let turn = volumes.csi.turn(PLUGIN, &disk.iqn);
    let _turn = turn.lock().await;
    // Until it is written down here.
    let _asked = volumes.csi.ask(&disk.unique_name);
    attach::until_attached(volumes, &resolved.name, &disk.unique_name, async { Ok(()) }).await?;
    let global = global(volumes, &disk).map_err(Phase::Attach.failed(resolved))?;
    let is_there = !disk.is_device && sys::mount::is_mounted(&global).unwrap_or(false);
    let mut device = None;
    if is_there {
        note(pod_dir, resolved, &disk).map_err(Phase::Attach.failed(resolved))?;
    } else {
        let attached = log_in(volumes, pod, pod_dir, resolved, &disk, source).await;
        device = Some(attached.map_err(Phase::Attach.failed(resolved))?);
    }
    if let Some(device) = &device {
        if disk.is_device {
            return Ok(Prepared::plain(device.clone(), resolved));
        }
        let made = std::fs::create_dir_all(&global).map_err(at("mkdir", &global));
        made.map_err(Phase::Stage.failed(resolved))?;
        let mut options = resolved.mount_options();
        options.extend(resolved.read_only.then(|| "ro".to_owned()));
        let mounted = format::mount(device, &global, source.fs_type.as_deref(), &options).await;
        mounted.map_err(Phase::Stage.failed(resolved))?;
    }
    let bound = bound::bind(pod, &global, pod_dir, FOLDER, resolved).await;
    bound.map_err(Phase::Publish.failed(resolved))
}

/// As the kernel lists it when it is mounted.
fn global(volumes: &Volumes, disk: &Disk) -> Result<PathBuf, VolumeError> {
    let root = &volumes.config.root_dir;
    let root = root.canonicalize().map_err(at("find", root))?;
    Ok(disk.global(&root))
}

fn note(pod_dir: &Path, resolved: &Resolved, disk: &Disk) -> Result<(), VolumeError> {
    let mut notes = read(pod_dir);
    notes.insert(resolved.own_name.clone(), disk.clone());
    write_note(pod_dir, FILE, &notes)
}

/// Logs in wherever the disk is to be had, and finds the device. Source: `AttachDisk`.
async fn log_in(
    volumes: &Volumes,
    pod: &Pod,
    pod_dir: &Path,
    resolved: &Resolved,
    disk: &Disk,
    source: &ISCSIPersistentVolumeSource,
) -> Result<PathBuf, VolumeError> {
    let shown = format::run(TOOL, &plan::show_iface(&disk.init_iface)).await?;
    if shown.code != Some(0) {
        let (iface, output) = (disk.init_iface.clone(), shown.output);
        return Err(IscsiError::NoInterface { iface, output }.into());
    }
    let transport = plan::transport(&shown.output);
    let transport = transport.ok_or_else(|| IscsiError::NoTransport(disk.iface.clone()))?;
    let chap = chap(volumes, pod, source).await?;
    note(pod_dir, resolved, disk)?;
    if disk.has_own_iface() {
        run(&plan::clone_iface(disk, &shown.output)?).await?;
    }
    let mut found: BTreeMap<&str, PathBuf> = BTreeMap::new();
    let mut last_error = None;
    for attempt in 1..=ATTEMPTS_MAX {
        for portal in &disk.portals {
            if found.contains_key(portal.as_str()) {
                continue;
            }
            match reach(disk, portal, transport, &chap).await {
                Ok(device) => drop(found.insert(portal, device)),
                Err(error) => last_error = Some(Box::new(error)),
            }
        }
        if found.is_empty() {
            return Err(last_error.map_or(IscsiError::NoPath, IscsiError::Unreached).into());
        }
        if plan::is_enough(attempt, found.len(), disk.portals.len()) {
            break;
        }
    }
    let paths: Vec<PathBuf> =
        disk.portals.iter().filter_map(|portal| found.remove(portal.as_str())).collect();
    let bundled = multipath(&paths, disk.portals.len()).await;
    let first = paths.into_iter().next();
    Ok(bundled.or(first).ok_or(IscsiError::NoPath)?)
}

/// The device by one portal.
async fn reach(disk: &Disk, portal: &str, transport: &str, chap: &Chap) -> Result<PathBuf, VolumeError> {
    let host = || SYSFS.host(&disk.iqn, portal, &disk.iface);
    let mut known = host();
    if known.is_none() {
        run(&plan::log_in(disk, portal, chap)).await?;
        known = host();
    }
    match known {
        Some(host) => {
            let scanned = SYSFS.scan(host, disk.lun);
            scanned.map_err(|source| IscsiError::Scan { host, lun: disk.lun, source })?;
        }
        // The disk may come all the same: not all initiators show themselves.
        None => tracing::info!(iqn = disk.iqn, portal, "logged in, and the kernel tells of no SCSI host"),
    }
    let look = || {
        let entries = std::fs::read_dir(BY_PATH).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        let path = names.iter().find(|name| disk.is_path(name, portal, transport));
        path.map(|name| Path::new(BY_PATH).join(name)).filter(|path| path.exists())
    };
    let device = appears(&[BY_PATH], DEVICE_MAX, look).await;
    let device = device.ok_or_else(|| {
        let bus = if transport == "tcp" { "" } else { "pci-*-" };
        let path = format!("{BY_PATH}/{bus}ip-{portal}-iscsi-{}-lun-{}", disk.iqn, disk.lun);
        IscsiError::NoDevice { path }
    })?;
    Ok(device)
}

/// The device that bundles these paths: waited for only where more than one was asked for, and where the kernel could.
async fn multipath(paths: &[PathBuf], portals: usize) -> Option<PathBuf> {
    let look = || {
        let disks = paths.iter().filter_map(|path| path.canonicalize().ok());
        let names = disks.filter_map(|disk| SYSFS.multipath(disk.file_name()?.to_str()?));
        names.map(|name| Path::new("/dev").join(name)).next()
    };
    if portals < 2 || !Path::new("/dev/mapper/control").exists() {
        return look();
    }
    // Both are linked to when the device can be used.
    appears(&["/dev/mapper", "/dev/disk/by-id"], MULTIPATH_MAX, look).await
}

/// What is to be seen when something happens in these folders, if it is in time.
async fn appears<T>(folders: &[&str], max: Duration, look: impl Fn() -> Option<T>) -> Option<T> {
    let waiting = async {
        let mut watch = FolderWatch::of(folders.iter().map(PathBuf::from).collect())?;
        loop {
            if let Some(found) = look() {
                return Ok(found);
            }
            watch.changed().await?;
        }
    };
    match tokio::time::timeout(max, waiting).await {
        Ok(Ok(found)) => Some(found),
        Ok(Err(error)) => {
            let error: std::io::Error = error;
            tracing::warn!(%error, ?folders, "devices cannot be waited for");
            look()
        }
        Err(_late) => None,
    }
}

/// How to prove who is who, with the Secret if it takes one. Source: `createSecretMap`.
async fn chap(
    volumes: &Volumes,
    pod: &Pod,
    source: &ISCSIPersistentVolumeSource,
) -> Result<Chap, IscsiError> {
    let (discovery, session) =
        (source.chap_auth_discovery == Some(true), source.chap_auth_session == Some(true));
    if !discovery && !session {
        return Ok(Chap::default());
    }
    let reference = source.secret_ref.as_ref();
    let name = reference.and_then(|secret| secret.name.as_deref()).unwrap_or_default();
    let named = reference.and_then(|secret| secret.namespace.as_deref()).filter(|named| !named.is_empty());
    let namespace = named.or(pod.metadata.namespace.as_deref()).unwrap_or_default();
    if name.is_empty() || namespace.is_empty() {
        return Err(IscsiError::NoSecretName);
    }
    let found = request::get::<Secret>(&volumes.client, namespace, name).await;
    let found = found.map_err(|source| IscsiError::NoSecret {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        source: Box::new(source),
    })?;
    let entries = found.data.unwrap_or_default().into_iter();
    let secret = entries.map(|(key, value)| (key, String::from_utf8_lossy(&value.0).into_owned())).collect();
    Ok(Chap { discovery, session, secret })
}

/// Calls the tool step by step, until one is refused on which others depend.
async fn run(steps: &[Step]) -> Result<(), VolumeError> {
    for step in steps {
        let said = format::run(TOOL, &step.arguments).await?;
        if said.code.is_some_and(|code| code == 0 || step.fine.contains(&code)) {
            continue;
        }
        let Refused::Stop { what, undo } = &step.refused else { continue };
        if let Some(undo) = undo {
            // What it says is of no use any more.
            format::run(TOOL, undo).await?;
        }
        let (what, status) = (what.clone(), format::status(said.code));
        return Err(IscsiError::Refused { what, output: said.output, status }.into());
    }
    Ok(())
}

/// Takes back what a Pod has: its mounts, and of each disk that nobody else has the node's mount, the device and the
/// session.
///
/// # Errors
/// What is left; to be tried again.
pub(super) async fn tear_down(volumes: &Volumes, pod_dir: &Path) -> Result<(), VolumeError> {
    for (volume, disk) in read(pod_dir) {
        let turn = volumes.csi.turn(PLUGIN, &disk.iqn);
        let _turn = turn.lock().await;
        let others = others(&volumes.config.root_dir, pod_dir, &volume);
        let global = global(volumes, &disk)?;
        let released = release(&global, pod_dir, &disk, &others).await;
        let released = released.map_err(|error| IscsiError::NotDetached(Box::new(error)));
        released.map_err(VolumeError::step("UnmountDevice", &disk.vol_name))?;
        let mut notes = read(pod_dir);
        notes.remove(&volume);
        write_note(pod_dir, FILE, &notes)?;
        if !others.iter().any(|other| other.unique_name == disk.unique_name) {
            volumes.csi.set_in_use(volumes, &disk.unique_name, false).await?;
        }
    }
    Ok(())
}

/// Logs out of every target whose disks the Pods below a kubelet's folder had: for who removes it when they are gone and
/// nothing is mounted there.
///
/// # Errors
/// What is left, of the first one that is not logged out of; the others are.
pub async fn log_out(root_dir: &Path) -> std::io::Result<()> {
    let mut left = others(root_dir, Path::new(""), "");
    let mut outcome = Ok(());
    while let Some(disk) = left.pop() {
        if !left.iter().any(|other| other.is_same_disk(&disk)) {
            forget_devices(&disk).await;
        }
        outcome = outcome.and(run(&plan::log_out(&disk, &left)).await);
    }
    outcome.map_err(std::io::Error::other)
}

async fn release(global: &Path, pod_dir: &Path, disk: &Disk, others: &[Disk]) -> Result<(), VolumeError> {
    let path = pod_dir.join("volumes").join(FOLDER).join(&disk.vol_name);
    if path.exists() {
        sys::mount::detach(&path)?;
        std::fs::remove_dir(&path).map_err(at("remove", &path))?;
    }
    let root = Path::new("");
    let is_mounted_for = |other: &Disk| !other.is_device && other.global(root) == disk.global(root);
    if !disk.is_device && global.exists() && !others.iter().any(is_mounted_for) {
        if sys::mount::is_mounted(global)? {
            sys::mount::unmount(global)?;
        }
        std::fs::remove_dir(global).map_err(at("remove", global))?;
    }
    if !others.iter().any(|other| other.is_same_disk(disk)) {
        forget_devices(disk).await;
    }
    run(&plan::log_out(disk, others)).await
}

/// Has the kernel forget the disk. What is left of it goes with the session.
async fn forget_devices(disk: &Disk) {
    let names = SYSFS.disks(&disk.iqn, disk.lun);
    let mut bundles: Vec<String> = names.iter().filter_map(|name| SYSFS.multipath(name)).collect();
    bundles.dedup();
    for bundle in bundles {
        let flushed = format::run("multipath", &["-f".to_owned(), format!("/dev/{bundle}")]).await;
        let error = match flushed {
            Ok(said) if said.code == Some(0) => continue,
            Ok(said) => said.output,
            Err(error) => error.to_string(),
        };
        tracing::warn!(error, device = bundle, "the paths to a disk are still bundled");
    }
    for name in names {
        if let Err(error) = SYSFS.delete(&name) {
            tracing::warn!(%error, device = name, "the kernel does not forget a disk");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IQN: &str = "iqn.2001-04.com.example:a";

    fn disk(portal: &str, iqn: &str) -> Result<Disk, IscsiError> {
        let source = ISCSIPersistentVolumeSource {
            target_portal: portal.to_owned(),
            portals: Some(vec!["10.0.0.1".to_owned(), "[fd00::1]:9".to_owned()]),
            iqn: iqn.to_owned(),
            lun: 3,
            ..ISCSIPersistentVolumeSource::default()
        };
        Disk::new("pv", false, &source)
    }

    #[test]
    fn a_disk_is_where_its_first_portal_says() {
        let disk = disk("10.0.0.1", IQN).unwrap();
        assert_eq!(disk.portals, ["10.0.0.1:3260", "[fd00::1]:9"]);
        let global =
            "/root/plugins/kubernetes.io/iscsi/iface-default/10.0.0.1:3260-iqn.2001-04.com.example:a-lun-3";
        assert_eq!(disk.global(Path::new("/root")), Path::new(global));
    }

    #[test]
    fn what_would_lead_elsewhere_is_refused() {
        for (portal, iqn) in [("../x", IQN), ("10.0.0.1", "iqn.2001-04.com.example:../../x")] {
            assert!(matches!(disk(portal, iqn), Err(IscsiError::Slash(_))), "{portal} {iqn}");
        }
    }

    #[test]
    fn a_disk_is_told_from_others_by_its_path() {
        let disk = disk("10.0.0.1", IQN).unwrap();
        for (name, transport, expect) in [
            ("ip-10.0.0.1:3260-iscsi-iqn.2001-04.com.example:a-lun-3", "tcp", true),
            ("ip-10.0.0.1:3260-iscsi-iqn.2001-04.com.example:a-lun-3-part1", "tcp", false),
            ("ip-10.0.0.1:3260-iscsi-iqn.2001-04.com.example:a-lun-31", "tcp", false),
            ("pci-0000:04:00.0-ip-10.0.0.1:3260-iscsi-iqn.2001-04.com.example:a-lun-3", "tcp", false),
            ("pci-0000:04:00.0-ip-10.0.0.1:3260-iscsi-iqn.2001-04.com.example:a-lun-3", "bnx2i", true),
            ("ip-10.0.0.1:3260-iscsi-iqn.2001-04.com.example:a-lun-3", "bnx2i", false),
        ] {
            assert_eq!(disk.is_path(name, "10.0.0.1:3260", transport), expect, "{name} {transport}");
        }
    }

    #[test]
    fn notes_of_other_pods_and_of_other_volumes_count() {
        let dir = tempfile::tempdir().unwrap();
        let disk = disk("10.0.0.1", IQN).unwrap();
        let pods = ["a", "b"].map(|uid| dir.path().join("pods").join(uid));
        let both = Notes::from([("x".to_owned(), disk.clone()), ("y".to_owned(), disk.clone())]);
        write_note(&pods[0], FILE, &both).unwrap();
        write_note(&pods[1], FILE, &Notes::from([("x".to_owned(), disk)])).unwrap();
        assert_eq!(others(dir.path(), &pods[0], "x").len(), 2);
        assert_eq!(others(dir.path(), &pods[1], "x").len(), 2);
        assert_eq!(others(dir.path(), &pods[1], "z").len(), 3);
    }
}
