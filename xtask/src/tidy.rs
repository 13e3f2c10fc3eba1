//! Rules that no compiler checks: the layers and edges of the crates, circles among modules, file length, module docs,
//! duplication, features, what others' code may be, what waits for time.
//!
//! `docs/crates.toml` is the golden graph: a new edge shows up there first. What counts as a copy is in [`clones`],
//! what as a circle in [`modules`], why every crate is to be built with the same libraries in [`features`], which libraries may be
//! taken in [`supply`], and what may wait in [`waits`].

mod clones;
mod features;
mod functions;
mod modules;
mod supply;
mod waits;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Longer files, tests left out, hold more than one idea.
const FILE_LINES_MAX: usize = 800;
const GOLDEN: &str = "docs/crates.toml";

/// Checks every rule; prints each breach.
pub(crate) fn run() -> Result<()> {
    let root = root()?;
    let mut breaches = Vec::new();
    let crates = read_real()?;
    let golden = read_golden(&fs::read_to_string(root.join(GOLDEN)).context("read docs/crates.toml")?)?;
    check_graph(&golden, &crates, &mut breaches);
    modules::check(&root, crates.keys().map(String::as_str), &mut breaches)?;
    features::check(&root, crates.keys().map(String::as_str), &mut breaches)?;
    supply::check(&root, &mut breaches)?;
    let mut functions = Vec::new();
    for file in rust_files(&root)? {
        let text = fs::read_to_string(&file)?;
        let name = file.strip_prefix(&root).unwrap_or(&file).display().to_string();
        check_file(&name, &text, &mut breaches);
        if !is_test(&name) {
            functions.extend(functions::of_file(&name, &text).with_context(|| format!("parse {name}"))?);
        }
    }
    waits::check(&root, &functions, &mut breaches)?;
    breaches.extend(clones::find(&functions, clones::TOKENS_MIN).iter().map(ToString::to_string));
    for breach in &breaches {
        eprintln!("tidy: {breach}");
    }
    if !breaches.is_empty() {
        bail!("{} rules are broken", breaches.len());
    }
    eprintln!(
        "tidy: layers, circles, file lengths, module docs, features, licences and waits are in order, and nothing is said twice"
    );
    Ok(())
}

/// The workspace's folder.
pub(crate) fn root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(here.parent().context("xtask lies in the workspace")?.to_owned())
}

fn check_file(name: &str, text: &str, breaches: &mut Vec<String>) {
    let is_test = is_test(name);
    if !is_test && !text.starts_with("//!") {
        breaches.push(format!("{name}: a file opens with `//!`: what it is for"));
    }
    let code = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count();
    if !is_test && code > FILE_LINES_MAX {
        breaches.push(format!("{name}: {code} lines without tests, {FILE_LINES_MAX} at most"));
    }
    if name.starts_with("crates/") && !is_test && text.contains("todo!(") {
        breaches.push(format!("{name}: has a todo!"));
    }
}

fn is_test(name: &str) -> bool {
    name.contains("/tests/") || name.ends_with("/tests.rs")
}

fn rust_files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![root.join("crates"), root.join("xtask")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() && !path.ends_with("generated") && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// A crate in the golden graph.
#[derive(Debug, PartialEq)]
struct Golden {
    layer: u32,
    edges: Vec<String>,
}

fn check_graph(
    golden: &BTreeMap<String, Golden>,
    real: &BTreeMap<String, Vec<String>>,
    breaches: &mut Vec<String>,
) {
    for (name, edges) in real {
        let Some(known) = golden.get(name) else {
            breaches.push(format!("{GOLDEN}: crate {name} is missing"));
            continue;
        };
        if known.edges != *edges {
            breaches.push(format!(
                "{GOLDEN}: {name} depends on {edges:?}, the golden graph says {:?}",
                known.edges
            ));
        }
        for edge in edges {
            if golden.get(edge).is_some_and(|below| below.layer >= known.layer) {
                breaches.push(format!("{name} may depend on lower layers only, {edge} is not below it"));
            }
        }
    }
    for name in golden.keys().filter(|name| !real.contains_key(*name)) {
        breaches.push(format!("{GOLDEN}: there is no crate {name}"));
    }
}

/// Reads lines like `base = { layer = 0, edges = [] }`.
fn read_golden(text: &str) -> Result<BTreeMap<String, Golden>> {
    let mut crates = BTreeMap::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (name, rest) = line.split_once('=').with_context(|| format!("{GOLDEN}: {line}"))?;
        let layer = between(rest, "layer =", ",").with_context(|| format!("{GOLDEN}: no layer in {line}"))?;
        let edges = between(rest, "[", "]").with_context(|| format!("{GOLDEN}: no edges in {line}"))?;
        let edges = edges.split(',').map(|edge| edge.trim().trim_matches('"').to_owned());
        let edges = edges.filter(|edge| !edge.is_empty()).collect();
        crates.insert(name.trim().to_owned(), Golden { layer: layer.trim().parse()?, edges });
    }
    Ok(crates)
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let rest = text.split_once(start)?.1;
    Some(rest.split_once(end)?.0)
}

/// What cargo says: each workspace crate with the workspace crates that it depends on, tests left out.
fn read_real() -> Result<BTreeMap<String, Vec<String>>> {
    let output = std::process::Command::new("cargo")
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .output()
        .context("run cargo metadata")?;
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("read cargo metadata")?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    let mut crates = BTreeMap::new();
    for package in packages {
        let mut edges: Vec<String> = package["dependencies"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|dependency| dependency["kind"].is_null() && dependency["path"].is_string())
            .filter_map(|dependency| dependency["name"].as_str().map(str::to_owned))
            .collect();
        edges.sort();
        crates.insert(package["name"].as_str().unwrap_or_default().to_owned(), edges);
    }
    Ok(crates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_golden_graph_is_read() {
        let golden = read_golden(
            "# layers\nbase = { layer = 0, edges = [] }\nstore = { layer = 1, edges = [\"base\"] }\n",
        );
        let golden = golden.expect("valid");
        assert_eq!(golden["base"], Golden { layer: 0, edges: Vec::new() });
        assert_eq!(golden["store"], Golden { layer: 1, edges: vec!["base".into()] });
    }

    #[test]
    fn breaches_are_found() {
        let mut breaches = Vec::new();
        check_file("crates/a/src/lib.rs", "fn f() {}\n", &mut breaches);
        check_file("crates/a/src/b.rs", &format!("//! B\n{}", "x\n".repeat(900)), &mut breaches);
        check_file(
            "crates/a/src/c.rs",
            &format!("//! C\n#[cfg(test)]\n{}", "x\n".repeat(900)),
            &mut breaches,
        );
        assert_eq!(breaches.len(), 2, "{breaches:?}");
    }
}
