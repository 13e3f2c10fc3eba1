//! `knarr agent`: this host as a Node of a cluster whose servers are elsewhere.

use anyhow::Result;
use clap::Parser;
use cli::args::{AgentArgs, CommonArgs, Part, ProxyMode, ServerArgs};
use cli::{Cli, Command};

use crate::async_runtime::AsyncRuntime;
use crate::components::{ClusterConfig, JoinToken, Known, Newcomer, Settings};
use crate::layout::Layout;
use crate::preflight;
use crate::ready::Ready;
use crate::supervisor;

/// Joins, then runs until it is told to stop.
pub(crate) fn run(args: &AgentArgs, common: &CommonArgs) -> Result<()> {
    let layout = Layout::new(&args.data_dir)?;
    let token = args.token.as_ref().map(|token| JoinToken::parse(&token.0)).transpose()?;
    let (settings, lock) = preflight::take_for_agent(as_server(args, None)?, &layout)?;
    let runtime = AsyncRuntime::on_this_thread()?;
    let node_ips = settings.node_ips();
    let newcomer = Newcomer {
        server: &args.server,
        token: token.as_ref(),
        node_name: &settings.node_name,
        node_ips: &node_ips,
        args: &settings.args,
    };
    let config = runtime.block_on(newcomer.join(&layout))?;
    let server_args = as_server(args, Some(&config))?;
    cli::validate::server(&server_args)?;
    preflight::checks::families(&server_args)?;
    let settings = Settings::resolve(server_args, &layout, Known::Cluster)?;
    let settings = Settings { joined: Some(args.server.clone()), ..settings };
    settings.save(&layout)?;
    crate::components::seed_servers(&args.server, &layout)?;
    let awaited =
        Ready::awaited(&settings.args).into_iter().filter(|ready| *ready != Ready::ApiServer).collect();
    let plan = supervisor::Plan {
        parts: supervisor::node_parts(&settings.args, &layout),
        layout: layout.clone(),
        awaited,
        common_flags: common.flags(),
    };
    let ended = runtime.block_on(supervisor::run(plan));
    drop(lock);
    ended
}

/// The flags of a server that runs the Node's parts only, in a cluster such as `config` says.
fn as_server(args: &AgentArgs, config: Option<&ClusterConfig>) -> Result<ServerArgs> {
    let Command::Server(server) = Cli::try_parse_from(["knarr", "server"])?.command else {
        anyhow::bail!("`knarr server` is another command");
    };
    let mut server = ServerArgs {
        config: None,
        data_dir: args.data_dir.clone(),
        node_name: args.node_name.clone(),
        node_ip: args.node_ip.clone(),
        container_runtime: args.container_runtime.clone(),
        kubelet_arg: args.kubelet_arg.clone(),
        ingress: args.ingress.clone(),
        registration: args.registration.clone(),
        node_ports: args.node_ports.clone(),
        proxy_mode: args.proxy_mode.clone(),
        token: None,
        disable: vec![Part::ControllerManager, Part::Scheduler],
        ..server
    };
    if server.proxy_mode.proxy_mode == ProxyMode::Ipvs {
        tracing::warn!("network policies are not enforced on this node: {}", cli::validate::WITHOUT_POLICIES);
        server.disable.push(Part::NetworkPolicy);
    }
    if let Some(config) = config {
        server.cluster_cidr = config.cluster_cidr;
        server.service_cidr = config.service_cidr;
        server.cluster_dns.clone_from(&config.cluster_dns);
        server.cluster_domain.clone_from(&config.cluster_domain);
        server.network.clone_from(&config.network);
        server.join_cloud(config.cloud);
        if !config.ingress {
            server.disable.push(Part::Ingress);
        }
    }
    Ok(server)
}
