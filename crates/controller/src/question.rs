//! Questions of a decider to the API server that no informer answers, and their answers.
//!
//! A plan carries questions; once its steps are done they are asked, the answers are kept here, and the key runs again.
//! How old an answer may be is for who reads it to say. Answers are facts like an informer's: an answer that could not
//! be had is kept as what the server said, and is never taken for an absence.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use http_body_util::{BodyExt, Limited};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ListMeta, Status};
use kube::client::Body;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;

use crate::ask_error::AskError;
use crate::discovery::{Discovery, Watcher};
use crate::informer::{Informers, PartialObject};
use crate::resource_ref::ResourceRef;
use crate::sender::Sender;

/// Answers that are kept; the oldest go first.
const ANSWERS_MAX: usize = 4_096;
/// Objects of one answer about content: more need not be known to decide.
const CONTENT_MAX: usize = 500;
/// Of one answer: whoever serves an aggregated API may send what it likes.
const ANSWER_BYTES_MAX: usize = 32 << 20;
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Question {
    /// The resources that the server has, each in the version that it prefers.
    Resources,
    /// The remaining content of a resource in a namespace.
    Content(ResourceRef, String),
    /// One object: resource, namespace (empty for what has none), name, uid.
    ///
    /// The uid is of those who ask: one that is not there will never be there again, whatever has its name.
    Object(ResourceRef, String, String, String),
    /// The subresource `scale` of one object: resource, namespace, name.
    Scale(ResourceRef, String, String),
    /// The document under a path with its query, as the APIs of metrics have it: lists without resourceVersions, which
    /// nobody can watch.
    Document(String),
}

/// An answer.
#[derive(Clone, Debug)]
pub enum Answer {
    /// To [`Question::Resources`].
    Resources(Arc<Discovery>),
    /// To [`Question::Content`].
    Content(Arc<Content>),
    /// To [`Question::Object`]; nothing if the server says that it is not there, or another one is.
    Object(Option<Arc<PartialObject>>),
    /// To [`Question::Scale`]; nothing if the server says that the object is not there.
    Scale(Option<Scale>),
    /// To [`Question::Document`].
    Document(Arc<Value>),
}

/// The number of Pods that an object wants. Source: `autoscaling/v1.Scale`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scale {
    /// Of the object.
    pub uid: String,
    /// Of the object, when it was asked.
    pub resource_version: String,
    /// `spec.replicas`
    pub replicas: i32,
    /// `status.replicas`
    pub status_replicas: i32,
    /// `status.selector`, empty if there is none.
    pub selector: String,
}

/// The remaining content of a resource in a namespace.
#[derive(Clone, Debug, Default)]
pub struct Content {
    /// The metadata of some of the objects.
    pub objects: Vec<Arc<PartialObject>>,
    /// The number of further ones.
    pub others: usize,
}

/// The last answers, or the reasons why there was none.
#[derive(Debug, Default)]
pub struct Answers(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    answers: HashMap<Question, (Timestamp, Result<Answer, AskError>)>,
    by_age: BTreeMap<(Timestamp, Question), ()>,
}

impl Answers {
    /// The answers that whoever stands on `informers` was given.
    pub fn of(informers: &Informers) -> Arc<Self> {
        informers.setting_or(Self::default)
    }

    /// The answer, if it was asked at `not_before` or later.
    pub fn get(&self, question: &Question, not_before: Timestamp) -> Option<Result<Answer, AskError>> {
        let known = self.0.lock();
        let (_, answer) = known.answers.get(question).filter(|(asked, _)| *asked >= not_before)?;
        Some(answer.clone())
    }

    /// The resources that there are, if that was asked at `not_before` or later.
    pub fn resources(&self, not_before: Timestamp) -> Option<Result<Arc<Discovery>, AskError>> {
        match self.get(&Question::Resources, not_before)? {
            Ok(Answer::Resources(found)) => Some(Ok(found)),
            Ok(_) => None,
            Err(why) => Some(Err(why)),
        }
    }

    /// Forgets what was answered: what is as large as its sender likes is not kept longer than it is needed.
    pub fn forget(&self, question: &Question) {
        let mut known = self.0.lock();
        if let Some((asked, _)) = known.answers.remove(question) {
            known.by_age.remove(&(asked, question.clone()));
        }
    }

