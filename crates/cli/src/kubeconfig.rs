//! A cluster's entries in somebody's kubeconfig: added, renewed and taken back, with all else left as it is.
//!
//! Pure: text in, text out. A file in YAML's block style is edited by lines, so that comments, order and unknown
//! fields stay; one in JSON is written anew with all its fields. Every edit is read back and compared with what it
//! must say before it is handed out: a file that is written in a way that is not understood is refused, never damaged.

use serde_json::{Map, Value, json};

/// The lists, and the field of an entry that has its content.
const LISTS: [(&str, &str); 3] = [("clusters", "cluster"), ("contexts", "context"), ("users", "user")];
const CURRENT: &str = "current-context";
/// Most names that are tried.
const NAMES_MAX: u32 = 1_000;

/// The way to a cluster, and the user there. All but the address is base64, as kubeconfigs have it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Entry {
    /// `https://127.0.0.1:6443`
    pub server: String,
    /// `certificate-authority-data`
    pub authority: String,
    /// `client-certificate-data`
    pub certificate: String,
    /// `client-key-data`
    pub key: String,
}

/// The condition under which the cluster's context becomes the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Current {
    /// If there is none.
    IfNone,
    /// In any case: the file is this cluster's own.
    Always,
}

impl Entry {
    /// The only one of a kubeconfig that knarr has written.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        let file = read(text).ok()?;
        let field = |list: &str, path: &str| {
            let item = items(&file, list).first()?;
            item.pointer(path).and_then(Value::as_str).map(ToOwned::to_owned)
        };
        Some(Self {
            server: field("clusters", "/cluster/server")?,
            authority: field("clusters", "/cluster/certificate-authority-data")?,
            certificate: field("users", "/user/client-certificate-data")?,
            key: field("users", "/user/client-key-data")?,
        })
    }
}

/// The outcome of an edit of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edited {
    /// The whole file.
    pub text: String,
    /// The name of the context, the cluster and the user in it.
    pub name: String,
    /// `true` if the context is the current one.
    pub is_current: bool,
}

/// The reason why a file is not edited.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// It is no YAML, or no kubeconfig.
    #[error("it is no kubeconfig: {0}")]
    Unreadable(String),
    /// It is one, in a form that this does not edit.
    #[error("its form cannot be kept; rewrite it with `kubectl config view --raw --flatten`")]
    Form,
    /// All names are somebody's.
    #[error("every name from knarr to knarr-{NAMES_MAX} is taken in it")]
    Names,
}

/// Adds a cluster, a user and a context, or renews those that are this cluster's. They are named `knarr`, or
/// `knarr-2` and so on where that is somebody else's.
///
/// # Errors
/// The file is none that can be edited.
pub fn add(text: &str, entry: &Entry, make_current: Current) -> Result<Edited, EditError> {
    let before = read(text)?;
    let known = ours(&before, &entry.authority);
    let was_current = known.as_deref().is_some_and(|name| current(&before) == name);
    let (text, before) = match &known {
        Some(name) => {
            let text = without(text, &before, name)?;
            let before = read(&text)?;
            (text, before)
        }
        None => (text.to_owned(), before),
    };
    let name = match known {
        Some(name) => name,
        None => free_name(&before)?,
    };
    let is_current = was_current || make_current == Current::Always || current(&before).is_empty();
    let mut expected = before.clone();
    let mut edited = if text.trim().is_empty() {
        expected = json!({ "apiVersion": "v1", "kind": "Config" });
        "apiVersion: v1\nkind: Config\n".to_owned()
    } else {
        text
    };
    for (list, field) in LISTS {
        let item = item(&name, field, entry);
        push(&mut expected, list, item.clone());
        if !is_json(&edited) {
            edited = lines::insert(&edited, list, &lines::item(&item)).ok_or(EditError::Form)?;
        }
    }
    if is_current {
        set_current(&mut expected, &name);
        if !is_json(&edited) {
            edited = lines::set(&edited, CURRENT, &name);
        }
    }
    Ok(Edited { text: checked(edited, &expected)?, name, is_current })
}

/// Removes what [`add`] has added for the cluster of this authority; `None` if nothing of it is there.
///
/// # Errors
/// The file is none that can be edited.
pub fn take_back(text: &str, authority: &str) -> Result<Option<String>, EditError> {
    let before = read(text)?;
    let Some(name) = ours(&before, authority) else { return Ok(None) };
    Ok(Some(without(text, &before, &name)?))
}

