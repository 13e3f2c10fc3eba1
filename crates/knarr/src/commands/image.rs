//! `knarr image`: import, list and remove images of a Node.
//!
//! Works on the Node's folder directly, whether the cluster runs or not: the image store is safe to share.

use std::fs::File;
use std::io::{Read, Write, stdin};
use std::path::Path;

use anyhow::{Context, Result};
use cli::args::ImageCommand;

use crate::layout::Layout;

/// Does what was asked for.
pub(crate) fn run(command: &ImageCommand) -> Result<()> {
    match command {
        ImageCommand::Import { file, name, data } => import(&data.data_dir, file, name.as_deref()),
        ImageCommand::List(data) => list(&data.data_dir),
        ImageCommand::Rm { name, data } => remove(&data.data_dir, name),
    }
}

fn store(data_dir: &Path) -> Result<runtime::images::ImageStore> {
    let layout = Layout::new(data_dir)?;
    runtime::images::ImageStore::open(&layout.images()).context("open the image store")
}

fn import(data_dir: &Path, file: &str, name: Option<&str>) -> Result<()> {
    let mut source: Box<dyn Read> = match file {
        "-" => Box::new(stdin().lock()),
        path => Box::new(File::open(path).with_context(|| format!("open {path}"))?),
    };
    for image in store(data_dir)?.import(&mut source, name)? {
        writeln!(std::io::stdout(), "{image}")?;
    }
    Ok(())
}

fn list(data_dir: &Path) -> Result<()> {
    let mut out = std::io::stdout();
    for image in store(data_dir)?.list()? {
        writeln!(out, "{}", image.names.join(" "))?;
    }
    Ok(())
}

fn remove(data_dir: &Path, name: &str) -> Result<()> {
    store(data_dir)?.remove(name)?;
    Ok(())
}
