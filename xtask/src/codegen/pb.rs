//! Reads the messages out of the source that prost generated for `k8s-pb`.
//!
//! The source is regular: one attribute per field on a line of its own, doc comments with `+markers` before it.
//! So it is read line by line, and `xtask` needs no Rust parser.

use anyhow::{Context as _, Result, bail};
use std::collections::BTreeMap;
use std::path::Path;

/// One protobuf message.
#[derive(Debug)]
pub(super) struct Message {
    /// The name in OpenAPI style, as prost spells the last part.
    pub(super) name: String,
    /// Whether `+structType=atomic` is set.
    pub(super) atomic: bool,
    /// The fields in order of declaration.
    pub(super) fields: Vec<Field>,
}

/// One field of a message.
#[derive(Clone, Debug)]
pub(super) struct Field {
    /// The name in Rust's spelling, without `r#`.
    pub(super) name: String,
    /// The field number on the wire.
    pub(super) number: u32,
    /// How often it occurs.
    pub(super) shape: Shape,
    /// A scalar's protobuf name, or the full name of a message.
    pub(super) element: String,
    /// The `+name=value` markers of the doc comment.
    pub(super) markers: BTreeMap<String, Vec<String>>,
}

/// How often a field occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// At most once.
    Single,
    /// Any number of times.
    List,
    /// Under string keys.
    Map,
}

/// Reads all `mod.rs` below `source`.
pub(super) fn read(source: &Path) -> Result<Vec<Message>> {
    let mut messages = Vec::new();
    walk(source, &mut Vec::new(), &mut messages)?;
    messages.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(messages)
}

fn walk(directory: &Path, package: &mut Vec<String>, messages: &mut Vec<Message>) -> Result<()> {
    let mut entries: Vec<_> = std::fs::read_dir(directory)?.collect::<std::io::Result<_>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            package.push(name);
            walk(&path, package, messages)?;
            package.pop();
        } else if name == "mod.rs" {
            let text = std::fs::read_to_string(&path)?;
            file(&text, package, messages).with_context(|| format!("read {}", path.display()))?;
        }
    }
    Ok(())
}

fn file(text: &str, package: &[String], messages: &mut Vec<Message>) -> Result<()> {
    let mut markers = BTreeMap::<String, Vec<String>>::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let trimmed = line.trim();
        if let Some(doc) = trimmed.strip_prefix("/// +") {
            let (name, value) = doc.split_once('=').unwrap_or((doc, ""));
            markers.entry(name.trim().to_owned()).or_default().push(value.trim().to_owned());
        } else if let Some(rest) = line.strip_prefix("pub struct ") {
            let name = rest.trim_end_matches(['{', '}', ' ']);
            let atomic = std::mem::take(&mut markers).get("structType").is_some_and(|v| v[0] == "atomic");
            messages.push(Message { name: full_name(package, name), atomic, fields: Vec::new() });
        } else if let Some(attribute) = trimmed.strip_prefix("#[prost(") {
            let mut declaration = String::new();
            while !declaration.ends_with(',')
                || declaration.matches('<').count() > declaration.matches('>').count()
            {
                declaration.push_str(lines.next().context("a field is cut off")?.trim());
            }
            let message = messages.last_mut().context("a field without a message")?;
            let field = field(attribute, &declaration, std::mem::take(&mut markers), package)?;
            message.fields.push(field);
        } else if line == "}" || trimmed.starts_with("impl") {
            markers.clear();
        }
    }
    Ok(())
}

fn field(
    attribute: &str,
    declaration: &str,
    markers: BTreeMap<String, Vec<String>>,
    package: &[String],
) -> Result<Field> {
    let number =
        attribute.split("tag = \"").nth(1).and_then(|rest| rest.split('"').next()).context("no tag")?;
    let (name, declared) = declaration
        .strip_prefix("pub ")
        .and_then(|rest| rest.split_once(':'))
        .with_context(|| format!("not a field: {declaration}"))?;
    let head = attribute.split(", tag").next().unwrap_or(attribute);
    let (shape, scalar) = if let Some(map) = head.strip_prefix("btree_map = \"string, ") {
        (Shape::Map, map.trim_end_matches('"').to_owned())
    } else {
        let kind = head.split([',', ' ']).next().unwrap_or_default().to_owned();
        (if head.contains("repeated") { Shape::List } else { Shape::Single }, kind)
    };
    let element = match scalar.as_str() {
        "message" => resolve(declared, package)?,
        "string" | "bool" | "int32" | "int64" | "double" | "bytes" => scalar,
        other => bail!("unknown protobuf type {other}"),
    };
    let name = name.trim_start_matches("r#").to_owned();
    Ok(Field { name, number: number.parse()?, shape, element, markers })
}

/// The full name of the message inside `declared`, such as `Option<super::super::core::v1::PodSpec>`.
fn resolve(declared: &str, package: &[String]) -> Result<String> {
    let inner =
        declared.trim_end_matches(['>', ',', ' ']).rsplit(['<', ',']).next().context("no type")?.trim();
    let mut scope = package.to_vec();
    let mut parts: Vec<&str> = inner.split("::").collect();
    while parts.first() == Some(&"super") {
        scope.pop().context("too many supers")?;
        parts.remove(0);
    }
    let name = parts.pop().context("no name")?;
    scope.extend(parts.into_iter().map(str::to_owned));
    Ok(full_name(&scope, name))
}

fn full_name(package: &[String], name: &str) -> String {
    format!("io.k8s.{}.{name}", package.join(".").replace('_', "-"))
}
