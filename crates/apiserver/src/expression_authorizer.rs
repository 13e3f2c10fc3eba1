//! The authorizers of this server, for expressions that ask what somebody may do.
//!
//! Evaluation does not wait, and authorization webhooks have to be waited for. So an evaluation that asks what only they
//! know ends, they are asked, and all is evaluated again, with what is known now. How often is bounded by what questions
//! cost ([`expressions::PER_CALL_LIMIT`] is less than three of them), and once more here.
//!
//! Source: `k8s.io/apiserver/pkg/cel/library/authz.go`, `pkg/admission/plugin/policy/validating/caching_authorizer.go`.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use auth::{Attributes, Decision as Decided, UserInfo};
use expressions::{
    Authorizer, AuthorizerValue, Decision, Question, Resource, ResourceCheck, ServiceAccount, Subject, Value,
};
use futures::future::join_all;
use parking_lot::Mutex;

use crate::security::{Security, Verdict};

/// How often something is evaluated until all that it asks is known: more often than any budget pays for.
const EVALUATIONS_MAX: usize = 64;

/// Answers on behalf of whoever has sent a request. A question has the same answer as long as this is there.
pub(crate) struct ExpressionAuthorizer {
    security: Arc<Security>,
    user: UserInfo,
    asked: Mutex<Asked>,
}

/// What had to be asked of others.
#[derive(Default)]
struct Asked {
    answers: HashMap<Question, Decision>,
    open: Vec<Question>,
}

impl ExpressionAuthorizer {
    /// Nothing has been asked yet.
    pub(crate) fn new(security: &Arc<Security>, user: &UserInfo) -> Arc<Self> {
        Arc::new(Self { security: Arc::clone(security), user: user.clone(), asked: Mutex::default() })
    }

    /// `authorizer`.
    pub(crate) fn value(self: &Arc<Self>) -> Value<'static> {
        let authorizer = Arc::clone(self) as Arc<dyn Authorizer>;
        Value::Authorizer(Arc::new(AuthorizerValue { authorizer, service_account: None }))
    }

    /// `authorizer.requestResource`: the question about what the request itself is about.
    pub(crate) fn request_resource(self: &Arc<Self>, resource: Resource) -> Value<'static> {
        let authorizer = Arc::clone(self) as Arc<dyn Authorizer>;
        Value::ResourceCheck(Arc::new(ResourceCheck::new(authorizer, resource)))
    }

    /// Evaluates until all that is asked is known. What an evaluation remembers and uses up has to be its own: budgets,
    /// variables that are computed. It takes as long as others take to answer; whoever calls has the deadline.
    pub(crate) async fn settle<T>(&self, mut evaluate: impl FnMut() -> T) -> T {
        for _ in 1..EVALUATIONS_MAX {
            let found = evaluate();
            let open = std::mem::take(&mut self.asked.lock().open);
            if open.is_empty() {
                return found;
            }
            let answers = join_all(open.into_iter().map(|question| self.ask(question))).await;
            self.asked.lock().answers.extend(answers);
        }
        evaluate()
    }

    async fn ask(&self, question: Question) -> (Question, Decision) {
        let account = question.service_account.as_ref().map(user_of);
        let verdict =
            self.security.decide(account.as_ref().unwrap_or(&self.user), &attributes(&question)).await;
        (question, decision(verdict))
    }
}

impl fmt::Debug for ExpressionAuthorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpressionAuthorizer").field("user", &self.user.name).finish_non_exhaustive()
    }
}

impl Authorizer for ExpressionAuthorizer {
    fn check(&self, question: &Question) -> Option<Decision> {
        if let Some(known) = self.asked.lock().answers.get(question) {
            return Some(known.clone());
        }
        let account = question.service_account.as_ref().map(user_of);
        let user = account.as_ref().unwrap_or(&self.user);
        let verdict = self.security.decide_at_once(user, &attributes(question));
        if verdict.is_none() {
            self.asked.lock().open.push(question.clone());
        }
        verdict.map(decision)
    }
}

/// As upstream, nobody who has been authenticated: what everybody may who is known is no answer.
fn user_of(ServiceAccount { namespace, name }: &ServiceAccount) -> UserInfo {
    let mut user = UserInfo::service_account(namespace, name, "");
    user.groups.retain(|group| group != auth::AUTHENTICATED);
    user
}

fn attributes(question: &Question) -> Attributes {
    let asked = match &question.subject {
        Subject::Path(path) => Attributes { path: path.clone(), ..Attributes::default() },
        Subject::Resource(resource) => Attributes {
            group: resource.group.clone(),
            version: "*".to_owned(),
            resource: resource.resource.clone(),
            subresource: resource.subresource.clone(),
            namespace: resource.namespace.clone(),
            name: resource.name.clone(),
            field_selector: resource.field_selector.clone(),
            label_selector: resource.label_selector.clone(),
            is_resource: true,
            ..Attributes::default()
        },
    };
    Attributes { verb: question.verb.clone(), ..asked }
}

fn decision(verdict: Verdict) -> Decision {
    let (is_allowed, reason) = match verdict.decision {
        Decided::Allow(reason) => (true, reason),
        Decided::NoOpinion(reason) | Decided::Deny(reason) => (false, reason),
    };
    Decision { is_allowed, reason, error: verdict.error }
}
