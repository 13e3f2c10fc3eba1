//! `knarr up`: starts `knarr server` in the background and returns when a Pod can run and DNS answers.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use cli::Progress;
use cli::args::ServerArgs;

use crate::components::Ready;
use crate::host;
use crate::layout::Layout;

/// Starts the cluster; prints the kubeconfig's path.
pub(crate) fn run(args: &ServerArgs) -> Result<()> {
    host::check()?;
    let layout = Layout::new(&args.data_dir)?;
    std::fs::create_dir_all(layout.root()).with_context(|| format!("create {}", layout.root().display()))?;
    drop(crate::supervisor::lock(&layout)?);
    let mut progress = Progress::new();
    let child = start(args, &layout)?;
    wait_until_ready(child, &layout, !args.disable_agent, &mut |step| progress.done(step))?;
    progress.note(&format!("cluster is up after {}", cli::progress::duration(progress.elapsed())));
    writeln!(std::io::stdout(), "export KUBECONFIG={}", layout.admin_kubeconfig().display())?;
    Ok(())
}

/// Starts `knarr server` in a session of its own; its log goes to the cluster's folder.
pub(crate) fn start(args: &ServerArgs, layout: &Layout) -> Result<Child> {
    let log = File::options().create(true).append(true).open(layout.log()).context("open the log")?;
    let mut command = Command::new("/proc/self/exe");
    command.arg("server").args(flags(args)).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    let setup = sys::process::ChildSetup { new_session: true, ..sys::process::ChildSetup::default() };
    sys::process::set_up_child(&mut command, setup);
    command.spawn().context("start knarr server")
}

/// Reads the server's lines until all that is needed is ready; tells each one to `on_step`.
///
/// # Errors
/// If the server ends before that; the message has the last line of its log.
pub(crate) fn wait_until_ready(
    mut child: Child,
    layout: &Layout,
    with_node: bool,
    on_step: &mut dyn FnMut(&str),
) -> Result<Child> {
    let stdout = child.stdout.take().context("the server has no stdout")?;
    let mut missing: Vec<Ready> =
        Ready::ALL.into_iter().filter(|part| with_node || !part.is_of_node()).collect();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        let Some(ready) = Ready::parse(&line) else { continue };
        on_step(ready.describe());
        missing.retain(|part| *part != ready);
        if missing.is_empty() {
            return Ok(child);
        }
    }
    let status = child.wait()?;
    bail!("the server ended with {status} before the cluster was ready: {}", last_log_line(layout.log()));
}

fn last_log_line(log: PathBuf) -> String {
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no log").to_owned();
    format!("{line} (see {})", log.display())
}

/// The command line that says the same as `args`.
fn flags(args: &ServerArgs) -> Vec<std::ffi::OsString> {
    let mut flags: Vec<std::ffi::OsString> = Vec::new();
    let mut flag = |name: &str, value: &dyn AsRef<std::ffi::OsStr>| {
        flags.push(name.into());
        flags.push(value.as_ref().to_owned());
    };
    flag("--data-dir", &args.data_dir);
    flag("--write-kubeconfig-mode", &args.write_kubeconfig_mode);
    flag("--bind-address", &args.bind_address.to_string());
    flag("--https-listen-port", &args.https_listen_port.to_string());
    flag("--cluster-cidr", &args.cluster_cidr);
    flag("--service-cidr", &args.service_cidr);
    flag("--cluster-dns", &args.cluster_dns.to_string());
    flag("--cluster-domain", &args.cluster_domain);
    if let Some(path) = &args.write_kubeconfig {
        flag("--write-kubeconfig", path);
    }
    if let Some(name) = &args.node_name {
        flag("--node-name", name);
    }
    if let Some(ip) = &args.node_ip {
        flag("--node-ip", &ip.to_string());
    }
    if args.disable_agent {
        flags.push("--disable-agent".into());
    }
    flags.extend(args.api_server.flags());
    flags
}
