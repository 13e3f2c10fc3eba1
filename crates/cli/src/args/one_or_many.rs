//! A list that is written as a text when it has one entry: as it was before it became a list, and as who runs an older
//! release reads it.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany<T> {
    Many(Vec<T>),
    One(T),
}

/// Writes one entry alone, and any other number as a list.
///
/// # Errors
/// Those of the format.
pub fn serialize<T: Serialize, S: Serializer>(list: &[T], to: S) -> Result<S::Ok, S::Error> {
    match list {
        [one] => one.serialize(to),
        many => many.serialize(to),
    }
}

/// Reads both forms.
///
/// # Errors
/// If an entry cannot be read.
pub fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(match OneOrMany::deserialize(from)? {
        OneOrMany::Many(many) => many,
        OneOrMany::One(one) => vec![one],
    })
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use serde_json::{Value, json};

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Held(#[serde(with = "super")] Vec<IpAddr>);

    #[test]
    fn one_entry_is_a_text_and_both_forms_are_read() {
        let check = |read: Value, written: Value| {
            let held: Held = serde_json::from_value(read).unwrap();
            assert_eq!(serde_json::to_value(held).unwrap(), written);
        };
        check(json!("10.43.0.10"), json!("10.43.0.10"));
        check(json!(["10.43.0.10"]), json!("10.43.0.10"));
        check(json!(["10.43.0.10", "fd43::a"]), json!(["10.43.0.10", "fd43::a"]));
        check(json!([]), json!([]));
        for wrong in [json!("ten"), json!(["10.43.0.10", 7]), json!({}), json!(null)] {
            assert!(serde_json::from_value::<Held>(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
