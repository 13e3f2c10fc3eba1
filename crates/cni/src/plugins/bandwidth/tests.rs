use std::collections::HashMap;

use expect_test::{Expect, expect};
use serde_json::json;

use super::*;

/// In bytes, as tc-tbf(8) has it.
fn text(bucket: Option<TokenBucket>) -> String {
    let Some(TokenBucket { rate, limit, buffer_ticks }) = bucket else { return "-".to_owned() };
    let burst = u128::from(buffer_ticks) * u128::from(TICK_NANOS) * u128::from(rate) / 1_000_000_000;
    format!("rate {rate} burst {burst} limit {limit}")
}

#[test]
fn annotations_are_queues_at_both_ends() {
    let check = |ingress: &str, egress: &str, expect: Expect| {
        let pairs = [("ingress", ingress), ("egress", egress)];
        let said = pairs.into_iter().filter(|(_, value)| !value.is_empty());
        let annotations: HashMap<String, String> =
            said.map(|(way, value)| (format!("kubernetes.io/{way}-bandwidth"), value.to_owned())).collect();
        let limits = crate::bandwidth(&annotations).unwrap().map(|told| Limits::read(&told).unwrap());
        let (ingress, egress) = limits.unwrap_or_default().plan(1500);
        expect.assert_eq(&format!("{}; {}", text(ingress), text(egress)));
    };
    check("", "", expect!["-; -"]);
    check("8M", "", expect!["rate 1000000 burst 73728 limit 98728; -"]);
    check("", "8M", expect!["-; rate 1000000 burst 73728 limit 98728"]);
    check("1k", "1Mi", expect!["rate 125 burst 34359 limit 73731; rate 131072 burst 73728 limit 77004"]);
    check(
        "100M",
        "1G",
        expect!["rate 12500000 burst 625000 limit 937500; rate 125000000 burst 6250000 limit 9375000"],
    );
    // More than 32 bits of bytes in a second.
    check(
        "40G",
        "1P",
        expect![
            "rate 5000000000 burst 250000000 limit 375000000; rate 125000000000000 burst 6250000000000 limit 4294967295"
        ],
    );
}

#[test]
fn a_burst_that_somebody_chose_is_kept_if_a_packet_fits_in_it() {
    let check = |rate: u64, burst: u64, mtu: u32, expect: Expect| {
        expect.assert_eq(&text(Some(bucket(rate, burst, mtu))));
    };
    check(8_000_000, 800_000, 1500, expect!["rate 1000000 burst 100000 limit 125000"]);
    check(8_000_000, 80, 1500, expect!["rate 1000000 burst 1518 limit 26518"]);
    check(8_000_000, 80, 65_000, expect!["rate 1000000 burst 65018 limit 90018"]);
    // What runtimes say that have none to say.
    check(8_000_000, u64::from(u32::MAX), 1500, expect!["rate 1000000 burst 73728 limit 98728"]);
    check(8_000_000, 0, 65_535, expect!["rate 1000000 burst 73728 limit 98728"]);
    // At least one unit of the kernel's time; no more than it can count.
    check(1_000_000_000_000_000, 8, 1500, expect!["rate 125000000000000 burst 8000000 limit 4294967295"]);
    check(1, BURST_BITS_MAX - 1, 1500, expect!["rate 1 burst 274 limit 4294967294"]);
    check(u64::MAX, 0, 1500, expect!["rate 2305843009213693951 burst 115292150460684697 limit 4294967295"]);
}

#[test]
fn limits_that_mean_nothing_are_refused() {
    let check = |limits: Value, expect: Result<bool, &str>| {
        let is_none = Limits::read(&limits).map(|limits| limits.is_none()).map_err(|error| error.to_string());
        match (is_none, expect) {
            (Err(found), Err(expect)) => assert!(found.starts_with(expect), "{limits}: {found}"),
            (found, expect) => assert_eq!(found, expect.map_err(str::to_owned), "{limits}"),
        }
    };
    check(json!({}), Ok(true));
    check(json!({ "ingressRate": 0, "ingressBurst": 0, "type": "bandwidth" }), Ok(true));
    check(json!({ "egressRate": 1000 }), Ok(false));
    check(json!({ "egressBurst": 1000 }), Err("if burst is set, rate must also be set"));
    check(json!({ "egressRate": 1, "egressBurst": BURST_BITS_MAX }), Err("burst cannot be more than 4GB"));
    check(json!({ "egressRate": "8M" }), Err("invalid type: string \"8M\", expected u64"));
    check(json!({ "egressRate": -8 }), Err("invalid value: integer `-8`, expected u64"));
}

#[test]
fn what_the_kernel_lacks_is_told_by_name() {
    let check = |number: i32, expect: &str| {
        let error = sys::Error::new("create ifb link kb0", std::io::Error::from_raw_os_error(number));
        assert_eq!(needing::<()>("ifb (module ifb)", Err(error)).unwrap_err().to_string(), expect);
    };
    let lacks = "cannot limit the bandwidth: the kernel has no ifb (module ifb)";
    // Of links, and of queues and filters.
    check(95, lacks);
    check(2, lacks);
    check(1, "create ifb link kb0");
}
