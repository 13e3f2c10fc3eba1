//! Command lines as operators write them, and what is said to them: tables that are compared as wholes.
//!
//! A row is `INPUT | OUTCOME`, and the outcome is `ok` or the first paragraph of what is printed; lines that begin with `#`
//! and empty ones are left as they are. `UPDATE_EXPECT=1` writes the outcomes anew, to be read in review.

use std::fmt::Write;

use clap::Parser;
use expect_test::{ExpectFile, expect_file};
use machinery::leader_election::LeaderElection;

use crate::controller_manager::OptionArgs;
use crate::kubelet::ConfigurationArgs;
use crate::{Cli, Command, args, validate};

/// Compares a table with what `outcome` says of its inputs.
fn check(table: ExpectFile, outcome: impl Fn(&str) -> String) {
    let (mut rendered, mut rows) = (String::new(), 0);
    for line in table.data().lines() {
        match line.split_once(" |") {
            Some((input, _)) if !line.starts_with('#') => {
                rows += 1;
                writeln!(rendered, "{input} | {}", outcome(input)).unwrap();
            }
            _ => writeln!(rendered, "{line}").unwrap(),
        }
    }
    assert!(rows > 20, "{rows} rows");
    table.assert_eq(&rendered);
}

/// The first paragraph, in one line.
fn paragraph(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
    lines.join(" ").trim_start_matches("error: ").to_owned()
}

fn checked(command: &Command) -> Result<(), String> {
    let text = |error: crate::usage_error::UsageError| error.to_string();
    match command {
        Command::Up(args) | Command::Server(args) => validate::server(args).map_err(text),
        Command::Doctor(args) => validate::server(&args.server).map_err(text),
        Command::Agent(args) => {
            validate::node_ip::alone(&args.node_ip).map_err(text)?;
            args.container_runtime.handlers().map_err(text)?;
            args.node_ports.networks().map(drop).map_err(text)
        }
        Command::Kubelet(args) => validate::node_ip::alone(&args.node_ip).map_err(text),
        Command::Proxy(args) => args.node_ports.networks().map(drop).map_err(text),
        Command::Why(args) => args::object(&args.object).map(drop).map_err(text),
        Command::Trace(args) => args::object(&args.object).map(drop).map_err(text),
        Command::Scheduler(args) => {
            validate::leader_election(&args.leader.or(LeaderElection::of("kube-scheduler"))).map_err(text)
        }
        Command::ControllerManager(args) => {
            let election = args.leader.or(LeaderElection::of("kube-controller-manager"));
            validate::leader_election(&election).map_err(text)
        }
        _ => Ok(()),
    }
}

#[test]
fn command_lines_are_taken_or_told_what_is_wrong() {
    check(expect_file!["tests/command_lines.txt"], |line| {
        // Two underscores are a blank within a word.
        let words = line.split(' ').map(|word| word.replace("__", " "));
        match Cli::try_parse_from(std::iter::once("knarr".to_owned()).chain(words)) {
            Err(error) => paragraph(&error),
            Ok(cli) => checked(&cli.command).err().unwrap_or_else(|| "ok".to_owned()),
        }
    });
}

/// Source: `TestAddFlags` of upstream's `cmd/kube-controller-manager/app/options`.
#[test]
fn flags_of_the_controller_manager_act_or_say_why_they_do_not() {
    check(expect_file!["tests/controller_manager_flags.txt"], |argument| {
        let args = match OptionArgs::from_pairs(&[argument.to_owned()]) {
            Ok(args) => args,
            Err(error) => {
                let text = error.to_string();
                let (_, why) = text.split_once(&format!("{argument}: ")).unwrap_or(("", &text));
                return format!("refused: {why}");
            }
        };
        let fields = args.fields.into_iter().map(|(_, value)| format!("acts: {value}"));
        let workers = args.workers.into_iter().map(|(name, number)| format!("{number} for {name}"));
        let nothing = args.without_effect.into_iter().map(|(_, why)| format!("nothing: {why}"));
        let controllers = args.controllers.into_iter().map(|all| format!("runs: {}", all.join(" ")));
        let all: Vec<String> = fields.chain(workers).chain(nothing).chain(controllers).collect();
        all.join("; ")
    });
}

/// Source: `AddKubeletFlags`, `AddKubeletConfigFlags` of upstream's `cmd/kubelet/app/options`.
#[test]
fn flags_of_the_kubelet_are_fields_of_its_configuration() {
    check(expect_file!["tests/kubelet_flags.txt"], |argument| {
        match ConfigurationArgs::from_pairs(&[argument.to_owned()]) {
            Ok(args) if args.fields != serde_json::json!({}) => args.fields.to_string(),
            Ok(_) => "ok".to_owned(),
            Err(error) => {
                let text = error.to_string();
                let (_, why) = text.split_once(&format!("{argument}: ")).unwrap_or(("", &text));
                format!("refused: {why}")
            }
        }
    });
}
