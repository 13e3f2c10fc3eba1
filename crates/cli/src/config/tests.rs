use super::*;
use expect_test::{Expect, expect};

/// Files of a folder; the first is given to `--config`.
fn check(files: &[(&str, &str)], environment: &[(&str, &str)], line: &str, expected: Expect) {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }
    let root = folder.path().display().to_string();
    let words = line.replace("DIR", &root);
    let words = words.split_whitespace().map(OsString::from).collect();
    let env = |name: &str| environment.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
    let result = with_files(words, &env, &folder.path().join("default.yaml"));
    let text = match result {
        Ok(words) => words.join(OsStr::new(" ")).to_string_lossy().into_owned(),
        Err(error) => format!("error: {error}"),
    };
    expected.assert_eq(&text.replace(&root, "DIR"));
}

const FILE: &str = "node-name: one\nhttps-listen-port: 7443\ndisable: [proxy, dns]\ndisable-agent: true\n";

#[test]
fn a_file_stands_for_flags() {
    check(
        &[("a.yaml", FILE)],
        &[],
        "knarr up --config DIR/a.yaml",
        expect![
            "knarr up --disable=proxy --disable=dns --disable-agent --https-listen-port=7443 --node-name=one --config DIR/a.yaml"
        ],
    );
}

#[test]
fn the_command_line_and_the_environment_win() {
    check(
        &[("a.yaml", FILE)],
        &[("KNARR_HTTPS_LISTEN_PORT", "1"), ("KNARR_CONFIG", "/nowhere"), ("KNARR_DISABLE", "dns")],
        "knarr -v server --config=DIR/a.yaml --node-name two",
        expect!["knarr -v server --disable-agent --config=DIR/a.yaml --node-name two"],
    );
}

#[test]
fn later_files_win_and_may_add() {
    check(
        &[
            ("default.yaml", "node-name: one\ndisable: [dns]\ndisable-agent: true"),
            ("default.yaml.d/10.yaml", "# more\nnode-name: two\ndisable-agent: false\n"),
            ("default.yaml.d/20.yaml", "node-name: three\ndisable+: proxy\n"),
            ("default.yaml.d/30.txt", "not: read"),
        ],
        &[],
        "knarr up",
        expect!["knarr up --disable=dns --disable=proxy --node-name=three"],
    );
}

#[test]
fn commands_without_the_flag_read_nothing() {
    check(&[("default.yaml", "[")], &[], "knarr down --data-dir x", expect!["knarr down --data-dir x"]);
    check(&[], &[], "knarr up", expect!["knarr up"]);
}

#[test]
fn what_is_wrong_names_the_file_and_the_key() {
    let check =
        |text: &str, expected| check(&[("a.yaml", text)], &[], "knarr up --config DIR/a.yaml", expected);
    check("nodename: x", expect!["error: DIR/a.yaml: `knarr up` has no flag --nodename"]);
    check("config: x", expect!["error: DIR/a.yaml: `knarr up` has no flag --config"]);
    check("disable-agent: maybe", expect!["error: DIR/a.yaml: disable-agent must be true or false"]);
    check(
        "node-name: {a: b}",
        expect!["error: DIR/a.yaml: node-name must be a text, a number, true, false, or a list of those"],
    );
}

#[test]
fn a_file_that_is_asked_for_must_be_there() {
    check(
        &[],
        &[],
        "knarr up --config DIR/none.yaml",
        expect!["error: read the configuration DIR/none.yaml"],
    );
}

#[test]
fn files_that_say_nothing_change_nothing() {
    for text in ["", "\n \n", "# node-name: x\n", "   # a\n\n# b", "{}", "--- {}\n"] {
        check(
            &[("a.yaml", text)],
            &[],
            "knarr up --config DIR/a.yaml",
            expect!["knarr up --config DIR/a.yaml"],
        );
    }
}

