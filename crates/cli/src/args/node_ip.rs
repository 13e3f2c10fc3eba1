//! How a Node's addresses are kept: as they were when there was one at most, so that files of one release are read by
//! another.

use std::net::IpAddr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Deserialize)]
#[serde(untagged)]
enum Kept {
    Many(Vec<IpAddr>),
    One(IpAddr),
}

pub(super) fn serialize<S: Serializer>(ips: &[IpAddr], to: S) -> Result<S::Ok, S::Error> {
    match ips {
        [] => to.serialize_none(),
        [one] => one.serialize(to),
        many => many.serialize(to),
    }
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<IpAddr>, D::Error> {
    Ok(match Option::deserialize(from)? {
        None => Vec::new(),
        Some(Kept::One(one)) => vec![one],
        Some(Kept::Many(many)) => many,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Held(#[serde(with = "super")] Vec<std::net::IpAddr>);

    #[test]
    fn no_address_and_one_are_kept_as_ever() {
        for kept in [json!(null), json!("192.0.2.1"), json!(["192.0.2.1", "2001:db8::1"])] {
            let held: Held = serde_json::from_value(kept.clone()).unwrap();
            assert_eq!(serde_json::to_value(held).unwrap(), kept);
        }
        let read = |kept: Value| serde_json::from_value::<Held>(kept).is_ok();
        assert!(read(json!([])) && !read(json!("here")) && !read(json!({})) && !read(json!([7])));
    }
}
