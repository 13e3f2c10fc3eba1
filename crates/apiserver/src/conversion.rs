//! Conversion of custom objects between their versions by a webhook.
//!
//! Objects stay in the cache in the version in which they are stored. Whoever reads them in another one has them converted
//! then: in batches, each object once at a time however many ask for it, and once at all as long as the result is kept
//! (`cache.rs`).
//!
//! Invariants:
//! - Nothing waits for a webhook but requests that need what it makes: caches, controllers of this process and requests for
//!   the version that is stored do not.
//! - What a webhook answers is bounded by what it was asked, in size and number, and so are the calls at a time. It is
//!   checked object by object (`check.rs`): that one cannot be converted is no other's matter.
//! - Failures are not kept: whoever asks next asks the webhook again.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/apiserver/conversion`.

pub mod at_hand;

mod cache;
mod check;
mod metrics;
mod review;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::metrics::Metrics as Registry;
use base::{Random, Tasks};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use machinery::metadata;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout_at};

use crate::configuration_error::ConfigurationError;
use crate::object::form::{Versions, pruned};
use crate::object::{CachedObject, encode_stored};
use crate::status::{Error, Result};
use crate::webhook_client::{CALL_MAX, Client, Clients, Config, Credentials, Dial};
pub use at_hand::AtHand;
use cache::{ConversionCache, Id};
use metrics::{ConversionMetrics, FailureType};
use review::ReviewVersion;

/// How much one call asks about: so many objects, and so many bytes unless a single one has more.
const BATCH_OBJECTS_MAX: usize = 100;
const BATCH_BYTES_MAX: usize = 1024 * 1024;
/// How many calls one request makes at a time, and how many all requests for one definition make.
const CALLS_OF_REQUEST_MAX: usize = 4;
const CALLS_MAX: usize = 16;
/// How many objects one request has in hand at a time; others may ask for the rest meanwhile.
const WINDOW_OBJECTS: usize = CALLS_OF_REQUEST_MAX * BATCH_OBJECTS_MAX;
/// How long an answer may be, whatever it answers; and how much longer than what was asked.
const ANSWER_BYTES: usize = 3 * 1024 * 1024;
const ANSWER_GROWTH: usize = 2;

/// An object, or why it cannot be had.
type Outcome = Result<Arc<CachedObject>>;

/// What is told of an object that is being converted, as soon as it is known.
type Flight = watch::Receiver<Option<Outcome>>;

/// The state that all conversions of a server share.
pub struct Converters {
    clients: Clients,
    memo: ConversionCache,
    metrics: Arc<ConversionMetrics>,
    random: Random,
    made: AtomicU64,
}

impl Converters {
    /// No conversions yet. `dial` opens connections, which live in `tasks`.
    pub fn new(dial: &Arc<dyn Dial>, tasks: &Tasks, random: &Random, registry: &Registry) -> Self {
        Self {
            clients: Clients::new(Arc::clone(dial), Credentials::default(), tasks.clone()),
            memo: ConversionCache::new(tasks.clone()),
            metrics: registry.part(ConversionMetrics::new),
            random: random.clone(),
            made: AtomicU64::new(0),
        }
    }

    /// The client that a `WebhookClientConfig` describes.
    fn client(&self, config: &Value) -> Result<Arc<Client>, ConfigurationError> {
        let mut config = Config::of(config)?;
        if config.ca_bundle.trim_ascii().is_empty() {
            config.ca_bundle.clear();
        }
        self.clients.client(&config)
    }
}

/// The conversion of the objects of one definition, as it is configured at one time.
pub struct Conversion {
    shared: Arc<Converters>,
    id: u64,
    definition: String,
    versions: Arc<Versions>,
    /// What the webhook is sent; `None` if it reads nothing that is sent here.
    review: Option<ReviewVersion>,
    client: Result<Arc<Client>, ConfigurationError>,
    calls: Semaphore,
    flights: Mutex<HashMap<Id, Flight>>,
}

impl std::fmt::Debug for Conversion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conversion").field("definition", &self.definition).finish_non_exhaustive()
    }
}

impl Drop for Conversion {
    fn drop(&mut self) {
        self.shared.memo.forget(self.id);
    }
}

/// Why a call brought nothing.
enum Failure {
    /// The webhook could not be asked.
    Call(Error),
    /// It answered what is no answer to this, or was not even asked about one of the objects: fewer at a time may do better.
    Answer(Error),
}

