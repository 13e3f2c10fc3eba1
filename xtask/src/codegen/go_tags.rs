//! Makes `omit-zero.txt`: what Go's encoder leaves out of JSON, read off the struct tags in Go sources.
//!
//! `cargo xtask codegen go-tags <api> <apimachinery> <apiextensions-apiserver> <kube-aggregator>`, where each
//! argument is the source of the `k8s.io` module of that name at the version below. The result is committed, so
//! that making the tables does not need them.

use anyhow::{Context as _, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

const VERSION: &str = "v0.35.0";

/// The modules, where their types lie, and the prefix of their messages.
const MODULES: &[(&str, &str)] = &[
    ("", "io.k8s.api"),
    ("pkg/apis/meta/v1", "io.k8s.apimachinery"),
    ("pkg/apis/apiextensions/v1", "io.k8s.apiextensions-apiserver"),
    ("pkg/apis/apiregistration/v1", "io.k8s.kube-aggregator"),
];

/// Types of other packages that are structures.
const STRUCTURES: &[&str] = &[
    "EventSource",
    "JobSpec",
    "LabelSelector",
    "ListMeta",
    "ObjectMeta",
    "ObjectReference",
    "PersistentVolumeSpec",
    "PodSpec",
    "PodTemplateSpec",
    "UserInfo",
];
/// Structures with an encoding of their own, which `omitempty` does not leave out.
const SPECIAL: &[&str] = &[
    "Duration",
    "FieldsV1",
    "IntOrString",
    "JSON",
    "MicroTime",
    "Object",
    "Quantity",
    "RawExtension",
    "Time",
];
/// Types of other packages that are texts, lists or maps.
const PLAIN: &[&str] = &[
    "ConditionStatus",
    "FinalizerName",
    "NamespacedName",
    "NodeName",
    "Protocol",
    "PullPolicy",
    "ResourceList",
    "ResourceName",
    "StatusReason",
    "UID",
    "URIScheme",
    "Verbs",
];

/// Reads the modules' sources and writes `omit-zero.txt`.
pub(super) fn run(sources: &[String]) -> Result<()> {
    let mut rows = BTreeMap::<String, BTreeSet<String>>::new();
    for ((folder, prefix), source) in MODULES.iter().zip(sources) {
        let mut files = Vec::new();
        find(Path::new(source), folder, &mut files)?;
        for (package, texts) in files {
            let structures: BTreeSet<&str> =
                texts.iter().flat_map(|text| text.lines()).filter_map(structure).collect();
            for text in &texts {
                read(text, &format!("{prefix}.{}", package.replace('/', ".")), &structures, &mut rows);
            }
        }
    }
    let mut out = format!(
        "# Per message the fields that Go leaves out of JSON when they are zero: `omitempty` and not a pointer.\n\
         # `name{{}}` is a structure held by value, which Go always writes; `name?` is written as null when not set.\n\
         # Read off the struct tags of k8s.io/api, apimachinery, apiextensions-apiserver and kube-aggregator, \
         {VERSION}.\n"
    );
    for (message, fields) in rows {
        let fields: Vec<String> = fields.into_iter().collect();
        writeln!(out, "{message} {}", fields.join(" "))?;
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/codegen/omit-zero.txt");
    std::fs::write(&file, out).with_context(|| format!("write {}", file.display()))
}

/// The texts of the files that declare types, by folder.
fn find(root: &Path, folder: &str, found: &mut Vec<(String, Vec<String>)>) -> Result<()> {
    let mut texts = Vec::new();
    let directory = root.join(folder);
    let entries = std::fs::read_dir(&directory).with_context(|| format!("read {}", directory.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            if !name.starts_with('.') {
                let inner = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                find(root, &inner, found)?;
            }
        } else if name.starts_with("types") && name.ends_with(".go") && !name.contains("swagger") {
            texts.push(std::fs::read_to_string(entry.path())?);
        }
    }
    if !texts.is_empty() {
        found.push((folder.to_owned(), texts));
    }
    Ok(())
}

/// The name of the structure that a line opens.
fn structure(line: &str) -> Option<&str> {
    let (name, rest) = line.strip_prefix("type ")?.split_once(' ')?;
    matches!(rest, "struct {" | "struct{}").then_some(name)
}

fn read(
    text: &str,
    package: &str,
    structures: &BTreeSet<&str>,
    rows: &mut BTreeMap<String, BTreeSet<String>>,
) {
    let mut current = None;
    for line in text.lines() {
        if let Some(name) = structure(line) {
            current = line.ends_with('{').then_some(name);
        } else if line == "}" {
            current = None;
        } else if let Some(name) = current
            && let Some(fact) = field(line, structures)
        {
            rows.entry(format!("{package}.{name}")).or_default().insert(fact);
        }
    }
}

/// What a field's line says: its JSON name, with `{}` if it is a structure by value, with `?` if nothing is null.
fn field(line: &str, structures: &BTreeSet<&str>) -> Option<String> {
    let (declaration, tags) = line.strip_prefix('\t')?.split_once('`')?;
    let ty = declaration.split_whitespace().last()?;
    let mut json = tags.split("json:\"").nth(1)?.split('"').next()?.split(',');
    let name = json.next().filter(|name| !name.is_empty() && *name != "-")?;
    let options: Vec<&str> = json.collect();
    let base = ty.rsplit('.').next().unwrap_or(ty);
    let is_nil = ["*", "[]", "map["].iter().any(|start| ty.starts_with(start));
    if declaration.starts_with("//") || (ty.starts_with('*') && options.contains(&"omitempty")) {
        return None;
    }
    let is_null = match is_nil {
        true => !options.contains(&"omitempty"),
        // An encoding of their own, which knows of nothing.
        false => ["MicroTime", "RawExtension", "Time"].contains(&base),
    };
    if is_null {
        return (!options.contains(&"omitzero")).then(|| format!("{name}?"));
    }
    if structures.contains(ty) || STRUCTURES.contains(&base) {
        return (!options.contains(&"omitzero")).then(|| format!("{name}{{}}"));
    }
    let is_plain = ty.starts_with("[]")
        || ty.starts_with("map[")
        || (!SPECIAL.contains(&base) && (!ty.contains('.') || PLAIN.contains(&base)));
    (options.contains(&"omitempty") && is_plain).then(|| name.to_owned())
}
