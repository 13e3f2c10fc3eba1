use expect_test::{Expect, expect};

use super::*;

fn entry(authority: &str) -> Entry {
    Entry {
        server: "https://127.0.0.1:6443".into(),
        authority: authority.into(),
        certificate: "Q0VSVA==".into(),
        key: "S0VZ".into(),
    }
}

fn check(text: &str, expected: Expect) {
    let edited = add(text, &entry("Q0E="), Current::IfNone).expect("it can be edited");
    expected.assert_eq(&edited.text);
    let again = add(&edited.text, &entry("Q0E="), Current::IfNone).expect("it can be renewed");
    assert_eq!(read(&again.text).expect("YAML"), read(&edited.text).expect("YAML"), "renewed");
    assert_eq!(again.name, edited.name);
    let back = take_back(&edited.text, "Q0E=").expect("it can be edited").expect("it was there");
    assert_eq!(normal(&read(&back).expect("YAML")), without_own_current(text, &edited), "taken back");
}

fn without_own_current(text: &str, edited: &Edited) -> Value {
    let mut before = normal(&read(text).expect("YAML"));
    if text.trim().is_empty() {
        before = json!({ "apiVersion": "v1", "kind": "Config" });
    }
    if edited.is_current {
        set_current(&mut before, "");
    }
    before
}

const KUBECTLS: &str = "apiVersion: v1
clusters:
- cluster:
    server: https://work:6443
  name: work
contexts:
- context:
    cluster: work
    user: me
  name: work
current-context: work
kind: Config
preferences: {}
users:
- name: me
  user:
    token: very-secret
";

