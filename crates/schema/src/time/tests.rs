//! What Go's `time.Parse` takes, and what it says of the rest.

use super::*;

/// What is read, and written again.
fn check(text: &str, precision: Precision, expect: &str) {
    let found = parse(text, precision).map(|time| format(time, precision));
    assert_eq!(found.unwrap_or_else(|why| why.to_string()), expect, "{text}");
}

#[test]
fn times_are_read_with_whole_seconds() {
    for (text, expect) in [
        ("1998-05-05T05:05:05Z", "1998-05-05T05:05:05Z"),
        ("1998-05-05T01:05:05-04:00", "1998-05-05T05:05:05Z"),
        ("1998-05-05T05:05:05.999999999Z", "1998-05-05T05:05:05Z"),
        ("1998-05-05T05:05:05.1234567890123Z", "1998-05-05T05:05:05Z"),
        ("1998-05-05T05:05:05,5Z", "1998-05-05T05:05:05Z"),
        ("1998-05-05T5:05:05Z", "1998-05-05T05:05:05Z"),
        ("2024-02-29T00:00:00+24:60", "2024-02-27T23:00:00Z"),
        ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
        ("1969-12-31T23:59:59Z", "1969-12-31T23:59:59Z"),
    ] {
        check(text, Precision::Seconds, expect);
    }
}

#[test]
fn times_with_microseconds_have_six_decimals() {
    check("1998-05-05T05:05:05.000000Z", Precision::Micros, "1998-05-05T05:05:05.000000Z");
    check("1998-05-05T01:05:05.123456-04:00", Precision::Micros, "1998-05-05T05:05:05.123456Z");
    check("1998-05-05T01:05:05,123456-04:00", Precision::Micros, "1998-05-05T05:05:05.123456Z");
    for (text, rest, part) in [
        ("hello", "hello", "2006"),
        ("1998-05-05T05:05:05Z", "Z", ".000000"),
        ("1998-05-05T05:05:05+00:00", "+00:00", ".000000"),
        ("1998-05-05T05:05:05.000Z", ".000Z", ".000000"),
        ("1998-05-05T05:05:05.12345Z", ".12345Z", ".000000"),
        ("1998-05-05T05:05:05.1234567Z", "7Z", "Z07:00"),
        ("1998-05-05T05:05:05", "", ".000000"),
    ] {
        let layout = "2006-01-02T15:04:05.000000Z07:00";
        let why = format!("parsing time \"{text}\" as \"{layout}\": cannot parse \"{rest}\" as \"{part}\"");
        check(text, Precision::Micros, &why);
    }
}

#[test]
fn the_part_that_cannot_be_read_is_told() {
    for (text, rest, part) in [
        ("", "", "2006"),
        ("soon", "soon", "2006"),
        ("98-05-05T05:05:05Z", "98-05-05T05:05:05Z", "2006"),
        ("-998-05-05T05:05:05Z", "-998-05-05T05:05:05Z", "2006"),
        ("20a4-05-05T05:05:05Z", "20a4-05-05T05:05:05Z", "2006"),
        ("2024", "", "-"),
        ("20245-05-05T05:05:05Z", "5-05-05T05:05:05Z", "-"),
        ("2024/05/05", "/05/05", "-"),
        ("2024-", "", "01"),
        ("2024-5-05T05:05:05Z", "5-05T05:05:05Z", "01"),
        ("2024-05-5T05:05:05Z", "5T05:05:05Z", "02"),
        ("2024-05-05", "", "T"),
        ("2024-05-05 05:05:05Z", " 05:05:05Z", "T"),
        ("2024-05-05t05:05:05Z", "t05:05:05Z", "T"),
        ("2024-05-05T", "", "15"),
        ("2024-05-05T05", "", ":"),
        ("2024-05-05T05:05Z", "Z", ":"),
        ("2024-05-05T05:5:05Z", "5:05Z", "04"),
        ("2024-05-05T05:05:5Z", "5Z", "05"),
        ("2024-05-05T05:05:05", "", "Z07:00"),
        ("2024-05-05T05:05:05.", ".", "Z07:00"),
        ("2024-05-05T05:05:05.Z", ".Z", "Z07:00"),
        ("2024-05-05T05:05:05z", "z", "Z07:00"),
        ("2024-05-05T05:05:05+0200", "+0200", "Z07:00"),
        ("2024-05-05T05:05:05+02", "+02", "Z07:00"),
        ("2024-05-05T05:05:05 02:00", " 02:00", "Z07:00"),
        ("2024-05-05T05:05:05+2a:00", "+2a:00", "Z07:00"),
    ] {
        let layout = "2006-01-02T15:04:05Z07:00";
        let why = format!("parsing time \"{text}\" as \"{layout}\": cannot parse \"{rest}\" as \"{part}\"");
        check(text, Precision::Seconds, &why);
    }
    let quoted =
        r#"parsing time "\xc3\xa9\"" as "2006-01-02T15:04:05Z07:00": cannot parse "\xc3\xa9\"" as "2006""#;
    check("é\"", Precision::Seconds, quoted);
}

#[test]
fn numbers_out_of_range_and_what_comes_after_are_told() {
    for (text, why) in [
        ("2024-00-05T05:05:05Z", "month out of range"),
        ("2024-13-05T05:05:05Z", "month out of range"),
        ("2024-05-00T05:05:05Z", "day out of range"),
        ("2024-05-32T05:05:05Z", "day out of range"),
        ("2023-02-29T05:05:05Z", "day out of range"),
        ("2024-05-05T24:05:05Z", "hour out of range"),
        ("2024-05-05T23:60:05Z", "minute out of range"),
        ("2024-05-05T23:59:60Z", "second out of range"),
        ("2024-05-05T23:59:59+25:00", "time zone offset hour out of range"),
        ("2024-05-05T23:59:59-00:61", "time zone offset minute out of range"),
        ("2024-05-05T23:59:59Zz", "extra text: \"z\""),
        ("2024-05-05T23:59:59+01:00 ", "extra text: \" \""),
        // What comes too late is looked at last.
        ("2024-13-05", "month out of range"),
        ("2023-02-30Z", "cannot parse \"Z\" as \"T\""),
    ] {
        let found =
            parse(text, Precision::Seconds).map_or_else(|why| why.to_string(), |time| time.to_string());
        assert!(
            found.starts_with(&format!("parsing time \"{text}\"")) && found.ends_with(why),
            "{text}: {found}"
        );
    }
}

#[test]
fn protobuf_counts_from_1970() {
    for (text, seconds, nanos) in [
        ("1970-01-01T00:00:00Z", 0, 0),
        ("1969-12-31T23:59:59.5Z", -1, 500_000_000),
        ("0001-01-01T00:00:00Z", -62_135_596_800, 0),
        ("9999-12-31T23:59:59Z", 253_402_300_799, 0),
        ("2024-05-05T05:05:05.000001Z", 1_714_885_505, 1_000),
    ] {
        let time = parse(text, Precision::Seconds).expect("a time");
        assert_eq!(to_seconds(time), (seconds, nanos), "{text}");
        assert_eq!(from_seconds(seconds, nanos), Some(time), "{text}");
    }
    for (seconds, nanos) in [
        (253_402_300_800, 0),
        (-62_135_596_801, 0),
        (i64::MAX, 0),
        (i64::MIN, 0),
        (0, -1),
        (0, 1_000_000_000),
        (i64::MAX, i32::MAX),
    ] {
        assert_eq!(from_seconds(seconds, nanos), None, "{seconds} {nanos}");
    }
}
