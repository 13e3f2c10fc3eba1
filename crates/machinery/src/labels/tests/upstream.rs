//! The cases of upstream's `labels/selector_test.go`.

use serde_json::json;

use super::*;

#[test]
fn selectors_are_read_and_written() {
    for (text, expect) in [
        ("x=a,y=b,z=c", "x=a,y=b,z=c"),
        ("", ""),
        ("x!=a,y=b", "x!=a,y=b"),
        ("x=", "x="),
        ("x= ", "x="),
        ("x= ,z= ", "x=,z="),
        ("!x", "!x"),
        ("x>1", "x>1"),
        ("x>1,z<5", "x>1,z<5"),
        ("a=x,x=a", "a=x,x=a"),
        ("x=a,a=x", "a=x,x=a"),
        ("x==a", "x=a"),
        ("\rx", "x"),
        ("a ", "a"),
        ("this-is-a-dns.domain.com/key-with-dash", "this-is-a-dns.domain.com/key-with-dash"),
        (
            "other-dns.domain.com/key-with-dash in (so,what)",
            "other-dns.domain.com/key-with-dash in (so,what)",
        ),
        (
            "0.1.2.domain/99 notin (10.10.100.1, tick.tack.clock)",
            "0.1.2.domain/99 notin (10.10.100.1,tick.tack.clock)",
        ),
        ("foo  in\t (abc)", "foo=abc"),
        ("x notin\n (abc)", "x!=abc"),
        ("x  notin\t\t(abc,def)", "x notin (abc,def)"),
        ("x in (def,abc)", "x in (abc,def)"),
        ("x in (abc,)", "x in (,abc)"),
        ("x in (abc,abc)", "x=abc"),
        ("x in ()", "x="),
        ("x in (a,,)", "x in (,a)"),
        ("x in (a,,a,,a,,a,,)", "x in (,a)"),
        ("x notin (abc,,def),bar,z in (),w", "bar,w,x notin (,abc,def),z="),
        ("x,y in (a)", "x,y=a"),
        ("x=a,y!=b,z in (h,i,j)", "x=a,y!=b,z in (h,i,j)"),
        ("x notin ( )", "x!="),
        ("x notin (, a)", "x notin (,a)"),
        ("a in (x,y,notin, z,in)", "a in (in,notin,x,y,z)"),
        ("notin=in", "notin=in"),
        ("in in (in)", "in=in"),
    ] {
        let parsed = Selector::parse(text);
        assert_eq!(parsed.map(|parsed| parsed.to_string()), Ok(expect.to_owned()), "{text:?}");
    }
}

const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                         alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                         '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
                     start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
                     for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

#[test]
fn what_cannot_be_read_is_told_in_upstreams_words() {
    let requirement = |why: &str| format!("unable to parse requirement: {why}");
    let operators =
        |found: &str| requirement(&format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt"));
    let end = |found: &str| format!("found '{found}', expected: ',' or 'end of string'");
    let bad_value = |at: usize, value: &str| format!("values[{at}][x]: Invalid value: \"{value}\": {VALUE}");
    let long = "a".repeat(64);
    for (text, expect) in [
        ("x=a||y=b", requirement(&bad_value(0, "a||y"))),
        ("x==a==b", end("==")),
        ("!x=a", end("=")),
        (
            "x<a",
            requirement(
                "values[0]: Invalid value: \"a\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
        ),
        (
            "x>",
            requirement(
                "values[0]: Invalid value: \"\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
        ),
        (
            "x>~",
            requirement(&format!(
                "[values[0]: Invalid value: \"~\": for 'Gt', 'Lt' operators, the value must be an integer, {}]",
                bad_value(0, "~")
            )),
        ),
        ("x,,y", "found ',', expected: identifier after ','".to_owned()),
        (",x,y", "found ',', expected: !, identifier, or 'end of string'".to_owned()),
        ("x nott in (y)", operators("nott")),
        ("a in (xyz),", "found '', expected: identifier after ','".to_owned()),
        ("a in (xyz)b notin ()", end("b")),
        ("a in (xyz abc)", requirement("found 'abc', expected: ',' or ')'")),
        ("a in (xyz", requirement("found '', expected: ',' or ')'")),
        ("a in (xyz,", requirement("found '', expected: ',', or identifier")),
        ("a in (=)", requirement("found '=', expected: ',', ')' or identifier")),
        ("a notin(", requirement("found '', expected: ',', ')' or identifier")),
        ("a in b", requirement("found 'b' expected: '('")),
        ("a (", operators("(")),
        ("a !", operators("!")),
        ("a exists", operators("exists")),
        ("(", "found '(', expected: !, identifier, or 'end of string'".to_owned()),
        ("!", requirement("found '', expected: identifier")),
        ("x=(", requirement("found '(', expected: identifier")),
        ("-a=b", requirement(&format!("<nil>: Invalid value: \"-a\": {QUALIFIED}"))),
        // The key is looked at before what follows.
        ("-a~", requirement(&format!("<nil>: Invalid value: \"-a~\": {QUALIFIED}"))),
        ("x=-b", requirement(&bad_value(0, "-b"))),
        ("x in (-b,c,~)", requirement(&format!("[{}, {}]", bad_value(0, "-b"), bad_value(2, "~")))),
        (
            &format!("x={long}"),
            requirement(&format!("values[0][x]: Invalid value: \"{long}\": must be no more than 63 bytes")),
        ),
        (
            &long,
            requirement(&format!(
                "<nil>: Invalid value: \"{long}\": name part must be no more than 63 bytes"
            )),
        ),
    ] {
        assert_eq!(Selector::parse(text).map_err(|error| error.to_string()), Err(expect), "{text}");
    }
}

#[test]
fn labels_are_matched_by_every_requirement() {
    let both = json!({"x": "foo", "y": "baz"});
    for (text, labels, expect) in [
        ("", json!({"x": "y"}), true),
        ("x=y", json!({"x": "y"}), true),
        ("x=y,z=w", json!({"x": "y", "z": "w"}), true),
        ("x!=y,z!=w", json!({"x": "z", "z": "a"}), true),
        ("notin=in", json!({"notin": "in"}), true),
        ("x", json!({"x": "z"}), true),
        ("!x", json!({"y": "z"}), true),
        ("x>1", json!({"x": "2"}), true),
        ("x<1", json!({"x": "0"}), true),
        ("x=z", json!({}), false),
        ("x=y", json!({"x": "z"}), false),
        ("x=y,z=w", json!({"x": "w", "z": "w"}), false),
        ("x!=y,z!=w", json!({"x": "z", "z": "w"}), false),
        ("x", json!({"y": "z"}), false),
        ("!x", json!({"x": "z"}), false),
        ("x>1", json!({"x": "0"}), false),
        ("x<1", json!({"x": "2"}), false),
        ("x>1", json!({"x": "y"}), false),
        ("x>1", json!({}), false),
        ("foo=bar,x=y", json!({"foo": "bar", "x": "y", "baz": "blah"}), true),
        ("x in (foo),y notin (alpha)", both.clone(), true),
        ("x notin (foo),y in (alpha)", both.clone(), false),
        ("x notin (foo),y in (alpha)", json!({"x": "", "y": "alpha"}), true),
        ("x notin (),y in (baz)", both, true),
        ("x in ()", json!({"x": ""}), true),
    ] {
        let found = Selector::parse(text).expect("a selector").matches(labels.as_object());
        assert_eq!(found, expect, "{text} {labels}");
    }
}
