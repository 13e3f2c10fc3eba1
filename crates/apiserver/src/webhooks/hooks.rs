//! The configurations, compiled: nothing of them is read while a request waits.
//!
//! [`Hooks`] looks at one kind of configuration in the watch cache. Whether anything has changed costs one atomic load;
//! what has changed is compiled by the first request that finds it, and what has not is kept.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use machinery::labels::{ParseError, Selector};
use parking_lot::{Mutex, RwLock};
use serde_json::Value;

use super::client::{Client, Clients, Config};
use super::conditions::{Compile, Conditions};
use super::rules::Rule;
use crate::cache::CachedObject;
use crate::configuration_error::ConfigurationError;
use crate::kinds::Kind;
use crate::status::Result;

/// How long a webhook has that does not say.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// The treatment of a request when a webhook cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// It is refused.
    Fail,
    /// It goes on.
    Ignore,
}

/// The form of reviews that a webhook reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `admission.k8s.io/v1`
    V1,
    /// `admission.k8s.io/v1beta1`
    V1Beta1,
}

/// One webhook of a configuration.
#[derive(Debug)]
pub struct Hook {
    /// Its name.
    pub name: String,
    /// The name of the configuration that it is in.
    pub configuration: Arc<str>,
    /// Tells it from all others.
    pub uid: String,
    /// The rules: the requests that it is asked about.
    pub rules: Vec<Rule>,
    /// `true` if it is asked about other versions of a resource too.
    pub is_equivalent: bool,
    /// In which namespaces.
    pub namespace_selector: Result<Selector, ParseError>,
    /// About which objects.
    pub object_selector: Result<Selector, ParseError>,
    /// Under which further conditions.
    pub conditions: Option<Arc<dyn Conditions>>,
    /// The treatment when it cannot be asked.
    pub failure_policy: FailurePolicy,
    /// `true` if it may be asked in a dry run.
    pub takes_dry_run: bool,
    /// `true` if it is asked again when another one changes what it has seen.
    pub is_reinvoked: bool,
    /// The time that it has.
    pub timeout: Duration,
    /// The version of review that it is sent; `None` if it reads nothing that is sent here.
    pub review: Option<ReviewVersion>,
    /// The client that asks it.
    pub client: Result<Arc<Client>, ConfigurationError>,
}

/// The compilers of a hook.
pub struct Compiler {
    /// Makes clients.
    pub clients: Clients,
    /// Makes conditions.
    pub conditions: Arc<dyn Compile>,
}

