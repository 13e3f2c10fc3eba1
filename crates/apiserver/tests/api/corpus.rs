//! Every input that fuzzing found interesting goes through the decoders again, on any compiler.

#![allow(clippy::let_underscore_must_use, unreachable_pub, reason = "shared with the fuzz targets")]

#[path = "../../../../fuzz/src/lib.rs"]
mod targets;

use std::path::{Path, PathBuf};

use base::Random;

/// The inputs that are kept for a decoder, in their order.
fn corpus(name: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let files = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut paths: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{name} has no corpus");
    paths
}

#[test]
fn every_decoder_takes_its_corpus() {
    for (name, run) in targets::TARGETS {
        for path in corpus(name) {
            let bytes = std::fs::read(&path).unwrap();
            if std::panic::catch_unwind(|| run(&bytes)).is_err() {
                panic!("{}", path.display());
            }
        }
    }
}

/// Pieces that decoders look at twice.
const TOKENS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "null",
    "true",
    "-",
    "0",
    "1e400",
    "-0.0",
    "99999999999999999999",
    "1e-999",
    "\\u0000",
    "\\ud800",
    "\\\\",
    "~1",
    "~0",
    "/",
    "..",
    "%2f",
    "%",
    "=",
    "!=",
    " in (",
    "notin",
    "(",
    ")",
    "<<: *a",
    "&a ",
    "*a",
    "- ",
    "? ",
    "|\n",
    "---\n",
    "!!binary ",
    "#",
    "\n",
    "\t",
    "k8s\0",
    "\0",
    "\u{feff}",
    "é",
    "$patch",
    "$retainKeys",
    "$setElementOrder/",
    "$deleteFromPrimitiveList/",
    "f:",
    "k:",
    "v:",
    "i:",
    ".",
    "{}",
    "metadata",
    "spec",
    "containers",
    "managedFields",
    "name",
    "apiVersion",
    "kind",
    "replace",
    "delete",
    "merge",
    "Ki",
    "m",
    "E3",
    "n",
];

/// One change of an input; `other` is another one of its kind.
fn mutate(random: &Random, bytes: &mut Vec<u8>, other: &[u8]) {
    let below = |bound: usize| usize::try_from(random.below(bound.max(1) as u64)).unwrap();
    let at = below(bytes.len() + 1);
    let end = (at + 1 + below(16)).min(bytes.len());
    match below(8) {
        0 if at < bytes.len() => bytes[at] ^= 1 << below(8),
        1 if at < bytes.len() => bytes[at] = u8::try_from(below(256)).unwrap(),
        2 if at < end => drop(bytes.drain(at..end)),
        3 if at < end => {
            let piece = bytes[at..end].to_vec();
            let times = 1 + below(4);
            bytes.splice(at..at, piece.repeat(times));
        }
        4 => drop(
            bytes
                .splice(at..end.max(at), other.get(below(other.len())..).unwrap_or_default().iter().copied()),
        ),
        5 => bytes.truncate(at),
        _ => drop(bytes.splice(at..at, TOKENS[below(TOKENS.len())].bytes())),
    }
    bytes.truncate(INPUT_BYTES_MAX);
}

/// Longer inputs find nothing that shorter ones do not.
const INPUT_BYTES_MAX: usize = 4096;
/// How many inputs each decoder gets; `KNARR_FUZZ_ROUNDS` asks for more.
const ROUNDS: u64 = 400;

/// What a fuzzer does, in small: `cargo fuzz` looks further, but needs another compiler.
#[test]
fn no_decoder_minds_what_chance_makes_of_its_corpus() {
    let rounds = std::env::var("KNARR_FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let seed = std::env::var("KNARR_FUZZ_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let only = std::env::var("KNARR_FUZZ_TARGET").ok();
    std::panic::set_hook(Box::new(|_| {}));
    let mut found = Vec::new();
    for (name, run) in
        targets::TARGETS.iter().filter(|(name, _)| only.as_ref().is_none_or(|only| only == name))
    {
        let random = Random::seeded(seed);
        let inputs: Vec<Vec<u8>> = corpus(name).iter().map(|path| std::fs::read(path).unwrap()).collect();
        let pick = || &inputs[usize::try_from(random.below(inputs.len() as u64)).unwrap()];
        let mut input = pick().clone();
        for round in 0..rounds {
            // Changes pile up for a while.
            if random.below(8) == 0 {
                input.clone_from(pick());
            }
            mutate(&random, &mut input, pick());
            if std::panic::catch_unwind(|| run(&input)).is_err() {
                found.push(format!("{name}, round {round}: {}", input.escape_ascii()));
                input.clone_from(pick());
            }
        }
    }
    drop(std::panic::take_hook());
    found.truncate(20);
    assert!(found.is_empty(), "seed {seed}: {found:#?}");
}