impl Failure {
    fn into_error(self) -> Error {
        match self {
            Self::Call(error) | Self::Answer(error) => error,
        }
    }
}

impl Conversion {
    /// The conversion that `spec.conversion` of a definition describes, between these versions.
    pub fn new(shared: &Arc<Converters>, definition: &str, spec: &Value, versions: Arc<Versions>) -> Self {
        let webhook = spec.get("webhook").unwrap_or(&Value::Null);
        let reviews = webhook.get("conversionReviewVersions").and_then(Value::as_array);
        let review = reviews.into_iter().flatten().filter_map(Value::as_str).find_map(ReviewVersion::of);
        Self {
            id: shared.made.fetch_add(1, Ordering::Relaxed),
            definition: definition.to_owned(),
            versions,
            review,
            client: shared.client(webhook.get("clientConfig").unwrap_or(&Value::Null)),
            calls: Semaphore::new(CALLS_MAX),
            flights: Mutex::default(),
            shared: Arc::clone(shared),
        }
    }

    /// The versions between which it converts.
    pub fn versions(&self) -> &Arc<Versions> {
        &self.versions
    }

    /// Objects in a version, in their order: all of them up to the first that cannot be had in it, and why that is.
    pub async fn objects(
        &self,
        objects: Vec<Arc<CachedObject>>,
        to: &str,
    ) -> (Vec<Arc<CachedObject>>, Option<Error>) {
        if objects.iter().all(|object| object.api_version() == to) {
            return (objects, None);
        }
        let mut converted = Vec::with_capacity(objects.len());
        for window in objects.chunks(WINDOW_OBJECTS) {
            for outcome in self.window(window, to).await {
                match outcome {
                    Ok(object) => converted.push(object),
                    Err(error) => return (converted, Some(error)),
                }
            }
        }
        (converted, None)
    }

    /// An object that is in no cache, in a version.
    ///
    /// # Errors
    /// 500 in upstream's words.
    pub async fn value(&self, mut object: Value, to: &str) -> Result<Value> {
        if version_of(&object) == to {
            return Ok(object);
        }
        let revision = metadata::remove(&mut object, "resourceVersion");
        let mut converted = self.one(&object, to).await?;
        if let Some(revision) = revision {
            metadata::set(&mut converted, "resourceVersion", revision);
        }
        Ok(converted)
    }

    async fn one(&self, object: &Value, to: &str) -> Result<Value> {
        let outcomes = self.ask(std::slice::from_ref(object), to).await.map_err(Failure::into_error)?;
        outcomes.into_iter().next().unwrap_or_else(|| Err(Error::internal("nothing was converted")))
    }

    /// Keeps what an object is in a version: whoever wrote it has had it converted.
    pub fn keep(&self, object: &Arc<CachedObject>) {
        self.shared.memo.keep(self.id_of(object, object.api_version()), object);
    }

    fn id_of(&self, object: &CachedObject, to: &str) -> Id {
        Id { conversion: self.id, to: to.into(), key: Arc::clone(&object.key), revision: object.revision }
    }

    /// As many of the objects as can be had, with the first failure at the end.
    async fn window(&self, objects: &[Arc<CachedObject>], to: &str) -> Vec<Outcome> {
        let as_it_is =
            |object: &Arc<CachedObject>| (object.api_version() == to).then(|| Ok(Arc::clone(object)));
        let mut found: Vec<Option<Outcome>> = objects.iter().map(as_it_is).collect();
        loop {
            // Nobody needs what follows a failure.
            if let Some(end) = found.iter().position(|one| matches!(one, Some(Err(_)))) {
                found.truncate(end + 1);
            }
            if found.iter().all(Option::is_some) {
                return found.into_iter().flatten().collect();
            }
            let (claims, flights) = self.claim(objects, &mut found, to);
            for (at, outcome) in self.convert(claims, to).await {
                put(&mut found, at, outcome);
            }
            let end = found.iter().position(|one| matches!(one, Some(Err(_)))).unwrap_or(found.len());
            for (at, mut flight) in flights.into_iter().filter(|(at, _)| *at < end) {
                // Whoever had it in hand may be gone without an outcome; then it is asked for again.
                if let Ok(outcome) = flight.wait_for(Option::is_some).await
                    && let Some(outcome) = outcome.clone()
                {
                    put(&mut found, at, outcome);
                }
            }
        }
    }

