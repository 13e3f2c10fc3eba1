//! Upstream's durations are Go's: source of the cases is `time_test.go` of Go's package `time`.

use super::*;

fn check(text: &str, expect: Result<&str, &str>) {
    let read = parse(text).map(format).map_err(|error| error.to_string());
    assert_eq!(read.as_deref().map_err(String::as_str), expect, "{text}");
}

#[test]
fn durations_are_gos() {
    for (text, expect) in [
        ("0", "0s"),
        ("-0", "0s"),
        ("+0", "0s"),
        ("0h", "0s"),
        ("5s", "5s"),
        ("90s", "1m30s"),
        ("1478s", "24m38s"),
        ("-5s", "-5s"),
        ("+5s", "5s"),
        ("5.0s", "5s"),
        ("5.6s", "5.6s"),
        ("5.s", "5s"),
        (".5s", "500ms"),
        ("1.004s", "1.004s"),
        ("1.0040s", "1.004s"),
        ("100.00100s", "1m40.001s"),
        ("10ns", "10ns"),
        ("11us", "11µs"),
        ("12µs", "12µs"),
        ("3\u{3bc}s", "3µs"),
        ("13ms", "13ms"),
        ("15m", "15m0s"),
        ("16h", "16h0m0s"),
        ("3h30m", "3h30m0s"),
        ("10.5s4m", "4m10.5s"),
        ("-2m3.4s", "-2m3.4s"),
        ("1h2m3s4ms5us6ns", "1h2m3.004005006s"),
        ("39h9m14.425s", "39h9m14.425s"),
        ("52763797000ns", "52.763797s"),
        // More digits than nanoseconds have.
        ("0.3333333333333333333h", "20m0s"),
        ("0.100000000000000000000h", "6m0s"),
        ("0.830103483285477580700h", "49m48.372539827s"),
        ("0.9999999999s", "999.999999ms"),
        ("9007199254740993ns", "2501h59m59.254740993s"),
        // The largest and the smallest.
        ("9223372036854775807ns", "2562047h47m16.854775807s"),
        ("9223372036854775.807us", "2562047h47m16.854775807s"),
        ("9223372036s854ms775us807ns", "2562047h47m16.854775807s"),
        ("-9223372036854775808ns", "-2562047h47m16.854775808s"),
        ("-9223372036854775.808us", "-2562047h47m16.854775808s"),
        ("-9223372036s854ms775us808ns", "-2562047h47m16.854775808s"),
        ("-2562047h47m16.854775808s", "-2562047h47m16.854775808s"),
    ] {
        check(text, Ok(expect));
    }
}

#[test]
fn what_is_none_is_refused_in_gos_words() {
    for text in ["", "-", "s", ".", "-.", ".s", "+.s", "soon", "--5s", "+-5s", " 5s"] {
        check(text, Err(&format!("time: invalid duration \"{text}\"")));
    }
    for text in [
        "9223372036854775808ns",
        "9223372036854775810ns",
        "-9223372036854775809ns",
        "9223372036854776us",
        "3000000h",
        "9223372036854775.808us",
        "9223372036854ms775us808ns",
        "99999999999999999999999ns",
        "9999999h",
    ] {
        check(text, Err(&format!("time: invalid duration \"{text}\"")));
    }
    for text in ["3", "15", "1.2.3s", "1..5s", "1h30"] {
        check(text, Err(&format!("time: missing unit in duration \"{text}\"")));
    }
    check("3 s", Err("time: unknown unit \" s\" in duration \"3 s\""));
    check("1d", Err("time: unknown unit \"d\" in duration \"1d\""));
    check("1S", Err("time: unknown unit \"S\" in duration \"1S\""));
    check("5s ", Err("time: unknown unit \"s \" in duration \"5s \""));
    // What is not ASCII is shown byte by byte.
    check("1\u{b5}", Err(r#"time: unknown unit "\xc2\xb5" in duration "1\xc2\xb5""#));
    check("\u{fffd}", Err(r#"time: invalid duration "\xef\xbf\xbd""#));
    check("1\n\"\\", Err(r#"time: unknown unit "\x0a\"\\" in duration "1\x0a\"\\""#));
}

#[test]
fn durations_are_written_as_go_writes_them() {
    for (nanoseconds, expect) in [
        (0, "0s"),
        (1, "1ns"),
        (1_100, "1.1µs"),
        (2_200_000, "2.2ms"),
        (3_300_000_000, "3.3s"),
        (245_000_000_000, "4m5s"),
        (245_001_000_000, "4m5.001s"),
        (18_367_001_000_000, "5h6m7.001s"),
        (480_000_000_001, "8m0.000000001s"),
        (i64::MAX, "2562047h47m16.854775807s"),
        (i64::MIN, "-2562047h47m16.854775808s"),
    ] {
        assert_eq!(format(nanoseconds), expect, "{nanoseconds}");
        assert_eq!(parse(expect), Ok(nanoseconds), "{expect}");
    }
}
