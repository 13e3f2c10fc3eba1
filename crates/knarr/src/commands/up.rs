//! `knarr up`: starts `knarr server` in the background and returns when a Pod can run and DNS answers.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use cli::Progress;
use cli::args::{CommonArgs, ServerArgs};

use crate::components::{self, Ready};
use crate::host;
use crate::layout::Layout;

/// As `--token` has it.
pub(crate) const TOKEN_VARIABLE: &str = "KNARR_TOKEN";

/// Starts the cluster; prints the kubeconfig's path.
pub(crate) fn run(args: &ServerArgs, common: &CommonArgs) -> Result<()> {
    let layout = Layout::new(&args.data_dir)?;
    let (_, lock) = host::take(args, &layout)?;
    // The server takes it, and looks again.
    drop(lock);
    let mut progress = Progress::new();
    let child = start(args, common, &layout)?;
    wait_until_ready(child, &layout, args, &mut |step| progress.done(step))?;
    progress.note(&format!("cluster is up after {}", cli::progress::duration(progress.elapsed())));
    tell_how_to_use_it(&layout)
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
    on_step: &mut dyn FnMut(&str),
) -> Result<Child> {
    let stdout = child.stdout.take().context("the server has no stdout")?;
    let mut missing = Ready::awaited(args);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_can_be_evaluated() {
        assert_eq!(quoted("/var/lib/knarr/admin.kubeconfig"), "/var/lib/knarr/admin.kubeconfig");
        assert_eq!(quoted("/a b/$(c)'d"), "'/a b/$(c)'\\''d'");
    }
}
