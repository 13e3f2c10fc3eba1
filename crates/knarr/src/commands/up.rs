//! `knarr up`: starts `knarr server` in the background and returns when a Pod can run and DNS answers; where the network of Pods
//! is somebody else's, when that can be installed.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use cli::Progress;
use cli::args::{CommonArgs, ServerArgs};

use crate::commands::down;
use crate::components::{self, Settings};
use crate::layout::Layout;
use crate::preflight;
use crate::ready::Ready;
use crate::supervisor::{self, TOKEN_VARIABLE};

/// Starts the cluster; prints the kubeconfig's path.
pub(crate) fn run(args: &ServerArgs, common: &CommonArgs) -> Result<()> {
    let layout = Layout::new(&args.data_dir)?;
    cli::validate::server(args)?;
    preflight::checks::root()?;
    if let Some(pid) = running(&layout) {
        eprintln!(
            "a cluster runs in {} already (process {pid}); it goes on as it was started",
            layout.root().display()
        );
        return tell_how_to_use_it(&layout);
    }
    let (settings, lock) = preflight::take(args, &layout)?;
    // The server takes it, and looks again.
    drop(lock);
    let mut progress = Progress::new();
    progress.note(&format!(
        "knarr {} · Kubernetes {} · node {} {} · {}",
        env!("CARGO_PKG_VERSION"),
        machinery::version::GIT_VERSION.split('+').next().unwrap_or_default(),
        settings.node_name,
        settings.node_ip,
        layout.root().display()
    ));
    let child = start(args, common, &layout)?;
    let mut reached = InOrder::new(&settings.args);
    wait_until_ready(child, &layout, &settings.args, &mut |step| {
        for step in reached.by(step) {
            progress.reached(&described(step, &settings, reached.reached.contains(&Ready::Node)));
        }
    })?;
    progress.note(&format!("up in {}", cli::progress::duration(progress.elapsed())));
    tell_how_to_use_it(&layout)?;
    progress.note("  kubectl create deployment hello --image=knarr.local/hello    # works offline");
    progress.note("  knarr why · knarr status · knarr down · knarr reset");
    Ok(())
}

/// The process of a cluster that runs in this folder, and is not dying.
fn running(layout: &Layout) -> Option<i32> {
    let is_running = || down::running_pid(layout).ok().flatten();
    is_running()?;
    supervisor::wait_for_holder(layout).ok()?;
    is_running()
}

/// Steps in the order in which people think of them: one is told as soon as all before it are reached.
struct InOrder {
    waiting: Vec<Ready>,
    reached: Vec<Ready>,
}

impl InOrder {
    fn new(args: &ServerArgs) -> Self {
        Self { waiting: Ready::awaited(args), reached: Vec::new() }
    }

    /// What can be told now that `step` is reached.
    fn by(&mut self, step: Ready) -> Vec<Ready> {
        self.reached.push(step);
        let count = self.waiting.iter().take_while(|step| self.reached.contains(step)).count();
        self.waiting.drain(..count).collect()
    }
}

/// With where it is, for people.
fn described(step: Ready, settings: &Settings, has_network: bool) -> String {
    let args = &settings.args;
    let what = match step {
        Ready::Registered if has_network => return described(Ready::Node, settings, has_network),
        Ready::Registered => format!("{} waits for a network: {}", settings.node_name, how_to_install(args)),
        Ready::ApiServer => format!("https://{}", SocketAddr::new(settings.node_ip, args.https_listen_port)),
        Ready::Node => format!("{} is Ready", settings.node_name),
        Ready::Nodes => {
            let last = args.nodes.unwrap_or(1);
            let how = if has_network { "are Ready" } else { "wait for it, too" };
            format!("{}-2 to -{last} {how}", settings.node_name)
        }
        Ready::Proxy => "are programmed".to_owned(),
        Ready::Dns => format!("answers at {}", texts(&args.dns_addresses())),
    };
    let name = match step {
        Ready::ApiServer => "API server",
        Ready::Registered | Ready::Node => "Node",
        Ready::Nodes => "Nodes",
        Ready::Proxy => "Services",
        Ready::Dns => "DNS",
    };
    format!("{name:<12} {what}")
}