    /// Keeps what was answered to a question that was asked at `asked`.
    pub fn put(&self, question: Question, asked: Timestamp, answer: Result<Answer, AskError>) {
        let mut known = self.0.lock();
        if let Some((before, _)) = known.answers.insert(question.clone(), (asked, answer)) {
            known.by_age.remove(&(before, question.clone()));
        }
        known.by_age.insert((asked, question), ());
        while known.answers.len() > ANSWERS_MAX {
            let Some(((_, oldest), ())) = known.by_age.pop_first() else { return };
            known.answers.remove(&oldest);
        }
    }
}

/// Asks the server.
pub(crate) async fn ask(sender: &Sender, watcher: &Watcher, question: &Question) -> Result<Answer, AskError> {
    match question {
        Question::Resources => watcher.discover().await.map(|found| Answer::Resources(Arc::new(found))),
        Question::Content(resource, namespace) => {
            let path = format!("{}?limit={CONTENT_MAX}", resource.collection_path(namespace));
            let body = get(sender, &path, METADATA_LIST).await?.found()?;
            content(&body).map(|content| Answer::Content(Arc::new(content)))
        }
        Question::Object(resource, namespace, name, uid) => {
            let reply = get(sender, &resource.object_path(namespace, name), METADATA).await?;
            if reply.says_there_is_no(name) {
                return Ok(Answer::Object(None));
            }
            let object: PartialObject = serde_json::from_slice(&reply.found()?)?;
            let found = object.metadata.uid.as_deref().ok_or(AskError::NoUid("object"))?;
            Ok(Answer::Object((found == uid).then(|| Arc::new(object.clone()))))
        }
        Question::Scale(resource, namespace, name) => {
            let path = format!("{}/scale", resource.object_path(namespace, name));
            let reply = get(sender, &path, "application/json").await?;
            if reply.says_there_is_no(name) {
                return Ok(Answer::Scale(None));
            }
            scale(&reply.found()?).map(|scale| Answer::Scale(Some(scale)))
        }
        Question::Document(path) => {
            let body = get(sender, path, "application/json").await?.found()?;
            Ok(Answer::Document(Arc::new(serde_json::from_slice(&body)?)))
        }
    }
}

fn scale(body: &[u8]) -> Result<Scale, AskError> {
    #[derive(Deserialize)]
    struct Body {
        kind: String,
        metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
        /// Go leaves it out if it is empty.
        #[serde(default)]
        spec: Option<k8s_openapi::api::autoscaling::v1::ScaleSpec>,
        #[serde(default)]
        status: Option<k8s_openapi::api::autoscaling::v1::ScaleStatus>,
    }
    let body: Body = serde_json::from_slice(body)?;
    if body.kind != "Scale" {
        return Err(AskError::NoScale(body.kind));
    }
    let uid = body.metadata.uid.ok_or(AskError::NoUid("Scale"))?;
    let status = body.status.unwrap_or_default();
    Ok(Scale {
        uid,
        resource_version: body.metadata.resource_version.unwrap_or_default(),
        replicas: body.spec.and_then(|spec| spec.replicas).unwrap_or_default(),
        status_replicas: status.replicas,
        selector: status.selector.unwrap_or_default(),
    })
}

fn content(body: &[u8]) -> Result<Content, AskError> {
    #[derive(Deserialize)]
    struct List {
        metadata: ListMeta,
        items: Vec<Arc<PartialObject>>,
    }
    let list: List = serde_json::from_slice(body)?;
    let is_cut = list.metadata.continue_.is_some_and(|token| !token.is_empty());
    let others = list.metadata.remaining_item_count.and_then(|count| usize::try_from(count).ok());
    Ok(Content { objects: list.items, others: others.unwrap_or(usize::from(is_cut)) })
}

struct Reply {
    status: http::StatusCode,
    body: bytes::Bytes,
}

impl Reply {
    /// The body, if this is what was asked for.
    fn found(self) -> Result<bytes::Bytes, AskError> {
        if self.status.is_success() {
            return Ok(self.body);
        }
        Err(AskError::refused(self.status, &self.body))
    }

    /// Whether there is no object of this name. A server that does not serve the resource says less: then nothing is
    /// known of the object.
    fn says_there_is_no(&self, name: &str) -> bool {
        self.status == http::StatusCode::NOT_FOUND && names_missing(&self.body, name)
    }
}

/// Whether a refusal with 404 is about the object of this name, and not about its resource.
pub(crate) fn names_missing(body: &[u8], name: &str) -> bool {
    let status: Status = serde_json::from_slice(body).unwrap_or_default();
    status.details.and_then(|details| details.name).as_deref() == Some(name)
}

