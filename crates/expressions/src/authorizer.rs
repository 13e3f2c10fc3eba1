//! Questions that expressions ask an authorizer: `authorizer.group('apps').resource('deployments').check('create')`.
//!
//! Who answers is up to the caller. Source: `k8s.io/apiserver/pkg/cel/library/authz.go`.

use std::fmt;
use std::sync::Arc;

/// The authorizer that expressions ask.
pub trait Authorizer: fmt::Debug + Send + Sync {
    /// Answers a question; `None` if somebody else has to be asked first. Then the evaluation ends
    /// ([`crate::EvalError::Unanswered`]), and can be repeated once the answer is known.
    fn check(&self, question: &Question) -> Option<Decision>;
}

/// The ServiceAccount that is asked about, if it is not the sender of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServiceAccount {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A question to the authorizer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    /// About whom; `None` is the user of the request.
    pub service_account: Option<ServiceAccount>,
    /// The verb.
    pub verb: String,
    /// On what.
    pub subject: Subject,
}

/// The object of the operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A path that is no resource's.
    Path(String),
    /// A resource.
    Resource(Resource),
}

/// A resource, in any version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Resource {
    /// Its API group.
    pub group: String,
    /// Its plural name.
    pub resource: String,
    /// A subresource.
    pub subresource: String,
    /// A namespace; empty for all.
    pub namespace: String,
    /// A name; empty for all.
    pub name: String,
    /// The selector of fields, as it was written.
    pub field_selector: String,
    /// The selector of labels, as it was written.
    pub label_selector: String,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// `true` if it is allowed.
    pub is_allowed: bool,
    /// The reason.
    pub reason: String,
    /// The error.
    pub error: Option<String>,
}

/// An authorizer as a value.
#[derive(Clone, Debug)]
pub struct AuthorizerValue {
    /// The authorizer that answers.
    pub authorizer: Arc<dyn Authorizer>,
    /// About whom is asked, if not the user.
    pub service_account: Option<ServiceAccount>,
}

/// `authorizer.path('/healthz')`.
#[derive(Clone, Debug)]
pub struct PathCheck {
    pub(crate) authorizer: AuthorizerValue,
    pub(crate) path: String,
}

/// `authorizer.group('apps')`.
#[derive(Clone, Debug)]
pub struct GroupCheck {
    pub(crate) authorizer: AuthorizerValue,
    pub(crate) group: String,
}

/// `authorizer.group('apps').resource('deployments')`.
#[derive(Clone, Debug)]
pub struct ResourceCheck {
    pub(crate) authorizer: AuthorizerValue,
    pub(crate) resource: Resource,
}

impl ResourceCheck {
    /// The question about the resource of a request: `authorizer.requestResource`.
    #[must_use]
    pub fn new(authorizer: Arc<dyn Authorizer>, resource: Resource) -> Self {
        Self { authorizer: AuthorizerValue { authorizer, service_account: None }, resource }
    }
}

impl AuthorizerValue {
    pub(crate) fn ask(&self, verb: &str, subject: Subject) -> Option<Decision> {
        let service_account = self.service_account.clone();
        self.authorizer.check(&Question { service_account, verb: verb.to_owned(), subject })
    }
}
