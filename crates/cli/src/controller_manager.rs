//! The flags of kube-controller-manager beside its keys and identities: a row per flag, under upstream's names.
//!
//! `knarr controller-manager` has them as flags of its own, `server` takes them as `--kube-controller-manager-arg
//! NAME=VALUE`. Each acts, or says why it does nothing. Source: `cmd/kube-controller-manager/app/options` of v1.35.

mod rows;

use std::collections::BTreeMap;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use serde_json::{Map, Value};

use crate::duration::GoDuration;
use crate::switch::switch;
use crate::value_error::{ArgumentError, ValueError};
pub use rows::FLAGS;

/// A flag.
pub struct Flag {
    /// Without the dashes before it.
    pub name: &'static str,
    /// The form of its value.
    pub form: Form,
    /// Its value if it is not given.
    pub default: &'static str,
    /// Its effect.
    pub effect: Effect,
    /// Its text in `--help`.
    pub help: &'static str,
}

/// The form of a flag's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    /// As Go writes it, such as `1m30s`.
    Duration,
    /// The same, and a second at least: what is done so often.
    Period,
    /// A whole number from the first to the second.
    Number(i64, i64),
    /// A number from the first to the second.
    Fraction(f64, f64),
    /// `true` or `false`; `true` if it has none.
    Switch,
    /// Anything.
    Text,
}

/// The effect of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The field of its name in the controllers' options has its value.
    Acts,
    /// It is how many keys this controller works on at a time.
    Workers(&'static str),
    /// Nothing, for this reason.
    Nothing(&'static str),
    /// Nothing, for this reason; any other value than these is refused.
    Only(&'static [&'static str], &'static str),
}

/// The options of flags.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OptionArgs {
    /// The values of those that act, by name.
    pub fields: Map<String, Value>,
    /// Keys that controllers work on at a time.
    pub workers: BTreeMap<&'static str, usize>,
    /// Those that were given and do nothing, and why.
    pub without_effect: Vec<(&'static str, &'static str)>,
    /// The controllers that run, if an argument of a server says so: it has a flag of its own, too.
    pub controllers: Option<Vec<String>>,
}

impl Flag {
    /// Reads a value.
    ///
    /// # Errors
    /// What it must be.
    pub fn read(&self, text: &str) -> Result<Value, ValueError> {
        let between = |low: &dyn std::fmt::Display, high: &dyn std::fmt::Display| {
            Err(ValueError::must(text, format!("a number between {low} and {high}")))
        };
        let duration = || text.parse::<GoDuration>();
        let value = match self.form {
            Form::Duration => duration()?.to_string().into(),
            Form::Period => match duration()? {
                GoDuration(period) if period.as_secs() == 0 => {
                    return Err(ValueError::must(text, "1s or longer"));
                }
                period => period.to_string().into(),
            },
            Form::Number(low, high) => match text.parse::<i64>() {
                Ok(number) if (low..=high).contains(&number) => number.into(),
                _ => return between(&low, &high),
            },
            Form::Fraction(low, high) => match text.parse::<f64>() {
                Ok(number) if (low..=high).contains(&number) => number.into(),
                _ => return between(&low, &high),
            },
            Form::Switch => switch(text).ok_or_else(|| ValueError::must(text, "true or false"))?.into(),
            Form::Text => text.into(),
        };
        match self.effect {
            Effect::Only(values, why) if !values.contains(&text) => {
                Err(ValueError::must(text, format!("{}: {why}", one_of(values))))
            }
            _ => Ok(value),
        }
    }

    fn help(&self) -> String {
        let default =
            if self.default.is_empty() { String::new() } else { format!(" [default: {}]", self.default) };
        match self.effect {
            Effect::Acts | Effect::Workers(_) => format!("{}{default}", self.help),
            Effect::Nothing(why) | Effect::Only(_, why) => {
                format!("{}; accepted, and does nothing: {why}", self.help)
            }
        }
    }

    fn arg(&'static self) -> Arg {
        let arg = Arg::new(self.name)
            .long(self.name)
            .action(ArgAction::Set)
            .overrides_with(self.name)
            .value_parser(move |text: &str| self.read(text))
            .help(self.help());
        match self.form {
            Form::Switch => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
            Form::Duration | Form::Period => arg.value_name("DURATION"),
            Form::Number(..) | Form::Fraction(..) => arg.value_name("NUMBER").allow_negative_numbers(true),
            Form::Text => arg.value_name("TEXT"),
        }
    }
}

/// Texts with `or` between them.
fn one_of(values: &[&str]) -> String {
    values.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(" or ")
}

impl OptionArgs {
    /// Of texts such as `node-monitor-grace-period=20s`.
    ///
    /// # Errors
    /// There is no such flag, the value is not what it takes, or it is not said inside of a server.
    pub fn from_pairs(pairs: &[String]) -> Result<Self, ArgumentError> {
        let mut args = Self::default();
        for argument in pairs {
            let error = ArgumentError::of("--kube-controller-manager-arg", argument);
            let text = argument.trim_start_matches("--");
            let (name, text) = text.split_once('=').map_or((text, None), |(name, text)| (name, Some(text)));
            if name == CONTROLLERS {
                let text = text.filter(|text| !text.is_empty());
                let text = text.ok_or_else(|| error(ValueError::NoPair))?;
                let all = args.controllers.get_or_insert_default();
                all.extend(text.split(',').map(str::to_owned));
                continue;
            }
            let flag = FLAGS.iter().find(|flag| flag.name == name);
            let flag = flag.ok_or_else(|| error(ValueError::ControllerFlag))?;
            let text = match (text, flag.form) {
                (Some(text), _) => text,
                (None, Form::Switch) => "true",
                (None, _) => return Err(error(ValueError::NoPair)),
            };
            args.add(flag, flag.read(text).map_err(error)?);
        }
        Ok(args)
    }

