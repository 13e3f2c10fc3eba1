//! Which seeds a test takes: those that every run has and new ones, or the one that brings a failure back.
//!
//! - `KNARR_TEST_SEED=N`: that one alone.
//! - `KNARR_TEST_SEEDS=fixed`: no new ones, so that a run says something about what was changed, and not about its luck.
//!   That is for CI; who looks for what nobody has seen yet runs the tests without it, or `cargo xtask torture`.

use anyhow::{Context, Result, bail};
use base::Random;

/// What new seeds are below: they are typed by people.
const NEW_BELOW: u64 = 1 << 32;

/// The seeds of a test: `always`, and so many new ones, unless the environment says otherwise. Prints them.
///
/// # Panics
/// If the environment says what nobody can mean.
#[must_use]
pub fn seeds(always: &[u64], new: usize) -> Vec<u64> {
    let variable = |name| std::env::var(name).ok();
    let random = Random::from_system();
    let seeds = chosen(variable("KNARR_TEST_SEED"), variable("KNARR_TEST_SEEDS"), always, new, &random);
    #[expect(clippy::panic, reason = "for tests")]
    let seeds = seeds.unwrap_or_else(|wrong| panic!("{wrong}"));
    eprintln!("seeds: {seeds:?}");
    seeds
}

fn chosen(
    again: Option<String>,
    which: Option<String>,
    always: &[u64],
    new: usize,
    random: &Random,
) -> Result<Vec<u64>> {
    if let Some(seed) = again {
        let number = seed.parse().ok();
        let number = number.with_context(|| format!("KNARR_TEST_SEED must be a number, not {seed:?}"))?;
        return Ok(vec![number]);
    }
    let new = match which.as_deref() {
        None => new,
        Some("fixed") => 0,
        Some(other) => {
            bail!("KNARR_TEST_SEEDS must be \"fixed\" or not be there, not {other:?}");
        }
    };
    Ok(always.iter().copied().chain((0..new).map(|_| random.below(NEW_BELOW))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_chooses_seeds() {
        let check = |again: Option<&str>, which: Option<&str>, expect: Result<&[u64], &str>| {
            let own = |text: Option<&str>| text.map(str::to_owned);
            let chosen = chosen(own(again), own(which), &[3, 4], 1, &Random::seeded(1));
            match expect {
                Ok(seeds) => assert_eq!(chosen.unwrap(), seeds, "{again:?} {which:?}"),
                Err(text) => assert!(chosen.unwrap_err().to_string().contains(text), "{again:?} {which:?}"),
            }
        };
        let new = Random::seeded(1).below(NEW_BELOW);
        check(None, None, Ok(&[3, 4, new]));
        check(None, Some("fixed"), Ok(&[3, 4]));
        check(Some("7"), None, Ok(&[7]));
        check(Some("7"), Some("fixed"), Ok(&[7]));
        check(Some("seven"), None, Err("must be a number, not \"seven\""));
        check(None, Some("free"), Err("must be \"fixed\""));
    }
}
