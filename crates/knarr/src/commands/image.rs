//! `knarr image`: pull, import, list and remove images of a Node.
//!
//! Works on the Node's image store, whether the cluster runs or not; of a cluster of several Nodes on this host on all of
//! theirs, and lists those of the first.

use std::fs::File;
use std::io::{IsTerminal, Read, Write, stdin};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use base::{Clock, Random, Tasks};
use cli::args::{ImageCommand, ImagePullArgs, Output};
use registry::Credentials;
use runtime::images::import::{Hints, import};
use runtime::images::pull::{Progress, PullError, Puller, PullerConfig};
use runtime::images::{Image, ImageStore};

use crate::async_runtime::AsyncRuntime;
use crate::components::{self, Settings};
use crate::host::data_dir;
use crate::layout::Layout;

/// Does what was asked for.
pub(crate) fn run(command: &ImageCommand) -> Result<()> {
    match command {
        ImageCommand::Pull(args) => pull(args),
        ImageCommand::Import { file, name, output, data } => add(&data.data_dir, file, name.clone(), *output),
        ImageCommand::List { output, data } => print(&store(&data.data_dir)?.0.list(), *output),
        ImageCommand::Rm { names, data } => remove(&data.data_dir, names),
    }
}

fn store(folder: &Path) -> Result<(ImageStore, Layout)> {
    let layout = Layout::new(folder)?;
    data_dir::claim(&layout)?;
    Ok((ImageStore::open(&layout.images()).context("open the image store")?, layout))
}

/// Those of the other Nodes that are in the cluster's folder.
fn stores_beside(layout: &Layout) -> Result<Vec<(ImageStore, Layout)>> {
    let nodes = components::local_nodes(layout)?.into_iter();
    nodes.filter(|node| node.layout.version().exists()).map(|node| store(node.layout.root())).collect()
}

fn pull(args: &ImagePullArgs) -> Result<()> {
    let (first, layout) = store(&args.data.data_dir)?;
    let beside = stores_beside(&layout)?;
    let credentials = match args.creds.as_ref().map(|creds| creds.0.split_once(':')) {
        None => None,
        Some(Some((username, password))) => {
            Some(Credentials::Password { username: username.to_owned(), password: password.to_owned() })
        }
        Some(None) => bail!(cli::usage_error::UsageError("--creds must be USERNAME:PASSWORD".into())),
    };
    // The same as the Node's, if there is one.
    let settings =
        Settings::load(&layout).ok().map(|settings| settings.args.container_runtime.private_registry);
    let registries = args.private_registry.clone().or(settings);
    let registries = registries.unwrap_or_else(cli::args::default_private_registry);
    let runtime = AsyncRuntime::on_threads("image")?;
    let pulled = runtime.block_on(async {
        let mut pulled = pull_into(first, args, &credentials, &registries).await?;
        for (store, _) in beside {
            pulled = pull_into(store, args, &credentials, &registries).await?;
        }
        Ok(pulled)
    });
    let image = pulled.map_err(|error: Arc<PullError>| anyhow::anyhow!(base::error_chain(&*error)))?;
    print(&[image], args.output)
}

async fn pull_into(
    store: ImageStore,
    args: &ImagePullArgs,
    credentials: &Option<Credentials>,
    registries: &Path,
) -> Result<Image, Arc<PullError>> {
    let tasks = Tasks::new();
    let config = PullerConfig {
        registries: registries.to_owned(),
        tasks: tasks.clone(),
        clock: Clock::system(),
        random: Random::from_system(),
    };
    let puller = Puller::new(Arc::new(store), config);
    let mut told = Told::default();
    let pulled = puller.pull(&args.name, credentials.clone(), |progress| told.tell(progress)).await;
    tasks.stop_and_wait().await;
    pulled
}

/// What was said last of how far a pull is.
#[derive(Default)]
struct Told(Progress);

impl Told {
    /// A line per layer that is done; on a terminal, a line that changes with each megabyte.
    fn tell(&mut self, now: Progress) {
        let is_terminal = std::io::stderr().is_terminal();
        let is_new = now.layers != self.0.layers || now.layers_done != self.0.layers_done;
        if now.layers == 0
            || !(is_new || is_terminal && now.bytes_done.abs_diff(self.0.bytes_done) >= 1 << 20)
        {
            return;
        }
        self.0 = now;
        let start = if is_terminal { "\r" } else { "" };
        let is_last = now.layers_done == now.layers;
        let end = if is_terminal && !is_last { "" } else { "\n" };
        let line = format!(
            "{start}{} of {} layers, {} of {}{end}",
            now.layers_done,
            now.layers,
            megabytes(now.bytes_done),
            megabytes(now.bytes)
        );
        let mut stderr = std::io::stderr();
        if write!(stderr, "{line}").and_then(|()| stderr.flush()).is_err() {
            // Nobody listens any more; the work goes on.
        }
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10)
}

fn add(data_dir: &Path, file: &str, name: Option<String>, output: Output) -> Result<()> {
    let source: Box<dyn Read> = match file {
        "-" => Box::new(stdin().lock()),
        path => Box::new(File::open(path).with_context(|| format!("open {path}"))?),
    };
    let hints = Hints { name, ..Hints::default() };
    let random = Random::from_system();
    let (first, layout) = store(data_dir)?;
    let beside = stores_beside(&layout)?;
    if beside.is_empty() {
        return print(&import(&first, source, &hints, &random)?, output);
    }
    // Read several times.
    let spool = first.temporary(&random);
    let imported = spooled(source, &spool).and_then(|()| {
        let read = || File::open(&spool).with_context(|| format!("open {}", spool.display()));
        for (store, _) in &beside {
            import(store, read()?, &hints, &random)?;
        }
        Ok(import(&first, read()?, &hints, &random)?)
    });
    std::fs::remove_file(&spool).with_context(|| format!("remove {}", spool.display()))?;
    print(&imported?, output)
}

fn spooled(mut source: Box<dyn Read>, to: &Path) -> Result<()> {
    let mut file = File::create(to).with_context(|| format!("create {}", to.display()))?;
    std::io::copy(&mut source, &mut file).context("spool the archive")?;
    Ok(())
}

/// One line each, or all that is known.
fn print(images: &[Image], output: Output) -> Result<()> {
    let mut out = std::io::stdout();
    if output == Output::Json {
        let list: Vec<_> = images
            .iter()
            .map(|image| {
                serde_json::json!({
                    "id": image.id, "names": image.names, "sizeBytes": image.size_bytes,
                    "layers": image.layers.len(), "pinned": image.is_pinned,
                })
            })
            .collect();
        writeln!(out, "{}", serde_json::to_string_pretty(&list)?)?;
        return Ok(());
    }
    for image in images {
        let names = Vec::from_iter(image.names.iter().map(String::as_str)).join(" ");
        writeln!(out, "{}", if names.is_empty() { &image.id } else { &names })?;
    }
    Ok(())
}

fn remove(data_dir: &Path, names: &[String]) -> Result<()> {
    let first = store(data_dir)?;
    let mut stores = stores_beside(&first.1)?;
    stores.insert(0, first);
    for name in names {
        if stores.iter().all(|(store, _)| store.find(name).is_none()) {
            bail!("there is no image {name}; `knarr image list` shows those that there are");
        }
        for (store, layout) in stores.iter().filter(|(store, _)| store.find(name).is_some()) {
            let in_use = runtime::layers_in_use(&layout.runtime()).context("look which layers are in use")?;
            store.remove(name, &in_use)?;
        }
    }
    Ok(())
}