    fn add(&mut self, flag: &Flag, value: Value) {
        match flag.effect {
            Effect::Acts => drop(self.fields.insert(flag.name.to_owned(), value)),
            Effect::Workers(controller) => {
                let workers = value.as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or(1);
                self.workers.insert(controller, workers);
            }
            Effect::Nothing(why) | Effect::Only(_, why) => self.without_effect.push((flag.name, why)),
        }
    }
}

/// Whoever comes from kube-controller-manager says there which controllers run.
const CONTROLLERS: &str = "controllers";

impl Args for OptionArgs {
    fn augment_args(command: Command) -> Command {
        FLAGS.iter().fold(command, |command, flag| command.arg(flag.arg()))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for OptionArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self::default();
        for flag in FLAGS {
            if let Some(value) = matches.get_one::<Value>(flag.name) {
                args.add(flag, value.clone());
            }
        }
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;
    use crate::Cli;

    fn alone(flags: &str) -> Result<OptionArgs, String> {
        let words =
            ["knarr", "controller-manager", "--kubeconfig=f"].into_iter().chain(flags.split_whitespace());
        match Cli::try_parse_from(words).map_err(|error| error.to_string())?.command {
            crate::Command::ControllerManager(args) => Ok(args.options),
            _ => panic!("another command"),
        }
    }

    fn inside(flags: &str) -> Result<OptionArgs, String> {
        let pairs: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
        OptionArgs::from_pairs(&pairs).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_say_the_same_inside_of_a_server_and_alone() {
        let flags = "--concurrent-deployment-syncs=3 --horizontal-pod-autoscaler-tolerance=0.2 \
                     --node-monitor-grace-period=90s --enable-garbage-collector --profiling=false";
        let args = inside(flags).unwrap();
        assert_eq!(args, alone(flags).unwrap());
        assert_eq!(
            Value::Object(args.fields),
            json!({
                "horizontal-pod-autoscaler-tolerance": 0.2,
                "node-monitor-grace-period": "1m30s",
                "enable-garbage-collector": true,
            })
        );
        assert_eq!(args.workers, BTreeMap::from([("deployment-controller", 3)]));
        assert_eq!(args.without_effect.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["profiling"]);
        // Of a flag that is said twice the last one counts, as everywhere upstream.
        let twice = inside("concurrent-deployment-syncs=3 concurrent-deployment-syncs=4").unwrap();
        assert_eq!(twice, alone("--concurrent-deployment-syncs 3 --concurrent-deployment-syncs=4").unwrap());
        assert_eq!(twice.workers["deployment-controller"], 4);
    }

    #[test]
    fn an_argument_may_say_which_controllers_run() {
        let said = |flags: &str| inside(flags).map(|args| args.controllers);
        let list = |names: &[&str]| Ok(Some(names.iter().map(|name| (*name).to_owned()).collect()));
        assert_eq!(said("profiling=false"), Ok(None));
        assert_eq!(said("controllers=*,-ttl"), list(&["*", "-ttl"]));
        assert_eq!(said("--controllers=job --controllers=cronjob"), list(&["job", "cronjob"]));
        for nothing in ["controllers", "controllers="] {
            assert!(said(nothing).is_err_and(|why| why.ends_with("must be NAME=VALUE")));
        }
    }

    #[test]
    fn what_cannot_be_is_told() {
        for (flag, expect) in [
            ("concurrent-deployment-syncs=0", "\"0\" must be a number between 1 and 1000"),
            ("concurrent-deployment-syncs=99999999999999999999", "must be a number between"),
            ("concurrent-deployment-syncs=many", "must be a number between"),
            ("max-endpoints-per-slice=1001", "\"1001\" must be a number between 1 and 1000"),
            ("horizontal-pod-autoscaler-tolerance=-1", "must be a number between 0 and"),
            ("horizontal-pod-autoscaler-tolerance=NaN", "must be a number between 0 and"),
            ("node-monitor-grace-period=20", "missing unit in duration"),
            ("node-monitor-grace-period=-2s", "must not be negative"),
            ("horizontal-pod-autoscaler-sync-period=1ms", "must be 1s or longer"),
            ("enable-garbage-collector=perhaps", "must be true or false"),
            ("cloud-provider=aws", "must be \"\" or \"external\""),
        ] {
            for told in [inside(flag), alone(&format!("--{flag}"))] {
                assert!(told.as_ref().is_err_and(|told| told.contains(expect)), "{flag}: {told:?}");
            }
        }
        for (flag, expect) in [
            ("node-monitor-grace-period", "must be NAME=VALUE"),
            ("concurrent-deploymint-syncs=3", "the controllers of a server have no such flag"),
            ("kubeconfig=f", "the controllers of a server have no such flag"),
            ("=3", "the controllers of a server have no such flag"),
        ] {
            assert!(inside(flag).is_err_and(|told| told.contains(expect)), "{flag}");
        }
    }

    #[test]
    fn each_row_is_one_flag_with_a_default_that_it_takes() {
        let mut names = std::collections::BTreeSet::new();
        for flag in FLAGS {
            assert!(names.insert(flag.name), "{} twice", flag.name);
            let is_open =
                flag.form == Form::Text || matches!(flag.effect, Effect::Nothing(_) | Effect::Only(..));
            assert!(is_open || flag.read(flag.default).is_ok(), "{}", flag.name);
        }
    }
}
