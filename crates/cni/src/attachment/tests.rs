use super::*;

fn with(capabilities: Value) -> Attachment {
    Attachment { capabilities: capabilities.as_object().unwrap().clone(), ..Attachment::default() }
}

/// Source: Go's `net.ParseMAC`, by which plugins read it, for what Ethernet has.
#[test]
fn a_hardware_address_has_two_digits_for_each_of_its_bytes() {
    for (text, expect) in [
        ("02:00:00:00:00:09", Some("02:00:00:00:00:09")),
        ("02-00-00-00-00-09", Some("02:00:00:00:00:09")),
        ("AA:bb:Cc:00:00:ff", Some("aa:bb:cc:00:00:ff")),
        ("02:00:00-00:00:09", None),
        ("2:0:0:0:0:9", None),
        ("+2:00:00:00:00:09", None),
        ("002:00:00:00:00:09", None),
        ("02:00:00:00:00", None),
        ("02:00:00:00:00:09:00:00", None),
        ("02:00:00:00:00:", None),
        ("0g:00:00:00:00:09", None),
        ("020000000009", None),
        ("", None),
    ] {
        let found = parse_mac(text).map(|mac| crate::plugins::mac_text(&mac));
        assert_eq!(found.as_deref(), expect, "{text:?}");
        let wanted = with(json!({ "mac": text })).wanted_mac().map(|mac| mac.is_some());
        let told = wanted.map_err(|error| error.to_string());
        assert_eq!(told, expect.map(|_| true).ok_or(format!("invalid hardware address: {text}")));
    }
    assert!(with(json!({ "mac": 7 })).wanted_mac().unwrap().is_none(), "no text is no wish");
}

/// Source: CNI's conventions: `ips` are addresses, with or without a prefix.
#[test]
fn addresses_that_are_wished_for_are_read_with_and_without_a_prefix() {
    for (ips, expect) in [
        (json!(["10.7.0.5", "fd42::5/64"]), Ok("10.7.0.5 fd42::5")),
        (json!([]), Ok("")),
        (json!("10.7.0.5"), Ok("")),
        (json!([7, "10.7.0.5/24"]), Ok("10.7.0.5")),
        (json!(["10.7.0.5", "host"]), Err("invalid IP address: host")),
        (json!(["10.7.0"]), Err("invalid IP address: 10.7.0")),
        (json!([""]), Err("invalid IP address: ")),
        (json!(["/24"]), Err("invalid IP address: /24")),
    ] {
        let found = with(json!({ "ips": ips })).wanted_ips();
        let found = found.map(|ips| ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
        assert_eq!(
            found.map_err(|error| error.to_string()),
            expect.map(str::to_owned).map_err(str::to_owned),
            "{ips}"
        );
    }
}
