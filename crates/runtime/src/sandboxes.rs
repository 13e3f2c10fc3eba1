//! Pod sandboxes: run, stop, remove, status.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use cri::{CriError, CriResult, v1};
use prost::Message;
use v1::NamespaceMode;

use crate::client::{Answer, Connected, ShimClient, ShimError};
use crate::files;
use crate::network::SandboxNetwork;
use crate::shim::layout::{self, PodPlan};
use crate::shim::protocol::Call;
use crate::state::{Inner, Sandbox, SandboxRecord, blocking, internal, netns_prefix};

/// Size of a Pod's `/dev/shm`.
const SHM_BYTES: u64 = 64 << 20;

/// So much of a sandbox's id is in the name of its network namespace.
const NETNS_NAME_DIGITS: usize = 32;

/// In a network of its own any user may listen on low ports and ping. Source: containerd's `enable_unprivileged_ports`
/// and `enable_unprivileged_icmp`, on by default since 2.0.
const UNPRIVILEGED_SYSCTLS: [(&str, &str); 2] =
    [("net.ipv4.ip_unprivileged_port_start", "0"), ("net.ipv4.ping_group_range", "0 2147483647")];

impl Inner {
    pub(crate) async fn run_pod_sandbox(
        self: &Arc<Self>,
        request: v1::RunPodSandboxRequest,
    ) -> CriResult<String> {
        let config = request.config.ok_or_else(|| CriError::InvalidArgument("config must be set".into()))?;
        let Some(metadata) = &config.metadata else {
            return Err(CriError::InvalidArgument("config.metadata must be set".into()));
        };
        self.handlers.binary(&request.runtime_handler).map_err(internal)?;
        let id = self.new_id();
        let _reservation = self.reserve_sandbox(&id, metadata)?;
        let mut sandbox = Sandbox {
            id: id.clone(),
            config,
            record: SandboxRecord {
                created_at: self.now(),
                handler: request.runtime_handler,
                boot_id: self.boot_id.clone(),
                ..SandboxRecord::default()
            },
            shim: None,
            is_disconnected: false,
        };
        sandbox.mapping()?;
        if self.config.network.is_some() && sandbox.namespaces().network() != NamespaceMode::Node {
            let end = id.get(..NETNS_NAME_DIGITS).unwrap_or(&id);
            let name = netns_prefix(&self.config.cgroup_root) + end;
            sandbox.record.netns_name = Some(name);
        }
        let made = self.make(sandbox.clone()).await;
        match made {
            Ok((sandbox, client, connected)) => {
                self.tables.lock().sandboxes.insert(id.clone(), sandbox);
                // Only now: should the shim have died meanwhile, the sandbox is known and gets another one.
                client.publish(connected);
                self.emit(&id, &id, v1::ContainerEventType::ContainerStartedEvent);
                Ok(id)
            }
            Err(error) => {
                if let Err(error) = self.take_down(&sandbox).await {
                    tracing::warn!(sandbox = %id, %error, "cannot take back a failed sandbox");
                }
                Err(error)
            }
        }
    }

    /// Namespace and shim first; the network is connected while the shim starts.
    async fn make(self: &Arc<Self>, sandbox: Sandbox) -> CriResult<(Sandbox, ShimClient, Connected)> {
        let this = Arc::clone(self);
        let (mut sandbox, first) = blocking(move || {
            let mut sandbox = sandbox;
            this.prepare(&mut sandbox).map_err(internal)?;
            let first = this.start_shim(&sandbox.id).map_err(internal)?;
            Ok((sandbox, first))
        })
        .await?;
        let client = ShimClient::unconnected();
        let shim = self.speak(&client, &sandbox.id, first).map_err(internal)?;
        let connected = self.connect(&sandbox).await;
        let (shim, alive) = self.first_answer(&client, &sandbox.id, shim).await?;
        let alive = alive.map_err(|error| self.shim_failure(&sandbox.id, &error));
        let made = connected.and_then(|ips| alive.map(|_| ips)).and_then(|ips| {
            sandbox.record.ips = ips;
            sandbox.record.is_made = true;
            self.save(&sandbox).map_err(internal)
        });
        match made {
            Ok(()) => {
                sandbox.shim = Some(client.clone());
                Ok((sandbox, client, shim))
            }
            Err(error) => {
                gone_is_fine(shim.ask(Call::Shutdown, Vec::new()).await)?;
                Err(error)
            }
        }
    }

