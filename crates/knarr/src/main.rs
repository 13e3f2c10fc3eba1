//! The one binary: reads the command line and starts what was asked for.
//!
//! Two entries come before everything else, because they must stay single-threaded and small: the Pod's shim and
//! the built-in `hello` server. Exit codes: 0 done, 1 failed with one line that says why, 2 wrong usage.

mod commands;
mod components;
mod hello;
mod host;
mod layout;
mod supervisor;

use std::process::ExitCode;

use clap::Parser;
use cli::args::LogFormat;
use cli::{Cli, Command};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("shim") => return runtime::shim::main(arguments.map(Into::into)),
        Some("hello-server") => return hello::serve(),
        _ => {}
    }
    let cli = Cli::parse();
    start_log(cli.log_format, cli.verbose);
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line: what was attempted, then each cause.
            eprintln!("knarr: {}", format!("{error:#}").replace('\n', " "));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Demo(args) => commands::demo::run(&args),
        Command::Up(args) => commands::up::run(&args),
        Command::Down(args) => commands::down::run(&args.data_dir),
        Command::Reset(args) => commands::reset::run(&args),
        Command::Server(args) => commands::server::run(args),
        Command::Status(args) => commands::status::run(&args.data_dir),
        Command::Trace(args) => commands::trace::run(&args),
        Command::Image(args) => commands::image::run(&args.command),
        Command::ControllerManager(args) => commands::part::controller_manager(&args.kubeconfig),
        Command::Scheduler(args) => commands::part::scheduler(&args.kubeconfig),
        Command::Kubelet(args) => commands::part::kubelet(&args),
        Command::Version => commands::version::run(),
    }
}

fn start_log(format: LogFormat, verbose: u8) {
    let level = match verbose {
        0 => "info",
        1 => "debug",
        _ => "trace",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("KNARR_LOG").unwrap_or_else(|_| {
        tracing_subscriber::EnvFilter::new(format!(
            "{level},hyper=warn,h2=warn,rustls=warn,hickory_server=warn"
        ))
    });
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    match format {
        LogFormat::Text => log.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init(),
        LogFormat::Json => log.json().init(),
    }
}
