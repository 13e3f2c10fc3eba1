//! What no client should send: refused with every broken field named, in bounded time, and nothing breaks.

use std::io::Write as _;

use testkit::Session;
use testkit::clients::KUBECTLS;

use crate::{cluster, must};

const MIB: usize = 1 << 20;

/// Bodies that are too long for a session's text.
fn write_bodies(session: &Session<'_>) -> std::io::Result<()> {
    let write = |name: &str, text: &str| {
        std::fs::File::create(session.folder().join(name))?.write_all(text.as_bytes())
    };
    let object = |data: &str| {
        format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"big"}},"data":{data}}}"#)
    };
    write("big.json", &object(&format!(r#"{{"a":"{}"}}"#, "x".repeat(4 * MIB))))?;
    write("deep.json", &object(&format!("{}{}", "[".repeat(100_000), "]".repeat(100_000))))?;
    write("deep-objects.json", &object(&format!("{}1{}", r#"{"a":"#.repeat(20_000), "}".repeat(20_000))))?;
    let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..12 {
        let before = level - 1;
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", vec![format!("*a{before}"); 10].join(",")));
    }
    bomb.push_str("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bomb}\n");
    write("bomb.yaml", &bomb)
}

#[test]
fn bad_input_is_refused_and_breaks_nothing() {
    let cluster = cluster();
    let session = must(Session::new(&cluster, KUBECTLS[1], "bad"));
    write_bodies(&session).unwrap();
    must(session.run("bad_input.txt", include_str!("sessions/bad_input.txt")));
    drop(session);
    must(cluster.remove());
}