impl Compiler {
    /// The webhooks of a configuration, in its order.
    fn configuration(&self, object: &Value) -> Vec<Arc<Hook>> {
        let text = |value: &Value, pointer: &str| {
            value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let configuration: Arc<str> = text(object, "/metadata/name").into();
        let mut seen: HashMap<String, usize> = HashMap::new();
        let hooks = object.get("webhooks").and_then(Value::as_array).into_iter().flatten();
        let compiled = hooks.map(|hook| {
            let name = text(hook, "/name");
            let nth = seen.entry(name.clone()).or_default();
            let uid = format!("{configuration}/{name}/{nth}");
            *nth += 1;
            Arc::new(self.hook(hook, name, Arc::clone(&configuration), uid))
        });
        compiled.collect()
    }

    fn hook(&self, hook: &Value, name: String, configuration: Arc<str>, uid: String) -> Hook {
        let text = |name: &str| hook.get(name).and_then(Value::as_str);
        let selector = |name: &str| Selector::from_label_selector(hook.get(name));
        let items = |name: &str| hook.get(name).and_then(Value::as_array).into_iter().flatten();
        let mut versions = items("admissionReviewVersions").filter_map(|version| match version.as_str()? {
            "v1" => Some(ReviewVersion::V1),
            "v1beta1" => Some(ReviewVersion::V1Beta1),
            _ => None,
        });
        let seconds = hook.get("timeoutSeconds").and_then(Value::as_u64);
        Hook {
            name,
            configuration,
            uid,
            rules: items("rules").map(Rule::of).collect(),
            is_equivalent: text("matchPolicy") == Some("Equivalent"),
            namespace_selector: selector("namespaceSelector"),
            object_selector: selector("objectSelector"),
            conditions: hook.get("matchConditions").and_then(|all| self.conditions.compile(all)),
            failure_policy: match text("failurePolicy") {
                Some("Ignore") => FailurePolicy::Ignore,
                _ => FailurePolicy::Fail,
            },
            takes_dry_run: matches!(text("sideEffects"), Some("None" | "NoneOnDryRun")),
            is_reinvoked: text("reinvocationPolicy") == Some("IfNeeded"),
            timeout: seconds.map_or(TIMEOUT_DEFAULT, Duration::from_secs),
            review: versions.next(),
            client: self.client(hook.get("clientConfig").unwrap_or(&Value::Null)),
        }
    }

    fn client(&self, config: &Value) -> Result<Arc<Client>, ConfigurationError> {
        self.clients.client(&Config::of(config)?)
    }
}

/// The webhooks of all configurations of a kind, in the order in which they are asked.
pub struct Hooks {
    /// Absent where such configurations are not served.
    kind: Option<Kind>,
    compiler: Arc<Compiler>,
    /// How often the cache had changed when the list was made, and one more; 0 if it never was.
    seen: AtomicU64,
    /// `None` if there are none.
    current: RwLock<Option<Arc<[Arc<Hook>]>>>,
    /// Whether there is any: most servers have none, and then nothing else is looked at.
    has_some: AtomicBool,
    known: Mutex<HashMap<Arc<str>, Known>>,
}

/// A configuration that was compiled.
struct Known {
    object: Arc<CachedObject>,
    hooks: Vec<Arc<Hook>>,
}

impl Hooks {
    /// The webhooks of a kind's objects; nothing is compiled yet.
    pub fn new(kind: Option<Kind>, compiler: Arc<Compiler>) -> Self {
        Self {
            kind,
            compiler,
            seen: AtomicU64::new(0),
            current: RwLock::new(None),
            has_some: AtomicBool::new(false),
            known: Mutex::default(),
        }
    }

    /// All of them, as of what the cache holds: by name of the configuration, and then in its order. `None` if there are
    /// none.
    ///
    /// # Errors
    /// 500 if a configuration cannot be read: nobody knows what it would refuse.
    pub fn current(&self) -> Result<Option<Arc<[Arc<Hook>]>>> {
        let Some(kind) = &self.kind else { return Ok(None) };
        if self.seen.load(Ordering::Acquire) != kind.cache().changes() + 1 {
            self.compile(kind)?;
        }
        match self.has_some.load(Ordering::Acquire) {
            true => Ok(self.current.read().clone()),
            false => Ok(None),
        }
    }

    fn compile(&self, kind: &Kind) -> Result<()> {
        let mut known = self.known.lock();
        // Counted before it is read: what comes in between is found by the next request.
        let changes = kind.cache().changes() + 1;
        let listing = kind.cache().read_list(kind.prefix(), 0)?;
        let mut now = HashMap::with_capacity(listing.objects.len());
        let mut all = Vec::new();
        for object in listing.objects {
            let same = known.remove(&object.key).filter(|same| same.object.revision == object.revision);
            let one = same.unwrap_or_else(|| {
                let hooks = self.compiler.configuration(&kind.value(&object));
                Known { object: Arc::clone(&object), hooks }
            });
            all.extend(one.hooks.iter().cloned());
            now.insert(Arc::clone(&object.key), one);
        }
        *known = now;
        self.has_some.store(!all.is_empty(), Ordering::Release);
        *self.current.write() = Some(all.into());
        self.seen.store(changes, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use base::Tasks;
    use futures::future::BoxFuture;
    use serde_json::json;
    use tunnel::Connection;

    use super::super::client::{ConnectionError, Credentials, Dial, ServiceReference};
    use super::super::conditions::NotEvaluated;
    use super::*;

    struct Nowhere;

    impl Dial for Nowhere {
        fn host<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, Result<Connection, ConnectionError>> {
            Box::pin(async { Err(ConnectionError::NoServer) })
        }

        fn service<'a>(
            &'a self,
            _: &'a ServiceReference,
        ) -> BoxFuture<'a, Result<Connection, ConnectionError>> {
            Box::pin(async { Err(ConnectionError::NoServer) })
        }
    }