    /// Fills in what is kept. The rest is either in nobody's hand, and is from now on in the caller's, or in somebody's.
    fn claim<'c>(
        &'c self,
        objects: &'c [Arc<CachedObject>],
        found: &mut [Option<Outcome>],
        to: &str,
    ) -> (Vec<Claim<'c>>, Vec<(usize, Flight)>) {
        let (mut claims, mut theirs) = (Vec::new(), Vec::new());
        let mut flights = self.flights.lock();
        for (at, (object, found)) in
            objects.iter().zip(found).enumerate().filter(|(_, (_, one))| one.is_none())
        {
            let id = self.id_of(object, to);
            if let Some(kept) = self.shared.memo.get(&id) {
                *found = Some(Ok(kept));
            } else if let Some(flight) = flights.get(&id) {
                theirs.push((at, flight.clone()));
            } else {
                let (outcome, flight) = watch::channel(None);
                flights.insert(id.clone(), flight);
                claims.push(Claim { conversion: self, id, at, object, outcome });
            }
        }
        (claims, theirs)
    }

    /// Has converted what is in hand, in batches.
    async fn convert(&self, claims: Vec<Claim<'_>>, to: &str) -> Vec<(usize, Outcome)> {
        let mut calls: Vec<BoxFuture<'_, _>> = Vec::new();
        for batch in batches(claims) {
            calls.push(self.batch(batch, to).boxed());
        }
        stream::iter(calls).buffered(CALLS_OF_REQUEST_MAX).concat().await
    }

    async fn batch(&self, claims: Vec<Claim<'_>>, to: &str) -> Vec<(usize, Outcome)> {
        let originals: Vec<Value> = claims.iter().map(|claim| claim.original()).collect();
        match self.ask(&originals, to).await {
            Ok(outcomes) => claims.into_iter().zip(outcomes).map(|(claim, one)| claim.settle(one)).collect(),
            Err(Failure::Answer(_)) if claims.len() > 1 => self.one_by_one(claims, &originals, to).await,
            Err(failure) => {
                let error = failure.into_error();
                claims.into_iter().map(|claim| claim.settle(Err(error.clone()))).collect()
            }
        }
    }

    /// Finds the object that keeps others from being converted; what follows it is given back.
    async fn one_by_one(
        &self,
        claims: Vec<Claim<'_>>,
        originals: &[Value],
        to: &str,
    ) -> Vec<(usize, Outcome)> {
        let mut settled = Vec::new();
        for (claim, original) in claims.into_iter().zip(originals) {
            let outcome = self.one(original, to).await;
            let is_failed = outcome.is_err();
            settled.push(claim.settle(outcome));
            if is_failed {
                break;
            }
        }
        settled
    }

    /// Asks the webhook about some objects.
    async fn ask(&self, originals: &[Value], to: &str) -> Result<Vec<Result<Value>>, Failure> {
        let from = originals.first().map(version_of).unwrap_or_default();
        for version in originals.iter().map(version_of).chain([to]) {
            if self.versions.schema(version).is_none() {
                let way = if version == to { "to" } else { "from" };
                let text = format!("request to convert CR {way} an invalid group/version: {version}");
                return Err(Failure::Answer(Error::of_unknown_reason(text)));
            }
        }
        let begun = Instant::now();
        let outcome = self.asked(originals, to, begun + CALL_MAX).await;
        let failure = match &outcome {
            Err((failure, _)) => Some(*failure),
            Ok(all) if all.iter().any(Result::is_err) => Some(FailureType::InvalidConvertedObject),
            Ok(_) => None,
        };
        let (took, metrics) = (begun.elapsed(), &self.shared.metrics);
        metrics.asked(&self.definition, version_name(from), version_name(to), took, failure);
        outcome.map_err(|(_, failure)| failure)
    }

    async fn asked(
        &self,
        originals: &[Value],
        to: &str,
        deadline: Instant,
    ) -> Result<Vec<Result<Value>>, (FailureType, Failure)> {
        let of = originals.first().map(gvk).unwrap_or_default();
        let told = |why: String| Error::of_unknown_reason(format!("conversion webhook for {of} {why}"));
        let uncalled = |why: String| (FailureType::Call, Failure::Call(told(format!("failed: {why}"))));
        let review =
            self.review.ok_or_else(|| uncalled("no supported conversion review versions".to_owned()))?;
        let client = self
            .client
            .as_ref()
            .map_err(|why| uncalled(format!("could not get REST client: {}", base::error_chain(why))))?;
        let uid = self.shared.random.uuid();
        let body =
            review::request(review, &uid, to, originals).map_err(|failure| uncalled(failure.to_string()))?;
        let answer_bytes_max = ANSWER_BYTES + ANSWER_GROWTH * body.len();
        // Whoever waits too long for a place is told so as if the webhook had not answered.
        let _place = timeout_at(deadline, self.calls.acquire()).await;
        let answer = client.post_for(body, deadline, answer_bytes_max).await.map_err(|failure| {
            let is_answered = failure.is_too_long();
            let error = told(format!("failed: {failure}"));
            (FailureType::Call, if is_answered { Failure::Answer(error) } else { Failure::Call(error) })
        })?;
        let malformed = |why: review::AnswerError| {
            (FailureType::MalformedResponse, Failure::Answer(told(format!("failed: {why}"))))
        };
        let answered = review::answer(&answer)
            .map_err(|failure| (FailureType::Call, Failure::Answer(told(format!("failed: {failure}")))))?;
        let converted = review::objects(review, &uid, answered).map_err(malformed)?;
        if converted.len() != originals.len() {
            let (got, expected) = (converted.len(), originals.len());
            let error = told(format!("returned {got} objects, expected {expected}"));
            return Err((FailureType::PartialResponse, Failure::Answer(error)));
        }
        let objects = originals.iter().zip(converted).map(|(original, converted)| {
            let object = check::converted(original, converted.get(), to).map_err(|why| {
                Error::of_unknown_reason(format!("conversion webhook for {} {why}", gvk(original)))
            })?;
            Ok(match self.versions.schema(to) {
                Some(schema) => pruned(schema, object),
                None => object,
            })
        });
        Ok(objects.collect())
    }
}

