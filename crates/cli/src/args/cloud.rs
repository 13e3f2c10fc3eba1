//! Flags of a cloud: where its provider listens, and what its controllers are told.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser};
use machinery::duration::GoDuration;
use machinery::net::Cidrs;
use serde::{Deserialize, Serialize};

use super::components::{LeaderElectionArgs, PartArgs, ServingArgs};
use crate::value_error::{ArgumentError, ValueError};

/// The endpoint of a provider of the contract `knarr.cloud.v1`: an absolute path, or `unix://` before one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ProviderEndpoint(PathBuf);

impl ProviderEndpoint {
    /// The socket.
    pub fn socket(&self) -> &Path {
        &self.0
    }
}

impl FromStr for ProviderEndpoint {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let path = text.strip_prefix("unix://").unwrap_or(text);
        match path.starts_with('/') && !path.ends_with('/') {
            true => Ok(Self(path.into())),
            false => Err(ValueError::must(text, "a unix socket, such as unix:///run/cloud.sock")),
        }
    }
}

impl TryFrom<String> for ProviderEndpoint {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ProviderEndpoint> for String {
    fn from(endpoint: ProviderEndpoint) -> Self {
        format!("unix://{}", endpoint.0.display())
    }
}

/// Flags of `server` and `up` about a cloud's provider.
#[derive(Clone, Debug, Default, Args, Serialize, Deserialize)]
pub struct CloudArgs {
    /// Run the cloud's controllers in the cluster: the unix socket where its provider listens, such as
    /// unix:///run/cloud.sock; needs --cloud-provider external
    #[arg(long, env = "KNARR_CLOUD_PROVIDER_ENDPOINT", value_name = "SOCKET")]
    #[serde(default)]
    pub cloud_provider_endpoint: Option<ProviderEndpoint>,
    /// A flag of the cloud's controllers, such as node-monitor-period=10s; can be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    #[serde(default)]
    pub cloud_controller_manager_arg: Vec<String>,
}

/// Flags of `cloud-controller-manager`.
#[derive(Clone, Debug, Args)]
pub struct CloudControllerManagerArgs {
    /// How to reach the API server.
    #[command(flatten)]
    pub part: PartArgs,
    /// The unix socket where the cloud's provider listens, such as unix:///run/cloud.sock
    #[arg(long, env = "KNARR_CLOUD_PROVIDER_ENDPOINT", value_name = "SOCKET")]
    pub cloud_provider_endpoint: ProviderEndpoint,
    /// Who leads.
    #[command(flatten)]
    pub leader: LeaderElectionArgs,
    /// Give each controller the ServiceAccount that its role is bound to, instead of this process's own identity
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    pub use_service_account_credentials: bool,
    /// Who is told how it is.
    #[command(flatten)]
    pub serving: ServingArgs,
    /// Everything else.
    #[command(flatten)]
    pub options: CloudOptionArgs,
}

/// What operators say of the cloud's controllers. Names and defaults are upstream's but for the numbers at a time, which are
/// those of all controllers here: a call that hangs holds nobody else up.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct CloudOptionArgs {
    /// The controllers that run: * for all, NAME, -NAME for one that does not run
    #[arg(
        long,
        default_value = "*",
        value_delimiter = ',',
        allow_hyphen_values = true,
        value_name = "NAMES"
    )]
    pub controllers: Vec<String>,
    /// What the provider must call itself; anything if not given
    #[arg(long, default_value = "", hide_default_value = true, value_name = "NAME")]
    pub cloud_provider: String,
    /// The provider's configuration; accepted, and does nothing: the provider reads its own
    #[arg(long, value_name = "FILE")]
    pub cloud_config: Option<PathBuf>,
    /// What the cluster is called in the cloud
    #[arg(long, default_value = "kubernetes", value_name = "NAME")]
    pub cluster_name: String,
    /// The addresses of Pods: routes to others are left alone, and without it no routes are made
    #[arg(long)]
    pub cluster_cidr: Option<Cidrs>,
    /// Give each Node a range of --cluster-cidr; for clusters whose own controllers do not
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    pub allocate_node_cidrs: bool,
    /// Have the cloud lead packets to Pods [default: true; false in a cluster of knarr, whose Nodes have routes of their own]
    #[arg(long, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pub configure_cloud_routes: Option<bool>,
    /// How often the cloud's routes are compared with the Nodes
    #[arg(long, default_value = "10s", value_parser = period, value_name = "DURATION")]
    pub route_reconciliation_period: Duration,
    /// How often the cloud is asked about a Node that is not ready
    #[arg(long, default_value = "5s", value_parser = period, value_name = "DURATION")]
    pub node_monitor_period: Duration,
    /// How often the cloud is asked for a Node's addresses
    #[arg(long, default_value = "5m0s", value_parser = period, value_name = "DURATION")]
    pub node_status_update_frequency: Duration,
    /// Nodes at a time
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1000), value_name = "NUMBER")]
    pub concurrent_node_syncs: u16,
    /// Services at a time that get load balancers
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1000), value_name = "NUMBER")]
    pub concurrent_service_syncs: u16,
}

