//! From what a token says to the user that it stands for.
//!
//! Whoever has a token of the issuer has chosen some of what it says, so what expressions make of it has a budget, which
//! upstream's have not. Source: `plugin/pkg/authenticator/token/oidc`.

use std::collections::BTreeMap;

use auth::oidc::Claims;
use auth::{CREDENTIAL_ID, UserInfo};
use expressions::{Activation, Budget, Program, RUNTIME_BUDGET, Value};
use serde_json::{Number, Value as Json, json};

use super::compile::{CLAIMS, USER, USER_TYPE};

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
    pub fn user(&self, claims: &Claims) -> Result<UserInfo, String> {
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
            if text_of(claims, name).map_err(|why| format!("required claim {name:?}: {why}"))? != wanted {
                return Err(format!("required claim {name:?} has another value"));
            }
        }
        let Token { mut budget, .. } = token;
        hold(&self.claim_rules, &activation, &mut budget)
            .map_err(|why| format!("claim validation rules: {why}"))?;
        let shown =
            json!({"username": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra});
        let activation = Activation::new().with(USER, Value::declared(&shown, &USER_TYPE));
        hold(&self.user_rules, &activation, &mut budget)
            .map_err(|why| format!("user validation rules: {why}"))?;
        Ok(user)
    }

    fn sees_claims(&self) -> bool {
        let sees = |from: &From| matches!(from, From::Expression(_));
        let has_more = !self.extra.is_empty() || !self.claim_rules.is_empty();
        has_more || [&self.username, &self.groups, &self.uid].into_iter().any(sees)
    }

    fn username(&self, token: &mut Token<'_>) -> Result<String, String> {
        let (prefix, name) = match &self.username {
            From::Expression(expression) => ("", token.text(expression)?),
            From::Claim { name, prefix } => {
                let found = text_of(token.claims, name).map_err(|why| format!("claim {name:?}: {why}"))?;
                if name == "email" {
                    is_verified(token.claims)?;
                }
                (prefix.as_str(), found.to_owned())
            }
            From::Nothing => return Err("no claim names the user".to_owned()),
        };
        match name.is_empty() {
            true => Err("the user's name is empty".to_owned()),
            false => Ok(format!("{prefix}{name}")),
        }
    }

    fn groups(&self, token: &mut Token<'_>) -> Result<Vec<String>, String> {
        let (name, prefix) = match &self.groups {
            From::Nothing => return Ok(Vec::new()),
            From::Expression(expression) => return token.texts(expression),
            From::Claim { name, prefix } => (name, prefix),
        };
        let no_texts = || format!("claim {name:?} is neither a text nor a list of texts");
        let group = |group: &Json| Some(format!("{prefix}{}", group.as_str()?));
        match token.claims.get(name) {
            None | Some(Json::Null) => Ok(Vec::new()),
            Some(Json::Array(many)) => many.iter().map(group).collect::<Option<_>>().ok_or_else(no_texts),
            Some(one) => Ok(vec![group(one).ok_or_else(no_texts)?]),
        }
    }

    fn uid(&self, token: &mut Token<'_>) -> Result<String, String> {
        match &self.uid {
            From::Nothing => Ok(String::new()),
            From::Expression(expression) => token.text(expression),
            From::Claim { name, .. } => {
                text_of(token.claims, name).map(str::to_owned).map_err(|why| format!("claim {name:?}: {why}"))
            }
        }
    }

    fn extra(&self, token: &mut Token<'_>) -> Result<BTreeMap<String, Vec<String>>, String> {
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
    fn text(&mut self, expression: &Expression) -> Result<String, String> {
        match expression.value(self.activation, &mut self.budget)? {
            Value::String(text) => Ok(text.to_string()),
            _ => Err(format!("expression '{}' must return a string", expression.text)),
        }
    }

    /// Texts that say something.
    fn texts(&mut self, expression: &Expression) -> Result<Vec<String>, String> {
        let no_texts =
            || format!("expression '{}' must return a string or a list of strings", expression.text);
        let text = |value: Value<'_>| match value {
            Value::String(text) => Ok(text.to_string()),
            _ => Err(no_texts()),
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
    fn value<'a>(&'a self, activation: &'a Activation<'a>, budget: &mut Budget) -> Result<Value<'a>, String> {
        let found = self.program.evaluate(activation, budget).result;
        found.map_err(|why| format!("expression '{}' resulted in error: {why}", self.text))
    }
}

fn hold(rules: &[Rule], activation: &Activation<'_>, budget: &mut Budget) -> Result<(), String> {
    for Rule { condition, message } in rules {
        match condition.value(activation, budget)? {
            Value::Bool(true) => {}
            Value::Bool(false) => {
                return Err(format!("validation expression '{}' failed: {message}", condition.text));
            }
            _ => return Err(format!("validation expression '{}' must return a boolean", condition.text)),
        }
    }
    Ok(())
}

/// A claim that is a text; null is the empty one, as Go reads it.
fn text_of<'a>(claims: &'a Claims, name: &str) -> Result<&'a str, &'static str> {
    match claims.get(name) {
        None => Err("it is missing"),
        Some(Json::Null) => Ok(""),
        Some(other) => other.as_str().ok_or("it is no text"),
    }
}

/// An address that the issuer says nothing more about counts as verified. Source: OpenID Connect Core 1.0, section 5.1.
fn is_verified(claims: &Claims) -> Result<(), String> {
    match claims.get("email_verified") {
        None | Some(Json::Bool(true)) => Ok(()),
        Some(_) => Err("the address in claim \"email\" is not verified".to_owned()),
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
