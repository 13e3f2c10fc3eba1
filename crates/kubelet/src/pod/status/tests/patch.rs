//! What is written of a status.

use serde_json::{Value, json};

use crate::pod::status::status_patch;

#[test]
fn only_what_has_changed_is_written_and_what_is_others_stays() {
    for line in include_str!("patches.txt").lines().filter(|line| !line.starts_with('#')) {
        let row: Vec<&str> = line.split(" | ").collect();
        let [old, new] = [row[1], row[2]].map(|text| serde_saphyr::from_str::<Value>(text).unwrap());
        let expect: Option<Value> = (row[3] != "-").then(|| serde_saphyr::from_str(row[3]).unwrap());
        let expect = expect.map(|status| json!({"metadata": {"uid": "u"}, "status": status}));
        assert_eq!(status_patch("u", &old, &new), expect, "{}", row[0]);
    }
}
