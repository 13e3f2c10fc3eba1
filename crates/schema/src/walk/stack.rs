//! Room on the stack for walks over what is nested as deeply as it may be, whatever thread they run on.

/// What a walk to the greatest depth takes, with a margin; without optimisation a level of YAML takes 25 kB.
const STACK_BYTES: usize = if cfg!(debug_assertions) { 4 * 1024 * 1024 } else { 1024 * 1024 };

/// Runs a walk, on a stack of its own if little is left of the thread's.
pub(crate) fn with_stack<T>(walk: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(STACK_BYTES, 2 * STACK_BYTES, walk)
}

#[cfg(test)]
mod tests {
    use crate::walk::decode::FieldValidation::Ignore;
    use crate::walk::decode::from_json;

    #[test]
    fn the_greatest_depth_is_reached_on_a_small_stack() {
        let schema =
            crate::builtin().kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition").expect("a kind");
        let properties = [r#"{"not":"#.repeat(110), "{}".to_owned(), "}".repeat(110)].concat();
        let body = format!(r#"{{"spec":{{"versions":[{{"schema":{{"openAPIV3Schema":{properties}}}}}]}}}}"#);
        let run = move || from_json(schema, body.as_bytes(), Ignore).map(|decoded| drop(decoded.value));
        let small = std::thread::Builder::new().stack_size(512 * 1024).spawn(run).expect("a thread");
        assert_eq!(small.join().expect("no overflow"), Ok(()));
    }
}
