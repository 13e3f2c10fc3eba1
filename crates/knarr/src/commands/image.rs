//! `knarr image`: import, list and remove images of a Node.
//!
//! Works on the Node's image store, whether the cluster runs or not.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write, stdin};
use std::path::Path;

use anyhow::{Context, Result};
use base::Random;
use cli::args::ImageCommand;
use runtime::images::ImageStore;
use runtime::images::import::{Hints, import};

use crate::host::data_dir;
use crate::layout::Layout;

/// Does what was asked for.
pub(crate) fn run(command: &ImageCommand) -> Result<()> {
    match command {
        ImageCommand::Import { file, name, data } => add(&data.data_dir, file, name.clone()),
        ImageCommand::List(data) => list(&data.data_dir),
        ImageCommand::Rm { name, data } => remove(&data.data_dir, name),
    }
}

fn store(folder: &Path) -> Result<ImageStore> {
    let layout = Layout::new(folder)?;
    data_dir::claim(&layout)?;
    ImageStore::open(&layout.images()).context("open the image store")
}

fn add(data_dir: &Path, file: &str, name: Option<String>) -> Result<()> {
    let source: Box<dyn Read> = match file {
        "-" => Box::new(stdin().lock()),
        path => Box::new(File::open(path).with_context(|| format!("open {path}"))?),
    };
    let hints = Hints { name, ..Hints::default() };
    for image in import(&store(data_dir)?, source, &hints, &Random::from_system())? {
        writeln!(std::io::stdout(), "{}", Vec::from_iter(image.names).join(" "))?;
    }
    Ok(())
}

fn list(data_dir: &Path) -> Result<()> {
    let mut out = std::io::stdout();
    for image in store(data_dir)?.list() {
        writeln!(out, "{}", Vec::from_iter(image.names).join(" "))?;
    }
    Ok(())
}

fn remove(data_dir: &Path, name: &str) -> Result<()> {
    store(data_dir)?.remove(name, &BTreeSet::new())?;
    Ok(())
}
