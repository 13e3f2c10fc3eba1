use super::*;

fn shown(line: &str) -> Option<String> {
    let record = Record::parse(line.as_bytes())?;
    let content = String::from_utf8_lossy(&record.content).into_owned();
    Some(format!("{} {} {content:?}", record.shown_time(), record.stream))
}

/// Source: `TestParseLog` of upstream's `k8s.io/cri-client/pkg/logs`.
#[test]
fn lines_are_read_in_both_forms() {
    const TIME: &str = "2016-10-20T18:39:20.57606443Z";
    for (name, line, expect) in [
        (
            "docker, stdout",
            r#"{"log":"docker stdout","stream":"stdout","time":"TIME"}"#,
            Some(r#"stdout "docker stdout""#),
        ),
        (
            "docker, stderr",
            r#"{"log":"docker stderr\n","stream":"stderr","time":"TIME"}"#,
            Some(r#"stderr "docker stderr\n""#),
        ),
        (
            "docker, with its line end",
            "{\"log\":\"a\\n\",\"stream\":\"stdout\",\"time\":\"TIME\"}\n",
            Some(r#"stdout "a\n""#),
        ),
        ("docker, nothing printed", r#"{"stream":"stdout","time":"TIME"}"#, Some(r#"stdout """#)),
        (
            "docker, attributes",
            r#"{"log":"a","stream":"stdout","attrs":{"a":"b"},"time":"TIME"}"#,
            Some(r#"stdout "a""#),
        ),
        (
            "docker, escapes",
            r#"{"log":"\u003c\"é\t","stream":"stdout","time":"TIME"}"#,
            Some(r#"stdout "<\"é\t""#),
        ),
        ("stdout", "TIME stdout F cri stdout test log\n", Some(r#"stdout "cri stdout test log\n""#)),
        ("stderr", "TIME stderr F cri stderr test log\n", Some(r#"stderr "cri stderr test log\n""#)),
        (
            "a part",
            "TIME stdout P cri stdout partial test log\n",
            Some(r#"stdout "cri stdout partial test log""#),
        ),
        ("a part with more tags", "TIME stdout P:TAG1:TAG2 partial\n", Some(r#"stdout "partial""#)),
        ("the end with more tags", "TIME stdout F:TAG1 whole\n", Some(r#"stdout "whole\n""#)),
        ("another tag first", "TIME stdout TAG1:P whole\n", Some(r#"stdout "whole\n""#)),
        ("spaces", "TIME stdout F   a  b \n", Some(r#"stdout "  a  b \n""#)),
        ("an empty line", "TIME stdout F \n", Some(r#"stdout "\n""#)),
        ("an empty part", "TIME stdout P \n", Some(r#"stdout """#)),
        ("neither", "unsupported log format test log\n", None),
        ("another stream", "TIME stdlog F a\n", None),
        ("no stream", "TIME\n", None),
        ("no tag", "TIME stdout\n", None),
        ("no content", "TIME stdout F\n", None),
        ("no time", "yesterday stdout F a\n", None),
        ("nothing", "", None),
        ("docker, another stream", r#"{"log":"a","stream":"stdlog","time":"TIME"}"#, None),
        ("docker, no time", r#"{"log":"a","stream":"stdout"}"#, None),
        ("docker, half", r#"{"log":"a","stream":"std"#, None),
        ("docker, no text", r#"{"log":1,"stream":"stdout","time":"TIME"}"#, None),
    ] {
        let expect = expect.map(|rest| format!("2016-10-20T18:39:20.576064430Z {rest}"));
        assert_eq!(shown(&line.replace("TIME", TIME)), expect, "{name}");
    }
    let invalid = b"2016-10-20T18:39:20Z stdout F \xff\xfe\n";
    assert_eq!(&*Record::parse(invalid).unwrap().content, b"\xff\xfe\n", "what is printed need not be text");
}

/// Source: `RFC3339NanoLenient`, `RFC3339NanoFixed` of upstream.
#[test]
fn times_are_shown_with_nine_digits_where_they_were() {
    for (time, expect) in [
        ("2016-10-20T18:39:20Z", "2016-10-20T18:39:20.000000000Z"),
        ("2016-10-20T18:39:20.5Z", "2016-10-20T18:39:20.500000000Z"),
        ("2016-10-20T18:39:20.123456789Z", "2016-10-20T18:39:20.123456789Z"),
        ("2022-10-29T16:10:22.592603036-05:00", "2022-10-29T16:10:22.592603036-05:00"),
        ("2022-10-29T16:10:22-05:00", "2022-10-29T16:10:22.000000000-05:00"),
        ("2022-10-29T16:10:22.25+05:30", "2022-10-29T16:10:22.250000000+05:30"),
    ] {
        let line = format!("{time} stdout F a\n");
        assert_eq!(Record::parse(line.as_bytes()).map(|record| record.shown_time()).as_deref(), Some(expect));
    }
}

#[test]
fn a_line_ends_where_its_line_end_is() {
    for (line, expect) in [
        ("2016-10-20T18:39:20Z stdout F a\n", true),
        ("2016-10-20T18:39:20Z stdout P a\n", false),
        ("2016-10-20T18:39:20Z stdout P \n", true),
        ("2016-10-20T18:39:20Z stdout F \n", true),
        (r#"{"log":"a\n","stream":"stdout","time":"2016-10-20T18:39:20Z"}"#, true),
        (r#"{"log":"a","stream":"stdout","time":"2016-10-20T18:39:20Z"}"#, false),
    ] {
        assert_eq!(Record::parse(line.as_bytes()).unwrap().ends_line(), expect, "{line}");
    }
}
