//! From what a token says to the user that it stands for.
//!
//! Whoever has a token of the issuer has chosen some of what it says, so what expressions make of it has a budget, which
//! upstream's have not. Source: `plugin/pkg/authenticator/token/oidc`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use auth::oidc::Claims;
use auth::{CREDENTIAL_ID, UserInfo};
use expressions::{Activation, Budget, Declared, EvalError, Field, ListKind, Program, RUNTIME_BUDGET, Value};
use serde_json::{Number, Value as Json, json};

/// What expressions about tokens see.
pub(super) const CLAIMS: &str = "claims";
/// What expressions about users see.
pub(super) const USER: &str = "user";
/// The type of `user`.
pub(super) static USER_TYPE: LazyLock<Declared> = LazyLock::new(user_type);

/// The users that tokens of one issuer stand for.
#[derive(Debug)]
pub struct Mapping {
    pub(super) username: From,
    pub(super) groups: From,
    pub(super) uid: From,
    pub(super) extra: Vec<(String, Expression)>,
    /// Claims that must have these values.
    pub(super) required: Vec<(String, String)>,
    pub(super) claim_rules: Vec<Rule>,
    pub(super) user_rules: Vec<Rule>,
}

/// Where something comes from.
#[derive(Debug)]
pub(super) enum From {
    Nothing,
    Claim { name: String, prefix: String },
    Expression(Expression),
}

#[derive(Debug)]
pub(super) struct Expression {
    pub(super) text: String,
    pub(super) program: Program,
}

#[derive(Debug)]
pub(super) struct Rule {
    pub(super) condition: Expression,
    pub(super) message: String,
}

/// A token that stands for nobody. Users are told nothing of it.
#[derive(Debug, thiserror::Error)]
pub enum MappingError {
    /// A claim that names part of the user, and does not.
    #[error("claim {name:?}: {why}")]
    Claim {
        /// The claim.
        name: String,
        /// What is wrong with it.
        why: ClaimProblem,
    },
    /// A claim that must have a value, and is no text.
    #[error("required claim {name:?}: {why}")]
    Required {
        /// The claim.
        name: String,
        /// What is wrong with it.
        why: ClaimProblem,
    },
    /// A claim that must have another value.
    #[error("required claim {0:?} has another value")]
    OtherValue(String),
    /// A claim that should name groups.
    #[error("claim {0:?} is neither a text nor a list of texts")]
    Groups(String),
    /// An address that the issuer does not vouch for.
    #[error("the address in claim \"email\" is not verified")]
    Unverified,
    /// Nothing says who it is.
    #[error("no claim names the user")]
    Nobody,
    /// Who it is has no name.
    #[error("the user's name is empty")]
    Nameless,
    /// An expression that went wrong.
    #[error("expression '{text}' resulted in error: {source}")]
    Expression {
        /// The expression.
        text: String,
        /// Why.
        source: EvalError,
    },
    /// An expression that does not give what it must.
    #[error("expression '{text}' must return {expected}")]
    Type {
        /// The expression.
        text: String,
        /// What it must give.
        expected: &'static str,
    },
    /// A rule that does not hold.
    #[error("validation expression '{text}' failed: {message}")]
    Rule {
        /// The expression.
        text: String,
        /// What its author says then.
        message: String,
    },
    /// A rule that is neither true nor false.
    #[error("validation expression '{0}' must return a boolean")]
    NoRule(String),
    /// One of the rules of a kind, about claims or users.
    #[error("{of} validation rules: {source}")]
    Rules {
        /// What they are about.
        of: &'static str,
        /// Which, and why.
        source: Box<Self>,
    },
}

/// What is wrong with a claim that must be a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimProblem {
    /// There is none.
    #[error("it is missing")]
    Missing,
    /// It is something else.
    #[error("it is no text")]
    NoText,
}

impl Mapping {
    /// The claim that groups come from; another issuer may know it.
    pub fn groups_claim(&self) -> Option<&str> {
        match &self.groups {
            From::Claim { name, .. } => Some(name),
            From::Nothing | From::Expression(_) => None,
        }
    }

