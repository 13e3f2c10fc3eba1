use parking_lot::Mutex;

use super::*;
use crate::machine::nodes::Distances;

pub(super) fn nodes(list: &[usize]) -> Nodes {
    list.iter().copied().collect()
}

/// `!` in front of what is not preferred; `*` for wherever.
pub(super) fn hint(text: &str) -> Hint {
    let is_preferred = !text.starts_with('!');
    let text = text.trim_start_matches('!');
    let list = text.split('+').filter_map(|node| node.parse().ok());
    Hint { nodes: (text != "*").then(|| list.collect()), is_preferred }
}

/// One resource per word, its hints with commas; `-` for nothing possible.
fn hints(text: &str) -> Vec<Hints> {
    let list = |word: &str| word.split(',').filter(|hint| *hint != "-").map(hint).collect();
    text.split(' ').map(|word| Hints::from([(word.to_owned(), Some(list(word)))])).collect()
}

fn check(policy: Policy, given: &str, expect: Option<&str>) {
    let found = policy.merge(nodes(&[0, 1]), &hints(given), Order::Narrowest);
    assert_eq!(found, expect.map(hint), "{}: {given}", policy.as_str());
}

#[test]
fn preferred_hints_that_agree_are_taken_by_every_policy() {
    for policy in [Policy::BestEffort, Policy::Restricted, Policy::SingleNumaNode] {
        check(policy, "0,1,!0+1 1,!0+1", Some("1"));
        check(policy, "0,1 0,1", Some("0"));
        check(policy, "* 1", Some("1"));
    }
}

#[test]
fn what_lies_apart_is_refused_by_all_but_best_effort() {
    check(Policy::BestEffort, "0 1", Some("!0+1"));
    check(Policy::Restricted, "0 1", None);
    check(Policy::SingleNumaNode, "0 1", None);
    check(Policy::BestEffort, "0,!0+1 !0+1", Some("!0+1"));
    check(Policy::BestEffort, "- 1", Some("!1"));
    check(Policy::Restricted, "- 1", None);
}

#[test]
fn what_needs_two_nodes_is_refused_only_where_one_is_demanded() {
    check(Policy::Restricted, "0+1 0+1", Some("0+1"));
    check(Policy::SingleNumaNode, "0+1 0+1", None);
    check(Policy::SingleNumaNode, "* *", Some("*"));
}

/// Source: `bestNonPreferredAffinityCount` of upstream's `policy_test.go`.
#[test]
fn what_is_not_preferred_comes_as_near_as_can_be_to_what_is_needed() {
    let all = nodes(&[0, 1, 2, 3]);
    for (given, expect) in [
        ("!0+1+2+3,!0+1 !0+1", "!0+1"),
        ("!0+1+2+3,!0+1 !0+3", "!0+3"),
        ("!0+1+2+3,!0+1 !1+2", "!1+2"),
        ("!0+1+2+3,!0+1 !2+3", "!2+3"),
        ("!0+1+2+3,!0+1 !1+2,!2+3", "!1+2"),
        ("!0+1+2+3,!0+1 !0+1+2+3,!1+2+3 !1+2,!2+3", "!1+2"),
        ("!0+1+2,!1+2+3 !0,!0+1+2,!2", "!0+1+2"),
        ("!0+1+2+3 *", "!0+1+2+3"),
        ("!1,!0+1 -", "!1"),
    ] {
        let found = Policy::BestEffort.merge(all, &hints(given), Order::Narrowest);
        assert_eq!(found, Some(hint(expect)), "{given}");
    }
}

