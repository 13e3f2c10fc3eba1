//! Translations as a table: a PersistentVolume, or a Pod's own volume in a namespace, and what its driver is asked for.
//!
//! Source: `plugins/*_test.go` of upstream's `csi-translation-lib`.

use expect_test::expect_file;

use super::*;
use crate::table;

#[test]
fn volumes_are_what_upstreams_library_makes_of_them() {
    table::check(&expect_file!["translations.txt"], |input| {
        let (kind, yaml) = input.split_once(' ').expect("a kind");
        let translated = match kind.strip_prefix("inline:") {
            Some(namespace) => inline(&parse(yaml), namespace),
            None => persistent(&parse(yaml)),
        };
        shown(translated).replace('\n', " ").trim_end_matches(" {}").to_owned()
    });
}
