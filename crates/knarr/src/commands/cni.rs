//! `knarr cni`: the built-in network's plugins for other container runtimes, as links to this program.

use anyhow::{Context, Result, bail};
use cli::args::cni::{CniCommand, CniFolderArgs, CniInstallArgs};
use cli::usage_error::UsageError;
use cni::plugin::{self, Installed};
use machinery::net::Cidrs;

use crate::layout::Layout;

/// An interface's name has at most so many bytes.
const LINK_NAME_BYTES_MAX: usize = 15;

/// Does what was asked for.
pub(crate) fn run(command: &CniCommand) -> Result<()> {
    match command {
        CniCommand::Install(args) => install(args),
        CniCommand::Uninstall(args) => uninstall(args),
    }
}

fn install(args: &CniInstallArgs) -> Result<()> {
    let is_name = |name: &str| {
        !name.is_empty()
            && name.len() <= LINK_NAME_BYTES_MAX
            && name.chars().all(|char| char.is_ascii_alphanumeric() || "-_.".contains(char))
    };
    if !is_name(&args.bridge) {
        bail!(UsageError(format!(
            "--bridge {:?} must be a name of at most 15 letters and digits",
            args.bridge
        )));
    }
    let cluster_cidrs = checked("--cluster-cidr", args.cluster_cidr)?;
    let file = Layout::new(&args.data.data_dir)?.pod_cidr();
    let pod_cidrs = match args.pod_cidr {
        Some(cidr) => checked("--pod-cidr", cidr)?,
        None if file.exists() => {
            let text = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
            checked("the Node's range", text.trim().parse()?)?
        }
        None => crate::components::first_ranges(cluster_cidrs)?,
    };
    let state_dir =
        args.state_dir.as_ref().map(std::path::absolute).transpose().context("find --state-dir")?;
    let conf = Installed { bridge: args.bridge.clone(), pod_cidrs, cluster_cidrs, mtu: args.mtu, state_dir };
    let program = std::env::current_exe().context("find this program")?;
    let CniFolderArgs { bin_dir, conf_dir } = &args.folders;
    let made = plugin::install(bin_dir, conf_dir, &program, &conf).context("install the plugins")?;
    made.iter().for_each(|path| eprintln!("made {}", path.display()));
    Ok(())
}

fn uninstall(args: &CniFolderArgs) -> Result<()> {
    let program = std::env::current_exe().context("find this program")?;
    let removed = plugin::uninstall(&args.bin_dir, &args.conf_dir, &program).context("remove the plugins")?;
    removed.iter().for_each(|path| eprintln!("removed {}", path.display()));
    Ok(())
}

fn checked(flag: &str, cidrs: Cidrs) -> Result<Cidrs> {
    match cidrs.iter().find(|cidr| cidr.size() < 4) {
        Some(small) => bail!(UsageError(format!("{flag} {small} must be a network with room for two Pods"))),
        None => Ok(cidrs),
    }
}
