//! Plugins that are binaries: environment and configuration in, result or error out. Source: CNI specification 4.
//!
//! A plugin that does not end is ended, with everything that it has started: nobody waits for ever.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::attachment::{Attachment, BuiltinConfig};
use crate::files::{Stamp, stamp};
use crate::plugins::Attached;
use crate::types::{CniError, CniResult, ErrorBody, NetworkConfigList, VERSION, is_at_least};
use crate::version_info;

/// How long the kubelet waits for a sandbox to be made, and for everything else. Source: `runtimeRequestTimeout`.
const ADD_LIMIT: Duration = Duration::from_secs(240);
const LIMIT: Duration = Duration::from_secs(120);
/// Everybody waits for it, and there is nothing to do.
const VERSION_LIMIT: Duration = Duration::from_secs(30);
/// A binary that is still being written is tried again, for 5 seconds, as libcni does.
const BUSY_PAUSE: Duration = Duration::from_millis(200);
const BUSY_TRIES: u32 = 25;

/// A plugin binary with its configuration.
#[derive(Debug)]
pub(crate) struct ExecPlugin {
    kind: String,
    network: String,
    binary: PathBuf,
    /// What the binary was like when it was found.
    found: Stamp,
    /// `CNI_PATH`.
    path: String,
    /// Of the specification that the configuration is written in.
    version: String,
    /// Its configuration, with the network's name and version.
    conf: Value,
}

impl ExecPlugin {
    pub(crate) fn find(
        conflist: &NetworkConfigList,
        conf: &Value,
        kind: &str,
        config: &BuiltinConfig,
    ) -> Option<Self> {
        let binary = config.bin_dirs.iter().map(|dir| dir.join(kind)).find(|path| path.is_file())?;
        let (mut conf, found) = (conf.clone(), stamp(&binary));
        if let Some(fields) = conf.as_object_mut() {
            fields.insert("name".into(), json!(conflist.name));
        }
        // Plugins that delegate find there what is built in, too.
        let dirs = config.bin_dirs.iter().chain(&config.own_bin_dir);
        let path = dirs.filter_map(|dir| dir.to_str()).collect::<Vec<_>>().join(":");
        let (kind, network) = (kind.to_owned(), conflist.name.clone());
        let mut plugin = Self { kind, network, binary, found, path, version: String::new(), conf };
        plugin.speak(&conflist.cni_version);
        Some(plugin)
    }

