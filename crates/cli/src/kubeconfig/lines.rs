//! Edits of a mapping in YAML's block style, by lines: what is not touched stays byte for byte.

use serde_json::Value;

/// Where the entries of a list are, as line numbers.
struct Block {
    key: usize,
    /// After the last line of the last entry.
    end: usize,
    /// First lines of entries.
    items: Vec<usize>,
    indent: usize,
}

/// The lines of an entry, without indentation.
pub(super) fn item(item: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    let Value::Object(fields) = item else { return lines };
    lines.push(format!("- name: {}", item["name"].as_str().unwrap_or_default()));
    for (field, content) in fields.iter().filter(|(field, _)| *field != "name") {
        lines.push(format!("  {field}:"));
        let Value::Object(content) = content else { continue };
        let content = content.iter();
        lines
            .extend(content.map(|(name, text)| format!("    {name}: {}", text.as_str().unwrap_or_default())));
    }
    lines
}

/// Puts an entry behind the others of a list.
pub(super) fn insert(text: &str, list: &str, item: &[String]) -> Option<String> {
    let mut all: Vec<String> = text.split_inclusive('\n').map(ToOwned::to_owned).collect();
    if let Some(last) = all.last_mut().filter(|last| !last.ends_with('\n')) {
        last.push('\n');
    }
    let Some(key) = find(&all, list) else {
        all.push(format!("{list}:\n"));
        all.extend(item.iter().map(|line| format!("{line}\n")));
        return Some(all.concat());
    };
    match value(all.get(key)?, list) {
        "" => {}
        "[]" | "null" | "~" => *all.get_mut(key)? = format!("{list}:\n"),
        _ => return None,
    }
    let block = block(&all, key);
    let indent = " ".repeat(block.indent);
    let new: Vec<String> = item.iter().map(|line| format!("{indent}{line}\n")).collect();
    all.splice(block.end..block.end, new);
    Some(all.concat())
}

/// Takes the entry of this name out of a list.
pub(super) fn remove(text: &str, list: &str, name: &str) -> Option<String> {
    let mut all: Vec<String> = text.split_inclusive('\n').map(ToOwned::to_owned).collect();
    let key = find(&all, list)?;
    let block = block(&all, key);
    let ends = block.items.iter().skip(1).copied().chain([block.end]);
    let is_named = |(start, end): &(usize, usize)| {
        let text = all.get(*start..*end).unwrap_or_default().concat();
        let read: Option<Vec<Value>> = serde_saphyr::from_str(&text).ok();
        read.is_some_and(|read| read.first().is_some_and(|item| item["name"] == name))
    };
    let (start, end) = block.items.iter().copied().zip(ends).find(is_named)?;
    all.drain(start..end);
    if block.items.len() == 1 {
        *all.get_mut(block.key)? = format!("{list}: []\n");
    }
    Some(all.concat())
}

/// Gives a field another text; a comment behind it stays.
pub(super) fn set(text: &str, field: &str, value: &str) -> String {
    let mut all: Vec<String> = text.split_inclusive('\n').map(ToOwned::to_owned).collect();
    match find(&all, field).and_then(|found| all.get_mut(found)) {
        Some(line) => {
            let comment = line.split_once(" #").map(|(_, comment)| format!(" #{}", comment.trim_end()));
            *line = format!("{field}: {value}{}\n", comment.unwrap_or_default());
        }
        None => all.push(format!("{field}: {value}\n")),
    }
    all.concat()
}

fn find(all: &[String], field: &str) -> Option<usize> {
    all.iter().position(|line| line.strip_prefix(field).is_some_and(|rest| rest.starts_with(':')))
}

/// What stands behind the key, without comments.
fn value<'a>(line: &'a str, key: &str) -> &'a str {
    let rest = line.get(key.len() + 1..).unwrap_or_default().trim();
    if rest.starts_with('#') { "" } else { rest.split(" #").next().unwrap_or_default().trim() }
}

fn block(all: &[String], key: usize) -> Block {
    let mut block = Block { key, end: key + 1, items: Vec::new(), indent: 0 };
    for (number, line) in all.iter().enumerate().skip(key + 1) {
        let content = line.trim_start();
        if content.trim().is_empty() || content.starts_with('#') {
            continue;
        }
        let indent = line.len() - content.len();
        let is_item = content.starts_with("- ") || content.trim_end() == "-";
        if indent == 0 && !is_item {
            break;
        }
        if is_item && (block.items.is_empty() || indent == block.indent) {
            block.indent = indent;
            block.items.push(number);
        }
        block.end = number + 1;
    }
    block
}
