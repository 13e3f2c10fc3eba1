//! The server: sockets, the current zone, and the task that keeps the zone up to date.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use base::Tasks;
use controller::Informers;
use controller::trace::{Reporter, Span};
use hickory_proto::op::{Edns, Message, MessageType, Metadata, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Record};
use hickory_server::Server;
use hickory_server::net::runtime::Time;
use hickory_server::server::{Request, RequestHandler, ResponseHandler, ResponseInfo};
use hickory_server::zone_handler::MessageResponseBuilder;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::watch;

use crate::forward::{ForwardError, Forwarder};
use crate::zone::{self, ServiceName};
use crate::{Answer, Config, Decision, Zone, answer};

const TCP_IDLE_MAX: Duration = Duration::from_secs(10);
const TCP_RESPONSES_MAX: usize = 64;
/// Fits into one packet on every usual network. Source: DNS Flag Day 2020.
const UDP_PAYLOAD_MAX: u16 = 1232;

/// The reason why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    /// The address is not there or taken.
    #[error("cannot listen for DNS on {address}")]
    Bind {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// A server that runs until its tasks stop.
#[derive(Debug)]
pub struct Running {
    /// The addresses on which it listens.
    pub addresses: Vec<SocketAddr>,
    /// True as soon as cluster names are answered.
    pub ready: watch::Receiver<bool>,
}

/// The zone that is served; `None` until it is known.
type Current = Arc<RwLock<Option<Arc<Zone>>>>;

/// Starts the server. Until the cluster's names are known, questions for them fail at once. A Service's name that
/// begins to lead somewhere is a span.
pub async fn run(
    informers: &Informers,
    config: Config,
    reporter: Reporter,
    tasks: &Tasks,
) -> Result<Running, DnsError> {
    let current = Current::default();
    let addresses = serve(&config, current.clone(), tasks).await?;
    let (ready_now, ready) = watch::channel(false);
    let informers = informers.clone();
    tasks.spawn("dns zone", async move {
        let services = informers.informer::<Service>();
        let slices = informers.informer::<EndpointSlice>();
        services.synced().await;
        slices.synced().await;
        let (mut service_changes, mut slice_changes) = (services.subscribe(), slices.subscribe());
        let mut serial = 0u32;
        let mut before = BTreeSet::new();
        let mut news: BTreeMap<ServiceName, u64> = BTreeMap::new();
        loop {
            let start = informers.clock().now();
            serial = serial.wrapping_add(1);
            let zone = Zone::new(&services.list(), &slices.list(), &config.domain, serial);
            let zone = zone.with_reverse_cidrs(&config.reverse_cidrs);
            let reachable = zone.reachable();
            *current.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(zone));
            ready_now.send_replace(true);
            let now = informers.clock().now();
            for ((namespace, name), revision) in std::mem::take(&mut news) {
                let service = (namespace, name);
                if reachable.contains(&service) && !before.contains(&service) {
                    let (namespace, name) = service;
                    reporter.span(Span {
                        cause: revision,
                        component: "dns".to_owned(),
                        name: "name answers".to_owned(),
                        object: format!("services/{namespace}/{name}"),
                        start_us: start.as_microsecond(),
                        end_us: now.as_microsecond(),
                        detail: format!("{name}.{namespace}.svc.{}", config.domain),
                    });
                }
            }
            before = reachable;
            tokio::select! {
                changes = service_changes.next() => news.extend(changes.iter().filter_map(|change| {
                    let (namespace, name) = change.key.to_string().split_once('/').map(owned)?;
                    Some(((namespace, name), change.revision))
                })),
                changes = slice_changes.next() => news.extend(changes.iter().filter_map(|change| {
                    Some((zone::service_of(change.new.as_deref()?)?, change.revision))
                })),
            }
        }
    });
    Ok(Running { addresses, ready })
}

fn owned((namespace, name): (&str, &str)) -> ServiceName {
    (namespace.to_owned(), name.to_owned())
}

async fn serve(config: &Config, current: Current, tasks: &Tasks) -> Result<Vec<SocketAddr>, DnsError> {
    let forwarder = Forwarder::new(config.upstreams.clone());
    let mut server = Server::new(Handler { current, forwarder });
    let mut addresses = Vec::with_capacity(config.bind.len());
    for &wanted in &config.bind {
        let bind_error = |source| DnsError::Bind { address: wanted, source };
        let socket = UdpSocket::bind(wanted).await.map_err(bind_error)?;
        let address = socket.local_addr().map_err(bind_error)?;
        let listener = TcpListener::bind(address).await.map_err(bind_error)?;
        server.register_socket(socket);
        server.register_listener(listener, TCP_IDLE_MAX, TCP_RESPONSES_MAX);
        addresses.push(address);
    }
    tasks.spawn("dns server", async move {
        if let Err(error) = server.block_until_done().await {
            tracing::error!(%error, "dns server ended");
        }
    });
    Ok(addresses)
}

