//! The signal by which a container is asked to end: what CRI says, else what its image says, else SIGTERM.
//!
//! By number, as the kernel has it: signals for real-time use have no names but by their distance from the first and the
//! last. Source: CRI's `Signal` (KEP-4960), the image specification's `StopSignal`, signal(7).

use cri::v1;
use nix::sys::signal::Signal;

/// The first signal for real-time use that the C library leaves to programs, as containerd counts them.
const REAL_TIME_MIN: i32 = 34;
/// The last.
const REAL_TIME_MAX: i32 = 64;

/// The signal's number.
pub(crate) fn number(asked: v1::Signal, image: &str) -> i32 {
    let of_config = (asked != v1::Signal::RuntimeDefault).then(|| parse(asked.as_str_name())).flatten();
    of_config.or_else(|| parse(image)).unwrap_or(Signal::SIGTERM as i32)
}

/// The signal as CRI has it; `RuntimeDefault` if CRI has no name for it.
pub(crate) fn reported(number: i32) -> v1::Signal {
    // The first name of those that mean the same.
    let mut all = (1..).map_while(|value| v1::Signal::try_from(value).ok());
    all.find(|signal| parse(signal.as_str_name()) == Some(number)).unwrap_or(v1::Signal::RuntimeDefault)
}

/// A number, or a name with or without `SIG`: `SIGTERM`, `USR1`, `RTMIN+3`, CRI's `SIGRTMINPLUS3`.
fn parse(text: &str) -> Option<i32> {
    if let Ok(number) = text.parse::<i32>() {
        return (1..=REAL_TIME_MAX).contains(&number).then_some(number);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let from_first = |rest: &str| distance(rest, ["+", "PLUS"]).map(|far| REAL_TIME_MIN + far);
    let from_last = |rest: &str| distance(rest, ["-", "MINUS"]).map(|far| REAL_TIME_MAX - far);
    if let Some(number) = name.strip_prefix("RTMIN").map(from_first) {
        return number;
    }
    if let Some(number) = name.strip_prefix("RTMAX").map(from_last) {
        return number;
    }
    let name = match name {
        "CLD" => "CHLD",
        "POLL" => "IO",
        "IOT" => "ABRT",
        other => other,
    };
    format!("SIG{name}").parse::<Signal>().ok().map(|signal| signal as i32)
}

fn distance(rest: &str, signs: [&str; 2]) -> Option<i32> {
    if rest.is_empty() {
        return Some(0);
    }
    let far = signs.iter().find_map(|sign| rest.strip_prefix(sign))?;
    far.parse().ok().filter(|far| (0..=REAL_TIME_MAX - REAL_TIME_MIN).contains(far))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_wins_over_the_image_and_sigterm_is_left() {
        use v1::Signal::{RuntimeDefault, Sigrtmaxminus1, Sigrtmin, Sigrtminplus15, Sigusr1};
        let check =
            |asked, image: &str, expect: i32| assert_eq!(number(asked, image), expect, "{asked:?} {image}");
        check(RuntimeDefault, "", 15);
        check(RuntimeDefault, "SIGQUIT", 3);
        check(RuntimeDefault, "quit", 3);
        check(RuntimeDefault, "9", 9);
        check(RuntimeDefault, "SIGRTMIN+3", 37);
        check(RuntimeDefault, "RTMAX-2", 62);
        check(RuntimeDefault, "65", 15);
        check(RuntimeDefault, "RTMIN+", 15);
        check(RuntimeDefault, "RTMIN+31", 15);
        check(RuntimeDefault, "SIGNOTHING", 15);
        check(Sigusr1, "SIGQUIT", 10);
        check(Sigrtmin, "", 34);
        check(Sigrtminplus15, "", 49);
        check(Sigrtmaxminus1, "", 63);
    }

    #[test]
    fn every_name_of_cri_has_a_number_and_is_found_by_it() {
        let all = (1..).map_while(|value| v1::Signal::try_from(value).ok());
        let count = all
            .map(|signal| {
                let known = parse(signal.as_str_name()).unwrap();
                assert_eq!(parse(reported(known).as_str_name()), Some(known), "{signal:?}");
            })
            .count();
        assert_eq!(count, 65);
        assert_eq!(reported(15), v1::Signal::Sigterm);
        assert_eq!(reported(17), v1::Signal::Sigchld);
    }
}
