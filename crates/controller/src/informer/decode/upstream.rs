//! Objects as text, and whether Go's decoder of Kubernetes would take them; what comes out is shown as it is kept.
//!
//! Source: `sigs.k8s.io/json`: case counts, unknown fields are passed over, the last of two counts, and null is nothing.

use expect_test::expect_file;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};

use super::*;
use crate::table;

#[test]
fn objects_are_taken_where_go_takes_them() {
    table::check(&expect_file!["upstream/objects.txt"], |input| {
        fn shown<K: Resource + DeserializeOwned + serde::Serialize>(text: &str) -> String {
            match object::<K>(text, &Transform::default().and_managed_fields()) {
                Ok(object) => {
                    serde_json::to_string(&object).expect("JSON").replace(r#""apiVersion":"v1","#, "")
                }
                Err(_) => "refused".to_owned(),
            }
        }
        let (kind, text) = input.split_once(' ').expect("a kind");
        match kind {
            "Pod" => shown::<Pod>(text),
            "Secret" => shown::<Secret>(text),
            _ => shown::<Service>(text),
        }
    });
}
