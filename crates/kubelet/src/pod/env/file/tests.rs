use super::*;

fn check(text: &str, key: &str, expect: Result<&str, &str>) {
    let found = find(text, key).map_err(|error| error.to_string());
    assert_eq!(found.as_deref().map_err(String::as_str), expect, "{key} of {text:?}");
}

#[test]
fn values_are_taken_as_they_are() {
    let text =
        "# first\n\n  A='one'\n\tB='two # \"$A\"'  # said twice\nC='a\n\n  b'\r\nD=''\nE= 'x'\nF='a=b\\n'";
    check(text, "A", Ok("one"));
    check(text, "B", Ok("two # \"$A\""));
    check(text, "C", Ok("a\n\n  b"));
    check(text, "D", Ok(""));
    check(text, "E", Ok(""));
    check(text, "F", Ok("a=b\\n"));
    check(text, "G", Ok(""));
    check("A='a'\nwords", "A", Ok("a"));
}

#[test]
fn what_is_no_assignment_in_single_quotes_is_refused_with_its_line() {
    for (text, line, why) in [
        ("A=one", 1, "value must be enclosed in single quotes"),
        ("\nA=\"one\"", 2, "value must be enclosed in single quotes"),
        ("A='x\ny'\nwords", 3, "missing '='"),
        ("A='a''b'", 1, "unexpected content after closing quote"),
        ("A='a\nB='b'", 2, "unexpected content after closing quote"),
        ("='a'", 1, "empty variable name"),
        ("A ='c'", 1, "whitespace before '=' is not allowed"),
    ] {
        let wrong = format!("invalid environment variable format at line {line}: {why}");
        check(text, "none", Err(&wrong));
    }
    let open = "invalid environment variable format starting at line 2: unclosed single quote";
    check("A='a'\nB='open\nend", "none", Err(open));
}

#[test]
fn what_is_optional_may_be_missing() {
    let reference = |key: &str, optional| FileKeySelector {
        key: key.into(),
        path: "env".into(),
        volume_name: "v".into(),
        optional,
    };
    let file = || Ok("A='1'\nEMPTY=''".to_owned());
    let gone = || Err(Arc::new(NotRead { path: "env".into(), source: "it is gone".into() }));
    let value = |reference: &FileKeySelector, file: Option<Result<String, Arc<NotRead>>>| {
        value(reference, file.as_ref()).map_err(|error| error.to_string())
    };
    assert_eq!(value(&reference("A", None), Some(file())), Ok(Some("1".into())));
    assert_eq!(value(&reference("B", Some(true)), Some(file())), Ok(None));
    assert_eq!(value(&reference("B", Some(true)), Some(gone())), Ok(None));
    for missing in ["B", "EMPTY"] {
        let error = format!("environment variable key {missing:?} not found in file \"env\"");
        assert_eq!(value(&reference(missing, None), Some(file())), Err(error));
    }
    assert_eq!(
        value(&reference("A", None), Some(gone())),
        Err("couldn't parse env file: failed to open environment variable file \"env\": it is gone".into())
    );
    assert!(value(&reference("A", None), None).is_err());
}

/// Source: `TestParseEnv` of upstream's `pkg/kubelet/util/env`.
#[test]
fn files_are_read_as_upstreams_kubelet_reads_them() {
    const ROWS: &str = include_str!("tests/upstream.txt");
    for row in ROWS.lines().filter(|row| !row.starts_with('#')) {
        let columns: Vec<&str> = row.split('|').collect();
        let [name, key, text, expect] = columns[..] else { panic!("{row}") };
        let real = |text: &str| text.replace('ǁ', "|").replace('¤', "\r").replace('¶', "\n");
        let text = real(text.strip_prefix(' ').unwrap_or(text).trim_end_matches(' '));
        let found = find(&text, key.trim()).map_err(|error| error.to_string());
        let expect = expect.trim();
        let value = expect.strip_prefix('~').and_then(|rest| rest.strip_suffix('~')).unwrap_or(expect);
        match (expect.strip_prefix('!'), found) {
            (Some(why), Err(error)) => assert!(error.contains(why), "{name}: {error}"),
            (Some(value), Ok(found)) => assert_eq!(found, real(value), "{name}"),
            (None, found) => assert_eq!(found, Ok(real(value)), "{name}"),
        }
    }
}

#[test]
fn names_and_values_have_their_bounds() {
    let reference = |key: String| FileKeySelector {
        key,
        path: "env".into(),
        volume_name: "v".into(),
        optional: Some(true),
    };
    let of = |key: String, value: usize| {
        let text = format!("{key}='{}'", "v".repeat(value));
        super::value(&reference(key), Some(&Ok(text))).map_err(|error| error.to_string())
    };
    assert_eq!(of("k".repeat(128), 32 << 10).map(|found| found.map(|value| value.len())), Ok(Some(32 << 10)));
    let error = of("k".repeat(129), 1).unwrap_err();
    assert!(error.ends_with("exceeds maximum length of 128 characters"), "{error}");
    let error = of("k".to_owned(), (32 << 10) + 1).unwrap_err();
    assert_eq!(error, "environment variable value for key \"k\" exceeds maximum length of 32768 bytes");
}
