//! Which drivers are taken in: `TestRegisterPlugin` and `TestValidatePluginExistingDriver` of upstream's `pkg/volume/csi`.

use super::*;

fn driver() -> Driver {
    Driver { client: Client::new(Path::new("/nowhere")), capabilities: BTreeSet::new() }
}

#[tokio::test]
async fn a_driver_comes_again_only_with_a_higher_version_or_after_it_has_gone() {
    for (there, new, is_taken) in [
        (&["v1.0.0"][..], &["v1.1.0"][..], true),
        (&["1.0"], &["1.0.1"], true),
        (&["v1.0.0"], &["v1.0.0"], false),
        (&["1.0"], &["1.0.0"], false),
        (&["v1.1.0"], &["v1.0.0"], false),
        (&["v1.2.3"], &["v1.2.3", "v2.3.4"], false),
        (&["1.0.0", "v1.2.3"], &["1.10.0", "1.0.0"], true),
    ] {
        let version = |texts: &[&str]| Version::highest(texts.iter().copied()).unwrap();
        let (drivers, first, second) = (Drivers::default(), Tasks::new(), Tasks::new());
        let insert = |versions: &[&str], tasks: &Tasks| {
            drivers.insert("d.example", driver(), version(versions), tasks)
        };
        let id = insert(there, &first).unwrap();
        drivers.insert("other.example", driver(), version(there), &first).unwrap();
        let case = format!("{there:?} {new:?}");
        match insert(new, &second) {
            Ok(other) => {
                assert!(is_taken, "{case}");
                assert!(!drivers.remove("d.example", id), "the first is forgotten already: {case}");
                assert!(drivers.get("d.example").is_ok() && drivers.remove("d.example", other), "{case}");
            }
            Err(error) => {
                assert!(!is_taken, "{case}");
                let expect = format!(
                    "ValidatePlugin for CSI driver \"d.example\" failed. Another driver with the same name is already \
                     registered with a higher supported version: \"{}\"",
                    version(there)
                );
                assert_eq!(error.to_string(), expect);
                first.stop();
                let again = insert(new, &second).unwrap();
                assert!(!drivers.remove("d.example", id), "who comes later is not forgotten for it: {case}");
                assert!(drivers.remove("d.example", again), "{case}");
            }
        }
        assert!(drivers.get("d.example").is_err() && drivers.get("other.example").is_ok(), "{case}");
        assert!(insert(there, &second).is_ok(), "{case}");
    }
}