/// What the Node lacks.
fn how_to_install(args: &ServerArgs) -> String {
    match &args.container_runtime.cni_conf_dir {
        Some(folder) => format!("install one that writes its configuration into {}", folder.display()),
        None => "install one for its container runtime".to_owned(),
    }
}

fn texts(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

/// What was added to kubeconfigs, for people; and for a shell the one line that makes kubectl find the cluster.
fn tell_how_to_use_it(layout: &Layout) -> Result<()> {
    let files = components::written_kubeconfigs(layout);
    for file in files.iter().filter(|file| !file.is_own) {
        let how =
            if file.is_current { String::new() } else { format!(" (`kubectl --context {}`)", file.context) };
        eprintln!("context {} is in {}{how}", file.context, file.path.display());
    }
    let own = files.into_iter().find(|file| file.is_own && called_by_sudo()).map(|file| file.path);
    let path = own.unwrap_or_else(|| layout.admin_kubeconfig());
    writeln!(std::io::stdout(), "export KUBECONFIG={}", quoted(&path.display().to_string()))?;
    Ok(())
}

fn called_by_sudo() -> bool {
    std::env::var("SUDO_UID").is_ok_and(|uid| uid != "0")
}

/// As a shell takes it.
fn quoted(path: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if path.chars().all(is_plain) { path.to_owned() } else { format!("'{}'", path.replace('\'', "'\\''")) }
}

/// Starts `knarr server` in a session of its own; its log goes to the cluster's folder.
pub(crate) fn start(args: &ServerArgs, common: &CommonArgs, layout: &Layout) -> Result<Child> {
    let file = File::options().create(true).append(true).open(layout.log()).context("open the log")?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("knarr").arg("server").args(args.flags()?).args(common.flags());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file);
    if let Some(token) = &args.token {
        // Not on the command line, which everybody can read.
        command.env(TOKEN_VARIABLE, &token.0);
    }
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
    args: &ServerArgs,
    on_step: &mut dyn FnMut(Ready),
) -> Result<Child> {
    let stdout = child.stdout.take().context("the server has no stdout")?;
    let mut missing = Ready::awaited(args);
    let mut why = None;
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        // On a full disk the log has no room for it.
        why = line.strip_prefix(supervisor::HOPELESS).map(ToOwned::to_owned).or(why);
        let Some(ready) = Ready::parse(&line) else { continue };
        on_step(ready);
        missing.retain(|part| *part != ready);
        if missing.is_empty() {
            return Ok(child);
        }
    }
    let status = child.wait()?;
    if let Some(why) = why {
        bail!("the cluster did not start: {why}");
    }
    bail!("the server ended with {status} before the cluster was ready: {}", last_log_line(layout.log()));
}

fn last_log_line(log: PathBuf) -> String {
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no log").to_owned();
    format!("{line} (see {})", log.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_told_in_one_order_whatever_comes_first() {
        let all = Ready::ALL.to_vec();
        let mut steps = InOrder { waiting: all.clone(), reached: Vec::new() };
        let told: Vec<Ready> = all.iter().rev().flat_map(|step| steps.by(*step)).collect();
        assert_eq!(told, all);
        let mut steps = InOrder { waiting: all.clone(), reached: Vec::new() };
        assert_eq!(steps.by(Ready::ALL[0]), [Ready::ALL[0]]);
        assert_eq!(steps.by(Ready::ALL[2]), []);
    }

    #[test]
    fn what_is_printed_can_be_evaluated() {
        assert_eq!(quoted("/var/lib/knarr/admin.kubeconfig"), "/var/lib/knarr/admin.kubeconfig");
        assert_eq!(quoted("/a b/$(c)'d"), "'/a b/$(c)'\\''d'");
    }
}
