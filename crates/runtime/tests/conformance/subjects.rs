//! The runtimes: how each is started, and what is left of it.
#![allow(unreachable_pub)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use base::Tasks;
use cri::client::Client;
use cri::server::Services;
use runtime::images::import::Hints;
use runtime::{Config, Runtime};
use testkit::containerd::{Containerd, DEBIAN_PLUGINS, PTP};

use super::support::{Feature, Subject, archive};

type Starting<'a> = Pin<Box<dyn Future<Output = Running> + 'a>>;
pub type Start = for<'a> fn(&'a Path) -> Starting<'a>;

/// A test per runtime.
pub const ALL: &[(&str, Start)] = &[
    ("the_built_in_runtime_conforms", |folder| Box::pin(built_in(folder, "built-in", "", &[]))),
    ("the_built_in_runtime_with_runc_conforms", |folder| {
        Box::pin(built_in(folder, "runc", "runc", RUNC_LACKS))
    }),
    ("the_built_in_runtime_with_crun_conforms", |folder| {
        Box::pin(built_in(folder, "crun", "crun", CRUN_LACKS))
    }),
    ("the_built_in_runtime_with_youki_conforms", |folder| {
        Box::pin(built_in(folder, "youki", "youki", YOUKI_LACKS))
    }),
    ("the_built_in_runtime_conforms_over_its_socket", |folder| Box::pin(over_socket(folder))),
    ("containerd_conforms", |folder| Box::pin(containerd(folder))),
];

/// Debian's maps no mounts.
const RUNC_LACKS: &[Feature] = &[Feature::UserNamespaces, Feature::RealNull];
/// Debian's does not say what it can.
const CRUN_LACKS: &[Feature] =
    &[Feature::UserNamespaces, Feature::RealNull, Feature::RecursiveReadOnly, Feature::RuncsWords];
const YOUKI_LACKS: &[Feature] = &[
    Feature::UserNamespaces,
    Feature::RecursiveReadOnly,
    Feature::RuncsWords,
    Feature::SeccompOfExec,
    Feature::HostsDev,
];
/// crun does not run where both versions of cgroups have controllers, so it is shown the first alone.
const CRUN: &str = r#"#!/bin/sh
exec unshare --mount --propagation=unchanged sh -c '
    mount --make-rprivate /sys/fs/cgroup && umount /sys/fs/cgroup/unified 2>/dev/null
    exec crun "$@"' crun "$@"
"#;

/// A subject, and what keeps it alive.
pub struct Running {
    pub subject: Arc<Subject>,
    tasks: Tasks,
    built_in: Option<Runtime>,
    containerd: Option<Containerd>,
}

impl Running {
    /// Ends it and says what is left.
    pub async fn end(self) -> Vec<String> {
        if let Some(runtime) = &self.built_in {
            runtime.remove_everything().await.unwrap();
        }
        self.tasks.stop_and_wait().await;
        drop(self.containerd);
        let cgroups = sys::cgroup::Cgroups::detect().unwrap();
        let left = match self.built_in {
            Some(_) => cgroups.processes(&self.subject.cgroup),
            None => Vec::new(),
        };
        cgroups.kill(&self.subject.cgroup, super::support::DEADLINE).unwrap();
        // containerd leaves the cgroups of Pods to the kubelet.
        cgroups.remove(&self.subject.cgroup).unwrap();
        left.into_iter().map(|pid| format!("process {pid}")).collect()
    }
}

fn cgroup(folder: &Path) -> String {
    format!("/knarr-test-{}", folder.file_name().unwrap().to_string_lossy().replace('.', ""))
}

