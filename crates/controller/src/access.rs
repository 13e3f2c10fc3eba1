//! Authentication and authorization at the ports of other parts: the questions that these ask the API server about
//! every client.
//!
//! TokenReviews say who, SubjectAccessReviews say whether. Answers are kept for a while, so that they hold while the API
//! server is away. Source: `k8s.io/apiserver/pkg/{authentication,authorization}/*/delegating*`, `pkg/kubelet/server/auth.go`.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

/// Answers that are kept.
const KEPT_MAX: usize = 1024;

/// Somebody.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct User {
    /// Of the user.
    pub name: String,
    /// Of the user.
    pub groups: Vec<String>,
    /// Empty if there is none.
    pub uid: String,
}

/// The access that somebody asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Asked {
    /// Something with a subresource of a Node.
    Node {
        /// Such as `get`.
        verb: &'static str,
        /// Such as `metrics`.
        subresource: &'static str,
        /// The Node's name.
        name: String,
    },
    /// Something with a path.
    Path {
        /// Such as `get`.
        verb: &'static str,
        /// Such as `/metrics`.
        path: String,
    },
}

/// The time for which answers are good.
#[derive(Clone, Copy, Debug)]
pub struct Lives {
    /// The time for the user of a token.
    pub known: Duration,
    /// That somebody may.
    pub allowed: Duration,
    /// That somebody may not, or that a token is nobody's.
    pub refused: Duration,
}

/// The questions, and what was answered before.
pub struct Access {
    lives: Lives,
    /// By their hash: a token is not kept.
    tokens: Mutex<Answers<[u8; 32], Option<User>>>,
    reviews: Mutex<Answers<(User, Asked), bool>>,
}

/// Answers, each good until its time.
struct Answers<K, V>(HashMap<K, (Instant, V)>);

impl<K, V> Default for Answers<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Answers<K, V> {
    fn get(&self, key: &K, now: Instant) -> Option<V> {
        self.0.get(key).filter(|(until, _)| now < *until).map(|(_, value)| value.clone())
    }

    /// Keeps an answer; if there is no room, in place of the one that ends first.
    fn keep(&mut self, key: K, value: V, now: Instant, life: Duration) {
        if self.0.len() >= KEPT_MAX {
            self.0.retain(|_, (until, _)| now < *until);
        }
        if self.0.len() >= KEPT_MAX {
            let first = self.0.iter().min_by_key(|(_, (until, _))| *until).map(|(key, _)| key.clone());
            first.map(|first| self.0.remove(&first));
        }
        self.0.insert(key, (now + life, value));
    }
}

impl Access {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(lives: Lives) -> Self {
        Self { lives, tokens: Mutex::default(), reviews: Mutex::default() }
    }

    /// The user of a token; none, if it is not good.
    ///
    /// # Errors
    /// If the API server does not say.
    pub async fn of_token(&self, client: &kube::Client, token: &str) -> Result<Option<User>, kube::Error> {
        let key: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(known) = self.tokens.lock().get(&key, Instant::now()) {
            return Ok(known);
        }
        let api: Api<TokenReview> = Api::all(client.clone());
        let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let status = api.create(&PostParams::default(), &review).await?.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true)).map(|user| User {
            name: user.username.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
        });
        let life = if user.is_some() { self.lives.known } else { self.lives.refused };
        self.tokens.lock().keep(key, user.clone(), Instant::now(), life);
        Ok(user)
    }

    /// `true` if the user may do it.
    ///
    /// # Errors
    /// If the API server does not say.
    pub async fn may(&self, client: &kube::Client, user: &User, asked: Asked) -> Result<bool, kube::Error> {
        let key = (user.clone(), asked);
        if let Some(allowed) = self.reviews.lock().get(&key, Instant::now()) {
            return Ok(allowed);
        }
        let (resource_attributes, non_resource_attributes) = attributes(&key.1);
        let spec = SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            groups: Some(user.groups.clone()),
            uid: Some(user.uid.clone()).filter(|uid| !uid.is_empty()),
            resource_attributes,
            non_resource_attributes,
            ..SubjectAccessReviewSpec::default()
        };
        let api: Api<SubjectAccessReview> = Api::all(client.clone());
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let status = api.create(&PostParams::default(), &review).await?.status.unwrap_or_default();
        let life = if status.allowed { self.lives.allowed } else { self.lives.refused };
        self.reviews.lock().keep(key, status.allowed, Instant::now(), life);
        Ok(status.allowed)
    }
}

fn attributes(asked: &Asked) -> (Option<ResourceAttributes>, Option<NonResourceAttributes>) {
    match asked {
        Asked::Node { verb, subresource, name } => {
            let attributes = ResourceAttributes {
                verb: Some((*verb).into()),
                version: Some("v1".into()),
                resource: Some("nodes".into()),
                subresource: Some((*subresource).into()),
                name: Some(name.clone()),
                ..ResourceAttributes::default()
            };
            (Some(attributes), None)
        }
        Asked::Path { verb, path } => {
            let (verb, path) = (Some((*verb).into()), Some(path.clone()));
            (None, Some(NonResourceAttributes { verb, path }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: Duration = Duration::from_mins(5);
    const REFUSED: Duration = Duration::from_secs(30);

    #[test]
    fn answers_end_and_the_first_to_end_makes_room() {
        let (start, mut answers) = (Instant::now(), Answers::default());
        answers.keep(0, true, start, ALLOWED);
        for key in 1..=KEPT_MAX {
            answers.keep(key, false, start, REFUSED);
        }
        assert_eq!(answers.0.len(), KEPT_MAX);
        assert_eq!(answers.get(&0, start), Some(true), "who floods the kept refusals does not drive it out");
        assert_eq!(answers.get(&0, start + ALLOWED), None);
        answers.keep(1, true, start + REFUSED, ALLOWED);
        assert_eq!(answers.0.len(), 2, "what is over goes first");
    }
}
