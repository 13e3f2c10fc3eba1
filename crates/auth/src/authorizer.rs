//! May they: `system:masters`, then Node, then RBAC; the first with an opinion decides.
//!
//! Pure: the owner feeds it objects as they change and asks. Source: the union authorizer, KEP-3221.

use crate::node::NodeGraph;
use crate::rbac::Rbac;
use crate::{Attributes, Decision, MASTERS, UserInfo};

/// All authorizers and what they know.
#[derive(Clone, Debug, Default)]
pub struct Authorizer {
    rbac: Rbac,
    nodes: NodeGraph,
}

impl Authorizer {
    /// Knows nothing yet: only `system:masters` may do anything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Roles and bindings.
    pub fn rbac(&self) -> &Rbac {
        &self.rbac
    }

    /// Roles and bindings, to be kept up to date.
    pub fn rbac_mut(&mut self) -> &mut Rbac {
        &mut self.rbac
    }

    /// The graph of what each node needs.
    pub fn nodes(&self) -> &NodeGraph {
        &self.nodes
    }

    /// The graph of what each node needs, to be kept up to date.
    pub fn nodes_mut(&mut self) -> &mut NodeGraph {
        &mut self.nodes
    }

    /// Decides. `NoOpinion` means no.
    pub fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        if user.is_in(MASTERS) {
            return Decision::Allow(String::new());
        }
        let mut reasons = Vec::new();
        for decision in [self.nodes.authorize(user, attributes), self.rbac.authorize(user, attributes)] {
            match decision {
                Decision::NoOpinion(reason) if reason.is_empty() => {}
                Decision::NoOpinion(reason) => reasons.push(reason),
                decided => return decided,
            }
        }
        Decision::NoOpinion(reasons.join("\n"))
    }
}

/// The text of a 403 without the resource before it: the API server puts `pods is forbidden: ` or
/// `pods "x" is forbidden: ` in front, and `forbidden: ` for a path. `reason` is the decision's.
///
/// Source: `responsewriters.ForbiddenMessage`.
pub fn forbidden_message(user: &UserInfo, attributes: &Attributes, reason: &str) -> String {
    let (name, verb) = (&user.name, &attributes.verb);
    let message = if attributes.is_resource {
        let resource = match attributes.subresource.as_str() {
            "" => attributes.resource.clone(),
            subresource => format!("{}/{subresource}", attributes.resource),
        };
        let place = match attributes.namespace.as_str() {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        let group = &attributes.group;
        format!("User {name:?} cannot {verb} resource {resource:?} in API group {group:?} {place}")
    } else {
        format!("User {name:?} cannot {verb} path {:?}", attributes.path)
    };
    match reason {
        "" => message,
        reason => format!("{message}: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masters_may_do_everything_and_others_nothing_by_default() {
        let request = Attributes { verb: "delete".to_owned(), ..Attributes::default() };
        let authorizer = Authorizer::new();
        let decide = |user: &UserInfo| authorizer.authorize(user, &request);
        assert_eq!(decide(&UserInfo::new("root", &[MASTERS])), Decision::Allow(String::new()));
        assert_eq!(decide(&UserInfo::new("x", &[])), Decision::NoOpinion(String::new()));
        assert_eq!(decide(&UserInfo::anonymous()), Decision::NoOpinion(String::new()));
    }

    #[test]
    fn the_message_says_who_cannot_do_what_where() {
        let pods = Attributes {
            verb: "list".to_owned(),
            resource: "pods".to_owned(),
            namespace: "default".to_owned(),
            is_resource: true,
            ..Attributes::default()
        };
        let scale = Attributes {
            group: "apps".to_owned(),
            resource: "deployments".to_owned(),
            subresource: "scale".to_owned(),
            namespace: String::new(),
            ..pods.clone()
        };
        let path =
            Attributes { verb: "get".to_owned(), path: "/metrics".to_owned(), ..Attributes::default() };
        let rows = [
            (&pods, "", r#"User "x" cannot list resource "pods" in API group "" in the namespace "default""#),
            (
                &pods,
                "because",
                r#"User "x" cannot list resource "pods" in API group "" in the namespace "default": because"#,
            ),
            (
                &scale,
                "",
                r#"User "x" cannot list resource "deployments/scale" in API group "apps" at the cluster scope"#,
            ),
            (&path, "", r#"User "x" cannot get path "/metrics""#),
        ];
        for (attributes, reason, expected) in rows {
            assert_eq!(forbidden_message(&UserInfo::new("x", &[]), attributes, reason), expected);
        }
    }
}