#[test]
fn a_file_that_is_not_there_is_made() {
    check(
        "",
        expect![[r#"
            apiVersion: v1
            kind: Config
            clusters:
            - name: knarr
              cluster:
                certificate-authority-data: Q0E=
                server: https://127.0.0.1:6443
            contexts:
            - name: knarr
              context:
                cluster: knarr
                user: knarr
            users:
            - name: knarr
              user:
                client-certificate-data: Q0VSVA==
                client-key-data: S0VZ
            current-context: knarr
        "#]],
    );
}

#[test]
fn others_entries_and_the_current_context_stay() {
    check(
        KUBECTLS,
        expect![[r#"
            apiVersion: v1
            clusters:
            - cluster:
                server: https://work:6443
              name: work
            - name: knarr
              cluster:
                certificate-authority-data: Q0E=
                server: https://127.0.0.1:6443
            contexts:
            - context:
                cluster: work
                user: me
              name: work
            - name: knarr
              context:
                cluster: knarr
                user: knarr
            current-context: work
            kind: Config
            preferences: {}
            users:
            - name: me
              user:
                token: very-secret
            - name: knarr
              user:
                client-certificate-data: Q0VSVA==
                client-key-data: S0VZ
        "#]],
    );
}

#[test]
fn what_was_added_is_taken_back_to_the_letter() {
    let edited = add(KUBECTLS, &entry("Q0E="), Current::IfNone).expect("it can be edited");
    assert!(!edited.is_current);
    assert_eq!(take_back(&edited.text, "Q0E=").expect("it can be edited").as_deref(), Some(KUBECTLS));
    assert_eq!(take_back(KUBECTLS, "Q0E=").expect("it can be read"), None);
}

#[test]
fn comments_indentation_and_unknown_fields_stay() {
    check(
        "# mine\nclusters: # two\n  # first\n  - name: a\n    cluster: {server: 'https://a', odd: [1, 2]}\n\n# people\nusers: []\ncontexts:\nextensions: {x: 1}\ncurrent-context: \"\" # none",
        expect![[r#"
            # mine
            clusters: # two
              # first
              - name: a
                cluster: {server: 'https://a', odd: [1, 2]}
              - name: knarr
                cluster:
                  certificate-authority-data: Q0E=
                  server: https://127.0.0.1:6443

            # people
            users:
            - name: knarr
              user:
                client-certificate-data: Q0VSVA==
                client-key-data: S0VZ
            contexts:
            - name: knarr
              context:
                cluster: knarr
                user: knarr
            extensions: {x: 1}
            current-context: knarr # none
        "#]],
    );
}

#[test]
fn json_keeps_all_its_fields() {
    check(
        r#"{"kind": "Config", "odd": 1, "users": [{"name": "me", "user": {"token": "t"}}], "current-context": "w"}"#,
        expect![[r#"
            {
              "clusters": [
                {
                  "cluster": {
                    "certificate-authority-data": "Q0E=",
                    "server": "https://127.0.0.1:6443"
                  },
                  "name": "knarr"
                }
              ],
              "contexts": [
                {
                  "context": {
                    "cluster": "knarr",
                    "user": "knarr"
                  },
                  "name": "knarr"
                }
              ],
              "current-context": "w",
              "kind": "Config",
              "odd": 1,
              "users": [
                {
                  "name": "me",
                  "user": {
                    "token": "t"
                  }
                },
                {
                  "name": "knarr",
                  "user": {
                    "client-certificate-data": "Q0VSVA==",
                    "client-key-data": "S0VZ"
                  }
                }
              ]
            }
        "#]],
    );
}

#[test]
fn a_name_that_is_somebody_elses_is_left_to_them() {
    let one = add(KUBECTLS, &entry("QQ=="), Current::IfNone).expect("it can be edited");
    let two = add(&one.text, &entry("Qg=="), Current::IfNone).expect("it can be edited");
    assert_eq!((one.name.as_str(), two.name.as_str()), ("knarr", "knarr-2"));
    let back = take_back(&two.text, "QQ==").expect("it can be edited").expect("it was there");
    assert!(back.contains("name: knarr-2\n") && !back.contains("name: knarr\n"), "{back}");
    let user = "users:\n- name: knarr\n  user: {token: t}\n";
    assert_eq!(add(user, &entry("QQ=="), Current::IfNone).expect("it can be edited").name, "knarr-2");
}

#[test]
fn the_clusters_own_file_has_it_as_the_current_one() {
    let edited = add(KUBECTLS, &entry("Q0E="), Current::Always).expect("it can be edited");
    assert!(edited.is_current && edited.text.contains("current-context: knarr\n"), "{edited:?}");
    assert_eq!(Entry::of(&add("", &entry("Q0E="), Current::IfNone).unwrap().text), Some(entry("Q0E=")));
}

#[test]
fn a_cluster_that_moves_is_renewed_in_place_and_stays_current() {
    let one = add("", &entry("Q0E="), Current::IfNone).expect("it can be edited");
    let moved = Entry { server: "https://127.0.0.1:7443".into(), ..entry("Q0E=") };
    let two = add(&one.text, &moved, Current::IfNone).expect("it can be edited");
    assert!(two.is_current && two.name == "knarr" && two.text.contains(":7443"), "{two:?}");
    assert!(!two.text.contains(":6443"), "{two:?}");
}

#[test]
fn what_cannot_be_kept_is_refused() {
    for text in [
        "clusters: [{name: a}]\n",
        "not: [closed",
        "just a text",
        "clusters: {a: b}\n",
        "{\"clusters\": ",
        "clusters:\n- name: a\n...\n---\nother: document\n",
        "\"clusters\":\n- name: a\n",
    ] {
        assert!(add(text, &entry("Q0E="), Current::IfNone).is_err(), "{text}");
    }
}

/// Files that broke off, or were written by hand, are edited into what they must say, or not at all.
#[test]
fn files_that_break_off_are_edited_soundly_or_not_at_all() {
    let with_ours = add(KUBECTLS, &entry("Q0E="), Current::Always).unwrap().text;
    let commented = "# mine\nclusters:  # all of them\n  - {name: a, cluster: {server: 'https://a'}}  # flow\n\n  # last\ncontexts: []\nusers: ~\ncurrent-context: 'a #b' # c\n";
    let windows = KUBECTLS.replace('\n', "\r\n");
    let odd = "clusters:\n-\n  name: a\n- name: |\n    users:\n    - name: x\nusers:\n- name: \"- name: b\"\n  user: {token: '#'}\n";
    for whole in [&with_ours, commented, &windows, odd] {
        let mut edited = 0;
        for end in (0..=whole.len()).rev().step_by(3) {
            let text = &whole[..end];
            let Ok(before) = read(text) else {
                assert!(add(text, &entry("TkVX"), Current::IfNone).is_err(), "{text}");
                assert!(take_back(text, "Q0E=").is_err(), "{text}");
                assert!(!is_empty(text), "{text}");
                continue;
            };
            if let Ok(new) = add(text, &entry("TkVX"), Current::IfNone) {
                edited += 1;
                let after = read(&new.text).unwrap();
                for (list, _) in LISTS {
                    let (old, new) = (items(&before, list), items(&after, list));
                    assert_eq!(&new[..old.len()], old, "{list} of {text}");
                    assert_eq!(new.len(), old.len() + 1, "{list} of {text}");
                }
                assert_eq!(new.is_current, current(&before).is_empty(), "{text}");
                let back = take_back(&new.text, "TkVX").unwrap().unwrap();
                let back = normal(&read(&back).unwrap());
                assert_eq!(back, without_own_current(text, &new), "{text}");
            }
            if let Ok(Some(back)) = take_back(text, "Q0E=") {
                let after = read(&back).unwrap();
                assert_eq!(ours(&after, "Q0E="), None, "{text}");
            }
        }
        assert!(edited > 10, "{edited} of {whole}");
    }
}

#[test]
fn names_are_the_first_that_nobody_has_anywhere() {
    let taken = |clusters: &str, contexts: &str, users: &str| {
        let list = |names: &str| {
            let names = names.split(' ').filter(|name| !name.is_empty());
            names.map(|name| json!({ "name": name })).collect::<Vec<_>>()
        };
        let file =
            json!({ "clusters": list(clusters), "contexts": list(contexts), "users": list(users), "x": 1 });
        add(&file.to_string(), &entry("Q0E="), Current::IfNone).map(|edited| edited.name)
    };
    for (clusters, contexts, users, expect) in [
        ("", "", "", "knarr"),
        ("knarr", "", "", "knarr-2"),
        ("", "knarr", "", "knarr-2"),
        ("", "", "knarr", "knarr-2"),
        ("knarr", "knarr-2", "knarr-3", "knarr-4"),
        ("knarr-2", "", "", "knarr"),
        ("knarr knarr-3", "", "", "knarr-2"),
        ("Knarr knarr- knarr-1 knarr-02", "", "", "knarr"),
    ] {
        assert_eq!(taken(clusters, contexts, users).unwrap(), expect);
    }
    let all: Vec<String> = (2..=NAMES_MAX).map(|number| format!("knarr-{number}")).collect();
    let error = taken("knarr", &all.join(" "), "").unwrap_err();
    assert_eq!(error.to_string(), "every name from knarr to knarr-1000 is taken in it");
}

/// What hosts hand to each other is looked at like everything else: a text that would be another field is refused.
#[test]
fn entries_that_would_be_more_than_texts_are_refused() {
    for hostile in [
        "a\n    insecure-skip-tls-verify: true",
        "a # b",
        "{}",
        "[a]",
        "null",
        "1",
        "true",
        "*a",
        "&a b",
        "a: b",
        "",
    ] {
        for (number, field) in ["server", "authority", "certificate", "key"].into_iter().enumerate() {
            let mut one = entry("Q0E=");
            *[&mut one.server, &mut one.authority, &mut one.certificate, &mut one.key][number] =
                hostile.into();
            for before in ["", KUBECTLS] {
                if let Ok(edited) = add(before, &one, Current::Always) {
                    let read = read(&edited.text).unwrap();
                    let last = |list: &str| items(&read, list).last().unwrap().clone();
                    assert_eq!(last("clusters"), item("knarr", "cluster", &one), "{field}: {hostile:?}");
                    assert_eq!(last("users"), item("knarr", "user", &one), "{field}: {hostile:?}");
                }
            }
            let json = add("{}", &one, Current::Always).unwrap();
            assert_eq!(Entry::of(&json.text), Some(one), "JSON holds any text");
        }
    }
}

#[test]
fn the_only_entry_is_whole_or_none() {
    let own = add("", &entry("Q0E="), Current::Always).unwrap().text;
    assert_eq!(Entry::of(&own), Some(entry("Q0E=")));
    for field in ["server", "certificate-authority-data", "client-certificate-data", "client-key-data"] {
        assert_eq!(Entry::of(&own.replace(field, "other")), None, "{field}");
    }
    for text in ["", "{}", "[", "clusters: []\nusers: []\n", KUBECTLS, "clusters: 7\n"] {
        assert_eq!(Entry::of(text), None, "{text}");
    }
    for (text, expect) in [
        ("", true),
        ("{}", true),
        ("apiVersion: v1\nkind: Config\n", true),
        ("clusters: []\ncontexts: ~\n", true),
        ("users:\n- name: a\n", false),
        (KUBECTLS, false),
        ("clusters: 7\n", false),
        ("just a text", false),
    ] {
        assert_eq!(is_empty(text), expect, "{text}");
    }
}