async fn get(sender: &Sender, path: &str, accept: &str) -> Result<Reply, AskError> {
    let request = http::Request::get(path).header("accept", accept).body(Body::empty());
    let response = sender.send(request.map_err(AskError::no_answer)?).await.map_err(AskError::no_answer)?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    Ok(Reply { status, body: body.map_err(AskError::no_answer)?.to_bytes() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn an_answer_is_as_old_as_its_question() {
        let answers = Answers::default();
        answers.put(Question::Resources, at(5), Err(AskError::NoUid("object")));
        assert!(answers.resources(at(6)).is_none());
        assert_eq!(answers.resources(at(5)).unwrap().unwrap_err().to_string(), "the object has no uid");
        answers.forget(&Question::Resources);
        assert!(answers.resources(at(0)).is_none() && answers.0.lock().by_age.is_empty());
    }

    #[test]
    fn the_oldest_answers_go_first() {
        let answers = Answers::default();
        let question = |number: usize| {
            Question::Object(
                ResourceRef::of::<k8s_openapi::api::core::v1::Pod>(),
                String::new(),
                number.to_string(),
                String::new(),
            )
        };
        for number in 0..=ANSWERS_MAX {
            answers.put(question(number), at(i64::try_from(number).unwrap()), Ok(Answer::Object(None)));
        }
        // Asked once more, it is the newest.
        answers.put(question(1), at(100_000), Ok(Answer::Object(None)));
        answers.put(question(0), at(100_001), Ok(Answer::Object(None)));
        assert!(answers.get(&question(2), at(0)).is_none(), "the oldest");
        assert!(answers.get(&question(1), at(0)).is_some() && answers.get(&question(3), at(0)).is_some());
    }

    #[test]
    fn only_what_is_named_as_missing_is_missing() {
        let check = |status: u16, body: &str| {
            let status = http::StatusCode::from_u16(status).unwrap();
            Reply { status, body: body.to_owned().into() }.says_there_is_no("a")
        };
        assert!(check(
            404,
            r#"{"kind":"Status","reason":"NotFound","details":{"name":"a","kind":"widgets"}}"#
        ));
        assert!(!check(404, "404 page not found"), "the resource is not served any more");
        assert!(!check(404, r#"{"kind":"Status","reason":"NotFound","details":{}}"#));
        assert!(!check(503, r#"{"kind":"Status","details":{"name":"a"}}"#));
        assert!(!check(200, r#"{"metadata":{"name":"a"}}"#));
    }

    #[test]
    fn a_list_that_is_cut_says_how_many_there_are_beside() {
        let cut = |metadata: &str| {
            content(
                format!(r#"{{"metadata":{metadata},"items":[{{"metadata":{{"name":"a"}}}}]}}"#).as_bytes(),
            )
            .unwrap()
        };
        assert_eq!(cut("{}").others, 0);
        assert_eq!(cut(r#"{"continue":"x","remainingItemCount":7}"#).others, 7);
        assert_eq!(cut(r#"{"continue":"x"}"#).others, 1);
        assert!(content(br#"{"kind":"Status"}"#).is_err(), "no list is no empty list");
    }

    #[test]
    fn a_scale_says_whose_it_is_and_how_many_are_wanted() {
        let check = |body: &str| scale(body.as_bytes()).map(|scale| (scale.uid, scale.replicas)).ok();
        let five = r#"{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"a","uid":"u"},"spec":{"replicas":5}}"#;
        assert_eq!(check(five), Some(("u".to_owned(), 5)));
        let none = r#"{"kind":"Scale","metadata":{"uid":"u"},"spec":{},"status":{"replicas":3}}"#;
        assert_eq!(
            (check(none), check(&none.replace("\"spec\":{},", ""))),
            (Some(("u".to_owned(), 0)), Some(("u".to_owned(), 0)))
        );
        for body in [
            r#"{"kind":"Status","metadata":{}}"#,
            r#"{"kind":"Scale","metadata":{"name":"a"},"spec":{"replicas":5}}"#,
            r#"{"kind":"Scale","metadata":{"uid":"u"},"spec":{"replicas":"many"}}"#,
            r#"{"kind":"Widget","metadata":{"uid":"u"},"spec":{"replicas":5}}"#,
            "",
        ] {
            assert_eq!(check(body), None, "{body}");
        }
    }
}