    /// Has it called in this version of the specification.
    pub(crate) fn speak(&mut self, version: &str) {
        version.clone_into(&mut self.version);
        if let Some(fields) = self.conf.as_object_mut() {
            fields.insert("cniVersion".into(), json!(version));
        }
    }

    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }

    pub(crate) fn binary(&self) -> (&Path, Stamp) {
        (&self.binary, self.found)
    }

    /// Whether its binary is still the same.
    pub(crate) fn is_there(&self) -> bool {
        self.found.is_some() && stamp(&self.binary) == self.found
    }

    /// What it speaks, as it says itself. Before VERSION was specified, there was 0.1.0.
    pub(crate) fn versions(&self) -> Result<Vec<String>, CniError> {
        // Old plugins want all of it, whatever they are asked. Source: libcni's `GetVersionInfo`.
        let nobody = || "dummy".to_owned();
        let nothing = Attachment {
            container_id: nobody(),
            netns_path: nobody().into(),
            ifname: nobody(),
            ..Attachment::default()
        };
        match self.run("VERSION", &nothing, json!({ "cniVersion": VERSION })) {
            Ok(output) => {
                version_info::read(&output).map_err(|error| self.failed("VERSION", error.to_string()))
            }
            Err(CniError::Plugin { body, .. }) if body.msg == "unknown CNI_COMMAND: VERSION" => {
                Ok(vec!["0.1.0".into()])
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) fn add(
        &self,
        attachment: &Attachment,
        previous: Option<CniResult>,
    ) -> Result<CniResult, CniError> {
        let output = self.run("ADD", attachment, self.conf_for(attachment, previous.as_ref()))?;
        serde_json::from_slice(&output)
            .map_err(|error| self.failed("ADD", format!("unparsable result: {error}")))
    }

    pub(crate) fn del(&self, attachment: &Attachment, previous: Option<&CniResult>) -> Result<(), CniError> {
        // Older plugins do not know of it there.
        let previous = previous.filter(|_| is_at_least(&self.version, (0, 4)));
        self.run("DEL", attachment, self.conf_for(attachment, previous)).map(drop)
    }

    pub(crate) fn check(&self, attachment: &Attachment, previous: &CniResult) -> Result<(), CniError> {
        self.run("CHECK", attachment, self.conf_for(attachment, Some(previous))).map(drop)
    }

    /// Whether the plugin can attach Pods now, if it is of a version that can say so.
    pub(crate) fn status(&self) -> Result<(), CniError> {
        if !is_at_least(&self.version, (1, 1)) {
            return Ok(());
        }
        self.run("STATUS", &Attachment::default(), self.conf.clone()).map(drop)
    }

    /// Tells the plugin what is attached; it frees the rest, if it is of a version that can.
    pub(crate) fn gc(&self, attached: &Attached) -> Result<(), CniError> {
        if !is_at_least(&self.version, (1, 1)) {
            return Ok(());
        }
        let mut conf = self.conf.clone();
        let attached = attached.interfaces.iter();
        let attached = attached.map(|(id, ifname)| json!({ "containerID": id, "ifname": ifname }));
        let attached: Value = attached.collect();
        // The second is what plugins looked for before the specification was final; libcni tells both.
        conf["cni.dev/valid-attachments"] = attached.clone();
        conf["cni.dev/attachments"] = attached;
        self.run("GC", &Attachment::default(), conf).map(drop)
    }

    fn run(&self, command: &'static str, attachment: &Attachment, conf: Value) -> Result<Vec<u8>, CniError> {
        let is_gone = command == "DEL" && !attachment.netns_path.exists();
        let netns = if is_gone { PathBuf::new() } else { attachment.netns_path.clone() };
        let mut program = Command::new(&self.binary);
        program
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", &attachment.container_id)
            .env("CNI_NETNS", netns)
            .env("CNI_IFNAME", &attachment.ifname)
            .env("CNI_ARGS", arguments(attachment))
            .env("CNI_PATH", &self.path)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let limit = match command {
            "ADD" => ADD_LIMIT,
            "VERSION" => VERSION_LIMIT,
            _ => LIMIT,
        };
        let ran = spawn(&mut program).and_then(|child| run_within(child, conf.to_string(), limit));
        let output = ran.map_err(|error| self.failed(command, error.to_string()))?;
        if output.is_late {
            return Err(self.failed(command, format!("it did not end within {limit:?}")));
        }
        if output.status.success() {
            return Ok(output.stdout);
        }
        let (plugin, network) = (self.kind.clone(), self.network.clone());
        Err(CniError::Plugin { plugin, network, command, body: output.error() })
    }

    /// With what the configuration says that the plugin can be told.
    fn conf_for(&self, attachment: &Attachment, previous: Option<&CniResult>) -> Value {
        let mut conf = self.conf.clone();
        let wanted = conf.get("capabilities").and_then(Value::as_object).cloned().unwrap_or_default();
        let mut told = attachment.capability_args();
        told.retain(|name, _| wanted.get(name) == Some(&Value::Bool(true)));
        if let Some(previous) = previous {
            conf["prevResult"] = json!(previous.converted(&self.version));
        }
        if !told.is_empty() {
            conf["runtimeConfig"] = Value::Object(told);
        }
        conf
    }

    fn failed(&self, command: &'static str, msg: String) -> CniError {
        let (plugin, network) = (self.kind.clone(), self.network.clone());
        CniError::Plugin { plugin, network, command, body: ErrorBody { msg, ..ErrorBody::default() } }
    }
}

fn arguments(attachment: &Attachment) -> String {
    let arguments = attachment.arguments();
    arguments.iter().map(|[name, value]| format!("{name}={value}")).collect::<Vec<_>>().join(";")
}

fn spawn(program: &mut Command) -> io::Result<Child> {
    for _ in 0..BUSY_TRIES {
        match program.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => thread::sleep(BUSY_PAUSE),
            spawned => return spawned,
        }
    }
    program.spawn()
}

/// What a plugin has left behind.
struct Ran {
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    is_late: bool,
}

