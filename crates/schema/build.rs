//! Takes the descriptions of API types out of the sources of the crate `k8s-openapi`, which the workspace builds on
//! anyway, and packs them for [`openapi`](src/openapi.rs) to embed.
//!
//! The texts are upstream's and stay out of this repository. Turning on the crate's own `schemars` feature instead
//! would compile a thousand schema functions into the binary for the sake of these texts.
//! The output is zlib: a line `=MESSAGE<tab>TEXT` per message, then `FIELD<tab>TEXT` per field of it.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::Compression;
use flate2::write::ZlibEncoder;

/// The sources' folder for the API level that is served.
const LEVEL: &str = "src/v1_35";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../../Cargo.lock");
    let mut files = Vec::new();
    collect(&sources()?.join(LEVEL), &mut files)?;
    files.sort();
    let mut out = String::new();
    for file in files {
        descriptions(&fs::read_to_string(file)?, &mut out)?;
    }
    if out.is_empty() {
        return Err("no description was found in the sources of k8s-openapi".into());
    }
    let path = PathBuf::from(std::env::var("OUT_DIR")?).join("descriptions.zlib");
    let mut encoder = ZlibEncoder::new(fs::File::create(path)?, Compression::best());
    encoder.write_all(out.as_bytes())?;
    encoder.finish()?;
    Ok(())
}

/// Where cargo keeps the crate: in its registry, or where `cargo metadata` says for vendored sources.
fn sources() -> Result<PathBuf, Box<dyn Error>> {
    let lock = fs::read_to_string("../../Cargo.lock")?;
    let version =
        lock.split("name = \"k8s-openapi\"\nversion = \"").nth(1).and_then(|rest| rest.split('"').next());
    let version = version.ok_or("k8s-openapi is not in the lock file")?;
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let registries = home.and_then(|home| fs::read_dir(home.join("registry/src")).ok());
    for registry in registries.into_iter().flatten() {
        let folder = registry?.path().join(format!("k8s-openapi-{version}"));
        if folder.join(LEVEL).is_dir() {
            return Ok(folder);
        }
    }
    let platform = std::env::var("TARGET")?;
    let output = Command::new(std::env::var("CARGO")?)
        .args(["metadata", "--format-version=1", "--locked", "--filter-platform", &platform])
        .output()?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|_| format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)))?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let found =
        packages.filter(|package| package["name"] == "k8s-openapi").find_map(|p| p["manifest_path"].as_str());
    let manifest = Path::new(found.ok_or("cargo metadata does not name k8s-openapi")?);
    Ok(manifest.parent().unwrap_or(manifest).to_owned())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// The text of a description, as an entry of an object or set on a reference's schema.
fn literal(line: &str) -> Option<&str> {
    let set = "schema_obj.ensure_object().insert(\"description\".into(), ";
    match line.strip_prefix("\"description\": ") {
        Some(literal) => literal.strip_suffix(','),
        None => line.strip_prefix(set)?.strip_suffix(".into());"),
    }
}

/// Reads the JSON schemas in a file by their indentation, which is a generator's and so always the same.
fn descriptions(source: &str, out: &mut String) -> Result<(), Box<dyn Error>> {
    let (mut message, mut field) = ("", "");
    for line in source.lines() {
        let text = line.trim_start();
        let depth = line.len() - text.len();
        if let Some(name) = text.strip_suffix("\".into()") {
            message = name.trim_start_matches('"');
            field = "";
        } else if let Some((name, "{" | "({")) = text.split_once("\": ").filter(|_| depth == 16) {
            field = name.trim_start_matches('"');
        } else if let Some(literal) = literal(text) {
            let text: String =
                serde_json::from_str(literal).unwrap_or_else(|_| literal.trim_matches('"').to_owned());
            // Lines are the format here: what breaks them is put back when they are read.
            let text = text.replace('\n', "\u{1}").replace('\t', "\u{2}");
            match depth {
                12 => writeln!(out, "={message}\t{text}")?,
                20 if !field.is_empty() => writeln!(out, "{field}\t{text}")?,
                _ => {}
            }
        }
    }
    Ok(())
}
