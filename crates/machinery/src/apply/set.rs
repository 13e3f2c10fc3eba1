//! A set of field paths, as a tree in order.
//!
//! A node is in the set if it is a member; being there only because something below it is a member does not count.
//! No node is without both. All operations are merges of two ordered lists, in place where the left side is owned.

use super::element::{Element, FieldPath};

/// A set of paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set<'a> {
    nodes: Vec<Node<'a>>,
}

/// A path element, whether the path that ends here is in the set, and what is below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node<'a> {
    /// The last element of the path.
    pub element: Element<'a>,
    /// `true` if the path is in the set.
    pub is_member: bool,
    /// The paths that go on from here.
    pub children: Set<'a>,
}

impl Node<'_> {
    fn is_needed(&self) -> bool {
        self.is_member || !self.children.is_empty()
    }
}

impl<'a> Set<'a> {
    /// The set without paths.
    pub const fn new() -> Self {
        Self { nodes: Vec::new() }
    }

    /// A set of paths of named fields.
    pub fn of_fields(paths: &[&[&'a str]]) -> Self {
        let mut set = Self::new();
        for path in paths {
            set.insert_path(&path.iter().map(|name| Element::field(name)).collect::<Vec<_>>());
        }
        set
    }

    /// `true` if no path is in it.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The nodes, in order.
    pub fn nodes(&self) -> &[Node<'a>] {
        &self.nodes
    }

    /// The nodes, in order, to be changed: their elements must stay, and each must stay needed.
    pub fn nodes_mut(&mut self) -> &mut [Node<'a>] {
        &mut self.nodes
    }

    /// Adds a path; the empty path is the whole object, which nobody owns.
    pub fn insert_path(&mut self, path: &[Element<'a>]) {
        match path {
            [] => {}
            [last] => self.node(last.clone()).is_member = true,
            [first, rest @ ..] => self.node(first.clone()).children.insert_path(rest),
        }
    }

    /// Adds what was found at `element`: whether it is a member, and what is below.
    pub fn attach(&mut self, element: Element<'a>, is_member: bool, children: Self) {
        if !is_member && children.is_empty() {
            return;
        }
        // Objects are walked in order, so that nearly everything goes to the end.
        if self.nodes.last().is_none_or(|last| last.element < element) {
            self.nodes.push(Node { element, is_member, children });
            return;
        }
        let node = self.node(element);
        node.is_member |= is_member;
        node.children.unite(children);
    }

    /// The node of `element`, made if absent; the caller must make it needed.
    fn node(&mut self, element: Element<'a>) -> &mut Node<'a> {
        let at = match self.find(&element) {
            Ok(at) => at,
            Err(at) => {
                self.nodes.insert(at, Node { element, is_member: false, children: Self::new() });
                at
            }
        };
        &mut self.nodes[at]
    }

    fn find(&self, element: &Element<'_>) -> Result<usize, usize> {
        self.nodes.binary_search_by(|node| node.element.cmp(element))
    }

    /// The node of `element`.
    pub fn get(&self, element: &Element<'_>) -> Option<&Node<'a>> {
        self.find(element).ok().and_then(|at| self.nodes.get(at))
    }

    /// `true` if the path is in the set.
    pub fn has(&self, path: &[Element<'_>]) -> bool {
        match path {
            [] => false,
            [last] => self.get(last).is_some_and(|node| node.is_member),
            [first, rest @ ..] => self.get(first).is_some_and(|node| node.children.has(rest)),
        }
    }

    /// Adds all paths of `other`.
    pub fn unite(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        for node in other.nodes {
            let mine = self.node(node.element);
            mine.is_member |= node.is_member;
            mine.children.unite(node.children);
        }
    }

    /// Takes all paths of `other` out; a path below a member of `other` stays.
    pub fn subtract(&mut self, other: &Set<'_>) {
        self.subtract_with(other, |node, theirs| {
            node.is_member &= !theirs.is_member;
            node.children.subtract(&theirs.children);
        });
    }

    /// Takes all paths of `other` out, and everything below them.
    pub fn subtract_trees(&mut self, other: &Set<'_>) {
        self.subtract_with(other, |node, theirs| {
            if theirs.is_member {
                node.is_member = false;
                node.children = Set::new();
            } else {
                node.children.subtract_trees(&theirs.children);
            }
        });
    }

    fn subtract_with(&mut self, other: &Set<'_>, take: impl Fn(&mut Node<'a>, &Node<'_>)) {
        let mut rest = other.nodes.as_slice();
        self.nodes.retain_mut(|node| {
            while let [theirs, more @ ..] = rest {
                match theirs.element.cmp(&node.element) {
                    std::cmp::Ordering::Less => rest = more,
                    std::cmp::Ordering::Equal => {
                        take(node, theirs);
                        break;
                    }
                    std::cmp::Ordering::Greater => break,
                }
            }
            node.is_needed()
        });
    }

    /// The paths that are in both.
    #[must_use]
    pub fn intersection(&self, other: &Set<'_>) -> Self {
        let mut rest = other.nodes.as_slice();
        let mut common = Self::new();
        for node in &self.nodes {
            while let [theirs, more @ ..] = rest {
                if theirs.element < node.element {
                    rest = more;
                    continue;
                }
                if theirs.element == node.element {
                    let children = node.children.intersection(&theirs.children);
                    common.attach(node.element.clone(), node.is_member && theirs.is_member, children);
                }
                break;
            }
        }
        common
    }

    /// Every path, a level's members before what is below them, as upstream lists them.
    pub fn paths(&self) -> Vec<FieldPath<'a>> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect(&self, prefix: &mut Vec<Element<'a>>, paths: &mut Vec<FieldPath<'a>>) {
        for node in self.nodes.iter().filter(|node| node.is_member) {
            let mut path = prefix.clone();
            path.push(node.element.clone());
            paths.push(FieldPath(path));
        }
        for node in &self.nodes {
            prefix.push(node.element.clone());
            node.children.collect(prefix, paths);
            prefix.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(paths: &[&'static str]) -> Set<'static> {
        let split: Vec<Vec<&'static str>> = paths.iter().map(|path| path.split('.').collect()).collect();
        Set::of_fields(&split.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    fn check(set: &Set<'_>, expect: &[&str]) {
        let paths: Vec<String> = set.paths().iter().map(ToString::to_string).collect();
        assert_eq!(paths, expect);
    }

    #[test]
    fn a_union_has_the_paths_of_both() {
        let mut both = set(&["a", "b.c"]);
        both.unite(set(&["b", "b.d", "e"]));
        check(&both, &[".a", ".b", ".e", ".b.c", ".b.d"]);
    }

    #[test]
    fn a_difference_keeps_what_is_below_a_member() {
        let mut left = set(&["a", "b", "b.c", "b.d"]);
        left.subtract(&set(&["a", "b", "b.c", "x"]));
        check(&left, &[".b.d"]);
        left.subtract(&set(&["b.d"]));
        assert!(left.is_empty());
    }

    #[test]
    fn trees_go_with_all_that_is_below() {
        let mut left = set(&["spec", "spec.a", "status", "status.a.b"]);
        left.subtract_trees(&set(&["status"]));
        check(&left, &[".spec", ".spec.a"]);
    }

    #[test]
    fn an_intersection_has_only_members_of_both() {
        let common = set(&["a", "b.c", "d.e"]).intersection(&set(&["a.x", "b", "b.c", "d.e"]));
        check(&common, &[".b.c", ".d.e"]);
        assert!(common.has(&[Element::field("b"), Element::field("c")]));
        assert!(!common.has(&[Element::field("b")]));
    }
}