    /// The user that a token stands for.
    ///
    /// # Errors
    /// Why it stands for none, for the log.
    pub fn user(&self, claims: &Claims) -> Result<UserInfo, MappingError> {
        let shown = if self.sees_claims() { as_go_reads(claims) } else { Json::Null };
        let activation = Activation::new().with(CLAIMS, Value::of(&shown));
        let mut token = Token { claims, activation: &activation, budget: Budget::new(RUNTIME_BUDGET) };
        let user = UserInfo {
            name: self.username(&mut token)?,
            groups: self.groups(&mut token)?,
            uid: self.uid(&mut token)?,
            extra: self.extra(&mut token)?,
        };
        for (name, wanted) in &self.required {
            let required = |why| MappingError::Required { name: name.clone(), why };
            if text_of(claims, name).map_err(required)? != wanted {
                return Err(MappingError::OtherValue(name.clone()));
            }
        }
        let Token { mut budget, .. } = token;
        let broken = |of| move |source| MappingError::Rules { of, source: Box::new(source) };
        hold(&self.claim_rules, &activation, &mut budget).map_err(broken("claim"))?;
        let shown =
            json!({"username": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra});
        let activation = Activation::new().with(USER, Value::declared(&shown, &USER_TYPE));
        hold(&self.user_rules, &activation, &mut budget).map_err(broken("user"))?;
        Ok(user)
    }

    fn sees_claims(&self) -> bool {
        let sees = |from: &From| matches!(from, From::Expression(_));
        let has_more = !self.extra.is_empty() || !self.claim_rules.is_empty();
        has_more || [&self.username, &self.groups, &self.uid].into_iter().any(sees)
    }

    fn username(&self, token: &mut Token<'_>) -> Result<String, MappingError> {
        let (prefix, name) = match &self.username {
            From::Expression(expression) => ("", token.text(expression)?),
            From::Claim { name, prefix } => {
                let found = claim(token.claims, name)?;
                if name == "email" {
                    is_verified(token.claims)?;
                }
                (prefix.as_str(), found.to_owned())
            }
            From::Nothing => return Err(MappingError::Nobody),
        };
        match name.is_empty() {
            true => Err(MappingError::Nameless),
            false => Ok(format!("{prefix}{name}")),
        }
    }

    fn groups(&self, token: &mut Token<'_>) -> Result<Vec<String>, MappingError> {
        let (name, prefix) = match &self.groups {
            From::Nothing => return Ok(Vec::new()),
            From::Expression(expression) => return token.texts(expression),
            From::Claim { name, prefix } => (name, prefix),
        };
        let no_texts = || MappingError::Groups(name.clone());
        let group = |group: &Json| Some(format!("{prefix}{}", group.as_str()?));
        match token.claims.get(name) {
            None | Some(Json::Null) => Ok(Vec::new()),
            Some(Json::Array(many)) => many.iter().map(group).collect::<Option<_>>().ok_or_else(no_texts),
            Some(one) => Ok(vec![group(one).ok_or_else(no_texts)?]),
        }
    }

    fn uid(&self, token: &mut Token<'_>) -> Result<String, MappingError> {
        match &self.uid {
            From::Nothing => Ok(String::new()),
            From::Expression(expression) => token.text(expression),
            From::Claim { name, .. } => claim(token.claims, name).map(str::to_owned),
        }
    }

    fn extra(&self, token: &mut Token<'_>) -> Result<BTreeMap<String, Vec<String>>, MappingError> {
        let mut extra = BTreeMap::new();
        if let Some(id) = token.claims.get("jti").and_then(Json::as_str).filter(|id| !id.is_empty()) {
            extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
        }
        for (key, expression) in &self.extra {
            let values = token.texts(expression)?;
            if !values.is_empty() {
                extra.insert(key.clone(), values);
            }
        }
        Ok(extra)
    }
}

