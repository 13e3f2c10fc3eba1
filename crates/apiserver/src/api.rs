//! The parts of one API server.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base::Tasks;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::at_rest::AtRest;
use crate::audit::Audit;
use crate::flow_control::FlowControl;
use crate::kubelet_client::KubeletClient;
use crate::progress::Progress;
use crate::status::{Error, Result};
use crate::trace::Trace;
use crate::write::Writer;

/// How many requests may wait for a place.
const WAITING_MAX: usize = 4096;
/// How long a request waits for a place.
const WAITING_TIME_MAX: Duration = Duration::from_secs(15);

/// Everything that requests work with. One per server, shared by all of them; what is below it can be reached through it.
pub struct Api {
    /// The way to the store, and through it all that can be known.
    pub writer: Writer,
    /// The form of values in the store.
    pub at_rest: Arc<AtRest>,
    /// Streams to kubelets.
    pub kubelets: KubeletClient,
    /// The flow control.
    pub flow: FlowControl,
    /// The audit log, if there is one.
    pub audit: Option<Arc<Audit>>,
    /// The causes of commits.
    pub trace: Arc<Trace>,
    /// The server's tasks.
    pub tasks: Tasks,
    /// The tasks that serve clients: they go on through the delay after readiness has failed, and end when the drain
    /// begins.
    pub serving: Tasks,
    /// The progress in serving CustomResourceDefinitions.
    pub custom: Progress,
    /// The state that changes while it runs.
    pub state: State,
}

impl Deref for Api {
    type Target = Writer;

    fn deref(&self) -> &Writer {
        &self.writer
    }
}

/// The state that changes while a server runs.
pub struct State {
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
    bootstrapped: watch::Sender<bool>,
}

impl State {
    /// A server that is not bootstrapped, with room for so many requests.
    pub fn new(requests_in_flight_max: usize) -> Self {
        let places = Arc::new(Semaphore::new(requests_in_flight_max));
        Self { places, waiting: AtomicUsize::new(0), bootstrapped: watch::Sender::new(false) }
    }
}

impl Api {
    /// A place among the requests under way; it is given back when dropped. Waits for one in a bounded queue.
    ///
    /// # Errors
    /// 429 when the queue is full or none becomes free in time.
    pub async fn place(&self) -> Result<OwnedSemaphorePermit> {
        let refused = || Error::too_many_requests("Too many requests, please try again later.", 1);
        let places = Arc::clone(&self.state.places);
        if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
            return Ok(place);
        }
        let waiting = self.state.waiting.fetch_add(1, Ordering::Relaxed);
        let place = if waiting < WAITING_MAX {
            tokio::time::timeout(WAITING_TIME_MAX, places.acquire_owned())
                .await
                .ok()
                .and_then(|place| place.ok())
        } else {
            None
        };
        self.state.waiting.fetch_sub(1, Ordering::Relaxed);
        place.ok_or_else(refused)
    }

    /// Says that the bootstrap objects are there.
    pub fn bootstrapped(&self) {
        self.state.bootstrapped.send_replace(true);
    }

    /// `true` if the bootstrap objects are there.
    pub fn is_bootstrapped(&self) -> bool {
        *self.state.bootstrapped.borrow()
    }

    /// Waits until the bootstrap objects are there.
    pub async fn wait_bootstrapped(&self) {
        let mut receiver = self.state.bootstrapped.subscribe();
        if receiver.wait_for(|done| *done).await.is_err() {
            tracing::debug!("the server ended before it was ready");
        }
    }
}