#[test]
fn values_are_texts_as_flags_have_them() {
    let check = |text: &str, expected| {
        check(&[("a.yaml", text)], &[], "knarr up --config DIR/a.yaml", expected);
    };
    check("node-name: 'a b'", expect!["knarr up --node-name=a b --config DIR/a.yaml"]);
    check("node-name: \"007\"", expect!["knarr up --node-name=007 --config DIR/a.yaml"]);
    check("node-name: 007x", expect!["knarr up --node-name=007x --config DIR/a.yaml"]);
    check("node-name: ''", expect!["knarr up --node-name= --config DIR/a.yaml"]);
    check("disable: []", expect!["knarr up --config DIR/a.yaml"]);
    check("disable-agent: 'true'", expect!["knarr up --disable-agent --config DIR/a.yaml"]);
    check("disable-agent: false", expect!["knarr up --config DIR/a.yaml"]);
    check(
        "tls-san: [a, 192.0.2.1, 5]",
        expect!["knarr up --tls-san=a --tls-san=192.0.2.1 --tls-san=5 --config DIR/a.yaml"],
    );
    check(
        "kubelet-arg: [max-pods=20, 'eviction-hard=memory.available<1Gi']",
        expect![
            "knarr up --kubelet-arg=max-pods=20 --kubelet-arg=eviction-hard=memory.available<1Gi --config DIR/a.yaml"
        ],
    );
}

#[test]
fn texts_that_are_no_maps_of_flags_are_refused_in_one_line() {
    let deep = "[".repeat(100_000);
    for text in [
        "node-name",
        "- node-name: x",
        "[]",
        "5",
        "node-name: [",
        "node-name: 'x",
        "node-name: x\nnode-name: y",
        "a: *b",
        &deep,
        "node-name: [[x]]",
        "node-name: [{a: b}]",
        "disable-agent: [true, true]",
        "disable-agent: []",
        "--node-name: x",
        "'': x",
        "+: x",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.yaml");
        std::fs::write(&path, text).unwrap();
        let words = ["knarr", "up", "--config", path.to_str().unwrap()].map(OsString::from);
        let result = with_files(words.to_vec(), &|_| None, Path::new("/nowhere"));
        let error = result.expect_err(text).to_string();
        assert!(error.starts_with(path.to_str().unwrap()) && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn adding_goes_on_from_what_earlier_files_have_said() {
    check(
        &[
            ("default.yaml", "disable: [dns]\ntls-san+: a\n"),
            ("default.yaml.d/10.yml", "disable+: [proxy]\n"),
            ("default.yaml.d/20.yaml", "disable: ingress\ndisable+: servicelb\ntls-san+: [b]\n"),
        ],
        &[],
        "knarr up",
        expect!["knarr up --disable=ingress --disable=servicelb --tls-san=a --tls-san=b"],
    );
    // A folder without a file beside it is enough.
    check(&[("default.yaml.d/1.yaml", "node-name: x")], &[], "knarr up", expect!["knarr up --node-name=x"]);
}

#[test]
fn the_file_is_found_by_flag_before_environment_before_place() {
    let files = [
        ("default.yaml", "node-name: place"),
        ("a.yaml", "node-name: flag"),
        ("b.yaml", "node-name: variable"),
    ];
    check(&files, &[], "knarr up", expect!["knarr up --node-name=place"]);
    check(
        &files,
        &[("KNARR_CONFIG", "/nowhere")],
        "knarr up --config=DIR/a.yaml",
        expect!["knarr up --node-name=flag --config=DIR/a.yaml"],
    );
    check(
        &files,
        &[("KNARR_CONFIG", "/nowhere")],
        "knarr up",
        expect!["error: read the configuration /nowhere"],
    );
    // Upstream's parts have a flag of that name for something else.
    check(
        &[("default.yaml", "[")],
        &[],
        "knarr kubelet --config DIR/x",
        expect!["knarr kubelet --config DIR/x"],
    );
    check(&[("default.yaml", "[")], &[], "knarr", expect!["knarr"]);
    check(&[("default.yaml", "[")], &[], "knarr nonsense", expect!["knarr nonsense"]);
}