    /// Directory, files, namespace.
    fn prepare(&self, sandbox: &mut Sandbox) -> io::Result<()> {
        let dir = self.sandbox_dir(&sandbox.id);
        let mapping = sandbox.mapping().map_err(io::Error::other)?;
        std::fs::create_dir_all(dir.join("containers"))?;
        std::fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
        if let Some(mapping) = mapping {
            for folder in [&dir, &dir.join("containers")] {
                crate::userns::open_to(folder, mapping)?;
            }
        }
        std::fs::create_dir(dir.join(layout::LIBCONTAINER))?;
        layout::write_whole(&dir.join("config.pb"), &sandbox.config.encode_to_vec())?;
        let own_network = sandbox.namespaces().network() != NamespaceMode::Node;
        sandbox.record.netns = own_network.then(|| dir.join("netns"));
        self.save(sandbox)?;
        match (&sandbox.record.netns, mapping) {
            (_, Some(mapping)) => self.make_user_namespace(&dir, mapping)?,
            (Some(netns), None) => drop(sys::netns::NetNs::create(netns).map_err(io::Error::other)?),
            (None, None) => {}
        }
        if let (Some(netns), Some(name)) = (&sandbox.record.netns, &sandbox.record.netns_name)
            && let Err(error) = self.netns_names.show(netns, name)
        {
            tracing::warn!(sandbox = %sandbox.id, %error, "plugins are told where the network namespace is kept");
            sandbox.record.netns_name = None;
        }
        let hostname = self.hostname(sandbox);
        let host = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
        std::fs::write(
            dir.join("resolv.conf"),
            files::resolv_conf(sandbox.config.dns_config.as_ref(), &host),
        )?;
        std::fs::write(dir.join("hostname"), format!("{hostname}\n"))?;
        std::fs::copy("/etc/hosts", dir.join("hosts")).or_else(|_| {
            std::fs::write(dir.join("hosts"), "127.0.0.1 localhost\n::1 localhost\n").map(|()| 0)
        })?;
        let own_ipc = sandbox.namespaces().ipc() != NamespaceMode::Node;
        if own_ipc {
            std::fs::create_dir(dir.join("shm"))?;
            sys::mount::tmpfs(&dir.join("shm"), Some(SHM_BYTES), 0o1777).map_err(io::Error::other)?;
        }
        let asked = sandbox.config.linux.as_ref().map(|linux| linux.sysctls.clone()).unwrap_or_default();
        let own = UNPRIVILEGED_SYSCTLS.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let own = own.filter(|_| own_network && mapping.is_none());
        let plan = PodPlan {
            netns: sandbox.record.netns.clone(),
            hostname: own_network.then_some(hostname),
            own_ipc,
            has_userns: mapping.is_some(),
            shared_pid: sandbox.namespaces().pid() == NamespaceMode::Pod,
            oci_runtime: self.handlers.binary(&sandbox.record.handler).map_err(io::Error::other)?,
            shim_cgroup: format!("{}/shims", self.config.cgroup_root),
            sysctls: own.chain(asked).collect(),
        };
        layout::write_json(&dir.join(layout::POD_PLAN), &plan)
    }

    /// The holder is the pause process's program: it waits for a word that never comes, and ends with us.
    fn make_user_namespace(&self, dir: &Path, mapping: sys::userns::Mapping) -> io::Result<()> {
        let (program, arguments) = self
            .config
            .shim_command
            .split_first()
            .ok_or_else(|| io::Error::other("no shim command is configured"))?;
        let mut holder = std::process::Command::new(program);
        holder.args(arguments).arg("pause").env_clear();
        holder.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        sys::userns::create(dir, mapping, holder).map_err(io::Error::other)
    }

