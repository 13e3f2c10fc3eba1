//! The kubelet's flags that have a field in KubeletConfiguration: a row per flag, under upstream's names.
//!
//! `knarr kubelet` has them as flags of its own, `server` and `agent` take them as `--kubelet-arg NAME=VALUE`. What
//! they say becomes a configuration that wins over files. Source: `cmd/kubelet/app/options/options.go`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::cloud_provider::CloudProvider;
use crate::switch::switch;
use crate::value_error::{ArgumentError, ValueError};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use machinery::{names, node_labels};
use serde_json::{Map, Value, json};

/// How a flag's text becomes a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// As it is.
    Text,
    /// A whole number.
    Number,
    /// `true` or `false`.
    Flag,
    /// Texts with commas between them.
    List,
    /// Taints with commas between them.
    Taints,
    /// Names and values, with this between them and commas between pairs.
    Map(char),
}

use Form::{Flag, List, Map as Pairs, Number, Taints, Text};

/// Flag, field, form, help.
const FLAGS: &[(&str, &str, Form, &str)] = &[
    (
        "pod-manifest-path",
        "staticPodPath",
        Text,
        "A file or a folder with Pods that run whatever the API says",
    ),
    (
        "provider-id",
        "providerID",
        Text,
        "What the cloud calls this machine, such as example://zone-a/i-1; the cloud says so if not given",
    ),
    ("max-pods", "maxPods", Number, "Most Pods on this Node"),
    ("pods-per-core", "podsPerCore", Number, "Most Pods for each CPU; 0 for any number"),
    ("pod-max-pids", "podPidsLimit", Number, "Most processes and threads in a Pod; -1 for any number"),
    ("resolv-conf", "resolvConf", Text, "The host's resolver settings, for Pods that use them"),
    (
        "seccomp-default",
        "seccompDefault",
        Flag,
        "Whether containers without a seccomp profile get the runtime's",
    ),
    (
        "container-log-max-size",
        "containerLogMaxSize",
        Text,
        "Size at which a container's log file is rotated",
    ),
    ("container-log-max-files", "containerLogMaxFiles", Number, "Most log files of a container"),
    (
        "kube-reserved",
        "kubeReserved",
        Pairs('='),
        "Resources for Kubernetes' own processes, such as cpu=200m,memory=500Mi",
    ),
    ("system-reserved", "systemReserved", Pairs('='), "Resources for the rest of the system"),
    ("reserved-cpus", "reservedSystemCPUs", Text, "CPUs for the system, such as 0-1"),
    (
        "enforce-node-allocatable",
        "enforceNodeAllocatable",
        List,
        "What is held below its share: pods or none",
    ),
    (
        "cpu-manager-policy",
        "cpuManagerPolicy",
        Text,
        "none, or static: whole CPUs of Guaranteed containers are theirs alone",
    ),
    (
        "eviction-hard",
        "evictionHard",
        Pairs('<'),
        "Below which Pods go at once, such as memory.available<100Mi,nodefs.available<10%",
    ),
    ("eviction-soft", "evictionSoft", Pairs('<'), "Below which Pods go after a grace period"),
    (
        "eviction-soft-grace-period",
        "evictionSoftGracePeriod",
        Pairs('='),
        "Those grace periods, such as memory.available=1m30s",
    ),
    (
        "eviction-minimum-reclaim",
        "evictionMinimumReclaim",
        Pairs('='),
        "How much more is won back than the threshold asks for",
    ),
    (
        "eviction-pressure-transition-period",
        "evictionPressureTransitionPeriod",
        Text,
        "How long a pressure condition stays",
    ),
    (
        "eviction-max-pod-grace-period",
        "evictionMaxPodGracePeriod",
        Number,
        "Seconds that a Pod has when a soft threshold is crossed",
    ),
    (
        "allowed-unsafe-sysctls",
        "allowedUnsafeSysctls",
        List,
        "Sysctls that are not safe and still allowed, such as kernel.msg*",
    ),
    (
        "register-with-taints",
        "registerWithTaints",
        Taints,
        "Taints that the Node is registered with, as key=value:Effect",
    ),
    (
        "sync-frequency",
        "syncFrequency",
        Text,
        "How often volumes are looked after of which nobody tells: those that have grown",
    ),
    (
        "node-status-report-frequency",
        "nodeStatusReportFrequency",
        Text,
        "How often the status is written when nothing changes",
    ),
    (
        "node-status-max-images",
        "nodeStatusMaxImages",
        Number,
        "Most images that the status lists; -1 for all",
    ),
    (
        "image-gc-high-threshold",
        "imageGCHighThresholdPercent",
        Number,
        "From this use of their disk on, in percent, unused images go; 100 for never",
    ),
    ("image-gc-low-threshold", "imageGCLowThresholdPercent", Number, "Until its use is down to this"),
    ("minimum-image-ttl-duration", "imageMinimumGCAge", Text, "Younger images stay, such as 2m0s"),
    ("serialize-image-pulls", "serializeImagePulls", Flag, "Whether one image is pulled after the other"),
    ("registry-qps", "registryPullQPS", Number, "Most pulls a second; 0 for any number"),
    ("registry-burst", "registryBurst", Number, "Most pulls at once before that counts"),
];

