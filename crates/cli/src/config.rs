//! `--config FILE`: flags from YAML, for the commands that have that flag. The command line wins, then the
//! environment (`KNARR_*`), then the files: first FILE, then `FILE.d/*.yaml` in order of name, later ones win.
//!
//! A key is a flag's long name. A list repeats the flag; `key+` adds to what earlier files said. Source: k3s'
//! configuration file. The result is a command line, so that the parser and its messages stay the only ones.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, CommandFactory};
use serde_json::Value;

use crate::Cli;

/// Read if it is there.
pub const DEFAULT_FILE: &str = "/etc/knarr/config.yaml";
const FLAG: &str = "--config";
const VARIABLE: &str = "KNARR_CONFIG";

/// A configuration that cannot be.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It could not be read.
    #[error("read the configuration {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is no YAML map.
    #[error("{} must be a map of flags to values: {message}", path.display())]
    Yaml {
        /// The file.
        path: PathBuf,
        /// What the parser says.
        message: String,
    },
    /// A key is no flag, or its value no flag's.
    #[error("{}: {message}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// Which key, and what is wrong.
        message: String,
    },
}

/// The values of a flag, and the file that said so last.
type Flags = BTreeMap<String, (Vec<String>, PathBuf)>;

/// The command line with the flags of the configuration files put in where it and `env` do not say otherwise.
///
/// # Errors
/// If a file cannot be read, or says something that is no flag.
pub fn with_files(
    arguments: Vec<OsString>,
    env: &dyn Fn(&str) -> Option<OsString>,
    default_file: &Path,
) -> Result<Vec<OsString>, ConfigError> {
    let mut command = Cli::command();
    command.build();
    let found = arguments.iter().enumerate().skip(1).find_map(|(at, word)| {
        let subcommand = command.find_subcommand(word.to_str()?)?;
        Some((at, subcommand))
    });
    let Some((at, subcommand)) = found else { return Ok(arguments) };
    // These have upstream's `--config`: a KubeletConfiguration, a KubeSchedulerConfiguration.
    let has_own = matches!(subcommand.get_name(), "kubelet" | "scheduler");
    if has_own || !subcommand.get_arguments().any(|arg| arg.get_long() == Some("config")) {
        return Ok(arguments);
    }
    let (before, after) = arguments.split_at(at + 1);
    let named = value_of(FLAG, after).or_else(|| env(VARIABLE)).map(PathBuf::from);
    let file = match named {
        Some(file) => file,
        None if default_file.exists() || folder_of(default_file).exists() => default_file.to_owned(),
        None => return Ok(arguments),
    };
    let is_default = file == default_file;
    let mut words = before.to_vec();
    for (key, (values, path)) in read_all(&file, is_default)? {
        let arg = subcommand.get_arguments().find(|arg| arg.get_long() == Some(&key));
        let Some(arg) = arg.filter(|_| key != "config") else {
            let name = subcommand.get_name();
            return Err(ConfigError::Key { path, message: format!("`knarr {name}` has no flag --{key}") });
        };
        let in_environment = arg.get_env().and_then(OsStr::to_str).and_then(env).is_some();
        if !in_environment && !is_given(arg, after) {
            words.extend(flags(arg, &key, &values, &path)?);
        }
    }
    words.extend_from_slice(after);
    Ok(words)
}

/// `x` of `--config x` or `--config=x`.
fn value_of(flag: &str, words: &[OsString]) -> Option<OsString> {
    let with_value = format!("{flag}=");
    words.iter().enumerate().find_map(|(at, word)| {
        if word == flag {
            return words.get(at + 1).cloned();
        }
        word.to_str()?.strip_prefix(&with_value).map(OsString::from)
    })
}

fn is_given(arg: &Arg, words: &[OsString]) -> bool {
    let long = format!("--{}", arg.get_long().unwrap_or_default());
    let with_value = format!("{long}=");
    words.iter().filter_map(|word| word.to_str()).any(|word| word == long || word.starts_with(&with_value))
}

fn flags(arg: &Arg, key: &str, values: &[String], path: &Path) -> Result<Vec<OsString>, ConfigError> {
    if !matches!(arg.get_action(), ArgAction::SetTrue) {
        return Ok(values.iter().map(|value| format!("--{key}={value}").into()).collect());
    }
    match values {
        [value] if value == "true" => Ok(vec![format!("--{key}").into()]),
        [value] if value == "false" => Ok(Vec::new()),
        _ => Err(ConfigError::Key { path: path.to_owned(), message: format!("{key} must be true or false") }),
    }
}

fn folder_of(file: &Path) -> PathBuf {
    file.with_added_extension("d")
}

fn read_all(file: &Path, is_default: bool) -> Result<Flags, ConfigError> {
    let read_error = |path: &Path| {
        let path = path.to_owned();
        move |source| ConfigError::Read { path, source }
    };
    let mut files = Vec::new();
    let folder = folder_of(file);
    if folder.is_dir() {
        for entry in std::fs::read_dir(&folder).map_err(read_error(&folder))? {
            files.push(entry.map_err(read_error(&folder))?.path());
        }
    }
    files.retain(|path| path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml"));
    files.sort();
    if file.exists() || !is_default {
        files.insert(0, file.to_owned());
    }
    let mut all = Flags::new();
    for path in files {
        let text = std::fs::read_to_string(&path).map_err(read_error(&path))?;
        merge(&mut all, &path, &text)?;
    }
    Ok(all)
}

fn merge(all: &mut Flags, path: &Path, text: &str) -> Result<(), ConfigError> {
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(());
    }
    let map: BTreeMap<String, Value> = serde_saphyr::from_str(text).map_err(|error| {
        let message = error.to_string().lines().next().unwrap_or_default().to_owned();
        ConfigError::Yaml { path: path.to_owned(), message }
    })?;
    for (key, value) in map {
        let values = scalars(&value).ok_or_else(|| ConfigError::Key {
            path: path.to_owned(),
            message: format!("{key} must be a text, a number, true, false, or a list of those"),
        })?;
        let (name, adds) = key.strip_suffix('+').map_or((key.as_str(), false), |name| (name, true));
        let entry = all.entry(name.to_owned()).or_default();
        if !adds {
            entry.0.clear();
        }
        entry.0.extend(values);
        entry.1 = path.to_owned();
    }
    Ok(())
}

fn scalars(value: &Value) -> Option<Vec<String>> {
    let scalar = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(is_true) => Some(is_true.to_string()),
        _ => None,
    };
    match value {
        Value::Array(values) => values.iter().map(scalar).collect(),
        single => Some(vec![scalar(single)?]),
    }
}

#[cfg(test)]
mod tests;
