//! The cases of upstream's `node_name_test.go`.

use crate::fixtures::{cluster, pod, refusals};

#[test]
fn a_pod_goes_to_the_node_that_it_names() {
    let refused = "!node(s) didn't match the requested node name";
    for (case, spec, expect) in [
        ("no name", "", ["", "", ""]),
        ("an empty name", "nodeName: ''", ["", "", ""]),
        ("a name", "nodeName: foo", [refused, "", refused]),
        ("nobody's name", "nodeName: nobody", [refused, refused, refused]),
        ("a name in capitals is another", "nodeName: FOO", [refused, refused, refused]),
        ("a part of a name is another", "nodeName: fo", [refused, refused, refused]),
    ] {
        let nodes = cluster(&[("bar", "", ""), ("foo", "", ""), ("foo.example", "", "")], &[]);
        assert_eq!(refusals("NodeName", &pod("", spec), &nodes), expect, "{case}");
    }
}