    /// The Pod's host name: what is asked for, or the host's.
    pub(crate) fn hostname(&self, sandbox: &Sandbox) -> String {
        if !sandbox.config.hostname.is_empty() {
            return sandbox.config.hostname.clone();
        }
        nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Has a shim made and returns its first connection. For a thread that may block.
    pub(crate) fn start_shim(&self, sandbox: &str) -> io::Result<OwnedFd> {
        let dir = self.sandbox_dir(sandbox);
        let log = std::fs::File::options().append(true).create(true).open(dir.join(layout::SHIM_LOG))?;
        let listener = sys::descriptors::listen_at(&dir.join(layout::SOCKET)).map_err(io::Error::other)?;
        self.zygote.shim(&self.config, &dir, listener, log.into())
    }

    pub(crate) fn shim_client(&self, id: &str, dir: &Path) -> io::Result<ShimClient> {
        ShimClient::connect(&dir.join(layout::SOCKET), id.to_owned(), self.weak.clone(), &self.config.tasks)
    }

    /// Why there is no shim: what it said, also what it said last in its log.
    pub(crate) fn shim_failure(&self, id: &str, error: &ShimError) -> CriError {
        if let ShimError::Failed(why) = error {
            return CriError::Internal(why.clone());
        }
        let log = std::fs::read_to_string(self.sandbox_dir(id).join(layout::SHIM_LOG)).unwrap_or_default();
        match log.trim().lines().last() {
            Some(line) => CriError::Internal(line.to_owned()),
            None => CriError::Internal(error.to_string()),
        }
    }

    pub(crate) fn network_of(&self, sandbox: &Sandbox) -> Option<SandboxNetwork> {
        let metadata = sandbox.metadata();
        let netns = self.shown_netns(sandbox);
        (sandbox.namespaces().network() != NamespaceMode::Node).then(|| SandboxNetwork {
            id: sandbox.id.clone(),
            netns,
            metadata,
            port_mappings: sandbox.config.port_mappings.clone(),
            dns: sandbox.config.dns_config.clone(),
            cgroup_parent: self.cgroup_parent(sandbox),
            labels: sandbox.config.labels.clone(),
            annotations: sandbox.config.annotations.clone(),
        })
    }

    async fn connect(&self, sandbox: &Sandbox) -> CriResult<Vec<String>> {
        let (Some(network), Some(attachment)) = (&self.config.network, self.network_of(sandbox)) else {
            return Ok(Vec::new());
        };
        let addresses = network.add(&attachment).await.map_err(|error| {
            let error = base::error_chain(&*error);
            CriError::Internal(format!("failed to setup network for sandbox {:?}: {error}", sandbox.id))
        })?;
        Ok(addresses.iter().map(ToString::to_string).collect())
    }

    pub(crate) fn save(&self, sandbox: &Sandbox) -> io::Result<()> {
        layout::write_json(&self.sandbox_dir(&sandbox.id).join("sandbox.json"), &sandbox.record)
    }

    /// Stops every container and disconnects the network. May be repeated; no error if there is no such sandbox.
    pub(crate) async fn stop_pod_sandbox(self: &Arc<Self>, id: &str) -> CriResult<()> {
        let Ok(sandbox) = self.sandbox(id) else { return Ok(()) };
        if sandbox.record.is_stopped {
            return self.finish_stopping(&sandbox).await;
        }
        for container in self.containers_of(&sandbox.id) {
            self.stop_container(&container.id, 0).await?;
        }
        let mut stopped = sandbox.clone();
        stopped.record.is_stopped = true;
        stopped.shim = None;
        self.save(&stopped).map_err(internal)?;
        // Before the shim ends, so that its end surprises nobody.
        self.tables.lock().sandboxes.insert(stopped.id.clone(), stopped);
        if let Some(shim) = &sandbox.shim {
            end_shim(shim).await?;
        }
        self.take_down(&sandbox).await?;
        self.emit(&sandbox.id, &sandbox.id, v1::ContainerEventType::ContainerStoppedEvent);
        Ok(())
    }

    /// Network, namespace and mounts; the directory stays. May be repeated.
    pub(crate) async fn take_down(self: &Arc<Self>, sandbox: &Sandbox) -> CriResult<()> {
        if let (Some(network), Some(attachment)) = (&self.config.network, self.network_of(sandbox)) {
            network.remove(&attachment).await.map_err(|error| {
                let error = base::error_chain(&*error);
                CriError::Internal(format!("failed to destroy network for sandbox {:?}: {error}", sandbox.id))
            })?;
        }
        let dir = self.sandbox_dir(&sandbox.id);
        let is_known = self.tables.lock().sandboxes.contains_key(&sandbox.id);
        let is_of_this_boot = sandbox.record.boot_id == self.boot_id;
        let (this, name) = (Arc::clone(self), sandbox.record.netns_name.clone());
        blocking(move || {
            // A shim that was killed has not ended it; a reboot has.
            if is_of_this_boot {
                crate::shim::end_pause(&dir).map_err(internal)?;
            }
            let unmount = || {
                // First: whoever finds the other one gone takes it that all is done.
                name.map_or(Ok(()), |name| this.netns_names.hide(&name))?;
                sys::userns::delete(&dir)?;
                sys::netns::delete(&dir.join(layout::PID_NAMESPACE))?;
                sys::mount::detach(&dir.join("shm"))
            };
            unmount().map_err(internal)?;
            if !is_known && dir.exists() {
                sys::tree::remove(&dir).map_err(internal)?;
            }
            Ok(())
        })
        .await
    }

    /// Does what a stop did not come to after it wrote down that the sandbox is stopped: it failed, or this is another
    /// runtime's. Nothing if all is done.
    pub(crate) async fn finish_stopping(self: &Arc<Self>, sandbox: &Sandbox) -> CriResult<()> {
        let dir = self.sandbox_dir(&sandbox.id);
        let shim = self.shim_client(&sandbox.id, &dir).ok();
        let is_mounted = sys::mount::is_mounted(&dir.join("shm")).map_err(internal)?;
        if shim.is_none() && !is_mounted && !dir.join("netns").exists() {
            return Ok(());
        }
        if let Some(shim) = &shim {
            end_shim(shim).await?;
        }
        self.take_down(sandbox).await
    }

    /// Stops the sandbox if need be and forgets it with its containers.
    pub(crate) async fn remove_pod_sandbox(self: &Arc<Self>, id: &str) -> CriResult<()> {
        let Ok(sandbox) = self.sandbox(id) else { return Ok(()) };
        self.stop_pod_sandbox(&sandbox.id).await?;
        for container in self.containers_of(&sandbox.id) {
            self.remove_container(&container.id).await?;
        }
        let dir = self.sandbox_dir(&sandbox.id);
        let (this, parent) = (Arc::clone(self), self.cgroup_parent(&sandbox));
        blocking(move || {
            this.cgroups.remove_if_empty(&parent);
            sys::tree::remove(&dir).map_err(internal)
        })
        .await?;
        let event = self.event(&sandbox.id, &sandbox.id, v1::ContainerEventType::ContainerDeletedEvent);
        self.tables.lock().sandboxes.remove(&sandbox.id);
        self.publish(event);
        Ok(())
    }

    pub(crate) fn cgroup_parent(&self, sandbox: &Sandbox) -> String {
        let parent =
            sandbox.config.linux.as_ref().map(|linux| linux.cgroup_parent.as_str()).unwrap_or_default();
        if parent.is_empty() { self.config.cgroup_root.clone() } else { parent.to_owned() }
    }

    pub(crate) fn pod_sandbox_status(&self, sandbox: &Sandbox) -> v1::PodSandboxStatus {
        let (first, rest) = sandbox.record.ips.split_first().map_or((None, &[][..]), |(a, b)| (Some(a), b));
        let additional_ips = rest.iter().map(|ip| v1::PodIp { ip: ip.clone() }).collect();
        v1::PodSandboxStatus {
            id: sandbox.id.clone(),
            metadata: sandbox.config.metadata.clone(),
            state: sandbox_state(sandbox).into(),
            created_at: sandbox.record.created_at,
            network: Some(v1::PodSandboxNetworkStatus {
                ip: first.cloned().unwrap_or_default(),
                additional_ips,
            }),
            linux: Some(v1::LinuxPodSandboxStatus {
                namespaces: Some(v1::Namespace { options: Some(sandbox.namespaces()) }),
            }),
            labels: sandbox.config.labels.clone(),
            annotations: sandbox.config.annotations.clone(),
            runtime_handler: sandbox.record.handler.clone(),
        }
    }
}

/// Has the shim kill what it has and end. No error if it is gone.
pub(crate) async fn end_shim(shim: &ShimClient) -> CriResult<()> {
    gone_is_fine(shim.ask(Call::Shutdown, Vec::new()).await)
}

fn gone_is_fine(answer: Answer) -> CriResult<()> {
    match answer {
        Ok(_) | Err(ShimError::Gone | ShimError::Failed(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn sandbox_state(sandbox: &Sandbox) -> v1::PodSandboxState {
    if sandbox.shim.is_some() && !sandbox.is_disconnected {
        v1::PodSandboxState::SandboxReady
    } else {
        v1::PodSandboxState::SandboxNotready
    }
}
