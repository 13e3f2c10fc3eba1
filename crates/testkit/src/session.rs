//! Scripted sessions: command lines and the output that they must have, as a user would see them.
//!
//! A session is text. `$ ` starts a command line for `sh`, `> ` continues it; what follows is the expected output,
//! standard output and standard error in one. `[..]` stands for anything within a line, a line `...` for any number
//! of lines; runs of blanks count as one. `? 1` as last line expects that exit code instead of 0, `? *` any. Lines
//! that start with `#` are for the reader. All steps run, so that one report names everything that failed.
//!
//! What takes a while is waited for with `eventually 'COMMAND'`: it prints what the command printed once it succeeds.
//! What failed attempts print is dropped, for how many there are depends on the machine.

mod script;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use crate::Cluster;
use script::{Exit, Step};

/// The shell function that every command line may use, see the module.
const EVENTUALLY: &str = r#"eventually() {
    local end output; end=$(($(date +%s) + 90))
    until output=$(eval "$1" 2>/dev/null); do
        [ "$(date +%s)" -lt $end ] || { echo "not within 90 s: $1"; eval "$1"; return 1; }
        sleep 0.05
    done
    [ -z "$output" ] || echo "$output"
}
"#;

/// The place where sessions run: a cluster, a namespace of it, and the client's version.
#[derive(Debug)]
pub struct Session<'a> {
    cluster: &'a Cluster,
    folder: PathBuf,
    programs: PathBuf,
}

impl<'a> Session<'a> {
    /// A session in the namespace `namespace`, which is made if need be, with that kubectl.
    ///
    /// # Errors
    /// If the client has not been fetched or the API server does not answer.
    pub fn new(cluster: &'a Cluster, kubectl: &str, namespace: &str) -> Result<Self> {
        let folder = cluster.scratch().join(format!("session-{namespace}-{kubectl}"));
        std::fs::create_dir_all(&folder)?;
        std::fs::copy(cluster.kubeconfig(), folder.join("kubeconfig")).context("copy the kubeconfig")?;
        let session = Self { cluster, folder, programs: crate::clients::folder(kubectl)? };
        // The API server may be on its way back.
        session.must("eventually 'kubectl get --raw /readyz'")?;
        if namespace != "default" {
            session.must(&format!(
                "kubectl get namespace {namespace} || kubectl create namespace {namespace}"
            ))?;
        }
        session.must(&format!("kubectl config set-context --current --namespace={namespace}"))?;
        Ok(session)
    }

    /// A session on the cluster's host, for which no cluster needs to run and no client is there.
    ///
    /// # Errors
    /// If its folder cannot be made.
    pub fn on_host(cluster: &'a Cluster) -> Result<Self> {
        let folder = cluster.scratch().join("session-host");
        std::fs::create_dir_all(&folder)?;
        Ok(Self { cluster, programs: folder.clone(), folder })
    }

    /// Runs every step of `script`; `name` is for the report.
    ///
    /// # Errors
    /// If any step printed something else or ended otherwise; the report has each such step.
    pub fn run(&self, name: &str, script: &str) -> Result<()> {
        let steps = script::parse(script).with_context(|| format!("read the session {name}"))?;
        let mut report = String::new();
        let mut failed = 0;
        for step in &steps {
            let started = std::time::Instant::now();
            let (exit, output) = self.shell(&step.command)?;
            eprintln!(
                "{name}:{} [{exit}] {:.1?} $ {}",
                step.line,
                started.elapsed(),
                first_line(&step.command)
            );
            if !step.holds(exit, &output) {
                failed += 1;
                report.push_str(&told(name, step, exit, &output));
            }
        }
        if failed > 0 {
            bail!("{failed} of {} steps of {name} failed:\n{report}", steps.len());
        }
        Ok(())
    }

    /// Runs a command line that must succeed; returns what it printed.
    ///
    /// # Errors
    /// If it fails; the message has its output.
    pub fn must(&self, command: &str) -> Result<String> {
        let (exit, output) = self.shell(command)?;
        if exit != 0 {
            bail!("`{command}` ended with {exit}:\n{output}");
        }
        Ok(output)
    }

    fn shell(&self, command: &str) -> Result<(i32, String)> {
        let path = std::env::join_paths(std::iter::once(self.programs.clone()).chain(system_paths()))?;
        // One file for both streams keeps their order.
        let both = self.folder.join("output");
        let file = std::fs::File::create(&both)?;
        let mut child = self.cluster.command("sh");
        child.args(["-c", &format!("{EVENTUALLY}{command}")]).current_dir(&self.folder).env("PATH", path);
        child.env("KUBECONFIG", self.folder.join("kubeconfig")).env("HOME", &self.folder);
        child.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let status = child.status().context("run nsenter")?;
        let output = String::from_utf8_lossy(&std::fs::read(&both)?).into_owned();
        Ok((status.code().unwrap_or(-1), output))
    }

    /// The session's working directory.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

fn system_paths() -> impl Iterator<Item = PathBuf> {
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        .into_iter()
        .map(PathBuf::from)
}

fn first_line(command: &str) -> &str {
    command.lines().next().unwrap_or_default()
}

fn told(name: &str, step: &Step, exit: i32, output: &str) -> String {
    let expected = step.expected.join("\n    ");
    let shown = output.trim_end().replace('\n', "\n    ");
    let wanted = match step.exit {
        Exit::Any => "any".to_owned(),
        Exit::Code(code) => code.to_string(),
    };
    format!(
        "\n{name}:{} $ {}\n  expected (exit {wanted}):\n    {expected}\n  got (exit {exit}):\n    {shown}\n",
        step.line, step.command
    )
}
