use super::*;

#[test]
fn so_many_at_once_and_then_as_they_come_back() {
    let half_a_second = SignedDuration::from_millis(500);
    let mut bucket = Bucket::new(half_a_second, 3);
    let mut taken = |milliseconds: i64| bucket.take(Timestamp::from_millisecond(milliseconds).unwrap());
    let results: Vec<bool> =
        [0, 0, 0, 0, 499, 500, 500, 10_000, 10_000, 10_000, 10_000].map(&mut taken).into();
    let expect = [true, true, true, false, false, true, false, true, true, true, false];
    assert_eq!(results, expect);
    let mut closed = Bucket::new(half_a_second, 0);
    assert!(!closed.take(Timestamp::UNIX_EPOCH));
}

/// Source: `TestMultithreadedThrottling` and `TestBasicThrottle` of upstream's `client-go/util/flowcontrol`, in time that is handed in.
#[test]
fn a_bucket_gives_its_burst_and_then_its_rate() {
    for (name, interval_ms, burst, asks, expect) in [
        ("one at a time", 1000, 1, &[0, 0, 999, 1000, 1000, 2000][..], "ynnyny"),
        ("three at once", 1000, 3, &[0, 0, 0, 0, 1000, 1000], "yyynyn"),
        ("tokens come back while nobody asks", 1000, 3, &[0, 0, 0, 2500, 2500, 2500], "yyyyyn"),
        ("there are never more than the burst", 1000, 2, &[0, 100_000, 100_000, 100_000], "yyyn"),
        ("who is refused takes nothing", 1000, 1, &[0, 100, 200, 300, 400, 1000], "ynnnny"),
        ("a part of a token is none", 1000, 2, &[0, 0, 500, 999, 1001], "yynny"),
        ("a clock that goes back gives nothing", 1000, 1, &[5000, 4000, 3000, 6000], "ynny"),
        ("none at all", 1000, 0, &[0, 5000], "nn"),
        ("no waiting", 0, 1, &[0, 0, 0], "yyy"),
    ] {
        let mut bucket = Bucket::new(SignedDuration::from_millis(interval_ms), burst);
        let taken = asks.iter().map(|at| {
            let is_taken = bucket.take(Timestamp::from_millisecond(*at).unwrap());
            if is_taken { 'y' } else { 'n' }
        });
        assert_eq!(taken.collect::<String>(), expect, "{name}");
    }
}

#[test]
fn over_a_long_time_no_more_is_taken_than_comes() {
    let mut bucket = Bucket::new(SignedDuration::from_millis(10), 5);
    let taken = (0..10_000).filter(|at| bucket.take(Timestamp::from_millisecond(*at).unwrap())).count();
    // One every ten of ten thousand, and those that were there.
    assert_eq!(taken, 1000 + 5 - 1);
}
