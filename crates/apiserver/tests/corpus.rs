//! Every input that fuzzing found interesting goes through the decoders again, on any compiler.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "a test")]
#![allow(clippy::let_underscore_must_use, unreachable_pub, reason = "shared with the fuzz targets")]

#[path = "../../../fuzz/src/lib.rs"]
mod targets;

use std::path::Path;

#[test]
fn every_decoder_takes_its_corpus() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, run) in targets::TARGETS {
        let files = std::fs::read_dir(corpus.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut count = 0;
        for file in files {
            let path = file.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            if std::panic::catch_unwind(|| run(&bytes)).is_err() {
                panic!("{}", path.display());
            }
            count += 1;
        }
        assert!(count > 0, "{name} has no corpus");
    }
}