/// The files of the configuration, and the flags that stand for fields of it.
#[derive(Clone, Debug, Default)]
pub struct ConfigurationArgs {
    /// A KubeletConfiguration.
    pub config: Option<PathBuf>,
    /// A folder of files that end in `.conf`, each of which says more.
    pub config_dir: Option<PathBuf>,
    /// The kubelet's folder. Source: `--root-dir`.
    pub root_dir: Option<PathBuf>,
    /// The party that says of the Node what it is. Source: `--cloud-provider`.
    pub cloud_provider: CloudProvider,
    /// The values of flags, under the fields' names.
    pub fields: Value,
    /// Labels that the Node is registered with. Source: `--node-labels`.
    pub node_labels: BTreeMap<String, String>,
    /// The kubelet's own port, if it is another one. Source: `--port`.
    pub port: Option<u16>,
}

impl ConfigurationArgs {
    /// Of texts such as `max-pods=20`.
    ///
    /// # Errors
    /// There is no such flag, or the value is not what it takes.
    pub fn from_pairs(pairs: &[String]) -> Result<Self, ArgumentError> {
        let mut args = Self::default();
        let mut fields = Map::new();
        for argument in pairs {
            let error = ArgumentError::of("--kubelet-arg", argument);
            let pair = argument.trim_start_matches("--").split_once('=');
            let (name, text) = pair.ok_or_else(|| error(ValueError::NoPair))?;
            match name {
                "config" => args.config = Some(text.into()),
                "config-dir" => args.config_dir = Some(text.into()),
                "root-dir" => args.root_dir = Some(text.into()),
                "cloud-provider" => args.cloud_provider = text.parse().map_err(&error)?,
                "node-labels" => args.node_labels.extend(labels(text).map_err(&error)?),
                "port" => {
                    let port = text.parse().ok().filter(|port| *port > 0);
                    args.port = Some(port.ok_or_else(|| error(ValueError::Port))?);
                }
                name => {
                    let row = FLAGS.iter().find(|(flag, ..)| *flag == name);
                    let (_, field, form, _) = row.ok_or_else(|| error(ValueError::KubeletFlag))?;
                    fields.insert((*field).to_owned(), read(*form, text).map_err(error)?);
                }
            }
        }
        args.fields = Value::Object(fields);
        Ok(args)
    }
}

