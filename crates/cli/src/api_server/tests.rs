//! What holds for all flags of a kind.

use std::collections::BTreeSet;

use clap::builder::ValueParser;
use clap::{Command, FromArgMatches};

use super::*;

fn read(words: &[String]) -> Result<ApiServerArgs, clap::Error> {
    let command = ApiServerArgs::augment_args(Command::new("a"));
    let words = std::iter::once("a".to_owned()).chain(words.iter().cloned());
    ApiServerArgs::from_arg_matches(&command.try_get_matches_from(words)?)
}

/// Flags that are files. Their paths are made absolute before they are handed on.
fn files() -> Vec<String> {
    let command = ApiServerArgs::augment_args(Command::new("a"));
    let path = ValueParser::path_buf().type_id();
    let all = command.get_arguments().filter(|arg| arg.get_value_parser().type_id() == path);
    all.filter_map(|arg| arg.get_long()).map(ToOwned::to_owned).collect()
}

#[test]
fn every_file_is_among_those_whose_paths_are_made_absolute() {
    let all = files();
    assert!(all.len() > 10, "{all:?}");
    // It stands for flags that are files, too.
    let (whole, parts): (Vec<&String>, Vec<&String>) =
        all.iter().partition(|flag| flag.as_str() == "authorization-config");
    assert_eq!(whole.len(), 1);
    for flags in [parts, whole] {
        let words: Vec<String> = flags.iter().map(|flag| format!("--{flag}={flag}")).collect();
        let mut args = read(&words).unwrap();
        let found: Vec<String> = args.files_mut().map(|file| file.display().to_string()).collect();
        let (found_once, expect): (BTreeSet<String>, BTreeSet<String>) =
            (found.iter().cloned().collect(), flags.into_iter().cloned().collect());
        assert_eq!(found_once, expect);
        assert_eq!(found.len(), found_once.len(), "none of them twice");
    }
    assert_eq!(read(&[]).unwrap().files_mut().count(), 0);
}

/// Other processes are told by a file what this one was told: no flag gets lost there.
#[test]
fn flags_are_the_same_after_they_were_written_down() {
    let command = ApiServerArgs::augment_args(Command::new("a"));
    let path = ValueParser::path_buf().type_id();
    let mut checked = 0;
    for arg in command.get_arguments() {
        let Some(flag) = arg.get_long() else { continue };
        let is_path = arg.get_value_parser().type_id() == path;
        let values = if is_path { &["/a b/\u{e4}"][..] } else { &["", "false", "7", "7s", "pod", "a"][..] };
        let needed: &[&str] = match flag {
            "proxy-client-cert-file" => &["--proxy-client-key-file=k"],
            "proxy-client-key-file" => &["--proxy-client-cert-file=c"],
            "encryption-provider-config-automatic-reload" => &["--encryption-provider-config=e"],
            "authentication-token-webhook-version" | "authentication-token-webhook-cache-ttl" => {
                &["--authentication-token-webhook-config-file=w"]
            }
            _ => &[],
        };
        let needed: Vec<String> = needed.iter().map(|&word| word.to_owned()).collect();
        let usual = read(&needed).or_else(|_| read(&[])).unwrap();
        let mut is_changed = false;
        for value in values {
            let word = if value.is_empty() { format!("--{flag}") } else { format!("--{flag}={value}") };
            let words: Vec<String> = needed.iter().cloned().chain([word]).collect();
            let Ok(args) = read(&words) else { continue };
            is_changed |= args != usual;
            let written = serde_json::to_string(&args).unwrap();
            assert_eq!(serde_json::from_str::<ApiServerArgs>(&written).unwrap(), args, "{words:?}");
        }
        assert!(is_changed, "--{flag} says something");
        checked += 1;
    }
    assert!(checked > 40, "{checked}");
}

/// What an older release has written down lacks the flags of this one.
#[test]
fn what_an_older_release_has_written_is_read() {
    let read: ApiServerArgs =
        serde_json::from_str(r#"{"audit_log_maxage": 7, "of_a_newer_one": [1]}"#).unwrap();
    assert_eq!(read, ApiServerArgs { audit_log_maxage: 7, ..ApiServerArgs::default() });
}
