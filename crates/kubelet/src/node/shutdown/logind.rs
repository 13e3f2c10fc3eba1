//! logind, which shuts the machine down: asked over the system bus to wait, and listened to.
//!
//! Source: `org.freedesktop.login1(5)`, systemd's inhibitor locks; `pkg/kubelet/nodeshutdown/systemd` of upstream.

use std::path::Path;
use std::time::Duration;

use futures::StreamExt;
use zbus::connection::Builder;
use zbus::{Connection, MatchRule, MessageStream, OwnedFd, OwnedVariant};

const LOGIND: &str = "org.freedesktop.login1";
const LOGIND_PATH: &str = "/org/freedesktop/login1";
const LOGIND_MANAGER: &str = "org.freedesktop.login1.Manager";
const SYSTEMD: &str = "org.freedesktop.systemd1";
const SYSTEMD_PATH: &str = "/org/freedesktop/systemd1";
const SYSTEMD_MANAGER: &str = "org.freedesktop.systemd1.Manager";

/// How long an answer is waited for. Source: libdbus' default.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(25);

/// Where logind reads how long it may be held up, until the next boot. Source: `logind.conf.d(5)`.
const DROP_IN: &str = "/run/systemd/logind.conf.d/99-kubelet.conf";

/// Why the machine's shutdown cannot be held up.
#[derive(Debug, thiserror::Error)]
pub(super) enum LogindError {
    #[error("talk to logind")]
    Bus(#[from] zbus::Error),
    #[error("write {DROP_IN}")]
    DropIn(#[source] std::io::Error),
    #[error(
        "node shutdown manager was unable to update logind InhibitDelayMaxSec to {wanted:?} (ShutdownGracePeriod), current value of InhibitDelayMaxSec ({has:?}) is less than requested ShutdownGracePeriod"
    )]
    Delay { wanted: Duration, has: Duration },
}

type Result<T> = std::result::Result<T, LogindError>;

/// As long as this lives, logind waits for it, up to the delay that it allows.
pub(super) struct Lock {
    _descriptor: OwnedFd,
}

/// A connection to the system bus.
pub(super) struct Logind(Connection);

impl Logind {
    /// `address` is the bus's; `None` for the usual one.
    pub(super) async fn connect(address: Option<&str>) -> Result<Self> {
        let builder = match address {
            Some(address) => Builder::address(address),
            None => Builder::system(),
        };
        Ok(Self(builder.method_timeout(ANSWER_TIMEOUT).build().await?))
    }

    /// Makes logind wait for as long as `wanted`, if it does not anyway.
    pub(super) async fn allow_delay(&self, wanted: Duration) -> Result<()> {
        if self.delay_max().await? >= wanted {
            return Ok(());
        }
        let text = format!(
            "# Kubelet logind override\n[Login]\nInhibitDelayMaxSec={}\n",
            wanted.as_secs_f64().ceil()
        );
        let path = Path::new(DROP_IN);
        let written = async {
            if let Some(folder) = path.parent() {
                tokio::fs::create_dir_all(folder).await?;
            }
            tokio::fs::write(path, text).await
        };
        written.await.map_err(LogindError::DropIn)?;
        // logind reads its configuration again when it gets the signal for that.
        const SIGHUP: i32 = 1;
        let body = ("systemd-logind.service", "all", SIGHUP);
        let manager = Some(SYSTEMD_MANAGER);
        self.0.call_method(Some(SYSTEMD), SYSTEMD_PATH, manager, "KillUnit", &body).await?;
        let has = self.delay_max().await?;
        if has < wanted { Err(LogindError::Delay { wanted, has }) } else { Ok(()) }
    }

    async fn delay_max(&self) -> Result<Duration> {
        let body = (LOGIND_MANAGER, "InhibitDelayMaxUSec");
        let properties = Some("org.freedesktop.DBus.Properties");
        let answer = self.0.call_method(Some(LOGIND), LOGIND_PATH, properties, "Get", &body).await?;
        let value: OwnedVariant = answer.body().deserialize()?;
        Ok(Duration::from_micros(u64::try_from(value)?))
    }

    /// Asks logind to wait.
    pub(super) async fn inhibit(&self) -> Result<Lock> {
        let body = ("shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay");
        let manager = Some(LOGIND_MANAGER);
        let answer = self.0.call_method(Some(LOGIND), LOGIND_PATH, manager, "Inhibit", &body).await?;
        Ok(Lock { _descriptor: answer.body().deserialize()? })
    }

    /// Whether the machine goes down, each time that changes. Ends with the connection.
    pub(super) async fn signals(&self) -> Result<impl futures::Stream<Item = bool> + Unpin + use<>> {
        let rule = MatchRule::builder()
            .msg_type(zbus::message::Type::Signal)
            .interface(LOGIND_MANAGER)
            .member("PrepareForShutdown")
            .path(LOGIND_PATH)
            .build()?;
        let stream = MessageStream::for_match_rule(rule, &self.0, None).await?;
        let read = |message: zbus::Result<zbus::Message>| {
            let read = message.and_then(|message| message.body().deserialize::<bool>());
            std::future::ready(match read {
                Ok(goes_down) => Some(goes_down),
                Err(error) => {
                    tracing::warn!(%error, "a signal of logind was not understood");
                    None
                }
            })
        };
        Ok(stream.filter_map(read))
    }
}
