//! The built-in plugins as programs of their own, for any container runtime: what a link to the binary does that is named
//! after one of them (`knarr-bridge`, `knarr-host-local`, `knarr-portmap`, `knarr-bandwidth`,
//! `loopback`).
//!
//! Source: CNI specification 1.1.0, sections 2 and 5, and what libcni's `skel` checks. Nothing but the answer goes to
//! standard output.

mod call;
mod install;

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::plugins::{Builtin, Site, rules};
use crate::types::{CniError, CniResult, ErrorBody, VERSION, VERSIONS, is_at_least};

pub use crate::plugins::Kind;
use call::{Call, Verb, code};
pub use install::{Installed, install, link_plain, uninstall};

/// Where leases are kept, as upstream's `host-local` does, and what the plugins have in nftables. The second is void
/// after a reboot, as the kernel's rules are.
const LEASES: &str = "/var/lib/cni/networks";
const STATE: &str = "/run/knarr-cni";

/// Answers one call: environment and standard input in, standard output and exit code out.
pub fn main(kind: Kind) -> ExitCode {
    if std::env::var_os("CNI_COMMAND").is_none_or(|command| command.is_empty()) {
        // Somebody wants to know what this is.
        let (name, version) = (kind.name(), env!("CARGO_PKG_VERSION"));
        eprintln!(
            "CNI {name} plugin knarr v{version}\nCNI protocol versions supported: {}",
            VERSIONS.join(", ")
        );
        return ExitCode::SUCCESS;
    }
    let mut input = Vec::new();
    let read = std::io::stdin().read_to_end(&mut input);
    let answer = match read {
        Ok(_) => answer(kind, |name| std::env::var(name).ok(), &input),
        Err(error) => Err(refusal(VERSION, code::IO, "cannot read standard input", &error.to_string())),
    };
    let (text, exit) = match answer {
        Ok(None) => return ExitCode::SUCCESS,
        Ok(Some(text)) => (text, ExitCode::SUCCESS),
        Err(text) => (text, ExitCode::FAILURE),
    };
    match writeln!(std::io::stdout(), "{text}") {
        Ok(()) => exit,
        Err(_) => ExitCode::FAILURE,
    }
}

/// What goes to standard output: nothing, a result, or an error.
fn answer(kind: Kind, env: impl Fn(&str) -> Option<String>, input: &[u8]) -> Result<Option<Value>, Value> {
    let conf: Value = match serde_json::from_slice(input) {
        Ok(conf) => conf,
        // VERSION has no need of a configuration.
        Err(_) if input.iter().all(u8::is_ascii_whitespace) => json!({}),
        Err(error) => {
            let details = error.to_string();
            return Err(refusal(VERSION, code::DECODING, "error unmarshall network config", &details));
        }
    };
    let version = conf.get("cniVersion").and_then(Value::as_str).unwrap_or("0.1.0").to_owned();
    let refused = |body: ErrorBody| refusal(&version, body.code, &body.msg, &body.details);
    let call = Call::read(env, conf).map_err(refused)?;
    if call.verb == Verb::Version {
        let version = if is_at_least(&version, (0, 2)) { version.as_str() } else { VERSION };
        return Ok(Some(json!({ "cniVersion": version, "supportedVersions": VERSIONS })));
    }
    let done = carry_out(kind, &call).map_err(|error| refused(describe(&error)))?;
    let value = done.map(|result| serde_json::to_value(result.converted(&version)));
    value
        .transpose()
        .map_err(|error| refusal(&version, code::IO, "cannot write the result", &error.to_string()))
}

fn carry_out(kind: Kind, call: &Call) -> Result<Option<CniResult>, CniError> {
    let attachment = &call.attachment;
    let previous = call.previous()?;
    let plugin = Builtin::new(kind, &call.network, &call.conf, &site(call))?;
    let is_chained = matches!(kind, Kind::Portmap | Kind::Bandwidth);
    let needs_previous = is_chained || call.verb == Verb::Check;
    let chained =
        || CniError::Config { path: call.network.clone().into(), reason: "prevResult must be set".into() };
    match call.verb {
        Verb::Add if needs_previous && previous.is_none() => Err(chained()),
        Verb::Add => plugin.add(attachment, previous).map(Some),
        Verb::Del => plugin.del(attachment).map(|()| None),
        Verb::Check => plugin.check(attachment, &previous.ok_or_else(chained)?).map(|()| None),
        Verb::Gc => plugin.retain(&call.attached).map(|()| None),
        // Its configuration can be used, and the kernel answers.
        Verb::Status if matches!(kind, Kind::Loopback | Kind::Bandwidth) => Ok(None),
        Verb::Status => sys::nftables::table_names().map(|_| None).map_err(CniError::from),
        Verb::Version => Ok(None),
    }
}

/// With our own field `stateDir`, and `dataDir` as `host-local` has it.
fn site(call: &Call) -> Site {
    let state = call.conf.get("stateDir").and_then(Value::as_str).unwrap_or(STATE);
    let file = PathBuf::from(state).join(&call.network).join("rules.json");
    Site { leases: LEASES.into(), before: None, rules: rules::in_file(table_name(&call.network), file) }
}

/// The nftables table of a network whose plugins are programs.
pub fn table_name(network: &str) -> String {
    format!("knarr-cni-{network}")
}

/// Which of the specification's codes an error has.
fn describe(error: &CniError) -> ErrorBody {
    let code = match error {
        CniError::Plugin { body, .. } => return body.clone(),
        CniError::Unsupported { .. } => code::UNSUPPORTED_FIELD,
        CniError::Config { .. } | CniError::Wish { .. } => code::INVALID_CONFIG,
        CniError::State { .. } => code::IO,
        CniError::NotReady(_) | CniError::Before(_) => code::NOT_AVAILABLE,
        CniError::Version { .. } => code::INCOMPATIBLE_VERSION,
        CniError::NoAddress(_)
        | CniError::Bandwidth(_)
        | CniError::Check(_)
        | CniError::InterfaceExists { .. }
        | CniError::PluginMissing { .. }
        | CniError::Rules(_)
        | CniError::Kernel(_) => code::INTERNAL,
    };
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    let details = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
    ErrorBody { code, msg: error.to_string(), details }
}

fn refusal(version: &str, code: u32, msg: &str, details: &str) -> Value {
    let mut body = json!({ "cniVersion": version, "code": code, "msg": msg });
    if !details.is_empty() {
        body["details"] = json!(details);
    }
    body
}

#[cfg(test)]
mod tests;