/// `a=b,c=d`. Source: `ValidateKubeletFlags`.
fn labels(text: &str) -> Result<BTreeMap<String, String>, ValueError> {
    let label = |part: &str| {
        let pair = part.split_once('=').map(|(key, value)| (key.trim(), value.trim()));
        let (key, value) = pair.ok_or_else(|| ValueError::must(part, "KEY=VALUE, such as disk=ssd"))?;
        if key.is_empty() {
            return Err(ValueError::NoKey(part.to_owned()));
        }
        if !node_labels::is_kubelets(key) {
            return Err(ValueError::Label(key.to_owned()));
        }
        match names::qualified_name(key).into_iter().chain(names::label_value(value)).next() {
            Some(why) => Err(ValueError::Flaw(part.to_owned(), format!("must be a sound label: {why}"))),
            None => Ok((key.to_owned(), value.to_owned())),
        }
    };
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(label).collect()
}

fn read(form: Form, text: &str) -> Result<Value, ValueError> {
    let parts = || text.split(',').map(str::trim).filter(|part| !part.is_empty());
    Ok(match form {
        Text => text.into(),
        Number => text.parse::<i64>().map_err(|_| ValueError::Number(text.to_owned()))?.into(),
        Flag => switch(text).ok_or_else(|| ValueError::must(text, "true or false"))?.into(),
        List => parts().collect::<Vec<_>>().into(),
        Taints => match crate::taint::first_flaw(parts()) {
            Some((taint, flaw)) => return Err(ValueError::Flaw(taint.to_owned(), flaw)),
            None => parts().collect::<Vec<_>>().into(),
        },
        Pairs(between) => {
            let pair = |part: &str| -> Result<(String, Value), ValueError> {
                let pair = part.split_once(between);
                let no_pair = || ValueError::must(part, format!("NAME{between}VALUE"));
                let (name, value) = pair.ok_or_else(no_pair)?;
                Ok((name.trim().to_owned(), json!(value.trim())))
            };
            Value::Object(parts().map(pair).collect::<Result<_, _>>()?)
        }
    })
}

impl Args for ConfigurationArgs {
    fn augment_args(command: Command) -> Command {
        let command = command
            .arg(
                Arg::new("config")
                    .long("config")
                    .value_name("FILE")
                    .value_parser(clap::value_parser!(PathBuf))
                    .help("A KubeletConfiguration; flags win over it"),
            )
            .arg(
                Arg::new("config-dir")
                    .long("config-dir")
                    .value_name("FOLDER")
                    .value_parser(clap::value_parser!(PathBuf))
                    .help("A folder of KubeletConfigurations that end in .conf, each of which wins over those before"),
            )
            .arg(
                Arg::new("root-dir")
                    .long("root-dir")
                    .value_name("FOLDER")
                    .value_parser(clap::value_parser!(PathBuf))
                    .help("The kubelet's folder, where storage drivers look for it; kubelet in the Node's folder if not given"),
            );
        let command = command.arg(
            Arg::new("cloud-provider")
                .long("cloud-provider")
                .value_name("NAME")
                .default_value("")
                .value_parser(clap::value_parser!(CloudProvider))
                .help(
                    "external: nothing is scheduled on the Node until a cloud's controllers have said where and what it is",
                ),
        );
        FLAGS.iter().fold(command, |command, (flag, _, form, help)| {
            let form = *form;
            let parser = move |text: &str| read(form, text);
            command.arg(Arg::new(*flag).long(*flag).value_parser(parser).help(*help))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ConfigurationArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let value =
            |flag: &str, field: &str| Some((field.to_owned(), matches.get_one::<Value>(flag)?.clone()));
        let fields = FLAGS.iter().filter_map(|(flag, field, ..)| value(flag, field));
        Ok(Self {
            config: matches.get_one("config").cloned(),
            config_dir: matches.get_one("config-dir").cloned(),
            root_dir: matches.get_one("root-dir").cloned(),
            cloud_provider: matches.get_one("cloud-provider").copied().unwrap_or_default(),
            fields: Value::Object(fields.collect()),
            node_labels: BTreeMap::new(),
            port: None,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
