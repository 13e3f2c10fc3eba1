//! Writes the table as Rust source: constant rows, so that nothing is parsed or built at start.

use super::join::{FieldRow, Table, Type};
use anyhow::{Context as _, Result};
use std::fmt::Write as _;
use std::path::Path;

const HEADER: &str = "// Made by `cargo xtask codegen`. Do not edit.\n\n";

/// Writes the files below `crates/schema/src/generated`.
pub(super) fn write(table: &Table, root: &Path) -> Result<()> {
    let directory = root.join("crates/schema/src/generated");
    std::fs::create_dir_all(&directory)?;
    std::fs::write(directory.join("messages.rs"), messages(table)?)?;
    std::fs::write(directory.join("kinds.rs"), kinds(table)?)?;
    println!("{} messages, {} kinds", table.messages.len(), table.kinds.len());
    Ok(())
}

fn messages(table: &Table) -> Result<String> {
    let mut out = String::from(HEADER);
    out.push_str("use crate::rows::*;\n\n");
    writeln!(out, "pub(crate) static LISTS: [List; {}] = [", table.lists.len())?;
    for list in &table.lists {
        let kind = match list.kind.as_str() {
            "map" => "ListKind::Map",
            "set" => "ListKind::Set",
            "atomic" => "ListKind::Atomic",
            _ => "ListKind::Unset",
        };
        writeln!(out, "l({}, {kind}, &{:?}),", ty(table, &list.item)?, list.keys)?;
    }
    writeln!(out, "];\n\npub(crate) static MAPS: [Type; {}] = [", table.maps.len())?;
    for value in &table.maps {
        writeln!(out, "{},", ty(table, value)?)?;
    }
    writeln!(out, "];\n\npub(crate) static MESSAGES: [Message; {}] = [", table.messages.len())?;
    for message in &table.messages {
        let flags = if message.atomic { "ATOMIC" } else { "0" };
        // A constant of its own, since values with a destructor are not promoted to statics.
        writeln!(out, "m({:?}, {flags}, {{ const F: &[Field] = &[", message.name)?;
        for row in &message.fields {
            writeln!(out, "{},", field(table, row)?)?;
        }
        out.push_str("]; F }),\n");
    }
    out.push_str("];\n");
    Ok(out)
}

fn field(table: &Table, row: &FieldRow) -> Result<String> {
    let flags = if row.flags.is_empty() { "0".to_owned() } else { row.flags.join(" | ") };
    let head = format!("{:?}, {}, {}, {flags}", row.name, ty(table, &row.ty)?, row.number);
    if row.via.is_empty() && row.merge_key.is_empty() && row.default.is_empty() {
        return Ok(format!("f({head})"));
    }
    Ok(format!("g({head}, &{:?}, {:?}, {:?})", row.via, row.merge_key, row.default))
}

fn ty(table: &Table, ty: &Type) -> Result<String> {
    Ok(match ty {
        Type::Plain(name) => (*name).to_owned(),
        Type::List(index) => format!("List({index})"),
        Type::Wrapped(index) => format!("Wrapped({index})"),
        Type::Map(index) => format!("Map({index})"),
        Type::Message(name) => {
            let index = table.messages.binary_search_by(|message| message.name.as_str().cmp(name));
            format!("Message({})", index.ok().with_context(|| format!("no message {name}"))?)
        }
    })
}

fn kinds(table: &Table) -> Result<String> {
    let mut out = String::from(HEADER);
    out.push_str("use crate::rows::*;\n\n");
    writeln!(out, "pub(crate) static KINDS: [Kind; {}] = [", table.kinds.len())?;
    for kind in &table.kinds {
        let index = ty(table, &Type::Message(kind.message.clone()))?;
        let index = index.trim_start_matches("Message(").trim_end_matches(')');
        writeln!(out, "k({:?}, {:?}, {:?}, {index}),", kind.group, kind.version, kind.kind)?;
    }
    out.push_str("];\n");
    Ok(out)
}
