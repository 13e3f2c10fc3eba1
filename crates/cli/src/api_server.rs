//! Flags of the API server inside `server` and `up`. Names are kube-apiserver's.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

/// How the API server judges requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct ApiServerArgs {
    /// Admission plugins to run beside the default ones
    #[arg(long, value_delimiter = ',')]
    pub enable_admission_plugins: Vec<String>,
    /// Admission plugins not to run
    #[arg(long, value_delimiter = ',')]
    pub disable_admission_plugins: Vec<String>,
    /// The audit policy; without one nothing is logged
    #[arg(long)]
    pub audit_policy_file: Option<PathBuf>,
    /// Where audit events go, one a line; `-` is standard output
    #[arg(long)]
    pub audit_log_path: Option<PathBuf>,
    /// Days that old audit logs are kept; 0 is for ever
    #[arg(long, default_value_t = 0)]
    pub audit_log_maxage: u32,
    /// How many old audit logs are kept; 0 is all
    #[arg(long, default_value_t = 0)]
    pub audit_log_maxbackup: usize,
    /// Megabytes at which an audit log is put aside
    #[arg(long, default_value_t = 100)]
    pub audit_log_maxsize: u64,
    /// An OpenID Connect issuer whose tokens are believed
    #[arg(long)]
    pub oidc_issuer_url: Option<String>,
    /// The audience that the issuer's tokens must name
    #[arg(long)]
    pub oidc_client_id: Option<String>,
    /// Who signed the issuer's certificate; the host's authorities if not given
    #[arg(long)]
    pub oidc_ca_file: Option<PathBuf>,
    /// The claim that names the user
    #[arg(long, default_value = "sub")]
    pub oidc_username_claim: String,
    /// What user names get in front; `-` is nothing
    #[arg(long)]
    pub oidc_username_prefix: Option<String>,
    /// The claim that names the groups
    #[arg(long)]
    pub oidc_groups_claim: Option<String>,
    /// What groups get in front
    #[arg(long)]
    pub oidc_groups_prefix: Option<String>,
    /// CLAIM=VALUE that tokens must have
    #[arg(long)]
    pub oidc_required_claim: Vec<String>,
    /// Signatures that are accepted
    #[arg(long, value_delimiter = ',', default_value = "RS256")]
    pub oidc_signing_algs: Vec<String>,
    /// Who signs the client certificates of front proxies
    #[arg(long)]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// The names of front proxies that are believed; any if not given
    #[arg(long, value_delimiter = ',')]
    pub requestheader_allowed_names: Vec<String>,
    /// Seconds that a request may take which does not say
    #[arg(long, default_value_t = 60)]
    pub request_timeout_seconds: u64,
    /// Seconds for which requests are still taken after readiness has failed
    #[arg(long, default_value_t = 0)]
    pub shutdown_delay_seconds: u64,
    /// Share places among requests without regard to FlowSchemas
    #[arg(long)]
    pub disable_priority_and_fairness: bool,
}

impl ApiServerArgs {
    /// The command line that says the same.
    pub fn flags(&self) -> Vec<OsString> {
        let mut flags = Vec::new();
        let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(self) else { return flags };
        for (name, value) in fields {
            let flag = || OsString::from(format!("--{}", name.replace('_', "-")));
            let mut say = |value: &serde_json::Value| match value {
                serde_json::Value::Bool(true) => flags.push(flag()),
                serde_json::Value::Number(number) => flags.extend([flag(), number.to_string().into()]),
                serde_json::Value::String(text) if !text.is_empty() => {
                    flags.push(format!("--{}={text}", name.replace('_', "-")).into());
                }
                _ => {}
            };
            match &value {
                serde_json::Value::Array(values) => values.iter().for_each(&mut say),
                one => say(one),
            }
        }
        flags
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: ApiServerArgs,
    }

    #[test]
    fn flags_say_what_was_said() {
        let given = [
            "x",
            "--enable-admission-plugins=A,B",
            "--audit-policy-file=/p",
            "--oidc-username-prefix=-",
            "--oidc-signing-algs=RS256,ES256",
            "--shutdown-delay-seconds=3",
            "--disable-priority-and-fairness",
        ];
        let args = Command::parse_from(given).args;
        let again = std::iter::once(OsString::from("x")).chain(args.flags());
        assert_eq!(Command::parse_from(again).args, args);
    }
}