struct Handler {
    current: Current,
    forwarder: Forwarder,
}

/// What goes back, before it has a header.
#[derive(Default)]
struct Reply {
    code: Option<ResponseCode>,
    authoritative: bool,
    answers: Vec<Record>,
    authorities: Vec<Record>,
    additionals: Vec<Record>,
}

impl Reply {
    fn failed(code: ResponseCode) -> Self {
        Self { code: Some(code), ..Self::default() }
    }

    fn of(answer: Answer) -> Self {
        Self {
            code: Some(answer.code),
            authoritative: true,
            answers: answer.answers,
            authorities: answer.soa.into_iter().collect(),
            additionals: answer.additionals,
        }
    }
}

#[async_trait]
impl RequestHandler for Handler {
    async fn handle_request<R: ResponseHandler, T: Time>(
        &self,
        request: &Request,
        mut to: R,
    ) -> ResponseInfo {
        let mut reply = self.reply(request).await;
        // Clients take the first address: let each come first in turn.
        let turn = usize::from(request.metadata.id) % reply.answers.len().max(1);
        if reply
            .answers
            .iter()
            .all(|record| Some(&record.name) == reply.answers.first().map(|first| &first.name))
        {
            reply.answers.rotate_left(turn);
        }
        let mut metadata = Metadata::response_from_request(&request.metadata);
        metadata.response_code = reply.code.unwrap_or(ResponseCode::NoError);
        metadata.authoritative = reply.authoritative;
        metadata.recursion_available = true;
        let edns = request.edns.as_ref().map(|asked| {
            let mut edns = Edns::new();
            edns.set_max_payload(asked.max_payload().clamp(512, UDP_PAYLOAD_MAX));
            edns
        });
        let mut builder = MessageResponseBuilder::from_message_request(request);
        if let Some(edns) = &edns {
            builder.edns(edns);
        }
        let none: [Record; 0] = [];
        let response = builder.build(metadata, &reply.answers, &reply.authorities, &none, &reply.additionals);
        match to.send_response(response).await {
            Ok(info) => info,
            Err(error) => {
                tracing::debug!(%error, client = %request.src(), "cannot send a dns response");
                failed_info(request)
            }
        }
    }
}

fn failed_info(request: &Request) -> ResponseInfo {
    let mut metadata = Metadata::response_from_request(&request.metadata);
    metadata.response_code = ResponseCode::ServFail;
    ResponseInfo::from(hickory_proto::op::Header { metadata, counts: Default::default() })
}

impl Handler {
    async fn reply(&self, request: &Request) -> Reply {
        let metadata = &request.metadata;
        if metadata.message_type != MessageType::Query || metadata.op_code != OpCode::Query {
            return Reply::failed(ResponseCode::NotImp);
        }
        let [query] = request.queries.queries() else { return Reply::failed(ResponseCode::FormErr) };
        let query = query.original();
        if query.query_class() != DNSClass::IN {
            return Reply::failed(ResponseCode::Refused);
        }
        let zone = self.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(zone) = zone else { return Reply::failed(ResponseCode::ServFail) };
        match answer(&zone, query.name(), query.query_type()) {
            Decision::Answer(answer) => Reply::of(answer),
            Decision::Forward => self.forward(query.clone()).await,
            Decision::Chase(answer, target) => {
                let mut reply = Reply::of(answer);
                // The alias itself is true whether or not its target can be found now.
                reply.answers.extend(self.forward(Query::query(target, query.query_type())).await.answers);
                reply
            }
        }
    }

    async fn forward(&self, query: Query) -> Reply {
        let mut question = Message::query();
        question.metadata.recursion_desired = true;
        question.add_query(query);
        match self.forwarder.ask(&question).await {
            Ok(answer) => Reply {
                code: Some(answer.metadata.response_code),
                authoritative: false,
                answers: answer.answers,
                authorities: answer.authorities,
                additionals: answer.additionals,
            },
            Err(ForwardError::Nobody) => Reply::failed(ResponseCode::Refused),
            Err(error) => {
                tracing::debug!(%error, "cannot forward a question");
                Reply::failed(ResponseCode::ServFail)
            }
        }
    }
}

#[cfg(test)]
#[path = "server/tests.rs"]
mod tests;
