//! The one binary: reads the command line and starts what was asked for.
//!
//! Four entries come before everything else, because they must stay single-threaded and small: a network plugin, which
//! is a link to the program by another name, the Pod's shim, the built-in `hello` server, and the editor of a user's
//! kubeconfig. Exit codes: 0 done, 1 failed with one line that says why, 2 wrong usage.

mod allocator;
mod async_runtime;
mod commands;
mod components;
mod hello;
mod host;
mod kube_client;
mod layout;
mod preflight;
mod ready;
mod supervisor;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use cli::args::{CommonArgs, LogFormat};
use cli::usage_error::UsageError;
use cli::{Cli, Command};
use machinery::features;

/// Wrong usage, as everywhere.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    if let Some(plugin) = plugin() {
        return cni::plugin::main(plugin);
    }
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("shim") => return runtime::shim::main(arguments.map(Into::into)),
        Some("hello-server") => return hello::serve(),
        Some("edit-kubeconfig") => return components::edit_kubeconfig(),
        _ => {}
    }
    if let Err(error) = sys::process::set_name(name()) {
        eprintln!("knarr: {error}");
    }
    match parse().and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line: what was attempted, then each cause.
            eprintln!("knarr: {}", format!("{error:#}").replace('\n', " "));
            if error.is::<UsageError>() { ExitCode::from(EXIT_USAGE) } else { ExitCode::FAILURE }
        }
    }
}

/// What `ps` and `top` call this process: it may have been executed by a path that says nothing.
fn name() -> &'static str {
    match std::env::var(supervisor::PART_VARIABLE).ok().as_deref() {
        Some("control-plane") => "knarr-control",
        Some("node") => "knarr-node",
        Some("ingress") => "knarr-ingress",
        _ => "knarr",
    }
}

/// The network plugin that the program is called by the name of.
fn plugin() -> Option<cni::plugin::Kind> {
    let program = std::env::args_os().next()?;
    cni::plugin::Kind::of(Path::new(&program).file_name()?.to_str()?)
}

/// The command line, with what configuration files add to it.
fn parse() -> anyhow::Result<Cli> {
    let given: Vec<OsString> = std::env::args_os().collect();
    // The parts have read theirs as settings, which the supervisor made of it.
    let arguments = if std::env::var_os(supervisor::PART_VARIABLE).is_some() {
        given
    } else {
        cli::config::with_files(given, &|name| std::env::var_os(name), Path::new(cli::config::DEFAULT_FILE))
            .map_err(|error| UsageError(format!("{:#}", anyhow::Error::from(error))))?
    };
    Cli::try_parse_from(arguments).map_err(|error| {
        use ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
        let is_help = matches!(error.kind(), DisplayHelp | DisplayHelpOnMissingArgumentOrSubcommand);
        if is_help || error.kind() == DisplayVersion {
            error.exit();
        }
        UsageError(one_line(&error.render().to_string())).into()
    })
}

/// What clap says in many lines: the error and its tips, without the usage; of that the command to ask for help.
fn one_line(message: &str) -> String {
    let usage = message.lines().find_map(|line| line.trim().strip_prefix("Usage: "));
    let is_word = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
    let command =
        usage.unwrap_or("knarr").split_whitespace().take_while(is_word).collect::<Vec<_>>().join(" ");
    let lines = message.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let words: Vec<&str> = lines.filter(|line| !line.is_empty() && !line.starts_with("For more")).collect();
    let text = words.join("; ").replace(":; ", ": ");
    format!("{}; see `{command} --help`", text.trim_start_matches("error: "))
}

fn run(cli: Cli) -> anyhow::Result<()> {
    let common = &cli.common;
    machinery::version::built_from(commands::version::BUILD);
    start_log(common);
    features::turn_on(&common.feature_gates).map_err(|why| UsageError(format!("--feature-gates: {why}")))?;
    match &cli.command {
        Command::Demo(args) => commands::demo::run(args, common),
        Command::Up(args) => commands::up::run(args, common),
        Command::Down(args) => commands::down::run(&args.data_dir),
        Command::Reset(args) => commands::reset::run(args),
        Command::Server(args) => commands::server::run(args, common),
        Command::Agent(args) => commands::agent::run(args, common),
        Command::Token(args) => commands::token::run(&args.command),
        Command::Status(args) => commands::status::run(args),
        Command::Trace(args) => commands::trace::run(args, common),
        Command::Why(args) => commands::why::run(args),
        Command::Doctor(args) => commands::doctor::run(args),
        Command::Backup(args) => commands::backup::run(args),
        Command::Restore(args) => commands::restore::run(args),
        Command::Image(args) => commands::image::run(&args.command),
        Command::Secrets(args) => commands::secrets::run(&args.command),
        Command::ControllerManager(args) => commands::part::controller_manager(args),
        Command::CloudControllerManager(args) => commands::part::cloud_controller_manager(args),
        Command::Scheduler(args) => commands::part::scheduler(args),
        Command::Kubelet(args) => commands::part::kubelet(args),
        Command::CsiHostpath(args) => commands::csi_hostpath::run(args),
        Command::Proxy(args) => commands::part::proxy(args),
        Command::Cni(args) => commands::cni::run(&args.command),
        Command::Completion { shell } => commands::completion::run(*shell),
        Command::Version => commands::version::run(),
    }
}

fn start_log(args: &CommonArgs) {
    let level = match args.verbose {
        0 => "info",
        1 => "debug",
        _ => "trace",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("KNARR_LOG").unwrap_or_else(|_| {
        tracing_subscriber::EnvFilter::new(format!(
            "{level},hyper=warn,h2=warn,rustls=warn,tower=warn,hickory_server=warn,kube_client=off"
        ))
    });
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    match args.log_format {
        LogFormat::Text => log.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init(),
        LogFormat::Json => log.json().init(),
    }
}