/// An object that is being converted; nobody else asks for it meanwhile.
struct Claim<'c> {
    conversion: &'c Conversion,
    id: Id,
    /// Its place among those that are asked for.
    at: usize,
    object: &'c Arc<CachedObject>,
    outcome: watch::Sender<Option<Outcome>>,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.conversion.flights.lock().remove(&self.id);
    }
}

impl Claim<'_> {
    /// The object as the webhook gets it: which revision it has is nothing that could be converted.
    fn original(&self) -> Value {
        let mut value = self.object.value();
        metadata::remove(&mut value, "resourceVersion");
        value
    }

    /// Tells everybody who waits.
    fn settle(self, converted: Result<Value>) -> (usize, Outcome) {
        let outcome = converted.and_then(|value| {
            let stored = encode_stored(&value).map_err(Error::internal)?;
            let object =
                CachedObject::from_stored(Arc::clone(&self.object.key), &stored, self.object.revision);
            object.map(Arc::new).ok_or_else(|| Error::internal("the converted object could not be encoded"))
        });
        if let Ok(object) = &outcome {
            self.conversion.shared.memo.keep(self.id.clone(), object);
        }
        self.outcome.send_replace(Some(outcome.clone()));
        (self.at, outcome)
    }
}

fn put(found: &mut [Option<Outcome>], at: usize, outcome: Outcome) {
    if let Some(place) = found.get_mut(at) {
        *place = Some(outcome);
    }
}

/// Parts of moderate size, in order.
fn batches(claims: Vec<Claim<'_>>) -> Vec<Vec<Claim<'_>>> {
    let mut batches: Vec<Vec<Claim<'_>>> = Vec::new();
    let mut bytes = 0;
    for claim in claims {
        let size = claim.object.json.len();
        match batches.last_mut() {
            Some(batch) if batch.len() < BATCH_OBJECTS_MAX && bytes + size <= BATCH_BYTES_MAX => {
                bytes += size;
                batch.push(claim);
            }
            _ => {
                bytes = size;
                batches.push(vec![claim]);
            }
        }
    }
    batches
}

fn version_of(object: &Value) -> &str {
    object.get("apiVersion").and_then(Value::as_str).unwrap_or_default()
}

/// `v1` of `example.com/v1`.
fn version_name(api_version: &str) -> &str {
    api_version.rsplit('/').next().unwrap_or_default()
}

/// `example.com/v1, Kind=Widget`, as errors name what was to be converted.
fn gvk(object: &Value) -> String {
    format!("{}, Kind={}", version_of(object), object.get("kind").and_then(Value::as_str).unwrap_or_default())
}
