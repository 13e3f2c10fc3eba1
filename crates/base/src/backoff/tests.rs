use super::*;

#[test]
fn delays_double_up_to_the_maximum_and_start_over_after_reset() {
    let random = Random::seeded(1);
    let mut backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(15), 0.0);
    let delays: Vec<_> = (0..4).map(|_| backoff.next(&random).as_millis()).collect();
    assert_eq!(delays, [5, 10, 15, 15]);
    backoff.reset();
    assert_eq!(backoff.next(&random).as_millis(), 5);
}

/// Source: `TestExponentialBackoff`-like cases of upstream's `util/wait`: factor 2, a cap, jitter on top.
#[test]
fn jitter_is_on_top_and_within_its_share() {
    let random = Random::seeded(7);
    for jitter in [0.0, 0.1, 1.0] {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10), jitter);
        for base in [1.0, 2.0, 4.0, 8.0, 10.0, 10.0] {
            let delay = backoff.next(&random).as_secs_f64();
            assert!(delay >= base && delay <= base * (1.0 + jitter), "{delay} for {base} and {jitter}");
        }
    }
}

#[test]
fn a_first_delay_beyond_the_maximum_is_taken_once() {
    let random = Random::seeded(1);
    let mut backoff = Backoff::new(Duration::from_secs(30), Duration::from_secs(10), 0.0);
    let delays: Vec<_> = (0..3).map(|_| backoff.next(&random).as_secs()).collect();
    assert_eq!(delays, [30, 10, 10]);
    let mut never = Backoff::new(Duration::ZERO, Duration::from_secs(10), 0.5);
    assert_eq!(never.next(&random), Duration::ZERO);
}