/// `true` if nobody has an entry in it.
#[must_use]
pub fn is_empty(text: &str) -> bool {
    read(text).is_ok_and(|file| LISTS.iter().all(|(list, _)| items(&file, list).is_empty()))
}

fn without(text: &str, before: &Value, name: &str) -> Result<String, EditError> {
    let mut expected = before.clone();
    let mut edited = text.to_owned();
    for (list, _) in LISTS {
        if items(before, list).iter().all(|item| item["name"] != name) {
            continue;
        }
        if let Some(Value::Array(items)) = expected.get_mut(list) {
            items.retain(|item| item["name"] != name);
        }
        if !is_json(&edited) {
            edited = lines::remove(&edited, list, name).ok_or(EditError::Form)?;
        }
    }
    if current(before) == name {
        set_current(&mut expected, "");
        if !is_json(&edited) {
            edited = lines::set(&edited, CURRENT, "\"\"");
        }
    }
    checked(edited, &expected)
}

/// The text, if it says what it must; JSON is written from what it must say.
fn checked(text: String, expected: &Value) -> Result<String, EditError> {
    if is_json(&text) {
        let text = serde_json::to_string_pretty(expected).map_err(|_| EditError::Form)?;
        return Ok(text + "\n");
    }
    let same = read(&text).is_ok_and(|found| normal(&found) == normal(expected));
    if same { Ok(text) } else { Err(EditError::Form) }
}

/// Lists that are empty, null or absent are the same.
fn normal(file: &Value) -> Value {
    let mut file = file.clone();
    if let Value::Object(fields) = &mut file {
        fields.retain(|name, value| {
            let is_list = LISTS.iter().any(|(list, _)| list == name);
            !(is_list && (value.is_null() || value.as_array().is_some_and(Vec::is_empty)))
        });
    }
    file
}

fn read(text: &str) -> Result<Value, EditError> {
    if text.trim().is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    let file: Value = match is_json(text) {
        true => serde_json::from_str(text).map_err(|error| EditError::Unreadable(error.to_string()))?,
        false => serde_saphyr::from_str(text).map_err(|error| {
            let text = error.to_string();
            EditError::Unreadable(text.lines().next().unwrap_or_default().to_owned())
        })?,
    };
    let is_list = |list: &str| matches!(file.get(list), None | Some(Value::Null | Value::Array(_)));
    if !file.is_object() || !LISTS.iter().all(|(list, _)| is_list(list)) {
        return Err(EditError::Unreadable("it has no clusters, contexts and users".to_owned()));
    }
    Ok(file)
}

fn is_json(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

fn items<'a>(file: &'a Value, list: &str) -> &'a [Value] {
    file.get(list).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn current(file: &Value) -> &str {
    file.get(CURRENT).and_then(Value::as_str).unwrap_or_default()
}

/// Under which name a cluster of this authority is there that [`add`] has named.
fn ours(file: &Value, authority: &str) -> Option<String> {
    let is_ours = |item: &&Value| item["cluster"]["certificate-authority-data"] == authority;
    let named = items(file, "clusters").iter().filter(is_ours).filter_map(|item| item["name"].as_str());
    let mut named = named.filter(|name| *name == "knarr" || name.starts_with("knarr-"));
    named.next().map(ToOwned::to_owned)
}

fn free_name(file: &Value) -> Result<String, EditError> {
    let is_free = |name: &String| {
        LISTS.iter().all(|(list, _)| items(file, list).iter().all(|item| item["name"] != name.as_str()))
    };
    let mut names =
        std::iter::once("knarr".to_owned()).chain((2..=NAMES_MAX).map(|number| format!("knarr-{number}")));
    names.find(is_free).ok_or(EditError::Names)
}

fn item(name: &str, field: &str, entry: &Entry) -> Value {
    let content = match field {
        "cluster" => json!({ "certificate-authority-data": entry.authority, "server": entry.server }),
        "context" => json!({ "cluster": name, "user": name }),
        _ => json!({ "client-certificate-data": entry.certificate, "client-key-data": entry.key }),
    };
    json!({ "name": name, field: content })
}

fn push(file: &mut Value, list: &str, item: Value) {
    let Value::Object(fields) = file else { return };
    match fields.get_mut(list) {
        Some(Value::Array(items)) => items.push(item),
        _ => drop(fields.insert(list.to_owned(), Value::Array(vec![item]))),
    }
}

fn set_current(file: &mut Value, name: &str) {
    if let Value::Object(fields) = file {
        fields.insert(CURRENT.to_owned(), name.into());
    }
}

mod lines;
#[cfg(test)]
mod tests;
