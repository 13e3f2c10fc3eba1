use super::*;

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Said(&'static str, #[source] Option<Box<Said>>);

#[test]
fn causes_follow_their_effects_and_are_said_once() {
    let told = |texts: &[&'static str]| {
        let all = texts.iter().rev().fold(None, |cause, text| Some(Box::new(Said(text, cause))));
        error_chain(&*all.unwrap())
    };
    assert_eq!(told(&["a"]), "a");
    assert_eq!(told(&["a", "b", "c"]), "a: b: c");
    assert_eq!(told(&["read x: no such file", "no such file"]), "read x: no such file");
    assert_eq!(told(&["a: b", "b", "c"]), "a: b: c");
}
