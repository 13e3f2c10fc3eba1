use serde_json::json;

use super::*;

#[test]
fn paths_lead_where_upstreams_do() {
    let object = json!({
        "metadata": {"name": "a", "labels": {"app.kubernetes.io/name": "web"}, "annotations": {"x/y": "z"}},
        "spec": {"n": 3, "f": 1.5, "big": 1e21, "on": true, "none": null, "list": [1, 2, 3],
            "items": [{"k": "a", "v": 1}, {"k": "b", "v": 2}, {"k": "c"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "It's (ok)", "status": "False"}]},
    });
    for (path, expect) in [
        (".metadata.name", Some("a")),
        ("$.metadata.name", Some("a")),
        ("@.metadata.name", Some("a")),
        (".nothing.name", None),
        (".spec.n", Some("3")),
        (".spec.f", Some("1.5")),
        (".spec.big", Some("1e+21")),
        (".spec.on", Some("true")),
        (".spec.none", Some("<no value>")),
        (".spec.none.more", None),
        (".spec.list", Some("[1,2,3]")),
        (".spec.items[0]", Some(r#"{"k":"a","v":1}"#)),
        (".spec.list[0]", Some("1")),
        (".spec.list[-1]", Some("3")),
        (".spec.list[-1:]", Some("3")),
        (".spec.list[1:2]", Some("2")),
        (".spec.list[::2]", Some("1")),
        (".spec.list[*]", Some("1")),
        (".spec.list[3]", None),
        (".spec.list[2:1]", None),
        (".spec.list[0:0]", None),
        (".spec.list[2,0]", Some("3")),
        (".spec.n[0]", None),
        (".spec.items[*].k", Some("a")),
        (".spec.items[?(@.k==\"b\")].v", Some("2")),
        (".spec.items[?(@.k=='b')].v", Some("2")),
        (".spec.items[?(@.v>1)].k", Some("b")),
        (".spec.items[?(@.v>=1)].k", Some("a")),
        (".spec.items[?(@.v!=1)].k", Some("b")),
        (".spec.items[?(@.v<'x')].k", None),
        (".spec.items[?(@.nope)].k", None),
        (".spec.items[?(@.v)].k", Some("a")),
        (".status.conditions[?(@.type==\"Ready\")].status", Some("True")),
        (".status.conditions[?(@.type==\"It's (ok)\")].status", Some("False")),
        (".metadata.labels.app\\.kubernetes\\.io/name", Some("web")),
        (".metadata.labels['app\\.kubernetes\\.io/name']", Some("web")),
        (".metadata.annotations['x/y']", Some("z")),
        ("..name", Some("a")),
        ("..v", Some("1")),
        (".spec.list.*", Some("1")),
    ] {
        let found = JsonPath::parse(path).map(|path| path.first(&object));
        let text = match &found {
            Ok(Ok(Some(value))) => Some(printed(value)),
            _ => None,
        };
        assert_eq!(text.as_deref(), expect, "{path}: {found:?}");
    }
}

#[test]
fn what_is_no_path_is_told_why() {
    for (path, why) in [
        (".a[", "unterminated array"),
        (".a[b]", "invalid array index b"),
        (".a[1:2:3:4]", "invalid array index 1:2:3:4"),
        (".a[99999999999999999999]", "array index 99999999999999999999 is not a number"),
        (".a[?(@.b==1]", "unterminated filter"),
        (".a[?(@.b==1)", "unclosed array expect ]"),
        (".a[?(@.b=1)]", "unrecognized filter operator ="),
        ("....a", "invalid multiple recursive descent"),
        ("\"a", "unterminated quoted string"),
        (".a}", "unrecognized character in action: '}'"),
        (".a{.b}", "unrecognized character in action: '{'"),
        ("range .a", "unrecognized identifier range"),
        (".a\n", "unclosed action"),
        ("+", "cannot parse number +"),
        ("1.2.3", "cannot parse number 1.2.3"),
    ] {
        let found = JsonPath::parse(path).map(drop).map_err(|failure| failure.to_string());
        assert_eq!(found, Err(why.to_owned()), "{path}");
    }
    let deep = (0..100).fold("@.a".to_owned(), |inner, _| format!("[?({inner})]"));
    assert!(JsonPath::parse(&deep).is_err());
    assert!(JsonPath::parse(&".a".repeat(BYTES_MAX)).is_err());
}

#[test]
fn results_are_bounded() {
    let wide = json!(vec![vec![1; 200]; 200]);
    let path = JsonPath::parse("[*][*]").unwrap();
    assert_eq!(path.first(&wide), Err(FindError));
    let path = JsonPath::parse("..[*]").unwrap();
    assert!(path.first(&wide).is_err());
    assert_eq!(JsonPath::parse(".spec.a").unwrap().fields(), Some(vec!["spec", "a"]));
    assert_eq!(JsonPath::parse(".spec[0]").unwrap().fields(), None);
}