impl Ran {
    /// In libcni's words where the plugin found none.
    fn error(&self) -> ErrorBody {
        let msg = match serde_json::from_slice::<ErrorBody>(&self.stdout) {
            Ok(body) if !body.msg.is_empty() => return body,
            _ if self.stdout.is_empty() && self.stderr.is_empty() => {
                format!("netplugin failed with no error message: {}", self.status)
            }
            _ if self.stdout.is_empty() => {
                format!("netplugin failed: {:?}", String::from_utf8_lossy(&self.stderr))
            }
            Ok(_) => format!("netplugin failed: {}", self.status),
            Err(error) => format!(
                "netplugin failed but error parsing its diagnostic message {:?}: {error}",
                String::from_utf8_lossy(&self.stdout)
            ),
        };
        ErrorBody { msg, ..ErrorBody::default() }
    }
}

/// Runs a process group to its end, or ends it.
fn run_within(mut child: Child, input: String, limit: Duration) -> io::Result<Ran> {
    let pid = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
    // Its number is its own until it is reaped, which takes this lock.
    let running = Mutex::new(Some(pid));
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let (done, is_done) = mpsc::channel::<()>();
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let is_late = thread::scope(|scope| {
        let group = &running;
        let watch = scope.spawn(move || is_late(&is_done, limit, group));
        let (stdin, out, err) = pipes;
        scope.spawn(move || {
            // A plugin may end without reading: its exit code says what happened.
            if let Some(mut stdin) = stdin
                && let Err(error) = stdin.write_all(input.as_bytes())
            {
                tracing::debug!(%error, "a plugin did not read its configuration");
            }
        });
        let errors = scope.spawn(|| err.map_or(Ok(0), |mut err| err.read_to_end(&mut stderr)));
        let read = out.map_or(Ok(0), |mut out| out.read_to_end(&mut stdout));
        let errors = errors.join().unwrap_or(Ok(0));
        let ended = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
        running.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(done);
        let is_late = watch.join().unwrap_or(false);
        read.and(errors).and(ended.map(|_| 0).map_err(io::Error::from)).map(|_| is_late)
    })?;
    let status = child.wait()?;
    Ok(Ran { status, stdout, stderr, is_late })
}

/// Waits until the plugin has ended, or ends it when it is late.
fn is_late(is_done: &mpsc::Receiver<()>, limit: Duration, running: &Mutex<Option<Pid>>) -> bool {
    if is_done.recv_timeout(limit) != Err(mpsc::RecvTimeoutError::Timeout) {
        return false;
    }
    let running = running.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(group) = *running
        && let Err(error) = killpg(group, Signal::SIGKILL)
    {
        tracing::warn!(%error, "cannot end a plugin that is late");
    }
    running.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, limit: Duration) -> Ran {
        let mut command = Command::new("sh");
        command.args(["-c", script]).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        run_within(spawn(&mut command).unwrap(), "input".into(), limit).unwrap()
    }

    #[test]
    fn a_plugin_that_does_not_end_is_ended_with_all_that_it_has_started() {
        let late = run("sleep 1000 & sleep 1000", Duration::from_millis(50));
        assert!(late.is_late && !late.status.success());
        let closed = run("exec >&- 2>&-; sleep 1000", Duration::from_millis(50));
        assert!(closed.is_late);
        let fine = run("cat; echo said >&2", Duration::from_secs(60));
        assert!(!fine.is_late && fine.status.success());
        assert_eq!((fine.stdout.as_slice(), fine.stderr.as_slice()), (&b"input"[..], &b"said\n"[..]));
    }

    #[test]
    fn what_a_plugin_says_is_told_and_what_it_does_not_say_is_described() {
        let check = |script: &str, expect: &str| {
            assert_eq!(run(script, Duration::from_secs(60)).error().to_string(), expect, "{script}");
        };
        check(r#"echo '{"code": 7, "msg": "no", "details": "way"}'; exit 1"#, "no; way");
        check("exit 3", "netplugin failed with no error message: exit status: 3");
        check("echo broken >&2; exit 1", r#"netplugin failed: "broken\n""#);
        check(
            "echo nonsense; exit 1",
            r#"netplugin failed but error parsing its diagnostic message "nonsense\n": expected ident at line 1 column 2"#,
        );
    }
}