/// What is known of a token while its user is found.
struct Token<'a> {
    claims: &'a Claims,
    activation: &'a Activation<'a>,
    budget: Budget,
}

impl Token<'_> {
    fn text(&mut self, expression: &Expression) -> Result<String, MappingError> {
        match expression.value(self.activation, &mut self.budget)? {
            Value::String(text) => Ok(text.to_string()),
            _ => Err(expression.must_return("a string")),
        }
    }

    /// Texts that say something.
    fn texts(&mut self, expression: &Expression) -> Result<Vec<String>, MappingError> {
        let text = |value: Value<'_>| match value {
            Value::String(text) => Ok(text.to_string()),
            _ => Err(expression.must_return("a string or a list of strings")),
        };
        let mut texts = match expression.value(self.activation, &mut self.budget)? {
            Value::Null => Vec::new(),
            Value::List(many) => many.iter().map(text).collect::<Result<_, _>>()?,
            one => vec![text(one)?],
        };
        texts.retain(|text| !text.is_empty());
        Ok(texts)
    }
}

impl Expression {
    fn value<'a>(
        &'a self,
        activation: &'a Activation<'a>,
        budget: &mut Budget,
    ) -> Result<Value<'a>, MappingError> {
        let found = self.program.evaluate(activation, budget).result;
        found.map_err(|source| MappingError::Expression { text: self.text.clone(), source })
    }

    fn must_return(&self, expected: &'static str) -> MappingError {
        MappingError::Type { text: self.text.clone(), expected }
    }
}

fn hold(rules: &[Rule], activation: &Activation<'_>, budget: &mut Budget) -> Result<(), MappingError> {
    for Rule { condition, message } in rules {
        match condition.value(activation, budget)? {
            Value::Bool(true) => {}
            Value::Bool(false) => {
                return Err(MappingError::Rule { text: condition.text.clone(), message: message.clone() });
            }
            _ => return Err(MappingError::NoRule(condition.text.clone())),
        }
    }
    Ok(())
}

fn claim<'a>(claims: &'a Claims, name: &str) -> Result<&'a str, MappingError> {
    text_of(claims, name).map_err(|why| MappingError::Claim { name: name.to_owned(), why })
}

/// A claim that is a text; null is the empty one, as Go reads it.
fn text_of<'a>(claims: &'a Claims, name: &str) -> Result<&'a str, ClaimProblem> {
    match claims.get(name) {
        None => Err(ClaimProblem::Missing),
        Some(Json::Null) => Ok(""),
        Some(other) => other.as_str().ok_or(ClaimProblem::NoText),
    }
}

fn user_type() -> Declared {
    let text = || Declared::string(None);
    let texts = || Declared::list(text(), ListKind::Atomic, None);
    let fields =
        [("username", text()), ("uid", text()), ("groups", texts()), ("extra", Declared::map(texts(), None))];
    let fields = fields.map(|(name, declared)| Field { name: name.to_owned(), declared, is_required: false });
    Declared::object(fields).named("kubernetes.UserInfo")
}

/// An address that the issuer says nothing more about counts as verified. Source: OpenID Connect Core 1.0, section 5.1.
fn is_verified(claims: &Claims) -> Result<(), MappingError> {
    match claims.get("email_verified") {
        None | Some(Json::Bool(true)) => Ok(()),
        Some(_) => Err(MappingError::Unverified),
    }
}

/// What expressions see of claims: all numbers are doubles.
fn as_go_reads(claims: &Claims) -> Json {
    fn read(json: &Json) -> Json {
        match json {
            Json::Number(number) => {
                number.as_f64().and_then(Number::from_f64).map_or(Json::Null, Json::Number)
            }
            Json::Array(elements) => Json::Array(elements.iter().map(read).collect()),
            Json::Object(members) => as_go_reads(members),
            other => other.clone(),
        }
    }
    Json::Object(claims.iter().map(|(name, value)| (name.clone(), read(value))).collect())
}