/// What is done so often: a second at least.
fn period(text: &str) -> Result<Duration, ValueError> {
    let GoDuration(period) = text.parse()?;
    if period.as_secs() == 0 { Err(ValueError::must(text, "1s or longer")) } else { Ok(period) }
}

/// The same flags as arguments of a server.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true, args_override_self = true)]
struct Alone {
    #[command(flatten)]
    options: CloudOptionArgs,
}

const ARG: &str = "--cloud-controller-manager-arg";

impl CloudArgs {
    /// The options that the arguments give.
    ///
    /// # Errors
    /// There is no such flag, or the value is not what it takes.
    pub fn options(&self) -> Result<CloudOptionArgs, ArgumentError> {
        let words = |arguments: &[String]| -> Vec<String> {
            arguments.iter().map(|one| format!("--{}", one.trim_start_matches("--"))).collect()
        };
        for argument in &self.cloud_controller_manager_arg {
            let error = ArgumentError::of(ARG, argument);
            if !argument.contains('=') {
                return Err(error(ValueError::NoPair));
            }
            if let Err(wrong) = Alone::try_parse_from(words(std::slice::from_ref(argument))) {
                let text = wrong.to_string();
                let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
                return Err(error(ValueError::CommandLine(line.to_owned())));
            }
        }
        let all = Alone::try_parse_from(words(&self.cloud_controller_manager_arg));
        let whole = self.cloud_controller_manager_arg.join(" ");
        let error = |wrong: clap::Error| ValueError::CommandLine(wrong.to_string());
        all.map(|alone| alone.options).map_err(error).map_err(ArgumentError::of(ARG, &whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &str) -> Result<CloudOptionArgs, String> {
        let all = arguments.split_whitespace().map(str::to_owned).collect();
        let args = CloudArgs { cloud_controller_manager_arg: all, ..CloudArgs::default() };
        args.options().map_err(|error| error.to_string())
    }

    #[test]
    fn arguments_of_a_server_are_the_flags_of_the_part() {
        let read =
            options("node-monitor-period=1s --cluster-name=a configure-cloud-routes=true cluster-name=b")
                .unwrap();
        assert_eq!(
            (read.node_monitor_period, read.cluster_name.as_str(), read.configure_cloud_routes),
            (Duration::from_secs(1), "b", Some(true))
        );
        assert_eq!(options("").unwrap().configure_cloud_routes, None);
        for (argument, expect) in [
            ("node-monitor-period", "must be NAME=VALUE"),
            ("node-monitor-period=100ms", "must be 1s or longer"),
            ("node-monitor-period=soon", "invalid value 'soon'"),
            ("node-monitor-perod=5s", "unexpected argument '--node-monitor-perod'"),
            ("concurrent-node-syncs=0", "invalid value '0'"),
            ("kubeconfig=/etc/shadow", "unexpected argument '--kubeconfig'"),
            ("configure-cloud-routes=perhaps", "invalid value 'perhaps'"),
        ] {
            assert!(
                options(argument).is_err_and(|told| told.contains(expect) && told.contains(argument)),
                "{argument}"
            );
        }
    }

    #[test]
    fn an_endpoint_is_a_socket_of_this_host() {
        for (text, expect) in [
            ("unix:///run/cloud.sock", Some("/run/cloud.sock")),
            ("/run/cloud.sock", Some("/run/cloud.sock")),
            ("run/cloud.sock", None),
            ("unix://run/cloud.sock", None),
            ("https://127.0.0.1:1", None),
            ("unix:///run/", None),
            ("", None),
        ] {
            let read = text.parse::<ProviderEndpoint>().ok();
            assert_eq!(read.as_ref().map(ProviderEndpoint::socket), expect.map(Path::new), "{text}");
        }
    }
}
