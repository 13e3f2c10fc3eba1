//! Plugins that are binaries: environment and configuration in, result or error out. Source: CNI specification 4.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::network::Attachment;
use crate::types::{CniError, CniResult, ErrorBody, NetworkConfigList, is_at_least};

/// A plugin binary with its configuration.
#[derive(Debug)]
pub(crate) struct ExecPlugin {
    kind: String,
    binary: PathBuf,
    bin_dirs: Vec<PathBuf>,
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
        bin_dirs: &[PathBuf],
    ) -> Option<Self> {
        let binary = bin_dirs.iter().map(|dir| dir.join(kind)).find(|path| path.is_file())?;
        let mut conf = conf.clone();
        let version = conflist.cni_version.clone();
        if let Some(fields) = conf.as_object_mut() {
            fields.insert("name".into(), json!(conflist.name));
            fields.insert("cniVersion".into(), json!(conflist.cni_version));
        }
        Some(Self { kind: kind.to_owned(), binary, bin_dirs: bin_dirs.to_vec(), version, conf })
    }

    pub(crate) fn add(
        &self,
        attachment: &Attachment,
        previous: Option<CniResult>,
    ) -> Result<CniResult, CniError> {
        let output = self.run("ADD", attachment, self.conf_for(attachment, previous.as_ref()))?;
        serde_json::from_slice(&output).map_err(|error| self.failed("ADD", &error.to_string(), ""))
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
    pub(crate) fn gc(&self, attached: &Value) -> Result<(), CniError> {
        if !is_at_least(&self.version, (1, 1)) {
            return Ok(());
        }
        let mut conf = self.conf.clone();
        conf["cni.dev/valid-attachments"] = attached.clone();
        self.run("GC", &Attachment::default(), conf).map(drop)
    }

    fn run(&self, command: &'static str, attachment: &Attachment, conf: Value) -> Result<Vec<u8>, CniError> {
        let netns = if command == "DEL" && !attachment.netns_path.exists() {
            PathBuf::new()
        } else {
            attachment.netns_path.clone()
        };
        let path = self.bin_dirs.iter().filter_map(|dir| dir.to_str()).collect::<Vec<_>>().join(":");
        let failed_io = |error: std::io::Error| self.failed(command, &error.to_string(), "");
        let mut child = Command::new(&self.binary)
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", &attachment.container_id)
            .env("CNI_NETNS", netns)
            .env("CNI_IFNAME", &attachment.ifname)
            .env("CNI_ARGS", arguments(attachment))
            .env("CNI_PATH", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed_io)?;
        let conf = conf.to_string();
        if let Some(mut stdin) = child.stdin.take() {
            // A plugin may end without reading: its exit code says what happened.
            if let Err(error) = stdin.write_all(conf.as_bytes()) {
                tracing::debug!(plugin = self.kind, %error, "plugin did not read its configuration");
            }
        }
        let output = child.wait_with_output().map_err(failed_io)?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let body =
            serde_json::from_slice(&output.stdout).ok().filter(|body: &ErrorBody| !body.msg.is_empty());
        match body {
            Some(body) => Err(CniError::Plugin { plugin: self.kind.clone(), command, body }),
            None => {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                Err(self.failed(command, &output.status.to_string(), &said))
            }
        }
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

    fn failed(&self, command: &'static str, msg: &str, details: &str) -> CniError {
        let body = ErrorBody { code: 0, msg: msg.to_owned(), details: details.to_owned() };
        CniError::Plugin { plugin: self.kind.clone(), command, body }
    }
}

fn arguments(attachment: &Attachment) -> String {
    let arguments = attachment.arguments();
    arguments.iter().map(|[name, value]| format!("{name}={value}")).collect::<Vec<_>>().join(";")
}
