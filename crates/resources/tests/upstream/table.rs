//! The form of the tables.
//!
//! `# DEED API PLURAL[/SUBRESOURCE]` begins a table, with ` at POINTER` behind it if its rows are about one place; the
//! indented YAML below is the object that is good without any change (that of the table before, if there is none).
//! A row is `- NAME | CHANGES | OUTCOMES` and goes on in indented lines. A change is `POINTER = YAML`, where `absent`
//! takes away, or only YAML: the value of the table's place. ` -> ` stands between the changes of the old object and what the
//! new one has on top of them; several changes or outcomes have ` ; ` between them. `<a*64>` is `a` 64 times, a `#` in it
//! counts. `//` begins a comment.

use serde_json::Value;

/// The rows about one thing that is done with objects of one kind.
pub(crate) struct Table<'t> {
    /// What is done: `create`, `update`, `status`, `approval`, `defaults`, `created`, `updated`, `reported`, `cells`, `fields`.
    pub deed: &'t str,
    /// `v1` or `apps/v1`.
    pub api: &'t str,
    pub plural: &'t str,
    /// Empty for the object itself.
    pub subresource: &'t str,
    /// The place that its rows are about, as a JSON pointer; empty for none.
    pub at: &'t str,
    /// The object without any change.
    pub good: Value,
    pub rows: Vec<Row>,
}

/// One case.
pub(crate) struct Row {
    pub name: String,
    /// The changes of what there was; none for a row about new objects.
    pub old: Vec<(String, Value)>,
    pub new: Vec<(String, Value)>,
    pub outcomes: Vec<String>,
}

impl<'t> Table<'t> {
    pub(crate) fn all(text: &'t str) -> Vec<Self> {
        let mut tables: Vec<Self> = Vec::new();
        let mut lines = text.lines().filter(|line| !line.starts_with("//") && !line.is_empty()).peekable();
        while let Some(line) = lines.next() {
            let mut continued = String::new();
            while let Some(more) = lines.next_if(|line| line.starts_with("  ")) {
                continued.push('\n');
                continued.push_str(more);
            }
            if let Some(head) = line.strip_prefix("# ") {
                let good = match continued.is_empty() {
                    true => tables.last().unwrap_or_else(|| panic!("no object: {line}")).good.clone(),
                    false => yaml(&repeated(&continued)),
                };
                tables.push(Self::new(head, good));
                continue;
            }
            let row = line.strip_prefix("- ").unwrap_or_else(|| panic!("neither table nor row: {line}"));
            let table = tables.last_mut().unwrap();
            table.rows.push(Row::new(&format!("{row}{continued}"), table.at));
        }
        tables
    }

    fn new(head: &'t str, good: Value) -> Self {
        let (head, at) = head.split_once(" at ").unwrap_or((head, ""));
        let [deed, api, plural] = head.split(' ').collect::<Vec<_>>()[..] else { panic!("no table: {head}") };
        let (plural, subresource) = plural.split_once('/').unwrap_or((plural, ""));
        Self { deed, api, plural, subresource, at, good, rows: Vec::new() }
    }
}

impl Row {
    fn new(text: &str, at: &str) -> Self {
        let text = text.split('\n').map(str::trim).collect::<Vec<_>>().join(" ");
        let text = format!("{text} ").replace(" | | ", " |  | ");
        let mut parts = text.splitn(3, " | ");
        let name = parts.next().unwrap().trim().trim_end_matches(" |").to_owned();
        let changes = parts.next().unwrap_or_default();
        let (changes, outcomes) = match changes.strip_suffix("| ") {
            Some(changes) => (changes, ""),
            None => (changes, parts.next().unwrap_or_default()),
        };
        let (old, new) = match format!(" {changes} ").split_once(" -> ") {
            Some((old, new)) => (self::changes(old, at), self::changes(new, at)),
            None => (Vec::new(), self::changes(changes, at)),
        };
        Self { name, old, new, outcomes: parts_of(&repeated(outcomes)).map(str::to_owned).collect() }
    }
}

fn parts_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(" ; ").map(str::trim).filter(|part| !part.is_empty())
}

fn changes(text: &str, at: &str) -> Vec<(String, Value)> {
    let change = |part: &str| match part.split_once(" = ").filter(|(pointer, _)| pointer.starts_with('/')) {
        Some((pointer, value)) => (pointer.to_owned(), yaml(value)),
        None => (at.to_owned(), yaml(part)),
    };
    parts_of(&repeated(text)).map(change).collect()
}

/// The value that a text stands for; null for what is not there.
pub(crate) fn yaml(text: &str) -> Value {
    if text.trim() == "absent" {
        return Value::Null;
    }
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The text with what stands for repetitions written out, those inside others first.
fn repeated(text: &str) -> String {
    let mut done = String::new();
    let mut rest = text.to_owned();
    while let Some(end) = rest.find('>') {
        let found = rest[..end].rfind('<').and_then(|start| {
            let (unit, times) = rest[start + 1..end].rsplit_once('*')?;
            Some((start, unit, times.parse::<usize>().ok()?))
        });
        match found {
            Some((start, unit, times)) => {
                let units: String = (0..times).map(|index| unit.replace('#', &index.to_string())).collect();
                rest = format!("{}{units}{}", &rest[..start], &rest[end + 1..]);
            }
            None => done.extend(rest.drain(..=end)),
        }
    }
    done + &rest
}

/// The object with the changes; parents of what is set are made.
pub(crate) fn changed(object: &Value, changes: &[(String, Value)]) -> Value {
    let mut object = object.clone();
    for (pointer, value) in changes {
        set(&mut object, pointer, value);
    }
    object
}

fn set(object: &mut Value, pointer: &str, value: &Value) {
    let (parent, last) =
        pointer.rsplit_once('/').unwrap_or_else(|| panic!("no pointer: {pointer:?} = {value}"));
    let mut slot = object;
    for step in parent.split('/').skip(1) {
        slot = inside(slot, &unescaped(step));
    }
    match slot {
        Value::Object(map) if value.is_null() => drop(map.remove(&unescaped(last))),
        slot => *inside(slot, &unescaped(last)) = value.clone(),
    }
}

fn inside<'v>(slot: &'v mut Value, step: &str) -> &'v mut Value {
    if let Value::Array(list) = slot {
        let index: usize = step.parse().unwrap();
        if list.len() == index {
            list.push(Value::Null);
        }
        return &mut list[index];
    }
    if !slot.is_object() {
        *slot = Value::Object(serde_json::Map::new());
    }
    slot.as_object_mut().unwrap().entry(step).or_insert(Value::Null)
}

fn unescaped(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}