#[test]
fn of_as_many_nodes_the_nearer_ones_are_taken_if_that_is_wanted() {
    // 0 is near 3, and 1 is near 2.
    let distance = |from: usize, to: usize| match (from + to, from == to) {
        (_, true) => 10,
        (3, _) => 12,
        _ => 30,
    };
    let pairs = (0..4).flat_map(|from| (0..4).map(move |to| ((from, to), distance(from, to))));
    let distances = Distances(pairs.collect());
    let all = nodes(&[0, 1, 2, 3]);
    let given = hints("0+1,0+3,1+2,!0+1+2");
    let merged = |order| Policy::BestEffort.merge(all, &given, order);
    assert_eq!(merged(Order::Narrowest), Some(hint("0+1")));
    assert_eq!(
        merged(Order::Closest(&distances)),
        Some(hint("1+2")),
        "the lower bits of those that are as near"
    );
}

#[test]
fn subsets_come_small_ones_first() {
    let text = format!("{:?}", nodes(&[0, 2, 5]).subsets());
    assert_eq!(text, "[{0}, {2}, {5}, {0, 2}, {0, 5}, {2, 5}, {0, 2, 5}]");
}

#[test]
fn the_fewest_nodes_that_could_are_preferred_even_if_they_are_taken() {
    let has = |set: Nodes| i64::try_from(set.len()).unwrap() * 4;
    let gives = |set: Nodes| Some(set.iter().map(|node| if node == 0 { 1 } else { 4 }).sum());
    let found = hints_for(nodes(&[0, 1]), 4, has, gives);
    assert_eq!(found, [hint("1"), hint("!0+1")]);
    assert_eq!(hints_for(nodes(&[0, 1]), 5, has, gives), [hint("0+1")]);
    assert_eq!(hints_for(nodes(&[0, 1]), 6, has, gives), []);
}

/// Gives from one node, and notes who got what.
struct Fixed(&'static str, Mutex<Vec<String>>);

impl Provider for Fixed {
    fn hints(&self, _: &str, _: &PodSpec, asker: Asker<'_>) -> Hints {
        let who = match asker {
            Asker::Pod => "pod".to_owned(),
            Asker::Container(container) => container.name.clone(),
        };
        self.1.lock().push(format!("{who}?"));
        hints(self.0).remove(0)
    }

    fn allocate(&self, _: &str, _: &PodSpec, container: &Container, hint: &Hint) -> Result<(), Rejection> {
        self.1.lock().push(format!("{}={:?}", container.name, hint.nodes));
        Ok(())
    }
}

fn run(policy: Policy, scope: Scope, given: &'static str) -> (Result<(), Rejection>, String) {
    let spec: PodSpec =
        serde_saphyr::from_str("{initContainers: [{name: i}], containers: [{name: a}]}").unwrap();
    let provider = Fixed(given, Mutex::default());
    let alignment = Alignment { policy, scope, ..Alignment::default() };
    let memory = [0, 1].map(|node| (node, BTreeMap::new())).into();
    let layout = Layout { memory, ..Layout::default() };
    let result = alignment.allocate(&layout, "u", &spec, &[&provider]);
    (result, provider.1.into_inner().join(" "))
}

#[test]
fn the_scope_says_whether_containers_are_asked_about_one_by_one() {
    let (result, asked) = run(Policy::SingleNumaNode, Scope::Container, "1");
    assert_eq!((result, asked.as_str()), (Ok(()), "i? i=Some({1}) a? a=Some({1})"));
    let (result, asked) = run(Policy::Restricted, Scope::Pod, "1");
    assert_eq!((result, asked.as_str()), (Ok(()), "pod? i=Some({1}) a=Some({1})"));
    let (result, asked) = run(Policy::None, Scope::Pod, "-");
    assert_eq!((result, asked.as_str()), (Ok(()), "i=None a=None"));
}

#[test]
fn a_pod_that_would_lie_apart_is_refused_in_upstreams_words() {
    let (result, asked) = run(Policy::Restricted, Scope::Container, "!0+1");
    let expect =
        Rejection::new("TopologyAffinityError", "Resources cannot be allocated with Topology locality");
    assert_eq!((result, asked.as_str()), (Err(expect), "i?"));
    assert_eq!(run(Policy::BestEffort, Scope::Container, "!0+1").0, Ok(()));
}