async fn open(folder: &Path, tasks: &Tasks) -> Runtime {
    let mut config = Config::new(folder.join("data"), cgroup(folder), tasks.clone());
    config.handlers = runtime::handlers::installed();
    let crun = folder.join("crun");
    std::fs::write(&crun, CRUN).unwrap();
    std::fs::set_permissions(&crun, std::fs::Permissions::from_mode(0o755)).unwrap();
    config.handlers.insert("crun".to_owned(), crun);
    config.handlers.insert("youki".to_owned(), testkit::clients::youki().unwrap());
    config.cdi_dirs.push(folder.join(super::cdi::FOLDER));
    config.registries = folder.join("registries.yaml");
    config.network = Some(Arc::new(super::network::network(folder)));
    let runtime = Runtime::open(config).await.unwrap();
    runtime.import_image(std::io::Cursor::new(archive()), Hints::default()).await.unwrap();
    runtime
}

fn subject<R>(folder: &Path, name: &'static str, runtime: Arc<R>) -> Subject
where
    R: cri::RuntimeService + cri::ImageService + 'static,
{
    Subject {
        name,
        images: runtime.clone(),
        runtime,
        handler: "",
        folder: folder.to_owned(),
        cgroup: cgroup(folder),
        lacks: &[],
        sandboxes: AtomicU32::new(0),
    }
}

async fn built_in(
    folder: &Path,
    name: &'static str,
    handler: &'static str,
    lacks: &'static [Feature],
) -> Running {
    let tasks = Tasks::new();
    let runtime = open(folder, &tasks).await;
    let shared = Arc::new(runtime.clone());
    let subject = Subject { handler, lacks, ..subject(folder, name, shared) };
    Running { subject: Arc::new(subject), tasks, built_in: Some(runtime), containerd: None }
}

pub async fn over_socket(folder: &Path) -> Running {
    let tasks = Tasks::new();
    let runtime = open(folder, &tasks).await;
    let shared = Arc::new(runtime.clone());
    let path = folder.join("run/cri.sock");
    let listener = cri::server::bind(&path).unwrap();
    let (clock, random) = (base::Clock::system(), base::Random::seeded(2));
    let streaming = kubelet::StreamingServer::start(shared.clone(), &tasks, clock, random).await.unwrap();
    let services = Services { runtime: shared.clone(), images: shared, streaming: Arc::new(streaming) };
    tasks.spawn("cri server", cri::server::serve(listener, services, tasks.clone()));
    let client = client(&format!("unix://{}", path.display()), &tasks).await;
    let subject = subject(folder, "socket", client);
    Running { subject: Arc::new(subject), tasks, built_in: Some(runtime), containerd: None }
}

async fn containerd(folder: &Path) -> Running {
    let tasks = Tasks::new();
    let containerd = Containerd::start_in(folder, Command::new("unshare"), DEBIAN_PLUGINS, PTP).unwrap();
    let image = folder.join("image.tar");
    std::fs::write(&image, archive()).unwrap();
    containerd.import(&image).unwrap();
    let client = client(&containerd.endpoint(), &tasks).await;
    let lacks = &[
        Feature::Events,
        Feature::UnprivilegedPorts,
        Feature::StopOfUnknown,
        Feature::RecursiveReadOnly,
        Feature::GroupsPolicy,
        Feature::UserNamespaces,
        Feature::RuntimeConfig,
        Feature::Metrics,
        Feature::HostPath,
        Feature::CapabilityNames,
        Feature::RealNull,
        Feature::PodResources,
        Feature::StopSignals,
        Feature::Cdi,
        Feature::DeepFolders,
        Feature::PrivateMounts,
        Feature::ImageFilters,
        Feature::ReadOnlyCgroupFolder,
    ];
    let subject = Subject { lacks, ..subject(folder, "containerd", client) };
    Running { subject: Arc::new(subject), tasks, built_in: None, containerd: Some(containerd) }
}

async fn client(endpoint: &str, tasks: &Tasks) -> Arc<Client> {
    let client = Client::new(endpoint, tasks.clone(), base::Clock::system()).unwrap();
    client.ready(&base::Random::seeded(1)).await.unwrap();
    Arc::new(client)
}
