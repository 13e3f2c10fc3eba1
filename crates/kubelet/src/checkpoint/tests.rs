use std::collections::BTreeMap;

use serde::Deserialize;

use super::*;

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct State {
    policy_name: String,
    #[serde(default)]
    entries: BTreeMap<String, u32>,
}

fn restored(path: &Path, policy: &str) -> Result<State, String> {
    let check = |state: &State| match state.entries.contains_key("gone") {
        true => Err(Impossible::OtherMemory),
        false => Ok(()),
    };
    restore("cpu", path, policy, check).map_err(|error| error.to_string())
}

/// Source: `TestCheckpointStateRestore` of upstream's `pkg/kubelet/cm/cpumanager/state` and `.../memorymanager/state`.
#[test]
fn what_was_given_away_is_known_again_or_the_kubelet_does_not_start() {
    for (name, text, policy, expect) in [
        ("as it was written", r#"{"policyName":"static","entries":{"a":1}}"#, "static", Ok(1)),
        (
            "with what nobody knows",
            r#"{"policyName":"static","entries":{"a":1},"checksum":7}"#,
            "static",
            Ok(1),
        ),
        ("nothing given", r#"{"policyName":"static"}"#, "static", Ok(0)),
        (
            "of another policy",
            r#"{"policyName":"none"}"#,
            "static",
            Err(r#"configured policy "static" differs from state checkpoint policy "none""#),
        ),
        ("of no policy", "{}", "static", Err(r#"differs from state checkpoint policy """#)),
        ("no JSON", "{", "static", Err("EOF while parsing an object")),
        ("nothing", "", "static", Err("EOF while parsing a value")),
        ("another form", r#"{"policyName":"static","entries":[1]}"#, "static", Err("invalid type: sequence")),
        (
            "what cannot be",
            r#"{"policyName":"static","entries":{"gone":1}}"#,
            "static",
            Err("[memorymanager] the expected machine state is different from the real one"),
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        std::fs::write(&path, text).unwrap();
        match (restored(&path, policy), expect) {
            (Ok(state), Ok(count)) => assert_eq!(state.entries.len(), count, "{name}"),
            (Err(error), Err(why)) => {
                assert!(error.starts_with("could not restore state from checkpoint: "), "{name}: {error}");
                let advice =
                    format!("delete the cpu manager checkpoint file {path:?} before restarting Kubelet");
                assert!(error.contains(why) && error.ends_with(&advice), "{name}: {error}");
            }
            (found, _) => panic!("{name}: {found:?}"),
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "{name}: it stays as it is");
    }
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(restored(&folder.path().join("none"), "static"), Ok(State::default()));
    assert!(restored(folder.path(), "static").is_err(), "a folder");
}

#[test]
fn a_file_is_replaced_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let state = |count| State { policy_name: "static".into(), entries: [("a".to_owned(), count)].into() };
    // A kill came in the middle of an earlier write.
    std::fs::write(path.with_extension("new"), "{\"pol").unwrap();
    for count in [1, 2] {
        save(&path, &state(count));
        assert_eq!(restored(&path, "static"), Ok(state(count)));
        assert_eq!(load::<State>(&path), Some(state(count)));
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    std::fs::write(&path, "{").unwrap();
    assert_eq!(load::<State>(&path), None);
    // Nobody is stopped by a disk that takes nothing.
    save(&folder.path().join("none/state"), &state(3));
}