    fn compiler() -> Compiler {
        let clients = Clients::new(Arc::new(Nowhere), Credentials::default(), Tasks::new());
        Compiler { clients, conditions: Arc::new(NotEvaluated) }
    }

    /// One webhook, as it is written in a configuration.
    pub(crate) fn compile(hook: &Value) -> Hook {
        compiler().hook(hook, "a.b.c".to_owned(), "configuration".into(), "uid".to_owned())
    }

    #[test]
    fn what_a_webhook_does_not_say_is_taken_at_its_strictest() {
        let hook = compile(&json!({}));
        assert_eq!(hook.failure_policy, FailurePolicy::Fail);
        assert!(!hook.takes_dry_run && !hook.is_reinvoked && !hook.is_equivalent && hook.rules.is_empty());
        assert_eq!((hook.timeout, hook.review), (Duration::from_secs(10), None));
        assert_eq!(
            hook.client.unwrap_err().to_string(),
            "webhook configuration must have either service or URL"
        );
    }

    #[test]
    fn a_webhook_is_read_as_it_is_written() {
        let check = |field: Value, holds: fn(&Hook) -> bool| assert!(holds(&compile(&field)), "{field}");
        check(json!({"failurePolicy": "Ignore"}), |hook| hook.failure_policy == FailurePolicy::Ignore);
        check(json!({"sideEffects": "None"}), |hook| hook.takes_dry_run);
        check(json!({"sideEffects": "NoneOnDryRun"}), |hook| hook.takes_dry_run);
        check(json!({"sideEffects": "Some"}), |hook| !hook.takes_dry_run);
        check(json!({"timeoutSeconds": 3}), |hook| hook.timeout == Duration::from_secs(3));
        check(json!({"timeoutSeconds": -3}), |hook| hook.timeout == Duration::from_secs(10));
        let versions = |all: Value| json!({"admissionReviewVersions": all});
        check(versions(json!(["v9", "v1beta1", "v1"])), |hook| hook.review == Some(ReviewVersion::V1Beta1));
        check(versions(json!(["v1"])), |hook| hook.review == Some(ReviewVersion::V1));
        check(json!({"matchConditions": [{"name": "a", "expression": "true"}]}), |hook| {
            hook.conditions.is_some()
        });
        check(json!({"matchConditions": []}), |hook| hook.conditions.is_none());
        let config = |bundle: &str| json!({"clientConfig": {"url": "https://a", "caBundle": bundle}});
        check(config("%"), |hook| hook.client.as_ref().is_err_and(|why| why.to_string() == "caBundle"));
        check(config("aGVsbG8="), |hook| {
            hook.client.as_ref().is_err_and(|why| why.to_string() == "unable to load root certificates")
        });
    }

    #[test]
    fn who_is_called_alike_shares_connections() {
        let compiler = compiler();
        let one = |port: u16| {
            let config = json!({"url": format!("https://localhost:{port}")});
            compiler.client(&config).unwrap()
        };
        let (a, b, c) = (one(1), one(1), one(2));
        assert!(Arc::ptr_eq(&a, &b) && !Arc::ptr_eq(&a, &c));
    }

    #[test]
    fn webhooks_of_one_name_are_told_apart() {
        let object = json!({"metadata": {"name": "conf"}, "webhooks": [{"name": "a.b.c"}, {"name": "d.e.f"},
            {"name": "a.b.c"}]});
        let uids: Vec<String> =
            compiler().configuration(&object).iter().map(|hook| hook.uid.clone()).collect();
        assert_eq!(uids, ["conf/a.b.c/0", "conf/d.e.f/0", "conf/a.b.c/1"]);
    }
}
